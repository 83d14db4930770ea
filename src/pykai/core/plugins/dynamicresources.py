"""dynamicresources: devices for ResourceClaims, and for extended resources that a device class backs (gpu:11).

The rules live in `core/ledgers/claims`; here they become checks, a score and a ledger.  A pod whose claims could be
satisfied only by devices that are being released scores as one that cannot start there now (cycle:SCO-2,
Availability).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pykai.api.keys import split_key
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.request import PlacementRequest
from pykai.core.cycle.state import State
from pykai.core.hooks import Hooks, NodeCheck, NodeScore, NodeSet, Planes, PreFailure, Scope
from pykai.core.ledgers.claims.ledger import NO_DEVICES, UNREACHABLE, ClaimLedger
from pykai.core.model.axes import FloatArray, IntArray, Rows
from pykai.core.model.claimrequests import ClaimRefusal, allows_admin_access
from pykai.core.model.problems import ProblemReporter
from pykai.core.plugins.arguments import ArgumentReader, read_count
from pykai.core.plugins.scores import AVAILABILITY

_TEXTS = (
    "node(s) didn't have enough resources: GPUs",
    "claim node selector does not match node",
    "cannot allocate all DRA claims",
)


@dataclass(frozen=True, slots=True)
class DynamicResourcesPlugin:
    """Claims of devices.  `maxCelCacheEntries` is accepted for existing files: all expressions are compiled
    once (gpu:D-23)."""

    max_cel_cache_entries: int = 10

    ARGUMENTS: ClassVar[Mapping[str, tuple[str, ArgumentReader]]] = {
        "maxCelCacheEntries": ("max_cel_cache_entries", read_count),
    }

    def prepare(self, snapshot: Snapshot) -> Hooks:
        """No hooks while no pod uses claims."""
        if not snapshot.tasks_with_claims:
            return Hooks()
        ledger = ClaimLedger(snapshot)
        return replace(
            _claim_hooks(snapshot, ledger), pre_place=(_unusable_claim_check(snapshot), _consumer_limit_check(ledger))
        )


def hooks_without_claims(snapshot: Snapshot, report: ProblemReporter) -> Hooks:
    """The rules where the plugin is switched off: no pod gets devices, nodes serve what they offer (gpu:D-2)."""
    if not snapshot.tasks_with_claims:
        return Hooks()
    return replace(_claim_hooks(snapshot, ClaimLedger(snapshot, serving=False)), pre_place=(_claims_not_available,))


class _ClaimRules:
    """The rules of one cycle over its ledger of claims."""

    __slots__ = ("_ledger", "_node_names")

    def __init__(self, ledger: ClaimLedger, node_names: list[str]) -> None:
        self._ledger = ledger
        self._node_names = node_names

    def refusal_codes(self, state: State, request: PlacementRequest, rows: Rows) -> IntArray:
        """[rows] why the claims of a pod cannot be satisfied, 0 where they can."""
        return self._ledger.refusal_codes(state, request.shape, rows)

    def refusal_code_at(self, state: State, request: PlacementRequest, row: int) -> int:
        """`refusal_codes` for one node."""
        return self._ledger.refusal_code_at(state, request.shape, row)

    def describe(self, state: State, request: PlacementRequest, code: int, row: int) -> str:
        """The sentence of a code, with the claim or the failure of the allocator where one is known."""
        if code == UNREACHABLE:
            return _TEXTS[code - 1].replace("claim", f"claim {self._ledger.unreachable_claim(request.shape, row)}", 1)
        text = self._ledger.allocator_failure_at(request.shape, row) if code == NO_DEVICES else ""
        return ClaimRefusal(text).text_on(self._node_names[row]) if text else _TEXTS[code - 1]

    def waiting_scores(self, state: State, request: PlacementRequest, rows: Rows, context: object) -> FloatArray:
        """[rows] the score of availability taken back where a pod would wait for devices."""
        codes = self._ledger.refusal_codes(state, request.shape, rows, idle=True)
        waits: FloatArray = np.multiply(-AVAILABILITY, codes != 0)
        return waits

    def waiting_score_at(
        self, state: State, request: PlacementRequest, row: int, planes: Planes, context: object
    ) -> float:
        """`waiting_scores` for one node."""
        return -AVAILABILITY if self._ledger.refusal_code_at(state, request.shape, row, idle=True) else 0.0

    def uses_node_local_claims(self, request: PlacementRequest) -> bool:
        """Whether a pod has claims, and none that a placement on another node affects."""
        return self._ledger.concerns(request.shape) and not self._ledger.affects_other_nodes(request.shape)

    def uses_shared_claims(self, request: PlacementRequest) -> bool:
        """Whether placements on other nodes affect the claims of a pod."""
        return self._ledger.concerns(request.shape) and self._ledger.affects_other_nodes(request.shape)

    def shared_claim_changes(self, state: State, request: PlacementRequest, nodes: NodeSet) -> Callable[[], int]:
        """Gives what all scores depend on: how often something changed that other nodes notice."""
        ledger = self._ledger
        return lambda: ledger.cross_node_changes

    def sharing_key(self, request: PlacementRequest) -> tuple[object, ...]:
        """What decides about a pod with shared claims besides its shape."""
        is_reserved_for = self._ledger.is_reserved_for
        reserved = [is_reserved_for(claim.key, request.task) for claim in request.shape.claims].count(True)
        return request.gang.group.queue, reserved


def _claim_hooks(snapshot: Snapshot, ledger: ClaimLedger) -> Hooks:
    rules = _ClaimRules(ledger, snapshot.nodes.names)
    return Hooks(
        node_checks=(
            NodeCheck(
                "claims",
                _TEXTS,
                rules.refusal_codes,
                Scope.ROW,
                rules.uses_node_local_claims,
                describe=rules.describe,
                at=rules.refusal_code_at,
            ),
            NodeCheck(
                "shared claims",
                _TEXTS,
                rules.refusal_codes,
                Scope.REQUEST,
                rules.uses_shared_claims,
                describe=rules.describe,
                key=rules.sharing_key,
            ),
        ),
        node_scores=(
            NodeScore(
                "claims", rules.waiting_scores, Scope.ROW, rules.uses_node_local_claims, at=rules.waiting_score_at
            ),
            NodeScore(
                "shared claims",
                rules.waiting_scores,
                Scope.ROW,
                rules.uses_shared_claims,
                context=rules.shared_claim_changes,
                at=rules.waiting_score_at,
            ),
        ),
        discrete_ledger=ledger,
    )


def _claims_not_available(state: State, request: PlacementRequest) -> PreFailure | None:
    """Without the plugin no pod gets devices (gpu:D-2)."""
    if not request.shape.claims:
        return None
    claims = ", ".join(claim.name for claim in request.shape.claims)
    text = f"pod {{pod}} cannot be scheduled, it references resource claims {claims} "
    text += "while dynamic resource allocation is not available in the cluster"
    return PreFailure("DynamicResources", text, unresolvable=True)


def _unusable_claim_check(snapshot: Snapshot) -> Callable[[State, PlacementRequest], PreFailure | None]:
    """A claim that cannot be used wherever the pod goes (gpu:D-9)."""

    def check(state: State, request: PlacementRequest) -> PreFailure | None:
        for claim in request.shape.claims:
            text = claim.problem
            queue = request.gang.group.queue
            _, name = split_key(claim.key)
            key = snapshot.shard.queue_label
            if not text and claim.queue_checked and claim.queue is None:
                text = f"DRA claim {name} is a shared GPU claim but does not have a queue label ({key})"
            elif not text and claim.queue_checked and claim.queue != queue:
                text = (
                    f"DRA claim {name} is a shared GPU claim with wrong queue label "
                    f"(expected queue: {queue}, claim queue label: {claim.queue})"
                )
            elif not text and claim.request is not None and claim.request.wants_admin_access:
                labels = snapshot.namespaces.get(request.task.namespace, {})
                if not allows_admin_access(labels):
                    text = f"claim {claim.name} requests administrative access, which needs a label on the namespace"
            if text:
                return PreFailure("DynamicResources", f"pod {{pod}} cannot be scheduled: {text}", unresolvable=True)
        return None

    return check


def _consumer_limit_check(ledger: ClaimLedger) -> Callable[[State, PlacementRequest], PreFailure | None]:
    """A claim that has reached its number of users (gpu:D-9)."""

    def check(state: State, request: PlacementRequest) -> PreFailure | None:
        if not request.shape.claims:
            return None
        full = ledger.overused_claim(request.shape, request.task)
        if full is None:
            return None
        return PreFailure(
            "DynamicResources", f"resource claim {full} has reached its maximum number of consumers (256)"
        )

    return check
