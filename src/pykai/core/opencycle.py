"""A cycle under way: its context, its state, its decisions, and the parts that work on them.

Only actions and the ends of a cycle take a whole `Cycle`; everything below takes the parts it needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.context import CycleContext
from pykai.core.cycle.cyclegangs import CycleGangs
from pykai.core.cycle.recording import Decisions
from pykai.core.cycle.reuse import ReusableState
from pykai.core.cycle.state import State
from pykai.core.eviction.search import VictimFinder
from pykai.core.eviction.tables import EvictionTables
from pykai.core.eviction.trial import TrialRunner
from pykai.core.hooks import Hooks, Rules
from pykai.core.listening import SILENT, CycleListener
from pykai.core.model.problems import Problem
from pykai.core.model.queuetree import CPU, GPU, MEMORY
from pykai.core.placing.gang import GangPlacer
from pykai.core.placing.ranking import Rankings
from pykai.core.placing.task import TaskPlacer
from pykai.core.plugins import SWITCHED_OFF
from pykai.core.plugins.isolation import prepare_isolated
from pykai.core.policy import Policy
from pykai.core.queueing.fairshare import FairShareSettings
from pykai.core.queueing.openledger import open_ledger


@dataclass(frozen=True, slots=True)
class Cycle:
    """The parts of one cycle."""

    context: CycleContext
    state: State
    decisions: Decisions
    gangs: CycleGangs
    rankings: Rankings
    placer: GangPlacer
    tables: EvictionTables
    victims: VictimFinder

    def close(self) -> None:
        """Drop what refers back to the state or the snapshot, so that all of a cycle is freed when it ends.

        Otherwise every cycle would wait for the garbage collector, which runs rarely (`scheduler/gccontrol.py`).

        Statements: cycle:CYC-7.
        """
        self.rankings.clear()
        self.context.snapshot.memo.clear()
        self.context.snapshot.shared.clear()


def open_cycle(
    snapshot: Snapshot,
    policy: Policy,
    reuse: ReusableState | None = None,
    extra_hooks: Iterable[Hooks] = (),
    listener: CycleListener = SILENT,
) -> Cycle:
    """Prepare the rules, open the ledgers and put the parts together."""
    problems: list[Problem] = []
    listener.cycle_began()
    rules = Rules.combine([*_hooks(snapshot, policy, problems, listener), *extra_hooks])
    context = CycleContext.of(snapshot, policy, rules, listener)
    rankings = Rankings(rules)
    state = _open_state(context, rankings)
    decisions = Decisions(problems)
    gangs = CycleGangs(context, state, reuse or ReusableState(snapshot, policy))
    placer = GangPlacer(context, gangs, TaskPlacer(state, rules, rankings, decisions), decisions)
    tables = EvictionTables(state, gangs, rules, policy.disruption_budgets)
    trials = TrialRunner(gangs, placer, tables)
    victims = VictimFinder(context, gangs, rankings, tables, trials)
    return Cycle(context, state, decisions, gangs, rankings, placer, tables, victims)


def _hooks(snapshot: Snapshot, policy: Policy, problems: list[Problem], listener: CycleListener) -> list[Hooks]:
    """The hooks of all plugins, in configured order, and of those that are switched off."""
    if any(named.third_party for named in policy.plugins):
        # What they read is not known.
        snapshot.read_running()
    hooks = []
    for named in policy.plugins:
        if named.third_party:
            hooks.append(prepare_isolated(named.name, named.plugin, snapshot, problems.append))
        else:
            hooks.append(named.plugin.prepare(snapshot))
        listener.plugin_prepared(named.name)
    configured = {named.name for named in policy.plugins}
    hooks += [without(snapshot, problems.append) for name, without in SWITCHED_OFF.items() if name not in configured]
    return hooks


def _fair_share_settings(policy: Policy) -> FairShareSettings:
    """Those of the first plugin that has any."""
    for named in policy.plugins:
        settings = getattr(named.plugin, "fair_share_settings", None)
        if isinstance(settings, FairShareSettings):
            return settings
    return FairShareSettings()


def _open_state(context: CycleContext, rankings: Rankings) -> State:
    snapshot, policy, rules = context.snapshot, context.policy, context.rules
    settings = _fair_share_settings(policy)
    ledger = open_ledger(
        snapshot,
        usage=_usage_columns(snapshot, policy) if policy.usage else None,
        k=settings.k_value,
        strict_remainders=settings.strict_remainders,
        task_key=rules.task_order,
        count_held=policy.gates_queues,
    )
    return State(
        snapshot,
        ledger,
        observers=rules.observers,
        discrete_ledgers=rules.discrete_ledgers,
        quota_gate=rules.quota_gate,
        gpu_scores=rules.gpu_scores,
        allowed_nodes=rankings.allowed_nodes,
    )


def _usage_columns(snapshot: Snapshot, policy: Policy) -> list[list[float]]:
    rows = [policy.usage.get(name, (0.0, 0.0, 0.0)) for name in snapshot.tree.names]
    return [[row[resource] for row in rows] for resource in (CPU, MEMORY, GPU)]
