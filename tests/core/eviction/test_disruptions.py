"""PodDisruptionBudgets in the choice of victims (disruptions:prefer, disruptions:strict, disruptions:count).

The node is full, jobs that were added later are younger and would be taken first, and `new` is more urgent than all.
"""

from typing import Any

import pytest

from pykai.core.model.status import TaskStatus
from pykai.core.policy import DisruptionMode
from pykai.core.report.sentences import no_eviction_text
from tests.core.builders import Cluster, Result, timestamp_before
from tests.core.eviction.searching import new, old, searching

PREFER, STRICT, IGNORE = DisruptionMode.PREFER, DisruptionMode.STRICT, DisruptionMode.IGNORE
WEB = {"app": "web"}


def full(*jobs: str, gpus: int = 0, mode: DisruptionMode = PREFER, **pod: Any) -> Cluster:
    """A node on which these jobs run, one GPU each; those called web... have the label app=web."""
    built = searching(gpus or len(jobs)).priority_class("low", 10).with_policy(disruption_budgets=mode)
    for name in jobs:
        runs(built, name, **pod)
    return built


def runs(built: Cluster, name: str, **job: Any) -> Cluster:
    return old(built, name, **{"labels": WEB if name.startswith("web") else {}, **job})


def web_budget(built: Cluster, allowed: int = 0, **more: Any) -> Cluster:
    return built.disruption_budget("web", allowed, matchLabels=WEB, **more)


def victims(built: Cluster, **preemptor: Any) -> list[str]:
    return sorted(new(built, **preemptor).schedule().evicted_pods())


def why(result: Result) -> str:
    record = result.unscheduled("new")
    assert record is not None
    return " ".join(map(no_eviction_text, record.verdicts))


# Prefer


def test_jobs_within_their_budgets_go_first() -> None:
    assert victims(full("batch", "web")) == ["web-0"], "the younger one"
    assert victims(web_budget(full("batch", "web"))) == ["batch-0"]
    assert victims(web_budget(full("batch", "web"), allowed=1)) == ["web-0"]
    assert victims(web_budget(full("batch", "web", mode=IGNORE))) == ["web-0"]


def test_a_budget_is_exceeded_where_nothing_else_suffices() -> None:
    assert victims(web_budget(full("batch", "web")), gpu=2) == ["batch-0", "web-0"]
    assert victims(web_budget(full("web"))) == ["web-0"]


def test_a_job_that_is_no_victim_spends_nothing() -> None:
    """The youngest job has just started: a minimum run time protects it, and the allowance is for the next one."""
    built = full("batch", "web-a", gpus=3).queue("q", preemptMinRuntime="60s")
    started = {"annotations": {"kai.scheduler/last-start-timestamp": timestamp_before(10)}}
    runs(built, "web-b", group_spec=started)
    assert victims(web_budget(built, allowed=1)) == ["web-a-0"]


def test_budgets_do_not_change_the_order_of_priorities() -> None:
    built = full(gpus=2)
    runs(built, "web", priority="low")
    runs(built, "batch")
    assert victims(web_budget(built)) == ["web-0"]


def test_budgets_do_not_change_which_queue_loses() -> None:
    """A tenant gains nothing against other queues."""

    def reclaimed(*, budget: bool) -> list[str]:
        built = full().with_actions("reclaim").node(gpus=4).queue("greedy", quota=0).queue("modest", quota=1)
        for name in ("web-a", "web-b", "web-c"):
            runs(built, name, queue="greedy", on=0)
        runs(built, "batch", queue="modest", on=0)
        if budget:
            web_budget(built)
        return new(built.queue("poor", quota=1), queue="poor").schedule().evicted_pods()

    assert reclaimed(budget=True) == reclaimed(budget=False) == ["web-c-0"]


def test_an_allowance_is_spent_by_the_worst_job() -> None:
    """Of two jobs that share one, the younger is within the budget and the older is not."""
    jobs = "web-old", "batch", "web-young"
    assert victims(web_budget(full(*jobs), allowed=1), gpu=2) == ["batch-0", "web-young-0"]
    assert victims(web_budget(full(*jobs), allowed=2), gpu=2) == ["batch-0", "web-young-0"]
    assert victims(web_budget(full("batch", "web-old", "web-young"), allowed=1), gpu=2) == ["batch-0", "web-young-0"]
    assert victims(web_budget(full("batch", "web-old", "web-young"), allowed=2), gpu=2) == ["web-old-0", "web-young-0"]


