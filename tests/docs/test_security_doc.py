"""docs/security.md is right: it lists every label, annotation and policy, and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pykai.api import guardedfields, names
from tests.attack.fields import listing

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
BELIEVED = DOC[DOC.index("## Which writers are trusted") : DOC.index("## Admission policies")]
POLICIES = DOC[DOC.index("## Admission policies") : DOC.index("## Defences")]
KEYS = {
    constant: str(value)
    for constant, value in vars(names).items()
    if re.search(r"_(LABEL|ANNOTATION)(_PREFIX)?$", constant) and not constant.startswith("EVENT_")
}


def rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("| ")]


def named(row: str) -> set[str]:
    """The names in the first cell of a row; `x/*` means the prefix `x/`."""
    return {name.removesuffix("*") for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])}


@pytest.mark.parametrize("constant", sorted(KEYS))
def test_every_label_and_annotation_has_a_row(constant: str) -> None:
    assert any(KEYS[constant] in named(row) for row in rows(BELIEVED)), (
        f"names.{constant} ({KEYS[constant]}) is missing in the tables of docs/security.md: who writes it, who reads"
        " it, and what stops a tenant?"
    )


def test_a_row_is_marked_guarded_where_a_policy_guards() -> None:
    fields = [field for policy in guardedfields.field_policies() for guard in policy.guards for field in guard.fields]
    keys = {field.key for field in fields if field.key}
    claimed = {name for row in rows(BELIEVED) if "| guarded" in row for name in named(row)}
    assert keys <= claimed
    assert claimed - keys == {"selected-node", names.RESERVATION_APP}


def test_every_policy_and_every_guarded_key_is_listed() -> None:
    for policy in guardedfields.field_policies():
        assert f"| `{policy.name}` |" in POLICIES
        for guard in policy.guards:
            for right in (*guard.creating, *guard.updating):
                assert f"{right.verb} {right.resource}" in POLICIES
    assert f"| `{guardedfields.closed_namespaces().name}` |" in POLICIES
    for namespace in guardedfields.closed_namespaces().namespaces:
        assert f"`{namespace}`" in POLICIES


def test_the_tests_that_are_named_exist() -> None:
    for file, test in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", DOC):
        assert (ROOT / file).exists(), file
        assert not test or f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), (file, test)


def test_the_attempts_by_field_are_listed() -> None:
    part = DOC[DOC.index("### Every field, one by one") : DOC.index("### ConfigMaps")]
    assert [line for line in part.splitlines() if line.startswith("|")] == listing(), (
        "write the lines of tests.attack.fields.listing() to docs/security.md"
    )
