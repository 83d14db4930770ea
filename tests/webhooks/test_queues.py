"""Which queues are refused, and the messages (queues:Q-22 to Q-26, Q-39)."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api import names
from pykai.api.decode import decode_as
from pykai.api.scheduling import Queue
from pykai.webhooks.queues import subtree, validate, validate_deletion
from pykai.webhooks.validationresult import ValidationResult

Raw = dict[str, Any]
OTHERS = {"cpu": {"quota": 1}, "memory": {"quota": 1}}


def queue(name: str = "q", parent: str = "", quota: float = -1, **spec: Any) -> Raw:
    numbers = {"quota": quota, "limit": -1, "overQuotaWeight": 1}
    resources = {"gpu": numbers, "cpu": numbers, "memory": numbers}
    return {"metadata": {"name": name}, "spec": {"parentQueue": parent, "resources": resources, **spec}}


def known(*queues: Raw) -> dict[str, Queue]:
    return {each["metadata"]["name"]: decode_as(Queue, each) for each in queues}


def test_a_plain_queue_is_fine() -> None:
    assert validate(queue(), None, {}) == ValidationResult()
    assert validate(queue(parent="top"), None, known(queue("top"))) == ValidationResult()


def test_resources_are_required() -> None:
    """queues:Q-22, W1."""
    found = validate(queue(resources=None), None, {})
    assert (found.errors, found.warnings) == (("resources must be specified",), ("resources must be specified",))
    assert not validate(queue(resources=None), queue(resources=None), {}).allowed


def test_a_queue_with_pods_cannot_be_deleted() -> None:
    """queues:Q-23, Q-39 a."""
    found = validate_deletion("q", known(queue("q")), live_pod="ns/p")
    assert found == ValidationResult(("cannot delete queue q: pod ns/p uses it or a queue below it",))


def test_children_without_pods_are_a_warning_unless_they_are_to_be_refused() -> None:
    """queues:Q-23, W2."""
    children = known(queue("b", "q"), queue("a", "q"), queue("c"), queue("q"))
    (warning,) = validate_deletion("q", children).warnings
    assert "it has child queues [a b]" in warning
    assert validate_deletion("q", children).allowed
    refused = validate_deletion("q", children, children_refused=True)
    assert refused == ValidationResult(("cannot delete queue q: it has child queues [a b]",))
    assert validate_deletion("c", children, children_refused=True) == ValidationResult()


def test_the_queues_below_a_queue() -> None:
    queues = known(queue("q"), queue("a", "q"), queue("b", "a"), queue("c"), queue("x", "y"), queue("y", "x"))
    assert subtree("q", queues) == {"q", "a", "b"}
    assert subtree("x", queues) == {"x", "y"}
    assert subtree("gone", queues) == {"gone"}


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"quota": -5}, "spec.resources.cpu.quota: -5 is negative"),
        (
            {"resources": {"gpu": {"limit": -2}, "cpu": {"quota": 1}, "memory": {"quota": 1}}},
            "spec.resources.gpu.limit",
        ),
        (
            {"resources": {"gpu": {"overQuotaWeight": -2}, "cpu": {"quota": 1}, "memory": {"quota": 1}}},
            "spec.resources.gpu.overQuotaWeight",
        ),
        ({"preemptMinRuntime": "ten minutes"}, "spec.preemptMinRuntime"),
        ({"reclaimMinRuntime": "5"}, "spec.reclaimMinRuntime"),
        ({"parent": "q"}, "would be below itself, through q"),
    ],
)
def test_invalid_fields_are_refused(spec: Raw, text: str) -> None:
    """queues:Q-39 b, c."""
    found = validate(queue(**spec), None, {})
    assert text in found.message


def test_a_circle_is_refused() -> None:
    """queues:Q-39 b."""
    others = known(queue("a", "b"), queue("b", "q"), queue("q"))
    assert "below itself, through a" in validate(queue(parent="a"), queue(), others).message
    loop = known(queue("a", "b"), queue("b", "a"))
    assert validate(queue(parent="a"), None, loop).allowed


def test_what_was_wrong_before_stays_writable() -> None:
    bad = queue(quota=-5)
    assert validate({**bad, "metadata": {"name": "q", "labels": {"a": "b"}}}, bad, {}).allowed
    assert not validate(queue(quota=-6), bad, {}).allowed


def test_a_broken_list_of_namespaces_is_refused_once() -> None:
    """access:broken: a queue that has one already must stay writable."""
    bad, worse = queue(), queue(priority=3)
    bad["metadata"]["annotations"] = {names.ALLOWED_NAMESPACES_ANNOTATION: "A"}
    worse["metadata"]["annotations"] = {names.ALLOWED_NAMESPACES_ANNOTATION: "A", "other": "a"}
    key = f"metadata.annotations[{names.ALLOWED_NAMESPACES_ANNOTATION}]"
    assert validate(bad, None, {}).message == f"{key}: 'A' is not the name of a namespace; separate names by commas"
    assert validate(bad, queue(), {}).message
    assert validate(worse, bad, {}).allowed


def test_missing_resources_are_a_warning() -> None:
    """queues:Q-15, Q-39 d."""
    found = validate(queue(resources={"gpu": {"quota": 1, "limit": -1}}), None, {})
    assert found.allowed
    assert [text.split()[0] for text in found.warnings] == ["spec.resources.cpu", "spec.resources.memory"]


def test_a_missing_parent_is_a_warning() -> None:
    """queues:Q-39 f, queues:Q-24."""
    assert "parent queue x does not exist" in validate(queue(parent="x"), None, {}).warnings[0]
    assert validate(queue(parent="x"), None, {}, quotas=True).allowed


def test_a_parent_without_resources_is_a_warning_where_quotas_count() -> None:
    """queues:Q-24."""
    others = known(queue("x", resources=None))
    found = validate(queue(parent="x"), None, others, quotas=True)
    assert found == ValidationResult((), ("parent queue x has no resources defined",))
    assert validate(queue(parent="x"), None, others) == ValidationResult()


def test_a_weight_of_minus_one_is_a_warning() -> None:
    """queues:Q-39 c: only numbers below -1 are refused."""
    numbers = {"quota": 1, "limit": -1, "overQuotaWeight": -1}
    plain = {**numbers, "overQuotaWeight": 1}
    found = validate(queue(resources={"gpu": numbers, "cpu": plain, "memory": plain}), None, {})
    text = "spec.resources.gpu.overQuotaWeight: -1 gives no share of the surplus; use 1 or more"
    assert found == ValidationResult((), (text,))


def test_the_first_child_of_a_queue_in_use_is_a_warning() -> None:
    """queues:Q-39 g."""
    others = known(queue("x"))
    assert (
        "has workloads of its own" in validate(queue(parent="x"), None, others, parent_has_workloads=True).warnings[0]
    )
    assert (
        validate(queue(parent="x"), None, {**others, **known(queue("y", "x"))}, parent_has_workloads=True)
        == ValidationResult()
    )


def test_quotas_above_the_parents_are_a_warning() -> None:
    """queues:Q-24, Q-25, Q-39 e."""
    others = known(queue("x", quota=10), queue("y", "x", quota=6))
    found = validate(queue(parent="x", quota=11), None, others, quotas=True)
    assert found.warnings[:4] == (
        "child queue CPU quota (11) exceeds parent queue x CPU quota (10)",
        "total children CPU quota (17) exceeds parent queue x CPU quota (10)",
        "child queue GPU quota (11.00) exceeds parent queue x GPU quota (10.00)",
        "total children GPU quota (17.00) exceeds parent queue x GPU quota (10.00)",
    )
    assert validate(queue(parent="x", quota=4), None, others, quotas=True) == ValidationResult()
    assert validate(queue(parent="x", quota=11), None, others) == ValidationResult()
    endless = known(queue("x"), queue("y", "x"))
    assert validate(queue(parent="x", quota=99), None, endless, quotas=True) == ValidationResult()
    assert "(unlimited) exceeds" in validate(queue(parent="x"), None, others, quotas=True).warnings[0]


def test_quotas_below_the_childrens_are_a_warning() -> None:
    """queues:Q-24, Q-25."""
    others = known(queue("q", quota=10), queue("b", "q", quota=6), queue("a", "q", quota=5))
    found = validate(queue(quota=5), queue(quota=11), others, quotas=True)
    assert found.warnings[:2] == (
        "child queue b CPU quota (6) exceeds parent CPU quota (5)",
        "total children CPU quota (11) exceeds parent CPU quota (5)",
    )
    assert validate(queue(quota=11), queue(quota=5), others, quotas=True) == ValidationResult()
    assert validate(queue(quota=5), None, others, quotas=True) == ValidationResult()
    strangers = known(queue("q", quota=10), queue("a", "other", quota=50))
    assert validate(queue(quota=5), queue(quota=11), strangers, quotas=True) == ValidationResult()


def test_what_cannot_be_read_is_refused() -> None:
    assert "spec.priority" in validate(queue(priority="high"), None, {}).message
