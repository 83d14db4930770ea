"""What the cluster looks like after a cycle: GPUs, topologies, and how long binds take on each node.

Series of nodes and Topologies end with them.  A node has two series, a sum and a count, because buckets of thousands of
nodes would be more than all other metrics together.

Statements: topo:TD-16; operations:OD-17.
"""

from __future__ import annotations

from collections.abc import Collection

from pykai.core.clusterfigures import ClusterFigures, TopologyFigures
from pykai.observe.metrics import Metrics


class ClusterMetrics:
    """Metrics of the cluster."""

    def __init__(self, make: Metrics) -> None:
        self._gpus = make.gauge("cluster_gpus", "Whole GPUs of nodes that may start pods")
        self._used = make.gauge("cluster_gpus_used", "Those that a pod has, or several pods share")
        self._scattered = make.gauge("cluster_gpus_scattered", "Free GPUs of nodes on which other GPUs are used")
        self._nodes = make.atomic_gauges(
            {"cluster_nodes_by_free_gpus": "Nodes with GPUs, by how many of their GPUs are free"}, ["free_gpus"]
        )
        self._topology_nodes = make.atomic_gauges(
            {"topology_nodes": "Nodes in a Topology: those that have the labels of all its levels"}, ["topology"]
        )
        self._without_label = make.atomic_gauges(
            {"topology_nodes_without_label": "Nodes that lack the label of a level of a Topology"},
            ["topology", "label"],
        )
        self._node_binds = make.summary(
            "node_bind_latency_milliseconds",
            "From the decision to bind a pod to the server's answer, by node: sum and count",
            ["node"],
        )
        self._bound_nodes: set[str] = set()

    def publish(self, figures: ClusterFigures) -> None:
        """Set the figures of a cycle."""
        self._gpus.set(figures.gpus)
        self._used.set(figures.gpus_used)
        self._scattered.set(figures.gpus_scattered)
        self._nodes.publish(
            ((str(free),), {"cluster_nodes_by_free_gpus": nodes}) for free, nodes in figures.nodes_by_free_gpus.items()
        )
        topologies: list[tuple[str, TopologyFigures]] = sorted(figures.topologies.items())
        self._topology_nodes.publish(((name,), {"topology_nodes": each.nodes}) for name, each in topologies)
        self._without_label.publish(
            ((name, label), {"topology_nodes_without_label": nodes})
            for name, each in topologies
            for label, nodes in each.without_label.items()
        )

    def observe_bind(self, node: str, answer_s: float) -> None:
        """Record a bind to a node."""
        self._node_binds.labels(node).observe(answer_s * 1000.0)
        self._bound_nodes.add(node)

    def keep_nodes(self, nodes: Collection[str]) -> None:
        """Remove the series of all other nodes."""
        for node in self._bound_nodes.difference(nodes):
            self._node_binds.remove(node)
            self._bound_nodes.remove(node)
