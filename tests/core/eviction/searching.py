"""Clusters in which only preempt runs, and the sets of victims that its generators offer."""

from typing import Any

from pykai.core.cycle.cyclegangs import total_amounts
from pykai.core.cycle.gangs import Gang
from pykai.core.eviction.balance import ResourceBalance
from pykai.core.eviction.freegpus import feasible_nodes
from pykai.core.eviction.readunits import ReadUnits
from pykai.core.eviction.scenarios import GENERATORS, ONE_BY_ONE, ScenarioInput
from pykai.core.eviction.trial import Preemptor, Victim
from pykai.core.eviction.victimorder import VictimOrder
from pykai.core.opencycle import Cycle
from tests.core.builders import Cluster, cluster

LOCAL, MULTI = "NodeLocalGreedy", "MultiNodeGang"


def searching(*nodes: int, **node: Any) -> Cluster:
    """Nodes with so many GPUs each, on which only preempt runs."""
    built = cluster().with_actions("preempt").queue("q").priority_class("high", 90)
    for gpus in nodes:
        built.node(gpus=gpus, **node)
    return built


def old(built: Cluster, name: str, on: int | str = 0, pods: int = 1, **job: Any) -> Cluster:
    """A job that runs; jobs added later are younger, so they are taken first."""
    return built.gang(name, pods, **{"gpu": 1, "on": f"node-{on}", **job})


def new(built: Cluster, pods: int = 1, name: str = "new", **job: Any) -> Cluster:
    """A job that waits."""
    return built.gang(name, pods, **{"gpu": 1, "priority": "high", **job})


def one_per_node(pods: int, nodes: int) -> Cluster:
    """A gang of pods that share no node, which the bounds do not see."""
    built = searching(*[2] * nodes)
    for index in range(nodes):
        old(built, f"old-{index}", index, gpu=2)
    container: dict[str, Any] = {"name": "main", "resources": {"requests": {"nvidia.com/gpu": "1"}}}
    container["ports"] = [{"containerPort": 80, "hostPort": 80}]
    return new(built, pods, spec={"containers": [container]})


def gang_of(cycle: Cycle, name: str) -> Gang:
    return cycle.gangs.gang(cycle.context.snapshot.group_entries[f"default/{name}"])


def scenarios_of(
    built: Cluster,
    *,
    recorded: tuple[str, ...] = (),
    name: str = "new",
    losing: frozenset[int] | None = None,
    one_by_one: int = ONE_BY_ONE,
) -> tuple[ScenarioInput, ReadUnits]:
    """The input of the generators and the units they read; `recorded` are pods that a smaller part needs already."""
    cycle = built.cycle()
    gang = gang_of(cycle, name)
    batches = cycle.gangs.next_tasks(gang)
    victims = cycle.tables.victims()
    order = VictimOrder(
        cycle.state,
        cycle.context.rules,
        victims,
        sorted(victims.units_by_leaf_queue),
        lambda victim: victim is not gang,
    )
    required = total_amounts(cycle.context.snapshot.vectors, batches, cycle.context.smallest_gpu_mib)
    preemptor = Preemptor(gang, batches, required, feasible_nodes(cycle.state, batches), cycle.tables.waiting_lines())
    everyone = {
        member.task.name: Victim(unit.gang, member)
        for line in victims.units_by_leaf_queue.values()
        for _, _, unit in line
        for member in unit.members
    }
    known = [everyone[pod] for pod in recorded]
    bounds, balance = (
        cycle.victims.bounds_of(gang, batches),
        ResourceBalance(cycle.context, cycle.state, batches, losing),
    )
    read = ReadUnits(order, cycle.context.snapshot)
    return ScenarioInput(cycle.context, cycle.state, preemptor, read, bounds, balance, known, one_by_one), read


def names_of(victims: list[Victim]) -> list[str]:
    return [victim.member.task.name for victim in victims]


def sets_of(
    built: Cluster,
    way: str,
    *,
    recorded: tuple[str, ...] = (),
    name: str = "new",
    losing: frozenset[int] | None = None,
    one_by_one: int = ONE_BY_ONE,
) -> list[list[str]]:
    """The victim sets of one generator, as names of pods; `recorded` are pods that a smaller part needs already."""
    scenario, _ = scenarios_of(built, recorded=recorded, name=name, losing=losing, one_by_one=one_by_one)
    return [names_of(found) for found in GENERATORS[way](scenario)]


def ways(built: Cluster, *plugins: str) -> Cluster:
    """Choose victims by these plugins only."""
    names = ("predicates", "proportion", "priority", "elastic", "nodeavailability", "gpupack", *plugins)
    return built.configured({"actions": "preempt", "tiers": [{"plugins": [{"name": name} for name in names]}]})
