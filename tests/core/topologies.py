"""A fluent builder for clusters with topologies.

    found = racks(("zone", "rack"), ("z1/r1", 2), ("z1/r2", 2)).gang("busy", gpu=1, on="n0")
    result = found.gang("j", 2, gpu=1, group_spec=inside("rack")).schedule()

A node is ("value/value", GPUs), one value a level; nodes are called n0, n1, ...
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pykai.core.cycle.gangs import BranchState, Gang, LeafState, leaves_of
from pykai.core.hooks import ALL_NODES, NodeSet, NoNodeSets
from pykai.core.opencycle import Cycle
from pykai.core.report.sentences import detailed_group_text
from tests.core.builders import Cluster, Raw, Result, SubgroupSpec, cluster


def topology(built: Cluster, *levels: str, name: str = "net", aliases: Mapping[str, str] | None = None) -> Cluster:
    """A Topology; `aliases` are further names of its levels, level -> alias."""
    known = aliases or {}
    return built.add(
        {
            "apiVersion": "kai.scheduler/v1alpha1",
            "kind": "Topology",
            "metadata": {"name": name},
            "spec": {
                "levels": [
                    {"nodeLabel": level, **({"alias": known[level]} if level in known else {})} for level in levels
                ]
            },
        }
    )


def racks(levels: tuple[str, ...], *nodes: tuple[str, int], aliases: Mapping[str, str] | None = None) -> Cluster:
    """Nodes n0, n1, ... given as ("value/value", GPUs), with a queue; a value `-` leaves the label out."""
    built = topology(cluster().queue("q"), *levels, aliases=aliases)
    for index, (path, gpus) in enumerate(nodes):
        labels = zip(levels, path.split("/"), strict=True)
        built.node(f"n{index}", gpus=gpus, labels={level: value for level, value in labels if value != "-"})
    return built


def inside(required: str = "", preferred: str = "", name: str = "net") -> Raw:
    """A constraint as the spec of a group or a subgroup has it."""
    wanted = {"topology": name, "requiredTopologyLevel": required, "preferredTopologyLevel": preferred}
    return {"topologyConstraint": {key: value for key, value in wanted.items() if value}}


def keeping(part: SubgroupSpec, required: str = "", preferred: str = "", name: str = "net") -> SubgroupSpec:
    """A subgroup with a constraint of its own."""
    return replace(part, spec=inside(required, preferred, name))


def busy(built: Cluster, **nodes: int) -> Cluster:
    """So many single GPUs of these nodes are in use by work that cannot be evicted."""
    for node, count in nodes.items():
        for index in range(count):
            built.gang(f"on-{node}-{index}", gpu=1, on=node, preemptible=False)
    return built


def where(result: Result, group: str, *pods: Any) -> list[str]:
    """Nodes of some pods of a group, by their numbers or names."""
    return [result.node_of(f"{group}-{pod}") for pod in pods]


def detailed(result: Result, group: str) -> str:
    """Why a group waits, in the detailed form."""
    record = result.unscheduled(group)
    assert record is not None, f"{group} was placed"
    return detailed_group_text(record)


def subgroup(gang: Gang, name: str) -> BranchState | LeafState:
    """A subgroup of a gang by its name, the gang itself for ""."""
    pending_nodes: list[BranchState | LeafState] = [gang.root]
    for node in pending_nodes:
        if node.name == name:
            return node
        pending_nodes += node.children if isinstance(node, BranchState) else []
    raise KeyError(name)


def node_sets(cycle: Cycle, group: str, name: str = "", only: Iterable[str] = ()) -> list[NodeSet]:
    """The node sets a subgroup would be tried on, in order, if it may be on `only` some nodes."""
    gang = cycle.gangs.gang(cycle.context.snapshot.group_entries[f"default/{group}"])
    node = subgroup(gang, name)
    below = {leaf.name for leaf in leaves_of(node)}
    tasks = [task for batch in cycle.gangs.next_tasks(gang) if batch.leaf.name in below for task in batch.tasks]
    (make,) = cycle.context.rules.node_set_makers(gang)
    chosen = set(only)
    inside = NodeSet(np.array([name in chosen for name in cycle.context.snapshot.nodes.names])) if chosen else ALL_NODES
    sets = make(cycle.state, gang, node, tasks, inside)
    assert not isinstance(sets, NoNodeSets), sets
    return list(sets)


def offered(built: Cluster, group: str, name: str = "", only: Iterable[str] = ()) -> list[list[str]]:
    """The same as names of nodes."""
    cycle = built.cycle()
    names = cycle.context.snapshot.nodes.names
    return [
        [node for row, node in enumerate(names) if each.mask is None or each.mask[row]]
        for each in node_sets(cycle, group, name, only)
    ]
