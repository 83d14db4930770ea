"""Preempt: inside a queue, higher priority work evicts preemptible work of lower priority (cycle:14, cases 23).

`train` is 50, `build` 100, `inference` 125, as shipped.  Everything is in one queue `q` unless a test says otherwise.
"""

from typing import Any

import pytest

from pykai.core.model.status import TaskStatus
from pykai.core.report.decisions import NoPlace
from tests.core.builders import Cluster, Result, cluster, leaf


def preempting(*nodes: int, **queue: Any) -> Cluster:
    """Nodes with so many GPUs each, on which only preempt runs; `queue` describes the queue q."""
    built = cluster().with_actions("preempt").queue("q", **queue)
    for name, value in (("train", 50), ("build", 100), ("inference", 125)):
        built.priority_class(name, value)
    for gpus in nodes:
        built.node(gpus=gpus)
    return built


def trains(built: Cluster, name: str = "old", pods: int = 1, **job: Any) -> Cluster:
    """A job of priority train that runs on node-0."""
    return built.gang(name, pods, **{"priority": "train", "gpu": 1, "on": "node-0", **job})


def infers(built: Cluster, name: str = "new", pods: int = 1, **job: Any) -> Cluster:
    """A job of priority inference that waits."""
    return built.gang(name, pods, **{"priority": "inference", "gpu": 1, **job})


def nothing_happens(result: Result) -> bool:
    return not result.plan.evictions and not result.plan.nominations


# Cases of cycle:23


def test_t17_one_pod_of_an_elastic_job_is_evicted() -> None:
    """cycle:T-17: its second pod, and the preemptor waits for it on the same node."""
    result = infers(trains(preempting(2), pods=2, min=1)).schedule()
    assert result.evicted_pods() == ["old-1"]
    assert result.node_of("new-0") == "node-0"
    assert result.plan.binds == ()


def test_t18_exactly_as_many_pods_as_needed() -> None:
    """cycle:T-18."""
    result = infers(trains(preempting(4), pods=4, min=1), gpu=2).schedule()
    assert sorted(result.evicted_pods()) == ["old-2", "old-3"]


def test_t19_an_elastic_job_shrinks_before_another_dies_and_keeps_its_minimum() -> None:
    """cycle:T-19."""
    built = trains(trains(preempting(3), "elastic", 2, min=1), "single")
    result = infers(built, gpu=2).schedule()
    assert sorted(result.evicted_pods()) == ["elastic-1", "single-0"]


def test_t20_a_victim_that_fits_elsewhere_moves() -> None:
    """cycle:T-20, SOL-16: both are deleted, one has a new node."""
    result = infers(trains(preempting(2, 1), pods=2, min=1), gpu=2).schedule()
    assert len(result.plan.evictions) == 2
    assert sorted(evicted.moves_to for evicted in result.plan.evictions) == ["", "node-1"]
    assert result.node_of("new-0") == "node-0"
    assert result.pipelined("old") == 1


def test_t21_an_elastic_preemptor_gets_its_minimum() -> None:
    """cycle:T-21: one pod in this cycle."""
    result = infers(trains(preempting(2), gpu=2), pods=2, min=1).schedule()
    assert result.evicted_pods() == ["old-0"]
    assert result.pipelined("new") == 1


def test_t22_a_gang_drains_every_node_it_needs() -> None:
    """cycle:T-22: eleven nodes of four single jobs each."""
    built = preempting(*[4] * 11)
    for index in range(44):
        trains(built, f"old-{index}", on=f"node-{index // 4}")
    result = built.gang("new", 11, priority="build", gpu=4).schedule()
    assert len(result.plan.evictions) == 44
    assert result.nodes_used("new") == {f"node-{index}": 1 for index in range(11)}


def test_t23_each_subgroup_gives_what_it_has_beyond_its_minimum() -> None:
    """cycle:T-23, 6.3."""
    built = preempting(4).tree(
        "old", leaf("a", running=2), leaf("b", running=2), gpu=1, group_spec={"priorityClassName": "train"}
    )
    result = infers(built, gpu=2).schedule()
    assert sorted(pod.rpartition("-")[0] for pod in result.evicted_pods()) == ["old-a", "old-b"]


