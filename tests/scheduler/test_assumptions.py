"""The state machine of assumptions: its table is complete, and an event that it does not know is visible."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from pykai.scheduler.intake.assumptions import (
    FINAL_STATES,
    TRANSITIONS,
    Assumption,
    AssumptionEvent,
    AssumptionKind,
    AssumptionState,
    IllegalTransition,
    next_state,
)

DOC = (Path(__file__).parents[2] / "docs" / "scheduler.md").read_text(encoding="utf-8")
#: in which an assumption begins
FIRST = {
    AssumptionKind.BIND: {AssumptionState.DECIDED},
    AssumptionKind.WITHDRAWAL: {AssumptionState.DECIDED, AssumptionState.IN_DOUBT},
    AssumptionKind.EVICTION: {AssumptionState.DECIDED},
    AssumptionKind.ADMISSION: {AssumptionState.DECIDED},
    AssumptionKind.PATCH: {AssumptionState.DECIDED},
}


class ABind(Assumption):
    kind = AssumptionKind.BIND


@pytest.mark.parametrize("kind", AssumptionKind)
def test_every_state_can_be_reached_and_left_until_the_last(kind: AssumptionKind) -> None:
    reached = set(FIRST[kind])
    while more := {to for (of, state, _), to in TRANSITIONS.items() if of is kind and state in reached} - reached:
        reached |= more
    left = {state for of, state, _ in TRANSITIONS if of is kind}
    assert left == reached - FINAL_STATES
    assert reached >= FINAL_STATES


@pytest.mark.parametrize("kind", AssumptionKind)
def test_an_assumption_in_any_state_ends_with_its_object(kind: AssumptionKind) -> None:
    for state in {state for of, state, _ in TRANSITIONS if of is kind}:
        assert next_state(kind, state, AssumptionEvent.OBJECT_GONE) in FINAL_STATES


def test_a_withdrawal_in_doubt_is_not_ended_by_the_end_of_its_request() -> None:
    doubt = AssumptionState.IN_DOUBT
    assert next_state(AssumptionKind.WITHDRAWAL, doubt, AssumptionEvent.OBSERVED) is doubt


@pytest.mark.illegal_transitions
def test_an_event_without_a_transition_changes_nothing_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(IllegalTransition, match="bind: 'accepted' does not happen when written"):
        next_state(AssumptionKind.BIND, AssumptionState.WRITTEN, AssumptionEvent.ACCEPTED)
    bind = ABind("default/p", AssumptionState.WRITTEN)
    with caplog.at_level(logging.ERROR):
        assert not bind.advance(AssumptionEvent.ACCEPTED)
    assert bind.state is AssumptionState.WRITTEN
    assert "default/p" in caplog.text


def test_the_docs_show_the_table() -> None:
    section = DOC.partition("### What is assumed")[2].partition("\n## ")[0]
    shown = {}
    for kind, states, events, to in re.findall(
        r"^\| (\w+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", section, re.MULTILINE
    ):
        if kind in {each.value for each in AssumptionKind}:
            for state in states.split(", "):
                for event in events.split(", "):
                    key = (AssumptionKind(kind), AssumptionState(state), AssumptionEvent(event))
                    assert key not in shown
                    shown[key] = AssumptionState(to)
    assert shown == dict(TRANSITIONS)
