"""Where the decisions of a cycle go, and what is told about them.

The loop knows these two faces only.  A scheduler that works has `Dispatcher` and `Announcer` behind them, which write;
one that only watches has `Shadow` behind both, which logs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pykai.core.report.decisions import Plan
from pykai.scheduler.dispatch.gangbinding import Consult
from pykai.scheduler.status.statusdiff import News


class PlanOutlet(Protocol):
    """Carries out plans."""

    @property
    def busy(self) -> bool:
        """Whether binds are going out."""
        ...

    @property
    def open_plans(self) -> int:
        """Gangs that are not settled."""
        ...

    async def take_over(self, consult: Consult) -> None:
        """Become responsible for what others began; `consult` asks the engine whether it still holds."""
        ...

    async def carry_out(self, plan: Plan, as_of: int = 0) -> None:
        """Assume what was decided, and see to it; `as_of` counts the arrivals that the cycle has seen."""
        ...

    def clear_away(self, keys: Iterable[str]) -> None:
        """These BindRequests lead nowhere."""
        ...

    def held_back(self) -> set[str]:
        """Groups that need not be told why they wait."""
        ...

    async def settle(self, timeout_s: float = 10.0) -> bool:
        """Wait for what is going out; False when that took too long."""
        ...

    def stop(self) -> None:
        """Start nothing more."""
        ...


class NewsOutlet(Protocol):
    """Tells the cluster, or whoever reads the log."""

    async def announce(self, news: News) -> None:
        """Everything that changed with a plan."""
        ...

    def object_event(self, kind: str, key: str, type_: str, reason: str, text: str) -> None:
        """Something about an object of any kind."""
        ...
