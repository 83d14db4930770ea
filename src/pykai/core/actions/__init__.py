"""Actions: what a cycle does, one function each; the configuration gives the order."""

from __future__ import annotations

from collections.abc import Callable

from pykai.core.actions.allocate import allocate
from pykai.core.actions.consolidate import consolidate
from pykai.core.actions.preempt import preempt
from pykai.core.actions.reclaim import reclaim
from pykai.core.actions.stale_gangs import evict_stale_gangs
from pykai.core.cycle.session import Session

#: Upstream's names.
ACTIONS: dict[str, Callable[[Session], None]] = {
    "allocate": allocate,
    "consolidation": consolidate,
    "reclaim": reclaim,
    "preempt": preempt,
    "stalegangeviction": evict_stale_gangs,
}
