"""A pod as the engine sees it: its state, its node, its devices, its group (cycle:1.1, cycle:5)."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.core.model import status as tables_of_states
from pykai.core.model.status import STATUS_NAMES, TaskStatus
from pykai.core.model.tasks import Task, priority_label_key
from tests.core.builders import NOW_NS, Cluster, cluster


def task_of(built: Cluster, pod: str = "pod", namespace: str = "default") -> Task:
    return built.tables().snapshot(NOW_NS).task_records[f"{namespace}/{pod}"]


def state_of(**pod: Any) -> TaskStatus:
    """State of one pod in a cluster of one node."""
    return task_of(cluster(nodes=1).pod("pod", **pod)).status


# states: cycle:1.1 and TSK-3

#: state -> alive, activeUsed, activeAllocated, allocated; as the table of cycle:1.1
STATES = {
    "Pending": (True, False, False, False),
    "Gated": (True, False, False, False),
    "Allocated": (True, True, True, True),
    "Pipelined": (True, True, True, False),
    "Binding": (True, True, True, True),
    "Bound": (True, True, True, True),
    "Running": (True, True, True, True),
    "Releasing": (False, True, False, False),
    "StuckInReleasing": (False, True, False, False),
    "Succeeded": (False, False, False, False),
    "Failed": (False, False, False, False),
    "Unknown": (False, False, False, False),
    "Deleted": (False, False, False, False),
}


def test_the_states_count_as_in_the_table() -> None:
    """cycle:1.1"""
    columns = (
        tables_of_states.ALIVE,
        tables_of_states.ACTIVE_USED,
        tables_of_states.ACTIVE_ALLOCATED,
        tables_of_states.QUEUE_ALLOCATED,
    )
    assert {name: tuple(column[status] for column in columns) for name, status in STATUS_NAMES.items()} == STATES
    assert sorted(STATUS_NAMES.values()) == list(TaskStatus)


def test_a_pod_that_waits_is_pending() -> None:
    assert state_of() is TaskStatus.PENDING


def test_a_pod_behind_a_gate_is_gated() -> None:
    assert state_of(spec={"schedulingGates": [{"name": "quota"}]}) is TaskStatus.GATED


def test_a_pod_with_a_node_that_has_not_started_is_bound_even_behind_a_gate() -> None:
    gates = {"schedulingGates": [{"name": "quota"}]}
    assert state_of(on="node-0", phase="Pending") is TaskStatus.BOUND
    assert state_of(on="node-0", phase="Pending", spec=gates) is TaskStatus.BOUND


def test_a_bind_request_goes_before_a_gate_and_after_a_node() -> None:
    gates = {"schedulingGates": [{"name": "quota"}]}
    asked = cluster(nodes=1).bind_request("pod", "node-0")
    assert task_of(asked.pod("pod", spec=gates)).status is TaskStatus.BINDING
    bound = cluster(nodes=1).bind_request("pod", "node-0").pod("pod", on="node-0", phase="Pending")
    assert task_of(bound).status is TaskStatus.BOUND


def test_a_running_pod_runs_whatever_its_bind_request() -> None:
    built = cluster(nodes=1).bind_request("pod", "node-0").pod("pod", on="node-0")
    assert task_of(built).status is TaskStatus.RUNNING


@pytest.mark.parametrize(
    ("gone_s", "state"),
    [
        (-30, TaskStatus.RELEASING),
        (0, TaskStatus.RELEASING),
        (120, TaskStatus.RELEASING),
        (121, TaskStatus.STUCK_IN_RELEASING),
        (86400, TaskStatus.STUCK_IN_RELEASING),
    ],
)
def test_a_running_pod_is_stuck_two_minutes_after_its_grace_period(gone_s: float, state: TaskStatus) -> None:
    """cycle:TSK-3: the deletion timestamp already includes the grace period."""
    assert state_of(on="node-0", deleted=gone_s) is state


def test_the_threshold_for_stuck_is_a_setting() -> None:
    built = cluster(nodes=1).pod("pod", on="node-0", deleted=11)
    assert task_of(built.sharded(stuck_after_ns=10_000_000_000)).status is TaskStatus.STUCK_IN_RELEASING
    assert task_of(built.sharded(stuck_after_ns=12_000_000_000)).status is TaskStatus.RELEASING


def test_a_pod_deleted_before_it_started_is_releasing_and_never_stuck() -> None:
    """cycle:TSK-3"""
    assert state_of(on="node-0", phase="Pending", deleted=86400) is TaskStatus.RELEASING
    assert state_of(deleted=86400) is TaskStatus.RELEASING


@pytest.mark.parametrize(
    ("phase", "state"),
    [
        ("Succeeded", TaskStatus.SUCCEEDED),
        ("Failed", TaskStatus.FAILED),
        ("Unknown", TaskStatus.UNKNOWN),
        ("Odd", TaskStatus.UNKNOWN),
    ],
)
def test_other_phases_are_named_or_unknown(phase: str, state: TaskStatus) -> None:
    """cycle:TSK-3"""
    assert state_of(on="node-0", phase=phase) is state
    assert state_of(on="node-0", phase=phase, deleted=10) is state


# Node and devices: cycle:TSK-4, TSK-6, gpu:G-12


def test_the_node_is_that_of_the_pod_else_that_of_its_bind_request() -> None:
    """cycle:TSK-4"""
    assert task_of(cluster(nodes=2).pod("pod", on="node-1").bind_request("pod", "node-0")).node == "node-1"
    assert task_of(cluster(nodes=2).pod("pod").bind_request("pod", "node-0")).node == "node-0"
    assert task_of(cluster(nodes=2).pod("pod")).node == ""


def shared(**how: Any) -> Cluster:
    return cluster(nodes=1, gpus=2).pod("pod", on="node-0", fraction=0.5, **how)


def test_the_devices_are_those_of_the_bind_request() -> None:
    """gpu:G-12"""
    built = shared(device="label").bind_request("pod", "node-0", devices=("b", "a"))
    assert task_of(built).gpu_groups == ("b", "a")


def test_a_bind_request_without_devices_leaves_those_of_the_labels() -> None:
    """gpu:G-12"""
    assert task_of(shared(device="label").bind_request("pod", "node-0")).gpu_groups == ("label",)


def test_devices_of_a_failed_bind_request_are_ignored() -> None:
    """gpu:B-4"""
    built = shared(device="label").bind_request("pod", "node-0", devices=("b",), phase="Failed")
    assert task_of(built).gpu_groups == ("label",)


def test_the_plain_label_goes_first_and_prefixed_ones_follow_in_order() -> None:
    """gpu:G-12"""
    labels = {"runai-gpu-group/z": "z", "runai-gpu-group": "m", "runai-gpu-group/a": "a", "runai-gpu-group/m": "m"}
    assert task_of(shared(labels=labels)).gpu_groups == ("m", "a", "z")


def test_prefixed_labels_count_without_the_plain_one() -> None:
    """gpu:G-12, Do better: the binder writes no others on pods with several devices."""
    assert task_of(shared(device=("two", "one"))).gpu_groups == ("one", "two")


def test_only_a_shared_request_sits_on_devices() -> None:
    labels = {"runai-gpu-group": "a"}
    assert task_of(cluster(nodes=1, gpus=2).pod("pod", gpu=1, on="node-0", labels=labels)).gpu_groups == ()


def test_an_accepted_share_is_converted_by_its_node() -> None:
    """cycle:TSK-6: 400 of 1000 MiB are 0.4, 400 of 300 are more than one, a fraction is itself everywhere."""
    built = (
        cluster()
        .node("large", gpus=1, gpu_memory=1000)
        .node("odd", gpus=1, gpu_memory=600)
        .group("g")
        .pod("a", group="g", gpu_memory=400, on="large", device="x")
        .pod("b", group="g", gpu_memory=400, devices=2, on="odd", device=("y", "z"))
        .pod("c", group="g", fraction=0.25, on="large", device="x")
    )
    entry = built.tables().snapshot(NOW_NS).group_entries["default/g"]
    assert entry.allocated[2] == 40 + 2 * 67 + 25


# Groups and schedulers: cycle:TSK-5, SNP-13


def test_a_pod_without_a_subgroup_is_in_the_default_one() -> None:
    """cycle:TSK-5"""
    assert task_of(cluster().pod("pod")).subgroup == "default"
    assert task_of(cluster().pod("pod", labels={"kai.scheduler/subgroup-name": ""})).subgroup == "default"
    assert task_of(cluster().pod("pod", subgroup="workers")).subgroup == "workers"


def test_a_pod_belongs_to_the_group_of_its_own_namespace() -> None:
    """cycle:1, Do better"""
    assert task_of(cluster().pod("pod", group="g", namespace="team"), namespace="team").group_key == "team/g"
    assert task_of(cluster().pod("pod")).group_key == ""


def test_a_pod_of_another_scheduler_is_counted_and_not_placed() -> None:
    """cycle:SNP-13, Do better"""
    built = cluster(nodes=1, gpus=2).queue("q").group("g", minMember=1)
    built.pod("mine", group="g", gpu=1).pod("theirs", group="g", gpu=1, scheduler="default-scheduler")
    result = built.schedule()
    assert result.bound_pods("g") == ["mine"]
    assert result.unscheduled("g") is None
    running = cluster(nodes=1, gpus=2).queue("q").group("g")
    running.pod("theirs", group="g", gpu=1, scheduler="default-scheduler", on="node-0")
    (figures,) = running.schedule().plan.queues
    assert figures.allocated[2] == 1


def test_the_scheduler_goes_by_its_own_name() -> None:
    built = cluster(nodes=1).queue("q").gang("g", scheduler="mine")
    assert built.schedule().bound("g") == 0
    assert built.sharded(scheduler_name="mine").schedule().bound("g") == 1


def test_work_that_is_labelled_as_a_reservation_pays_for_its_gpu() -> None:
    """gpu:S-2 is for the pods a binder makes; a label alone buys no GPU."""
    label = {"app": "kai-resource-reservation"}
    built = cluster(nodes=1, gpus=1).queue("q").group("g").pod("sly", group="g", gpu=1, on="node-0", labels=label)
    assert not task_of(built, "sly").is_reservation
    assert built.gang("honest", gpu=1).schedule().bound("honest") == 0


# Small readings


@pytest.mark.parametrize("text", ["", " 7", "7 ", "1_0", "0x1", "1.0", "seven", "9" * 19, "٧"])
def test_a_task_priority_is_read_as_go_reads_integers(text: str) -> None:
    """cycle:8.5"""
    assert priority_label_key("-5") < priority_label_key(text) < priority_label_key(None)
    assert priority_label_key("+7") == priority_label_key("7") < priority_label_key("6")


def test_an_unreadable_creation_time_counts_as_the_oldest() -> None:
    built = cluster().pod("pod")
    built.objects[0]["metadata"]["creationTimestamp"] = "yesterday"
    assert task_of(built).creation_ns == 0
