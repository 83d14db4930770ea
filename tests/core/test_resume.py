"""Binds decided by another scheduler are kept only as far as every rule allows them now."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykai.core.model.status import TaskStatus
from pykai.core.report.decisions import PlannedBind
from pykai.core.resume import ResumedBinds, UnfinishedBinds, resume
from tests.core.builders import NOW_NS, Cluster, cluster


def unfinished(group: str, queue: str = "q", uid: str | None = None, **places: str) -> UnfinishedBinds:
    """A plan: pod index -> node, as in `unfinished("train", _0="node-0")`."""
    listed = tuple(PlannedBind(f"{group}-{index[1:]}", f"{group}-{index[1:]}", node) for index, node in places.items())
    return UnfinishedBinds(f"default/{group}", group if uid is None else uid, queue, listed)


def resumed(built: Cluster, *plans: UnfinishedBinds) -> ResumedBinds:
    return resume(built.tables().snapshot(NOW_NS), built.policy(), plans)


def bound(found: ResumedBinds) -> dict[str, str]:
    return {bind.pod: bind.node for bind in found.binds}


def why(found: ResumedBinds, pod: str) -> str:
    return found.refused[f"default/{pod}"]


def test_pods_go_to_their_planned_node_and_not_to_a_better_one() -> None:
    built = cluster(nodes=2, gpus=4).queue("q").gang("busy", 1, gpu=1, on="node-0").gang("train", 2, gpu=1)
    assert set(built.schedule().nodes_used("train")) == {"node-0"}
    found = resumed(built, unfinished("train", _0="node-1", _1="node-1"))
    assert bound(found) == {"train-0": "node-1", "train-1": "node-1"}
    assert found.refused == {}


def test_what_is_bound_already_counts() -> None:
    built = cluster(nodes=1, gpus=2).queue("q").group("train", minMember=3)
    built.pod("train-0", group="train", gpu=1, on="node-0")
    built.pod("train-1", group="train", gpu=1).pod("train-2", group="train", gpu=1)
    found = resumed(built, unfinished("train", _0="node-0", _1="node-0", _2="node-0"))
    assert bound(found) == {"train-1": "node-0"}
    assert why(found, "train-0") == "the pod does not wait for a node of this scheduler"
    assert why(found, "train-2") == "node node-0: node(s) didn't have enough resources: GPUs"


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (unfinished("other", _0="node-0"), "PodGroup default/other does not exist"),
        (unfinished("train", uid="old", _0="node-0"), "its uid is train, not old"),
        (unfinished("train", queue="rich", _0="node-0"), "is in queue 'q', not in 'rich' any more"),
        (unfinished("train", _0="gone"), "node gone is gone"),
        (unfinished("train", _7="node-0"), "there is no such pod in PodGroup default/train"),
        (
            UnfinishedBinds("default/train", "train", "q", (PlannedBind("train-0", "old", "node-0"),)),
            "there is no such pod",
        ),
        (
            UnfinishedBinds("default/train", "train", "q", (PlannedBind("guest-0", "guest-0", "node-0"),)),
            "there is no such pod",
        ),
    ],
)
def test_names_and_uids_must_be_those_of_the_cluster(plan: UnfinishedBinds, text: str) -> None:
    built = cluster(nodes=1, gpus=4).queue("q").queue("rich").gang("train", 1, gpu=1).gang("guest", 1, gpu=1)
    found = resumed(built, plan)
    assert found.binds == ()
    assert [text in refusal for refusal in found.refused.values()] == [True]


def test_a_queue_that_is_not_a_leaf_takes_nothing() -> None:
    built = cluster(nodes=1, gpus=4).queue("q").queue("below", parent="q").gang("train", 1, gpu=1)
    assert "is not a leaf queue" in why(resumed(built, unfinished("train", _0="node-0")), "train-0")


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"spec": {"nodeSelector": {"zone": "b"}}}, "node(s) didn't match"),
        ({"scheduler": "default-scheduler"}, "does not wait for a node of this scheduler"),
        ({"gpu": 9}, "Max GPU resources available in a single node"),
        ({"spec": {"schedulingGates": [{"name": "wait"}]}}, "does not wait"),
    ],
)
def test_a_pod_must_fit_its_node_by_every_rule(how: dict[str, Any], text: str) -> None:
    built = cluster(nodes=1, gpus=8).queue("q").gang("train", 1, **{"gpu": 1, **how})
    found = resumed(built, unfinished("train", _0="node-0"))
    assert found.binds == ()
    assert text in why(found, "train-0")


def test_a_taint_that_came_meanwhile_is_respected() -> None:
    taints = [{"key": "k", "effect": "NoSchedule"}]
    built = cluster().node(gpus=8, taints=taints).queue("q").gang("train", 1, gpu=1)
    assert resumed(built, unfinished("train", _0="node-0")).binds == ()


def test_the_limit_of_the_queue_holds_entry_by_entry() -> None:
    built = cluster(nodes=1, gpus=8).queue("q", limit=2).gang("train", 3, gpu=1)
    found = resumed(built, unfinished("train", _0="node-0", _1="node-0", _2="node-0"))
    assert set(bound(found)) == {"train-0", "train-1"}
    assert "Limit is 2 GPUs" in why(found, "train-2")


def test_the_quota_of_non_preemptible_work_holds() -> None:
    built = cluster(nodes=1, gpus=8).queue("q", quota=1).gang("train", 2, gpu=1, preemptible=False)
    found = resumed(built, unfinished("train", _0="node-0", _1="node-0"))
    assert len(found.binds) == 1
    assert "over quota" in why(found, "train-1")


def test_two_plans_do_not_get_the_same_resources() -> None:
    built = cluster(nodes=1, gpus=3).queue("q").gang("one", 2, gpu=1).gang("two", 2, gpu=1)
    found = resumed(built, unfinished("one", _0="node-0", _1="node-0"), unfinished("two", _0="node-0", _1="node-0"))
    assert set(bound(found)) == {"one-0", "one-1", "two-0"}
    assert "GPUs" in why(found, "two-1")


def test_a_share_goes_to_a_gpu_with_enough_memory() -> None:
    """The bind is decided again; the devices of the plan are not known here."""
    built = cluster(nodes=1, gpus=2).queue("q").gang("old", 1, fraction=0.9, on="node-0", device="full")
    found = resumed(built.gang("train", 1, fraction=0.9), unfinished("train", _0="node-0"))
    assert len(found.binds) == 1
    assert "full" not in found.binds[0].gpu_groups
    tight = cluster(nodes=1, gpus=1).queue("q").gang("old", 1, fraction=0.9, on="node-0", device="full")
    found = resumed(tight.gang("train", 1, fraction=0.9), unfinished("train", _0="node-0"))
    assert found.binds == ()
    assert "enough resources: GPUs" in why(found, "train-0")


def test_a_claim_gets_a_device_that_is_not_in_use() -> None:
    """Of two devices one is held; of one device none is left."""
    for devices, expected in ((2, ["gpu-1"]), (1, [])):
        built = cluster(nodes=1).queue("q").device_class("gpu").slice("node-0", devices)
        built.group("old").pod("old-0", group="old", on="node-0", template=1, given=("gpu-0",))
        built.group("train").pod("train-0", group="train", template=1)
        found = resumed(built, unfinished("train", _0="node-0"))
        granted = [
            result.device
            for bind in found.binds
            for _, allocation in bind.claims
            for result in allocation.devices.results
        ]
        assert granted == expected
        assert len(found.refused) == devices % 2


def test_a_volume_that_is_elsewhere_keeps_its_pod_from_the_node() -> None:
    built = cluster(nodes=2).queue("q").volume("v", on="node-0", claim="data").claim("data", bound_to="v")
    built.group("train").pod("train-0", group="train", claims=("data",))
    assert bound(resumed(built, unfinished("train", _0="node-0"))) == {"train-0": "node-0"}
    assert resumed(built, unfinished("train", _0="node-1")).binds == ()


def test_a_node_that_is_still_being_released_is_not_used() -> None:
    built = cluster(nodes=1, gpus=1).queue("q").gang("old", 1, gpu=1, on="node-0").gang("train", 1, gpu=1)
    found = resumed(built.assume("old-0", TaskStatus.RELEASING), unfinished("train", _0="node-0"))
    assert found.binds == ()
    assert "does not have everything the pod needs free now" in why(found, "train-0")


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=8),
    st.integers(1, 4),
    st.integers(0, 6),
)
def test_no_plan_overfills_nodes_or_queues(places: list[tuple[int, int]], gpus: int, limit: int) -> None:
    built = cluster(nodes=2, gpus=gpus).queue("q", limit=limit)
    plans = {}
    for number, (asked, node) in enumerate(places):
        built.gang(f"g{number}", 1, gpu=asked)
        plans[f"g{number}-0"] = unfinished(f"g{number}", _0=f"node-{node}")
    found = resumed(built, *plans.values())
    used = {"node-0": 0, "node-1": 0}
    for bind in found.binds:
        used[bind.node] += places[int(bind.group.partition("/g")[2])][0]
    assert max(used.values()) <= gpus
    assert sum(used.values()) <= limit
    assert {f"{bind.namespace}/{bind.pod}" for bind in found.binds} | found.refused.keys() == {
        f"default/{pod}" for pod in plans
    }
