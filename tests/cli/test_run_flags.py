"""How `kai run` reads the flags of services."""

from __future__ import annotations

import click
import pytest

from pykai.cli.run import ALL, PARTS, parse_given


def test_flags_are_read_in_every_spelling_go_knows() -> None:
    given = parse_given(["--schedule-period", "1s", "-v=5", "--leader-elect", "--max-consolidation-preemptees", "-1"])
    assert given == {
        "schedule-period": "1s",
        "v": "5",
        "leader-elect": "true",
        "max-consolidation-preemptees": "-1",
    }


def test_a_switch_at_the_end_is_on() -> None:
    assert parse_given(["--leader-elect"]) == {"leader-elect": "true"}


def test_a_value_without_a_flag_is_an_error() -> None:
    with pytest.raises(click.UsageError, match="'stray' is neither"):
        parse_given(["--a", "1", "stray"])


def test_all_stands_for_every_service_but_the_simulated_machines() -> None:
    assert set(ALL) == set(PARTS) - {"machines"}
