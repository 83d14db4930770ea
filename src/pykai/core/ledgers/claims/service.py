"""Extended resources that a device class stands behind, node by node (gpu:D-14).

A node that offers such a resource itself serves it by its column, any other by a claim made for the pod.  One pod may
be served both ways at once, if it names several resources.

Statements: gpu:D-18.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pykai.core.cluster.snapshot import Snapshot
from pykai.core.model.axes import BoolArray, IntArray
from pykai.core.model.claimrequests import ClaimAsk, Refusal
from pykai.core.model.extendedresources import CLAIM_NAME, ExtendedRequests, device_requests
from pykai.core.model.shapes import Shape

#: Why no claim is made for extended resources where dynamic resource allocation is switched off.
SWITCHED_OFF = Refusal("dynamic resource allocation is not available in the cluster")


class Plain(NamedTuple):
    """An amount of a resource that the node offers itself."""

    axis: int
    amount: int


class Service:
    """Who serves the extended resources of which shape where; holds for one cycle."""

    def __init__(self, snapshot: Snapshot, *, claims: bool = True) -> None:
        self._index = snapshot.axes.index
        self._allocatable = snapshot.allocatable
        self._objects = snapshot.claims
        self._claims = claims
        self._made: dict[tuple[int, tuple[str, ...]], tuple[ExtendedRequests, ClaimAsk | Refusal]] = {}

    def served(self, shape: Shape, row: int) -> tuple[str, ...]:
        """Resources that a node serves by claims: it offers none of them itself."""
        return tuple(name for name, _ in shape.backed if not self._offers(name, row))

    def _offers(self, name: str, row: int) -> bool:
        axis = self._index.get(name)
        return axis is not None and bool(self._allocatable[axis, row] > 0)

    def plain(self, shape: Shape, row: int) -> list[Plain]:
        """What a pod takes of the node's own."""
        return [Plain(self._index[name], amount) for name, amount in shape.backed if self._offers(name, row)]

    def split(self, shape: Shape, numbers: IntArray) -> Iterator[tuple[tuple[str, ...], BoolArray]]:
        """Which resources are served by claims, and [rows] where that is so."""
        everywhere = np.ones(len(numbers), dtype=np.bool_)
        if not shape.backed:
            yield (), everywhere
            return
        codes: IntArray = np.zeros(len(numbers), dtype=np.int64)
        for bit, (name, _) in enumerate(shape.backed):
            offered = self._allocatable[self._index[name], numbers] > 0 if name in self._index else ~everywhere
            codes |= np.where(offered, 0, 1 << bit)
        for code in np.unique(codes).tolist():
            yield tuple(name for bit, (name, _) in enumerate(shape.backed) if code >> bit & 1), codes == code

    def ask_at(self, shape: Shape, row: int) -> ClaimAsk | Refusal | None:
        """The claim a node makes for a pod, None when it makes none."""
        served = self.served(shape, row) if shape.backed else ()
        return self.claim(shape, served)[1] if served else None

    def claim(self, shape: Shape, served: tuple[str, ...]) -> tuple[ExtendedRequests, ClaimAsk | Refusal]:
        """The claim for some of the resources of a shape, as objects and as an ask."""
        found = self._made.get((shape.id, served))
        if found is None:
            assert shape.extended is not None
            requests = device_requests(shape.extended, self._objects.backing, served)
            ask = ClaimAsk.of(requests.spec(), self._objects.classes, CLAIM_NAME) if self._claims else SWITCHED_OFF
            found = self._made[shape.id, served] = (requests, ask)
        return found
