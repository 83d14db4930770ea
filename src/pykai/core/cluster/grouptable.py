"""Groups with their tasks, and what these use and request.

Groups and tasks come and go in any order: a group may be there before its tasks, or tasks before their group.  Which
groups changed is only noted; `refresh` counts them when a snapshot is taken.
"""

from __future__ import annotations

from collections.abc import Mapping

from pykai.core.cluster.groupindex import GroupEntry, GroupIndex, HeldTasks, count_terminating
from pykai.core.cluster.queueaccess import QueueAccessIndex
from pykai.core.model.gates import Gate
from pykai.core.model.groups import Group
from pykai.core.model.nodes import NodeFacts
from pykai.core.model.shapes import GpuKind, Shape
from pykai.core.model.sharedgpus import portion_hundredths
from pykai.core.model.status import QUEUE_ALLOCATED, TERMINATING, TaskStatus
from pykai.core.model.tasks import Task
from pykai.core.model.vectors import Vectors


class GroupTable:
    """All groups of the shard, and tasks whose group is not known."""

    __slots__ = ("_access", "_changed", "_node_facts", "_stuck_after_ns", "_vectors", "entries", "index")

    def __init__(
        self, vectors: Vectors, node_facts: Mapping[str, NodeFacts], stuck_after_ns: int, access: QueueAccessIndex
    ) -> None:
        self._vectors = vectors
        self._node_facts = node_facts
        self._stuck_after_ns = stuck_after_ns
        self._access = access
        #: group key -> the group and its tasks
        self.entries: dict[str, GroupEntry] = {}
        #: the groups as of the last `refresh`, counted
        self.index = GroupIndex()
        #: groups that have changed since then
        self._changed: dict[str, None] = {}

    def add_task(self, task: Task) -> None:
        """Add a task that names a group."""
        key = task.group_key
        entry = self.entries.get(key)
        if entry is None:
            entry = self.entries[key] = GroupEntry()
        entry.tasks[task.key] = task
        self._count(entry, task, 1)
        self._changed[key] = None

    def remove_task(self, task: Task) -> None:
        """Take a task out of its group."""
        key = task.group_key
        entry = self.entries[key]
        del entry.tasks[task.key]
        self._count(entry, task, -1)
        self._changed[key] = None
        self._drop_if_empty(key, entry)

    def set_group(self, key: str, group: Group | None, *, in_other_shard: bool) -> bool:
        """Set, replace or remove a group; whether anything changed."""
        entry = self.entries.get(key)
        if entry is None:
            if group is None and not in_other_shard:
                return False
            entry = self.entries[key] = GroupEntry()
        elif entry.group == group and entry.in_other_shard == in_other_shard:
            return False
        # Which tasks count depends on the subgroups of the group.
        for task in entry.tasks.values():
            self._count(entry, task, -1)
        entry.group = group
        for task in entry.tasks.values():
            self._count(entry, task, 1)
        entry.in_other_shard = in_other_shard
        self._changed[key] = None
        self._drop_if_empty(key, entry)
        return True

    def refresh(self) -> bool:
        """Count the groups that have changed; whether that may mean something to groups that wait."""
        judged_again = self._access.changed_groups(self.entries)
        if judged_again or self._access.in_use:
            self._changed.update(dict.fromkeys(judged_again))
            for key in self._changed:
                entry = self.entries.get(key)
                denial = self._access.denial(key, entry.group if entry is not None else None)
                if entry is not None:
                    entry.denial = denial
        affects_waiting = self.index.refresh(self.entries, self._changed)
        self._changed.clear()
        return affects_waiting

    def _drop_if_empty(self, key: str, entry: GroupEntry) -> None:
        if entry.group is None and not entry.in_other_shard and not entry.tasks:
            del self.entries[key]

    def _count(self, entry: GroupEntry, task: Task, sign: int) -> None:
        """Add to or take from what the tasks of a group use and request."""
        status = task.status
        vector = self._vectors[task.shape]
        if status is TaskStatus.PENDING:
            entry.pending += sign * task.for_this_scheduler
            self._count_demand(entry, task, sign)
        elif status is TaskStatus.GATED:
            entry.gated += sign * task.for_this_scheduler
            if task.gate is Gate.OPENING:
                # It was admitted: its demand must not vanish until the watch shows that (queues:Q-407).
                self._count_demand(entry, task, sign)
            elif task.held_by_queue and (entry.group is None or task.subgroup in entry.group.leaf_index):
                requested_mib = 0
                if task.shape.gpu.kind is GpuKind.MEMORY:
                    requested_mib = task.shape.gpu.devices * task.shape.gpu.memory_mib
                amounts = (vector.cpu, vector.memory, task.shape.gpu_hundredths)
                entry.held = entry.held.plus(HeldTasks(1, amounts, requested_mib), sign)
        elif QUEUE_ALLOCATED[status]:
            allocated = entry.allocated
            allocated[0] += sign * vector.cpu
            allocated[1] += sign * vector.memory
            allocated[2] += sign * self._allocated_gpu_hundredths(task.shape, task.node)
        elif TERMINATING[status] and task.node:
            held = (vector.cpu, vector.memory, self._allocated_gpu_hundredths(task.shape, task.node))
            count_terminating(entry, held, sign, slow=task.terminates_slowly(self._stuck_after_ns))

    def _count_demand(self, entry: GroupEntry, task: Task, sign: int) -> None:
        """Add to or take from what a group requests; a stray can never be placed, so it is no demand (cycle:PG-4)."""
        if entry.group is not None and task.subgroup not in entry.group.leaf_index:
            return
        vector, requested = self._vectors[task.shape], entry.requested
        requested[0] += sign * vector.cpu
        requested[1] += sign * vector.memory
        requested[2] += sign * task.shape.gpu_hundredths
        if task.shape.gpu.kind is GpuKind.MEMORY:
            entry.requested_mib += sign * task.shape.gpu.devices * task.shape.gpu.memory_mib

    def _allocated_gpu_hundredths(self, shape: Shape, node: str) -> int:
        """Hundredths of a GPU a task has on its node (gpu:C-8; cycle:TSK-6; queues:Q-106)."""
        if not shape.shared:
            return shape.gpu_hundredths
        facts = self._node_facts.get(node)
        if facts is None:
            return shape.gpu_hundredths
        return shape.gpu.devices * portion_hundredths(shape.gpu, facts.gpu_mib, facts.gpu_label_mib)
