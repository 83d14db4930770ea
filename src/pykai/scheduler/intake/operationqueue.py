"""Changes of the tables between two cycles, in the order in which they came."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pykai.scheduler.intake.backlog import Backlog
from pykai.scheduler.intake.operations import TableOperation


class OperationQueue:
    """The changes for the next cycle.  Lives on the event loop."""

    def __init__(self) -> None:
        #: called with every change that a cycle should see
        self.request_cycle: Callable[[], None] = lambda: None
        self._operations: list[TableOperation] = []
        self._backlog = Backlog()

    def __len__(self) -> int:
        return len(self._operations) + len(self._backlog)

    def add(self, operation: TableOperation) -> None:
        """Add a change that should start a cycle."""
        self._operations.append(operation)
        self.request_cycle()

    def add_quietly(self, operation: TableOperation) -> None:
        """Add a change that need not start a cycle: the last cycle already used it."""
        self._operations.append(operation)

    def take(self) -> list[TableOperation]:
        """The changes for the next cycle; the excess of a namespace is left for the one after."""
        taken, self._operations = self._backlog.admit(self._operations), []
        if self._backlog:
            self.request_cycle()
        return taken

    def replace(self, operations: Iterable[TableOperation]) -> None:
        """Start over with these, for new tables."""
        self._backlog.clear()
        self._operations = list(operations)
        self.request_cycle()