@pytest.mark.parametrize(
    ("case", "old", "new"),
    [
        ("equal priority", {}, {"priority": "train"}),
        ("another queue", {"queue": "other"}, {}),
        ("not preemptible", {"priority": "build", "preemptible": False}, {}),
        ("not preemptible by its class", {"priority": "build", "preemptible": None}, {}),
        ("lower priority", {"priority": "inference"}, {"priority": "build"}),
    ],
)
def test_t24_protected_work_is_never_a_victim(case: str, old: dict[str, Any], new: dict[str, Any]) -> None:
    """cycle:T-24, queues:Q-285: though the preemptor would be served first, and low priority work waits."""
    built = preempting(1, quota=1).queue("other", quota=0, weight=0).priority_class("lowest", 1)
    built.gang("lowest", priority="lowest", gpu=1)
    assert nothing_happens(infers(trains(built, **{"age": 1, **old}), **{"age": 100, **new}).schedule()), case


def test_without_lower_priority_work_nothing_is_searched() -> None:
    """queues:Q-285: it is the verdict."""
    result = infers(trains(preempting(1)), priority="train").schedule()
    assert result.verdicts("new") == {"preempt": "no_lower_priority"}


def test_t26_a_terminating_pod_is_not_a_victim() -> None:
    """cycle:T-26, PG-14: but its sibling is."""
    built = trains(preempting(2), pods=2, min=1, gpu=1).assume("old-0", TaskStatus.STUCK_IN_RELEASING)
    assert infers(built).schedule().evicted_pods() == ["old-1"]


def test_t26_a_job_whose_pods_all_terminate_is_not_a_victim() -> None:
    """cycle:T-26."""
    assert nothing_happens(infers(trains(preempting(1)).assume("old-0", TaskStatus.STUCK_IN_RELEASING)).schedule())


# The precheck, the order of victims, the messages


def test_q204_non_preemptible_work_must_be_within_quota() -> None:
    """queues:Q-204: no error is recorded, the verdict has the figures."""
    result = infers(trains(preempting(2, quota=1), gpu=2), gpu=2, preemptible=False).schedule()
    assert nothing_happens(result)
    (verdict,) = _verdicts(result, "new")
    assert (verdict.action, verdict.rule, verdict.queue, verdict.resource) == ("preempt", "quota", "q", "GPU")
    assert (verdict.would_have, verdict.bound) == (2.0, 1.0)
    assert _refusals(result, "new") == ()


def test_q204_a_cpu_quota_is_reported_in_millicores() -> None:
    """queues:Q-204: only GPUs are counted in hundredths."""
    result = infers(trains(preempting(1, cpu=(500, -1, 1))), preemptible=False, cpu=1).schedule()
    (verdict,) = _verdicts(result, "new")
    assert (verdict.resource, verdict.would_have, verdict.bound) == ("CPU", 1000.0, 500.0)


def test_q204_the_same_work_within_quota_preempts() -> None:
    """queues:Q-204."""
    result = infers(trains(preempting(2, quota=2), gpu=2), gpu=2, preemptible=False).schedule()
    assert result.evicted_pods() == ["old-0"]


def test_q204_preemptible_work_preempts_beyond_the_quota() -> None:
    """queues:Q-285: no test of fair shares."""
    result = infers(trains(preempting(2, quota=0, weight=0), gpu=2), gpu=2).schedule()
    assert result.evicted_pods() == ["old-0"]


def test_a_job_rejected_by_the_quota_represents_equal_jobs() -> None:
    """cycle:14: unlike in reclaim, it becomes a failed representative."""
    built = trains(preempting(2, quota=1), gpu=2)
    result = infers(infers(built, "a", gpu=2, preemptible=False), "b", gpu=2, preemptible=False).schedule()
    assert result.verdicts("a") == {"preempt": "quota"}
    assert result.verdicts("b") == {"preempt": "alike"}


def test_the_queue_limit_does_not_stop_the_victim_search() -> None:
    """queues:Q-204: the precheck covers quota only; the limit holds once victims are subtracted in the ledgers."""
    result = infers(trains(preempting(2, quota=1, limit=1), gpu=1), gpu=1, preemptible=False).schedule()
    assert result.evicted_pods() == ["old-0"]


