"""The lists of changes in `mutants/*.toml`: reads them, checks them against the code, rewrites fields.

    [[mutant]]
    id = "cycle:PG-5"                       # the statement it switches off
    title = "a set needs no satisfied children"
    where = "core.cycle.gangs:Gang.satisfied"     # see tools/anchors.py for where, old, new and nth
    old = "satisfied >= self.minimum"
    new = "True"
    tests = ["tests/core/cycle/test_gangs.py"]    # files or node ids of which at least one test must fail

A file that is not Python is named by `file` instead of `where`; there `old` is a text that occurs exactly once.
`mutants/required.txt` lists the statements that must have at least one mutant. `mutants/survivors.toml` has tables
`[[survivor]]` for `tools/mutate.py`, with `reason` in place of id, title and tests.

Subtle: a replacement may use names that the fragment does not have, so their new names after a renaming are unknown.
Such a mutant would be caught by any test at all, with a NameError. Therefore names that the module lacks, and
attributes that the project lacks, are errors.
"""

from __future__ import annotations

import ast
import builtins
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from tools.anchors import Fragment, Place, Source, Sources, Unanchored, find
from tools.splicing import spliced
from tools.trees import Broken

_TEXTS = ("id", "title", "old", "new")
FIELDS = (*_TEXTS, "where", "file", "nth", "tests")
SURVIVORS = "survivors.toml"


@dataclass(frozen=True)
class Mutant:
    """One rule to switch off."""

    #: the file that lists it, without folder, and its number there
    source: str
    number: int
    id: str
    title: str
    old: str
    new: str
    tests: tuple[str, ...]
    #: one of the two is empty
    where: str = ""
    file: str = ""
    nth: int | None = None

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"{self.source}: {self.id} ({self.title})"

    @property
    def anchor(self) -> str:
        """Where it is, for readers."""
        return self.where or self.file


