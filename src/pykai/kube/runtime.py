"""The runtime that services share, and the interface of a service.

A service is made from a `Runtime` and its own options and then run until told to stop.  Services in one process share
the runtime, and with it the caches: pods are watched and decoded once, however many services read them.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.observe.controllermetrics import ControllerMetrics

_LOG = logging.getLogger(__name__)
#: wall seconds in which services have to finish what is in flight once they were told to stop
SHUTDOWN_TIMEOUT_S = 25.0
#: thresholds of Python's cyclic garbage collector, by generation
_GC_THRESHOLDS = (50_000, 20, 10)


@dataclass(frozen=True, slots=True)
class Runtime:
    """Client, caches, clock and metrics of controllers, shared by the services of a process."""

    client: Client
    caches: Caches
    clock: Clock
    controllers: ControllerMetrics = field(default_factory=ControllerMetrics)


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


@contextmanager
def gc_relaxed() -> Iterator[None]:
    """Run the garbage collector less often inside the block.

    Caches hold hundreds of thousands of long-lived objects; scanning them again and again costs a quarter of the
    processor time of a busy process.  Cyclic garbage, such as failed requests, is young and still found.
    """
    before = gc.get_threshold()
    gc.set_threshold(*_GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


async def run_until_stopped(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Run work that may be given up at any point; it is cancelled when `stop` is set.  Whether it came to its end."""
    task = asyncio.ensure_future(work)
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
            return True
        return False
    finally:
        task.cancel()
        stopped.cancel()
        await asyncio.gather(task, stopped, return_exceptions=True)


async def run_services(
    runtime: Runtime, services: Sequence[Service], stop: asyncio.Event, shutdown_timeout_s: float = SHUTDOWN_TIMEOUT_S
) -> None:
    """Run services over their caches until `stop` is set, one of them fails, or our credentials are rejected.

    On a failure `run_services` stops the others and raises the failure.  A service that returns early has finished its
    work; that is no failure.
    """
    with gc_relaxed():
        await _run_services(runtime, services, stop, shutdown_timeout_s)


async def _run_services(
    runtime: Runtime, services: Sequence[Service], stop: asyncio.Event, shutdown_timeout_s: float
) -> None:
    await runtime.caches.start()
    tasks = {asyncio.create_task(service.run(stop), name=service.name) for service in services}
    caches_failed = asyncio.create_task(runtime.caches.wait_for_failure(), name="caches")
    stopped = asyncio.create_task(stop.wait())
    try:
        failure = await _first_failure(tasks, caches_failed, stopped)
        stop.set()
        running = {task for task in tasks if not task.done()}
        if running:
            _, late = await asyncio.wait(running, timeout=shutdown_timeout_s)
            for task in late:
                _LOG.warning("%s did not finish within %g s and is cancelled", task.get_name(), shutdown_timeout_s)
    finally:
        for each in (*tasks, caches_failed, stopped):
            each.cancel()
        ends = await asyncio.gather(*tasks, caches_failed, stopped, return_exceptions=True)
        await runtime.caches.stop()
    for end in (failure, *ends):
        if isinstance(end, Exception):
            raise end


async def _first_failure(
    tasks: set[asyncio.Task[None]], caches_failed: asyncio.Task[None], stopped: asyncio.Task[Any]
) -> BaseException | None:
    """Wait until a task fails, all have ended, or it is time to stop."""
    running = set(tasks)
    while running and not stopped.done():
        done, _ = await asyncio.wait({*running, caches_failed, stopped}, return_when=asyncio.FIRST_COMPLETED)
        running -= done
        for task in done - {stopped}:
            failure = task.exception()
            if failure is not None:
                _LOG.error("%s failed: %s", task.get_name(), failure)
                return failure
    return None
