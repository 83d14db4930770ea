"""The records of a plan: what they are without further fields, and that they are immutable."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pykai.core.report import decisions
from pykai.core.report.decisions import Bind, Evict, NoPlace, OverBudget, StaleGang, StoppedSearch

RECORDS = [each for each in vars(decisions).values() if isinstance(each, type) and issubclass(each, msgspec.Struct)]


@pytest.mark.parametrize("record", [each for each in RECORDS if each is not msgspec.Struct])
def test_a_record_cannot_be_changed(record: type[msgspec.Struct]) -> None:
    """Plans are kept, compared and shared between cycles."""
    assert record.__struct_config__.frozen


@pytest.mark.parametrize(
    ("record", "field", "value"),
    [
        (Bind, "gpu_count", 0),
        (Evict, "unbound", False),
        (NoPlace, "unresolvable", False),
        (OverBudget, "others", 0),
        (StaleGang, "evicted", False),
        (StaleGang, "leaving", False),
    ],
)
def test_a_field_that_is_left_out_says_the_usual(record: Any, field: str, value: object) -> None:
    defaults = {each.name: each.default for each in msgspec.structs.fields(record)}
    assert defaults[field] is value


def test_searches_that_stopped_at_one_place_are_equal() -> None:
    stopped = StoppedSearch("reclaim", "ns/job", "deadline_exhausted", 7)
    assert stopped == StoppedSearch("reclaim", "ns/job", "deadline_exhausted", 7)
    assert stopped != StoppedSearch("reclaim", "ns/job", "deadline_exhausted", 8)
    assert stopped != str(stopped)
