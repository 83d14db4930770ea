"""Whether this process may still decide, or its replacement has been ordered (operations:E-18; ADR 38).

    its pod is being deleted     -> it decides nothing any more, and finishes what it has begun
    its pod is gone              -> another one may work already: it writes nothing any more
    a flag needs a new process   -> as for the first, until the operator replaces the pod

Subtle: a pod that is deleted by force goes at once, while its process may run on for as long as its node cannot be
reached.  A process that knows its pod (POD_NAME) decides nothing before it has seen it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any

from pykai.api.core import Pod
from pykai.kube.errors import LeaseLost
from pykai.kube.store import Change, Store

log = logging.getLogger(__name__)


class Succession:
    """See the module."""

    def __init__(self, pod_key: str = "") -> None:
        """`pod_key`: the pod of this process, if it has one."""
        self._pod_key = pod_key
        self._uid = ""
        self._is_gone = False
        #: why this process decides nothing any more; "" while it may decide
        self.why = ""
        #: set with `why`
        self.ordered = asyncio.Event()
        #: set once the pod, if there is one, has been seen
        self.has_begun = asyncio.Event()
        if not pod_key:
            self.has_begun.set()

    def follow(self, pods: Store[Pod]) -> None:
        """Follow the pod of this process."""
        pods.subscribe(self._on_change)
        if (found := pods.get(self._pod_key)) is not None:
            self._look(found)

    def order(self, why: str) -> None:
        """Decide nothing from now on."""
        if not self.why:
            log.warning("no more decisions: %s", why)
            self.why = why
            self.ordered.set()

    def check(self) -> None:
        """Raise before a write if another process may work in place of this one."""
        if self._is_gone:
            raise LeaseLost(f"{self.why}; nothing is written any more")

    def _on_change(self, change: Change[Pod]) -> None:
        if change.key != self._pod_key:
            return
        if change.new is not None:
            self._look(change.new)
        elif self._uid:
            self._end(f"its pod {self._pod_key} is gone")

    def _look(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        if self._uid and uid != self._uid:
            self._end(f"its pod {self._pod_key} is another one now")
            return
        self._uid = uid
        self.has_begun.set()
        if pod.metadata.deletion_timestamp is not None:
            self.order(f"its pod {self._pod_key} is being deleted")

    def _end(self, why: str) -> None:
        self._is_gone = True
        self.order(why)


async def first_of(*waits: Awaitable[Any]) -> None:
    """Wait for one of them; the others are cancelled."""
    tasks = [asyncio.ensure_future(each) for each in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
