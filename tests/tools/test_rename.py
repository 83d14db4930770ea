"""`tools/rename.py` on a tiny repository: what follows a renaming, what is left alone, what is refused."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.rename import main

FILES = {
    "pyproject.toml": """\
[tool.ruff]
line-length = 120

[tool.mypy]
strict = true
mypy_path = ["src", "stubs"]
files = ["src", "tests"]
namespace_packages = true
explicit_package_bases = true
disallow_untyped_decorators = false

# Reading the types of libraries would take longer than all else.
[[tool.mypy.overrides]]
module = "pytest"
follow_imports = "skip"

[tool.pytest.ini_options]
pythonpath = ["src", "."]
addopts = ["--import-mode=importlib"]

[[tool.importlinter.contracts]]
containers = ["pykai"]
layers = [
    "front | side",
    "core",
]
source_modules = ["pykai.core.census"]
""",
    "stubs/msgspec.pyi": """\
from typing import Any, dataclass_transform

def field(*, default: Any = ..., name: str = ...) -> Any: ...
@dataclass_transform(field_specifiers=(field,))
class Struct:
    def __init_subclass__(cls, tag: bool | str = ...) -> None: ...
""",
    "Makefile": "run:\n\tpython -m pykai.core.census --all src/pykai/core/census.py\n",
    "docs/notes.md": (
        "See `core/census.py`, `pykai.core.census:Entry`, `census.py` and `Gang.open`; the census, `open`, `Tally`.\n"
    ),
    "src/pykai/__init__.py": '"""A project."""\n',
    "src/pykai/core/__init__.py": (
        '"""The core (`core.census`)."""\n\nfrom pykai.core.census import Entry\n\n__all__ = ["Entry"]\n'
    ),
    "src/pykai/core/census.py": '''\
"""Counts entries."""

import msgspec


class Entry(msgspec.Struct):
    """What is counted."""

    size: int
    kind: str = "a"


class Tagged(msgspec.Struct, tag=True):
    """Something with its name on the wire."""


Tally = dict[str, int]


def count(entries: list[Entry], start: int = 0) -> int:
    total = start
    for entry in entries:
        total += entry.size
    return total
''',
    "src/pykai/core/gangs.py": '''\
"""Gangs."""

from __future__ import annotations

from dataclasses import dataclass, replace


class Gang:
    """Has open tasks."""

    __slots__ = ("name", "open")

    def __init__(self, open: int) -> None:
        self.open = open
        self.name = "gang"

    def take(self, number: int = 1) -> bool:
        self.open -= number
        return hasattr(self, "open")


class Special(Gang):
    """Takes more."""

    def take(self, number: int = 2) -> bool:
        return super().take(number=number + 1)


class Door:
    """Has the same words for other things."""

    __slots__ = ("hinge_side", "open")

    def __init__(self) -> None:
        self.open = True
        self.hinge_side = "left"

    def take(self, number: int) -> int:
        return number


@dataclass(frozen=True)
class Record:
    """A field."""

    held: int = 0

    def more(self) -> Record:
        return replace(self, held=self.held + 1)


def describe(gang: Gang | Special, door: Door, record: Record) -> str:
    match record:
        case Record(held=0):
            return "none"
    found = [each for each in (gang, gang) if each.open]
    open = len(found)
    return f"{gang.open} of {record.held}, {door.open} {open}"
''',
    "src/pykai/front/__init__.py": '"""The front."""\n',
    "src/pykai/side/__init__.py": '"""The side."""\n',
    "src/pykai/side/pages.py": '''\
"""Uses everything."""

import pykai.core.census
from pykai.core import Entry, census, gangs
from pykai.core.census import Tally
from pykai.core.gangs import Door, Gang, Record

NAMES = ("pykai.core.census", "src/pykai/core/census.py", "open", "unrelated.census")
_tally: Tally = {}


def page(gang: Gang) -> int:
    gang.take(number=2)
    Door().take(number=3)
    census.count([Entry(1)], start=2)
    Record(held=3)
    return pykai.core.census.count([]) + gangs.Gang(open=1).open
''',
    "src/pykai/side/taken.py": '''\
"""Has the name that a moved module would get."""

from pykai.core import census


def groupindex() -> int:
    return census.count([])
''',
    "tests/conftest.py": '''\
"""Fixtures."""

import pytest


@pytest.fixture
def counted() -> int:
    return 2
''',
    "tests/core/test_census.py": '''\
"""Tests."""

from pathlib import Path

import pytest

from pykai.core.census import Entry, count
from pykai.core.gangs import Gang

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("size", "expected"), [(1, 1), (2, 2)])
def test_count(size: int, expected: int, counted: int) -> None:
    assert count([Entry(size)]) == expected
    assert counted == 2
    assert (ROOT / "pyproject.toml").exists()


def test_a_class_inside() -> None:
    def twice(number: int) -> int:
        return 2 * number

    class Fake(Gang):
        def take(self, number: int = twice(number=2)) -> bool:
            return super().take(number=number)

    assert Fake(open=1).take(number=1)


def corrupt(gang: Gang, name: str) -> None:
    setattr(gang, name, 0)


def test_a_computed_name() -> None:
    corrupt(Gang(open=1), "open")
''',
    "mutants/all.toml": """\
