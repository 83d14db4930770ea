"""One renaming, from a mapping to changed files.

`Plan` reads the repository, finds everything the mapping names, and notes the changes in memory; `apply` writes them,
moves files with `git mv` and adds packages that come into being. Nothing is written while there are problems.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterable
from pathlib import Path

from tools.renaming.mapping import Mapping, module_of
from tools.renaming.meanings import BY_NAME, LISTS_OF_NAMES, Meanings, Report, called, rename_constants
from tools.renaming.moving import Moving
from tools.renaming.mutantfiles import MutantFiles
from tools.renaming.scopes import Names, Program
from tools.renaming.sources import Conflict, Source
from tools.renaming.texts import Texts

#: never changed: what was, and what the tools themselves are tested with
_LEFT_ALONE = ("CHANGELOG.md", "requirements", "tools/renaming/", "tools/rename.py", "tests/tools/test_rename.py")
_TEXT = (".md", ".toml", ".txt", ".yaml", ".yml", ".cfg", ".ini", ".sh")
_CHECKED = ("src", "tests", "tools", "bench")


def git(root: Path, *arguments: str) -> str:
    """What git prints."""
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout


def tracked(root: Path) -> list[str]:
    """The files of the repository."""
    return [path for path in git(root, "ls-files", "-z").split("\0") if path and (root / path).is_file()]


class Plan:
    """All changes of a mapping."""

    def __init__(self, root: Path, mapping: Mapping, files: Iterable[str]) -> None:
        self.root = root
        self.mapping = mapping
        self.report = Report()
        self.files = [path for path in files if not path.startswith(_LEFT_ALONE)]
        self.sources: dict[str, Source] = {}
        #: new texts of the lists of mutants
        self.lists: dict[str, str] = {}
        named: dict[str, Names] = {}
        for path in self.files:
            module = module_of(path)
            if module is not None:
                self.sources[path] = Source.read(root, path)
                named[module] = Names(self.sources[path], module)
        self.program = Program(named)
        self.meanings = Meanings(mapping, self.program, self.report)
        self.texts = Texts(mapping, self.meanings.things, named)
        if not self.report.problems:
            self._note()

    @property
    def words(self) -> set[str]:
        """All names that change."""
        words = {target.old for target in self.mapping.targets} | set(self.mapping.names)
        for old, new in self.mapping.modules.items():
            if old.rpartition(".")[2] != new.rpartition(".")[2]:
                words.add(old.rpartition(".")[2])
        return words

    def _note(self) -> None:
        if self.meanings.needs_types:
            self._ask_types()
        self.texts = Texts(self.mapping, self.meanings.things, self.program.files)
        moving = Moving(self.mapping, self.program, self.meanings, self.report)
        for names in self.program.files.values():
            try:
                self._check_names(names.source)
                self.meanings.apply(names)
                self.report.problems += self.meanings.captured(names)
                self._names_in_fstrings(names.source)
                self._names_in_lists(names.source)
                self.texts.apply_python(names.source)
                moving.apply(names)
                names.source.sorted_edits()
            except Conflict as conflict:
                self.report.problems.append(str(conflict))
        mutants = MutantFiles(self.sources, self.texts, self.words, self.report)
        for path in self.files:
            if path in self.sources:
                continue
            if path.startswith("mutants/") and path.endswith(".toml"):
                text = (self.root / path).read_text(encoding="utf-8")
                changed = mutants.changed(path, text)
                if changed != text:
                    self.lists[path] = changed
            elif path.endswith(_TEXT) or path in ("Makefile", ".ci/run"):
                self.sources[path] = Source.read(self.root, path)
                self.texts.apply_text(self.sources[path])
        if "pyproject.toml" in self.sources:
            self._layers(self.sources["pyproject.toml"])

    def _ask_types(self) -> None:
        # Here, so that moves alone need no mypy.
        from tools.renaming.typed import Types

        words = re.compile(rf"\b({'|'.join(sorted(self.meanings.words))})\b")
        interesting = [path for path, source in self.sources.items() if words.search(source.text)]
        folders = [folder for folder in _CHECKED if (self.root / folder).is_dir()]
        types = Types(self.root, folders, interesting)
        self.report.notes += [f"mypy, before: {error}" for error in types.errors[:10] if "unused-ignore" not in error]
        self.meanings.ask(types)

    def _check_names(self, source: Source) -> None:
        names = self.mapping.names
        if not names or self.mapping.force:
            return
        found = {
            t.string for t in tokenize.generate_tokens(io.StringIO(source.text).readline) if t.type == tokenize.NAME
        }
        for old in sorted(found & set(names)):
            if names[old] in found and names[old] not in names:
                self.report.problems.append(f"{source.path}: has both {old} and {names[old]}")

    def _names_in_fstrings(self, source: Source) -> None:
        """Distinctive names inside f-strings, which are one token for Python 3.11."""
        names = self.mapping.names
        for string in ast.walk(source.tree):
            if not names or not isinstance(string, ast.JoinedStr):
                continue
            for node in ast.walk(string):
                match node:
                    case ast.Name(id=name) if name in names:
                        start = source.span(node)[0]
                    case ast.Attribute(attr=name) if name in names:
                        start = source.span(node)[1] - len(name)
                    case ast.keyword(arg=str(name)) if name in names:
                        start = source.span(node)[0]
                    case _:
                        continue
                if not source.rename(start, name, names[name]):
                    self.report.doubts.append(f"{source.path}:{node.lineno}: {name} in an f-string")

    def _names_in_lists(self, source: Source) -> None:
        """Distinctive names in `__slots__` and the like, and in `getattr(x, "name")`."""
        for node in ast.walk(source.tree) if self.mapping.names else ():
            match node:
                case ast.Assign(targets=[ast.Name(id=listed)], value=value) if listed in LISTS_OF_NAMES:
                    strings = list(ast.walk(value))
                case ast.Call(args=[_, ast.Constant() as second, *_]) if called(node) in BY_NAME:
                    strings = [second]
                case _:
                    continue
            for each in strings:
                if isinstance(each, ast.Constant) and each.value in self.mapping.names:
                    rename_constants(source, [each], each.value, self.mapping.names[each.value])

    def _layers(self, source: Source) -> None:
        """Names of packages below the containers of import-linter's contracts."""
        for contract in re.finditer(r"^containers = \[\"([\w.]+)\"\]\nlayers = \[(.*?)^\]", source.text, re.M | re.S):
            for word in re.finditer(r"\w+", contract[2]):
                old = f"{contract[1]}.{word[0]}"
                new = self.mapping.modules.get(old)
                if new is None:
                    continue
                if new.rpartition(".")[0] != contract[1]:
                    self.report.doubts.append(f"pyproject.toml: layers: {old} becomes {new}")
                    continue
                start = contract.start(2) + word.start()
                source.rename(start, word[0], new.rpartition(".")[2])

    def new_packages(self) -> dict[str, str]:
        """The `__init__.py` files that are missing after the moves: path and content."""
        after = {self.mapping.moved_path(path) for path in self.files}
        missing: dict[str, str] = {}
        for path in sorted(after):
            if not (path.startswith("src/") and path.endswith(".py")):
                continue
            parts = path.split("/")
            for end in range(2, len(parts)):
                init = "/".join([*parts[:end], "__init__.py"])
                if init not in after:
                    package = ".".join(parts[1:end])
                    text = self.mapping.docstrings.get(package) or f"The package `{package}`."
                    missing[init] = f'"""{text}"""\n'
        return missing

    def changes(self) -> dict[str, str]:
        """New texts by old path."""
        changed = {path: source.changed() for path, source in self.sources.items() if source.edits}
        return changed | self.lists

    def apply(self) -> None:
        """Write it all."""
        for path, text in self.changes().items():
            (self.root / path).write_text(text, encoding="utf-8")
        # By way of names that nothing has: a module may take the place that another one leaves.
        for number, old in enumerate(self.mapping.moves):
            git(self.root, "mv", old, f".renaming-{number}")
        for number, new in enumerate(self.mapping.moves.values()):
            (self.root / new).parent.mkdir(parents=True, exist_ok=True)
            git(self.root, "mv", f".renaming-{number}", new)
        for path, text in self.new_packages().items():
            (self.root / path).write_text(text, encoding="utf-8")
            git(self.root, "add", path)
        for old in self.mapping.moves:
            folder = (self.root / old).parent
            while folder != self.root and folder.is_dir() and not _holds(folder):
                _remove(folder)
                folder = folder.parent
        self._lonely_packages()

    def _lonely_packages(self) -> None:
        for folder in sorted({str(Path(old).parent) for old in self.mapping.moves}):
            rest = [path.name for path in (self.root / folder).glob("*") if path.name != "__pycache__"]
            if rest == ["__init__.py"]:
                self.report.doubts.append(f"{folder}: only __init__.py is left")


def _holds(folder: Path) -> bool:
    return any("__pycache__" not in path.parts for path in folder.rglob("*") if path.is_file())


def _remove(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    folder.rmdir()
