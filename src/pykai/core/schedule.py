"""One scheduling cycle, from a snapshot to a plan.  Read this first.

    schedule(snapshot, policy, memory) -> Plan

1. Plugins prepare their rules for this snapshot (`hooks.py`).
2. The queue ledger is opened: sums per queue, fair shares (`queueing/queueledger.py`).
3. The actions run one after the other on one mutable `State` and see each other's effects (cycle:CYC-6).
4. The decisions, and the reasons of waiting pods, become a `Plan` (`plan.py`).

No clock, no randomness, no I/O: the same snapshot and policy give the same bytes, with or without a memory.  A listener
may hear how a cycle goes (`listening.py`).
"""

from __future__ import annotations

from contextlib import closing

from pykai.api import names
from pykai.core.actions import ACTIONS
from pykai.core.cluster.runningsums import RunningSums
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.memory import CycleMemory
from pykai.core.cycle.reuse import ReusableState
from pykai.core.listening import SILENT, CycleListener
from pykai.core.opencycle import Cycle, open_cycle
from pykai.core.plan import build_plan
from pykai.core.policy import Policy
from pykai.core.report.decisions import Plan


def run_actions(cycle: Cycle) -> None:
    """Run the actions of the policy in order.

    Gates of queues are opened also where no action is configured for them, so that switching the feature off leaves no
    pod behind (queues:Q-407).
    """
    actions = cycle.context.policy.actions
    if cycle.context.snapshot.held_by_queue and names.ACTION_UNGATE not in actions:
        actions = (*actions, names.ACTION_UNGATE)
    for name in actions:
        cycle.context.listener.action_began(name)
        ACTIONS[name].run_in(cycle)
        cycle.context.listener.action_ended()


def schedule(
    snapshot: Snapshot, policy: Policy, memory: CycleMemory | None = None, listener: CycleListener = SILENT
) -> Plan:
    """One cycle.  A memory of the last one saves work and changes nothing, a listener changes nothing either."""
    if memory is None:
        with closing(open_cycle(snapshot, policy, listener=listener)) as cycle:
            run_actions(cycle)
            return build_plan(cycle)
    plan = memory.recall(snapshot, policy)
    if plan is None:
        running_sums = RunningSums(snapshot.columns, snapshot.foreign_usage, snapshot.group_index)
        reuse = memory.reuse = ReusableState.reuse_or_create(memory.reuse, snapshot, policy)
        with closing(open_cycle(snapshot, policy, reuse, listener=listener)) as cycle:
            run_actions(cycle)
            plan = build_plan(cycle)
            memory.store(snapshot, policy, plan, cycle.state.valid_until_ns, running_sums)
            reuse.gangs = cycle.gangs.unchanged_waiting()
    return plan
