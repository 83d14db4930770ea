"""dynamicresources: devices for ResourceClaims, and for extended resources that a device class stands behind (gpu:11).

The rules live in `core/claims`; here they become checks, a score and the books.  A pod whose claims could be satisfied
only by devices that are about to be given back scores as one that cannot start there now (cycle:SCO-2, Availability).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.state import State
from pykai.core.hooks import Ask, Hooks, NodeCheck, NodeScore, NodeSet, Planes, PreFailure, Rows, Scope
from pykai.core.ledgers.claims.ledger import ELSEWHERE, NO_DEVICES, ClaimBooks
from pykai.core.model.axes import FloatArray, IntArray
from pykai.core.model.claimrequests import Refusal, may_administer
from pykai.core.plugins.arguments import Reader, a_count
from pykai.core.plugins.scores import AVAILABILITY

_TEXTS = (
    "node(s) didn't have enough resources: GPUs",
    "claim node selector does not match node",
    "cannot allocate all DRA claims",
)


@dataclass(frozen=True, slots=True)
class DynamicResources:
    """Claims of devices.  `maxCelCacheEntries` is accepted for the sake of existing files: expressions are compiled
    once, however many there are (gpu:D-23)."""

    max_cel_cache_entries: int = 10

    ARGUMENTS: ClassVar[Mapping[str, tuple[str, Reader]]] = {
        "maxCelCacheEntries": ("max_cel_cache_entries", a_count),
    }

    def prepare(self, snapshot: Snapshot) -> Hooks:
        """Nothing at all while no pod uses claims."""
        if not snapshot.tasks_with_claims:
            return Hooks()
        books = ClaimBooks(snapshot)
        return replace(_hooks(snapshot, books), pre_place=(_unusable(snapshot), _too_many(books)))


def without_claims(snapshot: Snapshot) -> Hooks:
    """The rules where the plugin is switched off: nobody gets devices, nodes serve what they offer (gpu:D-2)."""
    if not snapshot.tasks_with_claims:
        return Hooks()
    return replace(_hooks(snapshot, ClaimBooks(snapshot, serving=False)), pre_place=(_not_available,))


def _hooks(snapshot: Snapshot, books: ClaimBooks) -> Hooks:
    def refused(state: State, ask: Ask, rows: Rows) -> IntArray:
        return books.codes(state, ask.shape, rows)

    def described(state: State, ask: Ask, code: int, row: int) -> str:
        if code == ELSEWHERE:
            return _TEXTS[code - 1].replace("claim", f"claim {books.elsewhere(ask.shape, row)}", 1)
        text = books.failure_at(ask.shape, row) if code == NO_DEVICES else ""
        return Refusal(text).on(snapshot.nodes.names[row]) if text else _TEXTS[code - 1]

    def must_wait(state: State, ask: Ask, rows: Rows, context: object) -> FloatArray:
        waits: FloatArray = np.multiply(-AVAILABILITY, books.codes(state, ask.shape, rows, idle=True) != 0)
        return waits

    def refused_at(state: State, ask: Ask, row: int) -> int:
        return books.code_at(state, ask.shape, row)

    def must_wait_at(state: State, ask: Ask, row: int, planes: Planes, context: object) -> float:
        return -AVAILABILITY if books.code_at(state, ask.shape, row, idle=True) else 0.0

    def local(ask: Ask) -> bool:
        return books.concerns(ask.shape) and not books.loose(ask.shape)

    def loose(ask: Ask) -> bool:
        return books.concerns(ask.shape) and books.loose(ask.shape)

    def changes(state: State, ask: Ask, nodes: NodeSet) -> Callable[[], int]:
        return lambda: books.far_changes

    def standing(ask: Ask) -> tuple[object, ...]:
        """What else than its shape decides about a pod with claims that others share."""
        return ask.gang.group.queue, [books.reserved(claim.key, ask.task) for claim in ask.shape.claims].count(True)

    return Hooks(
        node_checks=(
            NodeCheck("claims", _TEXTS, refused, Scope.ROW, local, describe=described, at=refused_at),
            NodeCheck("shared claims", _TEXTS, refused, Scope.ASK, loose, describe=described, key=standing),
        ),
        node_scores=(
            NodeScore("claims", must_wait, Scope.ROW, local, at=must_wait_at),
            NodeScore("shared claims", must_wait, Scope.ROW, loose, context=changes, at=must_wait_at),
        ),
        books=books,
    )


def _not_available(state: State, ask: Ask) -> PreFailure | None:
    """Without the plugin nobody gives a pod its devices (gpu:D-2)."""
    if not ask.shape.claims:
        return None
    claims = ", ".join(claim.name for claim in ask.shape.claims)
    text = f"pod {{pod}} cannot be scheduled, it references resource claims {claims} "
    text += "while dynamic resource allocation is not available in the cluster"
    return PreFailure("DynamicResources", text, unresolvable=True)


def _unusable(snapshot: Snapshot) -> Callable[[State, Ask], PreFailure | None]:
    """A claim that cannot be used wherever the pod goes (gpu:D-9)."""

    def check(state: State, ask: Ask) -> PreFailure | None:
        for claim in ask.shape.claims:
            text = claim.problem
            queue = ask.gang.group.queue
            name = claim.key.partition("/")[2]
            key = snapshot.shard.queue_label
            if not text and claim.queue_checked and claim.queue is None:
                text = f"DRA claim {name} is a shared GPU claim but does not have a queue label ({key})"
            elif not text and claim.queue_checked and claim.queue != queue:
                text = (
                    f"DRA claim {name} is a shared GPU claim with wrong queue label "
                    f"(expected queue: {queue}, claim queue label: {claim.queue})"
                )
            elif not text and claim.ask is not None and claim.ask.admin:
                labels = snapshot.namespaces.get(ask.task.namespace, {})
                if not may_administer(labels):
                    text = f"claim {claim.name} asks for administrative access, which namespaces need a label for"
            if text:
                return PreFailure("DynamicResources", f"pod {{pod}} cannot be scheduled: {text}", unresolvable=True)
        return None

    return check


def _too_many(books: ClaimBooks) -> Callable[[State, Ask], PreFailure | None]:
    """A claim that may not be used by more pods than it is (gpu:D-9)."""

    def check(state: State, ask: Ask) -> PreFailure | None:
        if not ask.shape.claims:
            return None
        full = books.full(ask.shape, ask.task)
        if full is None:
            return None
        return PreFailure(
            "DynamicResources", f"resource claim {full} has reached its maximum number of consumers (256)"
        )

    return check
