"""The desired status of a PodGroup (workloads:PC-7, PR-2, PR-3)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pykai.api.decode import decode_as
from pykai.api.scheduling import PodGroup
from pykai.core.cluster.claims.counting import GpuCount
from pykai.podgroups.groupusage import GroupUsage
from pykai.podgroups.podusage import GroupMember
from pykai.podgroups.status import StatusInputs, is_preemptible, status_patch

N = 10**9
AROUND = StatusInputs(priority=50, queue_exists=True, claim_gpus=lambda key: GpuCount(2, "gpu.example.com"), now="now")


def group(status: Any = None, **spec: Any) -> PodGroup:
    raw = {"metadata": {"name": "g", "namespace": "ns"}, "spec": {"queue": "q", "minMember": 2, **spec}}
    return decode_as(PodGroup, {**raw, "status": status or {}})


def pod(**changes: Any) -> GroupMember:
    """A waiting pod that requests a CPU."""
    waiting = GroupMember(
        uid="u",
        subgroup="default",
        is_active=True,
        gated=False,
        scheduled=False,
        running=False,
        finished=False,
        requested={"cpu": N},
        allocated={},
    )
    return replace(waiting, **changes)


def running(**changes: Any) -> GroupMember:
    return pod(**{"scheduled": True, "running": True, "allocated": {"cpu": N}, **changes})


def tally(*members: GroupMember) -> GroupUsage:
    found = GroupUsage()
    for number, each in enumerate(members):
        found.update(f"ns/p{number}", each)
    return found


def conditions(patch: dict[str, Any] | None) -> dict[str, tuple[str, str, str]]:
    """Condition -> status, reason, message."""
    assert patch is not None
    found = patch["status"].get("conditions", ())
    return {entry["type"]: (entry["status"], entry["reason"], entry["message"]) for entry in found}


def applied(status: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """The status after a merge patch."""
    merged = dict(status)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            known = merged.get(key)
            merged[key] = applied(known if isinstance(known, dict) else {}, value)
        else:
            merged[key] = value
    return merged


def test_sums_of_waiting_and_running_pods() -> None:
    """workloads:T-130."""
    patch = status_patch(group(), tally(pod(), running()), AROUND)
    assert patch is not None
    assert patch["status"]["resourcesStatus"] == {"requested": {"cpu": "2"}, "allocated": {"cpu": "1"}}


def test_the_status_of_a_non_preemptible_group_has_its_resources_twice() -> None:
    """workloads:T-131."""
    patch = status_patch(group(), tally(running()), replace(AROUND, priority=100))
    assert patch is not None
    assert patch["status"]["resourcesStatus"]["allocatedNonPreemptible"] == {"cpu": "1"}


@pytest.mark.parametrize(
    ("said", "priority", "preemptible"),
    [
        ("", 99, True),
        ("", 100, False),
        ("preemptible", 1000, True),
        ("non-preemptible", 1, False),
        ("semi-preemptible", 50, True),
    ],
)
def test_which_groups_are_preemptible(said: str, priority: int, preemptible: bool) -> None:
    """workloads:PR-3, T-135."""
    assert is_preemptible(group(preemptibility=said), priority) is preemptible


def test_nothing_is_written_twice_and_values_are_compared() -> None:
    """workloads:PC, Do better (g)."""
    counted = tally(running(requested={"cpu": N, "memory": 2**30 * N}), pod())
    patch = status_patch(group(), counted, AROUND)
    assert patch is not None
    status = applied({}, patch["status"])
    status["resourcesStatus"]["requested"] = {"cpu": "2000m", "memory": "1024Mi"}
    assert status_patch(group(status), counted, replace(AROUND, now="later")) is None


def test_a_group_that_turns_preemptible_holds_nothing_back() -> None:
    """workloads:T-137."""
    first = status_patch(group(), tally(running()), replace(AROUND, priority=100))
    assert first is not None
    status = applied({}, first["status"])
    patch = status_patch(group(status), tally(running()), AROUND)
    assert patch == {"status": {"resourcesStatus": {"allocatedNonPreemptible": None}}}
    assert applied(status, patch["status"])["resourcesStatus"].keys() == {"requested", "allocated"}


def test_what_is_gone_is_taken_out() -> None:
    first = status_patch(group(), tally(running(requested={"cpu": N, "x/y": N})), AROUND)
    assert first is not None
    status = applied({}, first["status"])
    patch = status_patch(group(status), tally(pod()), AROUND)
    assert patch is not None
    assert patch["status"]["resourcesStatus"] == {"requested": {"x/y": None}, "allocated": None}


@pytest.mark.parametrize("garbage", ["x", 7, [1], {"requested": "x", "allocated": 7}])
def test_a_malformed_status_is_replaced(garbage: Any) -> None:
    status = {"resourcesStatus": garbage, "conditions": garbage}
    patch = status_patch(group(status), tally(running()), AROUND)
    assert patch is not None
    mended = applied(status, patch["status"])
    assert mended["resourcesStatus"]["allocated"] == {"cpu": "1"}
    assert status_patch(group(mended), tally(running()), AROUND) is None


def test_shared_claims_count_once() -> None:
    """workloads:PC, Do better (f)."""
    shared = {"claims": ("ns/c",), "claims_allocated": True}
    patch = status_patch(group(), tally(running(**shared), running(**shared)), AROUND)
    assert patch is not None
    assert patch["status"]["resourcesStatus"]["allocated"] == {"cpu": "2", "gpu.example.com": "2"}
    waiting = {"claims": ("ns/c",)}
    patch = status_patch(group(), tally(pod(**waiting)), AROUND)
    assert patch is not None
    assert patch["status"]["resourcesStatus"] == {"requested": {"cpu": "1", "gpu.example.com": "2"}}


def test_a_missing_claim_is_in_the_status() -> None:
    around = replace(AROUND, claim_gpus=lambda key: None)
    patch = status_patch(group(), tally(pod(claims=("ns/c",))), around)
    assert conditions(patch)["Valid"] == ("False", "UnreadablePods", "ResourceClaim ns/c does not exist")


@pytest.mark.parametrize(
    ("members", "ready", "scheduled", "runs"),
    [
        ((), "False", "False", "False"),
        ((pod(),), "False", "False", "False"),
        ((pod(), pod()), "True", "False", "False"),
        ((pod(), pod(gated=True)), "False", "False", "False"),
        ((pod(scheduled=True), pod(scheduled=True)), "True", "True", "False"),
        ((running(), pod(scheduled=True)), "True", "True", "False"),
        ((running(), running()), "True", "True", "True"),
        ((running(), running(), pod()), "True", "True", "True"),
        ((running(), pod(is_active=False, finished=True)), "False", "False", "False"),
    ],
)
def test_how_far_a_group_has_come(members: tuple[GroupMember, ...], ready: str, scheduled: str, runs: str) -> None:
    found = conditions(status_patch(group(), tally(*members), AROUND))
    assert (found["Ready"][0], found["Scheduled"][0], found["Running"][0]) == (ready, scheduled, runs)
    assert "Valid" not in found


def test_missing_pods_are_in_the_message() -> None:
    found = conditions(status_patch(group(), tally(pod()), AROUND))
    assert found["Ready"][1:] == ("NotEnoughPods", "1 of 2 pods exist ungated")
    assert found["Scheduled"][1:] == ("NotEnoughBound", "0 of 2 pods have a node")
    assert found["Running"][1:] == ("NotEnoughRunning", "0 of 2 pods run")


def test_gates_are_named_with_what_they_wait_for() -> None:
    """kueue:gates."""
    by_kueue = pod(gated=True, gates=("kueue.x-k8s.io/admission",))
    other = pod(gated=True, gates=("example.com/licence",))
    found = conditions(status_patch(group(minMember=3), tally(by_kueue, by_kueue, other), AROUND))
    assert found["Ready"][2] == (
        "0 of 3 pods exist ungated; 2 held by kueue.x-k8s.io/admission: waiting for Kueue's quota; "
        "1 held by example.com/licence"
    )
    assert found["Scheduled"][2] == "0 of 3 pods have a node"


def test_a_gate_of_a_complete_group_is_not_named() -> None:
    """kueue:gates."""
    members = tally(pod(), pod(), pod(gated=True, gates=("kueue.x-k8s.io/admission",)))
    assert conditions(status_patch(group(), members, AROUND))["Ready"] == ("True", "EnoughPods", "")
    members.update("ns/p0", pod(gated=True, gates=("kueue.x-k8s.io/admission",)))
    members.remove("ns/p2")
    found = conditions(status_patch(group(), members, AROUND))["Ready"][2]
    assert found == "1 of 2 pods exist ungated; 1 held by kueue.x-k8s.io/admission: waiting for Kueue's quota"


def test_a_finished_group_has_a_condition() -> None:
    ended = pod(is_active=False, finished=True, requested={})
    found = conditions(status_patch(group(), tally(ended, ended), AROUND))
    assert {entry[:2] for entry in found.values()} == {("False", "Finished")}


def test_subgroups_decide_what_is_enough() -> None:
    """workloads:PS-3."""
    parts = [{"name": "a", "minMember": 1}, {"name": "b", "minMember": 2}]
    half = tally(running(subgroup="a"), running(subgroup="b"))
    found = conditions(status_patch(group(minMember=None, subGroups=parts), half, AROUND))
    assert found["Running"] == ("False", "NotEnoughRunning", "1 of 2 pods of subgroup b run")
    found = conditions(status_patch(group(minMember=None, minSubGroup=1, subGroups=parts), half, AROUND))
    assert found["Running"] == ("True", "EnoughRunning", "")


@pytest.mark.parametrize(
    ("spec", "around", "reason", "text"),
    [
        ({"queue": ""}, AROUND, "QueueDoesNotExist", "spec.queue is empty"),
        ({}, replace(AROUND, queue_exists=False), "QueueDoesNotExist", "no queue 'q'"),
        ({"subGroups": [{"name": "a", "parent": "x"}]}, AROUND, "InvalidSubGroups", "x"),
        ({"preemptionDelay": "5 minutes"}, AROUND, "InvalidDuration", "spec.preemptionDelay"),
        ({"stalenessGracePeriod": "x"}, AROUND, "InvalidDuration", "spec.stalenessGracePeriod"),
        ({"subGroups": [{"name": "a", "minMember": 1}]}, AROUND, "UnknownSubGroup", "default"),
    ],
)
def test_what_is_wrong_with_a_group(spec: dict[str, Any], around: StatusInputs, reason: str, text: str) -> None:
    found = conditions(status_patch(group(**spec), tally(pod()), around))
    assert found["Valid"][:2] == ("False", reason)
    assert text in found["Valid"][2]


def test_a_bad_pod_is_named_and_the_others_count() -> None:
    """workloads:PC, Do better (e)."""
    patch = status_patch(group(), tally(pod(), pod(problem="cpu makes no sense", requested={})), AROUND)
    assert conditions(patch)["Valid"] == ("False", "UnreadablePods", "pod p1: cpu makes no sense")
    assert patch is not None
    assert patch["status"]["resourcesStatus"]["requested"] == {"cpu": "1"}


def test_many_bad_pods_make_a_short_message() -> None:
    bad = [pod(problem="bad") for _ in range(50)]
    assert conditions(status_patch(group(), tally(*bad), AROUND))["Valid"][2].endswith("; and 47 more")


def test_a_fixed_problem_is_reported() -> None:
    first = status_patch(group(), tally(), replace(AROUND, queue_exists=False))
    assert first is not None
    found = conditions(status_patch(group(first["status"]), tally(), AROUND))
    assert found["Valid"] == ("True", "Mended", "")


def test_a_tally_returns_to_zero() -> None:
    found = GroupUsage()
    for number in range(5):
        found.update(f"ns/p{number}", running(claims=("ns/c",), claims_allocated=True, problem="x"))
    assert not found.update("ns/p0", running(claims=("ns/c",), claims_allocated=True, problem="x"))
    assert found.update("ns/p0", pod())
    for number in range(5):
        assert found.remove(f"ns/p{number}")
    assert not found.remove("ns/p0")
    assert found == GroupUsage()


@pytest.mark.parametrize(
    ("members", "spec", "state", "total", "placed"),
    [
        ((), {}, "Incomplete", 0, 0),
        ((), {"minMember": 0}, "Incomplete", 0, 0),
        ((pod(),), {}, "Incomplete", 1, 0),
        ((pod(), pod(gated=True)), {}, "Incomplete", 2, 0),
        ((pod(), pod()), {}, "Waiting", 2, 0),
        ((pod(), pod()), {"minMember": 0}, "Waiting", 2, 0),
        ((running(), pod()), {}, "Waiting", 2, 1),
        ((pod(scheduled=True), running()), {}, "Starting", 2, 2),
        ((pod(scheduled=True), pod()), {"minMember": 0}, "Starting", 2, 1),
        ((running(), running(), pod()), {}, "Running", 3, 2),
        ((pod(is_active=False, finished=True),), {}, "Finished", 0, 0),
        ((running(), running()), {"queue": ""}, "Invalid", 2, 2),
    ],
)
def test_the_state_is_how_far_the_group_has_come(
    members: tuple[GroupMember, ...], spec: dict[str, Any], state: str, total: int, placed: int
) -> None:
    """status:group"""
    patch = status_patch(group(**spec), tally(*members), AROUND)
    assert patch is not None
    assert patch["status"]["state"] == state
    assert patch["status"]["pods"] == {"total": total, "placed": placed}


def test_a_pod_that_starts_beyond_the_minimum_costs_no_write() -> None:
    """status:group: as before there were states and numbers."""
    first = status_patch(group(), tally(running(), running(), running(running=False)), AROUND)
    assert first is not None
    assert status_patch(group(applied({}, first["status"])), tally(*[running()] * 3), AROUND) is None


@pytest.mark.parametrize("found", ["Lost", 7, None, {"total": 2}])
def test_what_others_write_over_the_state_is_corrected(found: object) -> None:
    """status:group"""
    first = status_patch(group(), tally(running(), running()), AROUND)
    assert first is not None
    status = applied({}, first["status"]) | {"state": found, "pods": found}
    patch = status_patch(group(status), tally(running(), running()), AROUND)
    assert patch == {"status": {"state": "Running", "pods": {"total": 2, "placed": 2}}}
