"""The state machine of a BindRequest: gpu:BR-6, BR-7, B-4, T-60, T-62."""

from __future__ import annotations

import pytest

from pykai.api.decode import decode_as
from pykai.api.scheduling import BindRequest
from pykai.binder.lifecycle import failure_outcome, is_settled, success_outcome


def a_request(phase: str = "", attempts: int = 0, limit: int | None = None) -> BindRequest:
    spec = {} if limit is None else {"backoffLimit": limit}
    return decode_as(BindRequest, {"spec": spec, "status": {"phase": phase, "failedAttempts": attempts}})


@pytest.mark.parametrize(
    ("limit", "attempts", "pause_s"),
    [(None, 0, None), (1, 0, 1.0), (2, 2, None), (5, 3, 8.0), (-1, 0, None), (1000, 500, 1024.0)],
)
def test_t60_t62_a_failure_is_counted_and_tried_again_while_the_limit_allows(
    limit: int | None, attempts: int, pause_s: float | None
) -> None:
    outcome = failure_outcome(a_request(attempts=attempts, limit=limit), "why")
    assert outcome.status == {"phase": "Failed", "reason": "why", "failedAttempts": attempts + 1}
    assert outcome.retry_after_s == pause_s


def test_success_clears_the_reason() -> None:
    outcome = success_outcome(a_request("Failed", 1, 3))
    assert outcome.status == {"phase": "Succeeded", "reason": None}
    assert outcome.retry_after_s is None


@pytest.mark.parametrize(
    ("phase", "attempts", "limit", "over"),
    [
        ("", 0, None, False),
        ("Pending", 0, None, False),
        ("Succeeded", 0, None, True),
        ("Failed", 1, None, True),
        ("Failed", 2, 5, False),
        ("Failed", 5, 5, True),
    ],
)
def test_b4_what_is_settled(phase: str, attempts: int, limit: int | None, over: bool) -> None:
    assert is_settled(a_request(phase, attempts, limit)) is over
