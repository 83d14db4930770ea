"""docs/plugins.md matches the code: every hook and plugin is there, the example works, the YAML loads."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml

import pykai.plugin
from pykai.core.hooks import HOOK_TABLE
from pykai.core.plugins import DEFAULT_PLUGINS, plugin_names
from pykai.scheduler.config.configuration import load_configuration
from tests.core.builders import cluster

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "examples" / "plugins" / "quiet_nodes"


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", DOC, re.DOTALL)
    assert found is not None
    return found.group(1)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example as pip would install it: its module and its entry point on the path."""
    declared = block("toml")
    assert declared.strip() in (EXAMPLE / "pyproject.toml").read_text(encoding="utf-8")
    (tmp_path / "quiet_nodes.py").write_text((EXAMPLE / "quiet_nodes.py").read_text(encoding="utf-8"), encoding="utf-8")
    info = tmp_path / "pykai_quiet_nodes-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pykai-quiet-nodes\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[pykai.plugins]\nquietnodes = quiet_nodes:QuietNodes\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "quiet_nodes", raising=False)


def hooks_without_heading(hooks: Iterable[str]) -> set[str]:
    return {hook for hook in hooks if f"\n### `{hook}`\n" not in DOC}


def test_every_hook_has_its_heading() -> None:
    assert hooks_without_heading(spec.name for spec in HOOK_TABLE) == set()


def test_no_heading_names_a_hook_that_is_gone() -> None:
    known = {spec.name for spec in HOOK_TABLE}
    assert set(re.findall(r"\n### `(\w+)`\n", DOC)) == known


def test_the_configuration_is_the_built_in_list_and_the_example() -> None:
    (tier,) = yaml.safe_load(block("yaml"))["tiers"]
    *built_in, example = [(plugin["name"], plugin.get("arguments", {})) for plugin in tier["plugins"]]
    assert built_in == list(DEFAULT_PLUGINS)
    assert example[0] == "quietnodes"


def test_every_plugin_has_its_row() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| (yes )?\| \S", DOC.partition("\n## The built-in plugins\n")[2], re.MULTILINE)
    assert sorted(name for name, _ in rows) == plugin_names()
    assert {name for name, default in rows if default} == set(dict(DEFAULT_PLUGINS))


def test_every_type_that_is_named_can_be_imported() -> None:
    named = set(re.findall(r"`([A-Z][A-Za-z]+)\(", DOC)) | set(re.findall(r"-> (?:iterable of )?([A-Z]\w+)", DOC))
    assert len(named) > 5
    assert named - {"Any", "None"} <= set(pykai.plugin.__all__)


def test_the_code_in_the_doc_is_the_example() -> None:
    assert block("python").strip() in (EXAMPLE / "quiet_nodes.py").read_text(encoding="utf-8")


def test_the_example_is_short() -> None:
    source = (EXAMPLE / "quiet_nodes.py").read_text(encoding="utf-8")
    tree = ast.parse(source)
    docstring = tree.body[0]
    lines = [
        number
        for number, line in enumerate(source.splitlines(), 1)
        if line.strip() and not docstring.lineno <= number <= (docstring.end_lineno or 0)
    ]
    assert len(lines) <= 20


@pytest.mark.usefixtures("installed")
def test_the_example_changes_placement_with_the_configuration_of_the_doc() -> None:
    configuration = load_configuration(block("yaml"))
    assert configuration.problems == ()
    base = (
        cluster()
        .node("a", gpus=8)
        .node("b", gpus=8, labels={"example.com/quiet": "true"})
        .queue("q")
        .gang("train", pods=2, gpu=1)
    )
    assert base.schedule().nodes_used("train") == {"a": 2}
    with_plugin = base.with_policy(plugins=configuration.policy.plugins).schedule()
    assert with_plugin.nodes_used("train") == {"b": 2}
    assert with_plugin.plan.problems == ()
