"""A PodGroup as the engine keeps it: facts of the object and its tree of subgroups (cycle:6.1).

The tree has inner nodes (`Branch`, upstream's SubGroupSet) and leaves (`Leaf`, upstream's PodSet).  A plain gang is a
root with one leaf called `default`.  The classes here are immutable; what changes during a cycle (how many tasks of a
leaf run) lives in `gangs.py`.

Statements: crowds:subgroups.
"""

from __future__ import annotations

from dataclasses import dataclass

from pykai.api import names
from pykai.api.duration import DurationError, parse_duration
from pykai.api.keys import object_key
from pykai.api.meta import ObjectMeta
from pykai.api.scheduling import DEEPEST_SUBGROUP, MOST_SUBGROUPS, PodGroup, SubGroup, TopologyConstraint
from pykai.api.timestamp import TimestampError, parse_timestamp
from pykai.core.model.problems import Problem, ProblemReporter

_PREEMPTIBILITIES = ("", names.PREEMPTIBLE, names.NON_PREEMPTIBLE, names.SEMI_PREEMPTIBLE)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A set of interchangeable pods with a minimum."""

    name: str
    #: pods that must run together
    minimum: int
    topology: TopologyConstraint | None = None


@dataclass(frozen=True, slots=True)
class Branch:
    """A set of subgroups of which some number must be satisfied (cycle:POL-5)."""

    name: str
    #: how many children must be satisfied; None = all of them
    min_sub_group: int | None
    children: tuple[Leaf | Branch, ...]
    topology: TopologyConstraint | None = None

    @property
    def min_children(self) -> int:
        """Children that must be satisfied (cycle:PG-5)."""
        return len(self.children) if self.min_sub_group is None else self.min_sub_group


@dataclass(frozen=True, slots=True)
class Group:
    """The facts of one PodGroup that scheduling reads."""

    key: str
    namespace: str
    name: str
    uid: str
    queue: str
    creation_ns: int
    priority_class: str
    #: as the object says: `preemptible`, `non-preemptible`, or "" = by priority
    preemptibility: str
    root: Branch
    #: leaf name -> position in `leaves`
    leaf_index: dict[str, int]
    leaves: tuple[Leaf, ...]
    #: why the tree of the object could not be used, "" when it could
    tree_error: str
    min_member: int
    last_start_ns: int | None
    last_eviction_ns: int | None
    stale_since_ns: int | None
    staleness_grace_ns: int | None
    preemption_delay_ns: int | None
    mark_unschedulable: bool
    scheduling_backoff: int
    #: node pool of the newest scheduling condition, None without conditions
    last_condition_pool: str | None
    node_pool: str | None
    #: whether the group or a subgroup names a topology
    names_topology: bool
    #: how many subgroups the tree has, inner ones included
    subgroups: int
    #: one leaf that must be satisfied: the tree of a group without subgroups
    has_single_leaf: bool

    @property
    def in_cycle(self) -> bool:
        """Whether the group takes part; a group in back-off after a failure in this pool does not (cycle:SNP-11)."""
        if self.scheduling_backoff == -1 or self.last_condition_pool is None:
            return True
        return self.last_condition_pool != (self.node_pool or "default")


def _names_topology(node: Branch | Leaf) -> bool:
    if node.topology is not None and node.topology.topology:
        return True
    return isinstance(node, Branch) and any(_names_topology(child) for child in node.children)


def _single_leaf_root(
    minimum: int, topology: TopologyConstraint | None = None, min_sub_group: int | None = None
) -> Branch:
    return Branch("", min_sub_group, (Leaf(names.DEFAULT_SUBGROUP, minimum),), topology)


def build_subgroup_tree(podgroup: PodGroup) -> tuple[Branch, str]:
    """The subgroup tree and, if the object's own tree is invalid, what is wrong with it (cycle:PG-1, PG-2, PG-3).

    Statements: topo:T-1 to T-3; workloads:PS-2.
    """
    spec = podgroup.spec
    topology = spec.topology_constraint
    if topology is not None and not topology.topology:
        topology = None
    entries = spec.sub_groups
    if not entries:
        minimum = 1 if spec.min_member is None else max(0, spec.min_member)
        return _single_leaf_root(minimum, topology), ""

    error = _tree_error(entries)
    if error:
        return _single_leaf_root(1, topology), error
    children_of: dict[str, list[SubGroup]] = {}
    for entry in entries:
        children_of.setdefault((entry.parent or "").lower(), []).append(entry)

    # Children are built before their parents, deepest first, so depth is not bounded by recursion.
    built: dict[str, Leaf | Branch] = {}
    for entry in reversed(_parents_first(children_of)):
        child_entries = children_of.get(entry.name)
        if child_entries:
            built[entry.name] = Branch(
                entry.name,
                _at_least_zero(entry.min_sub_group),
                tuple(built[child.name] for child in child_entries),
                entry.topology_constraint,
            )
        else:
            built[entry.name] = Leaf(entry.name, max(0, entry.min_member or 0), entry.topology_constraint)
    top_level = tuple(built[entry.name] for entry in children_of[""])
    return Branch("", _at_least_zero(spec.min_sub_group), top_level, topology), ""


def _at_least_zero(value: int | None) -> int | None:
    return None if value is None else max(0, value)


# A tree that the webhook would have refused (workloads:PS-5).
def _tree_error(entries: list[SubGroup]) -> str:
    if len(entries) > MOST_SUBGROUPS:
        return f"{len(entries)} subgroups, at most {MOST_SUBGROUPS} are allowed"
    seen: set[str] = set()
    for entry in entries:
        if not entry.name:
            return "a subgroup has no name"
        if entry.name in seen:
            return f'subgroup "{entry.name}" is listed twice'
        seen.add(entry.name)
    parents: dict[str, str] = {}
    for entry in entries:
        parent = (entry.parent or "").lower()
        if parent and parent not in seen:
            return f'subgroup "{entry.name}" names parent "{entry.parent}", which does not exist'
        parents[entry.name] = parent
    # Levels of subgroups that are known to lead to the top; each subgroup is visited once.
    levels = {"": 0}
    for name in parents:
        path: dict[str, None] = {}
        ancestor = name
        while ancestor not in levels:
            if ancestor in path:
                return f'subgroup "{ancestor}" is its own ancestor'
            path[ancestor] = None
            ancestor = parents[ancestor]
        levels.update({each: level for level, each in enumerate(reversed(path), levels[ancestor] + 1)})
        if levels[name] > DEEPEST_SUBGROUP:
            return f'subgroup "{name}" is nested deeper than {DEEPEST_SUBGROUP} levels'
    return ""


def _parents_first(children_of: dict[str, list[SubGroup]]) -> list[SubGroup]:
    order: list[SubGroup] = []
    level = list(children_of.get("", ()))
    while level:
        order.extend(level)
        level = [child for entry in level for child in children_of.get(entry.name, ())]
    return order


def _leaves(root: Branch) -> tuple[Leaf, ...]:
    leaves: list[Leaf] = []
    stack: list[Leaf | Branch] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, Leaf):
            leaves.append(node)
        else:
            stack.extend(reversed(node.children))
    return tuple(leaves)


def read_group(podgroup: PodGroup, node_pool_key: str, report: ProblemReporter) -> Group:
    """The engine's view of a PodGroup; fields that cannot be read are reported and count as absent (cycle:SNP-16)."""
    meta, spec = podgroup.metadata, podgroup.spec
    subject = f"PodGroup/{meta.namespace}/{meta.name}"
    root, tree_error = build_subgroup_tree(podgroup)
    if tree_error:
        report(Problem(subject, "spec.subGroups", f"{tree_error}; the group waits until this is fixed"))
    delay_ns = _preemption_delay_ns(spec.preemption_delay, subject, report)
    preemptibility = _preemptibility(spec.preemptibility or "", subject, report)
    leaves = _leaves(root)
    labels = meta.labels
    conditions = podgroup.status.scheduling_conditions
    newest = max(conditions, key=lambda condition: _transition(condition.transition_id), default=None)
    return Group(
        key=object_key(meta.namespace, meta.name),
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        queue=spec.queue or "",
        creation_ns=_timestamp_ns(meta.creation_timestamp, "metadata.creationTimestamp", subject, report) or 0,
        priority_class=spec.priority_class_name or "",
        preemptibility=preemptibility,
        root=root,
        leaf_index={leaf.name: index for index, leaf in enumerate(leaves)},
        leaves=leaves,
        tree_error=tree_error,
        min_member=sum(leaf.minimum for leaf in leaves),
        last_start_ns=_annotated_ns(meta, names.LAST_START_TIMESTAMP_ANNOTATION, subject, report),
        last_eviction_ns=_annotated_ns(meta, names.LAST_EVICTION_TIMESTAMP_ANNOTATION, subject, report),
        stale_since_ns=_annotated_ns(meta, names.STALE_TIMESTAMP_ANNOTATION, subject, report),
        staleness_grace_ns=_staleness_grace_ns(spec.staleness_grace_period, subject, report),
        preemption_delay_ns=delay_ns,
        mark_unschedulable=spec.mark_unschedulable is not False,
        scheduling_backoff=-1 if spec.scheduling_backoff is None else spec.scheduling_backoff,
        last_condition_pool=newest.node_pool if newest is not None else None,
        node_pool=labels.get(node_pool_key) if node_pool_key else None,
        names_topology=_names_topology(root),
        subgroups=0 if tree_error else len(spec.sub_groups),
        has_single_leaf=root.min_sub_group is None and len(root.children) == 1 and isinstance(root.children[0], Leaf),
    )


