"""Fair shares of queues, published in their status for `kubectl get queues` (status:fair-share).

In: the figures of queues in each plan.  Out: a patch of `status.fairShare` for each queue whose share has changed, put
into the pool of status writes, so that it comes after binds.

Subtle: fair shares move with every pod that comes or goes, and with past usage all the time.  So queues are looked at
once an interval, a change of less than a hundredth is none, and the content of a write is compared with the cache again
when it goes out.  What was written is read from there as well: a new leader repeats nothing.  After a refusal, as under
a role of KAI, which has no such right, nothing is tried for ten minutes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from pykai.api import names
from pykai.api.amounts import NanoAmounts, amounts_patch, read_amounts
from pykai.api.duration import MINUTE
from pykai.api.scheduling import Queue
from pykai.core.report.decisions import Plan, QueueFigures
from pykai.kube import resources
from pykai.kube.store import Store
from pykai.scheduler.status.statuswrites import StatusPatch, StatusWrites

#: a change is published from this part of the larger amount on
_NOTABLE: Final = 0.01
_NANO: Final = 10**9
#: after a refusal
_PAUSE_NS: Final = 10 * MINUTE
#: resource -> billionths of what figures count in, and the step to which they are rounded
_UNITS: Final = {
    names.CPU: (_NANO // 1000, _NANO // 1000),
    names.MEMORY: (_NANO, 10**6 * _NANO),
    "gpu": (_NANO, _NANO // 100),
}


def fair_share_amounts(figures: QueueFigures) -> NanoAmounts:
    """The fair share in GPUs, cores and bytes, rounded to hundredths, thousandths and megabytes."""
    amounts: NanoAmounts = {}
    for amount, (name, (unit, step)) in zip(figures.fair_share, _UNITS.items(), strict=True):
        if math.isfinite(amount) and amount >= 0:
            amounts[name] = round(amount * unit / step) * step
    return amounts


def has_changed(listed: object, wanted: Mapping[str, int]) -> bool:
    """Whether an amount differs notably from what is listed, appears or disappears."""
    listed_amounts = read_amounts(listed)
    if listed_amounts.keys() != wanted.keys() or (isinstance(listed, Mapping) and len(listed) != len(listed_amounts)):
        return True
    return any(
        abs(wanted[name] - amount) > _NOTABLE * max(abs(amount), wanted[name])
        for name, amount in listed_amounts.items()
    )


class FairShares:
    """Keeps `status.fairShare` of the queues of a shard."""

    def __init__(self, queues: Store[Queue], writes: StatusWrites, interval_ns: int) -> None:
        """`interval_ns`: the shortest time between two writes of a queue; 0 = nothing is published."""
        self._queues = queues
        self._writes = writes
        self._interval_ns = interval_ns
        #: time of the plan whose figures were published last
        self._published_ns: int | None = None
        #: whether the server has refused one of these writes
        self._is_refused = False

    def on_plan(self, plan: Plan) -> None:
        """Publish what has changed, if the interval is over."""
        interval_ns, last_ns = self._interval_ns, self._published_ns
        if self._is_refused:
            interval_ns = max(interval_ns, _PAUSE_NS)
        # A clock that was set back waits for nothing.
        if not interval_ns or (last_ns is not None and 0 <= plan.now_ns - last_ns < interval_ns):
            return
        self._published_ns = plan.now_ns
        self._is_refused = False
        for figures in plan.queues:
            wanted = fair_share_amounts(figures)
            if self._patch(figures.name, wanted) is not None:
                self._put(figures.name, wanted)

    def _put(self, queue: str, wanted: NanoAmounts) -> None:
        def make_patch() -> StatusPatch | None:
            return None if self._is_refused else self._patch(queue, wanted)

        def on_written(version: str) -> None:
            if not version and self._patch(queue, wanted) is not None:
                self._is_refused = True

        # As if in one namespace, so that many queues take one turn among those of PodGroups.
        self._writes.put(f"queue share /{queue}", make_patch, on_written)

    def _patch(self, name: str, wanted: NanoAmounts) -> StatusPatch | None:
        queue = self._queues.get(name)
        if queue is None:
            return None
        status = queue.status if isinstance(queue.status, dict) else {}
        listed = status.get("fairShare")
        if not has_changed(listed, wanted):
            return None
        # A queue that was made again under its name is another one.
        content = {
            "metadata": {"uid": queue.metadata.uid},
            "status": {"fairShare": amounts_patch(listed, wanted)},
        }
        return StatusPatch(resources.QUEUES, "", name, content, subresource="status")
