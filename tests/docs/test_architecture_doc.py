"""docs/architecture.md matches the tree: the modules and packages it names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pykai.core
import pykai.scheduler

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "pykai"
DOC = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return DOC.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_every_path_exists() -> None:
    paths = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:/|\.py))`", DOC)) - {"adr/", "mutants/"}
    packages = {path.name for path in SOURCE.iterdir()}
    named = {path for path in paths if path.split("/")[0] in packages}
    assert len(named) > 15
    assert {path for path in named if not (SOURCE / path).exists()} == set()


def test_every_package_has_its_row() -> None:
    rows = {
        name.partition("pykai.")[2]
        for row in re.findall(r"^\| (`pykai\..*?) \|", section("Packages"), re.MULTILINE)
        for name in re.findall(r"`([\w.]+)`", row)
    }
    packages = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    assert packages <= rows


def test_what_a_package_holds_exists() -> None:
    for title, package in (("Inside the engine", pykai.core), ("Inside the scheduler service", pykai.scheduler)):
        folder = Path(next(iter(package.__path__)))
        rows = re.findall(r"^\| (`.*?) \| (.*) \|$", section(title), re.MULTILINE)
        assert len(rows) > 4
        for names, _ in rows:
            for name in re.findall(r"`([\w/]+)`", names):
                assert (folder / name).is_dir() or (folder / f"{name}.py").is_file(), f"{title}: {name}"
        named = {name.strip("/") for names, _ in rows for name in re.findall(r"`([\w/]+)`", names)}
        assert {path.name for path in folder.iterdir() if (path / "__init__.py").exists()} <= named