def test_a_gang_that_cannot_be_complete_triggers_nothing() -> None:
    """cycle:14: ready gangs only; the others get no verdict."""
    result = infers(trains(preempting(1)), min=2).schedule()
    assert nothing_happens(result)
    assert result.verdicts("new") == {}


def test_victims_of_lowest_priority_go_first() -> None:
    """cycle:SOL-7, 8.3: then the youngest."""
    built = preempting(3)
    built.gang("build", priority="build", gpu=1, on="node-0", age=1)
    trains(trains(built, "young", age=10), "elder", age=20)
    assert infers(built).schedule().evicted_pods() == ["young-0"]
    assert sorted(infers(built, "two", gpu=2).schedule().evicted_pods()) == ["build-0", "elder-0", "young-0"]


def test_semi_preemptible_work_gives_only_what_is_beyond_its_minimum() -> None:
    """queues:Q-418."""
    spec = {"preemptibility": "semi-preemptible"}
    built = trains(preempting(3, quota=3), pods=3, min=2, preemptible=None, group_spec=spec)
    result = infers(infers(built, "first"), "second").schedule()
    assert result.evicted_pods() == ["old-2"]
    assert result.pipelined("first") + result.pipelined("second") == 1


def test_the_message_names_the_workload() -> None:
    """cycle:14, queues:Q-277: the text of preempt."""
    built = trains(preempting(1), namespace="a")
    (evicted,) = infers(built, namespace="b").schedule().plan.evictions
    assert evicted.message == "Pod a/old-0 was preempted by higher priority workload b/new"
    assert (evicted.action, evicted.preemptor, evicted.gang_size) == ("preempt", "b/new", 1)


def test_all_pods_evicted_together_are_counted() -> None:
    """cycle:13.5: gang_size is the number of pods evicted for one job."""
    result = infers(trains(preempting(3), pods=3), gpu=2).schedule()
    assert [evicted.gang_size for evicted in result.plan.evictions] == [3, 3, 3]


# Several jobs in one cycle


def test_jobs_are_served_in_order_and_each_has_its_own_victims() -> None:
    """cycle:CYC-6."""
    built = preempting(2)
    trains(trains(built, "old-a"), "old-b")
    result = infers(infers(infers(built, "first"), "second"), "third").schedule()
    assert sorted(result.evicted_pods()) == ["old-a-0", "old-b-0"]
    assert [result.pipelined(name) for name in ("first", "second", "third")] == [1, 1, 0]


def test_a_nomination_is_revoked_by_higher_priority() -> None:
    """cycle:PG-14, Do better: a pod that was only nominated is not deleted."""
    built = preempting(2).priority_class("top", 200).with_policy(actions=("allocate", "preempt"))
    trains(trains(built, "leaving").assume("leaving-0", TaskStatus.RELEASING))
    result = infers(infers(built, "middle"), "best", priority="top", gpu=2).schedule()
    assert result.evicted_pods() == ["old-0"]
    assert (result.pipelined("middle"), result.pipelined("best")) == (0, 1)


def test_queue_depth_limits_the_jobs_that_are_tried() -> None:
    """cycle:ORD-5 for preempt: the best job of the queue only."""
    built = infers(infers(trains(trains(preempting(2), "old-a"), "old-b"), "first"), "second")
    result = built.with_policy(queue_depth={"preempt": 1}).schedule()
    assert (result.pipelined("first"), result.pipelined("second")) == (1, 0)


@pytest.mark.parametrize(("gpu", "left"), [(3, 1), (4, 0)])
def test_t50_what_was_started_in_the_same_cycle_is_withdrawn(gpu: int, left: int) -> None:
    """cycle:T-50, PG-14: allocate gives the rest of the node to an elastic job; there is nothing to delete of it."""
    built = preempting(4).with_policy(actions=("allocate", "preempt"))
    built.gang("fresh", 2, min=1, priority="train", gpu=1)
    result = infers(trains(built, "old", gpu=2), gpu=gpu).schedule()
    assert result.bound("fresh") == left
    assert result.evicted_pods() == ["old-0"]
    assert result.pipelined("new") == 1


def _verdicts(result: Result, group: str) -> tuple[Any, ...]:
    record = result.unscheduled(group)
    assert record is not None
    return record.verdicts


