"""Topology (kai.scheduler/v1alpha1): the levels of the network between the nodes, coarsest first.

A level is a node label; nodes with equal values of it, and of all coarser levels, form a domain. An alias is a second
name under which constraints may call a level, and may be edited while workloads run, so it is resolved at every
snapshot.
"""

from msgspec import field

from pykai.api.meta import ObjectMeta, Wire


class TopologyLevel(Wire):
    node_label: str = ""
    alias: str = ""


class TopologySpec(Wire):
    levels: list[TopologyLevel] = field(default_factory=list)


class Topology(Wire):
    """Levels, coarsest first; cluster-scoped."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: TopologySpec = field(default_factory=TopologySpec)
