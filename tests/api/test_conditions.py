"""Conditions keep their time while they hold, and stay unwritten while nothing changes."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api.conditions import DesiredCondition, merge_conditions

READY = DesiredCondition("Ready", True, "Enough")


def test_a_new_condition_has_the_time_of_its_first_write() -> None:
    assert merge_conditions(None, [READY], "now", with_transition_ids=True) == [
        {
            "type": "Ready",
            "status": "True",
            "reason": "Enough",
            "message": "",
            "lastTransitionTime": "now",
            "transitionID": "1",
        }
    ]


def test_an_unchanged_condition_is_not_written_again() -> None:
    known = merge_conditions(None, [READY], "then")
    assert merge_conditions(known, [READY], "now") is None
    assert known is not None
    del known[0]["message"]
    assert merge_conditions(known, [READY], "now") is None


def test_the_transition_time_changes_only_with_the_status() -> None:
    known = merge_conditions(None, [READY], "then", with_transition_ids=True)
    other = merge_conditions(known, [READY._replace(reason="More")], "now", with_transition_ids=True)
    assert other is not None
    assert (other[0]["reason"], other[0]["lastTransitionTime"], other[0]["transitionID"]) == ("More", "then", "1")
    turned = merge_conditions(other, [READY._replace(is_true=False)], "now", with_transition_ids=True)
    assert turned is not None
    assert (turned[0]["status"], turned[0]["lastTransitionTime"], turned[0]["transitionID"]) == ("False", "now", "2")


def test_transitions_are_numbered_over_all_conditions() -> None:
    known: list[dict[str, Any]] = [{"type": "Other", "status": "True", "transitionID": "7"}, {"transitionID": "x"}]
    found = merge_conditions(known, [READY], "now", with_transition_ids=True)
    assert found is not None
    assert found[:2] == known
    assert found[2]["transitionID"] == "8"


@pytest.mark.parametrize("garbage", ["x", 7, {}, [7, None, "x"]])
def test_garbage_is_replaced(garbage: Any) -> None:
    found = merge_conditions(garbage, [READY], "now")
    assert found is not None
    assert [entry["type"] for entry in found] == ["Ready"]
    assert "transitionID" not in found[0]
