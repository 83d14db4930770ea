"""docs/profiles.md is right: every profile is listed, and the ready-made file loads."""

from __future__ import annotations

import re
from pathlib import Path

from pykai.core.plugins import DEFAULT_PLUGINS, PROFILES
from pykai.scheduler.config.configuration import default_configuration, load_configuration

DOCS = Path(__file__).parents[2] / "docs"
DOC = (DOCS / "profiles.md").read_text(encoding="utf-8")


def test_every_profile_is_listed_and_no_other() -> None:
    first_table = DOC.split("|---|---|---|\n")[1].split("\n\n")[0]
    assert re.findall(r"^\| `(\w+)`", first_table, re.MULTILINE) == list(PROFILES)


def test_what_a_profile_adds_is_named() -> None:
    for name, plugins in PROFILES.items():
        added = [plugin for plugin, _ in plugins if plugin not in dict(DEFAULT_PLUGINS)]
        row = next(line for line in DOC.splitlines() if line.startswith(f"| `{name}`"))
        assert re.findall(r"`(\w+)`", row)[1:] == added


def test_the_ready_made_file_is_the_profile() -> None:
    loaded = load_configuration((DOCS / "profiles" / "kubernetes.yaml").read_text(encoding="utf-8"))
    assert loaded == default_configuration("kubernetes")


def test_the_links_resolve() -> None:
    plugins = (DOCS / "plugins.md").read_text(encoding="utf-8")
    assert "\n## Preferences of pods\n" in plugins
    for target in re.findall(r"\]\(([^)#]+)", DOC):
        assert (DOCS / target).exists(), target
