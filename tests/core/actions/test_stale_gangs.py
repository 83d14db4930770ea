"""Stale gangs: what is left of a gang that lost its minimum goes after a grace period (cycle:15, EXP-8)."""

from typing import Any

import pytest

from pykai.api import names
from pykai.core.actions import ACTIONS
from pykai.core.cycle.recording import record_decisions
from pykai.core.model.status import TaskStatus
from pykai.core.report.decisions import WithinDelay
from pykai.core.report.sentences import stale_text
from tests.core.builders import NOW_NS, Cluster, Result, SubgroupSpec, branch, cluster, leaf, timestamp_before

S = 1_000_000_000
PORT = {"containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}]}
STALE = "kai.scheduler/stale-podgroup-timestamp"


def ground() -> Cluster:
    return cluster(nodes=1, gpus=50).queue("q").with_actions("stalegangeviction")


def marked(stale: float | None, grace: str | None = None, **spec: Any) -> dict[str, Any]:
    """Fields of a group that is stale for so many seconds, and its own grace period."""
    if stale is not None:
        spec["annotations"] = {STALE: timestamp_before(stale)}
    if grace is not None:
        spec["stalenessGracePeriod"] = grace
    return spec


def half(*, stale: float | None = 61, grace: str | None = None, min: int = 2, **more: Any) -> Cluster:
    """A gang of two of which one pod runs and the other has failed."""
    built = ground().gang("job", 1, min=min, gpu=1, on="node-0", group_spec=marked(stale, grace), **more)
    return built.pod("job-failed", group="job", gpu=1, on="node-0", phase="Failed")


def job(*parts: SubgroupSpec, needs: int | None = None, stale: float | None = 61, **spec: Any) -> Cluster:
    """A gang with subgroups."""
    return ground().tree("job", *parts, needs=needs, gpu=1, group_spec=marked(stale, **spec))


def is_stale(result: Result) -> bool:
    return [gang.group for gang in result.plan.stale] == ["job"]


# cycle:T-36: grace


@pytest.mark.parametrize(
    ("stale", "grace", "evicted"),
    [
        (1, None, False),
        (61, None, True),
        (30, "10s", True),
        (61, "120s", False),
        (61, "-1s", False),
        (1_000_000, "-1s", False),
        # A timestamp in the future is invalid.
        (-1_000_000, None, False),
        (-1_000_000, "0s", True),
        (0, "0s", True),
        (None, "0s", True),
        (None, None, False),
    ],
)
def test_t36_the_rest_of_a_gang_is_evicted_after_its_grace_period(
    stale: float | None, grace: str | None, evicted: bool
) -> None:
    """Case cycle:T-36; cycle:STL-3."""
    result = half(stale=stale, grace=grace).schedule()
    assert is_stale(result)
    assert result.evicted_pods() == (["job-0"] if evicted else [])
    assert [gang.evicted for gang in result.plan.stale] == [evicted]


def test_stl3_the_grace_period_ends_to_the_second() -> None:
    """cycle:STL-3: not before it has passed."""
    assert half(stale=59).schedule().plan.evictions == ()
    assert half(stale=60).schedule().evicted("job") == 1


@pytest.mark.parametrize(("grace_s", "evicted"), [(20, 1), (40, 0), (-1, 0), (0, 1)])
def test_stl3_the_default_grace_period_is_a_setting(grace_s: int, evicted: int) -> None:
    """cycle:STL-3: --default-staleness-grace-period."""
    built = half(stale=30).with_policy(staleness_grace_ns=grace_s * S)
    assert built.schedule().evicted("job") == evicted
    own = half(stale=30, grace="35s").with_policy(staleness_grace_ns=grace_s * S)
    assert own.schedule().evicted("job") == 0, "the group's own comes first"


def test_stl3_the_plan_expires_when_a_grace_period_ends() -> None:
    """cycle:STL-3: until then the same state gives the same plan."""
    assert half(stale=20).schedule().cycle.state.valid_until_ns == NOW_NS + 40 * S
    assert half(stale=None).schedule().cycle.state.valid_until_ns == NOW_NS + 60 * S
    two = half(stale=20).gang("other", 1, min=2, gpu=1, on="node-0", group_spec=marked(50))
    assert two.schedule().cycle.state.valid_until_ns == NOW_NS + 10 * S
    assert half(stale=20, grace="-1s").schedule().cycle.state.valid_until_ns is None
    assert half(stale=61).schedule().cycle.state.valid_until_ns is None


# cycle:STL-1: what is stale


def test_t37_a_gang_with_a_succeeded_pod_is_not_stale() -> None:
    """Case cycle:T-37; cycle:STL-1."""
    built = half().pod("job-done", group="job", gpu=1, on="node-0", phase="Succeeded")
    result = built.schedule()
    assert (result.plan.stale, result.plan.evictions) == ((), ())


def test_t37_the_succeeded_pod_may_be_in_another_subgroup() -> None:
    """Case cycle:T-37"""
    built = job(leaf("a", 2, running=1), leaf("b", 1, running=1))
    assert is_stale(built.schedule())
    built.pod("job-done", group="job", gpu=1, on="node-0", phase="Succeeded", subgroup="b")
    assert built.schedule().plan.stale == ()


def test_t37_a_gang_without_active_pods_is_not_stale() -> None:
    """Case cycle:T-37: it never started, or nothing of it is left."""
    built = ground().gang("job", 2, min=3, gpu=1, group_spec=marked(61))
    built.pod("job-failed", group="job", gpu=1, on="node-0", phase="Failed")
    assert built.schedule().plan.stale == ()


@pytest.mark.parametrize("status", [TaskStatus.RELEASING, TaskStatus.STUCK_IN_RELEASING])
def test_stl1_terminating_pods_count_as_active(status: TaskStatus) -> None:
    """cycle:STL-1: a gang whose pod only just began to end is complete."""
    built = half().pod("job-ends", group="job", gpu=1, on="node-0").assume("job-ends", status)
    assert built.schedule().plan.stale == ()
    left = half().assume("job-0", status).schedule()
    assert is_stale(left)
    assert left.plan.evictions == (), "it terminates already"
    assert [gang.leaving for gang in left.plan.stale] == [True]
    assert [gang.leaving for gang in half().schedule().plan.stale] == [False]


@pytest.mark.parametrize("status", [TaskStatus.BOUND, TaskStatus.BINDING, TaskStatus.RUNNING])
def test_stl1_pods_that_will_run_are_active(status: TaskStatus) -> None:
    """cycle:STL-1"""
    built = half().pod("job-more", group="job", gpu=1, on="node-0").assume("job-more", status)
    assert built.schedule().plan.stale == ()


@pytest.mark.parametrize("phase", ["Pending", "Failed"])
def test_stl1_waiting_and_failed_pods_are_not_active(phase: str) -> None:
    """cycle:STL-1"""
    built = half().pod("job-more", group="job", gpu=1, on="node-0" if phase == "Failed" else "", phase=phase)
    assert is_stale(built.schedule())


def test_stl1_what_the_same_cycle_placed_counts() -> None:
    """cycle:STL-1: the missing pod was bound before stale gangs are checked."""
    built = half().pod("job-1", group="job", gpu=1).with_actions("allocate", "stalegangeviction")
    result = built.schedule()
    assert result.bound("job") == 1
    assert (result.plan.stale, result.plan.evictions) == ((), ())
    assert result.plan.recovered == ("default/job",)


def test_stl1_what_the_same_cycle_evicted_counts_as_terminating() -> None:
    """cycle:STL-1: half a gang that was preempted is not stale at once."""
    built = cluster(nodes=1, gpus=2).queue("q").priority_class("high", 90)
    built.gang("job", 2, gpu=1, on="node-0", group_spec={"stalenessGracePeriod": "0s"})
    built.gang("urgent", gpu=2, priority="high")
    result = built.with_actions("preempt", "stalegangeviction").schedule()
    assert result.evicted("job") == 2
    assert result.plan.stale == ()


def test_stl1_a_group_that_needs_one_pod_is_never_stale() -> None:
    """cycle:STL-1"""
    assert half(min=1).schedule().plan.stale == ()
    assert half(min=0).schedule().plan.stale == ()


def test_stl1_every_subgroup_needs_its_minimum() -> None:
    """cycle:STL-1, PG-8: a surplus elsewhere does not help."""
    assert is_stale(job(leaf("a", 1, running=5), leaf("b", 1)).schedule())
    assert job(leaf("a", 1, running=1), leaf("b", 1, running=1)).schedule().plan.stale == ()
    assert is_stale(job(leaf("a", 2, running=1)).schedule())


def test_pg8_a_gang_that_needs_only_some_subgroups_is_not_stale() -> None:
    """cycle:PG-8, Do better: minSubGroup counts."""
    parts = (leaf("a", 1, running=1), leaf("b", 1))
    result = job(*parts, needs=1).schedule()
    assert (result.plan.stale, result.plan.evictions) == ((), ())
    assert is_stale(job(*parts, needs=2).schedule())
    assert is_stale(job(*parts).schedule()), "all of them by default"


def test_pg8_inner_sets_are_counted_like_the_root() -> None:
    """cycle:PG-8, Do better."""
    inner = (leaf("a", 1, running=1), leaf("b", 1))
    assert job(branch("set", *inner, needs=1), leaf("c", 1, running=1)).schedule().plan.stale == ()
    assert is_stale(job(branch("set", *inner), leaf("c", 1, running=1)).schedule())
    assert job(branch("set", *inner), leaf("c", 1, running=1), needs=1).schedule().plan.stale == ()


def test_pg8_a_gang_that_needs_no_subgroup_is_not_stale() -> None:
    """cycle:PG-8, PG-5: minSubGroup 0 is always satisfied."""
    assert job(leaf("a", 3, running=1), leaf("b", 1), needs=0).schedule().plan.stale == ()


def test_pg4_stray_pods_do_not_count() -> None:
    """cycle:PG-4: a pod of an unknown subgroup makes no gang complete."""
    built = half().pod("job-lost", group="job", gpu=1, on="node-0", subgroup="nowhere")
    result = built.schedule()
    assert result.evicted_pods() == ["job-0"]


def test_pg1_a_group_with_a_broken_tree_is_left_alone() -> None:
    """cycle:PG-1, Do better: what it needs is unknown."""
    twice = [{"name": "a", "minMember": 2}, {"name": "a", "minMember": 2}]
    built = ground().group("job", subGroups=twice, **marked(61)).pod("job-0", group="job", gpu=1, on="node-0")
    assert built.schedule().plan.evictions == ()


# cycle:STL-2: the clock


def test_stl2_the_clock_starts_when_the_gang_is_found() -> None:
    """cycle:STL-2"""
    (found,) = half(stale=None).schedule().plan.stale
    assert found.since_ns == NOW_NS


def test_stl2_the_clock_goes_on_from_the_timestamp_of_the_group() -> None:
    """cycle:STL-2"""
    (found,) = half(stale=25).schedule().plan.stale
    assert found.since_ns == NOW_NS - 25 * S
    assert half(stale=25).schedule().plan.recovered == ()


def test_stl2_the_timestamp_of_a_gang_that_is_whole_again_is_removed() -> None:
    """cycle:STL-2"""
    built = half(stale=25).pod("job-1", group="job", gpu=1, on="node-0")
    result = built.schedule()
    assert (result.plan.stale, result.plan.recovered) == ((), ("default/job",))


@pytest.mark.parametrize("minimum", [0, 1, 2])
def test_stl2_only_groups_that_have_a_timestamp_recover(minimum: int) -> None:
    """cycle:STL-2"""
    whole: dict[str, Any] = {"pods": 2, "min": minimum, "gpu": 1, "on": "node-0"}
    assert ground().gang("job", **whole).schedule().plan.recovered == ()
    assert ground().gang("job", **whole, group_spec=marked(9)).schedule().plan.recovered == ("default/job",)


def test_stl2_the_timestamp_of_a_gang_with_nothing_left_is_removed() -> None:
    """cycle:STL-2: it is not stale any more."""
    built = ground().gang("job", 2, gpu=1, group_spec=marked(61))
    assert built.schedule().plan.recovered == ("default/job",)


def test_stl2_the_timestamp_of_a_succeeded_gang_is_removed() -> None:
    """cycle:STL-2, STL-1."""
    built = half().pod("job-done", group="job", gpu=1, on="node-0", phase="Succeeded")
    assert built.schedule().plan.recovered == ("default/job",)


def test_stl_do_better_the_clock_of_a_gang_that_is_not_ready_goes_on() -> None:
    """cycle:15, Do better (a): pods that wait and are too few do not restart it."""
    result = half(min=5).pod("job-1", group="job", gpu=1).schedule()
    (found,) = result.plan.stale
    assert (found.since_ns, found.evicted) == (NOW_NS - 61 * S, True)
    assert result.evicted_pods() == ["job-0"]


def backing_off(stale: float) -> Cluster:
    """An incomplete gang that is left out of the cycle after a failure in its pool."""
    built = ground().group("job", minMember=2, schedulingBackoff=1, **marked(stale))
    condition = {"type": "UnschedulableOnNodePool", "nodePool": "default", "status": "True", "transitionID": "1"}
    built.objects[-1]["status"] = {"schedulingConditions": [condition]}
    return built.pod("job-0", group="job", gpu=1, on="node-0")


def test_snp11_a_gang_that_is_left_out_of_the_cycle_is_not_evicted() -> None:
    """cycle:SNP-11: excluded entirely."""
    result = backing_off(61).schedule()
    assert (result.plan.stale, result.plan.evictions) == ((), ())


def test_snp11_the_clock_of_a_gang_that_is_left_out_of_the_cycle_goes_on() -> None:
    """cycle:SNP-11, STL-2: nothing is known about it, so nothing is reported."""
    assert backing_off(30).schedule().plan.recovered == ()


# cycle:STL-4: the eviction


def test_stl4_the_eviction_names_its_gang_and_reason() -> None:
    """cycle:STL-4"""
    found = half().schedule().eviction("job-0")
    assert (found.namespace, found.pod, found.uid, found.group, found.node) == (
        "default",
        "job-0",
        "job-0",
        "default/job",
        "node-0",
    )
    assert (found.action, found.gang_size, found.preemptor, found.moves_to) == ("stalegangeviction", 1, "", "")
    assert found.message == (
        "Workload doesn't meet the minimum required number of pods (2), evicting remaining pod: default/job-0"
    )


def test_t38_the_rest_of_a_gang_with_subgroups_is_evicted() -> None:
    """Case cycle:T-38; cycle:STL-4: gang size is the number of pods."""
    result = job(leaf("sg0", 2, running=3), leaf("sg1", 1)).schedule()
    assert sorted(result.evicted_pods()) == ["job-sg0-0", "job-sg0-1", "job-sg0-2"]
    assert {item.gang_size for item in result.plan.evictions} == {3}
    assert result.eviction("job-sg0-1").message == (
        "Workload doesn't meet the minimum required number of pods (2) in sub-group sg0, "
        "evicting remaining pod: default/job-sg0-1"
    )


def test_stl4_the_message_names_the_minimum_of_the_pods_own_subgroup() -> None:
    """cycle:STL-4"""
    result = job(leaf("a", 3, running=1), leaf("b", 1, running=1)).schedule()
    assert "of pods (3) in sub-group a," in result.eviction("job-a-0").message
    assert "of pods (1) in sub-group b," in result.eviction("job-b-0").message


def test_stl4_masters_are_evicted_last() -> None:
    """cycle:STL-4, 8.5: in reverse task order."""
    built = ground().gang("job", 2, min=4, gpu=1, on="node-0", group_spec=marked(61))
    built.pod("job-boss", group="job", gpu=1, on="node-0", labels={"ray.io/node-type": "head"})
    assert built.schedule().evicted_pods() == ["job-1", "job-0", "job-boss"]


def test_stl4_waiting_and_ended_pods_are_not_evicted() -> None:
    """cycle:STL-4: activeAllocated only."""
    built = half(min=5).pod("job-w", group="job", gpu=1).pod("job-t", group="job", gpu=1, on="node-0")
    built.assume("job-t", TaskStatus.RELEASING)
    assert built.schedule().evicted_pods() == ["job-0"]


def test_stl4_a_pod_on_an_unknown_node_is_left_out() -> None:
    """cycle:STL-4: the rest goes."""
    assert half(min=5).pod("job-away", group="job", gpu=1, on="elsewhere").schedule().evicted_pods() == ["job-0"]


def test_stl4_a_pod_that_is_being_bound_loses_its_bind_request() -> None:
    """cycle:STL-4, PG-14."""
    built = ground().gang("job", 1, min=2, gpu=1, group_spec=marked(61)).bind_request("job-0", "node-0")
    assert built.schedule().eviction("job-0").unbound


def test_stl4_a_nomination_of_the_same_cycle_is_dropped() -> None:
    """cycle:STL-4, PG-14: the pod waits again and is not deleted."""
    cycle = ground().gang("job", 2, gpu=1, group_spec={"stalenessGracePeriod": "0s"}).cycle()
    (gang,) = cycle.gangs.waiting()
    (part,) = gang.leaves
    cycle.state.place(gang, part, part.tasks[0], 0, (), pipelined=True)
    record_decisions(cycle.decisions, cycle.state, cycle.context.rules, cycle.state.commit(0))
    assert list(cycle.decisions.nominations) == ["default/job-0"]
    ACTIONS[names.ACTION_STALE_GANG_EVICTION].run_in(cycle)
    assert [found.evicted for found in cycle.decisions.stale] == [True]
    assert (cycle.decisions.nominations, cycle.decisions.evictions) == ({}, {})
    assert cycle.state.status_of(part.tasks[0]) is TaskStatus.PENDING


def test_stl4_resources_of_a_stale_gang_are_releasing_not_free() -> None:
    """cycle:STL-4: the next gang of the cycle is pipelined onto it."""
    built = cluster(nodes=1, gpus=1).queue("q").with_actions("stalegangeviction", "allocate")
    built.gang("job", 1, min=2, gpu=1, on="node-0", group_spec=marked(61)).gang("next", gpu=1)
    result = built.schedule()
    assert (result.bound("next"), result.pipelined("next")) == (0, 1)
    assert next(figures.allocated[2] for figures in result.plan.queues) == 1.0


def test_stm2_no_pod_starts_on_a_host_port_before_its_holder_is_gone() -> None:
    """cycle:STM-2, FLT-2: pipelined, although the node has resources."""
    built = cluster(nodes=1, cpu=10).queue("q").gang("heir", spec=PORT)
    assert built.schedule().bound("heir") == 1
    built.gang("broken", min=2, on="node-0", spec=PORT, group_spec=marked(61))
    result = built.with_actions("stalegangeviction", "allocate").schedule()
    assert result.evicted_pods() == ["broken-0"]
    assert (result.bound("heir"), result.pipelined("heir")) == (0, 1)
    result = built.gang("other").with_actions("stalegangeviction", "allocate").schedule()
    assert result.bound("other") == 1, "a pod without a host port starts at once"


def test_stl4_gangs_are_checked_in_name_order() -> None:
    """cycle:STL-4: the same input gives the same plan."""
    built = ground()
    for name in ("c", "a", "b"):
        built.gang(name, 1, min=2, gpu=1, on="node-0", group_spec=marked(61))
    result = built.schedule()
    assert [found.group for found in result.plan.stale] == ["a", "b", "c"]
    assert result.evicted_pods() == ["a-0", "b-0", "c-0"]


# cycle:STL-5: every gang


@pytest.mark.parametrize(
    "more",
    [{"preemptible": False}, {"priority": "high", "preemptible": None}, {"queue": "nowhere"}, {"queue": "top"}],
    ids=["protected", "high", "no-queue", "inner-queue"],
)
def test_stl5_every_gang_is_checked(more: dict[str, Any]) -> None:
    """cycle:STL-5: whatever its queue, priority or preemptibility."""
    built = cluster(nodes=1, gpus=5).queue("top").queue("leaf", parent="top").priority_class("high", 1000)
    built.with_actions("stalegangeviction")
    how = {"queue": "leaf", **more}
    result = built.gang("job", 1, min=2, gpu=1, on="node-0", group_spec=marked(61), **how).schedule()
    assert result.evicted_pods() == ["job-0"]


def test_stl5_the_protected_part_of_a_semi_preemptible_gang_is_evicted_too() -> None:
    """cycle:STL-5, queues:Q-415."""
    built = half(preemptible=None)
    built.objects[-3]["spec"]["preemptibility"] = "semi-preemptible"
    result = built.schedule()
    assert result.evicted_pods() == ["job-0"]
    assert next(figures.allocated_non_preemptible[2] for figures in result.plan.queues) == 0


def test_stl_do_better_the_last_eviction_of_the_gang_is_now() -> None:
    """cycle:15, Do better (b); cycle:STM-8."""
    assert half().schedule().cycle.decisions.evicted_groups == {"default/job"}
    assert half(stale=5).schedule().cycle.decisions.evicted_groups == set()


def test_stm8_a_gang_that_lost_a_task_evicts_no_pods_before_its_delay_is_over() -> None:
    """cycle:STM-8: its last eviction is now."""
    built = cluster(nodes=1, gpus=5).queue("q").priority_class("high", 90)
    spec = {"stalenessGracePeriod": "0s", "preemptionDelay": "30s"}
    built.gang("high", 2, min=3, gpu=1, on="node-0", priority="high", group_spec=spec, age=1000)
    for index in range(2, 5):
        built.pod(f"high-{index}", group="high", gpu=1)
    built.gang("low", 3, min=0, gpu=1, on="node-0")
    assert built.with_actions("preempt").schedule().evicted("low") > 0
    result = built.with_actions("stalegangeviction", "preempt").schedule()
    assert result.evicted("high") == 2
    assert result.evicted("low") == 0
    left = result.unscheduled("high")
    assert left is not None
    assert [refusal.delay_ns for refusal in left.refusals if isinstance(refusal, WithinDelay)] == [30_000_000_000]


# cycle:STL-6, EXP-8: what is reported


def test_exp8_a_stale_gang_is_reported_in_every_cycle() -> None:
    """cycle:STL-6, EXP-8."""
    for stale in (1, 61):
        (found,) = half(stale=stale).schedule().plan.stale
        assert stale_text(found) == "Job is stale. 1 pods are active, minMember is 2"


def test_exp8_subgroups_that_lack_pods_are_named() -> None:
    """cycle:EXP-8: the sum of the minimums, and each subgroup below its own."""
    built = job(leaf("a", 2, running=1), leaf("b", 1, running=1), leaf("c", 3), stale=1)
    (found,) = built.schedule().plan.stale
    assert stale_text(found) == (
        "Job is stale. 2 pods are active, minMember is 6"
        ", subGroup a minMember is 2 and 1 pods are active"
        ", subGroup c minMember is 3 and 0 pods are active"
    )


def test_exp8_terminating_pods_are_active() -> None:
    """cycle:EXP-8, STL-1."""
    built = half(min=3).pod("job-ends", group="job", gpu=1, on="node-0").assume("job-ends", TaskStatus.RELEASING)
    (found,) = built.schedule().plan.stale
    assert (found.active, found.minimum, found.subgroups) == (2, 3, ())


def test_exp8_the_event_names_the_gang() -> None:
    """cycle:EXP-8"""
    (found,) = ground().gang("job", 1, min=2, gpu=1, on="node-0", namespace="ns").schedule().plan.stale
    assert (found.namespace, found.group) == ("ns", "job")


def test_a_gang_that_becomes_whole_in_the_cycle_and_was_never_stale_does_not_recover() -> None:
    """cycle:STL-2: there is no timestamp to take away."""
    built = cluster(nodes=1, gpus=50).queue("q").with_actions("allocate", "stalegangeviction")
    built.gang("job", 1, min=2, gpu=1, on="node-0").pod("job-again", group="job", gpu=1)
    result = built.schedule()
    assert result.bound("job") == 1
    assert (result.plan.stale, result.plan.recovered) == ((), ())


def test_exp8_a_gang_of_which_one_subgroup_runs_is_not_leaving() -> None:
    """cycle:EXP-8: only one whose pods are all being deleted is."""
    (found,) = job(leaf("a", 2, running=1), leaf("b", 1)).schedule().plan.stale
    assert not found.leaving
