"""Consolidation: running work moves together so that a waiting gang fits; no work is lost (cycle:14, CON-1).

`old` work runs and `new` work waits; only consolidation runs.
"""

from typing import Any

import pytest

from pykai.core.cycle.validate import check_state
from pykai.core.report.decisions import NoEviction
from pykai.core.report.evictions import MOVED_BACK
from pykai.core.schedule import run_actions
from tests.core.builders import Cluster, Result, cluster, timestamp_before


def consolidating(*nodes: int) -> Cluster:
    """Nodes with so many GPUs each, and one queue."""
    built = cluster().with_actions("consolidation").queue("q")
    for gpus in nodes:
        built.node(gpus=gpus)
    return built


def spread(built: Cluster, *gpus: int, **job: Any) -> Cluster:
    """One running job per node, with so many GPUs."""
    for index, count in enumerate(gpus):
        built.gang(f"old-{index}", **{"gpu": count, "on": f"node-{index}", **job})
    return built


def moves(result: Result) -> dict[str, str]:
    """Evicted pod -> node to which it moves."""
    return {evicted.pod: evicted.moves_to for evicted in result.plan.evictions}


# Cases of cycle:23


def test_t33_a_job_moves_so_that_a_larger_one_fits() -> None:
    """cycle:T-33: one delete, and the new job waits for the node that becomes empty."""
    result = spread(consolidating(4, 4), 2, 2).gang("new", gpu=3).schedule()
    assert moves(result) == {"old-1-0": "node-0"}
    assert result.node_of("new-0") == "node-1"
    assert result.node_of("old-1-0") == "node-0"


def test_t34_non_preemptible_work_is_not_moved() -> None:
    """cycle:T-34, POL-2."""
    result = spread(consolidating(4, 4), 2, 2, preemptible=False).gang("new", gpu=3).schedule()
    assert moves(result) == {}
    assert result.verdicts("new") == {"consolidation": "hopeless"}


def _short_of_cpu(age: float) -> Result:
    """The GPUs would suffice, the CPUs do not."""
    built = cluster().with_actions("consolidation").queue("q").node(gpus=4, cpu=4).node(gpus=4, cpu=4)
    return spread(built, 2, 2, cpu=3, age=10).gang("new", gpu=3, cpu=1, age=age).schedule()


@pytest.mark.parametrize("age", [5, 20])
def test_t35_nothing_is_moved_if_a_victim_would_fit_nowhere(age: float) -> None:
    """cycle:T-35: whichever gang is served first in the trial."""
    result = _short_of_cpu(age)
    assert moves(result) == {}
    assert result.plan.nominations == ()


def test_t35_the_reason_names_the_victim_that_would_fit_nowhere() -> None:
    """cycle:14: the validator requires every victim to be placed again."""
    record = _short_of_cpu(age=20).unscheduled("new")
    assert record is not None
    (verdict,) = record.verdicts
    assert verdict.rule == "generators_exhausted"
    assert verdict.other.startswith("there is no other place for default/old-")


def test_con2_every_pod_of_a_moved_gang_must_fit() -> None:
    """cycle:14: an elastic pair of which one pod would move and the other wait."""
    built = cluster().with_actions("consolidation").queue("q").node(gpus=3, cpu=1).node(gpus=4)
    built.gang("third", gpu=1, cpu=0, on="node-0", preemptible=False)
    built.gang("new", gpu=4, cpu=0, age=2_000_000)
    result = built.gang("pair", 2, min=1, gpu=1, cpu=1, on="node-1").schedule()
    assert moves(result) == {}
    assert result.verdicts("new") == {"consolidation": "generators_exhausted"}


# Which work may move other work, and when


def test_only_preemptible_work_moves_others() -> None:
    """cycle:14: the gate of consolidation."""
    result = spread(consolidating(4, 4), 2, 2).gang("new", gpu=3, preemptible=False).schedule()
    assert moves(result) == {}
    assert result.verdicts("new") == {"consolidation": "not_preemptible"}


