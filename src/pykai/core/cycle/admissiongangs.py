"""A group that waits for admission to its queue, with the counters of a gang.

What `Gang` does for nodes is done here for the gate of the queue: a task behind no gate counts as allocated, one behind
the gate of the queue as pending, and one behind the gate of another program cannot be counted on.  Then "which tasks
next" has the same answer: the whole missing minimum of the subgroup tree, after that one task at a time (queues:Q-407).
"""

from __future__ import annotations

from pykai.core.cycle.gangs import Batch, Gang
from pykai.core.model.gates import Gate
from pykai.core.model.status import ALIVE, TaskStatus


class AdmissionGang(Gang):
    """A gang of which tasks are admitted instead of placed."""

    __slots__ = ("first_admitted_ns",)

    #: the earliest admission of a task that still waits for a node, None if there is none; may be in the future
    first_admitted_ns: int | None

    def _count_tasks(self) -> None:
        index = self.group.leaf_index
        admitted: list[int] = []
        for task in self.entry.tasks.values():
            position = index.get(task.subgroup)
            if position is None or not ALIVE[task.status]:
                continue
            leaf = self.leaves[position]
            leaf.total += 1
            leaf.alive += 1
            if task.held_by_queue:
                leaf.tasks.append(task)
            elif task.status is TaskStatus.GATED and task.gate in (Gate.QUEUE, Gate.FOREIGN):
                leaf.gated += 1
            else:
                leaf.active_allocated += 1
                since_ns = task.admitted_ns
                waits = task.status in (TaskStatus.PENDING, TaskStatus.GATED)
                if since_ns is not None and waits and task.for_this_scheduler and task.was_admitted(since_ns):
                    admitted.append(since_ns)
        self.first_admitted_ns = min(admitted, default=None)

    def is_partly_admitted(self, now_ns: int) -> bool:
        """Whether a part of its minimum was admitted and the rest was not: a scheduler died (queues:Q-408).

        Only pods with a time of admission count: one that came without a gate must not take its gang past the line.
        """
        return self.first_admitted_ns is not None and self.first_admitted_ns <= now_ns and not self.satisfied

    def admit(self, batches: list[Batch]) -> None:
        """Count tasks as admitted."""
        for batch in batches:
            count = len(batch.tasks)
            batch.leaf.active_allocated += count
            batch.leaf.unplaced -= count
            self.unplaced -= count
        self.mark_changed()
