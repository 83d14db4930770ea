"""A cycle is freed when it ends: nothing of it is left to the garbage collector, which the scheduler seldom runs."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable

import pytest

from pykai.core.cycle.memory import CycleMemory
from pykai.core.schedule import schedule
from tests.core.builders import NOW_NS, Cluster, branch, cluster, leaf
from tests.core.topologies import inside, racks

ALL_ACTIONS = ("allocate", "consolidation", "reclaim", "preempt", "stalegangeviction")


def reclaiming() -> Cluster:
    """A gang that reclaims, one that preempts and one that is never served."""
    return (
        cluster(nodes=2, gpus=2)
        .with_actions(*ALL_ACTIONS)
        .queue("poor", quota=2)
        .queue("rich", quota=0)
        .priority_class("low", 10)
        .priority_class("high", 60)
        .gang("running", 2, gpu=1, on="node-0", queue="rich", priority="low", min=1)
        .gang("more", 2, gpu=1, on="node-1", queue="rich", priority="low")
        .gang("back", gpu=1, queue="poor")
        .gang("urgent", gpu=1, queue="rich", priority="high")
        .gang("never", 2, gpu=3, queue="poor")
    )


def consolidating() -> Cluster:
    """Two half full nodes, and a gang that needs a whole one."""
    return (
        cluster(nodes=2, gpus=2)
        .with_actions(*ALL_ACTIONS)
        .queue("q", quota=4)
        .gang("left", gpu=1, on="node-0")
        .gang("right", gpu=1, on="node-1")
        .gang("whole", gpu=2)
    )


def sharing() -> Cluster:
    """Parts of GPUs."""
    return cluster(nodes=2, gpus=2).with_actions(*ALL_ACTIONS).queue("q", quota=4).gang("part", 3, fraction="0.4")


def by_topology() -> Cluster:
    """A gang of subgroups in racks, and one that fits none."""
    found = racks(("rack",), ("r1", 2), ("r1", 2), ("r2", 2)).with_actions(*ALL_ACTIONS)
    tree = (branch("both", leaf("one", 1, pending=1, gpu=1), leaf("two", 1, pending=1, gpu=1)),)
    found.tree("parts", *tree, group_spec=inside("rack"))
    return found.gang("much", 5, gpu=1, group_spec=inside("rack"))


def left_by(work: Callable[[], object]) -> Counter[str]:
    """What only the collector can free after some work, by type."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        work()
        gc.collect()
        return Counter(type(found).__name__ for found in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize("build", [reclaiming, consolidating, sharing, by_topology])
@pytest.mark.parametrize("remembering", [False, True])
def test_a_cycle_leaves_nothing_to_the_collector(build: Callable[[], Cluster], remembering: bool) -> None:
    built = build()
    tables, policy = built.tables(), built.policy()
    memory = CycleMemory() if remembering else None
    # Fill the caches that outlive a cycle.
    schedule(tables.snapshot(NOW_NS), policy)
    assert left_by(lambda: schedule(tables.snapshot(NOW_NS), policy, memory)) == Counter()
