"""The checks between a pod and a node, step by step, with their texts and their order (cycle:9.1, gpu:5.1).

The filters of Kubernetes (step 11), the pre-checks and resource fit have files of their own.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tests.core.builders import Cluster, Raw, Result, cluster

SLICE = "nvidia.com/mig-1g.5gb"
SHORT = "node(s) didn't have enough resources: "
FULL = "node(s) pod number exceeded"
NOT_MIG = "MIG job cannot be scheduled on non-MIG node"
SINGLE = "only whole gpu jobs can run on a node with MigStrategy='single'"
MIXED = "non MIG jobs cant run on a node with MigStrategy='mixed'"


def mig_node(made: Cluster, name: str = "node", strategy: str = "", **how: Any) -> Cluster:
    """A node with two whole GPUs and two slices."""
    labels = {"nvidia.com/mig.strategy": strategy} if strategy else {}
    return made.node(name, **{"gpus": 2, "extra": {SLICE: 2}, "labels": labels, **how})


# Step 1: the queue may not take what the request costs on this node


def small_and_large(limit: float = -1, quota: float = -1) -> Cluster:
    """A device of 1000 MiB and one of 10000 MiB: 500 MiB are half of one and a twentieth of the other."""
    made = cluster().node("large", gpus=1, gpu_memory=10_000).node("small", gpus=1, gpu_memory=1000)
    return made.queue("q", limit=limit, quota=quota, display_name="Team Q")


def test_a_node_on_which_the_request_costs_more_than_the_limit_is_refused() -> None:
    """cycle:9.1 step 1: by the portion the request has on that node."""
    fits = small_and_large(limit=0.2).gang("job", gpu_memory=500).schedule()
    assert fits.node_of("job-0") == "large"
    full = small_and_large(limit=0.2).pod("there", on="large", gpu=1).gang("job", gpu_memory=500).schedule()
    assert full.node_reasons("job") == {
        f"{SHORT}GPUs": 1,
        "node does not have enough capacity. Reason: OverLimit, Details: Team Q quota has reached the allowable limit "
        "of GPUs. Limit is 0.2 GPUs, currently 0 GPUs allocated and workload requested 0.5 GPUs": 1,
    }


def test_a_node_on_which_a_non_preemptible_request_costs_more_than_the_quota_is_refused() -> None:
    """cycle:9.1 step 1"""
    job: Raw = {"gpu_memory": 500, "preemptible": False}
    assert small_and_large(quota=0.2).gang("job", **job).schedule().node_of("job-0") == "large"
    full = small_and_large(quota=0.2).pod("there", on="large", gpu=1).gang("job", **job).schedule()
    assert full.node_reasons("job") == {
        f"{SHORT}GPUs": 1,
        "node does not have enough capacity. Reason: NonPreemptibleOverQuota, Details: Non-preemptible workload is "
        "over quota. Workload requested 0.5 GPUs, but Team Q quota is 0.2 GPUs, while 0 GPUs are already allocated for "
        "non-preemptible pods. Use a preemptible workload to go over quota.": 1,
    }
    preemptible = small_and_large(quota=0.2).pod("there", on="large", gpu=1).gang("job", gpu_memory=500).schedule()
    assert preemptible.node_of("job-0") == "small"


def test_the_capacity_of_a_node_counts_what_was_placed_in_this_cycle() -> None:
    """Two pods of 0.3 of a GPU each on small; the limit allows one of them."""
    made = small_and_large(limit=0.4).pod("there", on="large", gpu=1)
    result = made.gang("job", pods=2, min=1, gpu_memory=300).schedule()
    assert result.nodes_used("job") == {"small": 1}
    (over,) = (reason for reason in result.node_reasons("job") if reason.startswith("node does not have"))
    assert "currently 0.3 GPUs allocated and workload requested 0.3 GPUs" in over


def test_pods_of_different_queues_do_not_share_a_capacity_result() -> None:
    made = cluster().node("small", gpus=1, gpu_memory=1000).node("large", gpus=1, gpu_memory=10_000, unschedulable=True)
    made.queue("poor", limit=0.2, priority=200).queue("rich")
    result = made.gang("first", queue="poor", gpu_memory=500).gang("second", queue="rich", gpu_memory=500).schedule()
    assert result.bound("first") == 0
    assert result.bound("second") == 1


def test_preemptible_work_is_not_held_to_the_non_preemptible_quota() -> None:
    made = cluster().node("small", gpus=1, gpu_memory=1000).node("large", gpus=1, gpu_memory=10_000, unschedulable=True)
    made.queue("q", quota=0.2)
    result = made.gang("kept", preemptible=False, gpu_memory=500).gang("lent", gpu_memory=500).schedule()
    assert result.bound("kept") == 0
    assert result.bound("lent") == 1


def test_several_devices_cost_several_portions() -> None:
    """gpu:C-9"""
    made = cluster().node("small", gpus=2, gpu_memory=1000).node("large", gpus=2, gpu_memory=10_000, unschedulable=True)
    made.queue("q", limit=0.6)
    assert made.gang("job", gpu_memory=400, devices=2).schedule().bound("job") == 0
    made = cluster().node("small", gpus=2, gpu_memory=1000).queue("q", limit=0.8)
    assert made.gang("job", gpu_memory=400, devices=2).schedule().bound("job") == 1


# Step 2: legacy MIG


def test_a_legacy_mig_pod_goes_nowhere() -> None:
    """cycle:9.1 step 2, gpu:P-1: not even where the slices are."""
    made = mig_node(mig_node(cluster().queue("q"), "a"), "b")
    assert made.gang("job", annotations={SLICE: "1"}).schedule().node_reasons("job") == {
        "Legacy MIG jobs cannot be scheduled on node a": 1,
        "Legacy MIG jobs cannot be scheduled on node b": 1,
    }


# Step 3: CPU-only pods skip 4 to 7


@pytest.mark.parametrize("strategy", ["", "single", "mixed"])
def test_pods_without_gpus_run_on_mig_nodes(strategy: str) -> None:
    """cycle:9.1 step 3, gpu:P-2"""
    assert mig_node(cluster().queue("q"), strategy=strategy).gang("job").schedule().bound("job") == 1


# Steps 5 to 7: MIG


def test_slices_are_given_on_mig_nodes_only() -> None:
    """cycle:9.1 step 5, gpu:P-4: a node may have slices to offer and still be no MIG node by its label."""
    off = {"node-role.kubernetes.io/mig-enabled": "false"}
    made = mig_node(cluster().queue("q"), labels=off)
    assert made.gang("job", extra={SLICE: 1}).schedule().node_reasons("job") == {NOT_MIG: 1}
    assert mig_node(cluster().queue("q")).gang("job", extra={SLICE: 1}).schedule().bound("job") == 1


def test_the_label_of_mig_nodes_can_be_another_one() -> None:
    made = mig_node(cluster().queue("q").sharded(mig_label="example.com/mig"), labels={"example.com/mig": "no"})
    assert made.gang("job", extra={SLICE: 1}).schedule().node_reasons("job") == {NOT_MIG: 1}


def legacy(made: Cluster, name: str, on: str, **how: Any) -> Cluster:
    return made.pod(name, on=on, annotations={SLICE: "1"}, scheduler="other", **how)


def test_slices_are_not_given_beside_legacy_mig_pods() -> None:
    """cycle:9.1 step 6, gpu:P-4: each node names its own."""
    three: Raw = {"extra": {SLICE: 3}}
    made = mig_node(mig_node(cluster().queue("q"), "a", **three), "b", **three)
    made = legacy(legacy(legacy(made, "old-b", on="a"), "old-a", on="a"), "old-c", on="b", namespace="team")
    assert made.gang("job", extra={SLICE: 1}).schedule().node_reasons("job") == {
        "MIG job cannot be scheduled on node with legacy MIG jobs: <[default/old-a default/old-b]>": 1,
        "MIG job cannot be scheduled on node with legacy MIG jobs: <[team/old-c]>": 1,
    }


def test_a_node_without_legacy_mig_pods_of_its_own_gives_slices() -> None:
    made = legacy(mig_node(mig_node(cluster().queue("q"), "a"), "b"), "old", on="a")
    assert made.gang("job", pods=2, extra={SLICE: 1}).schedule().nodes_used("job") == {"b": 2}


def test_legacy_mig_pods_that_have_ended_do_not_count() -> None:
    made = legacy(mig_node(cluster().queue("q")), "old", on="node", phase="Succeeded")
    assert made.gang("job", extra={SLICE: 1}).schedule().bound("job") == 1


def test_legacy_mig_pods_keep_only_slices_away() -> None:
    made = legacy(mig_node(cluster().queue("q")), "old", on="node")
    assert made.gang("job", gpu=1).schedule().bound("job") == 1


KINDS: dict[str, Raw] = {
    "whole": {"gpu": 1},
    "fraction": {"fraction": 0.5},
    "memory": {"gpu_memory": 500},
    "slice": {"extra": {SLICE: 1}},
}


@pytest.mark.parametrize(
    ("strategy", "welcome", "text"),
    [
        ("single", {"whole"}, SINGLE),
        ("mixed", {"slice"}, MIXED),
        ("none", set(KINDS), ""),
        ("", set(KINDS), ""),
    ],
)
def test_a_mig_strategy_decides_which_requests_are_accepted(strategy: str, welcome: set[str], text: str) -> None:
    """cycle:9.1 step 7, gpu:P-4"""
    for kind, how in KINDS.items():
        result = mig_node(cluster().queue("q"), strategy=strategy).gang("job", **how).schedule()
        assert result.bound("job") == (kind in welcome), kind
        if kind not in welcome:
            assert result.node_reasons("job") == {text: 1}, kind


def test_a_strategy_is_ignored_on_a_node_without_mig() -> None:
    made = cluster().queue("q").node(gpus=1, labels={"nvidia.com/mig.strategy": "mixed"})
    assert made.gang("job", gpu=1).schedule().bound("job") == 1


# Step 8: GPU memory not known yet


def test_a_memory_request_waits_until_the_memory_of_a_node_is_known() -> None:
    """cycle:9.1 step 8, gpu:P-5"""
    made = cluster().node("unknown", gpus=1, gpu_memory=None).queue("q")
    assert made.gang("job", gpu_memory=50).schedule().node_reasons("job") == {
        "node is not a gpu node or the gpu memory count on the node was not synced yet, "
        "task: default/job-0, node: unknown": 1
    }
    known = cluster().node("unknown", gpus=1, gpu_memory=None).node("known", gpus=1).queue("q")
    assert known.gang("job", gpu_memory=50).schedule().node_of("job-0") == "known"


@pytest.mark.parametrize("kind", ["whole", "fraction"])
def test_other_requests_ignore_the_memory_of_gpus(kind: str) -> None:
    made = cluster().node(gpus=1, gpu_memory=None).queue("q")
    assert made.gang("job", **KINDS[kind]).schedule().bound("job") == 1


# Step 9: pod slots


def test_a_new_shared_gpu_needs_a_slot_for_its_reservation_pod() -> None:
    """cycle:9.1 step 9, gpu:P-7"""
    assert cluster(nodes=1, gpus=2, pods=2).queue("q").gang("job", fraction=0.5).schedule().bound("job") == 1
    one = cluster(nodes=1, gpus=2, pods=1).queue("q").gang("job", fraction=0.5).schedule()
    assert one.node_reasons("job") == {FULL: 1}
    assert cluster(nodes=1, gpus=2, pods=1).queue("q").gang("job", gpu=1).schedule().bound("job") == 1


def test_joining_a_shared_gpu_needs_no_further_slot() -> None:
    """cycle:FLT-10, gpu:P-7, Do better: ids of devices are never numbers, membership decides."""
    for device in ("0b7f6d0c-7c55-4a4d-8d0a-3f6f3c3f7f11", "3"):
        made = cluster(nodes=1, gpus=1, pods=2).queue("q").pod("tenant", on="node-0", fraction=0.5, device=device)
        assert made.gang("job", fraction=0.5).schedule().bound("job") == 1, device


def test_a_device_with_a_number_for_an_id_may_be_new_all_the_same() -> None:
    """cycle:FLT-10: what matters is whether the node knows the device, not what its id looks like."""
    made = cluster(nodes=1, gpus=2, pods=2).queue("q").pod("tenant", on="node-0", fraction=0.9, device="3")
    assert made.gang("job", fraction=0.5).schedule().node_reasons("job") == {FULL: 1}


def test_every_new_device_needs_its_own_reservation_pod() -> None:
    """gpu:P-7, Do better: one slot for the pod and one for each device it is the first to share."""
    ask: Raw = {"fraction": 0.5, "devices": 2}
    assert cluster(nodes=1, gpus=2, pods=2).queue("q").gang("job", **ask).schedule().node_reasons("job") == {FULL: 1}
    assert cluster(nodes=1, gpus=2, pods=3).queue("q").gang("job", **ask).schedule().bound("job") == 1
    half_new = cluster(nodes=1, gpus=2, pods=3).queue("q").pod("tenant", on="node-0", fraction=0.5, device="d")
    assert half_new.gang("job", **ask).schedule().bound("job") == 1


def test_slots_of_ending_pods_count() -> None:
    """cycle:9.1 step 9: idle and releasing"""
    made = cluster(nodes=1, gpus=2, pods=2).queue("q").pod("ending", on="node-0", deleted=0)
    assert made.gang("job", fraction=0.5).schedule().node_of("job-0") == "node-0"
    held = cluster(nodes=1, gpus=2, pods=2).queue("q").pod("staying", on="node-0")
    assert held.gang("job", fraction=0.5).schedule().node_reasons("job") == {FULL: 1}


# Step 10: the state of the node


@pytest.mark.parametrize(
    ("node", "text"),
    [
        ({"unschedulable": True}, "node is unschedulable"),
        ({"conditions": {"Ready": "False"}}, "node has NotReady condition"),
        ({"conditions": {"Ready": "Unknown"}}, "node has NotReady condition"),
        ({"conditions": {"MemoryPressure": "True"}}, "node has MemoryPressure condition"),
        ({"conditions": {"MemoryPressure": "Unknown"}}, "node has MemoryPressure condition"),
        ({"conditions": {"DiskPressure": "True"}}, "node has DiskPressure condition"),
        ({"conditions": {"PIDPressure": "True"}}, "node has PIDPressure condition"),
        ({"conditions": {"NetworkUnavailable": "True"}}, "node has NetworkUnavailable condition"),
    ],
)
def test_nodes_in_a_bad_state_take_no_pods(node: Raw, text: str) -> None:
    """cycle:9.1 step 10"""
    tolerant = {"tolerations": [{"operator": "Exists"}]}
    result = cluster().node("good", cpu=1).node("bad", **node).queue("q").gang("job", pods=2, spec=tolerant).schedule()
    assert result.node_reasons("job") == {text: 1, f"{SHORT}CPU cores": 1}


@pytest.mark.parametrize(
    "conditions",
    [
        {"MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False", "NetworkUnavailable": "False"},
        {"KernelDeadlock": "True"},
        {},
    ],
)
def test_nodes_in_a_good_state_take_pods(conditions: dict[str, str]) -> None:
    assert cluster().node(conditions=conditions).queue("q").gang("job").schedule().bound("job") == 1


def test_a_node_without_conditions_takes_pods() -> None:
    silent: Raw = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    silent["status"] = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}
    assert cluster().add(silent).queue("q").gang("job").schedule().bound("job") == 1


def test_the_first_of_several_bad_conditions_is_the_reason() -> None:
    troubles = {"Ready": "False", "NetworkUnavailable": "True", "MemoryPressure": "True"}
    both = cluster().node(unschedulable=True, conditions=troubles).node(conditions=troubles).queue("q").gang("job")
    assert both.schedule().node_reasons("job") == {"node is unschedulable": 1, "node has NotReady condition": 1}


# Step 12: nodes for GPU work and nodes for CPU work

GPU_WORKER = {"node-role.kubernetes.io/gpu-worker": ""}
CPU_WORKER = {"node-role.kubernetes.io/cpu-worker": ""}


def workers(**shard: Any) -> Cluster:
    made = cluster().sharded(restrict_nodes=True, **shard).queue("q")
    return made.node("for-cpu", gpus=1, labels=CPU_WORKER).node("for-gpu", gpus=1, labels=GPU_WORKER)


def test_restricted_nodes_take_the_work_they_are_labelled_for() -> None:
    """cycle:9.1 step 12"""
    result = workers().gang("gpu", gpu=1).gang("part", pods=2, min=1, fraction=0.5).gang("cpu").schedule()
    assert result.node_of("gpu-0") == "for-gpu"
    assert result.node_of("cpu-0") == "for-cpu"
    assert result.node_reasons("part") == {
        f"{SHORT}GPUs": 1,
        "gpu task: default/part-0 can't run on non gpu nodes, node: for-cpu": 1,
    }


def test_cpu_work_without_a_cpu_node_has_a_reason() -> None:
    """cycle:9.1 step 12"""
    made = cluster().sharded(restrict_nodes=True).queue("q").node("for-gpu", gpus=1, labels=GPU_WORKER)
    assert made.gang("cpu").schedule().node_reasons("cpu") == {
        "cpu task: default/cpu-0 can't run on non cpu nodes, node: for-gpu": 1
    }


def test_a_node_may_be_labelled_for_both() -> None:
    made = cluster().sharded(restrict_nodes=True).queue("q").node(gpus=1, labels={**GPU_WORKER, **CPU_WORKER})
    result = made.gang("gpu", gpu=1).gang("cpu").schedule()
    assert result.bound("gpu") == result.bound("cpu") == 1


def test_worker_labels_are_ignored_without_the_restriction() -> None:
    made = cluster().queue("q").node("for-cpu", gpus=1, labels=CPU_WORKER)
    assert made.gang("gpu", gpu=1).schedule().bound("gpu") == 1


# Order

PORT: Raw = {"containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}]}
AVOIDS: Raw = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "bad"}}}
            ]
        }
    }
}
UNSYNCED = (
    "node is not a gpu node or the gpu memory count on the node was not synced yet, task: default/job-0, node: node"
)

#: Reasons in the order of the table in cycle:9.1.  A memory request can be refused by all of them.
IN_ORDER = (
    ("resources", f"{SHORT}CPU cores"),
    ("capacity", "node does not have enough capacity."),
    ("mig", MIXED),
    ("memory", UNSYNCED),
    ("slots", FULL),
    ("state", "node is unschedulable"),
    ("ports", "node(s) didn't have free ports for the requested pod ports"),
    ("taints", "node(s) had untolerated taint(s)"),
    ("selector", "node(s) didn't match Pod's node affinity/selector"),
    ("company", "node(s) didn't match pod anti-affinity rules"),
    ("workers", "gpu task: default/job-0 can't run on non gpu nodes, node: node"),
)


def troubled(troubles: set[str]) -> Result:
    """A node with these obstacles for a pod, and another one that is full (and makes devices look large)."""

    def when(trouble: str, there: Any, otherwise: Any) -> Any:
        return there if trouble in troubles else otherwise

    labels = dict(CPU_WORKER)
    if "mig" in troubles:
        labels |= {"nvidia.com/mig.strategy": "mixed", "node-role.kubernetes.io/mig-enabled": "true"}
    if "workers" not in troubles:
        labels |= GPU_WORKER
    if "selector" not in troubles:
        labels["zone"] = "a"
    made = cluster().sharded(restrict_nodes=True).queue("q", limit=when("capacity", 0.2, -1))
    made.node(
        "node",
        gpus=2,
        cpu=2,
        pods=when("slots", 2, 20),
        gpu_memory=when("memory", None, 100),
        labels=labels,
        unschedulable=when("state", True, False),
        taints=when("taints", [{"key": "k", "effect": "NoSchedule"}], []),
    )
    made.node("full", gpus=1, cpu=2, gpu_memory=10_000, labels=GPU_WORKER).pod("filler", on="full", cpu=2)
    made.pod(
        "there",
        on="node",
        cpu=when("resources", 2, 1),
        labels=when("company", {"app": "bad"}, {}),
        spec=when("ports", {**PORT, "containers": [{**PORT["containers"][0], **_cpu(when("resources", 2, 1))}]}, {}),
    )
    wants = {"containers": [{**PORT["containers"][0], **_cpu(1)}], "nodeSelector": {"zone": "a"}, **AVOIDS}
    return made.gang("job", gpu_memory=50, spec=wants).schedule()


def _cpu(amount: int) -> Raw:
    return {"resources": {"requests": {"cpu": str(amount)}}}


@pytest.mark.parametrize("step", range(len(IN_ORDER)))
def test_a_node_gives_the_first_reason_in_the_order_of_the_table(step: int) -> None:
    """cycle:9.1, FLT-1: with everything against the pod from this step on, this step is the reason."""
    result = troubled({name for name, _ in IN_ORDER[step:]})
    reasons = result.node_reasons("job")
    expected = IN_ORDER[step][1]
    if step == 0:
        assert reasons == {expected: 2}
        return
    assert reasons.pop(f"{SHORT}CPU cores") == 1
    ((reason, count),) = reasons.items()
    assert count == 1
    assert reason.startswith(expected) if step == 1 else reason == expected


@pytest.mark.parametrize("step", range(1, len(IN_ORDER)))
def test_every_step_refuses_by_itself(step: int) -> None:
    """cycle:9.1"""
    reasons = troubled({IN_ORDER[step][0]}).node_reasons("job")
    assert reasons.pop(f"{SHORT}CPU cores") == 1
    ((reason, count),) = reasons.items()
    assert count == 1
    assert reason.startswith(IN_ORDER[step][1])


def test_a_node_with_nothing_against_the_pod_takes_it() -> None:
    assert troubled(set()).node_of("job-0") == "node"


def test_node_conditions_are_checked_before_the_mig_strategy() -> None:
    """cycle:9.1 steps 5, 6, 7"""
    made = legacy(mig_node(cluster().queue("q"), strategy="single"), "old", on="node")
    assert made.gang("job", extra={SLICE: 1}).schedule().node_reasons("job") == {
        "MIG job cannot be scheduled on node with legacy MIG jobs: <[default/old]>": 1
    }
    off = {"node-role.kubernetes.io/mig-enabled": "0", "nvidia.com/mig.strategy": "single"}
    made = legacy(mig_node(cluster().queue("q"), labels=off), "old", on="node")
    assert made.gang("job", extra={SLICE: 1}).schedule().node_reasons("job") == {NOT_MIG: 1}


# What the reasons are good for


def test_reasons_of_nodes_are_resolvable() -> None:
    """cycle:FLT-9: only reasons that hold for every node cannot be resolved by evictions."""
    refusal = troubled({"taints"}).no_place("job")
    assert refusal.base == ""
    assert not refusal.unresolvable


def test_reasons_are_sorted_as_text_and_counted() -> None:
    """cycle:EXP-1"""
    made = cluster().nodes(10, unschedulable=True).nodes(2, conditions={"DiskPressure": "True"}).queue("q")
    assert made.gang("job").schedule().why("job") == (
        "PodSchedulingErrors: Resources were not found for pod default/job-0 due to: "
        "no nodes with enough resources were found: "
        "10 node is unschedulable. \n2 node has DiskPressure condition.."
    )


@pytest.mark.parametrize(
    "break_it",
    [
        lambda made: made.nodes(2, unschedulable=True),
        lambda made: made.nodes(2, taints=[{"key": "k", "effect": "NoExecute"}]),
        lambda made: made.nodes(2, gpus=1, pods=1),
    ],
)
def test_without_the_plugin_nothing_but_resources_counts(break_it: Callable[[Cluster], Cluster]) -> None:
    """The filters are the plugin's; resource fit is not."""
    made = break_it(cluster()).queue("q")
    made.configured({"actions": "allocate", "tiers": [{"plugins": [{"name": "proportion"}]}]})
    assert made.gang("job").gang("large", cpu=101).schedule().bound("job") == 1
    assert made.schedule().bound("large") == 0
