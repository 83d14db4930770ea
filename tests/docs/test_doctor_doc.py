"""docs/doctor.md lists every finding with its severities, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from pykai.doctor.findings import Severity
from tests.doctor.test_checks import BROKEN

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
#: found by tests that are not rows of the table
OTHERS = {
    "nothing-deployed": {Severity.INFO},
    "queue-without-quota": {Severity.INFO},
    "not-checked": {Severity.WARNING},
}
#: partly available pods, and a runtime class that is needed
MORE = {"pods-unavailable": {Severity.WARNING}, "runtime-class-missing": {Severity.ERROR}}


def listed() -> dict[str, set[str]]:
    section = DOC.partition("\n## What it finds\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([a-z-]+)` \| ([a-z, ]+) \|", section, re.MULTILINE)
    return {code: set(severities.split(", ")) for code, severities in rows}


def test_every_finding_has_its_row() -> None:
    found: dict[str, set[Severity]] = {code: set(severities) for code, severities in (OTHERS | MORE).items()}
    for code, severity, *_ in BROKEN:
        found.setdefault(code, set()).add(severity)
    # A webhook without pods that may fail is the same branch as one without a Service.
    found["webhook-without-endpoints"].add(Severity.WARNING)
    assert listed() == {code: {each.label for each in severities} for code, severities in found.items()}


def test_every_code_of_the_program_is_listed() -> None:
    source = "".join(path.read_text() for path in (ROOT / "src" / "pykai" / "doctor").glob("*.py"))
    codes = set(re.findall(r'"([a-z]+(?:-[a-z]+)+)"', source)) & set(re.findall(r"\b[a-z]+(?:-[a-z]+)+\b", source))
    assert set(listed()) <= codes
    raised = set(re.findall(r'Finding\(\s*(?:Severity\.\w+|severity),\s*"([a-z-]+)"', source))
    assert raised <= set(listed())
    assert len(raised) > 30
