"""Objects that pods, groups and nodes refer to by name.

Priority classes, topologies, NUMA zones, config maps and namespaces change seldom.  Priority classes are copied with
every change, because a snapshot keeps them.
"""

from __future__ import annotations

from pykai.api.core import Namespace, PriorityClass
from pykai.api.decode import WireObject
from pykai.api.keys import object_key
from pykai.api.numa import NodeResourceTopology
from pykai.api.topology import MOST_LEVELS, Topology, alias_problems, validate_topology
from pykai.core.cluster.objectproblems import ObjectProblems
from pykai.core.model.problems import Problem
from pykai.core.model.zones import NodeZones, read_zones


class NamedObjects:
    """The objects by name; config maps by namespace and name."""

    __slots__ = ("_problems", "config_maps", "namespaces", "numa", "priority_classes", "topologies")

    def __init__(self, problems: ObjectProblems) -> None:
        self._problems = problems
        self.priority_classes: dict[str, PriorityClass] = {}
        self.topologies: dict[str, Topology] = {}
        #: node name -> its NUMA zones
        self.numa: dict[str, NodeZones] = {}
        self.config_maps: set[str] = set()
        #: name -> labels
        self.namespaces: dict[str, dict[str, str]] = {}

    def apply(self, item: WireObject) -> None:
        """Add or replace a priority class, a topology or the zones of a node."""
        if isinstance(item, PriorityClass):
            self.priority_classes = {**self.priority_classes, item.metadata.name: item}
        elif isinstance(item, Topology):
            self._apply_topology(item)
        elif isinstance(item, NodeResourceTopology):
            self._apply_zones(item)

    def add_config_map(self, key: str) -> bool:
        """Add a config map; whether it was not there."""
        if key in self.config_maps:
            return False
        self.config_maps.add(key)
        return True

    def apply_namespace(self, namespace: Namespace) -> bool:
        """Set the labels of a namespace; whether they changed."""
        name, labels = namespace.metadata.name, namespace.metadata.labels
        if self.namespaces.get(name) == labels:
            return False
        self.namespaces[name] = dict(labels)
        return True

    def remove(self, kind: str, namespace: str, name: str) -> None:
        """Remove an object; unknown ones are ignored."""
        if kind == "PriorityClass":
            self.priority_classes = {key: item for key, item in self.priority_classes.items() if key != name}
        elif kind == "ConfigMap":
            self.config_maps.discard(object_key(namespace, name))
        elif kind == "Namespace":
            self.namespaces.pop(name, None)
        elif kind == "Topology":
            self.topologies.pop(name, None)
            self._problems.set(f"Topology/{name}", [])
        elif kind == "NodeResourceTopology":
            self.numa.pop(name, None)
            self._problems.set(f"NodeResourceTopology/{name}", [])

    def _apply_topology(self, topology: Topology) -> None:
        """Add or replace a topology and report its problems; one with too many levels counts as absent."""
        name = topology.metadata.name
        subject = f"Topology/{name}"
        levels = len(topology.spec.levels)
        if levels > MOST_LEVELS:
            text = f"{levels} levels, at most {MOST_LEVELS} are allowed; the topology counts as absent"
            self.topologies.pop(name, None)
            self._problems.set(subject, [Problem(subject, "spec.levels", text)])
            return
        self.topologies[name] = topology
        texts = [*validate_topology(topology), *filter(None, [alias_problems(topology)])]
        self._problems.set(subject, [Problem(subject, "", text) for text in texts])

    def _apply_zones(self, topology: NodeResourceTopology) -> None:
        name = topology.metadata.name
        problems: list[Problem] = []
        zones = read_zones(topology, problems.append)
        if zones is None:
            self.numa.pop(name, None)
        else:
            self.numa[name] = zones
        self._problems.set(f"NodeResourceTopology/{name}", problems)
