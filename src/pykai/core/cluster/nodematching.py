"""What a pod demands of a node apart from resources: taints, labels, conditions (cycle:9.1 steps 10 and 11).

These depend on facts of nodes and on the shape only.  Results are kept with the node table until a node changes, keyed
by the constraint itself, so that a thousand shapes with the same selector share one column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from operator import eq

import numpy as np

from pykai.api.core import NodeSelectorRequirement, NodeSelectorTerm, Toleration
from pykai.core.cluster.nodetable import NodeTable
from pykai.core.model.axes import BoolArray, FloatArray, IntArray
from pykai.core.model.nodes import NodeTaint
from pykai.core.model.shapes import MAX_WEIGHT, Shape

_HARD_EFFECTS = ("NoSchedule", "NoExecute")
SOFT_EFFECT = "PreferNoSchedule"

#: What Kubernetes accepts as the value of a label; a requirement with another value is broken.
_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_LONGEST_LABEL_VALUE = 63
_INTEGER = re.compile(r"[+-]?[0-9]+")


def tolerates(toleration: Toleration, taint: NodeTaint) -> bool:
    """Whether a toleration covers a taint, as Kubernetes decides it.

    Without a key it covers every key, without an effect every effect.  `Lt` and `Gt` compare numbers; an API server
    admits them only where its feature gate for them is open.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    operator = toleration.operator or "Equal"
    if operator == "Exists":
        return True
    if operator == "Equal":
        return toleration.value == taint.value
    bound, have = _integer(toleration.value), _integer(taint.value)
    if bound is None or have is None:
        return False
    return (operator == "Lt" and have < bound) or (operator == "Gt" and have > bound)


def _has_untolerated(taints: tuple[NodeTaint, ...], tolerations: tuple[Toleration, ...]) -> bool:
    return any(
        taint.effect in _HARD_EFFECTS and not any(tolerates(toleration, taint) for toleration in tolerations)
        for taint in taints
    )


def _taint_codes(nodes: NodeTable) -> tuple[IntArray, list[tuple[NodeTaint, ...]]]:
    """Taints as a column of small numbers and the sets they stand for."""

    def make() -> tuple[IntArray, list[tuple[NodeTaint, ...]]]:
        distinct: dict[tuple[NodeTaint, ...], int] = {}
        codes = [distinct.setdefault(node.taints, len(distinct)) for node in nodes.facts]
        return np.array(codes, dtype=np.int64), list(distinct)

    return nodes.remember("taints", make)


def _tolerations_key(shape: Shape) -> tuple[tuple[str, str, str, str], ...]:
    return tuple((t.key, t.operator, t.value, t.effect) for t in shape.tolerations)


def has_untolerated_taint(nodes: NodeTable, shape: Shape) -> BoolArray:
    """[node] has a taint the shape does not tolerate."""

    def make() -> BoolArray:
        codes, sets = _taint_codes(nodes)
        untolerated = np.array([_has_untolerated(taints, shape.tolerations) for taints in sets], dtype=np.bool_)
        return untolerated[codes]

    return nodes.remember(("tainted", _tolerations_key(shape)), make)


def has_soft_taints(nodes: NodeTable) -> bool:
    """Whether any node has a taint with the effect PreferNoSchedule."""
    return any(taint.effect == SOFT_EFFECT for taints in _taint_codes(nodes)[1] for taint in taints)


def soft_taint_counts(nodes: NodeTable, shape: Shape) -> FloatArray:
    """[node] number of PreferNoSchedule taints that the shape does not tolerate."""

    def unwelcome(taint: NodeTaint) -> bool:
        return taint.effect == SOFT_EFFECT and not any(tolerates(t, taint) for t in shape.tolerations)

    def make() -> FloatArray:
        codes, sets = _taint_codes(nodes)
        return np.array([sum(map(unwelcome, taints)) for taints in sets], dtype=np.float64)[codes]

    return nodes.remember(("discouraged", _tolerations_key(shape)), make)


def _integer(text: str | None) -> int | None:
    """A 64-bit integer as Go reads it, None for anything else."""
    if text is None or len(text) > _LONGEST_LABEL_VALUE or not _INTEGER.fullmatch(text):
        return None
    value = int(text)
    return value if -(2**63) <= value < 2**63 else None


def _is_well_formed(requirement: NodeSelectorRequirement) -> bool:
    """Whether the operator is known and has the values it needs; a term with a broken one selects nothing."""
    operator, values = requirement.operator, requirement.values
    if any(len(value) > _LONGEST_LABEL_VALUE or not _LABEL_VALUE.fullmatch(value) for value in values):
        return False
    if operator in ("In", "NotIn"):
        return bool(values)
    if operator in ("Exists", "DoesNotExist"):
        return not values
    return operator in ("Gt", "Lt") and len(values) == 1 and _integer(values[0]) is not None


