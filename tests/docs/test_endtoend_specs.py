"""tests/e2e/specs.toml: every row of operations:17 is there once, with tests that exist or a reason."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from functools import cache
from typing import Any

import pytest

from tools.spec import ROOT

_ROW = re.compile(r"^\| (?!Spec \||Suite \(specs\) \||---)(.+?) \| (.+?) \|$", re.MULTILINE)


@cache
def specs() -> tuple[dict[str, Any], ...]:
    """Our table."""
    return tuple(tomllib.loads((ROOT / "tests" / "e2e" / "specs.toml").read_text(encoding="utf-8"))["spec"])


def rows() -> list[tuple[str, str]]:
    """Suite and first cell of each row of the specification."""
    text = (ROOT / "docs" / "spec" / "operations.md").read_text(encoding="utf-8")
    part = text.split('<a id="17">')[1].split("\n## ")[0]
    found = []
    for section in part.split("\n### ")[1:]:
        suite = section.split("\n")[0].split(" (")[0]
        found += [(suite, row) for row, _ in _ROW.findall(section)]
    return found


def test_every_row_of_the_specification_is_in_the_table_once() -> None:
    assert Counter((each["suite"], each["row"]) for each in specs()) == Counter(rows())


@pytest.mark.parametrize("spec", specs(), ids=lambda each: f"{each['suite']}: {each['row'][:40]}")
def test_a_row_has_tests_that_exist_or_a_reason(spec: dict[str, Any]) -> None:
    assert ("tests" in spec) != ("left_out" in spec)
    assert "tests" in spec or "differs" not in spec
    assert spec.keys() <= {"suite", "row", "tests", "left_out", "differs"}
    for test in spec.get("tests", ()):
        path, _, name = test.partition("::")
        assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), test
    for folder in re.findall(r"tests/[\w./]*\w", spec.get("left_out", "")):
        assert (ROOT / folder).exists(), folder
