"""One scheduling cycle, from a snapshot to a plan.  Read this first.

    schedule(snapshot, policy, memory) -> Plan

1. Plugins prepare their rules for this snapshot (`hooks.py`).
2. The queue ledger is opened: sums per queue, fair shares (`queueing/queueledger.py`).
3. The actions run one after the other on one mutable `State` and see each other's effects (cycle:CYC-6).
4. What happened, and why the rest waits, becomes a `Plan` (`decisions.py`).

No clock, no randomness, no I/O: the same snapshot and policy give the same bytes, with or without a memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from pykai.core.actions import ACTIONS
from pykai.core.cluster.runningsums import RunningSums
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.memory import CycleMemory
from pykai.core.cycle.reuse import ReusableState
from pykai.core.cycle.session import Session
from pykai.core.cycle.state import State
from pykai.core.hooks import Rules
from pykai.core.model.problems import Problem
from pykai.core.model.queuetree import CPU, GPU, MEMORY
from pykai.core.plan import build_plan
from pykai.core.plugins.dynamicresources import hooks_without_claims
from pykai.core.plugins.guard import prepare_guarded
from pykai.core.plugins.proportion import Proportion
from pykai.core.policy import Policy
from pykai.core.queueing.openledger import open_ledger
from pykai.core.report.decisions import Plan


def open_session(snapshot: Snapshot, policy: Policy, reuse: ReusableState | None = None) -> Session:
    """Prepare the rules and open the books."""
    problems: list[Problem] = []
    if any(named.third_party for named in policy.plugins):
        # Nobody knows what they read.
        snapshot.inspected_running = True
    hooks = [
        prepare_guarded(named.name, named.plugin, snapshot, problems.append)
        if named.third_party
        else named.plugin.prepare(snapshot)
        for named in policy.plugins
    ]
    if not any(named.name == "dynamicresources" for named in policy.plugins):
        hooks.append(hooks_without_claims(snapshot))
    rules = Rules.combine(hooks)
    if not any(named.name == "topology" for named in policy.plugins):
        problems += _unenforced_topology_constraints(snapshot)
    proportion = next((n.plugin for n in policy.plugins if isinstance(n.plugin, Proportion)), Proportion())
    usage = _usage_columns(snapshot, policy) if policy.usage else None
    ledger = open_ledger(
        snapshot,
        usage=usage,
        k=proportion.k_value,
        strict_remainders=proportion.strict_remainders,
        task_key=rules.task_order,
    )
    state = State(snapshot, ledger)
    state.observers.extend(rules.observers)
    state.discrete_ledgers = rules.discrete_ledgers
    state.quota_gate = rules.quota_gate
    state.gpu_scores = rules.gpu_scores
    return Session(snapshot, policy, rules, state, problems, reuse)


def run_actions(session: Session) -> None:
    """Run the actions of the policy in order."""
    for name in session.policy.actions:
        ACTIONS[name](session)


def schedule(snapshot: Snapshot, policy: Policy, memory: CycleMemory | None = None) -> Plan:
    """One cycle.  A memory of the last one saves work and changes nothing."""
    if memory is None:
        with closing(open_session(snapshot, policy)) as session:
            run_actions(session)
            return build_plan(session)
    plan = memory.recall(snapshot, policy)
    if plan is None:
        running_sums = RunningSums(snapshot.columns, snapshot.foreign_usage, snapshot.group_index)
        reuse = memory.reuse = ReusableState.reuse_or_create(memory.reuse, snapshot, policy)
        with closing(open_session(snapshot, policy, reuse)) as session:
            run_actions(session)
            plan = build_plan(session)
            memory.store(snapshot, policy, plan, session.state.valid_until_ns, running_sums)
            reuse.gangs = session.unchanged_waiting_gangs()
    return plan


def _unenforced_topology_constraints(snapshot: Snapshot) -> Iterator[Problem]:
    """Groups that wait and ask for a topology that nobody looks after (topo:TD-22)."""
    for key in sorted(snapshot.group_index.topology_constrained):
        if snapshot.groups[key].pending:
            text = "not kept, because the plugin topology is switched off"
            yield Problem(f"PodGroup/{key}", "spec.topologyConstraint", text)


def _usage_columns(snapshot: Snapshot, policy: Policy) -> list[list[float]]:
    rows = [policy.usage.get(name, (0.0, 0.0, 0.0)) for name in snapshot.tree.names]
    return [[row[resource] for row in rows] for resource in (CPU, MEMORY, GPU)]