def test_every_job_that_is_not_preemptible_has_that_reason() -> None:
    """cycle:14: none of them stands for the others."""
    built = spread(consolidating(4, 4), 2, 2)
    result = built.gang("first", gpu=3, preemptible=False).gang("second", gpu=3, preemptible=False).schedule()
    assert result.verdicts("first") == result.verdicts("second") == {"consolidation": "not_preemptible"}


def test_with_too_little_free_in_the_cluster_no_victim_is_tried() -> None:
    """cycle:14: the sum of what is free must suffice; the verdict has both figures."""
    result = spread(consolidating(4, 4), 2, 3).gang("new", gpu=4).schedule()
    record = result.unscheduled("new")
    assert record is not None
    assert record.verdicts == (NoEviction("consolidation", "too_little_free", "", "GPU", 4.0, 3.0),)


def test_a_job_beyond_the_limit_of_its_queue_moves_no_pod() -> None:
    """queues:Q-200: moved work is charged as before, so nothing is tried, and the verdict has both figures."""
    built = cluster().with_actions("consolidation").queue("q", limit=6).node(gpus=4).node(gpus=4)
    record = spread(built, 2, 2).gang("new", gpu=3).schedule().unscheduled("new")
    assert record is not None
    assert record.verdicts == (NoEviction("consolidation", "limit", "q", "GPU", 7.0, 6.0),)
    within = cluster().with_actions("consolidation").queue("q", limit=7).node(gpus=4).node(gpus=4)
    assert len(moves(spread(within, 2, 2).gang("new", gpu=3).schedule())) == 1


def test_where_gpus_differ_a_move_may_bring_a_job_within_its_limit() -> None:
    """queues:Q-202: half of a small GPU is a quarter of a large one, so the search decides."""
    built = cluster().with_actions("consolidation").queue("q", limit=1)
    built.node(gpus=1, gpu_memory=1000).node(gpus=1, gpu_memory=2000)
    built.gang("old", gpu_memory=600, on="node-0", device="gpu-0")
    verdicts = built.gang("new", gpu=1).schedule().verdicts("new")
    assert verdicts["consolidation"] != "limit"


def test_exactly_enough_free_in_the_cluster_is_enough() -> None:
    """cycle:14."""
    result = spread(consolidating(4, 4), 2, 2).gang("new", gpu=4).schedule()
    assert len(moves(result)) == 1
    assert result.pipelined("new") == 1


def test_what_is_being_released_counts_as_free() -> None:
    """cycle:14: idle and releasing."""
    built = spread(consolidating(4, 4), 2, 1).gang("leaving", gpu=1, on="node-1")
    built.objects[-1]["metadata"]["deletionTimestamp"] = timestamp_before(-30)
    result = built.gang("new", gpu=4).schedule()
    assert result.pipelined("new") == 1


def test_the_unused_part_of_shared_gpus_counts_as_free() -> None:
    """cycle:14; gpu:T-53: two halves in use on two GPUs, a whole one is wanted."""
    built = consolidating(1, 1)
    for index in range(2):
        built.gang(f"old-{index}", fraction=0.5, on=f"node-{index}", device=f"gpu-{index}")
    result = built.gang("new", gpu=1).schedule()
    assert len(moves(result)) == 1
    assert result.pipelined("new") == 1


def test_nodes_that_are_not_ready_have_nothing_free() -> None:
    """cycle:14: ready nodes only."""
    built = spread(consolidating(4, 4), 2, 3).node(gpus=4, conditions={"Ready": "False"})
    result = built.gang("new", gpu=4).schedule()
    assert result.verdicts("new") == {"consolidation": "too_little_free"}


def test_a_job_rejected_for_too_little_free_represents_equal_jobs() -> None:
    """cycle:14, SIG-2: in any queue, because signatures of consolidation span all queues."""
    built = spread(consolidating(4, 4), 2, 3).queue("other")
    result = built.gang("first", gpu=4).gang("second", gpu=4, queue="other").schedule()
    assert result.verdicts("second") == {"consolidation": "too_little_free"}
    assert result.verdicts("first") == {"consolidation": "alike"}


