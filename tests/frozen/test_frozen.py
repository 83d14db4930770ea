"""Names that others rely on are frozen: each list of this folder equals what the running program has."""

from __future__ import annotations

import pytest

from tests.frozen.topics import FOLDER, TOPICS, check, difference


@pytest.mark.parametrize("topic", TOPICS)
def test_the_program_has_what_is_frozen(topic: str) -> None:
    text = check(topic)
    assert not text, text


def test_every_list_is_compared() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(TOPICS)


def test_a_name_that_is_gone_fails() -> None:
    text = difference("flags", ["a", "b"], ["a"])
    assert "-b" in text.splitlines()
    assert "give them back" in text
    assert "--write" not in text


def test_a_new_name_fails_until_it_is_frozen() -> None:
    text = difference("flags", ["a"], ["a", "b"])
    assert "+b" in text.splitlines()
    assert "python -m tests.frozen --write flags" in text
    assert "give them back" not in text


def test_a_changed_name_is_both() -> None:
    text = difference("flags", ["--seed default 1"], ["--seed default 2"])
    assert "give them back" in text
    assert "--write" in text


def test_equal_lists_differ_in_nothing() -> None:
    assert difference("flags", ["a"], ["a"]) == ""
