"""Cluster time: the wall's where it runs as fast, its own where not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pykai.kube.clock import Clock

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Wall:
    """A machine's clock that the test sets."""

    def __init__(self) -> None:
        self.shows = NOON

    def __call__(self) -> datetime:
        return self.shows


@pytest.mark.parametrize("jump", [timedelta(hours=3), timedelta(hours=-3)], ids=["suspended", "set back"])
def test_a_cluster_on_real_time_follows_the_clock_of_its_machine(jump: timedelta) -> None:
    wall = Wall()
    clock = Clock(wall=wall)
    before_s = clock.elapsed_s()
    wall.shows += jump
    assert clock.now() == NOON + jump
    # What is measured knows nothing of it.
    assert 0 <= clock.elapsed_s() - before_s < 3600


@pytest.mark.parametrize("clock", [{"speed": 60.0}, {"start": NOON}], ids=["fast", "started at a time"])
def test_a_simulated_cluster_has_a_time_of_its_own(clock: dict[str, object]) -> None:
    wall = Wall()
    simulated = Clock(**clock, wall=wall)  # type: ignore[arg-type]
    wall.shows += timedelta(days=3)
    assert NOON <= simulated.now() < NOON + timedelta(days=1)
