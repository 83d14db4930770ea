"""Which nodes can serve the claims of a pod, as far as the objects alone tell (cycle:FLT-2 VolumeBinding).

A bound claim follows its volume: node affinity, and for the option of zones its zone labels.  A waiting claim gets a
volume that nobody has claimed and that the node reaches, or a new one where its class lets volumes be made and, if the
driver tells, where there is room.  Who already has what in this cycle is kept by `machine.py`.

Most storage is either of one node (local disks, one capacity object a node) or of many (a zone, the whole cluster).
The index keeps the two apart: what one node reaches stands in a dict by row, what many reach in groups with a mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

import numpy as np

from pykai.api import names
from pykai.core.cluster.nodematching import meets, term_rows
from pykai.core.cluster.snapshot import NodeTable
from pykai.core.cluster.storage import Pool, Storage, Volume
from pykai.core.model.axes import BoolArray, IntArray
from pykai.core.model.volumerequests import Place, Requirement, VolumeAsk

_Thing = TypeVar("_Thing")

#: Places remembered with a node table.
_MOST_PLACES = 200_000


def rows_of(nodes: NodeTable, place: Place) -> IntArray:
    """Rows of the nodes in a place, ascending."""
    known: dict[Place, IntArray] = nodes.remember("rows of places", dict)
    found = known.get(place)
    if found is None:
        if place is None:
            found = np.arange(len(nodes), dtype=np.int64)
        else:
            parts = [term_rows(nodes, term.as_term()) for term in place]
            found = np.unique(np.concatenate(parts)) if parts else np.zeros(0, dtype=np.int64)
        if len(known) >= _MOST_PLACES:
            known.clear()
        known[place] = found
    return found


def mask_of(nodes: NodeTable, place: Place) -> BoolArray:
    """[node] in a place."""
    mask = np.zeros(len(nodes), dtype=np.bool_)
    mask[rows_of(nodes, place)] = True
    return mask


def reached(nodes: NodeTable, asks: Iterable[VolumeAsk]) -> BoolArray:
    """[node] reaches the volumes of all bound claims."""
    mask = np.ones(len(nodes), dtype=np.bool_)
    for place in {ask.place for ask in asks if ask.bound and ask.place is not None}:
        mask &= mask_of(nodes, place)
    return mask


def in_zones(nodes: NodeTable, asks: Iterable[VolumeAsk]) -> BoolArray:
    """[node] lies in the zones of all bound volumes; a node without any zone label is asked nothing (cycle:FLT-4)."""

    def labelled() -> BoolArray:
        mask = np.zeros(len(nodes), dtype=np.bool_)
        for label in names.ZONE_LABELS:
            mask |= nodes.per_label(label, lambda value: value is not None)
        return mask

    mask = np.ones(len(nodes), dtype=np.bool_)
    for label, zones in {zone for ask in asks for zone in ask.zones}:
        here = nodes.per_label(label, lambda value, zones=zones: value in zones)  # type: ignore[misc]
        absent = nodes.per_label(label, lambda value: value is None)
        instead = nodes.per_label(names.ZONE_LABELS[label], lambda value, zones=zones: value in zones)  # type: ignore[misc]
        mask &= here | (absent & instead)
    return mask | ~nodes.remember("zone labelled", labelled)


def _selects(selector: tuple[Requirement, ...], labels: dict[str, str]) -> bool:
    """Whether labels meet a selector; one with an operator nobody knows selects nothing."""
    return all(
        found.operator in ("In", "NotIn", "Exists", "DoesNotExist") and meets(found.as_wire(), labels.get(found.key))
        for found in selector
    )


def fits(ask: VolumeAsk, volume: Volume) -> bool:
    """Whether a volume is what a waiting claim asks for, wherever it is; one kept for the claim need only be large
    enough and of its mode."""
    if volume.size < ask.size or volume.deleting or volume.storage_class != ask.storage_class:
        return False
    if volume.volume_mode != ask.volume_mode or volume.attributes_class != ask.attributes_class:
        return False
    if volume.name in ask.reserved:
        return True
    return (
        volume.available
        and volume.access_modes.issuperset(ask.access_modes)
        and (ask.selector is None or _selects(ask.selector, volume.labels))
    )


class Located(Generic[_Thing]):
    """Things by the nodes that reach them."""

    def __init__(self, nodes: NodeTable, things: Iterable[_Thing], place: Callable[[_Thing], Place]) -> None:
        #: row -> what only this node reaches
        self.near: dict[int, list[_Thing]] = {}
        #: what several nodes reach, by place
        self.wide: list[tuple[BoolArray, list[_Thing]]] = []
        by_place: dict[Place, list[_Thing]] = {}
        for thing in things:
            by_place.setdefault(place(thing), []).append(thing)
        for where, found in by_place.items():
            rows = rows_of(nodes, where)
            if len(rows) == 1:
                self.near.setdefault(int(rows[0]), []).extend(found)
            elif len(rows):
                self.wide.append((mask_of(nodes, where), found))

    def at(self, row: int) -> list[_Thing]:
        """What a node reaches, in no particular order."""
        found = list(self.near.get(row, ()))
        for mask, things in self.wide:
            if mask[row]:
                found.extend(things)
        return found


class Supply:
    """What one class has to give."""

    def __init__(self, nodes: NodeTable, storage: Storage, storage_class: str) -> None:
        self.provisioner = storage.provisioner(storage_class)
        #: [node] a new volume may be made for pods here, room aside
        self.makes: BoolArray = mask_of(nodes, storage.made_where(storage_class) if self.provisioner else ())
        #: room counts: the driver tells how much there is
        self.metered = bool(self.provisioner) and self.provisioner in storage.telling_drivers
        published = storage.pools.get(storage_class, {}) if self.metered else {}
        self.pools: Located[Pool] = Located(nodes, (published[name] for name in sorted(published)), lambda p: p.place)


class Candidates:
    """The volumes one ask may get, by node: smallest first, then by name."""

    def __init__(self, nodes: NodeTable, storage: Storage, ask: VolumeAsk) -> None:
        found = [volume for volume in storage.unclaimed.get(ask.storage_class, {}).values() if fits(ask, volume)]
        kept = [storage.volumes[name] for name in ask.reserved]
        #: volumes kept for this very claim: it gets the first of these or none
        self.reserved = next((volume for volume in kept if fits(ask, volume)), None)
        volumes = [self.reserved] if self.reserved is not None else sorted(found, key=_by_size)
        self.located: Located[Volume] = Located(nodes, volumes, lambda volume: volume.place)

    def at(self, row: int) -> list[Volume]:
        """Volumes for this node in the order they are taken."""
        return sorted(self.located.at(row), key=_by_size)


def _by_size(volume: Volume) -> tuple[int, str]:
    return (volume.size, volume.name)
