"""docs/install.md: its commands, values, files and hooks exist, and docs/values.md has every value."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import yaml

from pykai.cli import main as kai
from pykai.cli.install import CHANGES_WAIT
from pykai.operator.chart.configuration import config
from pykai.operator.chart.files import rendered_documents
from pykai.operator.chart.valuefiles import reference_text
from pykai.operator.chart.values import VALUES
from pykai.operator.hooks.table import HOOKS
from pykai.operator.installing.givenvalues import check_values, read_set
from pykai.operator.installing.shadow import SHADOW_NAMESPACE
from tests.cluster.__main__ import UPSTREAM_MACHINES
from tests.e2e.installation import INSTALL
from tests.operator.chart.charts import scope

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs/install.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", DOC, re.DOTALL | re.MULTILINE)
CODE = "\n".join(text for language, text in BLOCKS if not language).replace("\\\n", " ")


def test_every_command_of_ours_takes_its_options() -> None:
    lines = re.findall(r"^kai (\S+)([^#|\n]*)", CODE, re.MULTILINE)
    assert {name for name, _ in lines} == {"doctor", "install", "manifests", "uninstall", "upgrade"}
    for name, rest in lines:
        command = kai.get_command(click.Context(kai), name)
        assert command is not None
        known = {option for parameter in command.params for option in parameter.opts}
        assert set(re.findall(r"(?<!\S)-{1,2}[a-z-]+", rest)) <= known, name


def test_the_command_for_one_machine_is_the_one_that_is_printed_and_tested() -> None:
    assert f"\nhelm {shlex.join(INSTALL)}\n" in CODE
    kinds = [(kind.count, kind.gpus, kind.dra) for kind in UPSTREAM_MACHINES]
    assert kinds == [(8, 8, False), (1, 0, False), (2, 8, True)]
    assert "eight simulated machines of\neight GPUs each, two more whose GPUs are claimed" in DOC


def test_every_value_that_is_set_is_one_of_the_chart() -> None:
    shown = re.findall(r"--set ([a-z][\w.=/-]+)", DOC) + re.findall(r"`([a-z]\w*(?:\.\w+)*=[\w/.-]+)`", DOC)
    assert len(shown) > 10
    for each in shown:
        check_values(read_set(each))
    assert f"`{'global.imagePullSecrets'}`" in DOC


def test_every_hook_is_described() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (before|after|after deletion) \|", DOC, re.MULTILINE)
    words = {"pre": "before", "post": "after"}
    assert rows == [(each.name, words.get(each.moment.partition("-install")[0], "after deletion")) for each in HOOKS]


def test_every_folder_exists_and_the_patch_is_of_a_field() -> None:
    for folder in re.findall(r"charts/[\w/-]+", DOC):
        assert (ROOT / folder).is_dir(), folder
    (made,) = rendered_documents(scope(), [config()])
    (patch,) = yaml.safe_load(_documented("patches")[0]["patch"])
    place = made
    for key in patch["path"].strip("/").split("/"):
        place = place[key]


def _documented(key: str) -> list[dict[str, Any]]:
    """What a block of YAML has at a key."""
    (found,) = (text for language, text in BLOCKS if language == "yaml" and f"{key}:" in text)
    listed: list[dict[str, Any]] = yaml.safe_load(found)[key]
    return listed


def test_a_dependency_is_this_chart() -> None:
    """install:subchart."""
    (dependency,) = _documented("dependencies")
    about = yaml.safe_load((ROOT / "charts/kai-scheduler/Chart.yaml").read_text(encoding="utf-8"))
    assert (dependency["name"], dependency["version"]) == (about["name"], about["version"])


def test_codes_and_names_are_those_of_the_program() -> None:
    assert f"exit code {CHANGES_WAIT}" in DOC
    assert f"namespace `{SHADOW_NAMESPACE}`" in DOC


def test_every_value_has_its_row() -> None:
    """operations:OD-18."""
    for reference in ((ROOT / "docs/values.md").read_text(encoding="utf-8"), reference_text()):
        assert re.findall(r"^\| `([^`]+)` \|", reference, re.MULTILINE) == [each.path for each in VALUES]
