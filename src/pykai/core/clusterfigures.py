"""Sums over the cluster after a cycle, for metrics: GPUs and how they are scattered, topologies, waiting work.

Read from columns and from the plan, so a cycle pays microseconds for a thousand nodes.

Statements: topo:TD-16; operations:OD-17.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from pykai.api.keys import object_key
from pykai.api.topology import Topology
from pykai.core.cluster.groupindex import GroupEntry
from pykai.core.cluster.nodetable import NodeTable
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.model.axes import IntArray
from pykai.core.model.vectors import IDLE
from pykai.core.report.decisions import Plan


@dataclass(frozen=True, slots=True)
class TopologyFigures:
    """Which nodes are in a Topology; the others are never used by work that names it."""

    nodes: int
    #: level -> nodes without its label
    without_label: Mapping[str, int]


@dataclass(slots=True)
class WaitingFigures:
    """What waits in one queue."""

    groups: int = 0
    #: those with pending pods that want GPUs
    gpu_groups: int = 0
    pods: int = 0
    #: when the oldest of the groups was created
    oldest_ns: int = 0

    def add(self, pods: int, created_ns: int, *, wants_gpus: bool) -> None:
        """Count a group."""
        self.groups += 1
        self.gpu_groups += wants_gpus
        self.pods += pods
        if created_ns and (created_ns < self.oldest_ns or not self.oldest_ns):
            self.oldest_ns = created_ns


@dataclass(frozen=True, slots=True)
class ClusterFigures:
    """The cluster at the end of a cycle; GPUs are whole ones of nodes that may start pods."""

    gpus: int = 0
    #: held by a pod, or by several that share it
    gpus_used: int = 0
    #: free ones of nodes on which others are used
    gpus_scattered: int = 0
    #: free GPUs of a node -> how many nodes have as many
    nodes_by_free_gpus: Mapping[int, int] = field(default_factory=dict)
    topologies: Mapping[str, TopologyFigures] = field(default_factory=dict)
    #: queue -> what waits in it
    waiting: Mapping[str, WaitingFigures] = field(default_factory=dict)


def cluster_figures(snapshot: Snapshot, plan: Plan) -> ClusterFigures:
    """The figures of a snapshot whose columns show the decisions of the plan."""
    axes, ready = snapshot.axes.gpu_axes, snapshot.nodes.ready
    total: IntArray = snapshot.allocatable[axes].sum(axis=0)[ready]
    idle: IntArray = snapshot.columns[IDLE, axes].sum(axis=0)[ready]
    idle = idle[total > 0].clip(0)
    total = total[total > 0]
    free, nodes = np.unique(idle, return_counts=True)
    return ClusterFigures(
        gpus=int(total.sum()),
        gpus_used=int((total - idle).clip(0).sum()),
        gpus_scattered=int(idle[idle < total].sum()),
        nodes_by_free_gpus=dict(zip(free.tolist(), nodes.tolist(), strict=True)),
        topologies={name: _topology_figures(snapshot.nodes, each) for name, each in snapshot.topologies.items()},
        waiting=_waiting_figures(snapshot, plan),
    )


def _topology_figures(nodes: NodeTable, topology: Topology) -> TopologyFigures:
    labels = tuple(level.node_label for level in topology.spec.levels)
    return nodes.remember(("topology figures", labels), lambda: _count_labels(nodes, labels))


def _count_labels(nodes: NodeTable, labels: tuple[str, ...]) -> TopologyFigures:
    inside = np.ones(len(nodes), dtype=np.bool_)
    without: dict[str, int] = {}
    for label in labels:
        has_label = nodes.per_label(label, lambda value: value is not None)
        without[label] = int((~has_label).sum())
        inside &= has_label
    return TopologyFigures(int(inside.sum()), without)


def _waiting_figures(snapshot: Snapshot, plan: Plan) -> Mapping[str, WaitingFigures]:
    found: dict[str, WaitingFigures] = {}
    for record in plan.unscheduled:
        if record.pending:
            entry = snapshot.group_entries.get(object_key(record.namespace, record.group))
            created_ns = 0 if entry is None or entry.group is None else entry.group.creation_ns
            waiting = found.setdefault(record.queue, WaitingFigures())
            waiting.add(record.pending, created_ns, wants_gpus=entry is not None and _wants_gpus(entry))
    return found


def _wants_gpus(entry: GroupEntry) -> bool:
    _, _, gpu_hundredths = entry.requested
    return gpu_hundredths > 0 or entry.requested_mib > 0
