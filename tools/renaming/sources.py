"""The text of one file, and changes to it by position.

All changes of a run are computed on the files as they were, and applied at once. Two of them may say the same about
the same place, since several rules may find it; two that say different things are an error of the mapping.

Subtle: `ast` and mypy count columns in bytes of UTF-8, Python strings in characters.
"""

from __future__ import annotations

import ast
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path


class Conflict(Exception):
    """Two changes of the same place."""


@dataclass(frozen=True, order=True)
class Edit:
    """Characters to replace."""

    start: int
    end: int
    text: str


@dataclass
class Source:
    """A file and its changes."""

    #: relative to the root
    path: str
    text: str
    edits: dict[tuple[int, int], str] = field(default_factory=dict)

    @classmethod
    def read(cls, root: Path, path: str) -> Source:
        """A file of the tree."""
        return cls(path, (root / path).read_text(encoding="utf-8"))

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax."""
        return ast.parse(self.text, self.path)

    @cached_property
    def _lines(self) -> list[str]:
        # Not `splitlines`: a form feed ends no line of Python.
        return self.text.split("\n")

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        for line in self._lines:
            starts.append(starts[-1] + len(line) + 1)
        return starts

    def offset(self, line: int, column: int) -> int:
        """The place of a line (from 1) and a column in bytes."""
        text = self._lines[line - 1]
        if not text.isascii():
            column = len(text.encode()[:column].decode(errors="ignore"))
        return self._starts[line - 1] + column

    def line_of(self, offset: int) -> int:
        """The line (from 1) of a place."""
        return bisect_right(self._starts, offset)

    def span(self, node: ast.expr | ast.stmt | ast.arg | ast.keyword | ast.alias | ast.pattern) -> tuple[int, int]:
        """Where a node stands."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)

    def replace(self, start: int, end: int, text: str) -> None:
        """Note a change."""
        if self.text[start:end] == text:
            return
        before = self.edits.setdefault((start, end), text)
        if before != text:
            raise Conflict(f"{self.path}:{self.line_of(start)}: {self.text[start:end]!r} to {before!r} or {text!r}")

    def rename(self, start: int, old: str, new: str) -> bool:
        """Note that the name at a place changes; False when another text stands there."""
        if self.text[start : start + len(old)] != old:
            return False
        self.replace(start, start + len(old), new)
        return True

    def sorted_edits(self) -> list[Edit]:
        """The changes in the order of the text; a change inside another one is part of it."""
        ordered = sorted((start, -end, text) for (start, end), text in self.edits.items())
        kept: list[Edit] = []
        for start, negative, text in ordered:
            if kept and start < kept[-1].end:
                if -negative <= kept[-1].end:
                    continue
                raise Conflict(f"{self.path}:{self.line_of(start)}: changes overlap")
            kept.append(Edit(start, -negative, text))
        return kept

    def changed(self, start: int = 0, end: int | None = None) -> str:
        """The text, or a part of it, after the changes."""
        end = len(self.text) if end is None else end
        parts = []
        at = start
        for edit in self.sorted_edits():
            if edit.end <= start or edit.start >= end:
                continue
            if edit.start < at or edit.end > end:
                raise Conflict(f"{self.path}:{self.line_of(edit.start)}: a change crosses the border of a fragment")
            parts += [self.text[at : edit.start], edit.text]
            at = edit.end
        return "".join([*parts, self.text[at:end]])
