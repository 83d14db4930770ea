"""The loop of a controller: calls a function for every enqueued key.

Services subscribe to stores and `enqueue` keys; `reconcile(key)` brings one object to its desired state.  It runs for
several keys at a time, never twice at once for one key.  If it fails, it is called again after a delay that doubles
with each failure of that key; another change of the object does not wait for that.

Subtle: delays are cluster time, because what a controller waits for happens in the cluster.  `Unauthorized` is not
retried: it ends `run`, and with it the process.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from pykai.kube.backoff import Backoff
from pykai.kube.clock import Clock
from pykai.kube.errors import Conflict, CredentialsError, KubeError, Unauthorized
from pykai.kube.events import EventRecorder
from pykai.kube.workqueue import WorkQueue
from pykai.observe.controllermetrics import ERROR, REQUEUE_AFTER, SUCCESS, ControllerMetrics

log = logging.getLogger(__name__)


class Reconciler:
    """Calls `reconcile` for enqueued keys; it returns the cluster seconds after which to call again, or None."""

    def __init__(
        self,
        name: str,
        reconcile: Callable[[str], Awaitable[float | None]],
        *,
        clock: Clock,
        workers: int = 10,
        base_delay_s: float = 1.0,
        max_delay_s: float = 60.0,
        metrics: ControllerMetrics | None = None,
    ) -> None:
        self.name = name
        self._reconcile = reconcile
        self._clock = clock
        self._workers = workers
        self._backoff = Backoff(base_delay_s, max_delay_s)
        self._queue = queue = WorkQueue()
        self._record = (metrics or ControllerMetrics()).watch(
            name, workers, active=lambda: queue.processing, depth=lambda: len(queue)
        )
        self._failures: dict[str, int] = {}
        self._wakeup = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_s = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._running = False
        self._fatal: BaseException | None = None

    def enqueue(self, key: str, after_s: float = 0.0) -> None:
        """Reconcile a key now, or after so many cluster seconds."""
        if after_s > 0:
            self._queue.add_at(key, self._clock.elapsed_s() + after_s)
            self._set_timer()
        else:
            self._queue.add(key)
            self._wakeup.set()

    def idle(self) -> bool:
        """Whether nothing is ready and nothing runs; keys that wait for their time do not count."""
        return not len(self._queue) and not self._queue.processing

    async def run(self, stop: asyncio.Event) -> None:
        """Work until told to stop, then finish what is running."""
        self._running = True
        stopped = asyncio.ensure_future(self._wait_for(stop))
        self._set_timer()
        try:
            while not stop.is_set() and self._fatal is None:
                self._wakeup.clear()
                self._start_workers()
                await self._wakeup.wait()
            self._stop_starting()
            if self._tasks:
                await asyncio.wait(self._tasks)
        except asyncio.CancelledError:
            # Out of time: unfinished work must not disturb the next leader.
            for task in self._tasks:
                task.cancel()
            raise
        finally:
            self._stop_starting()
            stopped.cancel()
        if self._fatal is not None:
            raise self._fatal

    def _stop_starting(self) -> None:
        """Start no more keys."""
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _wait_for(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._wakeup.set()

    def _start_workers(self) -> None:
        """Start as many ready keys as there are free workers."""
        loop = asyncio.get_running_loop()
        while len(self._tasks) < self._workers:
            key = self._queue.get(self._workers - self._queue.processing)
            if key is None:
                return
            task = loop.create_task(self._work(key))
            self._tasks.add(task)
            task.add_done_callback(self._worker_ended)

    def _worker_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        # No worker was free for a key that came since its last look.
        if len(self._queue):
            self._wakeup.set()

    async def _work(self, first: str) -> None:
        """Work on one key after another until none is ready: one task per burst, not per key."""
        key: str | None = first
        while key is not None:
            began_s, result = time.perf_counter(), ERROR
            try:
                requeue_after_s = await self._reconcile(key)
            except (Unauthorized, CredentialsError) as error:
                self._fatal = error
                self._wakeup.set()
            except Exception as error:
                # Any failure of one key is retried with back-off, and the other keys go on.
                self._retry_with_backoff(key, error)
            else:
                self._failures.pop(key, None)
                result = SUCCESS if requeue_after_s is None else REQUEUE_AFTER
                if requeue_after_s is not None:
                    self._queue.add_at(key, self._clock.elapsed_s() + max(0.0, requeue_after_s))
                    self._set_timer()
            finally:
                self._queue.done(key)
                self._record(result, time.perf_counter() - began_s)
            # A function that never waits must not starve the event loop.
            await asyncio.sleep(0)
            free = self._workers - self._queue.processing
            key = self._queue.get(free) if self._running and self._fatal is None else None

    def _retry_with_backoff(self, key: str, error: Exception) -> None:
        failures = self._failures.get(key, 0) + 1
        self._failures[key] = failures
        delay_s = self._backoff.delay_s(failures)
        if isinstance(error, Conflict):
            log.debug("%s: %s: %s; retrying in %g s", self.name, key, error, delay_s)
        elif isinstance(error, KubeError):
            log.warning("%s: %s: %s; retrying in %g s", self.name, key, error, delay_s)
        else:
            log.error("%s: %s failed; retrying in %g s", self.name, key, delay_s, exc_info=error)
        self._queue.add_at(key, self._clock.elapsed_s() + delay_s)
        self._set_timer()

    def _set_timer(self) -> None:
        """One timer, for the key that is due first."""
        due_s = self._queue.next_due_s()
        if due_s is None or not self._running:
            return
        if self._timer is not None:
            if self._timer_due_s <= due_s:
                return
            self._timer.cancel()
        wait_s = self._clock.wall_s(max(0.0, due_s - self._clock.elapsed_s()))
        self._timer_due_s = due_s
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._queue.promote_due(self._clock.elapsed_s())
        self._set_timer()
        self._wakeup.set()


async def reconcile_and_record_events(reconciler: Reconciler, recorder: EventRecorder, stop: asyncio.Event) -> None:
    """Run both until told to stop; events of work that finishes then are still written."""
    recording = asyncio.ensure_future(recorder.run(stop))
    try:
        await reconciler.run(stop)
    finally:
        await asyncio.gather(recording, return_exceptions=True)