def test_q286_work_of_any_queue_is_moved_whatever_its_share() -> None:
    """queues:Q-286: neither fair shares nor priority are checked."""
    built = consolidating(4, 4).queue("poor", quota=8).priority_class("high", 90)
    result = spread(built, 2, 2, queue="poor", priority="high").gang("new", gpu=3).schedule()
    assert moves(result) == {"old-1-0": "node-0"}


def test_q286_work_that_has_only_just_started_may_be_moved() -> None:
    """queues:Q-286: no minimum time protects from consolidation."""
    note = {"annotations": {"kai.scheduler/last-start-timestamp": timestamp_before(1)}}
    built = consolidating(4, 4).queue("long", preemptMinRuntime="1h", reclaimMinRuntime="1h")
    result = spread(built, 2, 2, queue="long", group_spec=note).gang("new", gpu=3).schedule()
    assert len(moves(result)) == 1


def test_a_waiting_pod_of_a_gang_does_not_move_its_own() -> None:
    """cycle:14: any job except itself."""
    built = consolidating(4, 4).group("job", queue="q", minMember=1, preemptibility="preemptible")
    built.pod("job-0", group="job", gpu=2, on="node-0").gang("fixed", gpu=2, on="node-1", preemptible=False)
    assert moves(built.pod("job-1", group="job", gpu=3).schedule()) == {}


# How many may be moved


def _many(most: int) -> Cluster:
    """Three nodes of two GPUs with one in use each, and a new job that needs two of the rest."""
    built = spread(consolidating(2, 2, 2), 1, 1, 1)
    return built.gang("new", gpu=2).with_policy(max_consolidation_preemptees=most)


def test_con1_zero_turns_consolidation_off() -> None:
    """cycle:CON-1: the action gives no reason."""
    result = _many(0).schedule()
    assert moves(result) == {}
    assert result.verdicts("new") == {}


@pytest.mark.parametrize("most", [1, -1, 16])
def test_con1_one_is_enough_for_one(most: int) -> None:
    """cycle:CON-1."""
    assert len(moves(_many(most).schedule())) == 1


@pytest.mark.parametrize(("most", "moved"), [(1, 0), (2, 2), (3, 2), (-1, 2)])
def test_con1_gangs_beyond_the_limit_are_not_moved(most: int, moved: int) -> None:
    """cycle:CON-1, Do better: exactly that many gangs, the worst in the order; two must move here."""
    built = spread(consolidating(4, 4, 4, 2), 3, 3, 2).gang("last", gpu=1, on="node-2")
    result = built.gang("new", gpu=4, age=1).with_policy(max_consolidation_preemptees=most).schedule()
    assert len(moves(result)) == moved


def test_con1_the_last_gangs_of_the_order_are_the_candidates() -> None:
    """cycle:CON-1, Do better: with one allowed only the youngest may move, and the youngest does not help."""
    built = spread(consolidating(2, 2, 4), 1, 1).gang("youngest", gpu=4, on="node-2", age=1)
    built.gang("new", gpu=2, age=2)
    assert moves(built.with_policy(max_consolidation_preemptees=1).schedule()) == {}
    assert moves(built.with_policy(max_consolidation_preemptees=2).schedule()) == {"old-1-0": "node-0"}


@pytest.mark.parametrize("least", [1, 2])
def test_con1_pods_of_one_gang_count_once(least: int) -> None:
    """cycle:CON-1: jobs are counted, not pods; an elastic one gives them one by one."""
    built = consolidating(3, 4).gang("third", gpu=1, on="node-0").gang("pair", 2, min=least, gpu=1, on="node-1")
    result = built.gang("new", gpu=4).with_policy(max_consolidation_preemptees=1).schedule()
    assert moves(result) == {"pair-0": "node-0", "pair-1": "node-0"}


# Decisions


def test_con2_moved_pods_are_deleted_with_their_expected_node() -> None:
    """cycle:CON-2: the eviction names it; the nomination is for their successors."""
    (evicted,) = spread(consolidating(4, 4), 2, 2).gang("new", gpu=3).schedule().plan.evictions
    assert evicted.message == (
        "Pod default/old-1-0 was preempted and rescheduled due to bin packing (resource consolidation) procedure"
    )
    assert (evicted.action, evicted.preemptor, evicted.node) == ("consolidation", "default/new", "node-1")


