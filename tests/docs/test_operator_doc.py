"""docs/operator.md is right: flags, conditions, and which flags of the scheduler are reloaded."""

from __future__ import annotations

import re
from pathlib import Path

from pykai.operator.applying.conditions import Progress, conditions
from pykai.operator.options import FLAGS
from pykai.scheduler.config.reloading import DECIDING_NOTHING, RELOADED
from pykai.scheduler.flags import FLAGS as SCHEDULER_FLAGS
from pykai.services.table import SERVICES
from pykai.webhooks.table import TLS_SECRET

DOC = (Path(__file__).parents[2] / "docs" / "operator.md").read_text(encoding="utf-8")


def row(begin: str) -> set[str]:
    """The names in backticks of the second cell of a row, up to a semicolon."""
    (cell,) = re.findall(rf"^\| {re.escape(begin)} \| ([^|;]*)", DOC, re.MULTILINE)
    return set(re.findall(r"`([\w-]+)`", cell))


def test_the_flags_that_are_reloaded_are_listed() -> None:
    """operations:OD-10"""
    every = {flag.name for flag in SCHEDULER_FLAGS}
    assert every >= RELOADED | DECIDING_NOTHING
    assert not RELOADED & DECIDING_NOTHING
    assert row("at once") == RELOADED
    assert row("with the new pod; the old one goes on deciding") == DECIDING_NOTHING
    assert row("with the new pod; the old one stops deciding at once") == every - RELOADED - DECIDING_NOTHING


def test_every_condition_is_listed() -> None:
    made = {each["type"] for each in conditions(Progress(left_out=(), unconnected=""), 1)}
    assert {each for each in made if f"| `{each}`" not in DOC} == set()


def test_every_flag_of_its_own_is_listed() -> None:
    common = {port.flag for port in SERVICES["operator"].ports} | {"qps", "burst", "leader-elect"}
    assert {flag.name for flag in FLAGS if f"`--{flag.name}`" not in DOC} == common - {"leader-elect"}


def test_the_secret_is_named() -> None:
    assert f"`{TLS_SECRET}`" in DOC
