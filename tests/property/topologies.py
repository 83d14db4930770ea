"""Random small clusters with topologies, and a plain model that knows every placement of a gang.

`gang_problems()` draws one gang of one kind of pod, flat or with subgroups, with constraints on any of them, and nodes
that are partly in use.  `Problem.solvable` tries every way to spread its pods over the nodes, so it needs no idea how
domains are chosen.  `busy_clusters()` draws many gangs that compete: what runs was put there by the engine itself, so
that every cluster is one that can exist.

Most nodes have all labels; some miss one, some have an empty value, and a second topology cuts across the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import strategies as st

from tests.core.builders import Cluster, Raw, cluster
from tests.core.topologies import topology
from tests.property.clustermodel import NodeModel, PodRequest
from tests.property.clusters import ACTIONS, AGES, TAINT

#: topology -> its levels, the coarsest first
LEVELS = {"net": ("zone", "rack"), "power": ("feed",)}

TOPOLOGY_KINDS = (
    "flat",
    "subgroups",
    "nested",
    "two topologies",
    "shared GPUs",
    "pinned",
    "placed",
    "no placement",
    "budget spent",
    "grown",
    "restarted",
    "domain emptied for",
    "keeper evicted",
    "keeper moved",
    "victims suffice",
)


@dataclass(frozen=True)
class Constraint:
    """A topology constraint; without a topology there is none."""

    topology: str = ""
    required: str = ""
    preferred: str = ""

    def spec(self) -> Raw:
        """As a PodGroup or a subgroup spells it."""
        if not self.topology:
            return {}
        fields = {"requiredTopologyLevel": self.required, "preferredTopologyLevel": self.preferred}
        return {"topologyConstraint": {"topology": self.topology, **{k: v for k, v in fields.items() if v}}}

    def allows(self, labels: Raw) -> bool:
        """Whether a node may be used at all."""
        return not self.topology or all(level in labels for level in LEVELS[self.topology])

    def domain(self, labels: Raw) -> tuple[str, ...]:
        """What all nodes must have in common."""
        levels = LEVELS[self.topology] if self.required else ()
        return tuple(labels[level] for level in levels[: levels.index(self.required) + 1]) if levels else ()

    def holds(self, nodes: Iterable[Raw]) -> bool:
        """Whether pods may be on nodes with these labels."""
        every = list(nodes)
        return all(self.allows(labels) for labels in every) and len({self.domain(labels) for labels in every}) < 2


FREE = Constraint()
_NET = (
    Constraint("net", "zone"),
    Constraint("net", "rack"),
    Constraint("net", "", "zone"),
    Constraint("net", "", "rack"),
    Constraint("net", "zone", "rack"),
    Constraint("net", "rack", "zone"),
)
_POWER = (Constraint("power", "feed"), Constraint("power", "", "feed"))


def _labels(dice: Random) -> dict[str, str]:
    zone = dice.choice(("a", "a", "a", "b", "b", ""))
    labels = {"zone": zone, "rack": dice.choice(("1", "2", "1", "2", "3")), "feed": dice.choice("xy")}
    if dice.randrange(10) == 0:
        del labels[dice.choice(sorted(labels))]
    return labels


def with_topologies(built: Cluster) -> Cluster:
    """Both topologies."""
    for name, levels in LEVELS.items():
        topology(built, *levels, name=name)
    return built


# One gang and all its placements


@dataclass(frozen=True)
class GangProblem:
    """A gang that waits."""

    built: Cluster
    #: labels and places of every node that may start pods
    nodes: tuple[tuple[dict[str, str], int], ...]
    constraint: Constraint
    #: subgroup -> its constraint; one without subgroups is called ""
    constraints: dict[str, Constraint]
    #: subgroup -> its parent
    parents: dict[str, str]
    #: leaf -> its pods that wait
    sizes: dict[str, int]
    #: leaf -> labels of the node on which a pod of it runs already
    running: dict[str, dict[str, str]]
    #: words of `TOPOLOGY_KINDS`
    kinds: frozenset[str]

    def solvable(self) -> bool:
        """Whether there is any placement of all pods."""
        return any(True for _ in self._ways(sorted(self.sizes), [places for _, places in self.nodes], {}))

    def _ways(self, leaves: list[str], room: list[int], chosen: dict[str, list[int]]) -> Iterator[bool]:
        if not leaves:
            yield True
            return
        leaf, *others = leaves
        for spread in _spreads(self.sizes[leaf], room):
            chosen[leaf] = [index for index, count in enumerate(spread) if count]
            if self._holds(chosen):
                left = [have - count for have, count in zip(room, spread, strict=True)]
                yield from self._ways(others, left, chosen)
            del chosen[leaf]

    def _holds(self, chosen: dict[str, list[int]]) -> bool:
        for name, wish in (("", self.constraint), *self.constraints.items()):
            rows = {row for leaf, used in chosen.items() if self._below(leaf, name) for row in used}
            there = [labels for leaf, labels in self.running.items() if self._below(leaf, name) and wish.required]
            if rows and not wish.holds([*there, *(self.nodes[row][0] for row in rows)]):
                return False
        return True

    def _below(self, leaf: str, name: str) -> bool:
        while leaf != name and leaf:
            leaf = self.parents.get(leaf, "")
        return leaf == name


def _spreads(count: int, room: list[int]) -> Iterator[list[int]]:
    """Every way to spread equal pods over nodes."""
    if not room:
        if not count:
            yield []
        return
    for here in range(min(count, room[0]), -1, -1):
        for rest in _spreads(count - here, room[1:]):
            yield [here, *rest]


def pods_that_fit(room: NodeModel, ask: PodRequest, most: int) -> int:
    """How many pods of a kind a node can hold, `most` at the most."""
    caps: list[int] = []
    if ask.shared:
        mib = ask.mib(room)
        caps = [(room.gpu_mib - used) // mib for used in room.devices.values()] + [room.gpu_mib // mib] * room.gpus
        if ask.gpu_memory is not None and not room.memory_known:
            return 0
    for count in range(most, 0, -1):
        if count * 1000 * ask.cpu > room.cpu_milli or count > room.pods or count * ask.gpu > room.gpus:
            continue
        if not ask.shared or sum(min(cap, count) for cap in caps) >= count * ask.count:
            return count
    return 0


def _ask(dice: Random) -> PodRequest:
    devices = dice.choice((None, None, 2))
    return dice.choice(
        (
            PodRequest(1, dice.choice((1, 1, 2))),
            PodRequest(dice.choice((1, 3, 0))),
            PodRequest(0, fraction=dice.choice(("0.5", "0.3", "0.335", "0.7")), devices=devices),
            PodRequest(0, gpu_memory=dice.choice((333, 500, 600)), devices=devices),
        )
    )


def _tree(dice: Random) -> dict[str, str]:
    """Subgroup -> its parent."""
    return dice.choice(
        (
            {},
            {},
            {"a": "", "b": ""},
            {"a": "", "b": "", "c": ""},
            {"up": "", "a": "up", "b": "up"},
            {"up": "", "a": "up", "b": "up", "c": ""},
        )
    )


@st.composite
def gang_problems(draw: st.DrawFn) -> GangProblem:
    """At most six pods of one kind and at most six nodes."""
    dice = Random(draw(st.integers(0, 2**63 - 1)))
    size = draw(st.integers(1, 6))
    ask = _ask(dice)
    built = with_topologies(cluster().queue("q").priority_class("build", 100))
    nodes = []
    running: dict[str, dict[str, str]] = {}
    parents = _tree(dice)
    leaves = [name for name in parents if name not in parents.values()] or [""]
    lucky, guest = dice.choice(leaves), dice.choice((-1, -1, *range(size)))
    for index in range(size):
        labels = _labels(dice)
        gpus, cpu, taint = dice.choice((1, 2, 2, 3, 4)), dice.choice((16, 16, 3)), dice.randrange(12) == 0
        gpu_memory = dice.choice((1000, 1000, 2000))
        built.node(f"n{index}", gpus=gpus, cpu=cpu, gpu_memory=gpu_memory, labels=labels, taints=[TAINT] * taint)
        room, later = (NodeModel(f"n{index}", 1000 * cpu, 2**39, 110, gpus, gpu_memory) for _ in range(2))
        for serial in range(dice.choice((0, 0, 1, 2))):
            _busy(dice, built, room, later, f"busy{index}{serial}")
        if index == guest and not ask.shared and room.fits(ask):
            running[lucky] = labels
            later.place(ask, ())
        if not taint:
            nodes.append((labels, pods_that_fit(later, ask, 6)))
    pool = _NET if dice.randrange(4) else _NET + _POWER
    each = 6 // len(leaves)
    sizes = {leaf: dice.choice((1, 2, 3, 4, each)) for leaf in leaves}
    while sum(sizes.values()) > 6:
        sizes[max(sizes, key=lambda leaf: sizes[leaf])] -= 1
    wishes = {name: dice.choice((FREE, *pool)) for name in parents}
    wish = dice.choice((FREE, *pool)) if parents else dice.choice(pool)
    minimums = {leaf: count + (leaf in running) for leaf, count in sizes.items()}
    _add_gang(built, "job", ask, wish, wishes, parents, sizes, minimums)
    for leaf in running:
        built.pod("job-guest", group="job", subgroup=leaf, on=f"n{guest}", **{**ask.as_pod(), "memory": 0})
    topologies = {each.topology for each in (wish, *wishes.values()) if each.topology}
    words = {
        "flat": not parents,
        "subgroups": len(leaves) > 1,
        "nested": "up" in parents,
        "two topologies": len(topologies) > 1,
        "shared GPUs": ask.shared,
        "pinned": bool(running) and any(each.required for each in (wish, *wishes.values())),
    }
    kinds = frozenset(word for word, true in words.items() if true)
    return GangProblem(built, tuple(nodes), wish, wishes, parents, sizes, running, kinds)


def _busy(dice: Random, built: Cluster, room: NodeModel, later: NodeModel, name: str) -> None:
    """A pod on a node that stays or terminates: `room` is the node now, `later` without terminating pods."""
    ask = dice.choice((PodRequest(1, 1), PodRequest(0, fraction="0.5"), PodRequest(0, fraction="0.3"), PodRequest(2)))
    known = [device for device in sorted(room.devices) if room.fits(ask, (device,))]
    devices = tuple([*known, f"{room.name}-gpu-{name}"][: ask.count])
    if not room.fits(ask, devices):
        return
    room.place(ask, devices)
    pod: dict[str, Any] = {**ask.as_pod(), "on": room.name, "device": devices, "memory": 0}
    if dice.randrange(4) == 0:
        pod["deleted"] = 10
    else:
        later.place(ask, devices)
    built.gang(name, preemptible=False, **pod)


def _add_gang(
    built: Cluster,
    name: str,
    ask: PodRequest,
    wish: Constraint,
    wishes: dict[str, Constraint],
    parents: dict[str, str],
    sizes: dict[str, int],
    minimums: dict[str, int] | None = None,
    **group: Any,
) -> None:
    """A group whose every pod is needed, unless `group` says otherwise."""
    spec: Raw = {"preemptibility": "preemptible", **wish.spec(), **group}
    if not parents:
        spec.setdefault("minMember", (minimums or sizes)[""])
    else:
        spec["subGroups"] = [
            {
                "name": child,
                **({"parent": parent} if parent else {}),
                **({"minMember": (minimums or sizes)[child]} if child in sizes else {}),
                **wishes[child].spec(),
            }
            for child, parent in parents.items()
        ]
    built.group(name, **spec)
    for leaf, count in sizes.items():
        for index in range(count):
            built.pod(f"{name}-{leaf}{index}", group=name, subgroup=leaf, **{**ask.as_pod(), "memory": 0})


# Many gangs that compete


@dataclass(frozen=True)
class RequiredConstraint:
    """A subgroup and what it must keep."""

    group: str
    leaves: frozenset[str]
    wish: Constraint


def required_constraints(objects: Iterable[Raw]) -> list[RequiredConstraint]:
    """Everything the groups of a cluster require, read from the raw objects."""
    found = []
    for raw in objects:
        if raw["kind"] != "PodGroup":
            continue
        spec = raw["spec"]
        entries = {entry["name"]: entry for entry in spec.get("subGroups", ())}
        for name, holder in (("", spec), *entries.items()):
            wanted = holder.get("topologyConstraint")
            if not wanted or "requiredTopologyLevel" not in wanted:
                continue
            wish = Constraint(wanted["topology"], wanted["requiredTopologyLevel"])
            leaves = {leaf for leaf in entries if _under(entries, leaf, name)} or {name}
            found.append(RequiredConstraint(f"default/{raw['metadata']['name']}", frozenset(leaves), wish))
    return found


def _under(entries: dict[str, Raw], leaf: str, name: str) -> bool:
    while leaf and leaf != name:
        leaf = entries[leaf].get("parent", "")
    return leaf == name


def add_job(dice: Random, built: Cluster, name: str, queues: list[str]) -> None:
    """A group of one kind of pod: a gang, an elastic one, or one with subgroups."""
    parents = _tree(dice)
    leaves = [child for child in parents if child not in parents.values()] or [""]
    pool = (FREE, *_NET, *_NET[:2], *_POWER)
    group: Raw = {
        "queue": dice.choice(queues),
        "age": dice.choice(AGES),
        "priorityClassName": dice.choice(("", "", "high")),
        "preemptibility": dice.choice(("preemptible", "preemptible", "preemptible", "semi-preemptible")),
    }
    if not parents:
        group["minMember"] = dice.choice((1, 1, 2))
    elif dice.randrange(3) == 0:
        group["minSubGroup"] = 1
    sizes = {leaf: dice.choice((2, 1, 3)) for leaf in leaves}
    minimums = {leaf: dice.choice((sizes[leaf], 1, 0)) for leaf in leaves} if parents else None
    ask = dice.choice(
        (PodRequest(1, 1), PodRequest(1, 1), PodRequest(1, 2), PodRequest(0, fraction="0.5"), PodRequest(3))
    )
    wishes = {child: dice.choice(pool) for child in parents}
    _add_gang(built, name, ask, dice.choice(pool), wishes, parents, sizes, minimums, **group)


@st.composite
def busy_clusters(draw: st.DrawFn, *, most_nodes: int = 4, most_jobs: int = 6) -> Cluster:
    """Nodes in domains and more work than they hold, nothing running yet; its cycle runs all actions."""
    seed = draw(st.integers(0, 2**63 - 1))
    node_count, job_count = draw(st.integers(2, most_nodes)), draw(st.integers(2, most_jobs))
    built = with_topologies(cluster().with_actions(*ACTIONS).priority_class("high", 125))
    for index, quota in enumerate((2, 4)):
        built.queue(f"q{index}", quota=quota, age=10 * index + 10)
    for index in range(node_count):
        dice = Random(f"{seed} node {index}")
        built.node(f"n{index}", gpus=dice.choice((1, 2, 2, 3)), cpu=dice.choice((16, 4)), labels=_labels(dice))
    for index in range(job_count):
        add_job(Random(f"{seed} job {index}"), built, f"job{index}", ["q0", "q1"])
    return built


# Gangs of different pods

_DIFFERENT = (
    PodRequest(0, 1),
    PodRequest(0, 2),
    PodRequest(40),
    PodRequest(0, fraction="0.1"),
    PodRequest(0, fraction="0.335"),
    PodRequest(0, fraction="0.5"),
    PodRequest(0, fraction="0.7"),
    PodRequest(0, gpu_memory=300),
)


def mixed_gang(seed: int, constraint: Raw, rack: str = "") -> Cluster:
    """A gang of different pods in racks that are partly in use; with a `rack` its pods select that one."""
    dice = Random(seed)
    built = topology(cluster().queue("q"), "rack", name="net")
    for index in range(dice.randint(2, 5)):
        gpus = dice.choice((1, 2, 2, 3))
        built.node(f"n{index}", gpus=gpus, labels={"rack": f"r{dice.randrange(3)}"})
        room, later = (NodeModel(f"n{index}", 100_000, 2**39, 110, gpus, 1000) for _ in range(2))
        if dice.randrange(3) == 0:
            _busy(dice, built, room, later, f"busy{index}")
        if dice.randrange(6) == 0:
            # More than the node offers: it was placed by hand.
            built.gang(f"over{index}", cpu=120, memory=0, on=f"n{index}", preemptible=False)
    asks = [dice.choice(_DIFFERENT) for _ in range(dice.randint(2, 4))]
    built.group("job", minMember=len(asks), **constraint)
    spec: Raw = {"nodeSelector": {"rack": rack}} if rack else {}
    for index, ask in enumerate(asks):
        built.pod(f"job-{index}", group="job", spec=spec, **{**ask.as_pod(), "memory": 0})
    return built
