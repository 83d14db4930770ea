"""Names in text: strings, comments, documents, TOML, the Makefile.

Full names of modules (`pykai.core.census`) and paths (`src/pykai/core/census.py`) are replaced wherever they stand;
so are names of renamed things after them (`pykai.core.census:Kind`, `tests/core/test_census.py::test_kind`). In prose,
which is documents, comments and docstrings, short forms are replaced too: `core/census.py`, `core.census`,
`Gang.open` and distinctive names, the latter two between backticks only. What is left is listed by `leftovers`.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from collections.abc import Mapping as Table

from tools.renaming.mapping import Mapping, module_of
from tools.renaming.sources import Source

_BACKTICKS = re.compile(r"```.*?```|``[^`\n]+``|`[^`\n]+`", re.DOTALL)
_SHORT = "pykai."


class Texts:
    """Replacements in text."""

    def __init__(self, mapping: Mapping, things: Table[str, str], modules: Iterable[str]) -> None:
        """`things`: renamed things by full name; `modules`: all modules there are."""
        self._mapping = mapping
        self._things = dict(things)
        self._modules = set(modules)
        roots = sorted({name.partition(".")[0] for name in modules})
        self._dotted = re.compile(rf"(?<![\w./-])(?:{'|'.join(roots)})(?:\.\w+)+(?::[\w.]+)?")
        tops = sorted({path.partition("/")[0] for path in [*mapping.moves, "src", "tests"]})
        self._path = re.compile(rf"(?<![\w.-])(?:{'|'.join(tops)})(?:/[\w.-]+)+(?:::\w+)?")
        inside = sorted({path.split("/")[2] for path in mapping.moves if path.startswith("src/pykai/")})
        self._short_path = re.compile(rf"(?<![\w./-])(?:{'|'.join(inside)})(?:/[\w-]+)+\.py\b") if inside else None
        shorts = sorted({name.split(".")[1] for name in mapping.modules if name.startswith(_SHORT)})
        self._short_dotted = re.compile(rf"(?<![\w./-])(?:{'|'.join(shorts)})(?:\.\w+)+") if shorts else None
        self._files = self._unique_files()
        #: `Class.member` of renamed members, and functions with their module's last part
        self._members = {}
        for name, new in self._things.items():
            *_, owner, last = name.split(".")
            self._members[f"{owner}.{last}"] = f"{owner}.{new}"

    def _unique_files(self) -> dict[str, str]:
        """File names that only one module has, and that change."""
        endings: dict[str, int] = {}
        for module in self._modules:
            endings[module.rpartition(".")[2]] = endings.get(module.rpartition(".")[2], 0) + 1
        found = {}
        for old, new in self._mapping.modules.items():
            before, after = old.rpartition(".")[2], new.rpartition(".")[2]
            if before != after and endings.get(before) == 1:
                found[f"{before}.py"] = f"{after}.py"
        return found

    def dotted(self, text: str) -> str:
        """A full name after the renaming: the longest part that is a module, then things in it."""
        name, colon, inner = text.partition(":")
        parts = name.split(".")
        for end in range(len(parts), 0, -1):
            module = ".".join(parts[:end])
            if module in self._modules or module in self._mapping.modules:
                rest = parts[end:] + ([part for part in inner.split(".") if part] if colon else [])
                new_rest = list(rest)
                for at in range(len(rest)):
                    whole = ".".join([module, *rest[: at + 1]])
                    new_rest[at] = self._things.get(whole, self._mapping.names.get(rest[at], rest[at]))
                moved = self._mapping.moved_module(module)
                outer = len(parts) - end
                return ".".join([moved, *new_rest[:outer]]) + colon + ".".join(new_rest[outer:])
        return text

    def path(self, text: str) -> str:
        """A path after the renaming, with or without the id of a test."""
        name, colons, test = text.partition("::")
        tail = ""
        while name.endswith("."):
            name, tail = name[:-1], "." + tail
        module = module_of(name)
        if colons and module is not None:
            test = self._things.get(f"{module}.{test}", self._mapping.names.get(test, test))
        new = self._mapping.moves.get(name)
        if new is None:
            new = name
            for folder in sorted(self._mapping.folders, key=len, reverse=True):
                if name == folder or name.startswith(folder + "/"):
                    new = self._mapping.folders[folder] + name.removeprefix(folder)
                    break
        return new + colons + test + tail

    def changes(self, text: str, *, prose: bool) -> Iterator[tuple[int, int, str]]:
        """What to replace in a text."""
        for pattern, new in ((self._dotted, self.dotted), (self._path, self.path)):
            for match in pattern.finditer(text):
                if new(match[0]) != match[0]:
                    yield match.start(), match.end(), new(match[0])
        if not prose:
            return
        if self._short_path is not None:
            for match in self._short_path.finditer(text):
                moved = self._mapping.moves.get("src/pykai/" + match[0])
                if moved is not None:
                    yield match.start(), match.end(), moved.removeprefix("src/pykai/")
        if self._short_dotted is not None:
            for match in self._short_dotted.finditer(text):
                after = self.dotted(_SHORT + match[0]).removeprefix(_SHORT)
                if after != match[0]:
                    yield match.start(), match.end(), after
        for quoted in _BACKTICKS.finditer(text):
            for start, end, name in self._quoted(quoted[0]):
                yield quoted.start() + start, quoted.start() + end, name

    def _quoted(self, text: str) -> Iterator[tuple[int, int, str]]:
        for match in re.finditer(r"(?<![\w./])\w+\.\w+\b(?![/.]\w)", text):
            new = self._files.get(match[0]) or self._members.get(match[0])
            if new is not None:
                yield match.start(), match.end(), new
        for match in re.finditer(r"\b\w+\b", text):
            if match[0] in self._mapping.names:
                yield match.start(), match.end(), self._mapping.names[match[0]]

    def apply_python(self, source: Source) -> None:
        """Note the changes in strings and comments of a Python file, and of distinctive names everywhere."""
        names = self._mapping.names
        for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
            start = source.offset(token.start[0], 0) + token.start[1]
            if token.type == tokenize.NAME and token.string in names:
                source.rename(start, token.string, names[token.string])
            elif token.type in (tokenize.COMMENT, tokenize.STRING):
                prose = token.type == tokenize.COMMENT or '"""' in token.string[:5]
                for at, end, new in self.changes(token.string, prose=prose):
                    source.replace(start + at, start + end, new)

    def apply_text(self, source: Source) -> None:
        """Note the changes in any other file."""
        prose = source.path.endswith(".md")
        for start, end, new in self.changes(source.text, prose=prose):
            source.replace(start, end, new)


def leftovers(text: str, words: Iterable[str]) -> Iterator[tuple[int, str, bool]]:
    """Lines in which an old word still stands: number, word, and whether it looks like code there."""
    pattern = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, words))})(?![\w-])")
    for number, line in enumerate(text.splitlines(), 1):
        for match in pattern.finditer(line):
            around = line[max(match.start() - 1, 0) : match.start()], line[match.end() : match.end() + 2]
            yield number, match[0], around[0] in ("`", ".", "/") or bool(re.match(r"[`/]|\.\w", around[1]))