def read_tables(path: Path, kind: str) -> tuple[list[dict[str, object]], list[str]]:
    """The tables of a file, and its errors."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        return [], [f"{path.name}: not TOML: {error}"]
    errors = [f"{path.name}: unknown table {key!r}" for key in content if key != kind]
    tables = content.get(kind, [])
    if not isinstance(tables, list):
        return [], [*errors, f"{path.name}: write [[{kind}]], not [{kind}]"]
    return tables, errors


def read_mutants(folder: Path) -> tuple[list[Mutant], list[str]]:
    """The mutants of a folder, and errors of the files."""
    mutants: list[Mutant] = []
    errors: list[str] = []
    for path in sorted(folder.glob("*.toml")):
        if path.name == SURVIVORS:
            continue
        tables, wrong = read_tables(path, "mutant")
        errors += wrong
        for number, table in enumerate(tables, 1):
            mutant = _read_table(path.name, number, table)
            if isinstance(mutant, Mutant):
                mutants.append(mutant)
            else:
                errors.append(mutant)
    return mutants, errors


def _read_table(source: str, number: int, table: object) -> Mutant | str:
    """The mutant of a table, or its error."""
    start = f"{source}: mutant {number}"
    if not isinstance(table, dict):
        return f"{start}: not a table"
    start += f" ({table.get('id', 'without id')}, {table.get('title', 'without title')})"
    if unknown := sorted(set(table) - set(FIELDS)):
        return f"{start}: unknown field {', '.join(unknown)}"
    if missing := [name for name in (*_TEXTS, "tests") if name not in table]:
        return f"{start}: no {', '.join(missing)}"
    if ("where" in table) == ("file" in table):
        return f"{start}: either where or file"
    texts = {name: table[name] for name in (*_TEXTS, "where", "file") if name in table}
    if wrong := [name for name, value in texts.items() if not isinstance(value, str) or (not value and name != "new")]:
        return f"{start}: {', '.join(wrong)}: expected text"
    tests, nth = table["tests"], table.get("nth")
    if not isinstance(tests, list) or not tests or not all(isinstance(test, str) for test in tests):
        return f"{start}: tests: expected a list of files or node ids"
    if nth is not None and (type(nth) is not int or "where" not in table):
        return f"{start}: nth: expected a number, beside where"
    return Mutant(source=source, number=number, **texts, tests=tuple(tests), nth=nth)


def read_required(path: Path) -> list[str]:
    """Statements that must have a mutant; none when the file does not exist."""
    if not path.exists():
        return []
    lines = (line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line]


@dataclass
class Checked:
    """Which mutants can be run on a tree."""

    broken: dict[Mutant, Broken]
    #: why others cannot, one line each
    errors: list[str]
    #: code that was found elsewhere or under other names
    notes: list[str]


class Checker:
    """Checks mutants against the code."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.sources = Sources(root)

    def check(self, mutants: Iterable[Mutant]) -> Checked:
        """Find the code of every mutant, and break it."""
        checked = Checked({}, [], [])
        seen: dict[tuple[str, str], Mutant] = {}
        for mutant in mutants:
            wrong = [f"{mutant.name}: {error}" for error in self._wrong_tests(mutant)]
            try:
                file, after = self._broken(mutant, checked.notes)
            except Unanchored as error:
                checked.errors += [*wrong, f"{mutant.name}: {error}"]
                continue
            twin = seen.setdefault((file, after), mutant)
            if twin is not mutant:
                wrong.append(f"{mutant.name}: is the same as {twin.name}")
            checked.errors += wrong
            if not wrong:
                checked.broken[mutant] = Broken(mutant.name, file, after, mutant.tests, mutant.id)
        return checked

    def _wrong_tests(self, mutant: Mutant) -> Iterable[str]:
        for test in mutant.tests:
            path = Path(test.partition("::")[0])
            if not (self._root / path).exists():
                yield f"{path} does not exist"
            elif path.parts[:2] == ("tests", "conformance"):
                yield f"{path}: recorded cases do not count"

    def _broken(self, mutant: Mutant, notes: list[str]) -> tuple[str, str]:
        """The file of a mutant, and its text when broken."""
        if mutant.file:
            return mutant.file, self._replaced(mutant)
        place, fragment, after = self.applied(mutant.where, mutant.old, mutant.new, mutant.nth)
        if unknown := self.unknown(fragment, place):
            raise Unanchored(f"`new` uses what is not there: {', '.join(unknown)}")
        if place.where != mutant.where:
            notes.append(f"{mutant.name}: {mutant.where} is now {place.where}")
        elif place.binding.renamed:
            names = ", ".join(f"{old} is now {new}" for (_, old), new in place.binding.renamed.items())
            notes.append(f"{mutant.name}: in {mutant.where}, {names}")
        return place.source.file, after

    def applied(self, where: str, old: str, new: str, nth: int | None) -> tuple[Place, Fragment, str]:
        """Where an anchor leads, and the text of that module when changed."""
        fragment = Fragment.parse(old, new)
        place = find(self.sources, where, fragment, nth)
        after = spliced(place, fragment.filled(place.binding))
        if after == place.source.text:
            raise Unanchored("changes nothing")
        return place, fragment, after

    def _replaced(self, mutant: Mutant) -> str:
        path = self._root / mutant.file
        if not path.is_file():
            raise Unanchored(f"{mutant.file} does not exist")
        if path.suffix == ".py":
            raise Unanchored(f"{mutant.file} is Python: say `where` in place of `file`")
        text = path.read_text(encoding="utf-8")
        if (count := text.count(mutant.old)) != 1:
            raise Unanchored(f"`old` occurs {count} times in {mutant.file}")
        if mutant.old == mutant.new:
            raise Unanchored("changes nothing")
        return text.replace(mutant.old, mutant.new)

    @cached_property
    def _words(self) -> frozenset[str]:
        """Every word of the sources, and every attribute of Python's own types."""
        texts = (file.read_text(encoding="utf-8") for file in sorted((self._root / "src").rglob("*.py")))
        words = {word for text in texts for word in re.findall(r"\w+", text)}
        own = (str, bytes, int, float, list, tuple, dict, set, frozenset, BaseException, object)
        return frozenset(words.union(*(dir(each) for each in own)))

    def unknown(self, fragment: Fragment, place: Place) -> list[str]:
        """Identifiers of the replacement that neither the fragment nor the code around it has."""
        nodes = [node for part in fragment.filled(place.binding) for node in ast.walk(part)]
        used = {node.id for node in nodes if isinstance(node, ast.Name)}
        own = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        own.update(name for node in nodes for name in _bound(node))
        # Modules may have any attributes.
        modules = own | _modules(place.source)
        attributes = {
            node.attr
            for node in nodes
            if isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id in modules)
        }
        attributes |= {node.arg for node in nodes if isinstance(node, ast.keyword) and node.arg}
        names = sorted(used - own - _names(place.source) - set(dir(builtins)))
        return names + sorted(attributes - self._words)


