"""Each decision of another scheduler has one outcome, and the report counts it once (shadow:compare)."""

from __future__ import annotations

import pytest

from pykai.api.core import Pod
from pykai.api.decode import decode_as
from pykai.scheduler.shadow import changes_decisions
from pykai.scheduler.shadowreport import (
    BIND,
    EVICT,
    MOST_DIFFERENCES,
    Difference,
    Outcome,
    ShadowBind,
    ShadowReport,
    judge_bind,
    judge_eviction,
)


@pytest.mark.parametrize(
    ("choice", "groups", "why", "holds_room", "outcome"),
    [
        (ShadowBind("a"), (), "", False, Outcome.AGREED),
        (ShadowBind("a", frozenset({"g"})), ("g",), "", False, Outcome.AGREED),
        (ShadowBind("a", frozenset({"g"})), ("h",), "", False, Outcome.OTHER_DEVICE),
        # One opens a GPU of its own where the other joins one.
        (ShadowBind("a", frozenset({"g"})), (), "", False, Outcome.OTHER_DEVICE),
        (ShadowBind("a"), ("g",), "", False, Outcome.OTHER_DEVICE),
        (ShadowBind("b", equal_nodes=frozenset({"a", "b"})), (), "", False, Outcome.EQUAL_NODE),
        (ShadowBind("b", equal_nodes=frozenset({"b", "c"})), (), "", False, Outcome.OTHER_NODE),
        (ShadowBind("b"), (), "", True, Outcome.OTHER_NODE),
        (None, (), "", True, Outcome.UNDECIDED),
        (None, (), "no room", False, Outcome.WOULD_WAIT),
        (None, (), "no room", True, Outcome.OTHER_POD_FIRST),
    ],
)
def test_a_bind_to_node_a(
    choice: ShadowBind | None, groups: tuple[str, ...], why: str, holds_room: bool, outcome: Outcome
) -> None:
    assert judge_bind(choice, "a", groups, why_waits=why, assumes_others=holds_room) is outcome


@pytest.mark.parametrize(
    ("is_ours", "others", "decided", "outcome"),
    [
        (True, True, True, Outcome.AGREED),
        (False, True, True, Outcome.OTHER_VICTIM),
        (False, False, True, Outcome.WOULD_KEEP),
        (False, False, False, Outcome.UNDECIDED),
    ],
)
def test_an_eviction(is_ours: bool, others: bool, decided: bool, outcome: Outcome) -> None:
    assert judge_eviction(is_ours=is_ours, has_other_victims=others, has_decided=decided) is outcome


def found(outcome: Outcome, kind: str = BIND, pod: str = "ns/p") -> Difference:
    return Difference("2026-11-18T12:00:00Z", kind, outcome, pod, "team", "a", "b", "")


def test_what_both_have_decided_is_compared_and_the_rest_counted_apart() -> None:
    report = ShadowReport("2026-11-18T00:00:00Z")
    for outcome in (Outcome.AGREED, Outcome.AGREED, Outcome.EQUAL_NODE, Outcome.OTHER_NODE, Outcome.UNDECIDED):
        report.add(found(outcome))
    report.add(found(Outcome.NOT_TAKEN))
    report.add(found(Outcome.WOULD_KEEP, EVICT))
    report.add(found(Outcome.NO_EVICTION, EVICT))
    document = report.as_document()
    assert document["binds"] == {
        "compared": 4,
        "agreed": 3,
        "outcomes": {"agreed": 2, "node of equal score": 1, "not taken": 1, "other node": 1, "undecided": 1},
    }
    assert document["evictions"] == {"compared": 1, "agreed": 0, "outcomes": {"no eviction": 1, "we would keep it": 1}}
    assert [each["outcome"] for each in document["differences"]] == [
        "node of equal score",
        "other node",
        "not taken",
        "we would keep it",
    ]


def test_only_the_newest_differences_are_kept() -> None:
    report = ShadowReport()
    for number in range(MOST_DIFFERENCES + 5):
        report.add(found(Outcome.OTHER_NODE, pod=f"ns/{number}"))
    assert report.compared(BIND) == MOST_DIFFERENCES + 5
    assert len(report.differences) == MOST_DIFFERENCES
    assert report.differences[0].pod == "ns/5"
    document = report.as_document()
    assert (document["dropped"], document["keptAtMost"]) == (5, MOST_DIFFERENCES)


def pod(group: str = "", node: str = "", phase: str = "Pending", *, leaves: bool = False) -> Pod:
    metadata: dict[str, object] = {"name": "p", "annotations": {"pod-group-name": group}}
    if leaves:
        metadata["deletionTimestamp"] = "2026-11-18T12:00:00Z"
    return decode_as(Pod, {"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": phase}})


@pytest.mark.parametrize(
    ("old", "new", "matters"),
    [
        (None, pod(), True),
        (pod(), None, True),
        (pod(), pod("g"), True),
        (pod("g"), pod("g", "a"), True),
        (pod("g", "a", "Running"), pod("g", "a", "Succeeded"), True),
        (pod("g", "a"), pod("g", "a", "Running"), False),
        # The other scheduler has decided this: it is what is compared.
        (pod("g", "a", "Running"), pod("g", "a", "Running", leaves=True), False),
    ],
)
def test_which_changes_a_shadow_must_have_seen(old: Pod | None, new: Pod | None, matters: bool) -> None:
    assert changes_decisions(old, new) is matters
