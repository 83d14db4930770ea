"""What a cycle reports while it runs, for metrics.

The engine has no clock.  A caller that wants durations passes a `CycleListener` that has one: each call says that a
step has just ended, and the time since the call before is what the step took.  The default hears nothing and costs a
call per step; nothing is reported per task or node.
"""

from __future__ import annotations


class CycleListener:
    """Hears how a cycle goes; answers nothing, so it cannot change the plan."""

    def cycle_began(self) -> None:
        """Plugins are prepared next."""

    def plugin_prepared(self, plugin: str) -> None:
        """A plugin has prepared its rules."""

    def action_began(self, action: str) -> None:
        """An action runs next."""

    def action_ended(self) -> None:
        """It has run."""

    def generator_began(self, generator: str) -> None:
        """A generator of victim sets is asked next, for the present action."""

    def scenarios_left_out(self, count: int) -> None:
        """So many sets of victims were not tried, because they cannot suffice."""

    def scenario_ended(self, result: str) -> None:
        """A set of victims was tried, or the generator has no more of them (cycle:20)."""

    def search_ended(self, result: str, *, reduced_budget: bool) -> None:
        """The search for one gang is over; with less work than a search may take at most (cycle:SOL-6)."""


SILENT = CycleListener()

#: what becomes of a set of victims (cycle:20)
SOLVED = "solved"
UNSOLVED = "unsolved"
VALIDATOR_REJECTED = "validator_rejected"
DUPLICATE = "duplicate"
#: a generator has no set left
GENERATORS_EXHAUSTED = "generators_exhausted"
