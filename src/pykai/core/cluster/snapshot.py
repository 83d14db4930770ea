"""What a cycle reads: nodes in name order, queues, groups, and sums over them.

A snapshot shares the records of the tables (immutable, replaced and never changed) and copies the node columns, which
the cycle changes.  Node rows are in name order, because equal scores go to the smaller name
(cycle:SCO-1): the first maximum of a score column is then the right node.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from pykai.api.core import PriorityClass
from pykai.api.topology import Topology
from pykai.core.caching import Memo
from pykai.core.cluster.changetokens import ChangeTokens
from pykai.core.cluster.claims.index import ClaimIndex
from pykai.core.cluster.disruptionbudgets import BudgetIndex
from pykai.core.cluster.groupindex import GroupEntry, GroupIndex, PriorityKind, QueueGroups
from pykai.core.cluster.nodetable import NodeTable
from pykai.core.cluster.storage import StorageIndex
from pykai.core.model.affinityterms import TermStore
from pykai.core.model.axes import Axes, FloatArray, IntArray, mig_gpus
from pykai.core.model.groups import Group
from pykai.core.model.priorityclasses import default_priority, is_preemptible
from pykai.core.model.problems import Problem
from pykai.core.model.queuetree import CPU, GPU, MEMORY, RESOURCES, QueueTree
from pykai.core.model.shapes import HostPort, Shape, ShapeRegister
from pykai.core.model.shard import Shard
from pykai.core.model.sharedgpus import DeviceUse, portion_hundredths
from pykai.core.model.status import TaskStatus
from pykai.core.model.tasks import Task
from pykai.core.model.vectors import Vectors
from pykai.core.model.zones import NodeZones
from pykai.core.report.decisions import FreeRoomOnly


class RunningWork(NamedTuple):
    """Work as it is, beyond its sums."""

    groups: Mapping[str, GroupEntry]
    tasks: Mapping[str, Task]
    #: node name -> the tasks on it
    tasks_on: Mapping[str, Mapping[str, Task]]

    @staticmethod
    def of_kind(queue_groups: QueueGroups, kind: PriorityKind) -> Iterable[GroupEntry]:
        """The groups of a queue that run, of one kind."""
        return queue_groups.running.get(kind, {}).values()


@dataclass(slots=True)
class Snapshot:
    """Everything one cycle reads."""

    now_ns: int
    #: stands for everything below
    change_tokens: ChangeTokens
    shard: Shard
    axes: Axes
    #: the register that numbered the shapes
    shapes: ShapeRegister
    vectors: Vectors
    nodes: NodeTable
    #: [axis, node]
    allocatable: IntArray
    #: [plane, axis, node], see vectors.py; a copy the cycle may change
    columns: IntArray
    #: node row -> shared GPU id -> its tenants
    devices: dict[int, dict[str, DeviceUse]]
    #: node row -> host port -> how many pods hold it
    ports: dict[int, dict[HostPort, int]]
    #: node row -> cpu, memory, GPU hundredths used by pods of other schedulers
    foreign_usage: dict[int, tuple[int, ...]]
    tree: QueueTree
    #: all groups, for readers that know which waiting one they look for; for others see `read_running`
    group_entries: Mapping[str, GroupEntry]
    #: the same, counted
    group_index: GroupIndex
    #: all tasks and those on each node, for sums and records of the cycle's own; for others see `read_running`
    task_records: Mapping[str, Task]
    tasks_by_node: Mapping[str, Mapping[str, Task]]
    tasks_with_affinity: Mapping[str, Task]
    #: their affinity terms
    terms: TermStore
    #: tasks with persistent volume claims
    tasks_with_volumes: Mapping[str, Task]
    #: tasks with claims of devices, or extended resources that a device class stands behind
    tasks_with_claims: Mapping[str, Task]
    #: tasks that name no PodGroup
    tasks_without_group: Mapping[str, Task]
    #: tasks with a legacy MIG annotation
    legacy_mig_tasks: Mapping[str, Task]
    #: tasks that wait for admission to their queue
    held_by_queue: Mapping[str, Task]
    #: terminating tasks that were evicted for a group
    victims: Mapping[str, Task]
    priority_classes: Mapping[str, PriorityClass]
    topologies: Mapping[str, Topology]
    #: node name -> its NUMA zones, where they are reported; the nodes need not be in this shard
    numa: Mapping[str, NodeZones]
    storage: StorageIndex
    claims: ClaimIndex
    #: by namespace; a cycle that reads them has called `read_running`
    disruption_budgets: BudgetIndex
    config_maps: set[str]
    namespaces: Mapping[str, dict[str, str]]
    problems: tuple[Problem, ...]
    #: groups that may use free resources only, and why
    free_room_only: Mapping[str, FreeRoomOnly]
    #: indexes that plugins share within a cycle, by type
    shared: dict[Hashable, object] = field(default_factory=dict)
    #: what depends on the cycle alone, made on first use
    memo: Memo = field(default_factory=Memo)
    #: whether `read_running` was called
    inspected_running: bool = False

    def read_running(self) -> RunningWork:
        """All groups and tasks, those that run included: the plan then holds only while none of them changes."""
        self.inspected_running = True
        return RunningWork(self.group_entries, self.task_records, self.tasks_by_node)

    def ungrouped_tasks(self) -> Iterator[Task]:
        """Pending tasks of this scheduler whose PodGroup is known neither here nor in another shard."""
        for task in self.tasks_without_group.values():
            if task.for_this_scheduler and task.status is TaskStatus.PENDING:
                yield task
        for entry in self.group_index.ungrouped.values():
            yield from (
                task for task in entry.tasks.values() if task.for_this_scheduler and task.status is TaskStatus.PENDING
            )

    def priority_of(self, group: Group) -> int:
        """Priority of a group (queues:Q-80)."""
        return self.class_priority(group.priority_class)

    def class_priority(self, name: str) -> int:
        """Priority of groups that name this class (cycle:SNP-12, POL-1)."""
        priority_class = self.priority_classes.get(name) if name else None
        if priority_class is not None:
            return priority_class.value
        return self.default_priority

    @property
    def default_priority(self) -> int:
        """Priority of groups whose class is not known."""
        return self.memo.remember("default priority", lambda: default_priority(self.priority_classes))

    def is_preemptible(self, group: Group, priority: int) -> bool:
        """Whether the group is preemptible (queues:Q-81, Q-82, Q-85; cycle:POL-2)."""
        return is_preemptible(group.preemptibility, priority)

    def is_kind_preemptible(self, kind: PriorityKind) -> bool:
        """The same for all groups of a kind."""
        return is_preemptible(kind.preemptibility, self.class_priority(kind.priority_class))

    def amounts_on(self, shape: Shape, row: int) -> tuple[float, float, float]:
        """What a task of this shape costs its queue on a node: cpu milli, memory bytes, GPU hundredths (gpu:C-8)."""
        vector = self.vectors[shape]
        gpu_request = shape.gpu
        if not gpu_request.memory_mib or row < 0:
            return vector.amounts
        facts = self.nodes.facts[row]
        return (
            vector.cpu,
            vector.memory,
            gpu_request.devices * portion_hundredths(gpu_request, facts.gpu_mib, facts.gpu_label_mib),
        )

    def cluster_totals(self) -> list[float]:
        """CPU milli, memory bytes, GPU hundredths of ready nodes, less foreign load (queues:Q-100 to Q-102)."""
        if not len(self.nodes):
            return [0.0] * RESOURCES
        axes = self.axes
        # Floats, because absurd amounts times the GPUs of a slice overflow; realistic figures are exact.
        gpus: FloatArray = np.zeros(len(self.nodes))
        for axis in axes.gpu_axes:
            gpus += self.allocatable[axis] * 100.0
        for axis in axes.mig_axes:
            gpus += self.allocatable[axis] * (100.0 * mig_gpus(axes.names[axis]))
        if self.shard.restrict_nodes:
            label = self.shard.gpu_worker_label
            gpus = np.where(self.nodes.per_label(label, lambda value: value is not None), gpus, 0)
        capacity = np.stack([self.allocatable[axes.index["cpu"]], self.allocatable[axes.index["memory"]], gpus])
        for row, usage in self.foreign_usage.items():
            capacity[:, row] -= usage
        # A node loaded beyond what it offers takes nothing from the others (queues:7, Do better).
        capacity = np.maximum(capacity, 0)
        return [float(capacity[resource][self.nodes.ready].sum(dtype=np.float64)) for resource in (CPU, MEMORY, GPU)]

    def cluster_amounts(self) -> tuple[float, float, float]:
        """The same with GPUs in devices."""
        cpu, memory, gpu = self.cluster_totals()
        return (cpu, memory, gpu / 100.0)

    def gpu_memory_range(self) -> tuple[int, int] | None:
        """Smallest and largest MiB per GPU of nodes that report it (gpu:C-6); None when none does."""
        labelled_mib = self.nodes.gpu_mib[self.nodes.gpu_mib > 100]
        return (int(labelled_mib.min()), int(labelled_mib.max())) if labelled_mib.size else None