def test_no_pod_is_moved_twice_in_a_cycle() -> None:
    """cycle:14: a pod that is only nominated cannot be moved."""
    built = spread(consolidating(4, 4, 4), 2, 2, 2)
    result = built.gang("first", gpu=3).gang("second", gpu=3).schedule()
    assert len({evicted.pod for evicted in result.plan.evictions}) == len(result.plan.evictions)
    assert all(evicted.moves_to != evicted.node for evicted in result.plan.evictions)


def test_the_second_job_is_judged_by_what_is_left() -> None:
    """cycle:CYC-6: the sum of free GPUs is counted again after each job."""
    built = spread(consolidating(4, 4), 2, 2)
    result = built.gang("first", gpu=3).gang("second", gpu=2).schedule()
    assert result.verdicts("second") == {"consolidation": "too_little_free"}


def test_gpu_memory_counts_by_the_largest_gpu() -> None:
    """cycle:14: a memory request is compared with the largest GPU, as in allocate."""
    built = (
        cluster().with_actions("consolidation").queue("q").node(gpus=1, gpu_memory=1000).node(gpus=1, gpu_memory=2000)
    )
    for index in range(2):
        built.gang(f"old-{index}", fraction=0.4, on=f"node-{index}", device=f"gpu-{index}")
    result = built.gang("new", gpu_memory=1600).schedule()
    assert moves(result) == {"old-1-0": "node-0"}


# cycle:SOL-12: what allocate would undo


def test_sol12_a_victim_that_would_come_back_is_not_moved() -> None:
    """cycle:SOL-12: once it is gone its own node packs best again, and it outranks the job it made room for."""
    here = {"nodeSelector": {"kubernetes.io/hostname": "small"}}
    built = cluster().queue("q").node("small", gpus=1).node("large", gpus=2)
    built.gang("victim", gpu=1, on="small", age=30).gang("job", gpu=1, spec=here, age=10)
    result = built.with_actions("consolidation").schedule()
    assert result.evicted_pods() == []
    assert result.verdicts("job") == {"consolidation": "generators_exhausted"}
    record = result.unscheduled("job")
    assert record is not None
    assert record.verdicts[0].other == MOVED_BACK


def test_sol12_a_victim_that_stays_away_is_moved() -> None:
    """cycle:SOL-12: the same where the job outranks the victim."""
    here = {"nodeSelector": {"kubernetes.io/hostname": "small"}}
    built = cluster().queue("q").node("small", gpus=1).node("large", gpus=2)
    built.gang("victim", gpu=1, on="small", age=10).gang("job", gpu=1, spec=here, age=30)
    assert built.with_actions("consolidation").schedule().moved_to("victim-0") == "large"


def test_sol12_only_evicted_pods_count_as_gone() -> None:
    """cycle:SOL-12: with all of the set gone the job would find a place, with the one that is kept it would not."""
    port = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "3"}}, "ports": [{"hostPort": 80}]}]}
    built = cluster().queue("q").priority_class("low", 10).node("roomy").node("tight", cpu=16)
    built.gang("holder", cpu=3, on="roomy", spec=port).gang("base", 2, cpu=3, on="tight", preemptible=False)
    built.gang("victims", 3, cpu=3, on="tight").gang("job", priority="low", spec=port)
    assert built.with_actions("consolidation").schedule().evicted_pods() == []


def test_sol12_the_look_ahead_leaves_nothing_behind() -> None:
    """cycle:SOL-12: moved pods hold their old node until they are gone."""
    built = cluster(nodes=2, gpus=4).queue("q").gang("a", gpu=2, on="node-0").gang("b", gpu=2, on="node-1")
    cycle = built.gang("job", gpu=3).with_actions("consolidation").cycle()
    run_actions(cycle)
    assert [item.pod for item in cycle.decisions.evictions.values()] == ["b-0"]
    assert set(cycle.state.evicted_from) == {"default/b-0"}
    check_state(cycle.state, cycle.gangs)