# Mutants of `core`.

[[mutant]]
id = "x:one"
title = "nothing is taken"
file = "src/pykai/core/gangs.py"
old = '''        self.open -= number'''
new = '''        self.open -= 0'''
tests = ["tests/core/test_census.py::test_count"]

[[mutant]]
id = "x:two"
title = "nothing is counted"
file = "src/pykai/core/census.py"
old = '''total += entry.size'''
new = '''total += 0'''
tests = ["tests/core/test_census.py"]
""",
}

Rename = Callable[..., int]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    root = tmp_path / "tree"
    for command in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "first"],
    ):
        subprocess.run(["git", *command], cwd=root, check=True)
    return root


@pytest.fixture
def rename(tree: Path, tmp_path: Path) -> Rename:
    def run(mapping: str, *options: str) -> int:
        path = tmp_path / "mapping.toml"
        path.write_text(mapping)
        return main([str(path), "--root", str(tree), *options])

    return run


def text_of(tree: Path, path: str) -> str:
    return (tree / path).read_text()


MOVES = """
[modules]
"pykai.core.census" = "pykai.core.cluster.groupindex"
"pykai.side" = "pykai.edge"
"tests/core/test_census.py" = "tests/core/cluster/test_groupindex.py"
[packages]
"pykai.core.cluster" = "The cluster."
[names]
Tally = "Counts"
hinge_side = "hinge"
"""


def test_modules_move_and_all_that_names_them_follows(
    tree: Path, rename: Rename, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rename(MOVES, "--unchecked") == 0
    assert text_of(tree, "src/pykai/core/cluster/__init__.py") == '"""The cluster."""\n'
    assert not (tree / "src/pykai/core/census.py").exists()
    assert not (tree / "src/pykai/side").exists()
    assert text_of(tree, "src/pykai/core/__init__.py").startswith(
        '"""The core (`core.cluster.groupindex`)."""\n\nfrom pykai.core.cluster.groupindex import Entry\n'
    )
    assert text_of(tree, "src/pykai/edge/pages.py").splitlines()[2:13] == [
        "import pykai.core.cluster.groupindex",
        "from pykai.core import Entry, gangs",
        "from pykai.core.cluster import groupindex",
        "from pykai.core.cluster.groupindex import Counts",
        "from pykai.core.gangs import Door, Gang, Record",
        "",
        'NAMES = ("pykai.core.cluster.groupindex", "src/pykai/core/cluster/groupindex.py", "open", "unrelated.census")',
        "_tally: Counts = {}",
        "",
        "",
        "def page(gang: Gang) -> int:",
    ]
    assert "    groupindex.count([Entry(1)], start=2)" in text_of(tree, "src/pykai/edge/pages.py")
    assert "return pykai.core.cluster.groupindex.count([])" in text_of(tree, "src/pykai/edge/pages.py")
    assert '__slots__ = ("hinge", "open")' in text_of(tree, "src/pykai/core/gangs.py")
    assert 'self.hinge = "left"' in text_of(tree, "src/pykai/core/gangs.py")
    # The new name is taken here, so the module keeps its local name.
    assert "from pykai.core.cluster import groupindex as census\n" in text_of(tree, "src/pykai/edge/taken.py")
    assert "Path(__file__).parents[3]" in text_of(tree, "tests/core/cluster/test_groupindex.py")
    assert "-m pykai.core.cluster.groupindex --all src/pykai/core/cluster/groupindex.py" in text_of(tree, "Makefile")
    project = text_of(tree, "pyproject.toml")
    assert '"front | edge"' in project
    assert 'source_modules = ["pykai.core.cluster.groupindex"]' in project
    assert text_of(tree, "docs/notes.md").startswith(
        "See `core/cluster/groupindex.py`, `pykai.core.cluster.groupindex:Entry`, `groupindex.py` and `Gang.open`;"
    )
    mutants = text_of(tree, "mutants/all.toml")
    assert 'file = "src/pykai/core/cluster/groupindex.py"' in mutants
    assert 'tests = ["tests/core/cluster/test_groupindex.py::test_count"]' in mutants
    printed = capsys.readouterr().out
    assert "groupindex is taken" in printed
    # Prose is for a person.
    assert "docs/notes.md:1: census" in printed


REFUSED = """
[members]
"pykai.core.census:Entry.size" = "amount"
"pykai.core.gangs:Gang.name" = "open"
"pykai.core.gangs:Door.take" = "push"
"""

MEMBERS = """
[members]
"pykai.core.gangs:Gang.open" = "unplaced"
"pykai.core.gangs:Gang.take(number)" = "taken"
"pykai.core.gangs:Gang.take" = "place"
"pykai.core.gangs:Gang.__init__(open)" = "unplaced"
"pykai.core.gangs:Record.held" = "kept"
"pykai.core.gangs:describe/found" = "waiting"
"pykai.core.census:Entry" = "Item"
"pykai.core.census:Entry.size" = { to = "amount", wire = "size" }
"pykai.core.census:Entry.kind" = { to = "sort", wire = "kind" }
"pykai.core.census:Tagged" = { to = "Marked", wire = "Tagged" }
"tests.conftest:counted" = "two"
"tests.core.test_census:test_count(size)" = "amount"
"tests.core.test_census:test_a_class_inside.twice(number)" = "once"
"tests.core.test_census:test_count" = "test_counting"
"""


def test_things_are_renamed_by_what_they_are(tree: Path, rename: Rename, capsys: pytest.CaptureFixture[str]) -> None:
    """With all checks: the tests map one to one, and mypy reports nothing."""
    assert rename(REFUSED, "--check") == 1
    problems, _, doubts = capsys.readouterr().out.partition("doubts")
    assert "pykai.core.census.Entry.size is a msgspec field" in problems
    assert "pykai.core.gangs.Gang has a member open already" in problems
    assert "push" not in problems + doubts
    assert rename(MEMBERS) == 0, capsys.readouterr().out
    gangs = text_of(tree, "src/pykai/core/gangs.py")
    assert gangs == (
        FILES["src/pykai/core/gangs.py"]
        .replace('("name", "open")', '("name", "unplaced")')
        .replace("def __init__(self, open: int)", "def __init__(self, unplaced: int)")
        .replace("self.open = open", "self.unplaced = unplaced")
        .replace("def take(self, number: int = ", "def place(self, taken: int = ")
        .replace("self.open -= number", "self.unplaced -= taken")
        .replace('hasattr(self, "open")', 'hasattr(self, "unplaced")')
        .replace("super().take(number=number + 1)", "super().place(taken=taken + 1)")
        .replace("held", "kept")
        .replace("found", "waiting")
        .replace("if each.open", "if each.unplaced")
        .replace("{gang.open}", "{gang.unplaced}")
    )
    pages = text_of(tree, "src/pykai/side/pages.py")
    assert "from pykai.core import Item, census, gangs" in pages
    assert pages.endswith(
        """\
    gang.place(taken=2)
    Door().take(number=3)
    census.count([Item(1)], start=2)
    Record(kept=3)
    return pykai.core.census.count([]) + gangs.Gang(unplaced=1).unplaced
