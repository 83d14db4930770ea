"""docs/services.md says what is true: its story can be told, its commands and services exist."""

from __future__ import annotations

import re
from pathlib import Path

from pykai.cli.main import COMMANDS
from pykai.cli.run import RUNNABLE_SERVICES
from pykai.lab.story import parse_story, step_objects
from pykai.operator.roles import LIST_WATCH, ROLES

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "services.md").read_text(encoding="utf-8")


def test_the_story_can_be_told() -> None:
    (listing,) = re.findall(r"```yaml\n(.*?)```", DOC, re.DOTALL)
    story = parse_story(listing)
    assert [len(step_objects(step)) for step in story.steps] == [1, 2]


def test_every_command_exists() -> None:
    named = set(re.findall(r"^kai (\w+)", DOC, re.MULTILINE))
    assert named
    assert named <= set(COMMANDS)


def test_every_service_has_a_row() -> None:
    rows = "\n".join(line for line in DOC.splitlines() if line.startswith("| `"))
    for name, part in RUNNABLE_SERVICES.items():
        assert f"`{name}`" in rows
        assert all(f"`--{flag}`" in rows for flag in part.addresses)


def test_every_account_has_a_row_with_all_it_changes() -> None:
    section = DOC.partition("## What each service may do")[2].partition("\n## ")[0]
    rows = {line.split("`")[1]: line.split("|")[-2] for line in section.splitlines() if line.startswith("| `")}
    assert rows.keys() == ROLES.keys()
    for service, table in ROLES.items():
        changed = {
            resource for rule in table if {*rule.verbs} - {"get", *LIST_WATCH} for resource in rule.resources
        } - {
            "events",
            "leases",
        }
        assert set(re.findall(r"`([a-z/]+)`", rows[service])) == changed


def test_links_lead_somewhere() -> None:
    for page in sorted((ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
