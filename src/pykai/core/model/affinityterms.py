"""Terms of inter-pod affinity, read once and indexed by the labels they require.

Each pod may have hundreds of different terms.  Reading them is the costliest step for most of them, so the tables keep
them from the moment a pod arrives: the terms of a shape, and an index of the terms of pods on nodes.  An `Anchor` makes
both cheap: a label that a pod must have to be selected.  Only terms anchored at one of a pod's own labels can select
it, and a term can select only pods with its anchor.

Which namespaces a term means depends on the labels of namespaces, which change on their own; so they are kept apart
(`NamespaceScope`) and resolved in every cycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

import msgspec

from pykai.api.core import Affinity, PodAffinityTerm
from pykai.api.meta import LabelSelector
from pykai.core.model.shapes import MAX_WEIGHT, Shape, pod_affinity_terms

#: A label that every pod of a selection has, and its value, None = any; None as a whole = there is no such label.
Anchor = tuple[str, str | None] | None

#: Terms kept at a time, half a kilobyte each.
MAX_TERMS = 100_000


def selector_matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector selects these labels; no selector selects nothing, an empty one everything."""
    if selector is None:
        return False
    for key, expected in selector.match_labels.items():
        if labels.get(key) != expected:
            return False
    for requirement in selector.match_expressions:
        value, values = labels.get(requirement.key), requirement.values
        operator = requirement.operator
        matches = (
            (operator == "In" and value is not None and value in values)
            or (operator == "NotIn" and (value is None or value not in values))
            or (operator == "Exists" and value is not None)
            or (operator == "DoesNotExist" and value is None)
        )
        if not matches:
            return False
    return True


class NamespaceScope(NamedTuple):
    """Which namespaces a term is about."""

    named: frozenset[str]
    #: whether namespaces are also chosen by their labels, and by which selector; an empty one chooses all
    by_labels: bool = False
    selector: bytes = b""


class AffinityTerm:
    """One term.  Compared by identity: equal terms are the same object while the store lives."""

    __slots__ = ("anchors", "excluding_labels", "scope", "selector", "topology_key")

    def __init__(self, topology_key: str, scope: NamespaceScope, selector: LabelSelector | None) -> None:
        self.topology_key = topology_key
        self.scope = scope
        self.selector = selector
        #: labels of which a pod must have one to be excluded, where the term selects pods without any label
        self.excluding_labels: tuple[Anchor, ...] = ()
        if selector is not None:
            self.excluding_labels = tuple(
                (each.key, value)
                for each in selector.match_expressions
                for value in (each.values if each.operator == "NotIn" else (None,))
            )
        #: labels that a pod must have to be selected
        self.anchors: tuple[Anchor, ...] = _anchors(selector)


def _anchors(selector: LabelSelector | None) -> tuple[Anchor, ...]:
    if selector is None:
        # It selects no pod, and no label is called that.
        return (("", None),)
    anchors: list[Anchor] = list(selector.match_labels.items())
    for each in selector.match_expressions:
        if each.operator == "In" and len(each.values) == 1:
            anchors.append((each.key, each.values[0]))
        elif each.operator in ("In", "Exists"):
            anchors.append((each.key, None))
        elif each.operator not in ("NotIn", "DoesNotExist"):
            # An unknown operator selects nothing.
            anchors.append(("", None))
    return tuple(anchors)


def anchors_of(labels: Mapping[str, str]) -> list[Anchor]:
    """The anchors under which a pod with these labels can be found."""
    return [None, *labels.items(), *((key, None) for key in labels)]


class ShapeTerms(NamedTuple):
    """What a shape says about other pods."""

    #: required affinity, one of each
    affinity: tuple[AffinityTerm, ...]
    #: required anti-affinity, one of each
    anti_affinity: tuple[AffinityTerm, ...]
    #: preferred terms with their weights, negative for anti-affinity
    preferred: tuple[tuple[AffinityTerm, int], ...]


#: Terms of one shape under one anchor, with their weights; anti-affinity has none.
WeightedTerms = list[tuple[AffinityTerm, int]]


