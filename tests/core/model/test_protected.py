"""Semi-preemptible groups: the protected part is within quota, the rest is preemptible (queues:17.4)."""

from collections.abc import Callable
from typing import Any

import pytest

from pykai.core.cycle.gangs import Gang, LeafState
from pykai.core.model.status import TaskStatus
from pykai.core.model.tasks import Task
from pykai.core.opencycle import Cycle
from tests.core.builders import Cluster, Result, SubgroupSpec, branch, cluster, leaf

SEMI: dict[str, Any] = {"preemptibility": "semi-preemptible"}


def core(built: Cluster, group: str = "job") -> list[str]:
    """Protected pods of a group, without the name of the group."""
    cycle = built.cycle()
    gang = cycle.gangs.gang(cycle.context.snapshot.group_entries[f"default/{group}"])
    return sorted(key.removeprefix(f"default/{group}-") for key in gang.protected_keys)


def ground(gpus: int = 100, **queue: Any) -> Cluster:
    return cluster(nodes=1, gpus=gpus).queue("q", **queue)


def semi(built: Cluster, name: str, pods: int, *, min: int, **more: Any) -> Cluster:
    """A semi-preemptible group without subgroups."""
    return built.gang(name, pods, min=min, gpu=1, preemptible=None, group_spec=SEMI, **more)


def job(*parts: SubgroupSpec, needs: int | None = None) -> Cluster:
    """A semi-preemptible group with subgroups."""
    return ground().tree("job", *parts, needs=needs, gpu=1, group_spec=SEMI)


def committed(result: Result, queue: str = "q") -> tuple[float, float]:
    """GPUs a queue has, and the non-preemptible ones of them."""
    figures = next(found for found in result.plan.queues if found.name == queue)
    return figures.allocated[2], figures.allocated_non_preemptible[2]


# queues:Q-415: the protected part


def test_q415_the_protected_part_is_the_minimum_in_task_order() -> None:
    """queues:Q-415, Q-417."""
    assert core(semi(ground(), "job", 4, min=2, on="node-0")) == ["0", "1"]


def test_q417_the_protected_part_is_ranked_by_priority_first() -> None:
    """queues:Q-417: a master belongs to it although it is younger."""
    built = semi(ground(), "job", 3, min=2, on="node-0")
    built.pod("job-m", group="job", gpu=1, on="node-0", labels={"training.kubeflow.org/job-role": "master"})
    assert core(built) == ["0", "m"]
    built.pod("job-p", group="job", gpu=1, on="node-0", labels={"kai.scheduler/task-priority": "9"})
    assert core(built) == ["m", "p"]


def test_q415_pods_that_hold_nothing_are_not_protected() -> None:
    """queues:Q-415: waiting, terminating and finished pods do not count."""
    built = ground().group("job", minMember=2, **SEMI).pod("job-waits", group="job", gpu=1)
    built.pod("job-done", group="job", gpu=1, on="node-0", phase="Succeeded")
    built.pod("job-ends", group="job", gpu=1, on="node-0").assume("job-ends", TaskStatus.RELEASING)
    for name in ("runs", "more", "most"):
        built.pod(f"job-{name}", group="job", gpu=1, on="node-0")
    assert core(built) == ["more", "runs"]


def test_q415_a_group_below_its_minimum_is_fully_protected() -> None:
    """queues:Q-415"""
    assert core(semi(ground(), "job", 2, min=5, on="node-0")) == ["0", "1"]


def test_q416_the_ends_of_the_scale() -> None:
    """queues:Q-416: minMember of all pods is non-preemptible, minMember 0 is preemptible."""
    assert core(semi(ground(), "job", 3, min=3, on="node-0")) == ["0", "1", "2"]
    assert core(semi(ground(), "job", 3, min=0, on="node-0")) == []


def test_q418_the_protected_part_of_a_tree_is_the_least_that_satisfies_it() -> None:
    """queues:Q-418: minSubGroup 2 over 4 subgroups of minMember 8 are 16 protected pods, the first two by name."""
    found = core(job(*(leaf(name, 8, running=9) for name in "dcba"), needs=2))
    assert found == sorted(f"{name}-{index}" for name in "ab" for index in range(8))


