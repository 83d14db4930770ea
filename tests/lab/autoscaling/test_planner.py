"""Which nodes come and go (sim:autoscaler, sim:autoscaler-idle): pure, in times that tests choose."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api.core import Node
from pykai.api.decode import decode_as
from pykai.api.workloads import MachinePod
from pykai.lab.autoscaling.nodegroups import KARPENTER, PROVISIONERS, NodeGroup
from pykai.lab.autoscaling.planner import BootingNode, NodePlan, ObservedCluster, plan_nodes
from pykai.lab.machines.nodes import MachineKind

NVIDIA, AMD = "nvidia.com/gpu", "amd.com/gpu"
H100 = MachineKind(name="h100", gpus=8, labels={"gpu": "h100"})
SMALL = MachineKind(name="small", gpus=1, gpu_resource=AMD, cpu="32")
LARGE = MachineKind(name="large", gpus=8, gpu_resource=AMD, cpu="128")
GPUS = NodeGroup("gpus", [H100], most=3, idle_s=60)
POOL = NodeGroup("pool", [LARGE, SMALL], PROVISIONERS[KARPENTER], most=3, idle_s=20)
DRAIN_S = 5.0


def pod(name: str, *, on: str = "", reason: str = "Unschedulable", **asked: Any) -> MachinePod:
    """A pod that waits, or runs on a node; `asked` may be gpus, resource, owner, phase, and parts of the spec."""
    spec: dict[str, Any] = {"nodeName": on, **asked.get("spec", {})}
    limits = {asked.get("resource", NVIDIA): str(asked.get("gpus", 1))}
    spec["containers"] = [{"name": "c", "image": "i", "resources": {"requests": limits, "limits": limits}}]
    owner = {"apiVersion": "v1", "kind": asked.get("owner", "Job"), "name": "o", "uid": "o"}
    conditions = [] if on else [{"type": "PodScheduled", "status": "False", "reason": reason}]
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "d", "uid": name, "ownerReferences": [owner]},
        "spec": spec,
        "status": {"phase": asked.get("phase", "Running" if on else "Pending"), "conditions": conditions},
    }
    return decode_as(MachinePod, document)


def node(group: NodeGroup, name: str, *taints: str) -> Node:
    """A node of a group, of its first kind of machine."""
    document = group.node(group.machines[0], name, "")
    document["spec"]["taints"] = [{"key": key, "effect": "NoSchedule"} for key in taints]
    return decode_as(Node, document)


def planned(*groups: NodeGroup, at_s: float = 0.0, since: dict[str, float] | None = None, **seen: Any) -> NodePlan:
    return plan_nodes(groups, ObservedCluster(**seen), since or {}, at_s, DRAIN_S)


def ordered(plan: NodePlan) -> list[tuple[str, list[str]]]:
    """Machines that come, and the pods they are for."""
    return sorted((order.machine.name, sorted(pod.metadata.name for pod in order.pods)) for order in plan.orders)


# Nodes that come


def test_a_gang_gets_the_nodes_it_needs() -> None:
    plan = planned(GPUS, pods=[pod(f"g-{number}", gpus=4) for number in range(4)])
    assert ordered(plan) == [("h100", ["g-0", "g-1"]), ("h100", ["g-2", "g-3"])]


def test_no_more_nodes_come_than_the_group_may_have() -> None:
    waiting = [pod(f"g-{number}", gpus=8) for number in range(5)]
    assert len(planned(GPUS, pods=waiting).orders) == 3
    assert len(planned(GPUS, pods=waiting, nodes=[node(GPUS, "h100-1", "full")]).orders) == 2
    booting = [BootingNode("h100-2", GPUS, H100, 10.0)]
    assert len(planned(GPUS, pods=waiting, nodes=[node(GPUS, "h100-1", "full")], booting=booting).orders) == 1


@pytest.mark.parametrize("reason", ["SchedulingGated", "PodGroupNotReady", "QueueAccessDenied"])
def test_pods_that_no_node_would_help_buy_none(reason: str) -> None:
    """queues:Q-409: among them those behind the gate of a queue over its quota."""
    assert planned(GPUS, pods=[pod("p", reason=reason)]).orders == ()


def test_a_gate_counts_also_before_its_condition() -> None:
    gated = {"schedulingGates": [{"name": "kai.scheduler/queue-admission"}]}
    assert planned(GPUS, pods=[pod("p", spec=gated)]).orders == ()


def test_pods_that_have_ended_or_fit_on_no_machine_buy_none() -> None:
    waiting = [
        pod("ended", phase="Failed"),
        pod("large", gpus=9),
        pod("other", resource="example.com/gpu"),
        pod("selects", spec={"nodeSelector": {"gpu": "b200"}}),
    ]
    assert planned(GPUS, POOL, pods=waiting).orders == ()


def test_pods_that_fit_on_a_node_that_is_there_or_boots_buy_none() -> None:
    """The second is no reason for a third."""
    seen: dict[str, Any] = {"nodes": [node(GPUS, "h100-1")], "booting": [BootingNode("h100-2", GPUS, H100, 10.0)]}
    assert planned(GPUS, pods=[pod("a", gpus=8), pod("b", gpus=8)], **seen).orders == ()
    assert ordered(planned(GPUS, pods=[pod(name, gpus=8) for name in "abc"], **seen)) == [("h100", ["c"])]


def test_a_node_that_has_just_come_is_not_bought_again() -> None:
    coming = node(GPUS, "h100-1", "node.kubernetes.io/not-ready")
    assert planned(GPUS, pods=[pod("a", gpus=8)], nodes=[coming]).orders == ()


def test_what_running_pods_hold_is_not_free() -> None:
    full: dict[str, Any] = {
        "nodes": [node(GPUS, "h100-1")],
        "pods": [pod("old", gpus=5, on="h100-1"), pod("new", gpus=4)],
    }
    assert ordered(planned(GPUS, **full)) == [("h100", ["new"])]


def test_taints_of_a_group_keep_pods_away_that_do_not_tolerate_them() -> None:
    tainted = NodeGroup("t", [MachineKind(name="t", gpus=8, taints=[{"key": "gpu", "effect": "NoSchedule"}])])
    tolerates = {"tolerations": [{"key": "gpu", "operator": "Exists"}]}
    assert planned(tainted, pods=[pod("no")]).orders == ()
    assert ordered(planned(tainted, pods=[pod("yes", spec=tolerates)])) == [("t", ["yes"])]


def test_the_group_with_the_smallest_machine_that_fits_gets_the_node() -> None:
    small = NodeGroup("small", [MachineKind(name="l4", gpus=1)])
    assert ordered(planned(GPUS, small, pods=[pod("a")])) == [("l4", ["a"])]
    assert ordered(planned(GPUS, small, pods=[pod("a", gpus=2)])) == [("h100", ["a"])]


def test_each_vendor_has_its_group() -> None:
    plan = planned(GPUS, POOL, pods=[pod("n", gpus=8), pod("a", gpus=8, resource=AMD)])
    assert ordered(plan) == [("h100", ["n"]), ("large", ["a"])]


def test_karpenter_makes_the_smallest_node_that_holds_its_pods() -> None:
    assert ordered(planned(POOL, pods=[pod("a", resource=AMD)])) == [("small", ["a"])]
    several = [pod(name, gpus=2, resource=AMD) for name in "abcd"]
    assert ordered(planned(POOL, pods=several)) == [("large", ["a", "b", "c", "d"])]


def test_karpenter_fills_a_node_before_it_makes_another() -> None:
    both = [pod("a", gpus=7, resource=AMD), pod("b", gpus=2, resource=AMD), pod("c", resource=AMD)]
    assert ordered(planned(POOL, pods=both)) == [("large", ["a", "c"]), ("large", ["b"])]


def test_a_group_has_its_least_size_without_pods() -> None:
    warm = NodeGroup("warm", [H100], least=2, most=3)
    assert ordered(planned(warm)) == [("h100", []), ("h100", [])]
    assert ordered(planned(warm, pods=[pod("a")])) == [("h100", []), ("h100", ["a"])]


# Nodes that go


def test_an_empty_node_is_closed_after_the_idle_time_and_then_deleted() -> None:
    here = [node(GPUS, "h100-1")]
    assert planned(GPUS, nodes=here, at_s=7.0).empty_since_s == {"h100-1": 7.0}
    early = planned(GPUS, nodes=here, since={"h100-1": 7.0}, at_s=66.0)
    assert (early.close, early.delete, early.empty_since_s) == ((), (), {"h100-1": 7.0})
    assert planned(GPUS, nodes=here, since={"h100-1": 7.0}, at_s=67.0).close == ("h100-1",)
    closed = [node(GPUS, "h100-1", "ToBeDeletedByClusterAutoscaler")]
    assert planned(GPUS, nodes=closed, since={"h100-1": 7.0}, at_s=71.0).delete == ()
    assert planned(GPUS, nodes=closed, since={"h100-1": 7.0}, at_s=72.0).delete == ("h100-1",)


def test_each_group_has_its_own_idle_time_and_taint() -> None:
    both = [node(GPUS, "h100-1"), node(POOL, "large-1")]
    since = {"h100-1": 0.0, "large-1": 0.0}
    assert planned(GPUS, POOL, nodes=both, since=since, at_s=30.0).close == ("large-1",)
    closed = [node(POOL, "large-1", "karpenter.sh/disrupted")]
    assert planned(GPUS, POOL, nodes=closed, since=since, at_s=30.0).delete == ("large-1",)


def test_a_pod_that_came_meanwhile_opens_the_node_again() -> None:
    closed = [node(GPUS, "h100-1", "ToBeDeletedByClusterAutoscaler")]
    plan = planned(GPUS, nodes=closed, pods=[pod("p", on="h100-1")], since={"h100-1": 0.0}, at_s=100.0)
    assert (plan.reopen, plan.delete, plan.empty_since_s) == (("h100-1",), (), {})


@pytest.mark.parametrize(
    ("holder", "is_kept"),
    [
        ({}, True),
        ({"phase": "Pending"}, True),
        ({"phase": "Succeeded"}, False),
        ({"phase": "Failed"}, False),
        ({"owner": "DaemonSet"}, False),
        ({"owner": "Node"}, False),
    ],
)
def test_what_keeps_a_node(holder: dict[str, Any], is_kept: bool) -> None:
    """Pods are never evicted for it, so one pod is enough."""
    plan = planned(GPUS, nodes=[node(GPUS, "n")], pods=[pod("p", on="n", **holder)], since={"n": 0.0}, at_s=99.0)
    assert plan.close == (() if is_kept else ("n",))


def test_a_node_for_which_a_pod_waits_stays() -> None:
    plan = planned(GPUS, nodes=[node(GPUS, "n")], pods=[pod("p", gpus=8)], since={"n": 0.0}, at_s=99.0)
    assert (plan.close, plan.empty_since_s) == ((), {})


def test_the_least_size_of_a_group_stays_and_the_longest_empty_go_first() -> None:
    warm = NodeGroup("warm", [H100], least=1, idle_s=10)
    here = [node(warm, name) for name in "abc"]
    assert planned(warm, nodes=here, since={"a": 5.0, "b": 3.0, "c": 4.0}, at_s=50.0).close == ("b", "c")


def test_nodes_without_a_group_stay() -> None:
    other = node(NodeGroup("other", [H100]), "mine")
    assert planned(GPUS, nodes=[other], since={"mine": 0.0}, at_s=1e6).close == ()
