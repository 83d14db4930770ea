"""Memory of processes: only the last life of each counts, only what comes after its warm-up, and only growth."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from pykai.dev.soak.memorygrowth import ProcessMemory, memory_by_process

_MINUTE = 60.0


def lives(folder: Path, samples: Iterable[tuple[float, str, int, float]]) -> dict[str, ProcessMemory]:
    path = folder / "memory.jsonl"
    with path.open("w", encoding="utf-8") as out:
        for at_s, part, pid, mib in samples:
            out.write(json.dumps({"at": at_s, "part": part, "pid": pid, "mib": mib}) + "\n")
    return {life.part: life for life in memory_by_process(path)}


@pytest.mark.parametrize(
    ("first", "last", "flat"),
    [
        (40.0, 44.5, True),  # less than 5 MiB
        (40.0, 47.0, False),
        (100.0, 109.0, True),  # less than a tenth
        (100.0, 115.0, False),
        (100.0, 50.0, True),
    ],
)
def test_growth_of_a_tenth_or_of_5_mib_is_none(tmp_path: Path, first: float, last: float, flat: bool) -> None:
    half = 15 * _MINUTE
    found = lives(tmp_path, [(at, "binder", 1, first if at < half else last) for at in range(0, 1800, 10)])
    assert (found["binder"].is_long_enough, found["binder"].is_flat) == (True, flat)


def test_what_a_process_took_at_its_start_is_no_growth(tmp_path: Path) -> None:
    found = lives(tmp_path, [(at, "binder", 1, 10.0 if at < 3 * _MINUTE else 60.0) for at in range(0, 1800, 10)])
    assert found["binder"].is_flat
    assert found["binder"].first_mib == 60.0


def test_the_last_life_counts(tmp_path: Path) -> None:
    killed = 10 * _MINUTE
    samples = [
        (float(at), "queues", 1 if at < killed else 2, 90.0 if at < killed else 50.0) for at in range(0, 1800, 10)
    ]
    (life,) = lives(tmp_path, samples).values()
    assert (life.first_mib, life.last_mib, life.is_flat) == (50.0, 50.0, True)


def test_a_steady_leak_shows_in_the_slope(tmp_path: Path) -> None:
    found = lives(tmp_path, [(float(at), "queues", 1, 50 + at / 60) for at in range(0, 1800, 10)])
    assert found["queues"].mib_per_hour == pytest.approx(60)
    assert not found["queues"].is_flat


def test_a_short_life_is_not_judged(tmp_path: Path) -> None:
    found = lives(tmp_path, [(float(at), "queues", 1, 50.0 + at) for at in range(0, 120, 10)])
    assert not found["queues"].is_long_enough
    assert "too short" in str(found["queues"])
