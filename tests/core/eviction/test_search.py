"""The search for victims: what one trial does, larger and larger parts of a gang, and budgets (cycle:13).

`old` work runs and `new` work waits in one queue unless a test says otherwise; `new` has the higher priority.
"""

import json
from typing import Any

import pytest

from pykai.core.hooks import Rules
from pykai.core.model.status import TaskStatus
from pykai.core.policy import UNITS_PER_SECOND, SearchBudgets
from pykai.core.report.decisions import StoppedSearch
from tests.core.builders import Cluster, Result, cluster, timestamp_before
from tests.core.eviction.searching import LOCAL, MULTI, new, old, one_per_node, searching, ways

# One trial


def test_sol12_gangs_ahead_of_the_preemptor_are_served_first() -> None:
    """cycle:SOL-12: a set with a victim ahead of the preemptor does not help: allocate would undo it."""
    built = cluster(nodes=1, gpus=2).with_actions("reclaim").queue("good", quota=1).queue("over").queue("mine", quota=1)
    built.objects[-2]["spec"]["resources"]["gpu"].update(quota=0, overQuotaWeight=0)
    old(old(built, "over", queue="over"), "good", queue="good")
    assert new(built, queue="mine", priority="").schedule().evicted_pods() == ["over-0"]


@pytest.mark.parametrize(("age", "reclaims"), [(20, False), (5, True)])
def test_bystanders_follow_the_queue_order(age: float, reclaims: bool) -> None:
    """cycle:ORD-2, PERF-5: a queue is compared by its best waiting job, though that job takes no part in the trial."""
    built = cluster(nodes=1, gpus=4).with_actions("reclaim").queue("theirs", quota=2).queue("mine", quota=2)
    for index in range(3):
        old(built, f"old-{index}", queue="theirs")
    old(built, "mine", queue="mine").gang("large", gpu=3, queue="mine", age=age)
    assert bool(built.gang("new", gpu=1, queue="mine", age=10).schedule().plan.evictions) is reclaims