def test_q415_every_subgroup_is_needed_by_default() -> None:
    """queues:Q-415"""
    assert core(job(leaf("a", 1, running=2), leaf("b", 2, running=3))) == ["a-0", "b-0", "b-1"]


def test_q417_subgroups_that_are_satisfied_come_first() -> None:
    """queues:Q-417: then by name."""
    assert core(job(leaf("a", 2, running=1), leaf("b", 1, running=1), leaf("c", 1, running=1), needs=1)) == ["b-0"]
    assert core(job(leaf("a", 2, running=1), leaf("b", 1, running=1), needs=2)) == ["a-0", "b-0"]


def test_q415_inner_sets_have_protected_parts_of_their_own() -> None:
    """queues:Q-418: sub-groups inherit the mode from the root."""
    inner = branch("x", leaf("a", 1, running=2), leaf("b", 1, running=2), needs=1)
    assert core(job(inner, leaf("c", 1, running=2))) == ["a-0", "c-0"]
    broken = branch("x", leaf("a", 1, running=2), leaf("b", 1))
    assert core(job(broken, branch("y", leaf("c", 1, running=2)), needs=1)) == ["c-0"], "x is not satisfied"
    short = branch("x", leaf("a", 1, running=1), needs=2)
    assert core(job(short, branch("y", leaf("c", 1, running=2)), needs=1)) == ["c-0"], "x needs more than it has"


@pytest.mark.parametrize("kind", ["preemptible", "non-preemptible", ""])
def test_q415_other_groups_have_no_protected_part(kind: str) -> None:
    """queues:Q-82: they are one or the other as a whole."""
    built = ground().gang("job", 3, min=1, gpu=1, on="node-0", preemptible=None, group_spec={"preemptibility": kind})
    assert core(built) == []


# queues:Q-418: ledgers and quota


def test_q418_only_the_protected_part_counts_as_non_preemptible() -> None:
    """queues:Q-418, Q-103."""
    assert committed(semi(ground(), "job", 4, min=1, on="node-0").schedule()) == (4, 1)
    assert committed(semi(ground(), "job", 4, min=0, on="node-0").schedule()) == (4, 0)
    assert committed(semi(ground(), "job", 4, min=4, on="node-0").schedule()) == (4, 4)


def test_q418_ancestors_count_the_protected_part_too() -> None:
    """queues:Q-418: all levels."""
    built = cluster(nodes=1, gpus=9).queue("top").queue("q", parent="top")
    assert committed(semi(built, "job", 4, min=1, on="node-0").schedule(), "top") == (4, 1)


def test_q418_the_protected_part_must_be_within_quota_and_the_rest_need_not() -> None:
    """queues:Q-418"""
    result = semi(ground(quota=1), "job", 4, min=1).schedule()
    assert result.bound("job") == 4
    assert committed(result) == (4, 1)
    result = semi(ground(quota=1), "job", 4, min=2).schedule()
    assert result.bound("job") == 0
    assert "NonPreemptibleOverQuota" in result.why("job")


def test_q418_an_ancestors_quota_holds_the_protected_part_too() -> None:
    """queues:Q-418: all levels."""
    built = cluster(nodes=1, gpus=9).queue("top", quota=1).queue("q", parent="top")
    assert semi(built, "job", 4, min=2).schedule().bound("job") == 0


def test_q418_the_quota_holds_what_is_missing_of_the_protected_part() -> None:
    """queues:Q-418: what runs of it counts already."""
    built = semi(ground(quota=3), "job", 2, min=3, on="node-0")
    for name in ("x", "y", "z"):
        built.pod(f"job-{name}", group="job", gpu=1)
    result = built.schedule()
    assert result.bound("job") == 3
    assert committed(result) == (5, 3)
    short = semi(ground(quota=2), "job", 2, min=3, on="node-0").pod("job-x", group="job", gpu=1)
    assert short.schedule().bound("job") == 0


