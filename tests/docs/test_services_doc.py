"""docs/services.md is right: its story runs, its commands and services exist."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from pykai.cli.main import COMMANDS
from pykai.lab.story import parse_story, step_objects
from pykai.services.rights import LIST_WATCH, RoleRule
from pykai.services.table import SERVICES, account_rules, installed_services

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "services.md").read_text(encoding="utf-8")


def test_the_story_runs() -> None:
    (listing,) = re.findall(r"```yaml\n(.*?)```", DOC, re.DOTALL)
    story = parse_story(listing)
    assert [len(step_objects(step)) for step in story.steps] == [1, 2]


def test_every_command_exists() -> None:
    named = set(re.findall(r"^kai (\w+)", DOC, re.MULTILINE))
    assert named
    assert named <= set(COMMANDS)


def rows_of(heading: str, doc: str = DOC) -> dict[str, list[str]]:
    """First name of a row -> its cells, of the first table under a heading."""
    section = doc.partition(f"\n## {heading}\n")[2].partition("\n## ")[0].partition("\n### ")[0]
    table = [line for line in section.splitlines() if line.startswith("| `")]
    return {name: row.split("|")[1:-1] for row in table for name in re.findall(r"`([\w-]+)`", row.split("|")[1])}


def unlisted_services(doc: str) -> list[str]:
    """Services whose row lacks their page or a flag that says where they listen."""
    rows = rows_of("Each part on its own", doc)
    return [
        name
        for name, service in SERVICES.items()
        if name not in rows
        or f"]({service.page})" not in rows[name][1]
        or {port.flag for port in service.ports} != set(re.findall(r"`--([a-z-]+)`", rows[name][2]))
    ]


def unlisted_accounts(doc: str) -> list[str]:
    """Accounts whose row lacks their service or anything that they may change."""
    rows = rows_of("What each service may do", doc)
    return [
        service.account
        for service in installed_services()
        if service.account not in rows
        or rows[service.account][1].strip() != f"`{service.name}`"
        or set(re.findall(r"`([a-z/]+)`", rows[service.account][3])) != changed_resources(service.rules)
    ]


def changed_resources(rules: Iterable[RoleRule]) -> set[str]:
    writing = (rule for rule in rules if {*rule.verbs} - {"get", *LIST_WATCH})
    return {resource for rule in writing for resource in rule.resources} - {"events", "leases"}


def test_every_service_has_a_row_with_its_page_and_where_it_listens() -> None:
    assert unlisted_services(DOC) == []
    assert rows_of("Each part on its own").keys() == SERVICES.keys()


def test_every_account_has_a_row_with_all_it_changes() -> None:
    assert unlisted_accounts(DOC) == []
    assert rows_of("What each service may do").keys() == account_rules().keys()


def test_links_resolve() -> None:
    for page in sorted((ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
