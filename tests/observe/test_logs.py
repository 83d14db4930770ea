"""Log lines: their fields, and verbosity."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from pykai.observe.logs import level_of, log_context, set_up_logging


@pytest.fixture(autouse=True)
def _undo() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("pykai")
    before = (root.level, ours.level, list(root.handlers))
    yield
    root.setLevel(before[0])
    ours.setLevel(before[1])
    for handler in [each for each in root.handlers if each not in before[2]]:
        root.removeHandler(handler)


def test_a_line_has_time_place_and_cycle() -> None:
    out = io.StringIO()
    set_up_logging(3, stream=out)
    with log_context(session="000007"):
        logging.getLogger("pykai.scheduler").info("hello %s", "world")
    logging.getLogger("pykai.scheduler").debug("not asked for")
    (line,) = out.getvalue().splitlines()
    assert line.endswith("INFO pykai.scheduler: hello world  session=000007")


def test_json_lines_carry_the_same_facts() -> None:
    out = io.StringIO()
    set_up_logging(4, as_json=True, stream=out)
    with log_context(session="1", queue="sprachen-größe"), log_context(action="allocate"):
        try:
            raise ValueError("broken")
        except ValueError:
            logging.getLogger("pykai.x").exception("failed")
    # People search the lines for what they know by name.
    assert "sprachen-größe" in out.getvalue()
    entry = json.loads(out.getvalue())
    assert (entry["level"], entry["message"], entry["session"], entry["action"]) == ("error", "failed", "1", "allocate")
    assert "ValueError: broken" in entry["exception"]


def test_setting_up_twice_writes_each_line_once() -> None:
    out = io.StringIO()
    set_up_logging(stream=io.StringIO())
    set_up_logging(stream=out)
    logging.getLogger("pykai").warning("once")
    assert len(out.getvalue().splitlines()) == 1


def test_other_libraries_log_warnings_only() -> None:
    out = io.StringIO()
    logging.getLogger().setLevel(logging.DEBUG)
    set_up_logging(5, stream=out)
    logging.getLogger("aiohttp").info("chatter")
    assert not out.getvalue()


@pytest.mark.parametrize(("verbosity", "level"), [(0, "WARNING"), (3, "INFO"), (4, "DEBUG"), (9, "DEBUG")])
def test_verbosity(verbosity: int, level: str) -> None:
    assert logging.getLevelName(level_of(verbosity)) == level
