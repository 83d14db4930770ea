"""Which changes of a group protect pods that have a node already (protect:change)."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api.core import PriorityClass
from pykai.api.decode import decode_as
from pykai.api.meta import ObjectMeta
from pykai.api.scheduling import PodGroup
from pykai.core.model.protected import may_protect, newly_protected

CLASSES = {
    name: PriorityClass(metadata=ObjectMeta(name=name), value=value) for name, value in (("train", 50), ("build", 100))
}
PREEMPTIBLE = {"preemptibility": "preemptible"}
NON_PREEMPTIBLE = {"preemptibility": "non-preemptible"}
SEMI = {"preemptibility": "semi-preemptible"}
PAIR = [{"name": "x", "minMember": 1}, {"name": "y", "minMember": 1}]


def group(**spec: Any) -> PodGroup:
    return decode_as(PodGroup, {"metadata": {"name": "g"}, "spec": {"queue": "q", **spec}})


def default(least: int) -> list[dict[str, Any]]:
    return [{"name": "default", "minMember": least}]


@pytest.mark.parametrize(
    ("before", "after", "held", "pods"),
    [
        # By what the group says, and by its class.
        ({}, NON_PREEMPTIBLE, {"default": 3}, 3),
        ({}, {"priorityClassName": "build"}, {"default": 3}, 3),
        ({"priorityClassName": "train"}, {"priorityClassName": "build"}, {"x": 1, "y": 2}, 3),
        ({**PREEMPTIBLE, "priorityClassName": "build"}, {"priorityClassName": "build"}, {"default": 1}, 1),
        ({}, {**SEMI, "minMember": 2}, {"default": 3}, 2),
        ({}, SEMI, {"default": 3}, 1),
        ({**SEMI, "minMember": 2}, NON_PREEMPTIBLE, {"default": 3}, 1),
        # By minimums.
        ({**SEMI, "minMember": 1}, {**SEMI, "minMember": 3}, {"default": 8}, 2),
        ({**SEMI, "minMember": 1}, {**SEMI, "subGroups": default(8)}, {"default": 8}, 7),
        ({**SEMI, "minSubGroup": 1, "subGroups": PAIR}, {**SEMI, "subGroups": PAIR}, {"x": 2, "y": 2}, 1),
        (
            {**SEMI, "subGroups": [{"name": "x", "minMember": 2}, {"name": "y", "minMember": 0}]},
            {**SEMI, "subGroups": [{"name": "x", "minMember": 0}, {"name": "y", "minMember": 2}]},
            {"x": 2, "y": 2},
            2,
        ),
        # In another queue, whose quota is another.
        (NON_PREEMPTIBLE, {**NON_PREEMPTIBLE, "queue": "other"}, {"default": 2}, 2),
    ],
)
def test_pods_that_a_change_protects(
    before: dict[str, Any], after: dict[str, Any], held: dict[str, int], pods: int
) -> None:
    """protect:change"""
    assert newly_protected(group(**before), group(**after), held, CLASSES) == pods
    assert may_protect(group(**before), group(**after), CLASSES)
    assert newly_protected(group(**before), group(**after), {}, CLASSES) == 0


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (NON_PREEMPTIBLE, {}),
        (NON_PREEMPTIBLE, {**SEMI, "minMember": 3}),
        (NON_PREEMPTIBLE, {"priorityClassName": "build"}),
        ({"priorityClassName": "build"}, {"priorityClassName": "train"}),
        ({}, {"priorityClassName": "train", "minMember": 9}),
        ({}, {**PREEMPTIBLE, "priorityClassName": "build", "queue": "other"}),
        ({}, {"priorityClassName": "unknown"}),
        ({**SEMI, "minMember": 3}, {**SEMI, "minMember": 1}),
        # The third pod must still be placed, within quota.
        ({**SEMI, "minMember": 3}, {**SEMI, "minMember": 4}),
        ({**SEMI, "subGroups": PAIR[:1]}, {**SEMI, "subGroups": [*PAIR[:1], {"name": "z", "minMember": 5}]}),
    ],
)
def test_changes_that_protect_no_pod_that_has_a_node(before: dict[str, Any], after: dict[str, Any]) -> None:
    """protect:change"""
    assert newly_protected(group(**before), group(**after), {"default": 3, "x": 2}, CLASSES) == 0


def test_a_new_group_protects_what_it_finds() -> None:
    """protect:change"""
    assert newly_protected(None, group(**NON_PREEMPTIBLE), {"default": 2}, CLASSES) == 2
    assert newly_protected(None, group(), {"default": 2}, CLASSES) == 0
    assert not may_protect(None, group(), CLASSES)


def test_a_change_of_what_protects_nothing_needs_no_pods() -> None:
    """protect:admission: only a change that could protect pods costs requests."""
    for spec in ({}, NON_PREEMPTIBLE, {**SEMI, "minMember": 2}):
        assert not may_protect(group(**spec), group(**spec, markUnschedulable=False), CLASSES)
    assert not may_protect(group(**NON_PREEMPTIBLE), group(**NON_PREEMPTIBLE, minMember=9), CLASSES)
