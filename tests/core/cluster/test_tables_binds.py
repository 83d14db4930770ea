"""BindRequests and assumed states in the tables (cycle:SNP-6 to SNP-8, SNP-17, TSK-3; gpu:B-4)."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.core.cluster.tables import Tables
from pykai.core.model.status import TaskStatus
from tests.core.builders import NOW_NS, Raw, cluster
from tests.core.cluster.tablereading import amounts, apply, seen, state_in

# BindRequests: cycle:SNP-6 to SNP-8, T-40; gpu:B-4, T-80


def binding(**request: Any) -> Tables:
    return cluster(nodes=1, gpus=4).pod("pod", gpu=1).bind_request("pod", "node-0", **request).tables()


def test_a_bind_request_holds_its_node() -> None:
    """cycle:SNP-7, gpu:B-4: charged like a running pod."""
    tables = binding()
    assert state_in(tables) is TaskStatus.BINDING
    assert amounts(seen(tables), "nvidia.com/gpu") == {"idle": 3, "releasing": 0, "free": 3, "used": 1}
    tables.remove("BindRequest", "default", "pod")
    assert state_in(tables) is TaskStatus.PENDING
    assert amounts(seen(tables), "nvidia.com/gpu")["idle"] == 4


@pytest.mark.parametrize(
    ("request_", "state"),
    [
        ({"phase": "Pending"}, TaskStatus.BINDING),
        ({"phase": "Succeeded"}, TaskStatus.BINDING),
        ({"phase": "Failed"}, TaskStatus.PENDING),
        ({"phase": "Failed", "attempts": 2, "backoff": 3}, TaskStatus.BINDING),
        ({"phase": "Failed", "attempts": 3, "backoff": 3}, TaskStatus.PENDING),
        ({"phase": "Failed", "attempts": 0, "backoff": 0}, TaskStatus.PENDING),
        ({"phase": "Pending", "attempts": 9, "backoff": 3}, TaskStatus.BINDING),
    ],
)
def test_t40_a_bind_request_counts_until_it_has_failed_for_good(request_: Raw, state: TaskStatus) -> None:
    """cycle:SNP-7"""
    tables = binding(**request_)
    assert state_in(tables) is state
    assert tables.stale_bind_requests() == ([] if state is TaskStatus.BINDING else ["default/pod"])


def test_a_bind_request_that_fails_later_lets_go_of_the_node() -> None:
    tables = binding()
    apply(tables, cluster().bind_request("pod", "node-0", phase="Failed"))
    assert amounts(seen(tables), "nvidia.com/gpu")["idle"] == 4
    apply(tables, cluster().bind_request("pod", "node-0"))
    assert tables.stale_bind_requests() == []
    assert amounts(seen(tables), "nvidia.com/gpu")["idle"] == 3


@pytest.mark.parametrize(("label", "dead"), [({}, ["default/pod"]), ({"kai.scheduler/node-pool": "other"}, [])])
def test_t40_a_bind_request_for_an_unknown_node_is_deleted_if_it_is_ours(
    label: dict[str, str], dead: list[str]
) -> None:
    """cycle:SNP-6"""
    tables = cluster(nodes=1).pod("pod").bind_request("pod", "gone", labels=label).tables()
    assert state_in(tables) is TaskStatus.PENDING
    assert tables.stale_bind_requests() == dead


def test_a_failed_bind_request_for_a_node_of_another_shard_is_kept() -> None:
    """cycle:SNP-6"""
    theirs = {"kai.scheduler/node-pool": "other"}
    tables = cluster(nodes=1).pod("pod").bind_request("pod", "gone", phase="Failed", labels=theirs).tables()
    assert tables.stale_bind_requests() == []


def test_a_bind_request_waits_for_its_node_and_its_pod() -> None:
    tables = Tables()
    apply(tables, cluster().bind_request("pod", "node-0"))
    apply(tables, cluster().pod("pod", gpu=1))
    assert state_in(tables) is TaskStatus.PENDING
    apply(tables, cluster(nodes=1, gpus=4))
    assert state_in(tables) is TaskStatus.BINDING
    tables.remove("Node", "", "node-0")
    assert state_in(tables) is TaskStatus.PENDING
    assert tables.stale_bind_requests() == ["default/pod"]


@pytest.mark.parametrize(
    ("owner", "state"), [(None, TaskStatus.BINDING), ("uid-1", TaskStatus.BINDING), ("uid-0", TaskStatus.PENDING)]
)
def test_a_bind_request_of_an_earlier_pod_of_that_name_does_not_count(owner: str | None, state: TaskStatus) -> None:
    """gpu:B-4, Do better"""
    tables = cluster(nodes=1).pod("pod", uid="uid-1").bind_request("pod", "node-0", owner=owner).tables()
    assert state_in(tables) is state
    apply(tables, cluster().pod("pod", uid="uid-0"))
    assert (state_in(tables) is TaskStatus.BINDING) == (owner != "uid-1")


def test_the_pod_of_a_bind_request_is_the_one_it_names() -> None:
    """cycle:SNP-6: the key is the namespace and spec.podName, whatever the request is called."""
    built = cluster(nodes=1).pod("pod").pod("other").bind_request("pod", "node-0", name="odd")
    tables = built.tables()
    assert (state_in(tables), state_in(tables, "other")) == (TaskStatus.BINDING, TaskStatus.PENDING)
    apply(tables, cluster().bind_request("other", "node-0", name="odd"))
    assert (state_in(tables), state_in(tables, "other")) == (TaskStatus.PENDING, TaskStatus.BINDING)
    tables.remove("BindRequest", "default", "odd")
    assert (state_in(tables), state_in(tables, "other")) == (TaskStatus.PENDING, TaskStatus.PENDING)


def test_of_several_bind_requests_the_one_of_the_pods_name_counts() -> None:
    names = [f"a{number}" for number in range(8)]
    built = cluster(nodes=3).pod("pod").bind_request("pod", "node-1")
    for name in names:
        built.bind_request("pod", "node-0" if name == "a0" else "node-2", name=name)
    tables = built.tables()
    assert seen(tables).task_records["default/pod"].node == "node-1"
    apply(tables, cluster().bind_request("pod", "node-1", phase="Failed"))
    assert seen(tables).task_records["default/pod"].node == "node-0"


# States that are assumed, and time: cycle:SNP-17, TSK-3


def evicted() -> Tables:
    tables = cluster(nodes=1, gpus=4).pod("pod", gpu=1, on="node-0", uid="first").tables()
    tables.assume("default/pod", TaskStatus.RELEASING)
    return tables


def test_an_eviction_under_way_is_seen_before_the_watch_shows_it() -> None:
    """cycle:SNP-17, Do better"""
    tables = evicted()
    assert amounts(seen(tables), "nvidia.com/gpu") == {"idle": 3, "releasing": 1, "free": 4, "used": 1}
    apply(tables, cluster().pod("pod", gpu=1, on="node-0", uid="first", labels={"seen": "again"}))
    assert state_in(tables) is TaskStatus.RELEASING
    tables.assume("default/pod", None)
    assert state_in(tables) is TaskStatus.RUNNING


def test_an_assumption_is_about_one_pod_not_about_its_name() -> None:
    """cycle:SNP-17: keyed by uid"""
    tables = evicted()
    apply(tables, cluster().pod("pod", gpu=1, on="node-0", uid="second"))
    assert state_in(tables) is TaskStatus.RUNNING
    tables = evicted()
    tables.remove("Pod", "default", "pod")
    apply(tables, cluster().pod("pod", gpu=1, on="node-0", uid="first"))
    assert state_in(tables) is TaskStatus.RUNNING


def test_nothing_is_assumed_about_an_unknown_pod() -> None:
    tables = cluster(nodes=1).tables()
    tables.assume("default/pod", TaskStatus.RELEASING)
    apply(tables, cluster().pod("pod", on="node-0"))
    assert state_in(tables) is TaskStatus.RUNNING


def test_an_eviction_that_the_watch_confirms_can_get_stuck() -> None:
    """cycle:SNP-17, TSK-3"""
    tables = evicted()
    apply(tables, cluster().pod("pod", gpu=1, on="node-0", uid="first", deleted=600))
    assert state_in(tables) is TaskStatus.STUCK_IN_RELEASING


@pytest.mark.parametrize(("phase", "state"), [("Succeeded", TaskStatus.SUCCEEDED), ("Failed", TaskStatus.FAILED)])
def test_an_evicted_pod_that_has_ended_holds_nothing(phase: str, state: TaskStatus) -> None:
    tables = evicted()
    apply(tables, cluster().pod("pod", gpu=1, on="node-0", uid="first", phase=phase))
    assert state_in(tables) is state
    assert amounts(seen(tables), "nvidia.com/gpu")["idle"] == 4


def test_an_assumption_survives_a_change_of_the_node() -> None:
    tables = evicted()
    apply(tables, cluster(nodes=1, gpus=8))
    assert amounts(seen(tables), "nvidia.com/gpu") == {"idle": 7, "releasing": 1, "free": 8, "used": 1}


@pytest.mark.parametrize(("deleted", "status"), [(600, TaskStatus.RUNNING), (1, TaskStatus.STUCK_IN_RELEASING)])
def test_an_assumption_takes_precedence_over_the_clock(deleted: float, status: TaskStatus) -> None:
    tables = cluster(nodes=1).pod("pod", on="node-0", deleted=deleted).assume("pod", status).tables()
    assert state_in(tables) is status


def test_a_terminating_pod_gets_stuck_as_time_passes_and_stays_so() -> None:
    """cycle:TSK-3"""
    tables = cluster(nodes=1, gpus=4).pod("pod", gpu=1, on="node-0", deleted=0).tables()
    after = NOW_NS + 121_000_000_000
    assert amounts(seen(tables), "nvidia.com/gpu")["releasing"] == 1
    assert amounts(tables.snapshot(after), "nvidia.com/gpu") == {"idle": 3, "releasing": 0, "free": 3, "used": 1}
    apply(tables, cluster(nodes=1, gpus=5))
    assert tables.snapshot(after).task_records["default/pod"].status is TaskStatus.STUCK_IN_RELEASING
    assert amounts(seen(tables), "nvidia.com/gpu")["releasing"] == 1
