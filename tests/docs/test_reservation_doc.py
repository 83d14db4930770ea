"""docs/reservation.md is right: its messages, variables and options are the program's."""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner

from pykai.api import names
from pykai.cli.reserve import reserve
from pykai.reservation.devices import SOURCES
from pykai.reservation.environment import VARIABLES

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "reservation.md").read_text(encoding="utf-8")
PROGRAM = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src/pykai/reservation").glob("*.py"))


def test_every_source_has_a_row_in_the_order_in_which_they_are_asked() -> None:
    table = DOC.partition("\n## How the GPU is found\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|-]+?) \|", table, re.MULTILINE)
    assert rows == ["What is asked", *(source.name for source in SOURCES)]


def test_every_variable_is_named() -> None:
    assert re.findall(r"`(\w+_VISIBLE_DEVICES)`", DOC) == list(VARIABLES)


def test_annotation_and_options_exist() -> None:
    assert f"`{names.RESERVED_GPU_ANNOTATION}`" in DOC
    text = CliRunner().invoke(reserve, ["--help"]).output
    options = re.findall(r"kai reserve (--[a-z-]+)", DOC)
    assert options
    assert all(option in text for option in options)


def test_messages_are_those_of_the_program() -> None:
    table = DOC.partition("| Message |")[2].partition("\n\n")[0]
    messages = re.findall(r"^\| `(.+?)` \|", table, re.MULTILINE)
    assert len(messages) == 5
    for message in messages:
        for part in re.split(r"NVML|Driver Not Loaded|POD_NAME|\d+|\.\.\.|[:;(),]", message):
            assert part.strip() in PROGRAM, part
