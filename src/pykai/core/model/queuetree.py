"""The queue forest as columns.

In come `Queue` objects; out comes a `QueueTree` with one row per queue, sorted by (creation, name), which is the order
in which every later step walks siblings (queues:Q-140).

Subtle:

* Nothing here trusts the objects.  A queue whose chain of parents does not end at a top-level queue (a parent is
  missing, or the parents form a cycle) is left out with everything below it (queues:Q-63); an invalid number
  becomes 0.  Both are reported and neither raises.
* Unlimited is `inf` from here on.  On the wire it is -1, and for memory every negative number (queues:Q-17).
* Nothing recurses, so a chain may be thousands of queues deep.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pykai.api import names
from pykai.api.duration import DurationError, parse_duration
from pykai.api.meta import ObjectMeta
from pykai.api.scheduling import Queue, QueueResource, QueueResources, QueueSpec
from pykai.api.timestamp import TimestampError, parse_timestamp
from pykai.core.model.problems import Problem, ProblemReporter

#: The resources of quota and fair share, in the order in which messages name them (queues:1.2).
CPU, MEMORY, GPU = 0, 1, 2
RESOURCES = 3
RESOURCE_NAMES = ("CPU", "Memory", "GPU")
#: CPU in milli, memory in bytes, GPU in hundredths.
QueueAmounts = tuple[float, float, float]
NO_AMOUNTS: QueueAmounts = (0.0, 0.0, 0.0)

_UNLIMITED_ON_THE_WIRE = -1.0
_MEGABYTE = 1e6
#: How many queues of a cycle a message names; a cycle may be as long as there are queues.
_MAX_NAMED_IN_CYCLE = 8


def sum_of(a: QueueAmounts, b: QueueAmounts) -> QueueAmounts:
    """Both together."""
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2])


def difference_of(a: QueueAmounts, b: QueueAmounts) -> QueueAmounts:
    """The first without the second."""
    return (a[0] - b[0], a[1] - b[1], a[2] - b[2])


@dataclass(slots=True)
class QueueTree:
    """The forest; read-only once built.  Amounts: CPU in milli, memory in bytes, GPU in devices; inf is unlimited."""

    #: metadata.name of each row; rows are sorted by (creation_ns, name).
    names: list[str]
    #: Row of each name.
    rows: dict[str, int]
    #: The name for messages: spec.displayName, or metadata.name where there is none.
    display_names: list[str]
    #: Row of the parent; -1 at the top.
    parents: list[int]
    #: Rows of the children, in row order; a queue without children is a leaf (queues:Q-64).
    children: list[tuple[int, ...]]
    #: The queue itself, then its ancestors up to the root.
    chains: list[tuple[int, ...]]
    #: Top-level rows, in row order.
    roots: tuple[int, ...]
    #: Creation time; 0 where it is not known.
    creation_ns: list[int]
    #: Order in which siblings get surplus, highest first.
    priorities: list[int]
    #: Guaranteed amount, [resource][row].
    quota: list[list[float]]
    #: Hard cap, [resource][row].
    limit: list[list[float]]
    #: Relative part of the surplus, [resource][row].
    weight: list[list[float]]
    #: How long a workload is safe from preemption; None inherits.
    preempt_min_runtime_ns: list[int | None]
    #: How long a workload is safe from reclaim; None inherits.
    reclaim_min_runtime_ns: list[int | None]
    #: Whether pods of the queue wait behind its gate until it may take them (queues:Q-405).
    gated: list[bool]
    #: Queues that exist and have no row: name -> reason.
    left_out: dict[str, str]
    #: All rows, every parent before its children.
    top_down: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.top_down = _parents_first(self.roots, self.children)

    def diverging_ancestors(self, queue: int, other: int) -> tuple[int, int]:
        """The ancestors of two different leaves at the first level, from the top, where they differ (queues:Q-265).

        Statements: queues:Q-271.
        """
        queue_chain, other_chain = self.chains[queue], self.chains[other]
        for a, b in zip(reversed(queue_chain), reversed(other_chain), strict=False):
            if a != b:
                return a, b
        return queue, other

    def sides(self, queue: int) -> Iterator[tuple[int, int]]:
        """The siblings of a queue and of its ancestors, each after the ancestor.

        Every other leaf is one of them, or below one.
        """
        for row in self.chains[queue]:
            parent = self.parents[row]
            for other in self.roots if parent < 0 else self.children[parent]:
                if other != row:
                    yield row, other


def build_tree(
    queues: Iterable[Queue], *, full_hierarchy: bool = True, now_ns: int = 0, report: ProblemReporter
) -> QueueTree:
    """The forest of these queues; problems go to `report`, in an order that depends on names only.

    Without `full_hierarchy` every queue that has a parent is a child of one synthetic queue without limits,
    created `now_ns` (queues:Q-62).

    Statements: queues:Q-61.
    """
    members = {queue.metadata.name: queue for queue in queues}
    if members.pop("", None) is not None:  # the empty name stands for "no parent"
        report(Problem("Queue/", "metadata.name", "the name is missing; this queue is left out"))
    creation_ns: dict[str, int] = {}
    left_out: dict[str, str] = {}
    if full_hierarchy:
        parent_names = {name: queue.spec.parent_queue for name, queue in members.items()}
        members = _with_rooted_parents(members, parent_names, left_out, report)
    else:
        members = _flat_hierarchy(members, left_out, report)
        parent_names = dict.fromkeys(members, names.SYNTHETIC_PARENT_QUEUE)
        parent_names[names.SYNTHETIC_PARENT_QUEUE] = ""
        creation_ns[names.SYNTHETIC_PARENT_QUEUE] = now_ns
    for name, queue in members.items():
        if name not in creation_ns:
            creation_ns[name] = _creation_ns(queue, report)

    order = sorted(members, key=lambda name: (creation_ns[name], name))
    rows = {name: row for row, name in enumerate(order)}
    parents = [rows[parent_names[name]] if parent_names[name] else -1 for name in order]
    children = _children_of(parents)
    roots = tuple(row for row, parent in enumerate(parents) if parent < 0)
    specs = [members[name].spec for name in order]
    quota, limit, weight = _read_resources(order, specs, report)
    return QueueTree(
        names=order,
        rows=rows,
        display_names=[spec.display_name or name for name, spec in zip(order, specs, strict=True)],
        parents=parents,
        children=children,
        chains=_chains(parents, roots, children),
        roots=roots,
        creation_ns=[creation_ns[name] for name in order],
        priorities=[names.DEFAULT_QUEUE_PRIORITY if spec.priority is None else spec.priority for spec in specs],
        quota=quota,
        limit=limit,
        weight=weight,
        preempt_min_runtime_ns=[
            _runtime_ns(name, "spec.preemptMinRuntime", spec.preempt_min_runtime, report)
            for name, spec in zip(order, specs, strict=True)
        ],
        reclaim_min_runtime_ns=[
            _runtime_ns(name, "spec.reclaimMinRuntime", spec.reclaim_min_runtime, report)
            for name, spec in zip(order, specs, strict=True)
        ],
        gated=[spec.admission_gating for spec in specs],
        left_out=left_out,
    )


def _children_of(parents: Sequence[int]) -> list[tuple[int, ...]]:
    child_lists: list[list[int]] = [[] for _ in parents]
    for row, parent in enumerate(parents):
        if parent >= 0:
            child_lists[parent].append(row)
    return [tuple(child_list) for child_list in child_lists]


def _chains(parents: Sequence[int], roots: Iterable[int], children: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    chains: list[tuple[int, ...]] = [()] * len(parents)
    for row in _parents_first(roots, children):
        chains[row] = (row, *chains[parents[row]]) if parents[row] >= 0 else (row,)
    return chains


def _read_resources(
    order: Sequence[str], specs: Sequence[QueueSpec], report: ProblemReporter
) -> tuple[list[list[float]], list[list[float]], list[list[float]]]:
    """Quota, limit and over-quota weight, each [resource][row]."""
    quota: list[list[float]] = [[] for _ in range(RESOURCES)]
    limit: list[list[float]] = [[] for _ in range(RESOURCES)]
    weight: list[list[float]] = [[] for _ in range(RESOURCES)]
    for name, spec in zip(order, specs, strict=True):
        # queues:Q-15: a missing number is 0, and a limit of 0 lets nothing run.
        resources = spec.resources or QueueResources()
        wire: tuple[tuple[str, QueueResource], ...] = (
            ("cpu", resources.cpu),
            ("memory", resources.memory),
            ("gpu", resources.gpu),
        )
        for resource, (word, numbers) in enumerate(wire):
            read = _NumberReader(f"Queue/{name}", f"spec.resources.{word}", resource == MEMORY, report)
            quota[resource].append(read.amount("quota", numbers.quota))
            limit[resource].append(read.amount("limit", numbers.limit))
            weight[resource].append(read.weight("overQuotaWeight", numbers.over_quota_weight))
    return quota, limit, weight


def _parents_first(roots: Iterable[int], children: Sequence[Sequence[int]]) -> tuple[int, ...]:
    order = list(roots)
    for row in order:  # grows during the loop
        order.extend(children[row])
    return tuple(order)


def _with_rooted_parents(
    members: Mapping[str, Queue], parent_names: Mapping[str, str], left_out: dict[str, str], report: ProblemReporter
) -> dict[str, Queue]:
    """The queues whose chain of parents ends at the top, by name; the others are reported (queues:Q-63, Do better)."""
    # Problem of the chain above each queue; None if it ends at the top.
    faults: dict[str, str | None] = {}
    for start in members:
        path: dict[str, None] = {}
        name = start
        while name in members and name not in faults and name not in path:
            path[name] = None
            name = parent_names[name]
        fault: str | None
        if name in path:
            fault = f"the parents form a cycle, {_cycle_text(list(path), name)}"
        elif name in members:
            fault = faults[name]
        elif name:
            fault = f"queue {list(path)[-1]!r} has the parent {name!r}, which does not exist"
        else:
            fault = None
        for passed in path:
            faults[passed] = fault
    rooted: dict[str, Queue] = {}
    for name in sorted(members):
        fault = faults[name]
        if fault is None:
            rooted[name] = members[name]
        else:
            left_out[name] = fault
            report(Problem(f"Queue/{name}", "spec.parentQueue", f"{fault}; this queue is left out"))
    return rooted


def _cycle_text(path: list[str], entry: str) -> str:
    """The cycle that the path ran into, from its smallest name on, so that all queues below it share the text."""
    cycle = path[path.index(entry) :]
    first = cycle.index(min(cycle))
    cycle = cycle[first:] + cycle[:first]
    named = cycle[:_MAX_NAMED_IN_CYCLE]
    if len(named) < len(cycle):
        return " -> ".join(named) + f" -> ... ({len(cycle)} queues)"
    return " -> ".join([*named, cycle[0]])


def _flat_hierarchy(
    members: Mapping[str, Queue], left_out: dict[str, str], report: ProblemReporter
) -> dict[str, Queue]:
    """The queues that have a parent, by name, and the synthetic queue that becomes the parent of all (queues:Q-62)."""
    top = names.SYNTHETIC_PARENT_QUEUE
    kept: dict[str, Queue] = {}
    for name in sorted(members):
        if not members[name].spec.parent_queue:
            left_out[name] = "it has no parent, and only queues below another are used when the hierarchy is off"
            continue
        if name == top:
            # It would become its own parent.
            left_out[name] = f"{top!r} is the parent of all queues when the hierarchy is off"
            report(Problem(f"Queue/{name}", "metadata.name", f"{left_out[name]}; this queue is left out"))
            continue
        kept[name] = members[name]
    unlimited = QueueResource(quota=_UNLIMITED_ON_THE_WIRE, limit=_UNLIMITED_ON_THE_WIRE, over_quota_weight=1.0)
    kept[top] = Queue(
        metadata=ObjectMeta(name=top),
        spec=QueueSpec(resources=QueueResources(gpu=unlimited, cpu=unlimited, memory=unlimited)),
    )
    return kept


def _creation_ns(queue: Queue, report: ProblemReporter) -> int:
    text = queue.metadata.creation_timestamp
    if text is None:
        return 0
    try:
        return parse_timestamp(text)
    except TimestampError as error:
        subject = f"Queue/{queue.metadata.name}"
        report(Problem(subject, "metadata.creationTimestamp", f"{error}; the queue counts as created in 1970"))
        return 0


def _runtime_ns(name: str, path: str, text: str | None, report: ProblemReporter) -> int | None:
    if text is None:
        return None
    try:
        return parse_duration(text)
    except DurationError as error:
        report(Problem(f"Queue/{name}", path, f"{error}; the value of the parent queue or the default applies"))
        return None


@dataclass(slots=True)
class _NumberReader:
    """Reads the numbers of one resource of one queue."""

    subject: str
    path: str
    in_megabytes: bool
    report: ProblemReporter

    def amount(self, key: str, value: float) -> float:
        """A quota or limit in the unit of the columns."""
        if not math.isfinite(value):
            return self._zero(key, value, "is not a number of resources")
        if value == _UNLIMITED_ON_THE_WIRE or (self.in_megabytes and value < 0):
            return math.inf
        if value < 0:
            # Upstream computes with it and corrupts the division (queues:Q-17).
            return self._zero(key, value, "is negative, and only -1 means unlimited")
        return value * _MEGABYTE if self.in_megabytes else float(value)

    def weight(self, key: str, value: float) -> float:
        """A weight; it has no unit, and none of its values means unlimited."""
        if not math.isfinite(value):
            return self._zero(key, value, "is not a number")
        if value < 0:
            return self._zero(key, value, "is negative")
        return float(value)

    def _zero(self, key: str, value: float, what: str) -> float:
        self.report(Problem(self.subject, f"{self.path}.{key}", f"{value:g} {what}; it counts as 0"))
        return 0.0
