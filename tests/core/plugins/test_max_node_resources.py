"""A pod that requests more than any node has is refused before nodes are checked (cycle:FLT-7, gpu:P-6)."""

from typing import Any

import pytest

from tests.core.builders import Cluster, Raw, Result, cluster

NVIDIA, AMD = "nvidia.com/gpu", "amd.com/gpu"
SLICE, BIG_SLICE = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb"


def fleet(**more: Any) -> Cluster:
    """Two nodes: one with more CPU and storage, one with more memory and GPUs."""
    offers: Raw = {"ephemeral-storage": "20Gi", "example.com/port": 2, SLICE: 3}
    return (
        cluster()
        .queue("q")
        .node("a", cpu=8, memory="4G", gpus=1, extra=offers, **more)
        .node("b", cpu="500m", memory="16G", gpus=4, **more)
    )


def text(result: Result) -> str:
    """The message about the request, without the head every pre-check has."""
    base = result.no_place("job").base.replace("{pod}", result.no_place("job").pod)
    head = "Scheduling conditions were not met for pod default/job-0:\nMaxNodePoolResources: "
    assert base.startswith(head)
    assert base.endswith(".\n")
    return base.removeprefix(head).removesuffix(".\n")


TOPPED = "resources available in a single node in the default node-pool is topped at"


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (
            {"gpu": 5},
            f"The pod default/job-0 requires GPU: 5, CPU: 1 (cores), memory: 0.5 (GB). Max GPU {TOPPED} 4",
        ),
        (
            {"cpu": "8500m"},
            f"The pod default/job-0 requires GPU: 0, CPU: 8.5 (cores), memory: 0.5 (GB). Max CPU {TOPPED} 8 cores",
        ),
        (
            {"memory": "16500M"},
            f"The pod default/job-0 requires GPU: 0, CPU: 1 (cores), memory: 16.5 (GB). Max memory {TOPPED} 16 GB",
        ),
        (
            {"extra": {"example.com/port": 3}},
            "The pod default/job-0 requires GPU: 0, CPU: 1 (cores), memory: 0.5 (GB), example.com/port: 3. "
            f"Max example.com/port {TOPPED} 2",
        ),
        (
            {"extra": {"ephemeral-storage": "25G"}},
            "The pod default/job-0 requires GPU: 0, CPU: 1 (cores), memory: 0.5 (GB), ephemeral-storage: 25 (GB). "
            f"Max ephemeral-storage {TOPPED} 21.474 GB",
        ),
        (
            {"extra": {SLICE: 4}},
            f"The pod default/job-0 requires GPU: 0, CPU: 1 (cores), memory: 0.5 (GB), mig {SLICE}: 4. "
            f"Max {SLICE} {TOPPED} 3",
        ),
        (
            {"extra": {"example.com/dongle": 1}},
            "The pod default/job-0 requires GPU: 0, CPU: 1 (cores), memory: 0.5 (GB), example.com/dongle: 1. "
            "No node in the default node-pool has example.com/dongle resources",
        ),
        (
            {"extra": {BIG_SLICE: 1, "zebra.com/x": 1}},
            "The pod default/job-0 requires GPU: 0, CPU: 1 (cores), memory: 0.5 (GB), zebra.com/x: 1, "
            f"mig {BIG_SLICE}: 1. No node in the default node-pool has {BIG_SLICE} resources",
        ),
        (
            {"extra": {AMD: 1}},
            "The pod default/job-0 requires GPU: 1, CPU: 1 (cores), memory: 0.5 (GB). "
            "No node in the default node-pool has GPU resources",
        ),
        (
            {"fraction": 0.5, "devices": 9},
            f"The pod default/job-0 requires GPU: 4.5, CPU: 1 (cores), memory: 0.5 (GB). Max GPU {TOPPED} 4",
        ),
        (
            {"cpu": "100m", "memory": "123456789", "gpu": 5},
            f"The pod default/job-0 requires GPU: 5, CPU: 0.1 (cores), memory: 0.123 (GB). Max GPU {TOPPED} 4",
        ),
    ],
)
def test_the_text_names_the_request_and_the_capacity(wanted: Raw, said: str) -> None:
    result = fleet().gang("job", **{"memory": "500M", **wanted}).schedule()
    assert result.bound("job") == 0
    assert text(result) == said


def test_a_cluster_without_gpus_has_none_of_them() -> None:
    for wanted, gpus in (({"gpu": 1}, "1"), ({"fraction": 0.5}, "0.5")):
        result = cluster(nodes=1).queue("q").gang("job", memory=0, **wanted).schedule()
        assert text(result) == (
            f"The pod default/job-0 requires GPU: {gpus}, CPU: 1 (cores), memory: 0 (GB). "
            "No node in the default node-pool has GPU resources"
        )


