"""CONTRIBUTING.md matches the tree: its layers are those of pyproject.toml, and what it points to exists."""

from __future__ import annotations

import re
import subprocess
import tomllib
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
WHERE = DOC.partition("\n## Where do I add ...\n")[2].partition("\n## ")[0]


def test_the_layers_are_those_that_are_checked() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = {each["id"]: each for each in tomllib.load(file)["tool"]["importlinter"]["contracts"]}
    listed = re.findall(r"```\n(.*?)```", DOC.partition("\n## Layers\n")[2].partition("\n## ")[0], re.DOTALL)
    checked = [contracts[name]["layers"] for name in ("layers", "engine")]
    assert [block.splitlines() for block in listed] == [
        [re.sub(r"[()]", "", layer) for layer in layers] for layers in checked
    ]


def test_what_is_pointed_to_exists() -> None:
    paths = re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:/|\.py))`", WHERE)
    assert len(paths) > 12
    for path in paths:
        folder = ROOT if path.startswith(("tests/", "examples/")) else ROOT / "src" / "pykai"
        assert (folder / path).exists() or path == "metrics.py", path


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def skip_loudly(reason: str) -> None:
    """Skip with a warning: warnings are printed at the end of a run, reasons of skipped tests are not."""
    text = f"the commits that CONTRIBUTING.md gives as examples are not checked: {reason}"
    warnings.warn(text, stacklevel=2)
    pytest.skip(text)


def test_commits_that_are_examples_exist() -> None:
    named = re.findall(r"`git show ([0-9a-f]{7,})`", WHERE)
    assert named
    if not (ROOT / ".git").exists():
        skip_loudly("this is not a git checkout; run it in a clone of the repository")
    if git("rev-parse", "--is-shallow-repository") == "true":
        skip_loudly("the clone is shallow; run `git fetch --unshallow` first")
    for commit in named:
        assert git("cat-file", "-t", commit) == "commit"
