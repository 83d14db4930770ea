"""Extended resources that device classes stand behind: gpu:D-13 to D-16, case T-95."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pykai.api.core import PodSpec
from pykai.core.cluster.claims.counting import claim_gpus
from pykai.core.model.claimrequests import ClaimRequest
from pykai.core.model.extendedresources import (
    ExtendedResourceMap,
    device_requests,
    dra_backed_resources,
)
from tests.core.deviceobjects import CLASSES, Raw, device_class, devices_of, gpus, offered, refusal_text

GPU = "example.com/gpu"
NIC = "example.com/nic"
OLD, NEW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
BACKING = ExtendedResourceMap.of(
    [device_class("gpu", extendedResourceName=GPU), device_class("nic", extendedResourceName=NIC), device_class("bare")]
)


def container(name: str, restart: str = "", **requests: int) -> Raw:
    """A container; `gpu` and `nic` are extended resources."""
    names = {"gpu": GPU, "nic": NIC}
    return {
        "name": name,
        "restartPolicy": restart,
        "resources": {"requests": {names.get(key, key): str(value) for key, value in requests.items()}},
    }


def pod(*containers: Raw, init: tuple[Raw, ...] = ()) -> PodSpec:
    return msgspec.convert({"containers": list(containers), "initContainers": list(init)}, PodSpec)


def served(spec: PodSpec, *resources: str) -> tuple[dict[str, tuple[str, int]], list[tuple[str, str, str]]]:
    """Requests by name (class, count) and mappings (container, resource, request)."""
    found = device_requests(spec, BACKING, resources or dra_backed_resources(spec, BACKING))
    requests = {
        request.name: (request.exactly.device_class_name, request.exactly.count)
        for request in found.requests
        if request.exactly is not None and request.exactly.allocation_mode == "ExactCount"
    }
    assert len(requests) == len(found.requests)
    assert list(requests) == sorted(requests)
    return requests, [(item.container_name, item.resource_name, item.request_name) for item in found.mappings]


@pytest.mark.parametrize(
    ("classes", "winner"),
    [
        ([("a", OLD), ("b", NEW)], "b"),
        ([("b", NEW), ("a", OLD)], "b"),
        ([("b", NEW), ("a", NEW)], "a"),
        ([("a", None), ("b", OLD)], "b"),
        ([("b", None), ("a", None)], "a"),
        ([("a", "yesterday"), ("b", OLD)], "b"),
    ],
)
def test_d13_the_newest_class_has_a_resource_name_then_the_smaller_name(
    classes: list[tuple[str, str | None]], winner: str
) -> None:
    made = [device_class(name, created=created, extendedResourceName=GPU) for name, created in classes]
    assert ExtendedResourceMap.of(made).class_of(GPU) == winner


def test_d13_every_class_has_an_implicit_resource() -> None:
    assert BACKING.class_of("deviceclass.resource.kubernetes.io/bare") == "bare"
    assert BACKING.class_of("deviceclass.resource.kubernetes.io/gpu") == "gpu"
    assert BACKING.class_of("deviceclass.resource.kubernetes.io/other") is None
    assert BACKING.class_of("bare") is None
    assert BACKING.class_of("cpu") is None


def test_d14_a_pod_needs_a_class_when_a_container_requests_its_resource() -> None:
    assert dra_backed_resources(pod(container("a", cpu=1, nic=1), init=(container("i", gpu=1),)), BACKING) == (GPU, NIC)
    assert dra_backed_resources(pod(container("a", cpu=1, gpu=0)), BACKING) == ()


def test_d15_regular_containers_and_sidecars_have_requests_of_their_own() -> None:
    """Named after their place among all containers and the resource's place among the container's requests."""
    spec = pod(container("a", cpu=1, gpu=2, nic=1), container("b", gpu=1), init=(container("s", "Always", gpu=3),))
    requests, mappings = served(spec)
    assert requests == {
        "container-0-request-0": ("gpu", 3),
        "container-1-request-1": ("gpu", 2),
        "container-1-request-2": ("nic", 1),
        "container-2-request-0": ("gpu", 1),
    }
    assert mappings == [
        ("s", GPU, "container-0-request-0"),
        ("a", GPU, "container-1-request-1"),
        ("b", GPU, "container-2-request-0"),
        ("a", NIC, "container-1-request-2"),
    ]


def test_d15_only_resources_served_by_claims_are_requested() -> None:
    requests, mappings = served(pod(container("a", gpu=2, nic=1)), NIC)
    assert requests == {"container-0-request-1": ("nic", 1)}
    assert mappings == [("a", NIC, "container-0-request-1")]


def test_d15_an_init_container_uses_the_devices_of_later_ones() -> None:
    """case gpu:T-95: init N and main N need N devices"""
    requests, mappings = served(pod(container("main", gpu=2), init=(container("i", gpu=2),)))
    assert requests == {"container-1-request-0": ("gpu", 2)}
    assert mappings == [("main", GPU, "container-1-request-0"), ("i", GPU, "container-1-request-0")]


def test_d15_an_init_container_uses_as_many_later_requests_as_it_needs() -> None:
    spec = pod(container("a", gpu=1), container("b", gpu=1), container("c", gpu=1), init=(container("i", gpu=2),))
    _, mappings = served(spec)
    assert mappings[3:] == [("i", GPU, "container-1-request-0"), ("i", GPU, "container-2-request-0")]


def test_d15_what_later_containers_do_not_cover_is_requested_for_the_init_container() -> None:
    requests, mappings = served(pod(container("a", gpu=1), init=(container("i", cpu=1, gpu=4),)))
    assert requests == {"container-0-request-1": ("gpu", 3), "container-1-request-0": ("gpu", 1)}
    assert mappings[1:] == [("i", GPU, "container-1-request-0"), ("i", GPU, "container-0-request-1")]


def test_d15_init_containers_share_the_largest_of_their_own_requests() -> None:
    spec = pod(container("a", cpu=1), init=(container("i", gpu=1), container("j", gpu=4), container("k", gpu=4)))
    requests, mappings = served(spec)
    assert requests == {"container-1-request-0": ("gpu", 4)}
    assert mappings == [(name, GPU, "container-1-request-0") for name in "ijk"]


def test_d15_an_init_container_cannot_use_a_sidecar_that_started_before_it() -> None:
    """It holds its devices already."""
    sidecar = container("s", "Always", gpu=2)
    requests, mappings = served(pod(container("a", cpu=1), init=(sidecar, container("i", gpu=2))))
    assert requests == {"container-0-request-0": ("gpu", 2), "container-1-request-0": ("gpu", 2)}
    assert mappings == [("s", GPU, "container-0-request-0"), ("i", GPU, "container-1-request-0")]
    requests, _ = served(pod(container("a", cpu=1), init=(container("i", gpu=2), sidecar)))
    assert requests == {"container-1-request-0": ("gpu", 2)}


def test_d15_the_order_in_which_requests_are_written_is_irrelevant() -> None:
    forward, backward = pod(container("a", gpu=1, nic=2)), pod(container("a", nic=2, gpu=1))
    assert device_requests(forward, BACKING, (GPU, NIC)) == device_requests(backward, BACKING, (NIC, GPU))


def test_d16_the_implicit_claim_is_allocated_like_any_other() -> None:
    """case gpu:T-95: N devices filled, the next pod does not fit"""

    def ask(count: int) -> ClaimRequest:
        spec: Any = device_requests(pod(container("a", gpu=count)), BACKING, (GPU,)).spec()
        found = ClaimRequest.of(spec, CLASSES, "team/<extended-resources>")
        assert isinstance(found, ClaimRequest)
        return found

    inventory = offered(gpus(2))
    assert devices_of(inventory, ask(2)) == ["gpu-0", "gpu-1"]
    assert refusal_text(inventory, ask(1), used=["gpu-0", "gpu-1"]) == ""
    assert claim_gpus(device_requests(pod(container("a", gpu=2)), BACKING, (GPU,)).spec()).gpus == 2
