"""Requests of claims: equal specs are equal, and what no node can grant is refused at once (gpu:D-9, D-21, D-23)."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.core.model.claimrequests import ClaimRefusal, ClaimRequest, DraFeatures, allows_admin_access
from tests.core.deviceobjects import (
    CLASSES,
    FAST,
    Raw,
    all_devices_request,
    claim_request,
    device_class,
    device_request,
    distinct,
    first_of,
    same,
    spec_of,
)


def refusal(*requests: Raw, **spec: Any) -> str:
    found = ClaimRequest.of(spec_of(*requests, **spec), CLASSES, "team/claim")
    assert isinstance(found, ClaimRefusal), found
    return found.text


def test_equal_specs_are_one_request() -> None:
    def make(replicas: int = 2) -> ClaimRequest:
        config = {"requests": ["r"], "opaque": {"driver": "d", "parameters": {"replicas": replicas}}}
        return claim_request(device_request(2, "fast", selectors=["true"]), constraints=[same("numa")], config=[config])

    assert make() == make()
    assert hash(make()) == hash(make())
    assert make() != make(3)


def test_d20_selectors_of_the_class_come_first() -> None:
    (way,) = claim_request(device_request(1, "fast", selectors=["true"])).requests[0].alternatives
    assert way.selectors == (FAST, "true")


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        (device_request(1, "nic"), "r"),
        (all_devices_request("nic"), "r"),
        (first_of(device_request(1, name="a"), device_request(1, "nic", "b")), "r/b"),
    ],
)
def test_d9_an_unknown_device_class_is_named_with_claim_and_request(request_: Raw, name: str) -> None:
    assert refusal(request_) == f"device class nic does not exist for claim team/claim request {name}"


@pytest.mark.parametrize(
    ("requests", "about"),
    [
        ([device_request(1, allocationMode="Some")], "request r: allocation mode Some is not supported"),
        ([{"name": "r"}], "request r names no devices"),
        ([device_request(1, capacity={"requests": {"memory": "1Gi"}})], "request r: shares of a device"),
        ([{"name": "r", "exactly": {"deviceClassName": "gpu", "selectors": [{}]}}], "a selector of a kind"),
    ],
)
def test_d23_what_is_not_supported_is_refused_and_named(requests: list[Raw], about: str) -> None:
    assert about in refusal(*requests)


def test_d23_an_unknown_constraint_is_refused() -> None:
    assert "constraint of a kind that is not supported" in refusal(device_request(1), constraints=[{"requests": ["r"]}])


def test_d23_prioritised_lists_can_be_switched_off() -> None:
    features = DraFeatures(prioritized_lists=False)
    found = ClaimRequest.of(spec_of(first_of(device_request(1, name="a"))), CLASSES, "team/claim", features)
    assert found == ClaimRefusal("claim team/claim request r: prioritised lists are switched off")
    assert isinstance(ClaimRequest.of(spec_of(device_request(1)), CLASSES, "team/claim", features), ClaimRequest)


def test_d21_more_than_32_devices_are_refused() -> None:
    assert refusal(device_request(33)) == "claim team/claim requests more than 32 devices"
    assert refusal(device_request(32), device_request(1, name="s")) == "claim team/claim requests more than 32 devices"
    assert (
        refusal(device_request(32), all_devices_request(name="s")) == "claim team/claim requests more than 32 devices"
    )
    assert claim_request(device_request(16), device_request(16, name="s")).requests[1].name == "s"
    assert claim_request(
        first_of(device_request(33, name="a"), device_request(1, name="b")), device_request(31, name="s")
    ).requests


@pytest.mark.parametrize(("count", "wanted"), [(3, 3), (1, 1), (0, 1), (-1, 1)])
def test_d4_a_count_that_is_not_positive_means_one(count: int, wanted: int) -> None:
    assert next(claim_request(device_request(count)).alternatives()).device_count == wanted


def test_constraints_cover_requests_with_their_alternatives() -> None:
    (everything, request, alternative) = claim_request(
        first_of(device_request(1, name="a"), device_request(1, name="b")),
        device_request(1, name="s"),
        constraints=[same("x"), same("x", "r"), distinct("x", "r/b", "s")],
    ).constraints
    names = ("r/a", "r/b", "s")
    assert [everything.covers(name) for name in names] == [True, True, True]
    assert [request.covers(name) for name in names] == [True, True, False]
    assert [alternative.covers(name) for name in names] == [False, True, True]
    assert (request.distinct, alternative.distinct) == (False, True)


def test_administrative_access_needs_a_label_of_the_namespace() -> None:
    assert claim_request(device_request(1, adminAccess=True)).wants_admin_access
    assert not claim_request(device_request(1)).wants_admin_access
    label = "resource.kubernetes.io/admin-access"
    assert allows_admin_access({label: "true"})
    assert not any(allows_admin_access(labels) for labels in ({}, {label: "false"}, {label: "True"}))


def test_a_class_without_parameters_brings_none() -> None:
    bare = device_class("gpu", config=[{}])
    assert next(claim_request(device_request(1), classes={"gpu": bare}).alternatives()).class_config == ()


def test_d10_a_refusal_becomes_a_sentence_about_a_node() -> None:
    assert ClaimRefusal().text_on("n") == "cannot allocate all DRA claims on node n"
    assert ClaimRefusal("why").text_on("n") == "cannot allocate DRA claims on node n: why"
