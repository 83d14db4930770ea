"""Queries of the engine between two cycles."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from pykai.core.cluster.snapshot import Snapshot
from pykai.core.policy import Policy

T = TypeVar("T")


class EngineQuery(Protocol):
    """Queries the engine about the cluster as it is now; also returns the generation of nodes it has seen."""

    def __call__(
        self, query: Callable[[Snapshot, Policy], T], prepare: Callable[[], None] = ..., /
    ) -> Awaitable[tuple[T, int]]:
        """The result; `prepare` runs right before, and no cycle in between."""
        ...
