"""The division of one resource among sibling queues (queues:8).

In come a pool (the cluster total, or the parent's own fair share) and the demands of siblings; out comes one fair share
each.  It runs in three phases: the guaranteed part, `min(quota, request, limit)`; then the surplus, by priority
bucket and inside a bucket in rounds proportional to weight; then leftovers in whole units by largest fraction.
Historical usage only bends the weights of the second phase (queues:Q-138, queues:Q-346).

Subtle, and all of it on purpose:

* Results equal upstream's bit for bit, so the operations keep their order: `pot * (s / S)`, a want computed as
  `cap - share` in each round, sums added up one by one by (creation, name).  The builtin `sum` is not used because
  from Python 3.12 on it compensates rounding errors; NumPy adds pairwise.
* The first phase is not capped by the pool, so shares may add up to more than there is (queues:Q-130).
* Inside a round `left == 0` is meant and not `left <= 0`: rounding may take `left` a hair below zero in the middle of a
  round, and upstream then still serves the rest of that round.
* A round costs the number of queues still unsatisfied.  Rounds are few: what one queue leaves over is spread over all
  others, so a want that the next round satisfies but this one does not must lie in an ever smaller gap.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import add
from typing import NamedTuple

#: A pool without bound: keeps every difference and product of the division a number.
_LARGEST_POOL = 2.0**1023


class SiblingColumns(NamedTuple):
    """The claims as parallel columns; position order must be (creation_ns, name) ascending (queues:Q-140)."""

    priorities: Sequence[int]
    quotas: Sequence[float]
    limits: Sequence[float]
    weights: Sequence[float]
    requests: Sequence[float]
    usages: Sequence[float]


def divide_siblings(
    pool: float,
    siblings: SiblingColumns,
    *,
    k: float = 1.0,
    strict_remainders: bool,
) -> list[float]:
    """One fair share per position.

    Invalid numbers count as 0: NaN and negative ones, and infinite weights and usages.
    """
    pool = min(float(pool), _LARGEST_POOL) if pool > 0 else 0.0
    # queues:Q-346: k at or below zero switches usage off; so does NaN.
    k = k if 0 < k < math.inf else 0.0
    weights = [weight if 0 < weight < math.inf else 0.0 for weight in siblings.weights]
    usages = [usage if 0 < usage < math.inf else 0.0 for usage in siblings.usages]
    # The most a queue can use: more than it requests or is allowed would stay idle (queues:Q-137).
    caps = [
        float(min(limit, request)) if limit > 0 and request > 0 else 0.0
        for limit, request in zip(siblings.limits, siblings.requests, strict=True)
    ]

    # Phase 1.  Priority, weight and the pool do not limit it (queues:Q-130).
    left = pool
    shares: list[float] = []
    for quota, cap in zip(siblings.quotas, caps, strict=True):
        # queues:Q-131: an unlimited quota is the pool of this level, not all there is.
        deserved = (pool if quota == math.inf else quota) if quota > 0 else 0.0
        guaranteed = float(min(deserved, cap))
        shares.append(guaranteed)
        left -= guaranteed

    # Phases 2 and 3.  A queue that is satisfied or has no weight takes part in neither (queues:Q-134).
    buckets: dict[int, list[int]] = {}
    for position, priority in enumerate(siblings.priorities):
        if weights[position] > 0 and caps[position] > shares[position]:
            buckets.setdefault(priority, []).append(position)
    postponed: list[dict[int, float]] = []
    for priority in sorted(buckets, reverse=True):  # queues:Q-132
        if left <= 0:
            break
        left, fractions = _surplus_rounds(left, buckets[priority], k, weights, usages, caps, shares)
        if strict_remainders:
            left = _distribute_remainders(left, fractions, caps, shares)
        else:
            # Upstream reads fractions after all buckets had their rounds, so units of a high bucket leak into a lower
            # one (queues:Q-142).
            postponed.append(fractions)
    for fractions in postponed:
        left = _distribute_remainders(left, fractions, None, shares)
    if strict_remainders:
        # Adding a want to a share may round to one bit above the cap; strict means never above it.
        shares = [min(share, cap) for share, cap in zip(shares, caps, strict=True)]
    return shares


def _surplus_rounds(
    left: float,
    unsatisfied: list[int],
    k: float,
    weights: Sequence[float],
    usages: Sequence[float],
    caps: Sequence[float],
    shares: list[float],
) -> tuple[float, dict[int, float]]:
    """Phase 2 for one bucket: adds to `shares`, returns what is left and the fraction each queue lost to rounding."""
    fractions: dict[int, float] = {}
    again = True
    while again and unsatisfied:
        surplus = left
        normalised, adjusted = _share_weights(unsatisfied, k, weights, usages)
        adjusted_sum = _sum_in_order(adjusted)
        if adjusted_sum == 0:
            # Past usage leaves every queue without weight; upstream lets the surplus stay idle (queues:Q-144).
            adjusted, adjusted_sum = normalised, _sum_in_order(normalised)
            if adjusted_sum == 0:  # the sum of the weights is NaN
                break
        again = False
        for position, adjusted_weight in zip(unsatisfied, adjusted, strict=True):
            if left == 0:
                break
            want = caps[position] - shares[position]
            entitled = surplus * (adjusted_weight / adjusted_sum)
            if want <= entitled:
                granted = want
                fractions.pop(position, None)
                again = again or want < entitled  # queues:Q-133
            else:
                # queues:Q-135: a queue that is held back gets whole units.
                granted = float(math.floor(entitled)) if entitled >= 1 else 0.0
                # An integral entitlement leaves the fraction of an earlier round standing (queues:Q-143).
                if entitled > granted:
                    fractions[position] = entitled - granted
            shares[position] += granted
            left -= granted
        # Not simply those held back: a share plus its want may round to just below the cap.
        unsatisfied = [position for position in unsatisfied if caps[position] > shares[position]]
    return left, fractions


def _share_weights(
    unsatisfied: Sequence[int], k: float, weights: Sequence[float], usages: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Weights normalised over the unsatisfied queues: as configured, and bent by usage (queues:Q-346, Q-347, Q-348)."""
    weight_sum = _sum_in_order(weights[position] for position in unsatisfied)
    normalised = [weights[position] / weight_sum for position in unsatisfied]
    adjusted = [
        max(0.0, normal + k * (normal - usages[position]))
        for position, normal in zip(unsatisfied, normalised, strict=True)
    ]
    return normalised, adjusted


def _distribute_remainders(
    left: float,
    fractions: dict[int, float],
    caps: Sequence[float] | None,
    shares: list[float],
) -> float:
    """Phase 3: one unit per queue, largest fraction first, then the older queue (queues:Q-136); returns what is left.

    Without `caps` a gift may exceed what the queue can use, as upstream's does (queues:Q-141).
    """
    for position in sorted(fractions, key=lambda position: (-fractions[position], position)):
        if left <= 0:
            break
        grant = min(1.0, left)
        if caps is not None:
            grant = min(grant, max(0.0, caps[position] - shares[position]))
        shares[position] += grant
        left -= grant
    return left


def _sum_in_order(values: Iterable[float]) -> float:
    return reduce(add, values, 0.0)
