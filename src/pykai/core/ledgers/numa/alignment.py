"""Which zones a pod gets, by the policy of its node's Topology Manager (gpu:N-9 to N-12).

    align_zones(policy, allocatable, available, concurrent, serial) -> what is taken of each zone, or None

Pure integers: `allocatable` and `available` are [zone][resource], a need is [resource], over the resources that are
aligned and requested.  Units that run side by side are served in order, each from what the ones before it left; units
that run alone before them only have to fit what was there in the first place.

Which zones cover a need together is a search among all of them.  The number of steps is bounded; no node of up to
twelve zones reaches the bound (a kubelet supports eight by default), but a daemon that reports sixty uneven zones must
not stop the scheduler.  A cover that is not found by then counts as absent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from math import prod
from operator import mul
from typing import Final

from pykai.core.model.zones import ZoneGrid, ZonePolicy

NeedVector = tuple[int, ...]
AvailableGrid = Sequence[Sequence[int]]
#: Zone numbers, ascending.
ZoneMask = tuple[int, ...]

#: Sets of zones one search tries.
MAX_ALIGNMENT_STEPS: Final = 1 << 12


def align_zones(
    policy: ZonePolicy,
    allocatable: ZoneGrid,
    available: AvailableGrid,
    concurrent: Sequence[NeedVector],
    serial: Sequence[NeedVector],
) -> ZoneGrid | None:
    """What the units take of every zone; None when one of them cannot be aligned."""
    left = [[max(0, amount) for amount in zone] for zone in available]
    if any(_mask(policy, allocatable, left, need) is None for need in serial):
        return None
    taken = [[0] * len(zone) for zone in left]
    for need in concurrent:
        mask = _mask(policy, allocatable, left, need)
        if mask is None:
            return None
        for resource, missing in enumerate(need):
            for zone in mask:
                drawn = min(missing, left[zone][resource])
                left[zone][resource] -= drawn
                taken[zone][resource] += drawn
                missing -= drawn
    return tuple(map(tuple, taken))


def _mask(policy: ZonePolicy, allocatable: ZoneGrid, left: AvailableGrid, need: NeedVector) -> ZoneMask | None:
    """The zones one unit is drawn from."""
    if policy is ZonePolicy.SINGLE:
        return _first_cover(left, 1, need)
    if policy is ZonePolicy.BEST_EFFORT:
        return _greedy_cover(left, need)
    width = _required_width(allocatable, need)
    return None if width is None else _first_cover(left, width, need)


def _required_width(allocatable: ZoneGrid, need: NeedVector) -> int | None:
    """How many zones the need must span; None when its resources do not agree on that (gpu:N-11)."""
    widths: set[int] = set()
    for resource, wanted in enumerate(need):
        if wanted <= 0:
            continue
        missing, width = wanted, 0
        for offered in sorted((zone[resource] for zone in allocatable), reverse=True):
            if missing > 0:
                missing -= offered
                width += 1
        if missing > 0:
            return None
        widths.add(width)
    if len(widths) > 1:
        return None
    return widths.pop() if widths else 0


def _first_cover(
    left: AvailableGrid, width: int, need: NeedVector, start: int = 0, steps: Iterator[int] | None = None
) -> ZoneMask | None:
    """The first `width` zones, in lexicographic order, that together cover the need (gpu:N-10, N-11)."""
    steps = count() if steps is None else steps
    if next(steps) > MAX_ALIGNMENT_STEPS:
        return None
    if width == 0:
        return () if all(missing <= 0 for missing in need) else None
    for resource, missing in enumerate(need):
        # Not even the fullest remaining zones suffice.
        if missing > sum(sorted((zone[resource] for zone in left[start:]), reverse=True)[:width]):
            return None
    for zone in range(start, len(left) - width + 1):
        rest = tuple(missing - there for missing, there in zip(need, left[zone], strict=True))
        others = _first_cover(left, width - 1, rest, zone + 1, steps)
        if others is not None:
            return (zone, *others)
    return None


def _greedy_cover(left: AvailableGrid, need: NeedVector) -> ZoneMask | None:
    """Zones added one by one, always the one that meets most of what is still missing (gpu:N-12).

    Each resource counts in parts of its own need: otherwise bytes of memory would outweigh every core and device.
    """
    missing = need
    # Whole numbers over one denominator, so that a tie is a tie.
    scale = prod(max(1, wanted) for wanted in need)
    weights = [scale // max(1, wanted) for wanted in need]
    mask: list[int] = []
    while any(missing):
        covered = [sum(map(mul, weights, map(min, missing, zone))) for zone in left]
        best = max((zone for zone in range(len(left)) if zone not in mask), key=covered.__getitem__, default=None)
        if best is None or covered[best] == 0:
            return None
        mask.append(best)
        missing = tuple(max(0, wanted - there) for wanted, there in zip(missing, left[best], strict=True))
    return tuple(sorted(mask))
