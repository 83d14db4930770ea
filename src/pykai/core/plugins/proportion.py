"""proportion: fair shares, the order of queues, and what a queue may take on (queues:8 to 10).

The figures themselves are kept by the ledger whether or not this plugin is configured; the plugin decides by them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.gangs import Gang
from pykai.core.cycle.state import State
from pykai.core.hooks import Hooks, Loss, Taking
from pykai.core.plugins.arguments import Reader, a_flag, a_number
from pykai.core.queueing import reclaimrules as fairness
from pykai.core.queueing.queueledger import Amounts, Refusal
from pykai.core.report.decisions import Verdict


def _k_value(text: str) -> float:
    """At or below zero, usage is ignored (queues:Q-346)."""
    return max(0.0, a_number(text))


def _multiplier(text: str) -> float:
    return max(1.0, a_number(text))


@dataclass(frozen=True, slots=True)
class Proportion:
    """Fairness between queues."""

    #: how strongly historical usage shapes the surplus
    k_value: float = 1.0
    #: how reluctant reclaim is (queues:Q-274)
    saturation_multiplier: float = 1.0
    #: no share above request or limit, leftovers stay in their priority bucket (queues:8, Do better)
    strict_remainders: bool = False

    ARGUMENTS: ClassVar[Mapping[str, tuple[str, Reader]]] = {
        "kValue": ("k_value", _k_value),
        "relcaimerSaturationMultiplier": ("saturation_multiplier", _multiplier),
        "reclaimerSaturationMultiplier": ("saturation_multiplier", _multiplier),
        "reclaimerUtilizationMultiplier": ("saturation_multiplier", _multiplier),
        "strictRemainders": ("strict_remainders", a_flag),
    }

    def prepare(self, snapshot: Snapshot) -> Hooks:
        """Queue order and capacity; where nothing leaves, a start may be whatever may be promised."""
        leaves = any(count.leaving for count in snapshot.census.queues.values())
        return Hooks(
            queue_key=_queue_key,
            queue_tie=_queue_tie,
            quota_gate=_quota_gate,
            start_gate=_start_gate if leaves else None,
            victim_queue_key=_victim_queue_key,
            may_reclaim=_MayReclaim(),
            reclaim_from=_reclaim_from,
            reclaim_losers=_reclaim_losers,
            reclaim_gate=partial(_reclaim_gate, self.saturation_multiplier),
        )


def _queue_key(state: State, queue: int, amounts: Amounts) -> tuple[float, ...]:
    return state.ledger.order_key(queue, amounts)


def _queue_tie(state: State, queue: int, other: int) -> bool:
    return state.ledger.beats_on_tie(queue, other)


def _quota_gate(state: State, gang: Gang, amounts: Amounts) -> Refusal | None:
    return state.ledger.refusal(gang.chain, amounts, gang.starts_core, preemptor=gang.group.uid)


def _start_gate(state: State, gang: Gang, amounts: Amounts) -> Refusal | None:
    return state.ledger.refusal(gang.chain, amounts, gang.starts_core, preemptor=gang.group.uid, start=True)


def _victim_queue_key(state: State, queue: int, taken: Amounts) -> tuple[float, ...]:
    return state.ledger.victim_key(queue, taken)


class _MayReclaim:
    """The first gate of reclaim, asked once of all who ask for the same while nothing changes."""

    __slots__ = ("_said", "_version")

    def __init__(self) -> None:
        self._version = -1
        self._said: dict[tuple[int, Amounts, bool], Verdict | None] = {}

    def __call__(self, state: State, gang: Gang, required: Amounts) -> Verdict | None:
        if self._version != state.version:
            self._version = state.version
            self._said.clear()
        asks = (gang.queue, required, gang.starts_core)
        if asks not in self._said:
            self._said[asks] = fairness.may_reclaim(state.ledger, *asks)
        return self._said[asks]


def _reclaim_from(state: State, gang: Gang, required: Amounts) -> Callable[[int], bool]:
    """Whether anything may be taken depends on the victim's queue alone (queues:11.2)."""
    return lambda leaf: fairness.may_lose(state.ledger, gang.queue, leaf, required)


def _reclaim_losers(state: State, gang: Gang, required: Amounts) -> Callable[[int], bool]:
    return lambda leaf: fairness.may_lose_for_good(state.ledger, gang.queue, leaf, required)


def _reclaim_gate(multiplier: float, state: State, taking: Taking) -> str | None:
    chunks: dict[int, list[Amounts]] = {}
    for victim, losses in taking.losses:
        counted = [loss for loss in losses if not (taking.moving_is_free and loss.moves)]
        chunks.setdefault(victim.queue, []).extend(_chunks(losses, counted))
    parts = {queue: found for queue, found in chunks.items() if found}
    claim = fairness.Claim(taking.gang.queue, taking.required, taking.core, taking.allocated, taking.committed)
    return fairness.objection(state.ledger, claim, parts, multiplier)


def _chunks(losses: list[Loss], counted: list[Loss]) -> list[Amounts]:
    """What a gang loses, in parts that are judged one by one: the minimum of all its leaves as one, the rest task by
    task (cycle:RCL-3)."""
    seen: dict[str, int] = {}
    core: list[Amounts] = []
    single: list[Amounts] = []
    kept = {loss.task.key for loss in counted}
    for loss in losses:
        place = seen[loss.leaf.name] = seen.get(loss.leaf.name, 0) + 1
        if loss.task.key in kept:
            (core if place <= loss.leaf.minimum else single).append(loss.amounts)
    if core:
        single.append((sum(a[0] for a in core), sum(a[1] for a in core), sum(a[2] for a in core)))
    return single
