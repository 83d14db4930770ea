"""What a pod requests of storage, without names: part of its shape, so that equal requests are filtered once.

A claim is *bound* (its volume says which nodes reach it), *waiting* (WaitForFirstConsumer: the node decides which
volume it gets or where one is provisioned), or it has a *problem* that no node can solve.  The name of a claim is in
its request only where it matters: in the text of a problem, where several pods share the claim, where a volume is
reserved for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from pykai.api import names
from pykai.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from pykai.api.meta import LabelSelector, LabelSelectorRequirement
from pykai.api.storage import TopologySelectorTerm

#: Why a pod waits whose claims bind without it (cycle:FLT-9).
UNBOUND_IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"


class LabelRequirement(NamedTuple):
    """One expression over labels or fields."""

    key: str
    operator: str
    values: tuple[str, ...]

    def as_node_requirement(self) -> NodeSelectorRequirement:
        """The expression as node selectors spell it."""
        return NodeSelectorRequirement(key=self.key, operator=self.operator, values=self.values)


class NodeTerm(NamedTuple):
    """Expressions over labels and fields of a node that must all hold."""

    expressions: tuple[LabelRequirement, ...]
    fields: tuple[LabelRequirement, ...] = ()

    def as_term(self) -> NodeSelectorTerm:
        """The term as node selectors spell it."""
        return NodeSelectorTerm(
            match_expressions=tuple(requirement.as_node_requirement() for requirement in self.expressions),
            match_fields=tuple(requirement.as_node_requirement() for requirement in self.fields),
        )


#: Nodes of which one of the terms holds; None = every node, () = none.
AccessibleNodes = tuple[NodeTerm, ...] | None


@dataclass(frozen=True, slots=True)
class VolumeRequest:
    """One claim of a pod."""

    #: why no node can serve it, "" when one may
    problem: str = ""
    #: it has its volume, rather than waiting for the pod to get a node
    bound: bool = False
    #: the volume it is bound to does not exist
    lost: bool = False
    #: which nodes reach the volume it is bound to
    accessible_from: AccessibleNodes = None
    #: zone labels of that volume with their values
    zones: tuple[tuple[str, tuple[str, ...]], ...] = ()
    #: CSI driver that attaches it, "" when none does
    driver: str = ""
    #: key of the claim if several pods use it, else ""
    shared_key: str = ""
    #: only one pod may use it at a time
    single_pod_only: bool = False
    #: made for this pod and gone with it: gives its size back to its class
    is_ephemeral: bool = False
    storage_class: str = ""
    #: bytes that a waiting or ephemeral claim requests
    size: int = 0
    access_modes: tuple[str, ...] = ()
    volume_mode: str = ""
    attributes_class: str = ""
    #: labels a volume must have; None = any
    selector: tuple[LabelRequirement, ...] | None = None
    #: volumes reserved for this claim
    reserved_volumes: tuple[str, ...] = ()
    #: node for which its volume is being provisioned
    selected_node: str = ""

    @property
    def waiting(self) -> bool:
        """Whether the choice of a node decides which volume it gets."""
        return not self.bound and not self.problem


def as_requirements(
    listed: Iterable[NodeSelectorRequirement | LabelSelectorRequirement],
) -> tuple[LabelRequirement, ...]:
    """Expressions as values that can be compared and hashed."""
    return tuple(
        LabelRequirement(requirement.key, requirement.operator, tuple(requirement.values)) for requirement in listed
    )


def selector_requirements(selector: LabelSelector) -> tuple[LabelRequirement, ...]:
    """A label selector as expressions; none for one that selects everything."""
    equal = tuple(LabelRequirement(key, "In", (value,)) for key, value in sorted(selector.match_labels.items()))
    return equal + as_requirements(selector.match_expressions)


def nodes_of_selector(selector: NodeSelector | None) -> AccessibleNodes:
    """Where a node affinity lets a volume be used."""
    if selector is None:
        return None
    return tuple(
        NodeTerm(as_requirements(term.match_expressions), as_requirements(term.match_fields))
        for term in selector.node_selector_terms
    )


def nodes_of_labels(selector: LabelSelector | None) -> AccessibleNodes:
    """Nodes a label selector selects: all if it is empty, none if it is absent."""
    if selector is None:
        return ()
    wanted = selector_requirements(selector)
    return (NodeTerm(wanted),) if wanted else None


def nodes_of_topologies(terms: Iterable[TopologySelectorTerm]) -> AccessibleNodes:
    """Where a class lets volumes be provisioned: anywhere by default."""
    node_terms = tuple(
        NodeTerm(tuple(LabelRequirement(e.key, "In", tuple(e.values)) for e in term.match_label_expressions))
        for term in terms
    )
    return node_terms or None


def zone_labels(labels: dict[str, str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The zone labels of a volume; one may name several zones."""
    return tuple((key, tuple(labels[key].split("__"))) for key in sorted(names.ZONE_LABELS) if key in labels)