def test_q418_everything_respects_the_limit() -> None:
    """queues:Q-418"""
    assert semi(ground(quota=1, limit=3), "job", 5, min=1).schedule().bound("job") == 3


def test_q418_the_protected_part_takes_quota_from_other_non_preemptible_work() -> None:
    """queues:Q-418: the elastic part does not."""
    built = semi(ground(quota=2), "job", 4, min=1, on="node-0")
    result = built.gang("one", gpu=1, preemptible=False).gang("two", gpu=1, preemptible=False).schedule()
    assert (result.bound("one"), result.bound("two")) == (1, 0)
    assert committed(result) == (5, 2)


def test_q418_a_quota_that_dropped_below_the_protected_part_evicts_nothing() -> None:
    """queues:Q-418: the queue simply stays over quota."""
    built = semi(cluster(nodes=1, gpus=3).queue("q", quota=0).queue("r", quota=3), "job", 3, min=3, on="node-0")
    result = built.gang("claim", gpu=1, queue="r").with_actions("allocate", "reclaim", "preempt").schedule()
    assert result.plan.evictions == ()
    assert committed(result) == (3, 3)


def moving() -> tuple[Cycle, Callable[[str], None], Callable[[str], None]]:
    """A running gang of three of which one is protected, and a waiting one of two; evict and pipeline functions."""
    built = semi(semi(ground(8), "job", 3, min=1, on="node-0"), "next", 2, min=1)
    cycle = built.cycle()

    def find(pod: str) -> tuple[Gang, LeafState, Task]:
        task = cycle.context.snapshot.task_records[f"default/{pod}"]
        gang = cycle.gangs.gang(cycle.context.snapshot.group_entries[task.group_key])
        return gang, gang.leaves[0], task

    return (
        cycle,
        lambda pod: cycle.state.evict(*find(pod)),
        lambda pod: cycle.state.place(*find(pod), 0, (), pipelined=True),
    )


def held(cycle: Cycle) -> tuple[float, float]:
    """GPUs of the queue right now, and the non-preemptible ones of them."""
    ledger, row = cycle.state.ledger, cycle.context.snapshot.tree.rows["q"]
    return ledger.allocated[row][2] / 100, ledger.allocated_non_preemptible[row][2] / 100


def test_q418_evicting_the_surplus_leaves_the_non_preemptible_figures() -> None:
    """queues:Q-418: only the protected part counts as non-preemptible."""
    cycle, evict, _ = moving()
    assert held(cycle) == (3, 1)
    evict("job-2")
    assert held(cycle) == (2, 1)
    evict("job-0")
    assert held(cycle) == (1, 0)
    cycle.state.rollback(0)
    assert held(cycle) == (3, 1)


def test_q418_the_first_pods_of_a_new_gang_are_its_protected_part() -> None:
    """queues:Q-418: until the minimum is there; undone like everything else."""
    cycle, evict, promise = moving()
    promise("next-0")
    promise("next-1")
    assert held(cycle) == (5, 2)
    evict("next-1")
    assert held(cycle) == (4, 2)
    evict("next-0")
    assert held(cycle) == (3, 1)
    cycle.state.rollback(0)
    assert held(cycle) == (3, 1)
    assert cycle.state.protected_keys == set()


def test_q418_a_protected_pod_that_moves_stays_protected() -> None:
    """queues:Q-418: what was released is charged again."""
    cycle, evict, promise = moving()
    evict("job-0")
    promise("job-0")
    assert held(cycle) == (3, 1)


# queues:Q-418: victims


def test_q418_reclaim_takes_the_surplus_and_no_more() -> None:
    """queues:Q-418, Q-415."""
    built = semi(cluster(nodes=1, gpus=4).queue("q", quota=0).queue("r", quota=4), "job", 4, min=2, on="node-0")
    small = built.gang("claim", 2, gpu=1, queue="r").with_actions("reclaim").schedule()
    assert sorted(small.evicted_pods()) == ["job-2", "job-3"]
    assert committed(small) == (2, 2)
    large = built.gang("greedy", 3, gpu=1, queue="r", age=2_000_000).schedule()
    assert sorted(large.evicted_pods()) == ["job-2", "job-3"], "there are not three evictable pods, but two"
    assert large.pipelined("greedy") == 0