def test_a_cluster_without_nodes_has_nothing() -> None:
    result = cluster().queue("q").gang("job", memory=0).schedule()
    assert text(result) == (
        "The pod default/job-0 requires GPU: 0, CPU: 1 (cores), memory: 0 (GB). "
        "No node in the default node-pool has CPU resources"
    )


def test_gpus_come_first_then_cpu_then_memory_then_the_rest() -> None:
    """cycle:FLT-7: one resource is named, the first in this order."""
    much: Raw = {"gpu": 9, "cpu": 99, "memory": "99G", "extra": {"example.com/port": 9, "aardvark.com/x": 1}}
    words = []
    for known in ("gpu", "cpu", "memory"):
        words.append(text(fleet().gang("job", **much).schedule()).partition("Max ")[2].partition(" ")[0])
        much[known] = 0
    words.append(text(fleet().gang("job", **much).schedule()).partition("has ")[2].partition(" ")[0])
    assert words == ["GPU", "CPU", "memory", "aardvark.com/x"]


def test_the_largest_of_each_resource_counts_wherever_it_is() -> None:
    """Both together are on no node, but each is somewhere: nodes give their reasons."""
    result = fleet().gang("job", cpu=8, memory="16G").schedule()
    refusal = result.no_place("job")
    assert refusal.base == ""
    assert not refusal.unresolvable
    assert result.node_reasons("job") == {
        "node(s) didn't have enough resources: memory": 1,
        "node(s) didn't have enough resources: CPU cores": 1,
    }


def test_what_is_in_use_or_blocked_still_counts_as_there() -> None:
    """The capacity of nodes counts, whether or not it is in use or blocked at the moment."""
    made = fleet(unschedulable=True).pod("there", on="b", gpu=4)
    result = made.gang("job", gpu=4).schedule()
    assert result.no_place("job").base == ""


def test_exactly_what_the_largest_node_has_is_not_too_much() -> None:
    assert fleet().gang("job", gpu=4, cpu="500m", memory="16G").schedule().bound("job") == 1


def test_pod_slots_are_not_a_resource_here() -> None:
    result = cluster(nodes=1, pods=0).queue("q").gang("job").schedule()
    assert result.no_place("job").base == ""


def test_nodes_of_other_pools_do_not_count() -> None:
    """cycle:FLT-7: the pool is named by its label value."""
    pool = {"kai.scheduler/node-pool": "pool-a"}
    made = cluster().sharded(node_pool="pool-a").node("mine", gpus=1, labels=pool).node("theirs", gpus=8)
    made.queue("q", labels=pool).group("job", minMember=1, labels=pool, preemptibility="preemptible")
    result = made.pod("job-0", group="job", gpu=2, memory=0).schedule()
    assert text(result) == (
        "The pod default/job-0 requires GPU: 2, CPU: 1 (cores), memory: 0 (GB). "
        "Max GPU resources available in a single node in the pool-a node-pool is topped at 1"
    )


def test_several_devices_are_measured_by_their_sum() -> None:
    """Six halves are three GPUs, which node b has; that it has only four devices is a reason of the node."""
    result = fleet().gang("job", cpu=0, fraction=0.5, devices=6).schedule()
    assert result.node_reasons("job") == {"node(s) didn't have enough resources: GPUs": 2}


def test_gpu_memory_is_not_a_number_of_gpus() -> None:
    """gpu:G-11: how many GPUs it is depends on the node, so nodes give their reasons."""
    result = cluster(nodes=1).queue("q").gang("job", gpu_memory=500).schedule()
    assert result.node_reasons("job") == {"node(s) didn't have enough resources: GPUs": 1}


def test_no_eviction_helps_against_a_request_that_is_too_large() -> None:
    """cycle:FLT-9"""
    assert fleet().gang("job", gpu=5).schedule().no_place("job").unresolvable


def test_all_failed_prechecks_are_reported_at_once() -> None:
    """cycle:FLT-5: all failing pre-checks are collected into one message."""
    main: Raw = {"name": "main", "envFrom": [{"configMapRef": {"name": "settings"}}]}
    main["resources"] = {"requests": {NVIDIA: "5"}}
    result = fleet().gang("job", spec={"containers": [main]}).schedule()
    assert result.why("job") == (
        "PodSchedulingErrors: Resources were not found for pod default/job-0 due to: "
        "Scheduling conditions were not met for pod default/job-0:\n"
        "MaxNodePoolResources: The pod default/job-0 requires GPU: 5, CPU: 0 (cores), memory: 0 (GB). "
        f"Max GPU {TOPPED} 4.\n"
        "ConfigMap: Missing required configmaps: [settings].\n."
    )
    assert result.no_place("job").unresolvable


def test_a_gang_is_refused_for_one_pod_that_is_too_large() -> None:
    made = fleet().group("job", minMember=2, preemptibility="preemptible")
    result = made.pod("job-0", group="job").pod("job-1", group="job", gpu=5).schedule()
    assert result.bound("job") == 0
    assert "MaxNodePoolResources: The pod default/job-1 requires GPU: 5" in result.why("job")
