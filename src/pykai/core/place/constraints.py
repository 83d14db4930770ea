"""What a pod demands of a node apart from resources: taints, labels, conditions (cycle:9.1 steps 10 and 11).

These depend on facts of nodes and on the shape only.  Results are kept with the node table until a node changes, keyed
by the constraint itself, so that a thousand shapes with the same selector share one column.
"""

from __future__ import annotations

import numpy as np

from pykai.api.core import NodeSelectorRequirement, NodeSelectorTerm, Toleration
from pykai.core.axes import BoolArray, IntArray
from pykai.core.nodes import Taint
from pykai.core.shapes import Shape
from pykai.core.snapshot import NodeTable

_HARD_EFFECTS = ("NoSchedule", "NoExecute")


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether a toleration covers a taint, as Kubernetes decides it."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    operator = toleration.operator or "Equal"
    if not toleration.key and operator != "Exists":
        return False
    return operator == "Exists" or (operator == "Equal" and (toleration.value or "") == taint.value)


def _untolerated(taints: tuple[Taint, ...], tolerations: tuple[Toleration, ...]) -> bool:
    return any(
        taint.effect in _HARD_EFFECTS and not any(tolerates(toleration, taint) for toleration in tolerations)
        for taint in taints
    )


def tainted(nodes: NodeTable, shape: Shape) -> BoolArray:
    """[node] has a taint the shape does not tolerate."""

    def taint_codes() -> tuple[IntArray, list[tuple[Taint, ...]]]:
        distinct: dict[tuple[Taint, ...], int] = {}
        codes = [distinct.setdefault(node.taints, len(distinct)) for node in nodes.facts]
        return np.array(codes, dtype=np.int64), list(distinct)

    def make() -> BoolArray:
        codes, sets = nodes.remember("taints", taint_codes)
        verdicts = np.array([_untolerated(taints, shape.tolerations) for taints in sets], dtype=np.bool_)
        return verdicts[codes]

    key = tuple((t.key, t.operator, t.value, t.effect) for t in shape.tolerations)
    return nodes.remember(("tainted", key), make)


def _integer(text: str | None) -> int | None:
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None


def meets(requirement: NodeSelectorRequirement, value: str | None) -> bool:
    """Whether a label value (None = not there) meets a requirement, as Kubernetes decides it."""
    operator, values = requirement.operator, requirement.values
    if operator == "In":
        return value is not None and value in values
    if operator == "NotIn":
        return value is None or value not in values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    if operator in ("Gt", "Lt"):
        have, bound = _integer(value), _integer(values[0] if len(values) == 1 else None)
        if have is None or bound is None:
            return False
        return have > bound if operator == "Gt" else have < bound
    return False


def _term_column(nodes: NodeTable, term: NodeSelectorTerm) -> BoolArray:
    expressions, fields = term.match_expressions, term.match_fields
    if not expressions and not fields:
        # An empty term selects nothing.
        return np.zeros(len(nodes), dtype=np.bool_)
    column = np.ones(len(nodes), dtype=np.bool_)
    for expression in expressions:
        column &= nodes.per_label(expression.key, lambda value, e=expression: meets(e, value))  # type: ignore[misc]
    for selector in fields:
        if selector.key == "metadata.name":
            column &= np.array([meets(selector, name) for name in nodes.names], dtype=np.bool_)
        else:
            column[:] = False
    return column


def selected(nodes: NodeTable, shape: Shape) -> BoolArray:
    """[node] matches the node selector and some required affinity term."""

    def make() -> BoolArray:
        column = np.ones(len(nodes), dtype=np.bool_)
        for label, wanted in shape.node_selector:
            column &= nodes.per_label(label, lambda value, w=wanted: value == w)  # type: ignore[misc]
        if shape.node_terms is not None:
            any_term = np.zeros(len(nodes), dtype=np.bool_)
            for term in shape.node_terms:
                any_term |= _term_column(nodes, term)
            column &= any_term
        return column

    terms = None if shape.node_terms is None else repr(shape.node_terms)
    return nodes.remember(("selected", shape.node_selector, terms), make)
