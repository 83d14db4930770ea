"""Queues as a forest, and the sums of the groups in them (queues:Q-40 to Q-44).

Every group adds to its queue and to all queues above.  Sums are made from the groups themselves and not from the
children's statuses, so all levels are right at once.  Changes give the names of the queues they concern; totals are
remembered until then.

Subtle: parents in a cycle have no top.  The links of the cycle are ignored in sums, so each of its queues counts its
own groups and those of the queues below it, and sums stay finite.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pykai.api.amounts import NanoAmounts, add_amounts, read_amounts


@dataclass(slots=True)
class QueueUsage:
    """What groups request and hold."""

    requested: NanoAmounts = field(default_factory=dict)
    allocated: NanoAmounts = field(default_factory=dict)
    allocated_non_preemptible: NanoAmounts = field(default_factory=dict)

    def add(self, other: QueueUsage, sign: int = 1) -> None:
        """Add, or subtract (-1)."""
        add_amounts(self.requested, other.requested, sign)
        add_amounts(self.allocated, other.allocated, sign)
        add_amounts(self.allocated_non_preemptible, other.allocated_non_preemptible, sign)

    @classmethod
    def of_group(cls, resources_status: object) -> QueueUsage:
        """As the status of a PodGroup says; what cannot be read counts as nothing."""
        status = resources_status if isinstance(resources_status, dict) else {}
        return cls(
            read_amounts(status.get("requested")),
            read_amounts(status.get("allocated")),
            read_amounts(status.get("allocatedNonPreemptible")),
        )


class QueueForest:
    """Parents, children and sums of all queues."""

    def __init__(self) -> None:
        #: queue -> its parent, "" at the top
        self._parents: dict[str, str] = {}
        #: parent, which need not exist -> queues that name it
        self._children: dict[str, set[str]] = {}
        #: group -> its queue and sums
        self._groups: dict[str, tuple[str, QueueUsage]] = {}
        #: queue, which need not exist -> sums of its own groups
        self._own_usage: dict[str, QueueUsage] = {}
        self._totals: dict[str, QueueUsage] = {}

    def __contains__(self, queue: str) -> bool:
        return queue in self._parents

    def put_queue(self, queue: str, parent: str) -> set[str]:
        """Add a queue, or change its parent; returns the queues whose status may change."""
        affected = self._with_ancestors(queue) if queue in self._parents else set()
        self._unlink(queue)
        self._parents[queue] = parent
        if parent:
            self._children.setdefault(parent, set()).add(queue)
        return self._invalidate_totals(affected | self._with_ancestors(queue) | self._children.get(queue, set()))

    def drop_queue(self, queue: str) -> set[str]:
        """Remove a queue; returns the queues whose status may change."""
        if queue not in self._parents:
            return set()
        affected = self._with_ancestors(queue) | self._children.get(queue, set())
        self._unlink(queue)
        del self._parents[queue]
        return self._invalidate_totals(affected) - {queue}

    def put_group(self, key: str, queue: str, sums: QueueUsage | None) -> set[str]:
        """Set the queue and sums of a group, or remove it (None); returns the queues whose status may change."""
        affected: set[str] = set()
        previous = self._groups.pop(key, None)
        if previous is not None:
            if sums is not None and previous == (queue, sums):
                self._groups[key] = previous
                return set()
            own = self._own_usage.setdefault(previous[0], QueueUsage())
            own.add(previous[1], -1)
            if own == QueueUsage():
                del self._own_usage[previous[0]]
            affected |= self._with_ancestors(previous[0])
        if sums is not None:
            self._groups[key] = (queue, sums)
            self._own_usage.setdefault(queue, QueueUsage()).add(sums)
            affected |= self._with_ancestors(queue)
        return self._invalidate_totals(affected)

    def children(self, queue: str) -> list[str]:
        """Names of the queues that name this one as their parent, in order."""
        return sorted(self._children.get(queue, ()))

    def is_orphan(self, queue: str) -> bool:
        """Whether the queue names a parent that does not exist."""
        parent = self._parents.get(queue, "")
        return bool(parent) and parent not in self._parents

    def is_cyclic(self, queue: str) -> bool:
        """Whether the queue is its own ancestor."""
        return any(name == queue for name in self._ancestors(self._parents.get(queue, "")))

    def total(self, queue: str) -> QueueUsage:
        """Sums of the groups in this queue and in all queues below it; not to be changed."""
        order: list[str] = []
        stack = [queue]
        while stack:
            name = stack.pop()
            if name in self._totals:
                continue
            order.append(name)
            # A queue has one parent, so without those in a cycle each is met once.
            stack.extend(child for child in self._children.get(name, ()) if not self.is_cyclic(child))
        for name in reversed(order):
            sums = QueueUsage()
            sums.add(self._own_usage.get(name, QueueUsage()))
            for child in self._children.get(name, ()):
                if not self.is_cyclic(child):
                    sums.add(self._totals[child])
            self._totals[name] = sums
        return self._totals[queue]

    def _unlink(self, queue: str) -> None:
        parent = self._parents.get(queue, "")
        siblings = self._children.get(parent)
        if siblings is not None:
            siblings.discard(queue)
            if not siblings:
                del self._children[parent]

    def _ancestors(self, queue: str) -> Iterator[str]:
        """The queue, its parent and so on, each once."""
        seen: set[str] = set()
        while queue and queue not in seen and queue in self._parents:
            seen.add(queue)
            yield queue
            queue = self._parents[queue]

    def _with_ancestors(self, queue: str) -> set[str]:
        return set(self._ancestors(queue))

    def _invalidate_totals(self, queues: set[str]) -> set[str]:
        for queue in queues:
            self._totals.pop(queue, None)
        return queues
