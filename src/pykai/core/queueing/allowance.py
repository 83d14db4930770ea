"""How much of a cycle the objects of one namespace may take while others wait.

Most of what a cycle does follows the number of pods.  Some things a tenant may write many of into one object: terms of
affinity, subgroups, names of resources, parts of GPUs.  Each has a price in units, and a namespace whose waiting groups
come to more than its allowance in a cycle has the rest put off to the next one, where that rest goes first.  Units are
counted from the objects alone, never measured, so a replay decides the same.

In: the snapshot, and `Policy.resume`, which is what the last plan said.  Out: the groups that take part, those put off,
and where each namespace goes on (`Plan.resume`).  Subtle: groups are put off only while another namespace has waiting
work, at least one group of a namespace always takes part, and groups without any of those things always do.  The order
in which groups take their turns is that of their names: it must not change from cycle to cycle, while priorities may.
Groups that were promised a place go before all others: put off, they would lose it, and evict again for another.

Statements: crowds:turns, neighbours:promises.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pykai.core.cluster.groupindex import GroupEntry
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.model.status import Status
from pykai.core.model.vectors import Burden, Vectors
from pykai.core.report.decisions import Postponed

#: Prices: of a term and of a part of a GPU for every node, of a subgroup and of a name as such.
A_TERM, A_SHARE = 1, 70
A_SUBGROUP, A_NAME = 1_024, 640
#: Subgroups of a group that cost nothing: every group has some.
FREE_SUBGROUPS = 16


class Load(NamedTuple):
    """What a waiting group costs, as long as it does not change."""

    version: int
    subgroups: int
    #: shapes of its waiting tasks that cost anything; those of equal tasks are counted once in a namespace
    burdens: tuple[tuple[int, Burden], ...]


class Turns(NamedTuple):
    """Who takes part in a cycle."""

    entries: list[GroupEntry]
    #: group -> why it is put off
    postponed: dict[str, Postponed]
    #: namespace -> the group with which the next cycle begins
    resume: tuple[tuple[str, str], ...]


def take_turns(
    snapshot: Snapshot, allowance: int | None, resume: Mapping[str, str], promised: frozenset[str] = frozenset()
) -> Turns:
    """The waiting groups that take part, and those that a namespace has too many of."""
    waiting = snapshot.census.waiting
    heavy: dict[str, list[str]] = {}
    if allowance is None or not _several_namespaces(waiting):
        return Turns(list(waiting.values()), {}, ())
    for key, entry in waiting.items():
        load = _load(entry, snapshot.vectors)
        if load.subgroups or load.burdens:
            heavy.setdefault(key.partition("/")[0], []).append(key)
    postponed: dict[str, Postponed] = {}
    go_on: list[tuple[str, str]] = []
    for namespace, keys in sorted(heavy.items()):
        served = sorted(promised.intersection(keys))
        keys = sorted(set(keys).difference(served))
        first = bisect_left(keys, resume.get(namespace, ""))
        turn = served + keys[first:] + keys[:first]
        prices = _prices((waiting[key] for key in turn), snapshot)
        spent, position = 0, 0
        while position < len(turn) and (not position or spent + prices[position] <= allowance):
            spent += prices[position]
            position += 1
        if position < len(turn):
            why = Postponed(namespace, sum(prices), allowance)
            postponed.update(dict.fromkeys(turn[position:], why))
            go_on.append((namespace, turn[position]))
    return Turns([entry for key, entry in waiting.items() if key not in postponed], postponed, tuple(go_on))


def _several_namespaces(keys: Iterable[str]) -> bool:
    namespaces = (key.partition("/")[0] for key in keys)
    first = next(namespaces, "")
    return any(namespace != first for namespace in namespaces)


def _load(entry: GroupEntry, vectors: Vectors) -> Load:
    known = entry.load
    if isinstance(known, Load) and known.version == entry.version:
        return known
    burdens: dict[int, Burden] = {}
    for task in entry.tasks.values():
        if task.status is Status.PENDING:
            burden = vectors[task.shape].burden
            if burden is not None:
                burdens[task.shape.id] = burden
    group = entry.group
    subgroups = group.subgroups if group is not None and group.subgroups > FREE_SUBGROUPS else 0
    made = entry.load = Load(entry.version, subgroups, tuple(burdens.items()))
    return made


def _prices(entries: Iterable[GroupEntry], snapshot: Snapshot) -> list[int]:
    """What each group adds to those before it, in units."""
    nodes = len(snapshot.nodes)
    seen: set[int] = set()
    found: list[int] = []
    for entry in entries:
        load = _load(entry, snapshot.vectors)
        units = A_SUBGROUP * load.subgroups
        for shape, burden in load.burdens:
            if shape not in seen:
                seen.add(shape)
                units += nodes * (A_TERM * burden.terms + A_SHARE * burden.shared) + A_NAME * burden.names
        found.append(units)
    return found
