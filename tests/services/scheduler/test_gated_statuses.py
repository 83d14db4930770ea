"""What is published about pods behind the gate of their queue (queues:Q-407, Q-409)."""

from __future__ import annotations

from typing import Any

from pykai.core.model.gates import OPENING_GATE
from pykai.core.schedule import schedule
from pykai.scheduler.status.statusdiff import StatusDiff, StatusTracker
from tests.core.builders import NOW_NS, Cluster, cluster, timestamp_before

GATE = "kai.scheduler/queue-admission"
GROUP = frozenset({"default/job"})


def behind(gate: str) -> dict[str, Any]:
    return {"spec": {"schedulingGates": [{"name": gate}]}}


def gated(limit: float) -> Cluster:
    built = cluster().queue("q", limit=limit, admissionGating=True)
    return built.with_policy(actions=("allocate", "ungate"), admission_reservation_ns=600 * 10**9)


def published(built: Cluster, conditioned: frozenset[str] = frozenset()) -> StatusDiff:
    snapshot = built.tables().snapshot(NOW_NS)
    return StatusTracker().diff(schedule(snapshot, built.policy()), snapshot, conditioned)


def test_a_group_that_may_not_be_admitted_has_a_reason_and_its_pods_have_none() -> None:
    (group,) = published(gated(1).gang("job", 2, gpu=1, **behind(GATE))).groups
    assert group.reasons is not None
    assert [reason["reason"] for reason in group.reasons] == ["OverLimit"]
    assert group.reason == "Unschedulable"
    assert group.pods == ()


def test_a_group_that_is_admitted_loses_its_condition() -> None:
    assert published(gated(2).gang("job", 2, gpu=1, **behind(GATE)), GROUP).cleared == ["default/job"]


def test_a_group_of_which_some_pods_stay_behind_keeps_it() -> None:
    diff = published(gated(1).gang("job", 2, min=1, gpu=1, **behind(GATE)), GROUP)
    assert diff.cleared == []
    assert [group.key for group in diff.groups] == ["default/job"]


def test_a_group_with_pods_that_lack_a_node_keeps_it() -> None:
    built = (
        gated(9).group("job", minMember=1).pod("job-0", group="job", gpu=1).pod("job-1", group="job", **behind(GATE))
    )
    assert published(built, GROUP).cleared == []


def test_nothing_is_said_of_a_group_while_its_gates_are_being_removed() -> None:
    opening = {**behind(OPENING_GATE), "annotations": {"kai.scheduler/queue-admitted-timestamp": timestamp_before(0)}}
    assert published(gated(2).gang("job", 2, gpu=1, **opening)).groups == []


def test_a_group_that_tries_a_pool_once_is_not_given_up_behind_its_gate() -> None:
    """The condition would keep it out of all further cycles (cycle:SNP-11)."""
    built = gated(0).gang("job", gpu=1, group_spec={"schedulingBackoff": 1}, **behind(GATE))
    (group,) = published(built).groups
    assert group.event
    assert group.reasons is None