def matches_requirement(requirement: NodeSelectorRequirement, value: str | None) -> bool:
    """Whether a label value (None = not there) meets a well-formed requirement, as Kubernetes decides it."""
    operator, values = requirement.operator, requirement.values
    if operator == "In":
        return value is not None and value in values
    if operator == "NotIn":
        return value is None or value not in values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    have, bound = _integer(value), _integer(values[0])
    if have is None or bound is None:
        return False
    return have > bound if operator == "Gt" else have < bound


def _field_column(nodes: NodeTable, field: NodeSelectorRequirement) -> BoolArray:
    """[node] meets a requirement on a field: nodes have one field, their name, and it takes one value."""
    if field.operator not in ("In", "NotIn") or len(field.values) != 1:
        return np.zeros(len(nodes), dtype=np.bool_)
    wanted = field.values[0]
    equal = np.array([(name if field.key == "metadata.name" else "") == wanted for name in nodes.names], dtype=np.bool_)
    return equal if field.operator == "In" else ~equal


def _term_column(nodes: NodeTable, term: NodeSelectorTerm) -> BoolArray:
    expressions, fields = term.match_expressions, term.match_fields
    if not (expressions or fields) or not all(_is_well_formed(expression) for expression in expressions):
        # An empty or broken term selects nothing.
        return np.zeros(len(nodes), dtype=np.bool_)
    column = np.ones(len(nodes), dtype=np.bool_)
    for expression in expressions:
        column &= nodes.per_label(expression.key, partial(matches_requirement, expression))
    for field in fields:
        column &= _field_column(nodes, field)
    return column


def matches_any_term(nodes: NodeTable, terms: Iterable[NodeSelectorTerm]) -> BoolArray:
    """[node] matches one of the terms of a node selector."""
    any_term = np.zeros(len(nodes), dtype=np.bool_)
    for term in terms:
        any_term |= _term_column(nodes, term)
    return any_term


def matches_node_selector(nodes: NodeTable, shape: Shape) -> BoolArray:
    """[node] matches the node selector and some required affinity term."""

    def make() -> BoolArray:
        column = np.ones(len(nodes), dtype=np.bool_)
        for label, wanted in shape.node_selector:
            column &= nodes.per_label(label, partial(eq, wanted))
        if shape.node_terms is not None:
            any_term = matches_any_term(nodes, shape.node_terms)
            column &= any_term
        return column

    terms = None if shape.node_terms is None else repr(shape.node_terms)
    return nodes.remember(("selected", shape.node_selector, terms), make)


def preferred_weights(nodes: NodeTable, shape: Shape) -> FloatArray:
    """[node] sum of the weights of the preferred affinity terms it matches."""

    def make() -> FloatArray:
        column = np.zeros(len(nodes))
        for term in shape.preferred_nodes:
            column += min(term.weight, MAX_WEIGHT) * _term_column(nodes, term.preference)
        return column

    return nodes.remember(("preferred", repr(shape.preferred_nodes)), make)


def eligible_nodes(nodes: NodeTable, shape: Shape) -> BoolArray:
    """[node] no taint or selector rules it out: preferences are normalised over these nodes, however full they are."""
    return matches_node_selector(nodes, shape) & ~has_untolerated_taint(nodes, shape) & nodes.ready


#: Up to this many nodes named by a label are checked one by one.
_FEW_ROWS = 64


def _rows_by_value(nodes: NodeTable, label: str) -> dict[str | None, list[int]]:
    def make() -> dict[str | None, list[int]]:
        rows_by_value: dict[str | None, list[int]] = {}
        for row, node in enumerate(nodes.facts):
            rows_by_value.setdefault(node.labels.get(label), []).append(row)
        return rows_by_value

    return nodes.remember(("rows by value", label), make)


def term_rows(nodes: NodeTable, term: NodeSelectorTerm) -> IntArray:
    """Rows that match a term, ascending; a term that names few nodes by a label does not visit the others."""
    expressions = term.match_expressions
    if not term.match_fields and expressions and all(_is_well_formed(expression) for expression in expressions):
        for in_expression in expressions:
            if in_expression.operator != "In":
                continue
            by_value = _rows_by_value(nodes, in_expression.key)
            named = sorted({row for value in in_expression.values for row in by_value.get(value, ())})
            if len(named) <= _FEW_ROWS:
                labels = [nodes.facts[row].labels for row in named]
                matches = [
                    all(matches_requirement(e, node_labels.get(e.key)) for e in expressions) for node_labels in labels
                ]
                return np.array([row for row, fit in zip(named, matches, strict=True) if fit], dtype=np.int64)
    return np.flatnonzero(_term_column(nodes, term))
