"""The plugins without arguments that only order things (cycle:8.3 to 8.5, 13.4).

priority, elastic, subgrouporder, kubeflow, ray, taskorder: each is one sort key for groups in a queue, subgroups in a
group or tasks in a gang.  sg-nodelocalgreedy, sg-multinodegang: each is one generator of victim sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.gangs import Gang
from pykai.core.hooks import Hooks
from pykai.core.model.tasks import Task
from pykai.core.plugins.arguments import ArgumentReader


def by_priority(gang: Gang) -> tuple[float, ...]:
    """Higher priority first."""
    return (-gang.priority,)


def by_elastic_state(gang: Gang) -> tuple[float, ...]:
    """Below its minimum before at it, at it before above it (cycle:POL-3)."""
    state = 1.0
    for leaf in gang.leaves:
        if leaf.active_allocated < leaf.minimum:
            return (0.0,)
        if leaf.active_allocated > leaf.minimum:
            state = 2.0
    return (state,)


def by_satisfaction(count: int, threshold: int) -> tuple[float, ...]:
    """Below the threshold first; then by how far above it; no threshold last, fewest first (cycle:8.4)."""
    if count < threshold:
        return (0.0, 0.0, 0.0)
    if threshold > 0:
        return (1.0, 0.0, count / threshold)
    return (1.0, 1.0, float(count))


def masters_first(task: Task) -> tuple[int, ...]:
    """Kubeflow masters and launchers first."""
    return (0 if task.kubeflow_master else 1,)


def heads_first(task: Task) -> tuple[int, ...]:
    """Ray heads first."""
    return (0 if task.ray_head else 1,)


def by_task_priority(task: Task) -> tuple[int, ...]:
    """The task-priority label: higher first, then unreadable, then absent."""
    return task.task_priority


@dataclass(frozen=True, slots=True)
class OrderPlugin:
    """A plugin that adds sort keys and nothing else."""

    hooks: Hooks

    ARGUMENTS: ClassVar[Mapping[str, tuple[str, ArgumentReader]]] = {}

    def prepare(self, snapshot: Snapshot) -> Hooks:
        """The same keys in every cycle."""
        return self.hooks


ORDER_PLUGINS: Mapping[str, OrderPlugin] = {
    "priority": OrderPlugin(Hooks(group_key=by_priority)),
    "elastic": OrderPlugin(Hooks(group_key=by_elastic_state)),
    "subgrouporder": OrderPlugin(Hooks(subgroup_key=by_satisfaction)),
    "kubeflow": OrderPlugin(Hooks(task_key=masters_first)),
    "ray": OrderPlugin(Hooks(task_key=heads_first)),
    "taskorder": OrderPlugin(Hooks(task_key=by_task_priority)),
    "sg-nodelocalgreedy": OrderPlugin(Hooks(scenarios=("NodeLocalGreedy",))),
    "sg-multinodegang": OrderPlugin(Hooks(scenarios=("MultiNodeGang",))),
}
