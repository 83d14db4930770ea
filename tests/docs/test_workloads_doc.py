"""docs/workloads.md is right: its families, kinds and examples are those of the table, its commands exist."""

from __future__ import annotations

import re
from pathlib import Path

from pykai.lab.operators.families import FAMILIES, read_families
from pykai.lab.operators.service import FLAGS
from pykai.lab.operators.steps import MOST_PODS
from pykai.services.table import SERVICES

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "workloads.md").read_text(encoding="utf-8")


def rows_of(heading: str) -> list[list[str]]:
    """The cells of the first table under a heading."""
    section = DOC.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("|")]
    return rows[2:]


def test_every_family_has_a_row_with_its_kinds() -> None:
    listed = {row[0].strip("`"): row[1].split(", ") for row in rows_of("Choose kinds")}
    assert listed == {name: [kind.resource.kind for kind in family.kinds] for name, family in FAMILIES.items()}
    for row in rows_of("Choose kinds"):
        assert row[3].startswith("yes") == bool(FAMILIES[row[0].strip("`")].operated)


def test_every_example_is_linked() -> None:
    linked = set(re.findall(r"\]\(\.\./(examples/kinds/\w+\.yaml)\)", DOC))
    assert linked == {f"examples/kinds/{path.name}" for path in (ROOT / "examples" / "kinds").glob("*.yaml")}


def test_every_operated_kind_says_what_it_does() -> None:
    described = {kind for row in rows_of("What the operators do") for kind in row[0].split(", ")}
    assert described == {kind.resource.kind for family in FAMILIES.values() for kind in family.operated}
    assert f"more than {MOST_PODS:,} pods" in DOC


def test_the_commands_are_right() -> None:
    chosen = re.findall(r"kai up .*--kinds ([\w,]+)", DOC)
    assert chosen == ["kubeflow"]
    assert [family.name for family in read_families(chosen[0])] == ["kubeflow"]
    for path in re.findall(r"kubectl apply -f (\S+)", DOC):
        assert (ROOT / path).is_file()
    assert "kai run operators" in DOC
    assert SERVICES["operators"].page == "workloads.md"
    assert {row[0].strip("`-") for row in rows_of("On another cluster")} == {flag.name for flag in FLAGS}
