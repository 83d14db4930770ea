"""Persistent volumes: the filter VolumeBinding, which `predicates` includes, and the option `volumelimits`.

Texts and order are Kubernetes 1.35's (cycle:FLT-3, FLT-9).  KAI Scheduler enforces neither volume limits nor zones nor
ReadWriteOncePod (cycle:FLT-4), so these stand in a plugin of their own that is off unless named.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pykai.api import names
from pykai.core.cluster.snapshot import NodeTable, Snapshot
from pykai.core.cycle.state import State
from pykai.core.hooks import Ask, Hooks, NodeCheck, PreFailure, Rows, Scope
from pykai.core.ledgers.volumes.candidates import in_zones, reached
from pykai.core.ledgers.volumes.ledger import AttachBooks, VolumeBooks
from pykai.core.model.axes import BoolArray, IntArray
from pykai.core.model.volumerequests import VolumeAsk
from pykai.core.plugins.arguments import Reader


def unusable_claims(state: State, ask: Ask) -> PreFailure | None:
    """A claim that is missing, being deleted, lost or not bound in time; no eviction mends it (cycle:FLT-9).

    A pod that runs in spite of it is not asked, should a trial evict it: it may stay, see `_only_here`.
    """
    asks = ask.shape.volumes
    if not asks or not asks[0].problem or ask.task.key in state.leaving:
        return None
    return PreFailure(names.PREDICATE_VOLUME_BINDING, asks[0].problem, unresolvable=True)


def _only_here(state: State, ask: Ask, rows: Rows) -> IntArray:
    """[rows] 1 on every node but the one where a pod runs whose claims would start nowhere else."""
    codes = np.ones(len(state.snapshot.nodes), dtype=np.int64)
    leaving = state.leaving.get(ask.task.key)
    if leaving is not None:
        codes[leaving.row] = 0
    return codes[rows]


def _unless(
    nodes: NodeTable, admits: Callable[[NodeTable, tuple[VolumeAsk, ...]], BoolArray]
) -> Callable[[State, Ask, Rows], IntArray]:
    """A check that depends on the asks and the nodes alone."""

    def evaluate(state: State, ask: Ask, rows: Rows) -> IntArray:
        return (~admits(nodes, ask.shape.volumes)[rows]).astype(np.int64)

    return evaluate


def _none_lost(nodes: NodeTable, asks: tuple[VolumeAsk, ...]) -> BoolArray:
    return np.full(len(nodes), not any(ask.lost for ask in asks), dtype=np.bool_)


def volume_hooks(snapshot: Snapshot) -> Hooks:
    """VolumeBinding: what keeps a pod off nodes that cannot serve its claims."""
    nodes, books = snapshot.nodes, VolumeBooks(snapshot)
    checks = (
        NodeCheck(
            "unusable claims",
            ("node(s) didn't find available persistent volumes to bind",),
            _only_here,
            Scope.ASK,
            lambda ask: bool(ask.shape.volumes) and bool(ask.shape.volumes[0].problem),
            key=lambda ask: ask.task.key,
        ),
        NodeCheck(
            "bound volumes",
            ("node(s) didn't match PersistentVolume's node affinity",),
            _unless(nodes, reached),
            Scope.NODES,
            lambda ask: any(found.place is not None for found in ask.shape.volumes),
        ),
        NodeCheck(
            "unbound volumes",
            (
                "node(s) didn't find available persistent volumes to bind",
                "node(s) did not have enough free storage",
            ),
            books.refused,
            Scope.ROW,
            lambda ask: books.concerns(ask.shape),
        ),
        NodeCheck(
            "lost volumes",
            ("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",),
            _unless(nodes, _none_lost),
            Scope.NODES,
            lambda ask: any(found.lost for found in ask.shape.volumes),
        ),
    )
    return Hooks(
        pre_place=(unusable_claims,),
        node_checks=checks if snapshot.tasks_with_volumes else (),
        ask_key=books.key if books.active else None,
        books=books if books.active else None,
    )


def both_keys(
    one: Callable[[Ask], Hashable] | None, other: Callable[[Ask], Hashable] | None
) -> Callable[[Ask], Hashable] | None:
    """What two sets of rules look at besides the shape."""
    if one is None or other is None:
        return one or other
    return lambda ask: (one(ask), other(ask))


@dataclass(frozen=True, slots=True)
class VolumeLimits:
    """volumelimits: how many volumes a node attaches, zones of volumes, claims for one pod (cycle:FLT-4, Do better)."""

    ARGUMENTS: ClassVar[Mapping[str, tuple[str, Reader]]] = {}

    def prepare(self, snapshot: Snapshot) -> Hooks:
        """The checks of Kubernetes' VolumeRestrictions, NodeVolumeLimits and VolumeZone, in its order."""
        if not snapshot.tasks_with_volumes:
            return Hooks()
        nodes, books = snapshot.nodes, AttachBooks(snapshot)
        checks = (
            NodeCheck(
                "claims for one pod",
                ("node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode",),
                books.used_by_another,
                Scope.ROW,
                lambda ask: any(found.once and found.shared for found in ask.shape.volumes),
            ),
            NodeCheck(
                "volume limits",
                ("node(s) exceed max volume count",),
                books.over_limit,
                Scope.ROW,
                lambda ask: any(found.driver for found in ask.shape.volumes),
            ),
            NodeCheck(
                "volume zones",
                ("node(s) had no available volume zone",),
                _unless(nodes, in_zones),
                Scope.NODES,
                lambda ask: any(found.zones for found in ask.shape.volumes),
            ),
        )
        return Hooks(
            node_checks=checks,
            ask_key=books.key if books.active else None,
            books=books if books.active else None,
        )
