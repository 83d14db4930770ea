"""Every call of every service fails, in every way, and the story comes to its end with no promise broken.

One run is one service and one fault: the first request of each of its calls fails that way, those included that it only
makes because another one failed.  Every call of `calls.txt` is so spoilt once for each fault.  With `KAI_FAULTS=each`
(`make soak`) each call fails alone, too, and as often as to outlast the retries of the client.
"""

from __future__ import annotations

import os

import pytest

from pykai.kube.client import ATTEMPTS
from tests.faults.calls import Call, read_calls
from tests.faults.story import SERVICES, tell
from tests.faults.wire import LOST, LOST_ANSWER, SILENCE, Fault, Outcome, refused

FAULTS: dict[str, Outcome] = {
    "409": refused(409),
    "410": refused(410),
    "422": refused(422),
    "429": refused(429),
    "503": refused(503),
    "lost": LOST,
    "answer-lost": LOST_ANSWER,
    "silence": SILENCE,
}
CALLS = read_calls()
EACH = os.environ.get("KAI_FAULTS") == "each"


def first_of(service: str, outcome: Outcome, times: int = 1) -> Fault:
    """The first requests of each call of a service fail."""
    return lambda call, number: outcome if call.service == service and number < times else None


def only(spoilt: Call, outcome: Outcome, times: int) -> Fault:
    """The first requests of one call fail."""
    return lambda call, number: outcome if call == spoilt and number < times else None


def test_the_story_makes_the_calls_that_are_listed() -> None:
    """A new call needs its line in calls.txt (`python -m tests.faults.calls`), and so gets its fault cases."""
    told = tell()
    assert told.problems() == []
    assert not told.restarts
    assert sorted(told.calls) == sorted(CALLS)


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("fault", FAULTS)
def test_every_call_of_a_service_fails_once(service: str, fault: str) -> None:
    told = tell(fault=first_of(service, FAULTS[fault]))
    assert told.problems() == []
    missed = [call for call in CALLS if call.service == service and not told.hit[call]]
    assert not missed
    # A renewal that hangs costs the lease, nothing else costs a process.
    assert not told.restarts or fault == "silence"


@pytest.mark.skipif(not EACH, reason="takes many minutes; KAI_FAULTS=each")
@pytest.mark.parametrize("times", [3, ATTEMPTS + 1])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_each_call_fails_alone(call: Call, fault: str, times: int) -> None:
    told = tell(fault=only(call, FAULTS[fault], times))
    assert told.problems() == []
    assert told.hit[call]
