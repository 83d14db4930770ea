"""Work queue and reconciler: each key once, never twice at a time, back-off per key, an orderly end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from prometheus_client import CollectorRegistry

from pykai.kube.errors import Conflict, Unauthorized
from pykai.kube.reconcile import Reconciler
from pykai.kube.workqueue import WorkQueue
from pykai.observe.controllermetrics import ControllerMetrics
from tests.kube.faketime import LoopClock, in_fake_time


def test_a_key_stands_in_the_queue_once_and_in_order() -> None:
    queue = WorkQueue()
    for key in ("b", "a", "b"):
        queue.add(key)
    assert [queue.get(), queue.get(), queue.get()] == ["b", "a", None]


def test_a_key_being_worked_on_comes_back_only_afterwards() -> None:
    queue = WorkQueue()
    queue.add("a")
    assert queue.get() == "a"
    queue.add("a")
    queue.add("a")
    assert queue.get() is None
    queue.done("a")
    assert queue.get() == "a"
    queue.done("a")
    assert queue.get() is None


def test_the_earliest_time_holds() -> None:
    queue = WorkQueue()
    queue.add_at("a", 10)
    queue.add_at("a", 5)
    queue.add_at("a", 20)
    assert queue.next_due_s() == 5
    queue.promote_due(4.9)
    assert queue.get() is None
    queue.promote_due(5)
    assert queue.get() == "a"
    queue.done("a")
    queue.promote_due(100)
    assert queue.get() is None
    assert queue.next_due_s() is None


def test_adding_for_now_cancels_the_later_time() -> None:
    queue = WorkQueue()
    queue.add_at("a", 10)
    queue.add("a")
    assert queue.get() == "a"
    queue.done("a")
    queue.promote_due(10)
    assert queue.get() is None


def test_a_time_that_comes_during_the_work_waits_for_its_end() -> None:
    queue = WorkQueue()
    queue.add("a")
    queue.get()
    queue.add_at("a", 1)
    queue.promote_due(1)
    assert queue.get() is None
    queue.done("a")
    assert queue.get() == "a"


def test_namespaces_take_turns() -> None:
    queue = WorkQueue()
    for key in ("a/1", "a/2", "a/3", "b/1", "c/1", "b/2"):
        queue.add(key)
    assert [queue.get() for _ in range(6)] == ["a/1", "b/1", "c/1", "a/2", "b/2", "a/3"]
    assert len(queue) == 0


def test_a_namespace_leaves_workers_for_others() -> None:
    queue = WorkQueue()
    for number in range(10):
        queue.add(f"slow/{number}")
    assert [queue.get(4 - queue.processing) for _ in range(4)] == ["slow/0", "slow/1", "slow/2", None]
    queue.add("a/1")
    assert queue.get(4 - queue.processing) == "a/1"
    queue.done("slow/0")
    assert queue.get(4 - queue.processing) is None
    queue.done("a/1")
    assert queue.get(4 - queue.processing) == "slow/3"


def test_keys_without_a_namespace_need_not_share() -> None:
    queue = WorkQueue()
    for name in ("a", "b", "c"):
        queue.add(name)
    assert [queue.get(3 - queue.processing) for _ in range(3)] == ["a", "b", "c"]


Reconcile = Callable[[str], Awaitable[float | None]]


async def running(reconcile: Reconcile, *keys: str, for_s: float = 1000, **options: float) -> Reconciler:
    """Run a reconciler on some keys for that long, and end it."""
    reconciler = Reconciler("test", reconcile, clock=LoopClock.of_2026(), **options)  # type: ignore[arg-type]
    for key in keys:
        reconciler.enqueue(key)
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(for_s, stop.set)
    await reconciler.run(stop)
    return reconciler


def test_failures_are_tried_again_after_growing_pauses() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        times: list[float] = []

        async def reconcile(key: str) -> None:
            times.append(loop.time() - 1000)
            if len(times) < 9:
                raise Conflict(409, "Conflict")

        reconciler = await running(reconcile, "a", base_delay_s=1, max_delay_s=60)
        assert [round(time) for time in times] == [0, 1, 3, 7, 15, 31, 63, 123, 183]
        assert reconciler.idle()

    in_fake_time(story())


def test_success_ends_the_growth_of_pauses() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        times: list[float] = []

        async def reconcile(key: str) -> float | None:
            times.append(loop.time() - 1000)
            if len(times) in (1, 2, 4):
                raise RuntimeError("broken on purpose")
            return 10.0 if len(times) == 3 else None

        await running(reconcile, "a")
        assert [round(time) for time in times] == [0, 1, 3, 13, 14]

    in_fake_time(story())


def test_a_change_does_not_wait_for_the_back_off() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        times: list[float] = []

        async def reconcile(key: str) -> None:
            times.append(loop.time() - 1000)
            if len(times) == 1:
                raise RuntimeError("broken on purpose")

        reconciler = Reconciler("test", reconcile, clock=LoopClock.of_2026(), base_delay_s=50)
        stop = asyncio.Event()
        reconciler.enqueue("a")
        loop.call_later(2, reconciler.enqueue, "a")
        loop.call_later(200, stop.set)
        await reconciler.run(stop)
        assert [round(time) for time in times] == [0, 2]

    in_fake_time(story())


def test_never_two_at_once_for_a_key_and_no_more_than_workers_in_all() -> None:
    async def story() -> None:
        running_now: list[str] = []
        most = 0
        seen: list[str] = []
        box: list[Reconciler] = []

        async def reconcile(key: str) -> None:
            nonlocal most
            assert key not in running_now
            running_now.append(key)
            most = max(most, len(running_now))
            if len(seen) < 40:
                box[0].enqueue(key)
            await asyncio.sleep(1)
            running_now.remove(key)
            seen.append(key)

        reconciler = Reconciler("test", reconcile, clock=LoopClock.of_2026(), workers=3)
        box.append(reconciler)
        for number in range(10):
            reconciler.enqueue(f"k{number}")
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(100, stop.set)
        await reconciler.run(stop)
        assert most == 3
        assert set(seen) == {f"k{number}" for number in range(10)}
        assert reconciler.idle()

    in_fake_time(story())


def test_what_runs_at_the_end_is_finished_and_nothing_else_begins() -> None:
    async def story() -> None:
        done: list[str] = []

        async def reconcile(key: str) -> None:
            await asyncio.sleep(10)
            done.append(key)

        await running(reconcile, "a", "b", "c", for_s=5, workers=2)
        assert sorted(done) == ["a", "b"]

    in_fake_time(story())


def test_one_key_that_fails_harms_no_other() -> None:
    async def story() -> None:
        done: list[str] = []

        async def reconcile(key: str) -> None:
            if key == "bad":
                raise ValueError("broken on purpose")
            done.append(key)

        await running(reconcile, "a", "bad", "b", for_s=5, workers=1)
        assert done == ["a", "b"]

    in_fake_time(story())


def test_being_unknown_to_the_server_ends_the_run() -> None:
    async def story() -> None:
        async def reconcile(key: str) -> None:
            raise Unauthorized(401, "Unauthorized")

        with pytest.raises(Unauthorized):
            await running(reconcile, "a")

    in_fake_time(story())


def test_keys_that_never_wait_leave_the_loop_to_others() -> None:
    async def story() -> None:
        order: list[str] = []

        async def reconcile(key: str) -> None:
            order.append(key)

        async def other() -> None:
            for _ in range(5):
                await asyncio.sleep(0)
            order.append("other")

        task = asyncio.create_task(other())
        await running(reconcile, *(f"k{number}" for number in range(50)), for_s=5, workers=1)
        await task
        assert order.index("other") < 20

    in_fake_time(story())


def test_work_that_hangs_in_one_namespace_does_not_stop_the_others() -> None:
    async def story() -> None:
        done: list[str] = []

        async def reconcile(key: str) -> None:
            if key.startswith("slow/"):
                await asyncio.sleep(10)
            done.append(key)

        keys = [f"slow/{number}" for number in range(20)]
        await running(reconcile, *keys, "a/1", "b/1", for_s=5, workers=5)
        assert done[:2] == ["a/1", "b/1"]

    in_fake_time(story())


class Unfinished:
    """Work that waits until it is let on, and then writes."""

    def __init__(self) -> None:
        self.begun, self._go_on = asyncio.Event(), asyncio.Event()
        self.written: list[str] = []
        self.reconciler = Reconciler("test", self._write, clock=LoopClock())

    async def _write(self, key: str) -> None:
        self.begun.set()
        await self._go_on.wait()
        self.written.append(key)

    async def begin(self, stop: asyncio.Event) -> asyncio.Task[None]:
        """Be in the middle of it."""
        running = asyncio.create_task(self.reconciler.run(stop))
        self.reconciler.enqueue("a")
        await self.begun.wait()
        return running

    async def go_on(self) -> None:
        """Let running work end."""
        self._go_on.set()
        while not self.reconciler.idle():
            await asyncio.sleep(0)


async def test_a_reconciler_cancelled_before_its_stop_leaves_nothing_running() -> None:
    work = Unfinished()
    running = await work.begin(asyncio.Event())
    running.cancel()
    async with asyncio.timeout(10):
        await asyncio.wait([running])
    await work.go_on()
    assert not work.written


async def test_a_reconciler_cancelled_while_it_finishes_leaves_nothing_running() -> None:
    work, stop = Unfinished(), asyncio.Event()
    running = await work.begin(stop)
    stop.set()
    # As with a leader that does not stop in time: in the end the lease is lost.
    while work.reconciler._running:
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    await work.go_on()
    assert not work.written


def test_what_a_controller_does_is_counted() -> None:
    """operations:8: under the names of controller-runtime."""
    registry = CollectorRegistry()

    async def reconcile(key: str) -> float | None:
        if key == "bad":
            raise ValueError("no")
        return 60.0 if key == "later" else None

    async def run() -> None:
        reconciler = Reconciler("queues", reconcile, clock=LoopClock(), workers=3, metrics=ControllerMetrics(registry))
        for key in ("good", "later", "bad", "fine"):
            reconciler.enqueue(key)
        assert registry.get_sample_value("workqueue_depth", {"name": "queues"}) == 4
        stop = asyncio.Event()
        running = asyncio.create_task(reconciler.run(stop))
        while not reconciler.idle():
            await asyncio.sleep(0)
        stop.set()
        await running

    in_fake_time(run())
    labels = {"controller": "queues"}
    counts = {
        result: registry.get_sample_value("controller_runtime_reconcile_total", {**labels, "result": result})
        for result in ("success", "requeue_after", "error")
    }
    assert counts == {"success": 2, "requeue_after": 1, "error": 1}
    assert registry.get_sample_value("controller_runtime_reconcile_errors_total", labels) == 1
    assert registry.get_sample_value("controller_runtime_reconcile_time_seconds_count", labels) == 4
    assert registry.get_sample_value("controller_runtime_max_concurrent_reconciles", labels) == 3
    assert registry.get_sample_value("controller_runtime_active_workers", labels) == 0
    assert registry.get_sample_value("workqueue_depth", {"name": "queues"}) == 0


async def test_a_key_that_comes_while_the_last_worker_ends_is_not_left_lying() -> None:
    """A timer of uvloop may fire a moment early, find nothing due and wake the loop for nothing: just before a key
    comes that the worker, which has looked for the last time, does not take any more.
    """
    loop, done, may_end = asyncio.get_running_loop(), list[str](), asyncio.Event()

    async def reconcile(key: str) -> None:
        await may_end.wait()
        done.append(key)

    def wake_for_nothing() -> None:
        loop.call_soon(reconciler.enqueue, "second")
        reconciler._on_timer()

    reconciler, stop = Reconciler("test", reconcile, clock=LoopClock(), workers=1), asyncio.Event()
    running = asyncio.create_task(reconciler.run(stop))
    reconciler.enqueue("first")
    for _ in range(10):
        await asyncio.sleep(0)
    may_end.set()
    loop.call_soon(wake_for_nothing)
    for _ in range(10):
        await asyncio.sleep(0)
    assert (done, reconciler.idle()) == (["first", "second"], True)
    stop.set()
    await running
