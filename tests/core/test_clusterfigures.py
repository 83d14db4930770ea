"""Sums over the cluster for metrics."""

from __future__ import annotations

from pykai.core.clusterfigures import ClusterFigures, cluster_figures
from tests.core.builders import Cluster, cluster
from tests.core.topologies import topology


def figures(built: Cluster) -> ClusterFigures:
    result = built.schedule()
    return cluster_figures(result.cycle.context.snapshot, result.plan)


def test_gpus_are_used_free_or_free_beside_used_ones() -> None:
    """operations:OD-17: three nodes of four GPUs; one is empty, one has one free, one has two."""
    built = cluster(nodes=3, gpus=4).queue("q").gang("a", gpu=3, on="node-0").gang("b", gpu=2, on="node-1")
    found = figures(built)
    assert (found.gpus, found.gpus_used, found.gpus_scattered) == (12, 5, 3)
    assert found.nodes_by_free_gpus == {1: 1, 2: 1, 4: 1}


def test_what_the_cycle_decided_counts() -> None:
    found = figures(cluster(nodes=1, gpus=2).queue("q").gang("new", gpu=1))
    assert (found.gpus_used, found.gpus_scattered) == (1, 1)


def test_nodes_that_start_no_pods_and_nodes_without_gpus_do_not_count() -> None:
    built = cluster(nodes=1, gpus=2).node("cpu", gpus=0).node("off", gpus=8, unschedulable=True).queue("q")
    found = figures(built)
    assert (found.gpus, found.nodes_by_free_gpus) == (2, {2: 1})
    assert figures(cluster().queue("q")) == ClusterFigures()


def test_waiting_work_is_counted_by_queue_with_the_age_of_the_oldest() -> None:
    """operations:OD-17."""
    built = cluster(nodes=1, gpus=1).queue("q").queue("other").queue("idle")
    built.gang("young", 2, gpu=2, queue="q", age=60).gang("old", gpu=2, queue="q", age=3600)
    built.gang("else", gpu=2, queue="other", age=10)
    waiting = figures(built).waiting
    assert waiting.keys() == {"q", "other"}
    assert (waiting["q"].groups, waiting["q"].pods) == (2, 3)
    assert waiting["other"].oldest_ns - waiting["q"].oldest_ns == 3590 * 10**9


def test_groups_that_wait_for_gpus_are_counted_apart() -> None:
    """operations:OD-17: whole GPUs, parts of one, or an amount of its memory; not those that want CPU only."""
    built = cluster(nodes=1, gpus=1, cpu="1").queue("q").queue("other")
    built.gang("whole", gpu=2).gang("part", 2, cpu="4", fraction="0.5").gang("memory", cpu="4", gpu_memory=100)
    built.gang("cpu", 3, cpu="4").gang("else", cpu="4", queue="other")
    waiting = figures(built).waiting
    assert (waiting["q"].groups, waiting["q"].gpu_groups) == (4, 3)
    assert (waiting["other"].groups, waiting["other"].gpu_groups) == (1, 0)


def test_a_topology_has_the_nodes_with_all_of_its_labels() -> None:
    """topo:TD-16."""
    built = cluster().queue("q")
    for name, labels in (("both", {"zone": "z", "rack": "r"}), ("zone", {"zone": "z"}), ("none", {})):
        built.node(name, labels=labels)
    found = figures(topology(built, "zone", "rack")).topologies["net"]
    assert found.nodes == 1
    assert found.without_label == {"zone": 1, "rack": 2}