def _timestamp_ns(text: str | None, field: str, subject: str, report: ProblemReporter) -> int | None:
    if not text:
        return None
    try:
        return parse_timestamp(text)
    except TimestampError as error:
        report(Problem(subject, field, f"{error}; treated as absent"))
        return None


def _annotated_ns(meta: ObjectMeta, key: str, subject: str, report: ProblemReporter) -> int | None:
    text = meta.annotations.get(key)
    return _timestamp_ns(text, f"metadata.annotations[{key}]", subject, report) if text else None


def _staleness_grace_ns(text: str | None, subject: str, report: ProblemReporter) -> int | None:
    if not text:
        return None
    try:
        return parse_duration(text)
    except DurationError as error:
        report(Problem(subject, "spec.stalenessGracePeriod", f"{error}; the scheduler's default is used"))
        return None


def _preemption_delay_ns(text: str | None, subject: str, report: ProblemReporter) -> int | None:
    if not text:
        return None
    try:
        delay_ns = parse_duration(text)
    except DurationError as error:
        report(Problem(subject, "spec.preemptionDelay", f"{error}; no delay is used"))
        return None
    if delay_ns < 0:
        report(Problem(subject, "spec.preemptionDelay", f"{text!r} is negative; no delay is used"))
    return delay_ns


def _preemptibility(text: str, subject: str, report: ProblemReporter) -> str:
    """The field as it is; a value that is not known is reported, and the priority decides."""
    if text not in _PREEMPTIBILITIES:
        problem = f"{text!r} is not one of {', '.join(_PREEMPTIBILITIES[1:])}; the priority decides"
        report(Problem(subject, "spec.preemptibility", problem))
    return text


def _transition(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else 0
