"""Sibling queues one by one, divided by the columns that the engine works on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pykai.core.queueing.waterfill import SiblingColumns, divide_siblings


class QueueDemand(NamedTuple):
    """What one queue brings to the division of one resource; amounts in the unit of that resource."""

    #: metadata.name, the last tie-break.
    name: str
    #: Creation time; the older queue goes first.
    creation_ns: int
    #: Surplus goes to the highest value first.
    priority: int
    #: Guaranteed amount; inf claims the whole pool.
    quota: float
    #: Hard cap; inf is none.
    limit: float
    #: Relative part of the surplus; 0 takes none.
    weight: float
    #: Allocated plus pending.
    request: float
    #: Past consumption as a part of cluster capacity.
    usage: float = 0.0


def divide(
    total: float, demands: Sequence[QueueDemand], *, k: float = 1.0, strict_remainders: bool = False
) -> list[float]:
    """One fair share per demand, in input order; the order of the input has no influence on the shares."""
    order = sorted(range(len(demands)), key=lambda position: (demands[position].creation_ns, demands[position].name))
    ordered = [demands[position] for position in order]
    siblings = SiblingColumns(
        priorities=[demand.priority for demand in ordered],
        quotas=[demand.quota for demand in ordered],
        limits=[demand.limit for demand in ordered],
        weights=[demand.weight for demand in ordered],
        requests=[demand.request for demand in ordered],
        usages=[demand.usage for demand in ordered],
    )
    shares = [0.0] * len(demands)
    divided = divide_siblings(total, siblings, k=k, strict_remainders=strict_remainders)
    for position, share in zip(order, divided, strict=True):
        shares[position] = share
    return shares
