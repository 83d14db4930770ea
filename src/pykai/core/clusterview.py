"""The cluster for display: nodes with their GPUs, queues with their figures, groups that wait and why.

A `ClusterView` is made from the snapshot and the plan of a cycle, and is immutable.  The terminal board draws it and
counts no GPUs itself; the command line and a dashboard can do the same.  GPUs of a node are listed in the order in
which pods came to it; which physical device a pod got does not matter here.

Subtle: a snapshot holds until the next change of the tables, and the cycle changes its columns.  So a view is made
between two cycles, and reads only the records of nodes, tasks and groups, which are replaced and never changed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isinf

from pykai.api import names
from pykai.api.gpuvendors import is_gpu
from pykai.api.keys import object_key
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.model.nodes import NodeFacts
from pykai.core.model.queuetree import GPU
from pykai.core.model.status import TaskStatus
from pykai.core.report.decisions import Plan, QueueFigures
from pykai.core.report.sentences import group_text

#: The pod has no node yet, whatever was decided.
_WAITING = (TaskStatus.PENDING, TaskStatus.GATED, TaskStatus.BINDING)
_ENDED = (TaskStatus.SUCCEEDED, TaskStatus.FAILED, TaskStatus.DELETED)
#: the queue of a pod whose PodGroup is unknown here
UNKNOWN_QUEUE = "?"


@dataclass(frozen=True, slots=True)
class GpuView:
    """One GPU of a node: the queue that has it ("" when free), and how many pods share it."""

    queue: str = ""
    pods: int = 1
    #: its pods are being deleted
    terminating: bool = False


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node and its GPUs, used ones first."""

    name: str
    gpus: tuple[GpuView, ...]

    @property
    def gpus_used(self) -> int:
        """GPUs with a pod."""
        return sum(bool(gpu.queue) for gpu in self.gpus)


@dataclass(frozen=True, slots=True)
class QueueView:
    """A queue, in GPUs; a quota of None is unlimited."""

    name: str
    title: str
    depth: int
    quota: float | None
    fair_share: float
    used: float
    wanted: float


@dataclass(frozen=True, slots=True)
class GroupView:
    """A PodGroup with pods that run, or wait for a reason."""

    #: namespace/name
    key: str
    queue: str
    running: int
    waiting: int
    #: why pods wait, in lines; "" when none does
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster at the end of a cycle."""

    #: in name order
    nodes: tuple[NodeView, ...] = ()
    #: parents before their children
    queues: tuple[QueueView, ...] = ()
    #: groups with waiting pods, in the order in which they were tried
    waiting: tuple[GroupView, ...] = ()
    #: the other groups with pods on nodes, by key
    running: tuple[GroupView, ...] = ()
    pods_placed: int = 0
    pods_waiting: int = 0

    @property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return sum(len(node.gpus) for node in self.nodes)

    @property
    def gpus_used(self) -> int:
        """GPUs with a pod."""
        return sum(node.gpus_used for node in self.nodes)


def build_cluster_view(snapshot: Snapshot, plan: Plan | None) -> ClusterView:
    """The cluster of the tables, with the results of the last plan."""
    running = Counter[str]()
    placed = waiting = 0
    for task in snapshot.task_records.values():
        if task.is_reservation or task.status in _ENDED:
            continue
        if task.status in _WAITING or not task.node:
            waiting += task.for_this_scheduler
        else:
            placed += 1
            running[task.group_key] += 1
    waiting_groups = tuple(_waiting_groups(plan, running)) if plan is not None else ()
    shown = {group.key for group in waiting_groups}
    return ClusterView(
        nodes=tuple(_node(facts, snapshot) for facts in snapshot.nodes.facts),
        queues=tuple(_queues(plan.queues)) if plan is not None else (),
        waiting=waiting_groups,
        running=tuple(
            GroupView(key, _queue_of(key, snapshot), running[key], 0) for key in sorted(running) if key not in shown
        ),
        pods_placed=placed,
        pods_waiting=waiting,
    )


def _node(facts: NodeFacts, snapshot: Snapshot) -> NodeView:
    whole: list[GpuView] = []
    #: GPU group -> queues of the pods that share it, and whether they are being deleted
    shared: dict[str, list[tuple[str, bool]]] = defaultdict(list)
    for task in snapshot.tasks_by_node.get(facts.name, {}).values():
        if task.is_reservation or task.status in _ENDED or task.status in _WAITING:
            continue
        queue, terminating = _queue_of(task.group_key, snapshot), task.deletion_ns is not None
        for group in task.gpu_groups:
            shared[group].append((queue, terminating))
        if not task.gpu_groups:
            whole += [GpuView(queue, terminating=terminating)] * _whole_gpus(task.shape.requests)
    used = whole + [
        GpuView(pods[0][0], len(pods), all(terminating for _, terminating in pods)) for pods in shared.values()
    ]
    count = _whole_gpus(facts.allocatable)
    return NodeView(facts.name, tuple(used[:count] + [GpuView()] * max(0, count - len(used))))


def _whole_gpus(amounts: Iterable[tuple[str, int]]) -> int:
    # GPUs of claims are not among the requests of a pod, so such nodes would look free.
    return sum(amount for name, amount in amounts if is_gpu(name) and name != names.DRA_GPU)


def _queue_of(group_key: str, snapshot: Snapshot) -> str:
    entry = snapshot.group_entries.get(group_key)
    return UNKNOWN_QUEUE if entry is None or entry.group is None else entry.group.queue


def _queues(figures: tuple[QueueFigures, ...], parent: str = "", depth: int = 0) -> Iterator[QueueView]:
    for each in figures:
        if each.parent == parent:
            quota = each.quota[GPU]
            yield QueueView(
                each.name,
                each.display_name or each.name,
                depth,
                None if isinf(quota) else quota,
                each.fair_share[GPU],
                each.allocated[GPU],
                each.request[GPU],
            )
            yield from _queues(figures, each.name, depth + 1)


def _waiting_groups(plan: Plan, running: Counter[str]) -> Iterator[GroupView]:
    for record in plan.unscheduled:
        if record.pending:
            key = object_key(record.namespace, record.group)
            yield GroupView(key, record.queue, running[key], record.pending, group_text(record))