@pytest.mark.parametrize("keeps_ranks", [True, False])
@pytest.mark.parametrize("top", ["", "root"])
def test_bystanders_of_queues_beside_count_for_their_parent(
    top: str, keeps_ranks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cycle:ORD-2: the best job of the best leaf represents a department, at the top and further down."""
    if not keeps_ranks:
        monkeypatch.setattr(Rules, "keeps_ranks", lambda rules, key: False)
    for waiting, reclaims in ((0, True), (1, False)):
        built = cluster(nodes=1, gpus=4).with_actions("reclaim").queue("root")
        built.queue("d0", quota=2, parent=top).queue("d1", quota=2, parent=top)
        built.queue("theirs", parent="d0", quota=2).queue("mine", parent="d1", quota=0, priority=1)
        built.queue("beside", parent="d1", quota=1, limit=1, priority=200)
        for index in range(3):
            old(built, f"old-{index}", queue="theirs")
        old(built, "mine", queue="beside")
        for index in range(waiting):
            built.gang(f"large-{index}", gpu=3, queue="beside")
        assert bool(built.gang("new", gpu=1, queue="mine").schedule().plan.evictions) is reclaims


def test_sol13_nothing_starts_in_a_trial() -> None:
    """cycle:SOL-13: one pod of the gang would fit on what is idle, and waits with the other."""
    result = new(old(searching(2), "old"), 2).schedule()
    assert result.plan.binds == ()
    assert result.pipelined("new") == 2


def test_sol14_an_elastic_victim_gets_back_more_than_one_pod() -> None:
    """cycle:SOL-14, Do better: three pods were in the set only because they are worse than the one that is needed."""
    built = searching(4, cpu=10)
    old(built, "needed", gpu=0, cpu=10)
    old(built, "elastic", pods=4, min=1, cpu=0)
    result = new(built, gpu=0, cpu=5).schedule()
    assert result.evicted_pods() == ["needed-0"]


def test_sol5_a_victim_costs_one_unit_of_work() -> None:
    """cycle:SOL-5: budgets count them."""
    work = [new(old(searching(4), "old", pods=pods), gpu=4).schedule().plan.work for pods in (1, 2, 3)]
    assert work == [work[0], work[0] + 1, work[0] + 2]


def test_sol15_kept_pods_are_not_victims() -> None:
    """cycle:SOL-15: the same with an elastic job that may not lose its minimum yet: it loses nothing."""
    built = searching(4, cpu=10).queue("slow", preemptMinRuntime="1h")
    old(built, "needed", gpu=0, cpu=10, queue="slow")
    fresh = {"annotations": {"kai.scheduler/last-start-timestamp": timestamp_before(1)}}
    old(built, "elastic", pods=4, min=1, cpu=0, queue="slow", group_spec=fresh)
    (evicted,) = new(built, gpu=0, cpu=5, queue="slow").schedule().plan.evictions
    assert (evicted.pod, evicted.gang_size) == ("needed-0", 1)


@pytest.mark.parametrize(("beside", "moves_to"), [(1, ""), (0, "node-1")])
def test_sol4_victims_without_gpu_go_only_where_gpus_are_unless_a_pod_needs_none(beside: int, moves_to: str) -> None:
    """cycle:SOL-4: a node that has no GPU to give is searched only if some pod of the job needs no GPU."""
    built = old(searching(2, 0, cpu=5), "old", 0, gpu=0, cpu=4)
    built.group("new", queue="q", minMember=2, priorityClassName="high", preemptibility="preemptible")
    built.pod("new-0", group="new", gpu=1, cpu=3).pod("new-1", group="new", gpu=beside, cpu="100m")
    assert built.schedule().moved_to("old-0") == moves_to


@pytest.mark.parametrize("gpu", [1, 0])
def test_sol4_the_nodes_of_the_victims_are_searched_too(gpu: int) -> None:
    """cycle:SOL-4: the second CPU job finds its own node again, though that node has no GPU to give."""
    built = searching(1, cpu=6)
    old(old(old(built, "gpu", gpu=gpu, cpu=0), "large", gpu=0, cpu=4), "small", gpu=0, cpu=2)
    result = new(built, cpu=4).schedule()
    assert "small-0" not in result.evicted_pods()
    assert "large-0" in result.evicted_pods()


# Larger and larger parts


@pytest.mark.parametrize(("pods", "placed"), [(1, 1), (2, 2), (3, 3), (4, 4), (5, 0)])
def test_sol1_parts_of_a_gang_are_probed_and_their_victims_recorded(pods: int, placed: int) -> None:
    """cycle:SOL-1, SOL-15: clearing one node at a time serves 1, 2 and 3 pods, and the last probe one more; after a
    failure with 4 of 5 pods only 3 are known to fit, and two nodes at once are too many."""
    result = ways(one_per_node(pods, 6), "sg-nodelocalgreedy").schedule()
    assert result.pipelined("new") == len(result.plan.evictions) == placed


def test_sol1_tasks_of_several_subgroups_are_probed_in_order() -> None:
    """cycle:SOL-1: the gang is whole in the end."""
    built = searching(1, 1, 1)
    for index in range(3):
        old(built, f"old-{index}", index)
    entries = [{"name": "a", "minMember": 1}, {"name": "b", "minMember": 2}]
    built.group("new", queue="q", priorityClassName="high", preemptibility="preemptible", subGroups=entries)
    for name, subgroup in (("a-0", "a"), ("b-0", "b"), ("b-1", "b")):
        built.pod(name, group="new", gpu=1, subgroup=subgroup)
    result = built.schedule()
    assert result.pipelined("new") == 3
    assert len(result.plan.evictions) == 3


def test_sol1_a_part_has_no_tasks_of_the_next_subgroup() -> None:
    """cycle:SOL-1: one node at a time can be cleared, so one task at a time is placed."""
    built = searching(1, 1, 1)
    for index in range(3):
        old(built, f"old-{index}", index)
    entries = [{"name": name, "minMember": 1} for name in "abc"]
    built.group("new", queue="q", priorityClassName="high", preemptibility="preemptible", subGroups=entries)
    for name in "abc":
        built.pod(f"new-{name}", group="new", gpu=1, subgroup=name)
    assert ways(built, "sg-nodelocalgreedy").schedule().pipelined("new") == 3


def test_perf8_a_gang_of_which_not_one_pod_fits_is_not_tried_whole() -> None:
    """cycle:PERF-8: the port of the node is taken, which the bounds do not see."""

    def work(pods: int) -> int:
        container: dict[str, Any] = {"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}
        port = {"containers": [container]}
        built = searching(3).gang("fixed", on="node-0", preemptible=False, spec=port)
        container = {**container, "resources": {"requests": {"nvidia.com/gpu": "1"}}}
        result = new(old(built, "old", gpu=3), pods, spec={"containers": [container]}).schedule()
        assert result.verdicts("new") == {"preempt": "generators_exhausted"}
        return result.plan.work

    assert 0 < work(1) == work(2) == work(3)


def test_a_job_that_lost_its_pods_in_the_same_action_is_passed_over() -> None:
    """cycle:PG-6: what is left of it cannot start, so it evicts nothing."""
    built = searching(2, 1).priority_class("mid", 80)
    built.group("mid", queue="q", minMember=2, priorityClassName="mid", preemptibility="preemptible")
    for index in range(3):
        built.pod(f"mid-{index}", group="mid", gpu=1, on="node-0" if index < 2 else "")
    result = new(old(built, "low", 1), gpu=2).schedule()
    assert sorted(result.evicted_pods()) == ["mid-0", "mid-1"]
    assert result.verdicts("mid") == {"preempt": "generators_exhausted"}


@pytest.mark.parametrize(("least", "evicted"), [(2, []), (1, ["runs-0"])])
def test_a_gang_that_starts_in_this_cycle_keeps_all_of_its_minimum_or_none(least: int, evicted: list[str]) -> None:
    """cycle:ALC-5: one pod of the pair could go where another pod is leaving, and would start later than the other."""
    built = searching(1, 2, 1).with_actions("allocate", "preempt")
    old(built, "runs", 1, spec={"nodeSelector": {"kubernetes.io/hostname": "node-1"}})
    old(built, "ends", 2).assume("ends-0", TaskStatus.RELEASING)
    built.gang("pair", 2, min=least, gpu=1)
    result = new(built, gpu=2).schedule()
    assert result.evicted_pods() == evicted
    assert (result.bound("pair"), result.pipelined("pair")) == ((1, 1) if evicted else (2, 0))


@pytest.mark.parametrize("pods", [1, 2, 3, 5, 6, 9])
def test_t45_a_gang_that_needs_no_more_nodes_than_there_are_gets_them(pods: int) -> None:
    """cycle:13.1: whatever its size."""
    result = one_per_node(pods, 9).schedule()
    assert len(result.plan.evictions) == result.pipelined("new") == pods


def test_t45_a_gang_that_needs_one_node_more_gets_nothing() -> None:
    """cycle:T-45: nine of ten could be placed; nothing is committed, and the state is as before."""
    built = one_per_node(10, 9)
    result = built.schedule()
    assert result.verdicts("new") == {"preempt": "generators_exhausted"}
    assert (result.plan.evictions, result.plan.nominations) == ((), ())
    assert result.cycle.state.version == 0
    assert (result.cycle.state.columns == built.cycle().state.columns).all()


def test_sol2_a_set_that_failed_is_not_tried_again() -> None:
    """cycle:SOL-2: the second generator offers the same sets, which costs nothing."""

    def work(*plugins: str) -> int:
        built = ways(one_per_node(2, 1), *plugins)
        result = built.schedule()
        assert result.verdicts("new") == {"preempt": "generators_exhausted"}
        return result.plan.work

    assert work("sg-nodelocalgreedy") > 0
    assert work("sg-nodelocalgreedy", "sg-multinodegang") < 2 * work("sg-nodelocalgreedy")


# Where a search ends


def test_sol3_without_a_generator_nothing_is_tried() -> None:
    """cycle:SOL-3: no_generator goes to the next job."""
    result = ways(new(new(old(searching(1), "old")), name="other", cpu="500m")).schedule()
    assert result.verdicts("new") == result.verdicts("other") == {"preempt": "no_generator"}
    assert result.plan.stopped == ()


def budgeted(built: Cluster, **limits: Any) -> Result:
    defaults: dict[str, Any] = {"default_action": None, "job": None, "generators": {}, "default_generator": None}
    return built.with_policy(search_budgets=SearchBudgets(**{**defaults, **limits})).schedule()


@pytest.mark.parametrize(
    ("plugins", "last"),
    [
        (("sg-nodelocalgreedy", "sg-multinodegang"), "deadline_exhausted"),
        (("sg-multinodegang", "sg-nodelocalgreedy"), "generators_exhausted"),
    ],
)
def test_sol3_generators_run_in_order_and_the_last_result_counts(plugins: tuple[str, ...], last: str) -> None:
    """cycle:13.1: here multi-node has no budget."""
    result = budgeted(ways(one_per_node(2, 1), *plugins), generators={MULTI: 0})
    assert result.verdicts("new") == {"preempt": last}


def _two_jobs() -> Cluster:
    """Two jobs of different signatures with possible victims."""
    return new(new(old(old(searching(2), "a"), "b"), name="first"), name="second", cpu=2)


@pytest.mark.parametrize("limits", [{"actions": {"preempt": 0}}, {"default_action": 0}])
def test_sol3_an_action_without_budget_is_not_begun(limits: dict[str, Any]) -> None:
    """cycle:SOL-3, SOL-5: not_attempted stops the whole action, and is in the plan."""
    result = budgeted(_two_jobs(), **limits)
    assert result.verdicts("first") == {"preempt": "not_attempted"}
    assert result.verdicts("second") == {}
    assert result.plan.stopped == (StoppedSearch("preempt", "default/first", "not_attempted", 0),)
    assert json.loads(result.plan.encoded())["stopped"] == [
        "preempt stopped at default/first: not_attempted, 0 units of work done"
    ]


def test_sol5_each_action_has_its_own_budget() -> None:
    """cycle:SOL-5: that of reclaim does not apply to preempt."""
    result = budgeted(_two_jobs(), actions={"reclaim": 0})
    assert result.plan.stopped == ()


@pytest.mark.parametrize("job", [None, 1000])
def test_sol6_the_action_budget_covers_all_jobs(job: int | None) -> None:
    """cycle:SOL-6: the first job uses it up, the second is not begun, whatever a job may have."""
    result = budgeted(_two_jobs(), actions={"preempt": 1}, job=job)
    assert result.pipelined("first") == 1
    assert result.verdicts("second") == {"preempt": "not_attempted"}


def test_t44_the_least_of_a_job_is_given_whatever_the_action_has_left() -> None:
    """cycle:SOL-6, T-44."""
    result = budgeted(_two_jobs(), actions={"preempt": 0}, job_minimum=1)
    assert (result.pipelined("first"), result.pipelined("second")) == (1, 1)


def test_sol6_the_job_budget_restarts_with_each_job() -> None:
    """cycle:SOL-6."""
    result = budgeted(_two_jobs(), job=1)
    assert (result.pipelined("first"), result.pipelined("second")) == (1, 1)


def test_sol3_a_job_that_runs_out_of_budget_ends_the_action() -> None:
    """cycle:SOL-2, SOL-3: the budget is checked between sets; the ninth node is never tried."""
    built = new(one_per_node(9, 9), name="after", cpu=2)
    result = budgeted(built, job=10)
    assert result.verdicts("new") == {"preempt": "deadline_exhausted"}
    assert result.verdicts("after") == {}
    assert len(result.plan.stopped) == 1
    assert (result.plan.evictions, result.plan.nominations) == ((), ())


def test_sol6_a_generator_out_of_budget_leaves_the_rest_to_the_next() -> None:
    """cycle:SOL-6: the limit of one generator does not end the job."""
    result = budgeted(_two_jobs(), generators={LOCAL: 0})
    assert (result.pipelined("first"), result.pipelined("second")) == (1, 1)


def test_sol6_a_generator_has_one_budget_for_all_tries_of_a_job() -> None:
    """cycle:SOL-6: nine nodes cannot be cleared one set after the other with so little."""
    alone = ways(one_per_node(9, 9), "sg-multinodegang")
    assert budgeted(alone, generators={MULTI: 10}).verdicts("new") == {"preempt": "deadline_exhausted"}
    assert budgeted(alone, generators={LOCAL: 10}).pipelined("new") == 9
    assert budgeted(alone, default_generator=10).verdicts("new") == {"preempt": "deadline_exhausted"}


def test_sol5_the_built_in_budgets() -> None:
    """cycle:SOL-5: five minutes, four minutes, no minimum; two minutes a generator, half a minute for node-local."""
    limits = SearchBudgets()
    seconds = [limits.action_units("reclaim"), limits.job, limits.generator_units(LOCAL), limits.generator_units(MULTI)]
    assert [units and units / UNITS_PER_SECOND for units in seconds] == [300, 240, 30, 120]
    assert limits.generator_units("another") == limits.generator_units(MULTI)
    assert limits.job_minimum == 0
