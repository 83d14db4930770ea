"""Persistent volumes: the filter VolumeBinding, which `predicates` includes, and the option `volumelimits`.

Texts and order are Kubernetes 1.35's (cycle:FLT-3, FLT-9).  KAI Scheduler enforces neither volume limits nor zones nor
ReadWriteOncePod (cycle:FLT-4), so these are a plugin of their own that is off unless named.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pykai.api import names
from pykai.core.cluster.nodetable import NodeTable
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.request import PlacementRequest
from pykai.core.cycle.state import State
from pykai.core.hooks import Hooks, NodeCheck, PreFailure, Scope
from pykai.core.ledgers.volumes.attachments import AttachmentLedger
from pykai.core.ledgers.volumes.candidates import in_volume_zones, reaches_bound_volumes
from pykai.core.ledgers.volumes.ledger import VolumeLedger
from pykai.core.model.axes import BoolArray, IntArray, Rows
from pykai.core.model.volumerequests import VolumeRequest
from pykai.core.plugins.arguments import ArgumentReader


def unusable_claims(state: State, request: PlacementRequest) -> PreFailure | None:
    """A claim that is missing, being deleted, lost or not bound in time; no eviction helps (cycle:FLT-9).

    A running pod that a trial evicts is exempt: it may stay where it is, see `_all_but_current_node`.
    """
    volumes = request.shape.volumes
    if not volumes or not volumes[0].problem or request.task.key in state.evicted_from:
        return None
    return PreFailure(names.PREDICATE_VOLUME_BINDING, volumes[0].problem, unresolvable=True)


def _all_but_current_node(state: State, request: PlacementRequest, rows: Rows) -> IntArray:
    """[rows] 1 on every node but the one where a pod runs whose claims would start nowhere else."""
    codes = np.ones(len(state.snapshot.nodes), dtype=np.int64)
    evicted_from = state.evicted_from.get(request.task.key)
    if evicted_from is not None:
        codes[evicted_from.row] = 0
    return codes[rows]


def _refuse_unless(
    nodes: NodeTable, accepts: Callable[[NodeTable, tuple[VolumeRequest, ...]], BoolArray]
) -> Callable[[State, PlacementRequest, Rows], IntArray]:
    """A check that depends on the requests and the nodes alone."""

    def evaluate(state: State, request: PlacementRequest, rows: Rows) -> IntArray:
        return (~accepts(nodes, request.shape.volumes)[rows]).astype(np.int64)

    return evaluate


def _none_lost(nodes: NodeTable, volumes: tuple[VolumeRequest, ...]) -> BoolArray:
    return np.full(len(nodes), not any(volume_request.lost for volume_request in volumes), dtype=np.bool_)


def volume_hooks(snapshot: Snapshot) -> Hooks:
    """VolumeBinding: what keeps a pod off nodes that cannot serve its claims."""
    nodes, ledger = snapshot.nodes, VolumeLedger(snapshot)
    checks = (
        NodeCheck(
            "unusable claims",
            ("node(s) didn't find available persistent volumes to bind",),
            _all_but_current_node,
            Scope.REQUEST,
            lambda request: bool(request.shape.volumes) and bool(request.shape.volumes[0].problem),
            key=lambda request: request.task.key,
        ),
        NodeCheck(
            "bound volumes",
            ("node(s) didn't match PersistentVolume's node affinity",),
            _refuse_unless(nodes, reaches_bound_volumes),
            Scope.NODES,
            lambda request: any(volume.accessible_from is not None for volume in request.shape.volumes),
        ),
        NodeCheck(
            "unbound volumes",
            (
                "node(s) didn't find available persistent volumes to bind",
                "node(s) did not have enough free storage",
            ),
            ledger.refusal_codes,
            Scope.ROW,
            lambda request: ledger.concerns(request.shape),
        ),
        NodeCheck(
            "lost volumes",
            ("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",),
            _refuse_unless(nodes, _none_lost),
            Scope.NODES,
            lambda request: any(volume.lost for volume in request.shape.volumes),
        ),
    )
    return Hooks(
        pre_place=(unusable_claims,),
        node_checks=checks if snapshot.tasks_with_volumes else (),
        cache_key=ledger.state_key if ledger.active else None,
        discrete_ledger=ledger if ledger.active else None,
    )


def combine_keys(
    one: Callable[[PlacementRequest], Hashable] | None, other: Callable[[PlacementRequest], Hashable] | None
) -> Callable[[PlacementRequest], Hashable] | None:
    """What two sets of rules read besides the shape."""
    if one is None or other is None:
        return one or other
    return lambda request: (one(request), other(request))


@dataclass(frozen=True, slots=True)
class VolumeLimits:
    """volumelimits: how many volumes a node attaches, zones of volumes, claims for one pod (cycle:FLT-4, Do better)."""

    ARGUMENTS: ClassVar[Mapping[str, tuple[str, ArgumentReader]]] = {}

    def prepare(self, snapshot: Snapshot) -> Hooks:
        """The checks of Kubernetes' VolumeRestrictions, NodeVolumeLimits and VolumeZone, in its order."""
        if not snapshot.tasks_with_volumes:
            return Hooks()
        nodes, ledger = snapshot.nodes, AttachmentLedger(snapshot)
        checks = (
            NodeCheck(
                "claims for one pod",
                ("node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode",),
                ledger.used_by_another,
                Scope.ROW,
                lambda request: any(volume.single_pod_only and volume.shared_key for volume in request.shape.volumes),
            ),
            NodeCheck(
                "volume limits",
                ("node(s) exceed max volume count",),
                ledger.over_limit,
                Scope.ROW,
                lambda request: any(volume.driver for volume in request.shape.volumes),
            ),
            NodeCheck(
                "volume zones",
                ("node(s) had no available volume zone",),
                _refuse_unless(nodes, in_volume_zones),
                Scope.NODES,
                lambda request: any(volume.zones for volume in request.shape.volumes),
            ),
        )
        return Hooks(
            node_checks=checks,
            cache_key=ledger.state_key if ledger.active else None,
            discrete_ledger=ledger if ledger.active else None,
        )
