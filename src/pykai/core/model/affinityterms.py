"""Terms of inter-pod affinity, read once and found again by the labels they demand.

A tenant may write hundreds of terms into each pod, all different.  Reading them takes longer than anything else that is
done with most of them, so the tables keep them from the moment a pod comes: the terms of a shape, and an index of the
terms that pods on nodes hold.  `Anchor` is what makes both cheap: a label that a pod must have to be selected.  Only
terms anchored at one of a pod's own labels can select it, and a term can select only pods with its anchor.

Which namespaces a term means depends on the labels of namespaces, which change on their own; so they are kept apart
(`Scope`) and worked out in every cycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

import msgspec

from pykai.api.core import Affinity, PodAffinityTerm
from pykai.api.meta import LabelSelector
from pykai.core.model.shapes import Shape, pod_affinity_terms

#: A label that every pod of a selection has, and its value, None = any; None altogether = there is no such label.
Anchor = tuple[str, str | None] | None

#: As much as the API server lets a preference weigh.
MOST_WEIGHT = 100

#: Terms kept at a time, half a kilobyte each.
MOST_TERMS = 100_000


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector selects these labels; no selector selects nothing, an empty one everything."""
    if selector is None:
        return False
    for key, wanted in selector.match_labels.items():
        if labels.get(key) != wanted:
            return False
    for requirement in selector.match_expressions:
        value, values = labels.get(requirement.key), requirement.values
        operator = requirement.operator
        met = (
            (operator == "In" and value is not None and value in values)
            or (operator == "NotIn" and (value is None or value not in values))
            or (operator == "Exists" and value is not None)
            or (operator == "DoesNotExist" and value is None)
        )
        if not met:
            return False
    return True


class Scope(NamedTuple):
    """Which namespaces a term is about."""

    named: frozenset[str]
    #: whether namespaces are also chosen by their labels, and by which selector; an empty one chooses all
    by_labels: bool = False
    selector: bytes = b""


