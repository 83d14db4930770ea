"""Which nodes can serve the claims of a pod, according to the objects alone (cycle:FLT-2 VolumeBinding).

A bound claim follows its volume: node affinity, and for the option of zones its zone labels.  A waiting claim gets an
unclaimed volume that the node reaches, or a new one where its class lets volumes be provisioned and, if the driver
publishes capacity, where there is enough.  What was given out in this cycle is kept by `ledger.py`.

Most storage is either of one node (local disks, one capacity object a node) or of many (a zone, the whole cluster).
The index keeps the two apart: storage of one node in a dict by row, storage of many in groups with a mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from operator import contains
from typing import Generic, TypeVar

import numpy as np

from pykai.api import names
from pykai.core.cluster.nodematching import matches_requirement, term_rows
from pykai.core.cluster.nodetable import NodeTable
from pykai.core.cluster.storage import CapacityPool, StorageIndex, VolumeFacts
from pykai.core.model.axes import BoolArray, IntArray
from pykai.core.model.volumerequests import AccessibleNodes, LabelRequirement, VolumeRequest

_Thing = TypeVar("_Thing")

#: Places kept with a node table.
_MAX_PLACES = 200_000


def accessible_rows(nodes: NodeTable, accessible_from: AccessibleNodes) -> IntArray:
    """Rows of the nodes in a place, ascending."""
    rows_by_place: dict[AccessibleNodes, IntArray] = nodes.remember("rows of places", dict)
    rows = rows_by_place.get(accessible_from)
    if rows is None:
        if accessible_from is None:
            rows = np.arange(len(nodes), dtype=np.int64)
        else:
            parts = [term_rows(nodes, term.as_term()) for term in accessible_from]
            rows = np.unique(np.concatenate(parts)) if parts else np.zeros(0, dtype=np.int64)
        if len(rows_by_place) >= _MAX_PLACES:
            rows_by_place.clear()
        rows_by_place[accessible_from] = rows
    return rows


def accessible_mask(nodes: NodeTable, accessible_from: AccessibleNodes) -> BoolArray:
    """[node] in a place."""
    mask = np.zeros(len(nodes), dtype=np.bool_)
    mask[accessible_rows(nodes, accessible_from)] = True
    return mask


def reaches_bound_volumes(nodes: NodeTable, volume_requests: Iterable[VolumeRequest]) -> BoolArray:
    """[node] reaches the volumes of all bound claims."""
    mask = np.ones(len(nodes), dtype=np.bool_)
    for accessible_from in {
        volume_request.accessible_from
        for volume_request in volume_requests
        if volume_request.bound and volume_request.accessible_from is not None
    }:
        mask &= accessible_mask(nodes, accessible_from)
    return mask


def in_volume_zones(nodes: NodeTable, volume_requests: Iterable[VolumeRequest]) -> BoolArray:
    """[node] lies in the zones of all bound volumes; a node without any zone label always does (cycle:FLT-4)."""

    def labelled() -> BoolArray:
        mask = np.zeros(len(nodes), dtype=np.bool_)
        for label in names.ZONE_LABELS:
            mask |= nodes.per_label(label, lambda value: value is not None)
        return mask

    mask = np.ones(len(nodes), dtype=np.bool_)
    for label, zones in {zone for volume_request in volume_requests for zone in volume_request.zones}:
        in_zone = nodes.per_label(label, partial(contains, zones))
        absent = nodes.per_label(label, lambda value: value is None)
        instead = nodes.per_label(names.ZONE_LABELS[label], partial(contains, zones))
        mask &= in_zone | (absent & instead)
    return mask | ~nodes.remember("zone labelled", labelled)


def _selector_accepts(selector: tuple[LabelRequirement, ...], labels: dict[str, str]) -> bool:
    """Whether labels meet a selector; one with an unknown operator selects nothing."""
    return all(
        requirement.operator in ("In", "NotIn", "Exists", "DoesNotExist")
        and matches_requirement(requirement.as_node_requirement(), labels.get(requirement.key))
        for requirement in selector
    )


def volume_fits(volume_request: VolumeRequest, volume: VolumeFacts) -> bool:
    """Whether a volume satisfies a waiting claim, on whatever node; one reserved for the claim only needs the size
    and the mode."""
    if volume.size < volume_request.size or volume.is_deleting or volume.storage_class != volume_request.storage_class:
        return False
    if volume.volume_mode != volume_request.volume_mode or volume.attributes_class != volume_request.attributes_class:
        return False
    if volume.name in volume_request.reserved_volumes:
        return True
    return (
        volume.is_available
        and volume.access_modes.issuperset(volume_request.access_modes)
        and (volume_request.selector is None or _selector_accepts(volume_request.selector, volume.labels))
    )


class StorageByNode(Generic[_Thing]):
    """Things by the nodes that reach them."""

    def __init__(
        self, nodes: NodeTable, things: Iterable[_Thing], accessible_from: Callable[[_Thing], AccessibleNodes]
    ) -> None:
        #: row -> what only this node reaches
        self.single_node: dict[int, list[_Thing]] = {}
        #: what several nodes reach, by place
        self.multi_node: list[tuple[BoolArray, list[_Thing]]] = []
        by_nodes: dict[AccessibleNodes, list[_Thing]] = {}
        for thing in things:
            by_nodes.setdefault(accessible_from(thing), []).append(thing)
        for accessible, group in by_nodes.items():
            rows = accessible_rows(nodes, accessible)
            if len(rows) == 1:
                self.single_node.setdefault(int(rows[0]), []).extend(group)
            elif len(rows):
                self.multi_node.append((accessible_mask(nodes, accessible), group))

    def at(self, row: int) -> list[_Thing]:
        """What a node reaches, in no particular order."""
        reached_things = list(self.single_node.get(row, ()))
        for mask, things in self.multi_node:
            if mask[row]:
                reached_things.extend(things)
        return reached_things


class ClassSupply:
    """What one storage class can provide."""

    def __init__(self, nodes: NodeTable, storage: StorageIndex, storage_class: str) -> None:
        self.provisioner = storage.provisioner(storage_class)
        #: [node] a new volume may be provisioned for pods here, capacity aside
        self.provisionable: BoolArray = accessible_mask(
            nodes, storage.provisionable_from(storage_class) if self.provisioner else ()
        )
        #: capacity counts: the driver publishes it
        self.tracks_capacity = bool(self.provisioner) and self.provisioner in storage.capacity_drivers
        published = storage.pools.get(storage_class, {}) if self.tracks_capacity else {}
        self.pools: StorageByNode[CapacityPool] = StorageByNode(
            nodes, (published[name] for name in sorted(published)), lambda p: p.accessible_from
        )


class VolumeCandidates:
    """The volumes one request may get, by node: smallest first, then by name."""

    def __init__(self, nodes: NodeTable, storage: StorageIndex, volume_request: VolumeRequest) -> None:
        fitting = [
            volume
            for volume in storage.unclaimed.get(volume_request.storage_class, {}).values()
            if volume_fits(volume_request, volume)
        ]
        reserved = [storage.volumes[name] for name in volume_request.reserved_volumes]
        #: volumes reserved for this claim: it gets the first of these or none
        self.reserved_volume = next((volume for volume in reserved if volume_fits(volume_request, volume)), None)
        volumes = [self.reserved_volume] if self.reserved_volume is not None else sorted(fitting, key=_by_size)
        self.located: StorageByNode[VolumeFacts] = StorageByNode(nodes, volumes, lambda volume: volume.accessible_from)

    def at(self, row: int) -> list[VolumeFacts]:
        """Volumes for this node in the order they are taken."""
        return sorted(self.located.at(row), key=_by_size)


def _by_size(volume: VolumeFacts) -> tuple[int, str]:
    return (volume.size, volume.name)