def test_allowances_are_spent_by_earlier_searches_of_the_cycle() -> None:
    built = web_budget(full("batch", "web-old", "web-young"), allowed=1)
    new(built, name="first")
    assert new(built, name="second").schedule().evicted_pods() == ["web-young-0", "batch-0"]


def test_every_pod_of_a_gang_counts() -> None:
    def taken(allowed: int) -> list[str]:
        built = full("batch", gpus=3)
        runs(built, "web", pods=2)
        return victims(web_budget(built, allowed))

    assert taken(2) == ["web-0", "web-1"]
    assert taken(1) == ["batch-0"]


def test_an_elastic_gang_shrinks_within_its_budget() -> None:
    """One pod more than its minimum may go, the second may not."""

    def taken(allowed: int, gpu: int) -> list[str]:
        built = full("batch", gpus=4)
        runs(built, "web", pods=3, min=1)
        return victims(web_budget(built, allowed), gpu=gpu)

    assert taken(1, gpu=1) == ["web-2"]
    assert taken(1, gpu=2) == ["batch-0", "web-2"]
    assert taken(0, gpu=1) == ["batch-0"]


def test_every_budget_of_a_pod_must_allow_its_eviction() -> None:
    built = web_budget(full("batch", "web"), allowed=1)
    assert victims(built.disruption_budget("all-web", 0, matchExpressions=[{"key": "app", "operator": "Exists"}])) == [
        "batch-0"
    ]


def test_budgets_of_other_namespaces_do_not_count() -> None:
    assert victims(web_budget(full("batch", "web"), namespace="elsewhere")) == ["web-0"]


def test_pods_that_do_not_run_are_under_no_budget() -> None:
    built = full("batch", gpus=2)
    runs(built, "web", phase="Pending")
    assert victims(web_budget(built)) == ["web-0"]


# What a budget allows


@pytest.mark.parametrize(("allowed", "desired", "taken"), [(2, 1, "web-b-0"), (2, 2, "batch-0"), (0, 0, "batch-0")])
def test_a_budget_allows_no_more_than_run_beyond_its_desire(allowed: int, desired: int, taken: str) -> None:
    """Its status may not have seen our last evictions: two run, and the status says that two may go."""
    built = web_budget(full("batch", "web-a", "web-b"), allowed, desired=desired)
    assert victims(built) == [taken]


def test_evictions_under_way_use_up_an_allowance() -> None:
    built = web_budget(full("batch", "web-a", "web-b"), allowed=1, desired=1)
    built.assume("web-b-0", TaskStatus.RELEASING)
    assert victims(built, gpu=2) == ["batch-0"]


def test_a_spec_that_its_controller_has_not_seen_allows_nothing() -> None:
    assert victims(web_budget(full("batch", "web"), allowed=1, generation=2)) == ["batch-0"]


# Strict


def test_strict_budgets_are_not_exceeded() -> None:
    result = new(web_budget(full("web", mode=STRICT))).schedule()
    assert not result.evicted_pods()
    said = "PodDisruptionBudget default/web allows only 0 more evictions of its pods"
    assert said in why(result)
    both = new(web_budget(full("batch", "web", mode=STRICT)).with_actions("allocate", "preempt"), gpu=2).schedule()
    assert both.why("new").count(f"Workload may not evict others: {said}") == 1
    assert victims(web_budget(full("web", mode=STRICT), allowed=1)) == ["web-0"]


def test_strict_budgets_are_not_exceeded_together() -> None:
    result = new(web_budget(full("web-a", "web-b", mode=STRICT), allowed=1), gpu=2).schedule()
    assert not result.evicted_pods()
    assert "PodDisruptionBudget default/web allows only 1 more eviction of its pods" in why(result)


def test_strict_budgets_leave_other_victims() -> None:
    built = web_budget(full("batch", "web-a", "web-b", mode=STRICT), allowed=1)
    assert victims(built, gpu=2) == ["batch-0", "web-b-0"]


def test_a_strict_budget_protects_from_higher_priorities_too() -> None:
    """The job under it would go before all others, and is in no set of victims."""
    built = full(gpus=3, mode=STRICT)
    runs(built, "web", priority="low")
    runs(built, "old")
    runs(built, "young")
    assert victims(web_budget(built), gpu=2) == ["old-0", "young-0"]


