"""What every service is given, and what it has to be.

A service is made from a `Runtime` and its own options and then run until told to stop.  Services in one process share
the runtime, and with it the caches: pods are watched and decoded once, however many services read them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock

_LOG = logging.getLogger(__name__)
#: wall seconds in which services have to finish what is in flight once they were told to stop
PATIENCE_S = 25.0


@dataclass(frozen=True, slots=True)
class Runtime:
    """The way to the API server, shared by the services of a process."""

    client: Client
    caches: Caches
    clock: Clock


class Service(Protocol):
    """A part of the system that runs on its own."""

    @property
    def name(self) -> str:
        """`scheduler`, `binder`, ...: in logs, metrics and on the command line."""
        ...

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then finish or undo what is in flight and return."""
        ...

    def ready(self) -> bool:
        """Whether caches are filled and work is being done (or, for a standby, could be)."""
        ...


async def run_together(services: Sequence[Service], stop: asyncio.Event, patience_s: float = PATIENCE_S) -> None:
    """Run services until `stop` is set, or until one of them fails: then the others are told to stop, and it raises.

    A service that returns before it was told to is no failure: it had nothing more to do.
    """
    tasks = {asyncio.create_task(service.run(stop), name=service.name): service for service in services}
    told = asyncio.create_task(stop.wait())
    failure: BaseException | None = None
    try:
        running = set(tasks)
        while running and not stop.is_set() and failure is None:
            done, _ = await asyncio.wait({*running, told}, return_when=asyncio.FIRST_COMPLETED)
            running -= done
            for task in done & set(tasks):
                if task.exception() is not None:
                    failure = task.exception()
                    _LOG.error("%s failed: %s", task.get_name(), failure)
        stop.set()
        if running:
            _, late = await asyncio.wait(running, timeout=patience_s)
            for task in late:
                _LOG.warning("%s did not finish within %g s and is cancelled", task.get_name(), patience_s)
    finally:
        for task in (*tasks, told):
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    for end in ends:
        if failure is None and isinstance(end, Exception):
            failure = end
    if failure is not None:
        raise failure