class TermStore:
    """The terms of shapes, and those that pods on nodes hold."""

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder(order="deterministic")
        self._terms: dict[tuple[str, NamespaceScope, bytes], AffinityTerm] = {}
        self._by_shape: dict[int, ShapeTerms] = {}
        #: canonical bytes -> selector of namespaces
        self.namespace_selectors: dict[bytes, LabelSelector] = {}
        #: anchor -> shape -> terms of running pods of that shape
        self.terms_by_anchor: dict[Anchor, dict[int, WeightedTerms]] = {}
        self._held_shapes: set[int] = set()
        #: terms read so far
        self.terms_read = 0

    def start_cycle(self, held_shapes: Mapping[int, Shape]) -> None:
        """Start a cycle in which pods of these shapes are on nodes; start over where too many terms were kept."""
        if len(self._terms) > MAX_TERMS:
            self._terms.clear()
            self._by_shape.clear()
            self.namespace_selectors.clear()
            self.terms_by_anchor.clear()
            self._held_shapes.clear()
        for gone in self._held_shapes - held_shapes.keys():
            self._remove_holder(gone)
        for shape in held_shapes.values():
            self.add_holder(shape)

    def add_holder(self, shape: Shape) -> None:
        """A pod of this shape is on a node: from now on its terms can select others."""
        if shape.id not in self._held_shapes:
            self._held_shapes.add(shape.id)
            for term, weight in _terms_about_others(self.terms_of(shape)):
                self.terms_by_anchor.setdefault(_index_anchor(term), {}).setdefault(shape.id, []).append((term, weight))

    def _remove_holder(self, shape_id: int) -> None:
        self._held_shapes.discard(shape_id)
        for term, _ in _terms_about_others(self._by_shape[shape_id]):
            by_shape = self.terms_by_anchor.get(_index_anchor(term))
            if by_shape is not None:
                by_shape.pop(shape_id, None)
                if not by_shape:
                    del self.terms_by_anchor[_index_anchor(term)]

    def terms_of(self, shape: Shape) -> ShapeTerms:
        """The terms of a shape."""
        shape_terms = self._by_shape.get(shape.id)
        if shape_terms is None:
            namespace = shape.namespace
            affinity, anti_affinity = pod_affinity_terms(shape.affinity)
            shape_terms = self._by_shape[shape.id] = ShapeTerms(
                tuple(dict.fromkeys(self._term(term, namespace) for term in affinity)),
                tuple(dict.fromkeys(self._term(term, namespace) for term in anti_affinity)),
                tuple((self._term(term, namespace), weight) for term, weight in _preferred(shape.affinity)),
            )
        return shape_terms

    def retain_only(self, used: Set[Shape]) -> None:
        """Drop the terms of all shapes but these."""
        kept = {shape.id for shape in used}
        for gone in self._by_shape.keys() - kept:
            if gone in self._held_shapes:
                self._remove_holder(gone)
            del self._by_shape[gone]
        terms = {term for known in self._by_shape.values() for term in (*known.affinity, *known.anti_affinity)}
        terms.update(term for known in self._by_shape.values() for term, _ in known.preferred)
        self._terms = {key: term for key, term in self._terms.items() if term in terms}

    def _term(self, term: PodAffinityTerm, namespace: str) -> AffinityTerm:
        named = frozenset(term.namespaces)
        namespace_selector = term.namespace_selector
        if namespace_selector is None:
            scope = NamespaceScope(named or frozenset((namespace,)))
        else:
            encoded = self._encoder.encode(namespace_selector)
            self.namespace_selectors[encoded] = namespace_selector
            scope = NamespaceScope(named, True, encoded)
        key = (term.topology_key, scope, self._encoder.encode(term.label_selector))
        stored = self._terms.get(key)
        if stored is None:
            self.terms_read += 1
            stored = self._terms[key] = AffinityTerm(term.topology_key, scope, term.label_selector)
        return stored


def _terms_about_others(terms: ShapeTerms) -> Iterable[tuple[AffinityTerm, int]]:
    yield from ((term, 0) for term in terms.anti_affinity)
    yield from terms.preferred


def _index_anchor(term: AffinityTerm) -> Anchor:
    return term.anchors[0] if term.anchors else None


def _preferred(affinity: Affinity | None) -> list[tuple[PodAffinityTerm, int]]:
    """Preferred terms with their weights, negative for anti-affinity; weights beyond what the API server
    admits count as the maximum, or as nothing."""
    if affinity is None:
        return []
    preferred: list[tuple[PodAffinityTerm, int]] = []
    for affinity_side, sign in ((affinity.pod_affinity, 1), (affinity.pod_anti_affinity, -1)):
        if affinity_side is None:
            continue
        for item in affinity_side.preferred:
            if item.weight > 0:
                preferred.append((item.pod_affinity_term, sign * min(item.weight, MAX_WEIGHT)))
    return preferred
