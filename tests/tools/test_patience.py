"""Limits of tests do not run while the processors belong to others."""

from __future__ import annotations

import asyncio

from tests.patience import SchedulableTimeClock, SchedulableTimeLoop


class Machine:
    """A wall clock, and how long we waited for a processor."""

    def __init__(self) -> None:
        self.wall_s = 100.0
        self.waited_s = 5.0

    def pass_by(self, wall_s: float, waited_s: float = 0.0) -> None:
        self.wall_s += wall_s
        self.waited_s += waited_s

    def clock(self) -> SchedulableTimeClock:
        return SchedulableTimeClock(lambda: self.wall_s, lambda: self.waited_s)


def test_time_that_others_have_the_processor_does_not_count() -> None:
    machine = Machine()
    clock = machine.clock()
    began_s = clock.time()
    machine.pass_by(60, waited_s=58)
    assert clock.time() - began_s == 2
    machine.pass_by(3)
    assert clock.time() - began_s == 5


def test_threads_that_wait_at_once_do_not_turn_time_back() -> None:
    machine = Machine()
    clock = machine.clock()
    began_s = clock.time()
    machine.pass_by(1, waited_s=4)
    assert clock.time() == began_s
    machine.pass_by(0.001)
    machine.pass_by(0, waited_s=-2)
    assert clock.time() >= began_s
    machine.pass_by(2)
    assert 2 <= clock.time() - began_s <= 2.002


async def test_the_loop_of_tests_keeps_that_time() -> None:
    assert isinstance(asyncio.get_running_loop(), SchedulableTimeLoop)
