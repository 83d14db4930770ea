"""Every test that docs/reliability.md names exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)


def test_the_tests_that_are_named_exist() -> None:
    missing = [
        f"{path}::{name}"
        for path, name in NAMED
        if not (ROOT / path).exists()
        or not re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert not missing


def test_every_row_of_a_table_of_faults_names_a_test() -> None:
    faults = TEXT.partition("## Faults")[2].partition("\n## ")[0]
    rows = [line for line in faults.splitlines() if line.startswith("| ") and not line.startswith("| Fault |")]
    assert len(rows) > 20
    assert [row for row in rows if not re.search(r"`tests/[\w/]+\.py::\w+`", row)] == []


def test_every_test_of_faults_is_named() -> None:
    """Every injected fault is documented."""
    found = {
        (f"tests/faults/{path.name}", name)
        for path in (ROOT / "tests" / "faults").glob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert {name for _, name in found - set(NAMED)} == {"test_each_call_fails_alone"}
