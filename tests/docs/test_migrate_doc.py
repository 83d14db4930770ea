"""docs/migrate.md is right: its commands, flags, findings and outcomes exist.  tests/migration has its table."""

from __future__ import annotations

import re
from pathlib import Path

from pykai.cli.main import COMMANDS
from pykai.kube.flags import COMMON_FLAGS
from pykai.scheduler.shadowreport import Outcome
from pykai.services.table import SERVICES

DOCS = Path(__file__).parents[2] / "docs"
DOC = (DOCS / "migrate.md").read_text(encoding="utf-8")
SCHEDULER = (DOCS / "scheduler.md").read_text(encoding="utf-8")


def test_every_command_exists() -> None:
    assert set(re.findall(r"(?:^|`)kai (\w+)", DOC, re.MULTILINE)) <= set(COMMANDS)


def test_every_flag_of_the_scheduler_exists() -> None:
    known = {flag.name for flag in (*SERVICES["scheduler"].flags(), *COMMON_FLAGS)} | {"kubeconfig"}
    (block,) = re.findall(r"kai run scheduler --shadow.*?(?=^kai shadow)", DOC, re.DOTALL | re.MULTILINE)
    assert set(re.findall(r"--([a-z-]+)", block)) <= known
    assert {"partition-label-value", "fast-bind"} <= known


def test_every_service_that_is_started_exists() -> None:
    steps = re.findall(r"^\| \d \|[^|]*\| ([^|]*)", DOC, re.MULTILINE)
    assert {name for step in steps for name in re.findall(r"`(\w+)`", step)} <= set(SERVICES)


def test_every_finding_is_one_of_the_doctor() -> None:
    codes = set(re.findall(r"^\| `([a-z-]+)` \|", (DOCS / "doctor.md").read_text(encoding="utf-8"), re.MULTILINE))
    prose = DOC.partition("\n## Feature by feature\n")[0]
    named = set(re.findall(r"`((?:two|pool|leftover|webhook|definition)-[a-z-]+)`", prose))
    assert len(named) > 4
    assert named <= codes


def test_every_outcome_of_a_shadow_has_its_row() -> None:
    table = SCHEDULER.partition("### How far the two agree")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `([a-z ]+)` \|", table, re.MULTILINE)) == {str(each) for each in Outcome}