def test_q418_preempt_takes_the_surplus_and_no_more() -> None:
    """queues:Q-418"""

    def taken(gpu: int) -> list[str]:
        built = semi(ground(3).priority_class("high", 90), "job", 3, min=1, on="node-0")
        return sorted(built.gang("urgent", gpu=gpu, priority="high").with_actions("preempt").schedule().evicted_pods())

    assert [taken(gpu) for gpu in (1, 2, 3)] == [["job-2"], ["job-1", "job-2"], []]


def test_q418_surplus_subgroups_go_whole() -> None:
    """queues:Q-415, Q-418: one GPU is wanted, the pair of the last subgroup goes."""
    built = cluster(nodes=1, gpus=4).queue("q", quota=0).queue("r", quota=4)
    built.tree("job", leaf("a", 2, running=2), leaf("b", 2, running=2), needs=1, gpu=1, group_spec=SEMI)
    result = built.gang("claim", gpu=1, queue="r").with_actions("reclaim").schedule()
    assert sorted(result.evicted_pods()) == ["job-b-0", "job-b-1"]


def test_q418_consolidation_moves_the_surplus_and_never_the_protected_part() -> None:
    """queues:Q-418"""
    built = cluster(nodes=2, gpus=4).queue("q", quota=8).with_actions("consolidation")
    for name, node in (("a", "node-0"), ("b", "node-1")):
        semi(built, name, 2, min=1, on=node)
    result = built.gang("wide", gpu=3).schedule()
    assert (result.evicted_pods(), result.moved_to("b-1")) == (["b-1"], "node-0")
    assert built.gang("whole", gpu=4, age=2_000_000).schedule().pipelined("whole") == 0


def restarted(*nodes: int) -> Cluster:
    """A worker runs, its master waits for node-1, and an urgent gang wants the two GPUs of the worker's node."""
    built = cluster()
    for gpus in nodes:
        built.node(gpus=gpus)
    built.queue("q", quota=1).priority_class("high", 90).group("job", minMember=1, **SEMI)
    built.pod("job-worker", group="job", gpu=1, on="node-0")
    there = {"nodeSelector": {"kubernetes.io/hostname": "node-1"}}
    built.pod("job-master", group="job", gpu=1, spec=there, labels={"training.kubeflow.org/job-role": "master"})
    return built.gang("urgent", gpu=2, priority="high").with_actions("allocate", "preempt")


def test_q418_the_ledger_adds_up_while_a_protected_part_grows() -> None:
    """queues:Q-418: the worker was protected when the cycle began, the master is beyond the minimum."""
    result = restarted(2, 1).with_actions("allocate").schedule()
    assert result.bound("job") == 1
    assert committed(result) == (2, 1)


@pytest.mark.parametrize("nodes", [(2, 1), (2, 1, 1)], ids=["nowhere-to-go", "may-move"])
def test_q415_the_protected_part_is_not_evicted_when_a_pod_before_it_starts(nodes: tuple[int, ...]) -> None:
    """queues:Q-415: the ledgers keep it too."""
    result = restarted(*nodes).schedule()
    assert "job-worker" not in result.evicted_pods()
    assert committed(result)[1] == 1


def test_q415_the_protected_part_is_not_evicted_when_a_subgroup_before_it_starts() -> None:
    """queues:Q-415: whole subgroups beyond those needed go, never the protected one."""
    built = cluster().node(gpus=2).node(gpus=1).queue("q", quota=1).priority_class("high", 90)
    there = {"nodeSelector": {"kubernetes.io/hostname": "node-1"}}
    parts = (leaf("a", 1, pending=1, spec=there), leaf("b", 1, running=1))
    built.tree("job", *parts, needs=1, gpu=1, group_spec=SEMI).gang("urgent", gpu=2, priority="high")
    assert core(built) == ["b-0"]
    result = built.with_actions("allocate", "preempt").schedule()
    assert result.bound_pods("job") == ["job-a-0"]
    assert result.evicted_pods() == []
    assert committed(result)[1] == 1
