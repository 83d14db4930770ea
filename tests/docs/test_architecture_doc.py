"""docs/architecture.md matches the tree: modules and packages exist, layers are those that are checked."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import pykai.core
import pykai.scheduler

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "pykai"
DOC = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
CONTRACTS = {
    contract["id"]: contract
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
}


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


@pytest.mark.parametrize(
    ("contract", "title", "opening"),
    [
        ("layers", "Packages", "The layers, top first: "),
        ("engine", "Inside the engine", "Imports go one way, top first: "),
    ],
)
def test_the_layers_are_those_that_are_checked(contract: str, title: str, opening: str) -> None:
    listed = section(title).partition(opening)[2].partition(".")[0]
    layers = [re.sub(r"[()]", "", layer) for layer in CONTRACTS[contract]["layers"]]
    assert " ".join(listed.split()) == " / ".join(f"`{layer}`" for layer in layers)


def test_what_pure_modules_may_not_import_is_what_is_checked() -> None:
    pure = CONTRACTS["pure"]
    modules = [f"`{module.removeprefix('pykai.')}`" for module in pure["source_modules"]]
    *others, last = pure["forbidden_modules"]
    sentence = f"{', '.join(modules[:-1])} and {modules[-1]} may import neither {', '.join(others)} nor {last}."
    assert sentence in " ".join(section("Packages").split())