class Term:
    """One term.  Compared by identity: equal terms are the same object while the store lives."""

    __slots__ = ("anchors", "excludes", "scope", "selector", "topology_key")

    def __init__(self, topology_key: str, scope: Scope, selector: LabelSelector | None) -> None:
        self.topology_key = topology_key
        self.scope = scope
        self.selector = selector
        #: labels of which a pod must have one to be left out, where it is selected without any label
        self.excludes: tuple[Anchor, ...] = ()
        if selector is not None:
            self.excludes = tuple(
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
    found: list[Anchor] = list(selector.match_labels.items())
    for each in selector.match_expressions:
        if each.operator == "In" and len(each.values) == 1:
            found.append((each.key, each.values[0]))
        elif each.operator in ("In", "Exists"):
            found.append((each.key, None))
        elif each.operator not in ("NotIn", "DoesNotExist"):
            # An unknown operator selects nothing.
            found.append(("", None))
    return tuple(found)


def anchors_of(labels: Mapping[str, str]) -> list[Anchor]:
    """The anchors under which a pod with these labels can be found."""
    return [None, *labels.items(), *((key, None) for key in labels)]


class ShapeTerms(NamedTuple):
    """What a shape says about other pods."""

    #: required affinity, one of each
    near: tuple[Term, ...]
    #: required anti-affinity, one of each
    far: tuple[Term, ...]
    #: preferred terms with their weights, negative for anti-affinity
    preferred: tuple[tuple[Term, int], ...]


#: Terms of one shape under one anchor, with their weights; anti-affinity has none.
Entries = list[tuple[Term, int]]


class TermStore:
    """The terms of shapes, and those that pods on nodes hold."""

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder(order="deterministic")
        self._terms: dict[tuple[str, Scope, bytes], Term] = {}
        self._by_shape: dict[int, ShapeTerms] = {}
        #: canonical bytes -> selector of namespaces
        self.namespace_selectors: dict[bytes, LabelSelector] = {}
        #: anchor -> shape -> terms of running pods of that shape
        self.anchored: dict[Anchor, dict[int, Entries]] = {}
        self._held: set[int] = set()
        #: terms read so far
        self.read = 0

    def begin(self, held: Mapping[int, Shape]) -> None:
        """Start a cycle in which pods of these shapes are on nodes; where too much was kept, start over."""
        if len(self._terms) > MOST_TERMS:
            self._terms.clear()
            self._by_shape.clear()
            self.namespace_selectors.clear()
            self.anchored.clear()
            self._held.clear()
        for gone in self._held - held.keys():
            self._release(gone)
        for shape in held.values():
            self.hold(shape)

    def hold(self, shape: Shape) -> None:
        """A pod of this shape is on a node: from now on its terms can select others."""
        if shape.id not in self._held:
            self._held.add(shape.id)
            for term, weight in _holding(self.of(shape)):
                self.anchored.setdefault(_first(term), {}).setdefault(shape.id, []).append((term, weight))

    def _release(self, shape_id: int) -> None:
        self._held.discard(shape_id)
        for term, _ in _holding(self._by_shape[shape_id]):
            there = self.anchored.get(_first(term))
            if there is not None:
                there.pop(shape_id, None)
                if not there:
                    del self.anchored[_first(term)]

    def of(self, shape: Shape) -> ShapeTerms:
        """The terms of a shape."""
        found = self._by_shape.get(shape.id)
        if found is None:
            namespace = shape.namespace
            near, far = pod_affinity_terms(shape.affinity)
            found = self._by_shape[shape.id] = ShapeTerms(
                tuple(dict.fromkeys(self._term(term, namespace) for term in near)),
                tuple(dict.fromkeys(self._term(term, namespace) for term in far)),
                tuple((self._term(term, namespace), weight) for term, weight in _preferred(shape.affinity)),
            )
        return found

    def keep(self, used: Set[Shape]) -> None:
        """Forget the terms of all shapes but these."""
        kept = {shape.id for shape in used}
        for gone in self._by_shape.keys() - kept:
            if gone in self._held:
                self._release(gone)
            del self._by_shape[gone]
        terms = {term for known in self._by_shape.values() for term in (*known.near, *known.far)}
        terms.update(term for known in self._by_shape.values() for term, _ in known.preferred)
        self._terms = {key: term for key, term in self._terms.items() if term in terms}

    def _term(self, term: PodAffinityTerm, namespace: str) -> Term:
        named = frozenset(term.namespaces)
        wanted = term.namespace_selector
        if wanted is None:
            scope = Scope(named or frozenset((namespace,)))
        else:
            encoded = self._encoder.encode(wanted)
            self.namespace_selectors[encoded] = wanted
            scope = Scope(named, True, encoded)
        key = (term.topology_key, scope, self._encoder.encode(term.label_selector))
        found = self._terms.get(key)
        if found is None:
            self.read += 1
            found = self._terms[key] = Term(term.topology_key, scope, term.label_selector)
        return found


def _holding(terms: ShapeTerms) -> Iterable[tuple[Term, int]]:
    yield from ((term, 0) for term in terms.far)
    yield from terms.preferred


def _first(term: Term) -> Anchor:
    return term.anchors[0] if term.anchors else None


def _preferred(affinity: Affinity | None) -> list[tuple[PodAffinityTerm, int]]:
    """Preferred terms with their weights, negative for anti-affinity; what the API server would not admit counts as
    the most it would, or as nothing."""
    if affinity is None:
        return []
    found: list[tuple[PodAffinityTerm, int]] = []
    for side, sign in ((affinity.pod_affinity, 1), (affinity.pod_anti_affinity, -1)):
        if side is None:
            continue
        for item in side.preferred:
            if item.weight > 0:
                found.append((item.pod_affinity_term, sign * min(item.weight, MOST_WEIGHT)))
    return found