def _refusals(result: Result, group: str) -> tuple[Any, ...]:
    record = result.unscheduled(group)
    assert record is not None
    return record.refusals


def test_sol15_what_a_part_of_the_gang_needs_is_not_part_of_another_gang() -> None:
    """cycle:SOL-15, PG-13: one pod would have to move for two of the preemptor's pods, and all must go for three."""
    built = cluster().queue("q").priority_class("low", 10).node("wide", cpu=3).node("short", pods=2)
    built.group("victim", minMember=3, priorityClassName="low", preemptibility="preemptible")
    for index, node in enumerate(("wide", "wide", "short")):
        built.pod(f"victim-{index}", group="victim", on=node)
    result = built.gang("job", 3).with_actions("preempt").schedule()
    assert result.evicted("victim") in (0, 3)


# What no eviction would help


MISSING = {"containers": [{"name": "main", "envFrom": [{"configMapRef": {"name": "settings"}}]}]}


def test_flt9_a_job_that_no_eviction_would_help_is_not_searched_for() -> None:
    """cycle:FLT-9: it is refused as if it had not been placed, and there is no verdict."""
    built = cluster(nodes=1, cpu=1).with_actions("preempt").queue("q").priority_class("high", 90)
    result = built.gang("old", on="node-0").gang("new", priority="high", spec=MISSING).schedule()
    assert result.verdicts("new") == {}
    refusal = result.no_place("new")
    assert (refusal.pod, refusal.form, refusal.found, refusal.minimum) == ("default/new-0", "pod", 0, 1)
    assert refusal.unresolvable
    assert "settings" in refusal.base


@pytest.mark.parametrize(("first", "said"), [({"gpu": 2}, [False, True]), ({"spec": MISSING}, [True])])
def test_flt9_what_no_eviction_would_help_is_said_once(first: dict[str, Any], said: list[bool]) -> None:
    """cycle:FLT-9: after the reason of allocate, unless that is the same."""
    built = cluster(nodes=1, gpus=2).with_actions("allocate", "preempt").queue("q").priority_class("high", 90)
    built.gang("old", gpu=2, on="node-0").group("new", minMember=2, priorityClassName="high")
    built.pod("new-0", group="new", **first).pod("new-1", group="new", spec=MISSING)
    found = [refusal for refusal in built.schedule().refusals("new") if isinstance(refusal, NoPlace)]
    assert [refusal.unresolvable for refusal in found] == said


# What failed before


def test_sig2_a_job_that_failed_in_one_queue_says_nothing_about_another() -> None:
    """cycle:SIG-2: only the second queue has work that may go."""
    built = cluster(nodes=1, gpus=2).with_actions("preempt").queue("a").queue("b").priority_class("high", 90)
    built.gang("fixed", queue="a", gpu=1, on="node-0", preemptible=False).gang("old", queue="b", gpu=1, on="node-0")
    built.gang("first", queue="a", gpu=1, priority="high", age=20)
    result = built.gang("second", queue="b", gpu=1, priority="high", age=10).schedule()
    assert result.verdicts("first") == {"preempt": "hopeless"}
    assert result.evicted_pods() == ["old-0"]


def test_a_job_without_anything_below_it_represents_equal_jobs() -> None:
    """cycle:14: the second learns that an equal one has failed."""
    built = cluster(nodes=1, gpus=1).with_actions("preempt").queue("q").gang("old", gpu=1, on="node-0")
    result = built.gang("first", gpu=1, age=20).gang("second", gpu=1, age=10).schedule()
    assert result.verdicts("first") == {"preempt": "no_lower_priority"}
    assert result.verdicts("second") == {"preempt": "alike"}


def test_where_no_plugin_has_quotas_work_that_is_not_preemptible_preempts() -> None:
    """queues:Q-204 is a rule of the plugin proportion."""
    plugins = [{"name": name} for name in ("predicates", "priority", "elastic", "nodeavailability", "sg-multinodegang")]
    built = cluster(nodes=1, gpus=1).configured({"actions": "preempt", "tiers": [{"plugins": plugins}]})
    built.queue("q", quota=0).priority_class("high", 90).gang("old", gpu=1, on="node-0")
    built.with_actions("preempt").gang("new", gpu=1, priority="high", preemptible=False)
    assert built.schedule().evicted_pods() == ["old-0"]