def swapping(*, younger: str) -> Result:
    """The job needs the GPU of node-0, and the pods of both nodes would have to change places."""
    built = cluster().with_actions("consolidation").queue("q").node(gpus=1, cpu=4).node(gpus=1, cpu=2)
    ages = {"small": 20, "light": 20, younger: 10}
    built.gang("small", gpu=1, cpu=2, on="node-0", age=ages["small"])
    built.gang("light", cpu=2, on="node-1", age=ages["light"])
    return built.gang(
        "new", gpu=1, cpu=1, age=25, spec={"nodeSelector": {"kubernetes.io/hostname": "node-0"}}
    ).schedule()


def test_sol12_everyone_who_moves_finds_a_place_in_the_next_cycle() -> None:
    """cycle:SOL-12, CON-2: served first, the pod without GPU packs best where the other one would have to go."""
    assert swapping(younger="light").evicted_pods() == ["light-0", "small-0"]
    assert swapping(younger="small").evicted_pods() == []


def test_sol12_a_pod_without_gpu_may_come_back_anywhere() -> None:
    """cycle:SOL-12: the nodes that it may use in the trial, those of the victims, mean nothing to the next cycle."""
    built = cluster().with_actions("consolidation").queue("q").node(gpus=2, cpu=4).node(gpus=1, cpu=2)
    built.gang("wide", gpu=2, cpu=2, on="node-0", age=30).gang("light", cpu=2, on="node-1", age=40)
    assert moves(built.gang("new", gpu=1, cpu=2, age=50).schedule()) == {"light-0": "node-0"}


def test_con2_a_gang_that_goes_first_may_take_the_place_of_one_that_moves() -> None:
    """cycle:CON-2: it waited, and comes before the one that moves; two may run where one did."""
    built = cluster(nodes=2, gpus=2).queue("q").priority_class("high", 90)
    built.gang("mover", gpu=2, on="node-1").gang("rival", pods=3, gpu=1, priority="high")
    result = built.gang("new", gpu=1, spec={"nodeSelector": {"kubernetes.io/hostname": "node-1"}})
    assert moves(result.with_actions("allocate", "consolidation").schedule()) == {"mover-0": "node-0"}


def gap(rival: str = "", resource: str = "gpu") -> Result:
    """One GPU is free on each of two nodes and a job wants two; a gang of three waits, too, if it is given a class."""
    found = cluster(nodes=2, gpus=2, cpu=2).queue("q").priority_class("high", 90).priority_class("low", 10)
    one: dict[str, Any] = {"cpu": 0, resource: 1}
    two: dict[str, Any] = {"cpu": 0, resource: 2}
    found.gang("a", on="node-0", **one).gang("b", on="node-1", **one)
    if rival:
        found.gang("rival", 3, priority=rival, **one)
    return found.gang("wide", **two).with_actions("allocate", "consolidation").schedule()


@pytest.mark.parametrize("resource", ["gpu", "cpu"])
def test_no_pod_is_moved_when_a_larger_gang_would_take_the_freed_node(resource: str) -> None:
    """While the mover is gone three are free: a gang of three that goes first would take them all."""
    assert gap(resource=resource).evicted_pods() == ["b-0"]
    assert gap("high", resource).evicted_pods() == []


@pytest.mark.parametrize(("rival", "moved"), [("", 2), ("low", 2), ("high", 1)])
def test_what_earlier_moves_of_the_cycle_free_counts_for_the_larger_gang(rival: str, moved: int) -> None:
    """Six GPUs are free while the pods of both moves are gone, and four without those of the first."""
    built = cluster(nodes=4, gpus=2).queue("q").priority_class("high", 90).priority_class("low", 10)
    for index, name in enumerate("abcd"):
        built.gang(name, gpu=1, on=f"node-{index}")
    if rival:
        built.gang("rival", pods=6, gpu=1, priority=rival)
    built.gang("wide", gpu=2).gang("wider", gpu=2)
    assert len(built.with_actions("allocate", "consolidation").schedule().evicted_pods()) == moved


def test_a_larger_gang_later_in_the_order_does_not_matter() -> None:
    result = gap(rival="low")
    assert result.evicted_pods() == ["b-0"]
    assert result.moved_to("b-0") == "node-0"
    assert result.nodes_used("wide") == {"node-1": 1}