def _bound(node: ast.AST) -> list[str]:
    """Names that a node defines without being a name."""
    if isinstance(node, ast.arg):
        return [node.arg]
    if isinstance(node, ast.alias):
        return [(node.asname or node.name).partition(".")[0]]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        return [node.name]
    return []


@cache
def _modules(source: Source) -> frozenset[str]:
    """What a module imports as a whole."""
    imports = [node for node in ast.walk(source.tree) if isinstance(node, ast.Import)]
    return frozenset(name for node in imports for alias in node.names for name in _bound(alias))


@cache
def _names(source: Source) -> frozenset[str]:
    """All names that mean something somewhere in a module."""
    nodes = list(ast.walk(source.tree))
    return frozenset(
        [node.id for node in nodes if isinstance(node, ast.Name)] + [name for node in nodes for name in _bound(node)]
    )


def as_toml(value: str | int) -> str:
    """A value as these files write it: fragments of code without escapes where possible."""
    if isinstance(value, int):
        return str(value)
    if "\n" in value and "'''" not in value:
        return f"'''\n{value}'''"
    if "'" not in value and "\n" not in value:
        return f"'{value}'" if '"' in value or "\\" in value else f'"{value}"'
    if '"' not in value and "\\" not in value and "\n" not in value:
        return f'"{value}"'
    if "'''" not in value and not value.endswith("'"):
        return f"'''{value}'''"
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"""\n{escaped}"""'


def rewrite(path: Path, kind: str, changes: dict[int, dict[str, str | int | None]]) -> None:
    """Give fields of tables (by number) new values, None to remove one; comments and all else stay."""
    lines = path.read_text(encoding="utf-8").split("\n")
    heads = [index for index, line in enumerate(lines) if line.strip() == f"[[{kind}]]"]
    for number in sorted(changes, reverse=True):
        begin = heads[number - 1] + 1
        end = heads[number] if number < len(heads) else len(lines)
        lines[begin:end] = _rewritten(lines[begin:end], dict(changes[number]))
    path.write_text("\n".join(lines), encoding="utf-8")


def _rewritten(block: Sequence[str], values: dict[str, str | int | None]) -> list[str]:
    written: list[str] = []
    index = last = 0
    while index < len(block):
        key = re.match(r"(\w+)\s*=", block[index])
        if key is None:
            written.append(block[index])
            index += 1
            continue
        end = index + 1
        while not _is_toml("\n".join(block[index:end])):
            end += 1
        if key[1] not in values:
            written += block[index:end]
        elif (value := values.pop(key[1])) is not None:
            written += f"{key[1]} = {as_toml(value)}".split("\n")
        index = end
        last = len(written)
    extra = [f"{name} = {as_toml(value)}" for name, value in values.items() if value is not None]
    written[last:last] = [line for text in extra for line in text.split("\n")]
    return written


def _is_toml(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True
