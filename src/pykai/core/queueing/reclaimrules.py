"""When one queue may take from another (queues:11): three gates, as pure functions over the books.

1. `may_reclaim`: a job that would bring its queue above its fair share takes nothing.
2. `may_lose`: which queues are worth looking at.
3. `objection`: whether a whole set of losses is fair, at every level of the tree.

Subtle: the third gate does not depend on the order of the victims.  A part may be taken while its side is over its
share *before* it is taken; since a side only shrinks, a legal order of the parts exists exactly when some part could
be taken last (queues:Q-279, Do better).
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from pykai.core.queueing.queueledger import Amounts, Ledger
from pykai.core.queueing.queuetree import GPU, RESOURCE_NAMES, RESOURCES
from pykai.core.report.decisions import Verdict


def _verdict(ledger: Ledger, rule: str, queue: int, resource: int, have: float, bound: float) -> Verdict:
    scale = 100.0 if resource == GPU else 1.0
    return Verdict("reclaim", rule, ledger.tree.names[queue], RESOURCE_NAMES[resource], have / scale, bound / scale)


def may_reclaim(ledger: Ledger, queue: int, required: Amounts, committed: bool) -> Verdict | None:
    """What forbids a job of this leaf to reclaim so much (queues:Q-260, Q-261)."""
    have, share = ledger.allocated[queue], ledger.fair_share[queue]
    for resource in range(RESOURCES):
        if have[resource] + required[resource] > share[resource]:
            return _verdict(ledger, "fair_share", queue, resource, have[resource] + required[resource], share[resource])
    if committed:
        held, quota = ledger.committed[queue], ledger.quota[queue]
        for resource in range(RESOURCES):
            if held[resource] + required[resource] > quota[resource]:
                return _verdict(ledger, "quota", queue, resource, held[resource] + required[resource], quota[resource])
    return None


# Unlimited is infinite, and comparisons are exact (queues: ).
def _within(have: list[float], required: Amounts, bound: tuple[float, ...]) -> bool:
    return have[0] + required[0] <= bound[0] and have[1] + required[1] <= bound[1] and have[2] + required[2] <= bound[2]


def _over(have: list[float], bound: tuple[float, ...]) -> bool:
    """Above the bound in some resource."""
    return have[0] > bound[0] or have[1] > bound[1] or have[2] > bound[2]


def may_lose(ledger: Ledger, reclaimer: int, victim: int, required: Amounts) -> bool:
    """Whether looking at victims of a leaf can lead anywhere (queues:Q-265 to Q-267)."""
    mine, theirs = ledger.tree.diverging(reclaimer, victim)
    if not _within(ledger.allocated[mine], required, ledger.quota[mine]):
        return _over(ledger.allocated[theirs], ledger.allocatable[theirs])
    have, quota = ledger.allocated[theirs], ledger.quota[theirs]
    compared = [r for r in range(RESOURCES) if required[r] > 0 and quota[r] != inf]
    if any(have[r] > quota[r] for r in compared):
        return True
    # Exactly at quota everywhere: moving victims elsewhere may still help.
    return not any(have[r] < quota[r] for r in compared)


def may_lose_for_good(ledger: Ledger, reclaimer: int, victim: int, required: Amounts) -> bool:
    """Whether the third gate may let gangs of a leaf go without a new place, now or after others have gone.

    A side only shrinks while it loses, so one that is not over its share now never will be (queues:Q-270, Q-275).
    """
    mine, theirs = ledger.tree.diverging(reclaimer, victim)
    have = ledger.allocated[theirs]
    if _over(have, ledger.allocatable[theirs]):
        return True
    return _within(ledger.allocated[mine], required, ledger.quota[mine]) and _over(have, ledger.quota[theirs])


class Claim(NamedTuple):
    """A reclaimer, and the books before anything is taken (queues:Q-109)."""

    #: leaf queue of the reclaimer, and what it asks for
    queue: int
    required: Amounts
    #: it cannot be taken back
    committed: bool
    #: [queue][resource], of all work and of work that cannot be taken back
    allocated: list[list[float]]
    allocated_committed: list[list[float]]


def objection(ledger: Ledger, claim: Claim, losses: dict[int, list[Amounts]], multiplier: float) -> str | None:
    """What is unfair about a set of losses, None when it is fair (queues:11.3).

    `losses` are parts by leaf, each taken whole or not at all.

    Statements: queues:Q-273, Q-278.
    """
    tree = ledger.tree
    reclaimer, required, allocated = claim.queue, claim.required, claim.allocated
    left: dict[int, list[float]] = {}
    involved: dict[int, set[int]] = {}
    by_side: dict[int, tuple[int, list[Amounts]]] = {}
    for leaf, parts in losses.items():
        mine, theirs = tree.diverging(reclaimer, leaf)
        by_side.setdefault(theirs, (mine, []))[1].extend(parts)
        touched = {r for part in parts for r in range(RESOURCES) if part[r] > 0}
        for queue in tree.chains[leaf]:
            have = left.setdefault(queue, list(allocated[queue]))
            for part in parts:
                for resource in range(RESOURCES):
                    have[resource] -= part[resource]
            involved.setdefault(queue, set()).update(touched)
    for theirs, (mine, parts) in by_side.items():
        in_quota = _within(allocated[mine], required, ledger.quota[mine])
        if not any(_takeable(ledger, theirs, left[theirs], part, in_quota) for part in parts):
            return f"queue {tree.names[theirs]} would lose what it deserves"
    wanted = {resource for resource in range(RESOURCES) if required[resource] > 0}
    for queue in tree.chains[reclaimer]:
        have = left.get(queue, allocated[queue])
        after = [have[r] + required[r] for r in range(RESOURCES)]
        for other in left:
            if other == queue or tree.parents[other] != tree.parents[queue]:
                continue
            for resource in sorted(involved[other] | wanted):
                if _overtakes(ledger, queue, after, other, left[other], resource, multiplier):
                    name = RESOURCE_NAMES[resource]
                    return (
                        f"queue {tree.names[queue]} would exceed its fair share of {name} by no less than "
                        f"{tree.names[other]}, from which it takes"
                    )
        if claim.committed and not _within(claim.allocated_committed[queue], required, ledger.quota[queue]):
            return f"queue {tree.names[queue]} would exceed its quota with work that cannot be taken back"
    return None


def _takeable(ledger: Ledger, theirs: int, left: list[float], part: Amounts, in_quota: bool) -> bool:
    """Whether a part may be the last one taken from a side that then has so much left (queues:Q-270)."""
    before = [left[resource] + part[resource] for resource in range(RESOURCES)]
    return _over(before, ledger.allocatable[theirs]) or (in_quota and _over(before, ledger.quota[theirs]))


def _saturation(have: float, share: float) -> float:
    if share == inf:
        return 0.0
    if share == 0:
        return inf if have > 0 else 0.0
    return have / share


def _overtakes(
    ledger: Ledger,
    queue: int,
    after: list[float],
    other: int,
    left: list[float],
    resource: int,
    multiplier: float,
) -> bool:
    """Whether the reclaimer's side would be better off than one it takes from (queues:Q-272)."""
    mine, theirs = ledger.fair_share[queue][resource], ledger.fair_share[other][resource]
    if (mine == inf and theirs == inf) or theirs <= 0:
        return False
    ratio = _saturation(after[resource], mine)
    return ratio > 1 and ratio * multiplier >= _saturation(left[resource], theirs)