def test_a_job_whose_allowance_another_could_use_is_a_victim() -> None:
    """Only the node of the older one has room for the preemptor."""
    built = searching(2, 1).with_policy(disruption_budgets=STRICT)
    old(built, "web-old", on=0, gpu=2, labels=WEB)
    old(built, "web-young", on=1, labels=WEB)
    assert victims(web_budget(built, allowed=1), gpu=2) == ["web-old-0"]


def test_strict_budgets_keep_the_minimum_of_an_elastic_gang() -> None:
    def taken(gpu: int) -> list[str]:
        built = full(gpus=3, mode=STRICT)
        runs(built, "web", pods=3, min=2)
        return victims(web_budget(built, allowed=1), gpu=gpu)

    assert taken(1) == ["web-2"]
    assert taken(2) == []


def test_only_budgets_of_possible_victims_are_named() -> None:
    """The job under the budget is as urgent as the one that waits."""
    built = full(gpus=2, mode=STRICT)
    runs(built, "web", priority="high")
    runs(built, "batch", priority="high")
    assert "PodDisruptionBudget" not in why(new(web_budget(built).gang("low", priority="low", gpu=1)).schedule())


def test_moving_a_pod_is_an_eviction() -> None:
    """Consolidation deletes what it moves."""

    def moved(mode: DisruptionMode) -> list[str]:
        built = searching(2, 2).with_actions("consolidation").with_policy(disruption_budgets=mode)
        old(built, "web-a", on=0, labels=WEB)
        old(built, "web-b", on=1, labels=WEB)
        return new(web_budget(built), gpu=2, priority="").schedule().evicted_pods()

    assert len(moved(PREFER)) == 1
    assert moved(STRICT) == []


# Which budget is named


def test_all_budgets_that_a_set_exceeds_are_counted() -> None:
    """Each of the two allows one eviction, and both pods are needed."""
    built = web_budget(full("web-a", "web-b", mode=STRICT), allowed=1)
    built.disruption_budget("all-web", 1, matchExpressions=[{"key": "app", "operator": "Exists"}])
    said = "PodDisruptionBudget default/all-web allows only 1 more eviction of its pods, and 1 more forbid it as well"
    assert said in why(new(built, gpu=2).schedule())


def test_of_budgets_that_protect_jobs_the_first_by_name_is_named() -> None:
    built = full("web", gpus=2, mode=STRICT)
    old(built, "store", labels={"app": "db"})
    web_budget(built).disruption_budget("db", 0, matchLabels={"app": "db"})
    said = "PodDisruptionBudget default/db allows only 0 more evictions of its pods, and 1 more forbid it as well"
    assert said in why(new(built).schedule())


def test_a_budget_says_how_many_evictions_are_left_of_it() -> None:
    """The gang needs both of its pods."""
    built = full(gpus=2, mode=STRICT)
    runs(built, "web", pods=2)
    said = "PodDisruptionBudget default/web allows only 1 more eviction of its pods"
    assert said in why(new(web_budget(built, allowed=1)).schedule())


def test_strict_budgets_keep_what_follows_a_protected_pod_of_its_gang() -> None:
    """The last pod to go would be within the budget alone, but not before the others of its gang."""
    built = searching(2, 2).with_policy(disruption_budgets=STRICT)
    built.group("web", minMember=0, preemptibility="preemptible")
    for index, (gpu, node) in enumerate(((2, "node-1"), (1, "node-0"), (1, "node-0"))):
        built.pod(f"web-{index}", group="web", gpu=gpu, on=node, labels=WEB)
    assert victims(web_budget(built, allowed=1), gpu=2) == []


def test_the_budget_that_first_protects_a_gang_is_named() -> None:
    """The first pod to go is within budget a, the second is not within b, and the third would exceed a."""
    built = searching(3).with_policy(disruption_budgets=STRICT)
    built.group("web", minMember=0, preemptibility="preemptible")
    for index, team in enumerate("aba"):
        built.pod(f"web-{index}", group="web", gpu=1, on="node-0", labels={"team": team})
    for team, allowed in (("a", 1), ("b", 0)):
        built.disruption_budget(team, allowed, matchLabels={"team": team})
    said = why(new(built, gpu=3).schedule())
    assert said.endswith("PodDisruptionBudget default/b allows only 0 more evictions of its pods")


def test_evictions_in_namespaces_without_budgets_spend_nothing() -> None:
    built = web_budget(full("web", gpus=2), allowed=1)
    runs(built, "young", namespace="elsewhere")
    new(built, name="first")
    assert new(built, name="second").schedule().evicted_pods() == ["young-0", "web-0"]
