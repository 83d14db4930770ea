"""Actions: what a cycle does, one row each; the configuration gives the order."""

from __future__ import annotations

from pykai.api import names
from pykai.core.actions.action import Action
from pykai.core.actions.allocate import allocate
from pykai.core.actions.consolidate import consolidate
from pykai.core.actions.preempt import preempt
from pykai.core.actions.reclaim import reclaim
from pykai.core.actions.stale_gangs import evict_stale_gangs
from pykai.core.actions.ungate import ungate
from pykai.core.report.evictions import MOVED, PREEMPTED, RECLAIMED, STALE

#: By name.
ACTIONS: dict[str, Action] = {
    action.name: action
    for action in (
        Action(names.ACTION_ALLOCATE, allocate),
        Action(names.ACTION_CONSOLIDATION, consolidate, has_budget=True, texts=MOVED),
        Action(names.ACTION_RECLAIM, reclaim, has_budget=True, texts=RECLAIMED),
        Action(names.ACTION_PREEMPT, preempt, has_budget=True, texts=PREEMPTED),
        Action(names.ACTION_STALE_GANG_EVICTION, evict_stale_gangs, texts=STALE),
        Action(names.ACTION_UNGATE, ungate),
    )
}
