"""Which statements of `docs/spec` exist, and who cites them.

A statement is cited as `cycle:PG-5`: the prefix of its document (`DOCUMENTS`) and its anchor there. A section is cited by
its number (`cycle:12`, `queues:10.1`). One prefix holds for a whole list or range: `gpu:D-12, D-17`,
`queues:Q-265 to Q-267`, `cycle:8.3 to 8.5, 13.4`. Statements of our own (`docs/spec/ours.md`) are cited by their whole
anchor: `apiserver:conflict`. `ADR 20` and `ADR-20` name a file of `docs/adr`.

    python tools/spec.py cycle:PG-5      # prints statements
    python tools/spec.py --uncited       # statements that neither src nor tests cite

Subtle: a list may go on in the next line, behind the mark of a comment. Code has names such as `gpu: int` and slices
such as `[first:2]`, so a citation is a prefix directly followed by an anchor, and a number counts only as the start of
a list or between others of it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SPEC = Path("docs/spec")
DOCUMENTS = {
    "cycle": "scheduling-cycle.md",
    "queues": "queues-and-fairness.md",
    "gpu": "gpu-sharing-and-binding.md",
    "topo": "topology.md",
    "workloads": "workloads-and-pod-groups.md",
    "operations": "operations.md",
}
OURS = "ours.md"
#: Where citations stand.
FOLDERS = ("src", "tests", "tools", "bench", "mutants", "docs", "examples")
SUFFIXES = (".py", ".md", ".toml", ".txt")
#: Sections of the documents in which each row of a table is a case that a test names.
CASES = {"cycle": ("23",), "queues": ("19",), "gpu": ("15",), "topo": ("14",), "workloads": ("13",), "operations": ("15",)}

_ANCHOR = re.compile(r'<a id="([^"]+)"></a>')
_HEADING = re.compile(r'^#{2,} <a id="(\d[\d.]*)"></a>')
_FAMILY = re.compile(r"([A-Z]+)-?(\d+)?([a-z]?)$")
#: An anchor of a statement: `PG-5`, `WK-DEP`, `O-32b`, `STM`, or a case of queues (`D13`).
_STATEMENT = r"(?:[A-Z]{1,4}-(?:\d+[a-z]?|[A-Z]{2,4})|[A-Z]\d{1,2}|STM)\b"
_SECTION = r"\d{1,2}(?:\.\d)?(?![\w%]|\.\d)"
_JOINT = r"(?:(?:,| and| or| to|;)\s+(?:#:?\s+)?(?:cases? )?| )"
_LIST = re.compile(
    rf"(?<![\w./-])({'|'.join(DOCUMENTS)}):((?:{_STATEMENT}|{_SECTION})"
    rf"(?:{_JOINT}(?:{_STATEMENT}|{_SECTION}(?=[.,;)\"'`*]|\s(?:and|to)\s)))*)"
)
_MEMBER = re.compile(rf"({_JOINT})?({_STATEMENT}|{_SECTION})")
_ADR = re.compile(r"\bADR[ -](\d+)\b")


@dataclass(frozen=True)
class Statement:
    """An anchor of a document."""

    prefix: str
    anchor: str
    #: the section in which it stands; its own number for a section
    section: str
    line: int

    @property
    def id(self) -> str:
        """How it is cited."""
        return self.anchor if self.prefix == "ours" else f"{self.prefix}:{self.anchor}"

    @property
    def is_section(self) -> bool:
        return self.anchor[0].isdigit()

    @property
    def is_case(self) -> bool:
        """A row of a table of cases, which tests name and code does not."""
        return not self.is_section and self.section.split(".")[0] in CASES.get(self.prefix, ())


@dataclass(frozen=True)
class Citation:
    """An id at a place."""

    id: str
    file: Path
    line: int


def statements(root: Path = ROOT) -> list[Statement]:
    """The anchors of all documents, in their order. One that is there twice occurs twice."""
    found: list[Statement] = []
    for prefix, name in (*DOCUMENTS.items(), ("ours", OURS)):
        section = "0"
        for number, line in enumerate((root / SPEC / name).read_text(encoding="utf-8").splitlines(), 1):
            if heading := _HEADING.match(line):
                section = heading[1]
            for anchor in _ANCHOR.findall(line):
                found.append(Statement(prefix, anchor, section, number))
    return found


def files(root: Path, folders: Iterable[str] = FOLDERS) -> Iterator[Path]:
    """What may cite a statement. The documents themselves are left out: they cite by bare ids."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES and SPEC not in path.relative_to(root).parents:
                yield path
    if "docs" in folders:
        yield from sorted(root.glob("*.md"))


def citations(path: Path, known: Iterable[Statement]) -> Iterator[Citation]:
    """The ids that a file cites, ranges taken apart."""
    text = path.read_text(encoding="utf-8")
    by_prefix: dict[str, list[str]] = {}
    for statement in known:
        by_prefix.setdefault(statement.prefix, []).append(statement.anchor)
    for match in _LIST.finditer(text):
        prefix, before = match[1], ""
        for member in _MEMBER.finditer(match[2]):
            line = text.count("\n", 0, match.start(2) + member.start(2)) + 1
            names = [member[2]]
            if (member[1] or "").strip().startswith("to"):
                names = _between(before, member[2], by_prefix[prefix])
            for name in names:
                yield Citation(f"{prefix}:{name}", path, line)
            before = member[2]
    prefixes = {anchor.split(":")[0] for anchor in by_prefix.get("ours", []) if ":" in anchor}
    if not prefixes: return
    for match in re.finditer(rf"(?<![\w./-])((?:{'|'.join(sorted(prefixes))}):[a-z0-9][\w-]*)", text):
        yield Citation(match[1], path, text.count("\n", 0, match.start()) + 1)


def _between(first: str, last: str, anchors: list[str]) -> list[str]:
    """The anchors of a range without its first; the last one even if it does not exist."""
    if first[0].isdigit() or last[0].isdigit() or first not in anchors or last not in anchors:
        return [last]
    low, high = (_FAMILY.match(name) for name in (first, last))
    if not low or not high or low[1] != high[1]:
        return [last]
    inside = []
    for anchor in anchors:
        found = _FAMILY.match(anchor)
        if found and found[1] == low[1] and found[2] and int(low[2]) < int(found[2]) <= int(high[2]):
            inside.append(anchor)
    return inside or [last]
