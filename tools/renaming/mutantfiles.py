"""The fragments of code in `mutants/*.toml`.

`old` stands in a file of the project, so it changes as that part of the file does. `new` stands nowhere: a name in it
follows the names around it, as they fared in the file (after `leaf.` the name `open` became `unplaced`). Where the file
leaves that open, the mutant is reported. Everything else in the tables is text (`texts`); a value that is a qualified
name of the mutant's file follows the renaming of that thing.

Subtle: the files are edited as text, table by table, so that comments and the way strings are written stay.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from collections.abc import Mapping as Table
from typing import Any

from tools.renaming.mapping import module_of
from tools.renaming.meanings import Report
from tools.renaming.sources import Conflict, Source
from tools.renaming.texts import Texts

_TOKEN = re.compile(r"\w+|[^\w\s]")
_FRAGMENTS = ("old", "new")
_PLAIN = frozenset({"id", "title", "file", "tests", *_FRAGMENTS})


class Habits:
    """New names of the words of one file, by the two tokens before them."""

    def __init__(self, source: Source) -> None:
        self._fates: dict[tuple[str, ...], set[str]] = defaultdict(set)
        self.words: set[str] = set()
        for before, token, start in _tokens(source.text):
            new = source.edits.get((start, start + len(token)), token)
            if new != token:
                self.words.add(token)
            for key in ((*before, token), (before[1], token), (token,)):
                self._fates[key].add(new)

    def fate(self, before: tuple[str, str], token: str) -> str | None:
        """The new name of a word; None when it is ambiguous."""
        for key in ((*before, token), (before[1], token), (token,)):
            fates = self._fates.get(key)
            if fates is not None and len(fates) == 1:
                return next(iter(fates))
        return None


def _tokens(text: str) -> Iterator[tuple[tuple[str, str], str, int]]:
    before = ("", "")
    for match in _TOKEN.finditer(text):
        yield before, match[0], match.start()
        before = (before[1], match[0])


class MutantFiles:
    """The tables of mutants, over the files they break."""

    def __init__(self, sources: Table[str, Source], texts: Texts, words: set[str], report: Report) -> None:
        """`words`: all names that change somewhere."""
        self._sources = sources
        self._texts = texts
        self._words = words
        self._report = report
        self._habits: dict[str, Habits] = {}

    def changed(self, path: str, text: str) -> str:
        """The text of a file of mutants after the renaming."""
        parts = re.split(r"^(?=\[\[)", text, flags=re.MULTILINE)
        return "".join([self._text(parts[0]), *(self._table(path, part) for part in parts[1:])])

    def _text(self, text: str) -> str:
        for start, end, new in sorted(self._texts.changes(text, prose=False), reverse=True):
            text = text[:start] + new + text[end:]
        return text

    def _table(self, path: str, raw: str) -> str:
        (tables,) = tomllib.loads(raw).values()
        table: dict[str, Any] = tables[0]
        source = self._sources.get(table.get("file", ""))
        values: dict[str, str] = {}
        if source is not None and source.edits:
            where = f"{path}: {table.get('id')} ({table.get('title')})"
            for key in _FRAGMENTS:
                if isinstance(table.get(key), str):
                    values[key] = self._fragment(source, table[key], where, table.get("old"), values.get("old"))
            module = module_of(source.path) or ""
            for key, value in table.items():
                if key not in _PLAIN and isinstance(value, str) and re.fullmatch(r"[A-Za-z_][\w.]*", value):
                    module_after = self._texts.dotted(module)
                    values[key] = self._texts.dotted(f"{module}.{value}").removeprefix(module_after + ".")
        # Fragments aside, all of the table is text.
        kept: list[str] = []
        for key in _FRAGMENTS:
            span = _span(raw, key)
            if span is not None:
                literal = raw[span[0] : span[1]]
                if key in values and values[key] != table[key]:
                    literal = _written(literal, values[key])
                kept.append(literal)
                raw = f"{raw[: span[0]]}\x00{len(kept) - 1}\x00{raw[span[1] :]}"
        for key, value in values.items():
            span = _span(raw, key)
            if key not in _FRAGMENTS and span is not None and value != table[key]:
                raw = raw[: span[0]] + json.dumps(value, ensure_ascii=False) + raw[span[1] :]
        return re.sub(r"\x00(\d+)\x00", lambda match: kept[int(match[1])], self._text(raw))

    def _fragment(self, source: Source, text: str, where: str, old: str | None, old_after: str | None) -> str:
        if source.text.count(text) == 1:
            start = source.text.index(text)
            try:
                return source.changed(start, start + len(text))
            except Conflict:
                self._report.doubts.append(f"{where}: a change crosses the border of a fragment")
                return text
        habits = self._habits.get(source.path)
        if habits is None:
            habits = self._habits[source.path] = Habits(source)
        kept = _kept(text, old, old_after) if old is not None and old_after is not None else {}
        parts: list[str] = []
        at = 0
        for before, token, start in _tokens(text):
            if token not in habits.words and token not in self._words:
                continue
            new = kept.get(start) or habits.fate(before, token)
            if new is None:
                self._report.doubts.append(f"{where}: what becomes of {token} in {text.strip()!r}?")
                continue
            parts += [text[at:start], new]
            at = start + len(token)
        return self._text("".join([*parts, text[at:]]))


def _kept(text: str, old: str, old_after: str) -> dict[int, str]:
    """Tokens of a replacement that the fragment has in the same order: their places, and what they became there."""
    tokens, replaced = list(_tokens(text)), list(_tokens(old))
    after = [token for _, token, _ in _tokens(old_after)]
    if len(after) != len(replaced):
        return {}
    matcher = difflib.SequenceMatcher(None, [each[1] for each in tokens], [each[1] for each in replaced], False)
    return {
        tokens[block.a + step][2]: after[block.b + step]
        for block in matcher.get_matching_blocks()
        for step in range(block.size)
    }


def repaired(text: str, files: Table[str, str]) -> str:
    """A file of mutants whose `old` texts follow a formatter that broke or joined lines."""
    parts = re.split(r"^(?=\[\[)", text, flags=re.MULTILINE)
    for number, raw in enumerate(parts[1:], 1):
        (tables,) = tomllib.loads(raw).values()
        old, target = tables[0].get("old"), files.get(tables[0].get("file", ""))
        span = _span(raw, "old")
        if target is None or span is None or not isinstance(old, str) or old in target:
            continue
        # A comma before a closing bracket comes and goes with the line break.
        tokens = [match[0] for match in _TOKEN.finditer(old)]
        pattern = r"\s*".join(rf",?\s*{re.escape(token)}" if token in ")]}" else re.escape(token) for token in tokens)
        found = list(re.finditer(rf"(?:^[ ]+)?{pattern}" if old[:1] == " " else pattern, target, re.MULTILINE))
        if len(found) == 1:
            parts[number] = raw[: span[0]] + _written(raw[span[0] : span[1]], found[0][0]) + raw[span[1] :]
    return "".join(parts)


def _span(raw: str, key: str) -> tuple[int, int] | None:
    """Where the string of a key stands, quotes included."""
    match = re.search(rf"^{key} = ('''|\"\"\"|'|\")", raw, re.MULTILINE)
    if match is None:
        return None
    quote = match[1]
    at = match.end()
    while True:
        end = raw.index(quote, at)
        if quote[0] == '"' and (len(raw[:end]) - len(raw[:end].rstrip("\\"))) % 2:
            at = end + 1
            continue
        end += len(quote)
        # A literal may end with quotes of its own.
        while len(quote) == 3 and raw[end : end + 1] == quote[0]:
            end += 1
        return match.start(1), end


def _written(before: str, value: str) -> str:
    """A value in the notation it had."""
    if before.startswith("'''") and "'''" not in value:
        newline = "\n" if before.startswith("'''\n") or value.startswith("\n") else ""
        return f"'''{newline}{value}'''"
    if before.startswith("'") and "'" not in value and "\n" not in value:
        return f"'{value}'"
    return json.dumps(value, ensure_ascii=False)
