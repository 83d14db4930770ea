"""Actions: what a cycle does, one function each; the configuration gives the order."""

from __future__ import annotations

from collections.abc import Callable

from pykai.core.actions.allocate import allocate
from pykai.core.session import Session

#: Upstream's names.
ACTIONS: dict[str, Callable[[Session], None]] = {
    "allocate": allocate,
}

#: Names a configuration may use although the engine does not know them yet.
PLANNED_ACTIONS = ("consolidation", "reclaim", "preempt", "stalegangeviction")
