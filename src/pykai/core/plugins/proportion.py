"""proportion: fair shares, the order of queues, and what a queue may take on (queues:8 to 10).

The figures themselves are kept by the ledger whether or not this plugin is configured; the plugin decides by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pykai.core.fairshare.ledger import Amounts, Refusal
from pykai.core.gangs import Gang
from pykai.core.hooks import Hooks
from pykai.core.plugins.arguments import Reader, a_flag, a_number
from pykai.core.snapshot import Snapshot
from pykai.core.state import State


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
        """Queue order and capacity."""
        return Hooks(queue_key=_queue_key, queue_tie=_queue_tie, quota_gate=_quota_gate)


def _queue_key(state: State, queue: int, amounts: Amounts) -> tuple[float, ...]:
    return state.ledger.order_key(queue, amounts)


def _queue_tie(state: State, queue: int, other: int) -> bool:
    return state.ledger.beats_on_tie(queue, other)


def _quota_gate(state: State, gang: Gang, amounts: Amounts) -> Refusal | None:
    return state.ledger.refusal(gang.chain, amounts, not gang.preemptible)
