"""How much of a cycle the objects of one namespace may take while others wait.

The cost of a cycle mostly follows the number of pods.  But one object may hold many affinity terms, subgroups, resource
names or GPU fractions.  Each has a price in cost units.  When the waiting groups of a namespace cost more than its
allowance, the rest is postponed to the next cycle, where it goes first.  Units are counted from the objects, never
measured, so a replay decides the same.

In: the snapshot, and `Policy.resume` from the last plan.  Out: the groups that take part, those postponed, and where
each namespace resumes (`Plan.resume`).  Subtle: groups are postponed only while another namespace has waiting work, at
least one group of a namespace always takes part, and groups that cost nothing always do.  Groups take turns in the
order of their names, which unlike priorities does not change between cycles.  Nominated groups go before all others: a
postponed one would lose its nodes, and evict again for others.

Statements: crowds:turns, neighbours:promises.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pykai.api.keys import split_key
from pykai.core.cluster.groupindex import GroupEntry
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.model.status import TaskStatus
from pykai.core.model.vectors import EvaluationCost, Vectors
from pykai.core.report.decisions import Postponed

#: Prices: of a term and of a GPU fraction for every node, of a subgroup and of a resource name.
TERM_PRICE, SHARE_PRICE = 1, 70
SUBGROUP_PRICE, NAME_PRICE = 1_024, 640
#: Subgroups that cost nothing: every group has some.
FREE_SUBGROUPS = 16


class GroupCost(NamedTuple):
    """What a waiting group costs, as long as it does not change."""

    version: int
    subgroups: int
    #: shapes of its waiting tasks that cost something; equal tasks of a namespace are counted once
    burdens: tuple[tuple[int, EvaluationCost], ...]


class GroupSelection(NamedTuple):
    """The groups that take part in a cycle."""

    entries: list[GroupEntry]
    #: group -> why it is postponed
    postponed: dict[str, Postponed]
    #: namespace -> the group with which the next cycle begins
    resume: tuple[tuple[str, str], ...]


def select_groups(
    snapshot: Snapshot, allowance: int | None, resume: Mapping[str, str], nominated: frozenset[str] = frozenset()
) -> GroupSelection:
    """The waiting groups that take part, and those that exceed the allowance of their namespace."""
    waiting = snapshot.group_index.waiting
    costly_groups: dict[str, list[str]] = {}
    if allowance is None or not _several_namespaces(waiting):
        return GroupSelection(list(waiting.values()), {}, ())
    for key, entry in waiting.items():
        cost = _group_cost(entry, snapshot.vectors)
        if cost.subgroups or cost.burdens:
            costly_groups.setdefault(split_key(key)[0], []).append(key)
    postponed: dict[str, Postponed] = {}
    resume_at: list[tuple[str, str]] = []
    for namespace, keys in sorted(costly_groups.items()):
        first_served = sorted(nominated.intersection(keys))
        keys = sorted(set(keys).difference(first_served))
        first = bisect_left(keys, resume.get(namespace, ""))
        order = first_served + keys[first:] + keys[:first]
        prices = _marginal_prices((waiting[key] for key in order), snapshot)
        spent, position = 0, 0
        while position < len(order) and (not position or spent + prices[position] <= allowance):
            spent += prices[position]
            position += 1
        if position < len(order):
            reason = Postponed(namespace, sum(prices), allowance)
            postponed.update(dict.fromkeys(order[position:], reason))
            resume_at.append((namespace, order[position]))
    return GroupSelection(
        [entry for key, entry in waiting.items() if key not in postponed], postponed, tuple(resume_at)
    )


def _several_namespaces(keys: Iterable[str]) -> bool:
    namespaces = (split_key(key)[0] for key in keys)
    first = next(namespaces, "")
    return any(namespace != first for namespace in namespaces)


def _group_cost(entry: GroupEntry, vectors: Vectors) -> GroupCost:
    cached = entry.load
    if isinstance(cached, GroupCost) and cached.version == entry.version:
        return cached
    burdens: dict[int, EvaluationCost] = {}
    for task in entry.tasks.values():
        if task.status is TaskStatus.PENDING:
            burden = vectors[task.shape].evaluation_cost
            if burden is not None:
                burdens[task.shape.id] = burden
    group = entry.group
    subgroups = group.subgroups if group is not None and group.subgroups > FREE_SUBGROUPS else 0
    cost = entry.load = GroupCost(entry.version, subgroups, tuple(burdens.items()))
    return cost


def _marginal_prices(entries: Iterable[GroupEntry], snapshot: Snapshot) -> list[int]:
    """What each group adds to the cost of those before it, in cost units."""
    nodes = len(snapshot.nodes)
    seen: set[int] = set()
    prices: list[int] = []
    for entry in entries:
        cost = _group_cost(entry, snapshot.vectors)
        units = SUBGROUP_PRICE * cost.subgroups
        for shape, burden in cost.burdens:
            if shape not in seen:
                seen.add(shape)
                units += nodes * (TERM_PRICE * burden.terms + SHARE_PRICE * burden.shared) + NAME_PRICE * burden.names
        prices.append(units)
    return prices
