"""Every call of every service fails, in every way, and the story ends with no guarantee broken.

One run is one service and one fault: the first request of each of its calls fails that way, those included that it only
makes because another one failed.  Every call of `calls.txt` is so spoilt once for each fault.  With `KAI_FAULTS=each`
(`make faults`) each call fails alone, too, and as often as to outlast the retries of the client.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pykai.kube.client import MAX_ATTEMPTS
from pykai.podgrouper.kinds.table import read_kinds, watched_kinds
from pykai.services.table import account_rules
from tests.faults.calls import RECOVERY, Call, read_calls
from tests.faults.story import ACCOUNTS, SERVICES, Told, tell
from tests.faults.wire import LOST, LOST_ANSWER, SILENCE, Fault, FaultOutcome, refused


def resource_of(group: str, resource: str) -> str:
    """`pods/status`, `podgroups.scheduling.run.ai/status`."""
    plural, slash, sub = resource.partition("/")
    return f"{plural}.{group}{slash}{sub}" if group else resource


FAULTS: dict[str, FaultOutcome] = {
    "409": refused(409),
    "410": refused(410),
    "422": refused(422),
    "429": refused(429),
    "503": refused(503),
    "lost": LOST,
    "answer-lost": LOST_ANSWER,
    "silence": SILENCE,
}
#: those of them that show something when a bind is undone
UNDOING = ("409", "422", "503", "answer-lost")
CALLS = read_calls()
RECOVERED = read_calls(RECOVERY)
#: calls that the story does not make, and where they fail instead
ELSEWHERE: dict[str, str] = {
    "scheduler patch pods": "tests/services/scheduler/test_writing.py",
    "scheduler watch noderesourcetopologies.topology.node.k8s.io": "tests/kube/test_follower.py",
    "binder get nodes": "tests/services/binder/test_bind.py",
    "binder patch configmaps": "tests/services/binder/test_sharing.py",
    "binder update configmaps": "tests/services/binder/test_sharing.py",
    "binder delete bindrequests.scheduling.run.ai": "tests/services/binder/test_bind.py",
    "podgrouper get pods": "tests/services/podgrouper/test_service.py",
    "podgrouper list namespaces": "tests/services/podgrouper/test_service.py",
    "podgrouper watch namespaces": "tests/services/podgrouper/test_service.py",
    "podgrouper list configmaps": "tests/services/podgrouper/test_service.py",
    "podgrouper watch configmaps": "tests/services/podgrouper/test_service.py",
    "podgrouper watch kartas.run.ai": "tests/services/podgrouper/test_karta.py",
    "podgrouper list workloads.scheduling.k8s.io": "tests/services/podgrouper/test_gangs.py",
    "podgrouper watch workloads.scheduling.k8s.io": "tests/services/podgrouper/test_gangs.py",
    "podgrouper patch events": "tests/kube/test_events.py",
    "podgroups patch events": "tests/kube/test_events.py",
    "queues create events": "tests/kube/test_events.py",
    "queues patch events": "tests/kube/test_events.py",
    # Owners of pods, of any kind.
    **{
        f"podgrouper get {resource_of(each.group, each.plural)}": "tests/services/podgrouper/test_owners.py"
        for each in (kind.resource for kind in (*read_kinds(), *watched_kinds()))
    },
}
EACH = os.environ.get("KAI_FAULTS") == "each"


def first_of(service: str, outcome: FaultOutcome, times: int = 1) -> Fault:
    """The first requests of each call of a service fail."""
    return lambda call, number: outcome if call.service == service and number < times else None


def only(spoilt: Call, outcome: FaultOutcome, times: int) -> Fault:
    """The first requests of one call fail."""
    return lambda call, number: outcome if call == spoilt and number < times else None


def undoing(outcome: FaultOutcome) -> Fault:
    """The server refuses the first binds of the binder, and each step of undoing what was prepared fails once."""
    bind = Call("binder", "create", "pods/binding")
    undo = {call for call in RECOVERED if call.service == "binder"} | {
        Call("binder", "delete", "pods"),
        Call("binder", "patch", "pods"),
        Call("binder", "patch", "bindrequests.scheduling.run.ai/status"),
        Call("binder", "update", "resourceclaims.resource.k8s.io/status"),
    }

    def fault(call: Call, number: int) -> FaultOutcome | None:
        if call == bind:
            return refused(422) if number < 8 else None
        return outcome if call in undo and number == 0 else None

    return fault


def unlisted(told: Told) -> set[str]:
    """Calls of a run that are in no list."""
    return {str(call) for call in told.calls.keys() - {*CALLS, *RECOVERED}} - ELSEWHERE.keys()


def cases() -> list[Fault]:
    """All faults of `make test`."""
    found = [first_of(service, outcome) for service in SERVICES for outcome in FAULTS.values()]
    return [*found, *(undoing(FAULTS[fault]) for fault in UNDOING)]


def test_the_story_makes_the_calls_that_are_listed() -> None:
    """A new call needs its line in calls.txt (`python -m tests.faults`), and so gets its fault cases."""
    told = tell()
    assert told.problems() == []
    assert not told.restarts
    assert not unlisted(told)
    assert not set(CALLS) - set(told.calls)


def test_every_right_of_a_service_has_a_call_that_fails() -> None:
    """A right that no call of the story uses is one whose failures no test has seen."""
    listed = {*CALLS, *RECOVERED}
    rights = {
        Call(service, verb, resource_of(rule.group, resource))
        for service, account in ACCOUNTS.items()
        for rule in account_rules()[account]
        for resource in rule.resources
        for verb in rule.verbs
    }
    assert {str(right) for right in rights - listed} <= ELSEWHERE.keys()
    assert all(Path(path).exists() for path in ELSEWHERE.values())


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("fault", FAULTS)
def test_every_call_of_a_service_fails_once(service: str, fault: str) -> None:
    told = tell(fault=first_of(service, FAULTS[fault]))
    assert told.problems() == []
    missed = [call for call in CALLS if call.service == service and not told.hit[call]]
    assert not missed
    assert not unlisted(told)
    # A renewal that hangs costs the lease, nothing else costs a process.
    assert not told.restarts or fault == "silence"


@pytest.mark.parametrize("fault", UNDOING)
def test_every_step_of_undoing_a_bind_fails_once(fault: str) -> None:
    told = tell(fault=undoing(FAULTS[fault]))
    assert told.problems() == []
    assert not unlisted(told)
    assert told.hit[Call("binder", "create", "pods/binding")] == 8


ALONE = [(call, fault, times) for call in CALLS for fault in FAULTS for times in (3, MAX_ATTEMPTS + 1)] if EACH else []


@pytest.mark.parametrize(("call", "fault", "times"), ALONE, ids=str)
def test_each_call_fails_alone(call: Call, fault: str, times: int) -> None:
    told = tell(fault=only(call, FAULTS[fault], times))
    assert told.problems() == []
    assert told.hit[call]
