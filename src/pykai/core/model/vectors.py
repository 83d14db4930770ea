"""Shapes as vectors over the axes, made once per shape.

`demand` is compared with a node's free or idle column: an axis the shape does not request holds `NOT_REQUESTED`, so one
comparison over all axes tests only what is requested (cycle:R-4, Do better).  A shape that requests something no node
offers demands more pod slots than exist, because such a name has no axis.  `charges[holding]` is what a task
of the shape adds to the four node planes while it is live, releasing or pipelined there: the accounting table of
cycle:4.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

import numpy as np

from pykai.api.core import PodAffinityTerm
from pykai.api.gpuvendors import is_gpu
from pykai.core.model.axes import CPU, MEMORY, NOT_REQUESTED, PODS, UNSATISFIABLE, Axes, IntArray
from pykai.core.model.shapes import Shape

#: Planes of the node columns, `columns[plane, axis, node]`.  FREE is IDLE + RELEASING, kept so that the most frequent
#: question needs no addition.
IDLE, RELEASING, FREE, USED = 0, 1, 2, 3
PLANES = 4

#: planes x holding (live, releasing, pipelined): cycle:4
_SIGNS = np.array([[-1, -1, 0], [0, 1, -1], [-1, 0, -1], [1, 1, 1]], dtype=np.int64)


class EvaluationCost(NamedTuple):
    """What makes a shape costly to evaluate, besides the number of nodes (`allowance.py`)."""

    #: terms about other pods, nodes and devices, and spread constraints
    terms: int
    #: resource names beyond the free ones
    names: int
    #: requests a fraction of a GPU
    shared: bool


#: The cost of a term that no label narrows down: it selects nearly every pod.
_UNSELECTIVE_WEIGHT = 16


#: The cost of a term about nodes: each is a column of its own.
_NODE_TERM_WEIGHT = 3
#: Bytes of a CEL selector that count as much as a term: it must be compiled.
_BYTES_PER_TERM = 4


def _term_weight(term: PodAffinityTerm) -> int:
    selector = term.label_selector
    if selector is None or selector.match_labels:
        return 1
    return (
        _UNSELECTIVE_WEIGHT
        if all(each.operator in ("NotIn", "DoesNotExist") for each in selector.match_expressions)
        else 1
    )


#: Resource names that cost nothing: pods request a handful.
_FREE_RESOURCE_NAMES = 16


def _evaluation_cost(shape: Shape) -> EvaluationCost | None:
    """None for most; it follows from the shape alone, whatever nodes offer."""
    terms = _NODE_TERM_WEIGHT * (len(shape.node_terms or ()) + len(shape.preferred_nodes)) + len(shape.spread)
    if shape.affinity is not None:
        for side in (shape.affinity.pod_affinity, shape.affinity.pod_anti_affinity):
            if side is not None:
                terms += sum([_term_weight(term) for term in side.required])
                terms += sum([_term_weight(item.pod_affinity_term) for item in side.preferred])
    for claim in shape.claims:
        if claim.request is not None:
            terms += sum(
                [
                    1 + len(expression) // _BYTES_PER_TERM
                    for request in claim.request.requests
                    for alternative in request.alternatives
                    for expression in alternative.selectors
                ]
            )
    names = max(0, len(shape.requests) - _FREE_RESOURCE_NAMES)
    return EvaluationCost(terms, names, shape.shared) if terms or names or shape.shared else None


class Vector:
    """One shape over the axes."""

    __slots__ = (
        "amounts",
        "charge",
        "charges",
        "cpu",
        "demand",
        "evaluation_cost",
        "gpus",
        "memory",
        "requested",
        "reservation_charge",
        "shape",
        "taken",
    )

    def __init__(self, shape: Shape, axes: Axes) -> None:
        size = len(axes)
        charge = np.zeros(size, dtype=np.int64)
        demand = np.full((size, 1), NOT_REQUESTED, dtype=np.int64)
        without_gpus = np.zeros(size, dtype=np.int64)
        offered = sorted((axes.index[name], name, value) for name, value in shape.requests if name in axes.index)
        for axis, name, value in offered:
            charge[axis] = value
            demand[axis, 0] = value
            if not is_gpu(name):
                without_gpus[axis] = value
        self.shape = shape
        #: (axis, amount) a task takes of a node, ascending
        self.taken: tuple[tuple[int, int], ...] = tuple((axis, value) for axis, _, value in offered)
        #: (axis, amount) the shape requests, ascending
        self.requested: tuple[tuple[int, int], ...] = self.taken
        if any(name not in axes.index and value > 0 for name, value in shape.requests):
            demand[PODS, 0] = UNSATISFIABLE
            self.requested = tuple((axis, UNSATISFIABLE if axis == PODS else value) for axis, value in self.taken)
        #: amount per axis, [axes]
        self.charge: IntArray = charge
        #: the same without GPUs: that of a reservation pod is held for its tenants (gpu:S-2)
        self.reservation_charge: IntArray = without_gpus
        #: the GPUs alone
        self.gpus: IntArray = charge - without_gpus
        #: amount per axis or NOT_REQUESTED, [axes, 1]
        self.demand: IntArray = demand
        #: change of [plane, axis] per holding, flattened: one stride is faster than two
        self.charges: tuple[IntArray, ...] = tuple(charge_planes(charge, holding).ravel() for holding in range(3))
        self.evaluation_cost = _evaluation_cost(shape)
        self.cpu: int = int(charge[CPU])
        self.memory: int = int(charge[MEMORY])
        #: cpu milli, memory bytes, GPU hundredths a task costs its queue, gpu-memory left out
        self.amounts: tuple[float, float, float] = (self.cpu, self.memory, shape.gpu_hundredths)


def charge_planes(charge: IntArray, holding: int) -> IntArray:
    """Change of [plane, axis] for an arbitrary charge."""
    return np.outer(_SIGNS[:, holding], charge)


def fits_amounts(available: list[int], requested: tuple[tuple[int, int], ...]) -> bool:
    """Whether a node with these amounts per axis has what is requested; the scalar twin of comparing with `demand`."""
    for axis, amount in requested:  # noqa: SIM110  (a generator here costs twice the time, for every repaired row)
        if available[axis] < amount:
            return False
    return True


class Vectors(dict[Shape, Vector]):
    """Vectors of shapes, made on first use.  Clear them when an axis is added: they have become too short."""

    __slots__ = ("_axes",)

    def __init__(self, axes: Axes) -> None:
        super().__init__()
        self._axes = axes

    def retain_only(self, used: Set[Shape]) -> None:
        """Drop the vectors of all shapes but these."""
        for shape in self.keys() - used:
            del self[shape]

    def __missing__(self, shape: Shape) -> Vector:
        made = self[shape] = Vector(shape, self._axes)
        return made
