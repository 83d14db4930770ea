"""What a listener hears of a cycle, and that it changes nothing."""

from __future__ import annotations

from dataclasses import replace

from pykai.core.listening import CycleListener
from pykai.core.schedule import schedule
from tests.core.builders import NOW_NS, Cluster, cluster
from tests.core.eviction.searching import one_per_node


class Recorder(CycleListener):
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, ...]] = []

    def cycle_began(self) -> None:
        self.heard.append(("cycle",))

    def plugin_prepared(self, plugin: str) -> None:
        self.heard.append(("plugin", plugin))

    def action_began(self, action: str) -> None:
        self.heard.append(("action", action))

    def action_ended(self) -> None:
        self.heard.append(("end",))

    def generator_began(self, generator: str) -> None:
        self.heard.append(("generator", generator))

    def scenarios_left_out(self, count: int) -> None:
        self.heard += [("left out",)] * count

    def scenario_ended(self, result: str) -> None:
        self.heard.append(("scenario", result))

    def search_ended(self, result: str, *, reduced_budget: bool) -> None:
        self.heard.append(("search", result, str(reduced_budget)))


def heard(built: Cluster, *kinds: str) -> list[tuple[str, ...]]:
    """What a listener hears of these kinds; the plan is the same without it."""
    recorder = Recorder()
    plan = schedule(built.tables().snapshot(NOW_NS), built.policy(), listener=recorder)
    assert plan.encoded() == built.schedule().plan.encoded()
    return [each for each in recorder.heard if each[0] in kinds or not kinds]


def claim(pods: int = 2) -> Cluster:
    """A gang that reclaim can help."""
    return (
        cluster(nodes=2, gpus=2)
        .with_actions("allocate", "reclaim")
        .queue("poor", quota=2)
        .queue("rich", quota=0, weight=0)
        .gang("rich-0", 2, gpu=1, queue="rich", on="node-0")
        .gang("rich-1", 2, gpu=1, queue="rich", on="node-1")
        .gang("claim", pods, gpu=1, queue="poor")
    )


def test_plugins_are_prepared_and_then_each_action_begins_and_ends() -> None:
    """cycle:20."""
    built = claim()
    plugins = [("plugin", named.name) for named in built.policy().plugins]
    steps = heard(built, "cycle", "plugin", "action", "end")
    assert steps == [("cycle",), *plugins, ("action", "allocate"), ("end",), ("action", "reclaim"), ("end",)]


def test_a_search_that_succeeds_says_so_once() -> None:
    """cycle:20, SOL-3."""
    search = heard(claim(), "generator", "scenario", "search")
    assert search[0] == ("generator", "NodeLocalGreedy")
    assert search[-2:] == [("scenario", "solved"), ("search", "solved", "False")]


def test_a_set_that_does_not_suffice_is_unsolved_and_a_duplicate_the_next_time() -> None:
    """cycle:20, SOL-2: the second pod would share a node."""
    results = heard(one_per_node(2, 1), "generator", "scenario")
    first, second = results[: results.index(("generator", "MultiNodeGang"))], results[-2:]
    assert ("scenario", "unsolved") in first
    assert second == [("scenario", "duplicate"), ("scenario", "generators_exhausted")]
    assert ("search", "generators_exhausted", "False") in heard(one_per_node(2, 1))


def test_a_set_that_a_rule_forbids_is_rejected() -> None:
    """cycle:20, SOL-15: part of a gang would be left."""
    built = cluster().with_actions("preempt").queue("q").priority_class("low", 10)
    built.node("wide", cpu=3).node("short", pods=2)
    built.group("victim", minMember=3, priorityClassName="low", preemptibility="preemptible")
    for index, node in enumerate(("wide", "wide", "short")):
        built.pod(f"victim-{index}", group="victim", on=node)
    assert ("scenario", "validator_rejected") in heard(built.gang("job", 3))


def test_a_set_that_frees_too_little_is_left_out() -> None:
    """cycle:SOL-8: two GPUs of one node are wanted, and the victims are evicted one by one."""
    built = cluster(nodes=1, gpus=2).with_actions("reclaim").queue("poor", quota=2).queue("rich", quota=0, weight=0)
    built.gang("a", gpu=1, queue="rich", on="node-0").gang("b", gpu=1, queue="rich", on="node-0")
    built.gang("claim", gpu=2, queue="poor")
    assert heard(built, "left out", "scenario") == [("left out",), ("scenario", "solved")]


def test_a_search_with_less_than_its_share_is_reduced() -> None:
    """cycle:SOL-6."""
    for limit, reduced in ((1000, "False"), (40, "True")):
        built = claim()
        budgets = replace(built.policy().search_budgets, actions={"reclaim": limit}, job=50)
        assert heard(built.with_policy(search_budgets=budgets), "search") == [("search", "solved", reduced)]
