"""Timeouts of tests: never by the wall clock while their own work goes on.

The event loop of tests has a time of its own (`install`, from conftest.py): the wall's, less all time in which a thread
of this process wanted to run and other programs had the processors.  Every limit of asyncio follows it, so "10 seconds"
means ten seconds in which the test could work or had nothing to do, on an idle machine and on a busy one.  Limits stay
short nevertheless: failures show early.

What no event loop measures (a program that is started and awaited) gets `PROGRAM_S`; a test that hangs in spite of all
this is ended by `timeout` in pyproject.toml, after an hour.

Subtle: Linux counts the time that a thread waited for a processor (`/proc/<pid>/task/<tid>/schedstat`, second number).
Elsewhere the time is the wall's.  Counters are read at most every few milliseconds, so time may have to stand still
until it is right again; it never goes back.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

#: wall seconds for a program that the test starts and awaits
PROGRAM_S = 1800.0
#: between two looks at the counters
_LOOK_S = 0.005


def waited_s(process: int | str = "self") -> float:
    """Seconds that the threads of a process have waited for a processor; those that ended do not count."""
    total_ns, threads = 0, f"/proc/{process}/task"
    try:
        for thread in os.listdir(threads):
            with open(f"{threads}/{thread}/schedstat", "rb", buffering=0) as counters:
                total_ns += int(counters.read(64).split()[1])
    except (OSError, IndexError, ValueError):
        # No such counters, or a thread that ended just now.
        return 0.0
    return total_ns / 1e9


class SchedulableTimeClock:
    """A clock that stands still while this process is kept from running."""

    def __init__(self, wall: Callable[[], float] = time.monotonic, waited: Callable[[], float] = waited_s) -> None:
        self._wall, self._waited = wall, waited
        self._looked_s = wall()
        self._count_s = waited()
        self._lost_s = 0.0
        self._last_s = self._looked_s

    def time(self) -> float:
        """Seconds, never less than before."""
        now_s = self._wall()
        if now_s - self._looked_s >= _LOOK_S:
            count_s = self._waited()
            # Several threads may have waited at once.
            self._lost_s += min(max(0.0, count_s - self._count_s), now_s - self._looked_s)
            self._looked_s, self._count_s = now_s, count_s
        self._last_s = max(self._last_s, now_s - self._lost_s)
        return self._last_s


class SchedulableTimeLoop(asyncio.SelectorEventLoop):
    """An event loop on that clock."""

    def __init__(self) -> None:
        self._clock = SchedulableTimeClock()
        super().__init__()

    def time(self) -> float:
        """See `asyncio`."""
        return self._clock.time()


class _Policy(asyncio.DefaultEventLoopPolicy):
    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return SchedulableTimeLoop()


def install() -> None:
    """Every event loop that is made from now on is unhurried."""
    asyncio.set_event_loop_policy(_Policy())
