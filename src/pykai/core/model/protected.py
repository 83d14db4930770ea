"""The protected part of a semi-preemptible group: its minimum, which is never a victim (queues:Q-415).

Children of a subgroup are ranked by name, satisfied ones first, and the pods of a leaf in task order, so the same pods
are protected in every cycle.

Statements: cycle:POL-9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pykai.core.model.groups import Branch, Group, Leaf
from pykai.core.model.status import QUEUE_ALLOCATED
from pykai.core.model.tasks import Task


def _is_allocated(task: Task) -> bool:
    return QUEUE_ALLOCATED[task.status]


def protected_tasks(
    group: Group,
    tasks: Iterable[Task],
    task_key: Callable[[Task], tuple[Any, ...]],
    holds_node: Callable[[Task], bool] = _is_allocated,
) -> list[Task]:
    """Tasks that hold a node and are protected; `holds_node` says which tasks hold one."""
    tasks_by_subgroup: dict[str, list[Task]] = {}
    for task in tasks:
        if holds_node(task):
            tasks_by_subgroup.setdefault(task.subgroup, []).append(task)
    for subgroup_tasks in tasks_by_subgroup.values():
        subgroup_tasks.sort(key=task_key)
    return _protected_part(group.root, tasks_by_subgroup)[1]


def _protected_part(node: Branch | Leaf, tasks_by_subgroup: dict[str, list[Task]]) -> tuple[bool, list[Task]]:
    """Whether a subgroup is satisfied, and its protected tasks."""
    if isinstance(node, Leaf):
        subgroup_tasks = tasks_by_subgroup.get(node.name, [])
        return len(subgroup_tasks) >= node.minimum, subgroup_tasks[: node.minimum]
    below = sorted(
        (not (part := _protected_part(child, tasks_by_subgroup))[0], child.name, part[1]) for child in node.children
    )
    chosen = below[: node.min_children]
    satisfied = len(chosen) == node.min_children and not any(missing for missing, _, _ in chosen)
    return satisfied, [task for _, _, tasks in chosen for task in tasks]
