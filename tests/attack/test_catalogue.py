"""Which attacks `--only` chooses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.attack.catalogue import ATTACKS, chosen_attacks

CI = Path(__file__).parents[2] / ".ci" / "run"


@pytest.mark.parametrize(
    ("only", "points"),
    [
        (["1"], ["1a", "1b", "1c", "1d"]),
        (["10"], ["10"]),
        (["3b", "2"], ["2", "3b"]),
        ([], [each.point for each in ATTACKS]),
    ],
)
def test_a_number_chooses_its_attacks_and_no_longer_number(only: list[str], points: list[str]) -> None:
    assert [each.point for each in chosen_attacks(only)] == points


@pytest.mark.parametrize("point", ["11", "1e", "a"])
def test_a_point_that_there_is_not_is_an_error(point: str) -> None:
    with pytest.raises(SystemExit, match=f"there is no attack {point}"):
        chosen_attacks(["1", point])


def test_what_a_change_must_pass_leaves_out_what_it_says() -> None:
    """The crowds, whose outcome is a time, and the table of fields, which runs with the tests."""
    only = re.search(r"--only ([\d ]+)", CI.read_text(encoding="utf-8"))
    assert only is not None
    chosen = {each.point for each in chosen_attacks(only[1].split())}
    left_out = [each.point for each in ATTACKS if each.point not in chosen]
    assert left_out == ["7a", "7b", "7c", "7d", "7e", "7f", "10"]
