"""Tasks by what a cycle looks for: their node, their deletion, their affinity, volumes and claims.

Most tasks are in none of these indexes but the one of their node, so a cycle reads a handful instead of all of them.
"""

from __future__ import annotations

from pykai.core.model.affinityterms import TermStore
from pykai.core.model.status import TERMINATING
from pykai.core.model.tasks import Task


class TaskIndex:
    """Tasks by property; all but `by_node` are keyed by task."""

    __slots__ = (
        "by_node",
        "held_by_queue",
        "legacy_mig",
        "terminating",
        "terms",
        "victims",
        "with_affinity",
        "with_claims",
        "with_volumes",
        "without_group",
    )

    def __init__(self) -> None:
        #: node name -> task key -> task
        self.by_node: dict[str, dict[str, Task]] = {}
        #: tasks in deletion that still hold their node
        self.terminating: dict[str, Task] = {}
        #: tasks in deletion that were evicted for a group
        self.victims: dict[str, Task] = {}
        self.with_affinity: dict[str, Task] = {}
        #: affinity terms of these
        self.terms = TermStore()
        self.with_volumes: dict[str, Task] = {}
        #: tasks with claims of devices, or extended resources that a device class stands behind
        self.with_claims: dict[str, Task] = {}
        self.without_group: dict[str, Task] = {}
        self.legacy_mig: dict[str, Task] = {}
        #: tasks that wait for admission to their queue
        self.held_by_queue: dict[str, Task] = {}

    def add(self, task: Task) -> None:
        """Index a task."""
        key, shape = task.key, task.shape
        if not task.group_key:
            self.without_group[key] = task
        if task.node:
            self.by_node.setdefault(task.node, {})[key] = task
        if TERMINATING[task.status]:
            if task.deletion_ns is not None:
                self.terminating[key] = task
            if task.evicted_for:
                self.victims[key] = task
        if shape.affinity is not None:
            self.with_affinity[key] = task
            # Read the terms now, to keep that out of cycles.
            self.terms.terms_of(shape)
        if shape.volumes:
            self.with_volumes[key] = task
        if shape.claims or shape.dra_backed_spec is not None:
            self.with_claims[key] = task
        if shape.gpu.legacy_mig:
            self.legacy_mig[key] = task
        if task.held_by_queue:
            self.held_by_queue[key] = task

    def remove(self, task: Task) -> None:
        """Take a task out of every index."""
        key = task.key
        if task.node:
            node_tasks = self.by_node[task.node]
            del node_tasks[key]
            if not node_tasks:
                del self.by_node[task.node]
        self.terminating.pop(key, None)
        self.victims.pop(key, None)
        self.with_affinity.pop(key, None)
        self.with_volumes.pop(key, None)
        self.with_claims.pop(key, None)
        self.without_group.pop(key, None)
        self.legacy_mig.pop(key, None)
        self.held_by_queue.pop(key, None)
