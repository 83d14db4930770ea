"""minruntime: work that has just started is protected for a while (queues:12, cases 19.8; cycle:RCL-4)."""

from typing import Any

import pytest

from pykai.api.meta import ObjectMeta
from pykai.api.scheduling import Queue, QueueSpec
from pykai.core.model.problems import Problem
from pykai.core.model.queuetree import QueueTree, build_tree
from pykai.core.plugins import built_in_plugin
from pykai.core.plugins.minruntime import LCA, QUEUE, MinRuntime, preempt_runtime, reclaim_runtime
from tests.core.builders import NOW_NS, Cluster, Result, cluster, leaf, timestamp_before

SECOND = 1_000_000_000
DEFAULT_NS = 77 * SECOND


def _tree(*rows: tuple[str, str, int | None, int | None]) -> QueueTree:
    """Queues as (name, parent, preempt seconds, reclaim seconds)."""
    queues = [
        Queue(
            metadata=ObjectMeta(name=name),
            spec=QueueSpec(
                parent_queue=parent,
                preempt_min_runtime=None if preempt is None else f"{preempt}s",
                reclaim_min_runtime=None if reclaim is None else f"{reclaim}s",
            ),
        )
        for name, parent, preempt, reclaim in rows
    ]
    return build_tree(queues, report=lambda problem: pytest.fail(str(problem)))


COMPANY = _tree(
    ("dev", "", 5, 10),
    ("dev-team1", "dev", None, 8),
    ("dev-team2", "dev", 3, None),
    ("prod", "", 20, 30),
    ("prod-team1", "prod", None, 25),
    ("prod-team2", "prod", 15, 35),
    ("research", "", 4, 6),
    ("research-project", "research", 7, 9),
    ("bare", "", None, None),
    ("bare-team", "bare", None, 11),
)
DEEP = _tree(
    ("a", "", None, None),
    ("b", "a", None, 600),
    ("c", "b", None, None),
    ("leaf1", "c", None, 0),
    ("leaf2", "c", None, 180),
    ("d", "b", None, 60),
    ("leaf3", "d", None, None),
)


def _preempt_s(victim: str) -> float:
    return preempt_runtime(COMPANY, COMPANY.rows[victim], DEFAULT_NS) / SECOND


def _reclaim_s(tree: QueueTree, method: str, reclaimer: str, victim: str) -> float:
    return reclaim_runtime(tree, tree.rows[reclaimer], tree.rows[victim], method, DEFAULT_NS) / SECOND


# Which time counts


@pytest.mark.parametrize(
    ("victim", "seconds"), [("prod-team2", 15), ("prod-team1", 20), ("dev-team1", 5), ("dev-team2", 3), ("bare", 77)]
)
def test_m1_the_nearest_queue_that_has_a_time_protects_from_preemption(victim: str, seconds: int) -> None:
    """queues:Q-302, M1."""
    assert _preempt_s(victim) == seconds


@pytest.mark.parametrize(
    ("victim", "seconds"), [("prod-team2", 35), ("dev-team2", 10), ("bare-team", 11), ("bare", 77)]
)
def test_m2_by_queue_the_nearest_queue_of_the_victim_counts(victim: str, seconds: int) -> None:
    """queues:Q-303, M2: whichever queue reclaims."""
    for reclaimer in ("dev-team1", "prod-team1", "research"):
        assert _reclaim_s(COMPANY, QUEUE, reclaimer, victim) == seconds


@pytest.mark.parametrize(
    ("case", "reclaimer", "victim", "seconds"),
    [
        ("M3", "dev-team1", "prod-team2", 30),
        ("M4", "dev-team2", "dev-team1", 8),
        ("M4", "prod-team1", "prod-team2", 35),
        ("M5", "dev-team1", "research-project", 6),
        ("nothing below the top is asked", "dev-team1", "bare-team", 77),
        ("no own value", "dev-team1", "dev-team2", 10),
    ],
)
def test_by_lca_the_victims_side_where_the_queues_part_counts(
    case: str, reclaimer: str, victim: str, seconds: int
) -> None:
    """queues:Q-304, M3 to M5."""
    assert _reclaim_s(COMPANY, LCA, reclaimer, victim) == seconds, case


