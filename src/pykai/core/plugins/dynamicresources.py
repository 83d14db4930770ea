"""dynamicresources: devices for ResourceClaims, and for extended resources that a device class stands behind (gpu:11).

The rules live in `core/claims`; here they become checks, a score and the books.  A pod whose claims could be satisfied
only by devices that are about to be given back scores as one that cannot start there now (cycle:SCO-2, Availability).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pykai.core.axes import FloatArray, IntArray
from pykai.core.claims.asks import Refusal, may_administer
from pykai.core.claims.books import NO_DEVICES, ClaimBooks
from pykai.core.hooks import Ask, Hooks, NodeCheck, NodeScore, PreFailure, Rows, Scope
from pykai.core.plugins.arguments import Reader, a_count
from pykai.core.plugins.scores import AVAILABILITY
from pykai.core.snapshot import Snapshot
from pykai.core.state import State

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

        def refused(state: State, ask: Ask, rows: Rows) -> IntArray:
            return books.codes(state, ask.shape, rows)

        def described(state: State, ask: Ask, code: int, row: int) -> str:
            text = books.failure_at(ask.shape, row) if code == NO_DEVICES else ""
            return Refusal(text).on(snapshot.nodes.names[row]) if text else _TEXTS[code - 1]

        def must_wait(state: State, ask: Ask, rows: Rows, context: None) -> FloatArray:
            waits: FloatArray = np.multiply(-AVAILABILITY, books.codes(state, ask.shape, rows, idle=True) != 0)
            return waits

        def local(ask: Ask) -> bool:
            return books.concerns(ask.shape) and not books.loose(ask.shape)

        def loose(ask: Ask) -> bool:
            return books.concerns(ask.shape) and books.loose(ask.shape)

        return Hooks(
            pre_place=(_unusable(snapshot), _too_many(books)),
            node_checks=(
                NodeCheck("claims", _TEXTS, refused, Scope.ROW, local, describe=described),
                NodeCheck("shared claims", _TEXTS, refused, Scope.ASK, loose, describe=described),
            ),
            node_scores=(NodeScore("claims", must_wait, Scope.ROW, local),),
            books=books,
        )


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
