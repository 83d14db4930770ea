"""The delay before an attempt is repeated."""

from __future__ import annotations

from pykai.kube.backoff import Backoff


def test_the_delay_doubles_up_to_the_limit() -> None:
    backoff = Backoff(0.5, 3.0)
    assert [backoff.delay_s(failures) for failures in range(1, 6)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_without_a_failure_there_is_no_delay() -> None:
    assert [Backoff(0.5, 3.0).delay_s(failures) for failures in (0, -1)] == [0.0, 0.0]


def test_any_row_of_failures_is_counted() -> None:
    assert Backoff(0.5, 3.0).delay_s(10_000) == 3.0