@pytest.mark.parametrize(
    ("reclaimer", "victim", "seconds"), [("leaf1", "leaf3", 60), ("leaf1", "leaf2", 180), ("leaf3", "leaf1", 600)]
)
def test_m6_in_a_deep_tree_the_search_goes_up_from_there(reclaimer: str, victim: str, seconds: int) -> None:
    """queues:Q-304, M6."""
    assert _reclaim_s(DEEP, LCA, reclaimer, victim) == seconds


def test_q305_a_value_of_zero_is_a_value() -> None:
    """queues:Q-305."""
    assert _reclaim_s(DEEP, LCA, "leaf2", "leaf1") == 0
    assert _reclaim_s(DEEP, QUEUE, "leaf2", "leaf1") == 0


# Arguments


def _plugin(**arguments: str) -> tuple[MinRuntime, list[Problem]]:
    problems: list[Problem] = []
    made = built_in_plugin("minruntime", arguments, "tiers", problems.append)
    assert isinstance(made, MinRuntime)
    return made, problems


def test_q308_arguments_know_days_and_weeks() -> None:
    """queues:Q-308."""
    made, problems = _plugin(defaultPreemptMinRuntime="1d", defaultReclaimMinRuntime="1w", reclaimResolveMethod="queue")
    assert made == MinRuntime(86400 * SECOND, 7 * 86400 * SECOND, QUEUE)
    assert problems == []


def test_start_times_matter_as_long_as_any_queue_or_default_protects() -> None:
    """0 while nothing is protected; queues without a value of their own do not count."""
    unprotected = _tree(("top", "", None, None), ("team", "top", None, 0))
    assert MinRuntime().longest_ns(unprotected) == 0
    assert MinRuntime().longest_ns(COMPANY) == 35 * SECOND
    assert MinRuntime(60 * SECOND, 50 * SECOND).longest_ns(COMPANY) == 60 * SECOND
    assert MinRuntime(40 * SECOND, 50 * SECOND).longest_ns(unprotected) == 50 * SECOND


@pytest.mark.parametrize("name", ["defaultPreemptMinRuntime", "defaultReclaimMinRuntime"])
@pytest.mark.parametrize("text", ["-5s", "abc"])
def test_m9_a_time_that_cannot_be_used_is_none(name: str, text: str) -> None:
    """queues:Q-308, M9: reported, and the default is 0."""
    made, problems = _plugin(**{name: text})
    assert made == MinRuntime()
    assert [problem.field for problem in problems] == [f"tiers.{name}"]


def test_q308_an_unknown_method_is_lca() -> None:
    """queues:Q-308."""
    made, problems = _plugin(reclaimResolveMethod="nearest")
    assert made.resolve == LCA
    assert len(problems) == 1


# In the actions

START = "kai.scheduler/last-start-timestamp"


def started(ago_s: float | None) -> dict[str, Any]:
    """Fields of a group that started so many seconds ago."""
    return {} if ago_s is None else {"annotations": {START: timestamp_before(ago_s)}}


def preempted(
    ago_s: float | None, *, pods: int = 1, least: int | None = None, gpu: int = 1, span: str = "60s"
) -> Result:
    """A victim in a queue of one minute of protection, and a job of higher priority."""
    built = cluster(nodes=1, gpus=pods).with_actions("preempt").queue("q", preemptMinRuntime=span)
    built.priority_class("high", 90)
    built.gang("old", pods, min=least, gpu=1, on="node-0", group_spec=started(ago_s))
    return built.gang("new", gpu=gpu, priority="high").schedule()


def reclaimed(ago_s: float | None, *, pods: int = 1, least: int | None = None, **queue: Any) -> Result:
    """A victim beyond its quota, and another queue that wants one GPU."""
    built = cluster(nodes=1, gpus=pods).with_actions("reclaim").queue("theirs", quota=0, weight=0, **queue)
    built.queue("mine", quota=pods)
    built.gang("old", pods, min=least, queue="theirs", gpu=1, on="node-0", group_spec=started(ago_s))
    return built.gang("new", gpu=1, queue="mine").schedule()


