"""The Karta object (`run.ai/v1alpha1`, cluster-scoped), as far as grouping reads it (workloads:6.2).

A Karta describes one kind of workload as a tree of components.  The root is the workload itself; each component says by
jq expressions how many pods it has, and which pods are its own.
"""

from __future__ import annotations

from typing import Any

from pykai.api.meta import ObjectMeta, Wire


class Karta(Wire):
    """A Karta; its spec is decoded when it is compiled, so that a bad one can be reported."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Any = None


class KartaKind(Wire):
    """The kind of a component."""

    group: str = ""
    version: str = ""
    kind: str = ""


class KartaScale(Wire):
    """Where the workload holds the replicas of a component, one result for each instance."""

    replicas_path: str | None = None
    min_replicas_path: str | None = None
    max_replicas_path: str | None = None


class KartaTypeSelector(Wire):
    """Which pods belong to a component: those that have the key, with this value if there is one."""

    key_path: str = ""
    value: str | None = None


class KartaInstanceSelector(Wire):
    """Where a pod holds the id of its instance."""

    id_path: str = ""


class KartaPodSelector(Wire):
    """How the pods of a component are found."""

    component_type_selector: KartaTypeSelector | None = None
    component_instance_selector: KartaInstanceSelector | None = None
    replica_selector: Any = None


class KartaPodSpec(Wire):
    """Where the workload holds what its pods are made of; one form only."""

    pod_template_spec_path: str | None = None
    pod_spec_path: str | None = None
    metadata_path: str | None = None
    fragmented_pod_spec_definition: Any = None

    def forms(self) -> int:
        """How many of the forms are used."""
        forms = (self.pod_template_spec_path, self.pod_spec_path, self.fragmented_pod_spec_definition)
        return sum(form is not None for form in forms)


class KartaComponent(Wire):
    """A part of the workload."""

    name: str = ""
    kind: KartaKind | None = None
    #: name of the component above; None for the root
    owner_ref: str | None = None
    spec_definition: KartaPodSpec | None = None
    scale_definition: KartaScale | None = None
    status_definition: Any = None
    instance_id_path: str | None = None
    pod_selector: KartaPodSelector | None = None


class KartaTopology(Wire):
    """A topology constraint."""

    topology_name: str = ""
    required_topology_level: str = ""
    preferred_topology_level: str = ""


class KartaSubGroup(Wire):
    """A component that is a subgroup."""

    component_name: str = ""
    topology: KartaTopology | None = None


class KartaPodGroup(Wire):
    """The whole workload as one group."""

    name: str = ""
    sub_groups: tuple[KartaSubGroup, ...] = ()
    topology: KartaTopology | None = None


class KartaMember(Wire):
    """Which pods of a component form groups, and by which keys."""

    component_name: str = ""
    group_by_key_paths: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()


class KartaKeyedGroup(Wire):
    """An entry of `podGroups`: one group for each value of the keys."""

    name: str = ""
    members: tuple[KartaMember, ...] = ()


class KartaGangScheduling(Wire):
    """What starts together."""

    pod_group: KartaPodGroup | None = None
    pod_groups: tuple[KartaKeyedGroup, ...] = ()


class KartaInstructions(Wire):
    gang_scheduling: KartaGangScheduling | None = None


class KartaStructure(Wire):
    root_component: KartaComponent = KartaComponent()
    child_components: tuple[KartaComponent, ...] = ()


class KartaSpec(Wire):
    """The spec of a Karta."""

    structure_definition: KartaStructure = KartaStructure()
    optimization_instructions: KartaInstructions = KartaInstructions()
