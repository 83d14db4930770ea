"""A row of the table of actions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pykai.core.opencycle import Cycle
from pykai.core.report.evictions import EvictionTexts


@dataclass(frozen=True, slots=True)
class Action:
    """One step of a cycle."""

    #: upstream's name: configurations, metrics and decisions use it
    name: str
    #: gets this record too, for the name and the texts
    run: Callable[[Cycle, Action], None]
    #: whether it searches for victims and so has a budget of work (cycle:13.2)
    has_budget: bool = False
    #: the text for the pods it evicts; None = it evicts none
    texts: EvictionTexts | None = None

    def run_in(self, cycle: Cycle) -> None:
        """Run the action."""
        self.run(cycle, self)
