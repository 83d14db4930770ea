"""The core of a semi-preemptible group: the least that satisfies it, which may not be taken back (queues:Q-415).

Children of a subgroup are ranked by name, satisfied ones first, and the pods of a leaf in task order, so the same pods
are the core in every cycle.

Statements: cycle:POL-9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pykai.core.model.groups import Branch, Group, Leaf
from pykai.core.model.status import QUEUE_ALLOCATED
from pykai.core.model.tasks import Task


def _allocated(task: Task) -> bool:
    return QUEUE_ALLOCATED[task.status]


def core_of(
    group: Group,
    tasks: Iterable[Task],
    task_key: Callable[[Task], tuple[Any, ...]],
    counts: Callable[[Task], bool] = _allocated,
) -> list[Task]:
    """Tasks that hold a node and belong to the core; `counts` says which of them do hold one."""
    held: dict[str, list[Task]] = {}
    for task in tasks:
        if counts(task):
            held.setdefault(task.subgroup, []).append(task)
    for found in held.values():
        found.sort(key=task_key)
    return _core(group.root, held)[1]


def _core(node: Branch | Leaf, held: dict[str, list[Task]]) -> tuple[bool, list[Task]]:
    """Whether a subgroup is satisfied, and its core."""
    if isinstance(node, Leaf):
        found = held.get(node.name, [])
        return len(found) >= node.minimum, found[: node.minimum]
    below = sorted((not (part := _core(child, held))[0], child.name, part[1]) for child in node.children)
    chosen = below[: node.needed]
    satisfied = len(chosen) == node.needed and not any(missing for missing, _, _ in chosen)
    return satisfied, [task for _, _, tasks in chosen for task in tasks]