"""
    )
    census = text_of(tree, "src/pykai/core/census.py")
    assert '    amount: int = msgspec.field(name="size")\n' in census
    assert '    sort: str = msgspec.field(default="a", name="kind")\n' in census
    assert 'class Marked(msgspec.Struct, tag="Tagged"):' in census
    assert "total += entry.amount" in census
    assert '__all__ = ["Item"]' in text_of(tree, "src/pykai/core/__init__.py")
    tests = text_of(tree, "tests/core/test_census.py")
    assert '(("amount", "expected")' in tests
    assert "def test_counting(amount: int, expected: int, two: int)" in tests
    assert "assert two == 2" in tests
    assert (
        """\
    def twice(once: int) -> int:
        return 2 * once

    class Fake(Gang):
        def place(self, taken: int = twice(once=2)) -> bool:
            return super().place(taken=taken)

    assert Fake(unplaced=1).place(taken=1)
"""
        in tests
    )
    mutants = text_of(tree, "mutants/all.toml")
    assert "old = '''        self.unplaced -= taken'''\nnew = '''        self.unplaced -= 0'''" in mutants
    assert "old = '''total += entry.amount'''" in mutants
    assert "test_census.py::test_counting" in mutants
    assert "`Gang.unplaced`; the census, `open`, `Tally`." in text_of(tree, "docs/notes.md")
    printed = capsys.readouterr().out
    assert "4 tests before, 4 after" in printed
    assert "tests/core/test_census.py:36: is 'open' a name for setattr in line 32?" in printed
    assert "pykai.core.gangs.Special.take is renamed as well" in printed


@pytest.mark.parametrize(
    ("mapping", "told"),
    [
        ('[names]\nTally = "count"', "has both Tally and count"),
        ('[members]\n"pykai.core.census:count" = "Tally"', "count becomes Tally, which means something else there"),
        ('[members]\n"pykai.core.gangs:describe/found" = "gang"', "found becomes gang, which means something else"),
        ('[members]\n"pykai.core.gangs:describe/found" = "len"', "len would mean the renamed variable"),
        ('[members]\n"pykai.core.census:Tagged" = "Marked"', 'is a tag on the wire: give wire = "Tagged"'),
        ('[modules]\n"pykai.core.census" = "pykai.core.gangs"', "src/pykai/core/gangs.py exists already"),
        ('[modules]\n"pykai.nowhere" = "pykai.there"', "pykai.nowhere does not exist"),
        ('[members]\n"pykai.core.gangs:Gone.open" = "x"', "has no class Gone"),
    ],
)
def test_what_would_change_the_meaning_is_refused(
    tree: Path, rename: Rename, capsys: pytest.CaptureFixture[str], mapping: str, told: str
) -> None:
    assert rename(mapping, "--unchecked") == 1
    assert told in capsys.readouterr().out
    assert subprocess.run(["git", "status", "--porcelain"], cwd=tree, capture_output=True, check=True).stdout == b""


def test_a_check_prints_and_writes_nothing(tree: Path, rename: Rename, capsys: pytest.CaptureFixture[str]) -> None:
    assert rename(MOVES, "--check", "--diff") == 0
    printed = capsys.readouterr().out
    assert "+from pykai.core.cluster.groupindex import Counts" in printed
    assert subprocess.run(["git", "status", "--porcelain"], cwd=tree, capture_output=True, check=True).stdout == b""
