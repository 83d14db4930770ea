"""proportion: fair shares, the order of queues, and the limits of queues (queues:8 to 10).

The figures themselves are kept by the ledger whether or not this plugin is configured; the plugin decides by them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from pykai.core.caching import VersionedCache
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.gangs import Gang
from pykai.core.cycle.state import State
from pykai.core.hooks import EvictionProposal, FilterBySide, FixedTie, Hooks, KeyOfFigures, Loss
from pykai.core.model.axes import FloatArray
from pykai.core.model.queuetree import QueueAmounts
from pykai.core.plugins.arguments import ArgumentReader, read_flag, read_number
from pykai.core.queueing import reclaimrules as fairness
from pykai.core.queueing.fairshare import FairShareSettings
from pykai.core.queueing.queueledger import CapacityRefusal, FallingKeys
from pykai.core.report.decisions import NoEviction


def _k_value(text: str) -> float:
    """At or below zero, usage is ignored (queues:Q-346)."""
    return max(0.0, read_number(text))


def _multiplier(text: str) -> float:
    return max(1.0, read_number(text))


@dataclass(frozen=True, slots=True)
class Proportion:
    """Fairness between queues."""

    #: how strongly historical usage shapes the surplus
    k_value: float = 1.0
    #: how reluctant reclaim is (queues:Q-274)
    saturation_multiplier: float = 1.0
    #: no share above request or limit, leftovers stay in their priority bucket (queues:8, Do better)
    strict_remainders: bool = False

    ARGUMENTS: ClassVar[Mapping[str, tuple[str, ArgumentReader]]] = {
        "kValue": ("k_value", _k_value),
        "relcaimerSaturationMultiplier": ("saturation_multiplier", _multiplier),
        "reclaimerSaturationMultiplier": ("saturation_multiplier", _multiplier),
        "reclaimerUtilizationMultiplier": ("saturation_multiplier", _multiplier),
        "strictRemainders": ("strict_remainders", read_flag),
    }

    @property
    def fair_share_settings(self) -> FairShareSettings:
        """How the ledger of the cycle divides surplus."""
        return FairShareSettings(self.k_value, self.strict_remainders)

    def prepare(self, snapshot: Snapshot) -> Hooks:
        """Queue order and capacity; without terminating pods, starts and pipelined placements have the same limits."""
        has_terminating = any(count.terminating for count in snapshot.group_index.queues.values())
        return Hooks(
            queue_key=KeyOfFigures(_queue_key),
            queue_tie=FixedTie(_queue_tie),
            quota_gate=_quota_gate,
            start_gate=_start_gate if has_terminating else None,
            victim_queue_key=KeyOfFigures(_victim_queue_key, _falling_victim_keys),
            may_reclaim=_ReclaimCheck(),
            reclaim_from=_reclaim_from,
            reclaim_losers=_reclaim_losers,
            reclaim_gate=partial(_reclaim_gate, self.saturation_multiplier),
        )


def _queue_key(state: State, queue: int, amounts: QueueAmounts) -> tuple[float, ...]:
    return state.ledger.queue_order_key(queue, amounts)


def _queue_tie(state: State, queue: int, other: int) -> bool:
    return state.ledger.wins_tie(queue, other)


def _quota_gate(state: State, gang: Gang, amounts: QueueAmounts) -> CapacityRefusal | None:
    return state.ledger.check_capacity(gang.chain, amounts, gang.next_task_non_preemptible, preemptor=gang.group.uid)


def _start_gate(state: State, gang: Gang, amounts: QueueAmounts) -> CapacityRefusal | None:
    return state.ledger.check_capacity(
        gang.chain, amounts, gang.next_task_non_preemptible, preemptor=gang.group.uid, start=True
    )


def _victim_queue_key(state: State, queue: int, taken: QueueAmounts) -> tuple[float, ...]:
    return state.ledger.victim_order_key(queue, taken)


def _falling_victim_keys(state: State, queue: int, taken: FloatArray) -> FallingKeys:
    return state.ledger.falling_victim_keys(queue, taken)


class _ReclaimCheck:
    """The first gate of reclaim, evaluated once for equal requests while the state is the same."""

    __slots__ = ("_answers",)

    def __init__(self) -> None:
        self._answers: VersionedCache[tuple[int, QueueAmounts, bool], tuple[NoEviction | None]] = VersionedCache()

    def __call__(self, state: State, gang: Gang, required: QueueAmounts) -> NoEviction | None:
        question = (gang.queue, required, gang.next_task_non_preemptible)
        answer = self._answers.current(question, state.version)
        if answer is None:
            why = fairness.why_not_reclaim(state.ledger, *question)
            answer = self._answers.store(question, state.version, (why,))
        return answer[0]


def _reclaim_from(state: State, gang: Gang, required: QueueAmounts) -> Callable[[int], bool]:
    """Whether a victim is possible depends on its queue alone (queues:11.2)."""
    ledger = state.ledger
    return FilterBySide(ledger.tree, gang.queue, lambda own, side: fairness.may_lose(ledger, own, side, required))


def _reclaim_losers(state: State, gang: Gang, required: QueueAmounts) -> Callable[[int], bool]:
    ledger = state.ledger
    return FilterBySide(
        ledger.tree, gang.queue, lambda own, side: fairness.may_lose_for_good(ledger, own, side, required)
    )


def _reclaim_gate(multiplier: float, state: State, proposal: EvictionProposal) -> str | None:
    parts_by_queue: dict[int, list[QueueAmounts]] = {}
    for victim, losses in proposal.losses:
        counted = [loss for loss in losses if not (proposal.moving_is_free and loss.moves)]
        parts_by_queue.setdefault(victim.queue, []).extend(_loss_parts(losses, counted))
    parts = {queue: queue_parts for queue, queue_parts in parts_by_queue.items() if queue_parts}
    request = fairness.ReclaimRequest(
        proposal.gang.queue,
        proposal.required,
        proposal.non_preemptible,
        proposal.allocated,
        proposal.allocated_non_preemptible,
    )
    return fairness.objection(state.ledger, request, parts, multiplier)


def _loss_parts(losses: list[Loss], counted: list[Loss]) -> list[QueueAmounts]:
    """What a gang loses, in parts that are checked one by one: the minimum of all its leaves as one, the rest task by
    task (cycle:RCL-3)."""
    seen: dict[str, int] = {}
    minimum_parts: list[QueueAmounts] = []
    parts: list[QueueAmounts] = []
    counted_keys = {loss.task.key for loss in counted}
    for loss in losses:
        position = seen[loss.leaf.name] = seen.get(loss.leaf.name, 0) + 1
        if loss.task.key in counted_keys:
            (minimum_parts if position <= loss.leaf.minimum else parts).append(loss.amounts)
    if minimum_parts:
        parts.append(
            (sum(a[0] for a in minimum_parts), sum(a[1] for a in minimum_parts), sum(a[2] for a in minimum_parts))
        )
    return parts
