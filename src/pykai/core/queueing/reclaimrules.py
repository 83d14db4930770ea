"""When one queue may reclaim from another (queues:11): three gates, as pure functions over the ledger.

1. `may_reclaim`: a job that would bring its queue above its fair share reclaims nothing.
2. `may_lose`: which queues can have victims.
3. `objection`: whether a whole set of losses is fair, at every level of the tree.

Subtle: the third gate does not depend on the order of the victims.  A part may be taken while its side is over its
share *before* it is taken; since a side only shrinks, a legal order of the parts exists exactly when some part could
be taken last (queues:Q-279, Do better).
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from pykai.core.model.queuetree import GPU, RESOURCE_NAMES, RESOURCES, QueueAmounts
from pykai.core.queueing.queueledger import QueueLedger
from pykai.core.report.decisions import NoEviction


def _no_eviction(ledger: QueueLedger, rule: str, queue: int, resource: int, have: float, bound: float) -> NoEviction:
    scale = 100.0 if resource == GPU else 1.0
    return NoEviction("reclaim", rule, ledger.tree.names[queue], RESOURCE_NAMES[resource], have / scale, bound / scale)


def why_not_reclaim(
    ledger: QueueLedger, queue: int, required: QueueAmounts, non_preemptible: bool
) -> NoEviction | None:
    """What forbids a job of this leaf to reclaim so much (queues:Q-260, Q-261)."""
    allocated, share = ledger.allocated[queue], ledger.fair_share[queue]
    for resource in range(RESOURCES):
        if allocated[resource] + required[resource] > share[resource]:
            return _no_eviction(
                ledger, "fair_share", queue, resource, allocated[resource] + required[resource], share[resource]
            )
    if non_preemptible:
        allocated_non_preemptible, quota = ledger.allocated_non_preemptible[queue], ledger.quota[queue]
        for resource in range(RESOURCES):
            if allocated_non_preemptible[resource] + required[resource] > quota[resource]:
                return _no_eviction(
                    ledger,
                    "quota",
                    queue,
                    resource,
                    allocated_non_preemptible[resource] + required[resource],
                    quota[resource],
                )
    return None


# Unlimited is infinite, and comparisons are exact (queues: ).
def _fits_within(have: list[float], required: QueueAmounts, bound: tuple[float, ...]) -> bool:
    return have[0] + required[0] <= bound[0] and have[1] + required[1] <= bound[1] and have[2] + required[2] <= bound[2]


def _exceeds(have: list[float], bound: tuple[float, ...]) -> bool:
    """Above the bound in some resource."""
    return have[0] > bound[0] or have[1] > bound[1] or have[2] > bound[2]


def may_lose(ledger: QueueLedger, reclaimer_side: int, victim_side: int, required: QueueAmounts) -> bool:
    """Whether leaves below a queue can have victims; the sides are siblings (queues:Q-265 to Q-267)."""
    if not _fits_within(ledger.allocated[reclaimer_side], required, ledger.quota[reclaimer_side]):
        return _exceeds(ledger.allocated[victim_side], ledger.allocatable[victim_side])
    allocated, quota = ledger.allocated[victim_side], ledger.quota[victim_side]
    compared = [r for r in range(RESOURCES) if required[r] > 0 and quota[r] != inf]
    if any(allocated[r] > quota[r] for r in compared):
        return True
    # Exactly at quota everywhere: moving victims elsewhere may still help.
    return not any(allocated[r] < quota[r] for r in compared)


def is_above_share(ledger: QueueLedger, queue: int) -> bool:
    """Whether a queue has more of some resource than its fair share and its quota."""
    return _exceeds(ledger.allocated[queue], ledger.allocatable[queue])


def may_lose_for_good(ledger: QueueLedger, reclaimer_side: int, victim_side: int, required: QueueAmounts) -> bool:
    """Whether the third gate may allow evicting gangs below a side without a new place, now or after other evictions.

    A side only shrinks while it loses, so one that is not over its share now never will be (queues:Q-270, Q-275).
    """
    if is_above_share(ledger, victim_side):
        return True
    return _fits_within(ledger.allocated[reclaimer_side], required, ledger.quota[reclaimer_side]) and _exceeds(
        ledger.allocated[victim_side], ledger.quota[victim_side]
    )


class ReclaimRequest(NamedTuple):
    """A reclaimer, and the ledger before anything is taken (queues:Q-109)."""

    #: leaf queue of the reclaimer, and what it requests
    queue: int
    required: QueueAmounts
    #: it is not preemptible
    non_preemptible: bool
    #: [queue][resource], of all work and of non-preemptible work
    allocated: list[list[float]]
    allocated_non_preemptible: list[list[float]]


def objection(
    ledger: QueueLedger, request: ReclaimRequest, losses: dict[int, list[QueueAmounts]], multiplier: float
) -> str | None:
    """What is unfair about a set of losses, None when it is fair (queues:11.3).

    `losses` are parts by leaf, each taken whole or not at all.

    Statements: queues:Q-273, Q-278.
    """
    tree = ledger.tree
    reclaimer, required, allocated = request.queue, request.required, request.allocated
    remaining: dict[int, list[float]] = {}
    involved: dict[int, set[int]] = {}
    by_side: dict[int, tuple[int, list[QueueAmounts]]] = {}
    for leaf, parts in losses.items():
        reclaimer_side, victim_side = tree.diverging_ancestors(reclaimer, leaf)
        by_side.setdefault(victim_side, (reclaimer_side, []))[1].extend(parts)
        touched = {r for part in parts for r in range(RESOURCES) if part[r] > 0}
        for queue in tree.chains[leaf]:
            have = remaining.setdefault(queue, list(allocated[queue]))
            for part in parts:
                for resource in range(RESOURCES):
                    have[resource] -= part[resource]
            involved.setdefault(queue, set()).update(touched)
    for victim_side, (reclaimer_side, parts) in by_side.items():
        in_quota = _fits_within(allocated[reclaimer_side], required, ledger.quota[reclaimer_side])
        if not any(_may_be_taken_last(ledger, victim_side, remaining[victim_side], part, in_quota) for part in parts):
            return f"queue {tree.names[victim_side]} would lose what it deserves"
    required_resources = {resource for resource in range(RESOURCES) if required[resource] > 0}
    for queue in tree.chains[reclaimer]:
        have = remaining.get(queue, allocated[queue])
        after_reclaim = [have[r] + required[r] for r in range(RESOURCES)]
        for victim_queue in remaining:
            if victim_queue == queue or tree.parents[victim_queue] != tree.parents[queue]:
                continue
            for resource in sorted(involved[victim_queue] | required_resources):
                if _overtakes(
                    ledger, queue, after_reclaim, victim_queue, remaining[victim_queue], resource, multiplier
                ):
                    name = RESOURCE_NAMES[resource]
                    return (
                        f"queue {tree.names[queue]} would exceed its fair share of {name} by no less than "
                        f"{tree.names[victim_queue]}, from which it takes"
                    )
        if request.non_preemptible and not _fits_within(
            request.allocated_non_preemptible[queue], required, ledger.quota[queue]
        ):
            return f"queue {tree.names[queue]} would exceed its quota with work that cannot be taken back"
    return None


def _may_be_taken_last(
    ledger: QueueLedger, victim_side: int, remaining: list[float], part: QueueAmounts, in_quota: bool
) -> bool:
    """Whether a part may be the last one taken from a side that then has so much left (queues:Q-270)."""
    before = [remaining[resource] + part[resource] for resource in range(RESOURCES)]
    return _exceeds(before, ledger.allocatable[victim_side]) or (
        in_quota and _exceeds(before, ledger.quota[victim_side])
    )


def _saturation(have: float, share: float) -> float:
    if share == 0:
        return inf if have > 0 else 0.0
    return have / share


def _overtakes(
    ledger: QueueLedger,
    queue: int,
    after_reclaim: list[float],
    victim_queue: int,
    remaining: list[float],
    resource: int,
    multiplier: float,
) -> bool:
    """Whether the reclaimer's side would be better off than one it takes from (queues:Q-272)."""
    own_share, other_share = ledger.fair_share[queue][resource], ledger.fair_share[victim_queue][resource]
    if (own_share == inf and other_share == inf) or other_share <= 0:
        return False
    ratio = _saturation(after_reclaim[resource], own_share)
    return ratio > 1 and ratio * multiplier >= _saturation(remaining[resource], other_share)