@pytest.mark.parametrize(("ago", "evicted"), [(59, 0), (60, 1), (61, 1)])
def test_q301_work_is_protected_until_its_time_is_up(ago: float, evicted: int) -> None:
    """queues:Q-301: the last instant belongs to the preemptor."""
    assert preempted(ago).evicted("old") == evicted
    assert reclaimed(ago, reclaimMinRuntime="60s").evicted("old") == evicted


def test_q301_the_plan_expires_when_the_protection_ends() -> None:
    """queues:Q-301: so that the next cycle is not later than the protection."""
    assert preempted(20).cycle.state.valid_until_ns == NOW_NS + 40 * SECOND
    assert preempted(100).cycle.state.valid_until_ns is None


def test_m7_work_without_a_start_is_never_protected() -> None:
    """queues:Q-300, M7."""
    assert preempted(None).evicted("old") == 1
    assert reclaimed(None, reclaimMinRuntime="60s").evicted("old") == 1


def test_q300_a_start_that_cannot_be_read_does_not_protect() -> None:
    """queues:Q-300."""
    built = (
        cluster(nodes=1, gpus=1).with_actions("preempt").queue("q", preemptMinRuntime="60s").priority_class("high", 90)
    )
    built.gang("old", gpu=1, on="node-0", group_spec={"annotations": {START: "yesterday"}})
    assert built.gang("new", gpu=1, priority="high").schedule().evicted("old") == 1


def test_each_action_has_its_own_time() -> None:
    """cycle:RCL-4: the time of preempt does not protect from reclaim, nor the other way round."""
    assert reclaimed(1, preemptMinRuntime="60s").evicted("old") == 1
    built = (
        cluster(nodes=1, gpus=1).with_actions("preempt").queue("q", reclaimMinRuntime="60s").priority_class("high", 90)
    )
    built.gang("old", gpu=1, on="node-0", group_spec=started(1))
    assert built.gang("new", gpu=1, priority="high").schedule().evicted("old") == 1


def test_q306_a_protected_job_that_is_not_elastic_is_not_a_candidate() -> None:
    """queues:Q-306: no victim is tried."""
    assert preempted(1).verdicts("new") == {"preempt": "hopeless"}


def test_m8_a_protected_elastic_job_shrinks_to_its_minimum() -> None:
    """queues:Q-306, Q-307, M8: min 1 of 3 pods with one victim."""
    assert preempted(1, pods=3, least=1).evicted_pods() == ["old-2"]
    assert reclaimed(1, pods=3, least=1, reclaimMinRuntime="60s").evicted_pods() == ["old-2"]


def test_m8_a_protected_elastic_job_keeps_its_minimum() -> None:
    """queues:Q-307, M8: min 2 of 3 pods with two victims; the verdict says why."""
    result = preempted(1, pods=3, least=2, gpu=2)
    assert result.plan.evictions == ()
    record = result.unscheduled("new")
    assert record is not None
    assert [verdict.other for verdict in record.verdicts] == ["default/old has not run for its minimum time yet"]
    assert preempted(61, pods=3, least=2, gpu=2).evicted("old") == 3


def test_m8_reclaim_applies_the_same_rule() -> None:
    """queues:Q-307, Q-276: all plugins must agree."""
    built = cluster(nodes=1, gpus=3).with_actions("reclaim").queue("theirs", quota=0, weight=0, reclaimMinRuntime="60s")
    built.queue("mine", quota=3).gang("old", 3, min=2, queue="theirs", gpu=1, on="node-0", group_spec=started(1))
    assert built.gang("new", gpu=2, queue="mine").schedule().plan.evictions == ()


def test_q307_every_touched_subgroup_keeps_its_minimum() -> None:
    """queues:Q-307: one subgroup has a pod to spare, the other has not."""
    built = (
        cluster(nodes=1, gpus=3).with_actions("preempt").queue("q", preemptMinRuntime="60s").priority_class("high", 90)
    )
    built.tree("old", leaf("a", 1, running=2), leaf("b", 1, running=1), gpu=1, group_spec=started(1))
    built.gang("small", gpu=1, priority="high")
    assert built.schedule().evicted_pods() == ["old-a-1"]
    assert built.gang("large", gpu=2, priority="high", age=2_000_000).schedule().evicted("old") == 1


