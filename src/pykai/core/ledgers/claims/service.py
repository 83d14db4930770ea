"""Extended resources that a device class backs, node by node (gpu:D-14).

A node that offers such a resource itself serves it by its column, any other by a claim made for the pod.  One pod may
be served both ways at once, if it names several resources.

Statements: gpu:D-18.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pykai.core.caching import Cache
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.model.axes import BoolArray, IntArray
from pykai.core.model.claimrequests import ClaimRefusal, ClaimRequest
from pykai.core.model.extendedresources import EXTENDED_CLAIM_NAME, ExtendedRequests, device_requests
from pykai.core.model.shapes import Shape

#: Why no claim is made for extended resources where dynamic resource allocation is switched off.
DRA_SWITCHED_OFF = ClaimRefusal("dynamic resource allocation is not available in the cluster")


class NodeAmount(NamedTuple):
    """An amount of a resource that the node offers itself."""

    axis: int
    amount: int


class ExtendedResourceService:
    """How each node serves the extended resources of a shape; valid for one cycle."""

    def __init__(self, snapshot: Snapshot, *, claims: bool = True) -> None:
        self._index = snapshot.axes.index
        self._allocatable = snapshot.allocatable
        self._objects = snapshot.claims
        self._makes_claims = claims
        self._claims_made: Cache[tuple[int, tuple[str, ...]], tuple[ExtendedRequests, ClaimRequest | ClaimRefusal]] = (
            Cache()
        )

    def served(self, shape: Shape, row: int) -> tuple[str, ...]:
        """Resources that a node serves by claims: it offers none of them itself."""
        return tuple(name for name, _ in shape.dra_backed if not self._offers(name, row))

    def _offers(self, name: str, row: int) -> bool:
        axis = self._index.get(name)
        return axis is not None and bool(self._allocatable[axis, row] > 0)

    def node_amounts(self, shape: Shape, row: int) -> list[NodeAmount]:
        """What a pod takes of the node's own resources."""
        return [NodeAmount(self._index[name], amount) for name, amount in shape.dra_backed if self._offers(name, row)]

    def split_by_service(self, shape: Shape, numbers: IntArray) -> Iterator[tuple[tuple[str, ...], BoolArray]]:
        """Which resources are served by claims, and [rows] where that is so."""
        everywhere = np.ones(len(numbers), dtype=np.bool_)
        if not shape.dra_backed:
            yield (), everywhere
            return
        codes: IntArray = np.zeros(len(numbers), dtype=np.int64)
        for bit, (name, _) in enumerate(shape.dra_backed):
            offered = self._allocatable[self._index[name], numbers] > 0 if name in self._index else ~everywhere
            codes |= np.where(offered, 0, 1 << bit)
        for code in np.unique(codes).tolist():
            yield tuple(name for bit, (name, _) in enumerate(shape.dra_backed) if code >> bit & 1), codes == code

    def claim_request_at(self, shape: Shape, row: int) -> ClaimRequest | ClaimRefusal | None:
        """The claim a node makes for a pod, None when it makes none."""
        served = self.served(shape, row) if shape.dra_backed else ()
        return self.claim_for(shape, served)[1] if served else None

    def claim_for(self, shape: Shape, served: tuple[str, ...]) -> tuple[ExtendedRequests, ClaimRequest | ClaimRefusal]:
        """The claim for some of the resources of a shape, as objects and as a request."""
        made = self._claims_made.get((shape.id, served))
        if made is None:
            assert shape.dra_backed_spec is not None
            requests = device_requests(shape.dra_backed_spec, self._objects.extended_resources, served)
            request = (
                ClaimRequest.of(requests.spec(), self._objects.classes, EXTENDED_CLAIM_NAME)
                if self._makes_claims
                else DRA_SWITCHED_OFF
            )
            made = self._claims_made.store((shape.id, served), (requests, request))
        return made
