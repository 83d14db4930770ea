"""An event loop whose time passes only when nothing else is to be done, so that minutes take no time.

For tests without sockets, processes and threads: what comes from outside would find the time already gone.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from datetime import UTC, datetime
from typing import Any, TypeVar

from pykai.kube.clock import Clock

T = TypeVar("T")


class _Selector(selectors.SelectSelector):
    def __init__(self, moment_s: float) -> None:
        super().__init__()
        self.passed_s = 0.0
        self._moment_s = moment_s

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise RuntimeError("everybody waits, and nothing will ever happen")
        self.passed_s += max(self._moment_s, timeout)
        return super().select(0)


class FakeTimeLoop(asyncio.SelectorEventLoop):
    """Time stands still during a turn of the loop unless `moment_s` says how long one takes.

    A caller that asks twice for the rest of a time needs that moment: a rest that is too small to be added to the time
    of the loop would never pass.
    """

    def __init__(self, moment_s: float = 0.0) -> None:
        self._passing = _Selector(moment_s)
        super().__init__(self._passing)

    def time(self) -> float:
        return 1000.0 + self._passing.passed_s


class ThreadlessLoop(FakeTimeLoop):
    """Fake time, and no threads: what would go to one is done at once."""

    def __init__(self) -> None:
        super().__init__(moment_s=1e-6)

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """See `asyncio`."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


class LoopClock(Clock):
    """Cluster time that follows the loop's."""

    def elapsed_s(self) -> float:
        return asyncio.get_running_loop().time() - 1000.0

    @classmethod
    def of_2026(cls) -> LoopClock:
        return cls(start=datetime(2026, 1, 1, tzinfo=UTC))


def in_fake_time(story: Coroutine[Any, Any, T]) -> T:
    """Run a story in a loop of its own."""
    with asyncio.Runner(loop_factory=FakeTimeLoop) as runner:
        return runner.run(story)