@pytest.mark.parametrize(("leaving", "evicted"), [(1, 0), (2, 2)])
def test_q307_terminating_pods_count_until_they_are_gone(leaving: int, evicted: int) -> None:
    """queues:Q-307: two run, some more are on their way out; of all that hold the node two must be left."""
    built = (
        cluster(nodes=1, gpus=4).with_actions("preempt").queue("q", preemptMinRuntime="60s").priority_class("high", 90)
    )
    built.gang("old", 2, min=2, gpu=1, on="node-0", group_spec=started(1))
    for index in range(leaving):
        built.pod(f"leaving-{index}", group="old", gpu=1, on="node-0", deleted=-30)
    assert built.gang("new", gpu=4, priority="high").schedule().evicted("old") == evicted


# Defaults and methods of the configuration


def _configured(built: Cluster, **arguments: str) -> Cluster:
    plugins: list[dict[str, Any]] = [
        {"name": name}
        for name in ("predicates", "proportion", "priority", "elastic", "sg-nodelocalgreedy", "sg-multinodegang")
    ]
    plugins.append({"name": "minruntime", "arguments": arguments})
    return built.configured({"actions": "reclaim", "tiers": [{"plugins": plugins}]})


@pytest.mark.parametrize(("ago", "evicted"), [(59, 0), (61, 1)])
def test_the_default_protects_where_no_queue_sets_a_time(ago: float, evicted: int) -> None:
    """queues:Q-302, Q-303, Q-309."""
    built = cluster(nodes=1, gpus=1).queue("theirs", quota=0, weight=0).queue("mine", quota=1)
    built.gang("old", queue="theirs", gpu=1, on="node-0", group_spec=started(ago)).gang("new", gpu=1, queue="mine")
    configured = _configured(built, defaultReclaimMinRuntime="60s", defaultPreemptMinRuntime="1s")
    assert configured.with_actions("reclaim").schedule().evicted("old") == evicted


def test_the_default_of_preempt() -> None:
    """queues:Q-302."""
    for ago, evicted in ((59, 0), (61, 1)):
        built = cluster(nodes=1, gpus=1).queue("q").priority_class("high", 90)
        built.gang("old", gpu=1, on="node-0", group_spec=started(ago)).gang("new", gpu=1, priority="high")
        configured = _configured(built, defaultPreemptMinRuntime="60s", defaultReclaimMinRuntime="1s")
        assert configured.with_actions("preempt").schedule().evicted("old") == evicted


@pytest.mark.parametrize(("method", "evicted"), [("lca", 1), ("queue", 0)])
def test_the_method_decides_whose_time_counts(method: str, evicted: int) -> None:
    """queues:Q-303, Q-304: by lca a leaf of another department is not asked."""
    built = cluster(nodes=1, gpus=1).queue("d0", quota=0, weight=0).queue("d1", quota=1)
    built.queue("theirs", parent="d0", reclaimMinRuntime="60s").queue("mine", parent="d1", quota=1)
    built.gang("old", queue="theirs", gpu=1, on="node-0", group_spec=started(1)).gang("new", gpu=1, queue="mine")
    configured = _configured(built, reclaimResolveMethod=method)
    assert configured.with_actions("reclaim").schedule().evicted("old") == evicted


def test_q310_times_are_resolved_for_each_pair_of_queues() -> None:
    """queues:Q-310: two reclaimers, one beside the victim and one from another department."""
    built = cluster(nodes=1, gpus=2).queue("d0", quota=0, weight=0).queue("d1", quota=1)
    built.queue("theirs", parent="d0", quota=0, reclaimMinRuntime="60s").queue("near", parent="d0", quota=1)
    built.queue("mine", parent="d1", quota=1)
    for index in range(2):
        built.gang(f"old-{index}", queue="theirs", gpu=1, on="node-0", group_spec=started(1))
    built.gang("beside", gpu=1, queue="near").gang("far", gpu=1, queue="mine")
    result = _configured(built).with_actions("reclaim").schedule()
    assert (result.pipelined("beside"), result.pipelined("far")) == (0, 1)
