"""Where the decisions of a cycle go, and where their reasons are published.

The loop knows these two protocols only.  `Dispatcher` and `StatusEvents` write; in shadow mode `Shadow` implements both
and logs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pykai.core.report.decisions import Plan
from pykai.scheduler.enginequery import EngineQuery
from pykai.scheduler.status.statusdiff import StatusDiff


class PlanSink(Protocol):
    """Carries out plans."""

    @property
    def has_binds_in_flight(self) -> bool:
        """Whether binds are in progress."""
        ...

    @property
    def unsettled_gangs(self) -> int:
        """Gangs that are not settled."""
        ...

    async def take_over(self, query_engine: EngineQuery) -> None:
        """Take over what the last leader began; `query_engine` checks whether it is still valid."""
        ...

    async def dispatch(self, plan: Plan, seen_generation: int = 0) -> None:
        """Assume the decisions, and carry them out; `seen_generation` counts the node changes the cycle has seen."""
        ...

    def delete_dead_requests(self, keys: Iterable[str]) -> None:
        """Delete dead BindRequests."""
        ...

    def groups_backing_off(self) -> set[str]:
        """Groups whose reasons are already published."""
        ...

    async def drain(self, timeout_s: float = 10.0) -> bool:
        """Wait for writes in progress; False on a timeout."""
        ...

    def stop(self) -> None:
        """Start nothing more."""
        ...


class StatusSink(Protocol):
    """Publishes reasons to the cluster, or to the log."""

    async def publish(self, diff: StatusDiff) -> None:
        """Publish everything that changed with a plan."""
        ...

    def object_event(self, kind: str, key: str, type_: str, reason: str, text: str) -> None:
        """Publish an event about an object of any kind."""
        ...
