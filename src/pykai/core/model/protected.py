"""Pods that no other queue can take back: of a semi-preemptible group its minimum (queues:Q-415), all of a
non-preemptible one.

Children of a subgroup are ranked by name, satisfied ones first, and the pods of a leaf in task order, so the same pods
are protected in every cycle.

They were within quota when they were placed.  A change of the group must therefore not protect pods that have a node
already: these may have been placed beyond it (`newly_protected`).

Statements: cycle:POL-9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pykai.api import names
from pykai.api.core import PriorityClass
from pykai.api.scheduling import PodGroup
from pykai.core.model.groups import Branch, Group, Leaf, build_subgroup_tree
from pykai.core.model.priorityclasses import class_priority, is_preemptible
from pykai.core.model.status import QUEUE_ALLOCATED
from pykai.core.model.tasks import Task

#: a task, or what stands for one
_Held = TypeVar("_Held")


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


def newly_protected(
    before: PodGroup | None, after: PodGroup, held: Mapping[str, int], classes: Mapping[str, PriorityClass]
) -> int:
    """How many pods that have a node a change of their group protects, in its queue (protect:change; queues:Q-416).

    `held` counts them by subgroup; `before` is None where they were in no group.
    """
    was = Counter[str]()
    if before is not None and before.spec.queue == after.spec.queue:
        was = _protected_counts(before, held, classes)
    return (_protected_counts(after, held, classes) - was).total()


def may_protect(before: PodGroup | None, after: PodGroup, classes: Mapping[str, PriorityClass]) -> bool:
    """Whether a change could protect pods, whichever have a node."""
    protection = protection_of(after, classes)
    if protection == names.PREEMPTIBLE:
        return False
    if before is None or before.spec.queue != after.spec.queue:
        return True
    was = protection_of(before, classes)
    if was == protection == names.SEMI_PREEMPTIBLE:
        return _minimums(before) != _minimums(after)
    return was != names.NON_PREEMPTIBLE


def protection_of(group: PodGroup, classes: Mapping[str, PriorityClass]) -> str:
    """Preemptible, non-preemptible or semi-preemptible, as the group and its priority say."""
    spec = group.spec
    if spec.preemptibility == names.SEMI_PREEMPTIBLE:
        return names.SEMI_PREEMPTIBLE
    by_class = is_preemptible(spec.preemptibility, class_priority(spec.priority_class_name, classes))
    return names.PREEMPTIBLE if by_class else names.NON_PREEMPTIBLE


def _minimums(group: PodGroup) -> tuple[object, ...]:
    spec = group.spec
    below = tuple((each.name, each.parent, each.min_member, each.min_sub_group) for each in spec.sub_groups)
    return spec.min_member, spec.min_sub_group, below


def _protected_counts(group: PodGroup, held: Mapping[str, int], classes: Mapping[str, PriorityClass]) -> Counter[str]:
    """Subgroup -> its protected pods; in a subgroup they are the first, so their number says which."""
    protection = protection_of(group, classes)
    if protection == names.PREEMPTIBLE:
        return Counter()
    if protection == names.NON_PREEMPTIBLE:
        return Counter(held)
    root, _ = build_subgroup_tree(group)
    return Counter(_protected_part(root, {name: [name] * pods for name, pods in held.items()})[1])


def _protected_part(node: Branch | Leaf, held: Mapping[str, Sequence[_Held]]) -> tuple[bool, list[_Held]]:
    """Whether a subgroup is satisfied, and the protected part of what its leaves hold."""
    if isinstance(node, Leaf):
        of_leaf = held.get(node.name, ())
        return len(of_leaf) >= node.minimum, [*of_leaf[: node.minimum]]
    below = sorted(
        ((not (part := _protected_part(child, held))[0], child.name, part[1]) for child in node.children),
        key=lambda each: each[:2],
    )
    chosen = below[: node.min_children]
    satisfied = len(chosen) == node.min_children and not any(missing for missing, _, _ in chosen)
    return satisfied, [each for _, _, protected in chosen for each in protected]
