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


def test_all_stands_for_every_service_that_needs_nothing_but_a_cluster() -> None:
    assert set(ALL) == set(PARTS) - {"machines", "admission"}


@pytest.mark.parametrize("name", PARTS)
def test_every_service_says_which_flags_it_knows(name: str) -> None:
    flags = PARTS[name].flags()
    assert not PARTS[name].address or PARTS[name].address in flags
    assert not PARTS[name].lease or "leader-elect" in flags
