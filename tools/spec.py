"""The statements of `docs/spec` and their citations.

A statement is cited as `cycle:PG-5`: the prefix of its document (`DOCUMENTS`) and its anchor there. A section is cited
by its number: `cycle:12`, `queues:10.1`. One prefix holds for a list or range: `gpu:D-12, D-17`,
`queues:Q-265 to Q-267`, `queues:19.5 O2`. Statements of `docs/spec/ours.md` are cited by their whole anchor,
`kube:lease`; one without a colon counts in a line that begins with `Statements:` and as the id of a mutant.

    python tools/spec.py cycle:PG-5      # prints statements
    python tools/spec.py --uncited       # statements that neither src nor, for cases, tests cite

Subtle: a list may go on in the next line, behind the mark of a comment. A number in a list is a section only where the
list or its sentence goes on or ends behind it, because prose has numbers of its own.
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
#: The prefix of statements of our own in figures; their anchors have prefixes of their own.
OURS = "ours"
#: The section of each document whose table rows are cases: tests name them, code does not.
CASES = {"cycle": "23", "queues": "19", "gpu": "15", "topo": "14", "workloads": "13", "operations": "15"}
#: Where citations stand.
FOLDERS = ("src", "tests", "tools", "bench", "mutants", "docs", "examples")
SUFFIXES = (".py", ".md", ".toml", ".txt")

_ANCHOR = re.compile(r'<a id="([^"]+)"></a>')
_HEADING = re.compile(r'#{2,} <a id="(\d[\d.]*)"></a>')
_NUMBERED = re.compile(r"([A-Z]+-?)(\d+)[a-z]?$")
#: `PG-5`, `WK-DEP`, `O-32b`, `STM`, or a case of queues such as `D13`.
_STATEMENT = r"(?:[A-Z]{1,4}-(?:\d+[a-z]?|[A-Z]{2,4})|[A-Z]\d{1,2}|STM)\b"
_SECTION = r"\d{1,2}(?:\.\d)?(?![\w%]|\.\d)"
_JOINT = r"(?:(?:,| and| or| to|;)\s+(?:#:?\s+)?(?:cases? )?| )"
_MEMBER = re.compile(rf"({_JOINT})?({_STATEMENT}|{_SECTION})")
_LIST = re.compile(
    rf"(?<![\w./-])({'|'.join(DOCUMENTS)}):((?:{_STATEMENT}|{_SECTION})"
    rf"(?:{_JOINT}(?:{_STATEMENT}|{_SECTION}(?=[.,;)\"'`*]|\s(?:and|to)\s)))*)"
)
_BARE = re.compile(r"(?<![\w:/.-])(?:[A-Z]{2,4}|Q)-\d+[a-z]?\b(?!-)")
_LINE = re.compile(r"^\s*Statements: (.+)\.$", re.MULTILINE)
_MUTANT = re.compile(r'^id = "(.+)"$', re.MULTILINE)


@dataclass(frozen=True)
class Statement:
    """An anchor of a document."""

    #: the prefix of its document
    prefix: str
    anchor: str
    #: the section in which it stands, its own number for a section
    section: str
    #: the line that begins with it
    text: str

    @property
    def id(self) -> str:
        """How it is cited."""
        return self.anchor if self.prefix == OURS else f"{self.prefix}:{self.anchor}"

    @property
    def is_section(self) -> bool:
        """Whether it is a heading."""
        return self.anchor[0].isdigit()

    @property
    def is_case(self) -> bool:
        """Whether it is a row of a table of cases."""
        return not self.is_section and self.section.split(".")[0] == CASES.get(self.prefix)


@dataclass(frozen=True)
class Citation:
    """An id at a place."""

    id: str
    file: Path
    line: int


class Specification:
    """The statements of a tree."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        #: in the order of the documents; an anchor that is there twice occurs twice
        self.statements = tuple(_statements(root))
        self.ids = {statement.id for statement in self.statements}
        self._anchors: dict[str, list[str]] = {}
        for statement in self.statements:
            self._anchors.setdefault(statement.prefix, []).append(statement.anchor)
        prefixes = sorted({anchor.split(":")[0] for anchor in self._anchors[OURS] if ":" in anchor})
        self._all = {anchor for prefix in DOCUMENTS for anchor in self._anchors[prefix]}
        self._texts: dict[Path, str] = {}
        self._citations: dict[Path, list[Citation]] = {}
        self._ours = re.compile(rf"(?<![\w./-])(?:{'|'.join(prefixes)}):[A-Za-z0-9][\w-]*(?![\w(=])")

    def files(self, folders: Iterable[str] = FOLDERS) -> Iterator[Path]:
        """What may cite a statement: not the documents themselves, which name their own without a prefix."""
        for folder in folders:
            for path in sorted((self.root / folder).rglob("*")):
                if path.suffix in SUFFIXES and SPEC not in path.relative_to(self.root).parents:
                    yield path
            if folder == "docs":
                yield from sorted(self.root.glob("*.md"))

    def text(self, path: Path) -> str:
        """The text of a file, read once."""
        if path not in self._texts:
            self._texts[path] = path.read_text(encoding="utf-8")
        return self._texts[path]

    def citations(self, path: Path) -> list[Citation]:
        """The ids that a file cites, ranges taken apart."""
        if path not in self._citations:
            self._citations[path] = self._read(path)
        return self._citations[path]

    def _read(self, path: Path) -> list[Citation]:
        text = self.text(path)
        found = [(name, place) for match in _LIST.finditer(text) for name, place in self._members(match)]
        found += [(match[0], match.start()) for match in self._ours.finditer(text)]
        if path.suffix == ".toml":
            found += [(match[1], match.start()) for match in _MUTANT.finditer(text)]
        for match in _LINE.finditer(text):
            found += [(name, match.start()) for name in re.split(r"[,;] ", match[1]) if name in self._anchors[OURS]]
        return [Citation(name, path, text.count("\n", 0, place) + 1) for name, place in found]

    def listed(self, text: str) -> list[str]:
        """The statements that a text cites by the prefixes of the six documents."""
        return [name for match in _LIST.finditer(text) for name, _ in self._members(match)]

    def bare(self, path: Path) -> Iterator[Citation]:
        """Ids without the prefix of a document, as far as they cannot be anything else."""
        text = self.text(path)
        found = [match for match in _BARE.finditer(text) if match[0] in self._all]
        spans = [match.span() for match in _LIST.finditer(text)] if found else []
        for match in found:
            if not any(start <= match.start() < end for start, end in spans):
                yield Citation(match[0], path, text.count("\n", 0, match.start()) + 1)

    def _members(self, match: re.Match[str]) -> Iterator[tuple[str, int]]:
        prefix, before = match[1], ""
        for member in _MEMBER.finditer(match[2]):
            place = match.start(2) + member.start(2)
            ranges = (member[1] or "").strip().startswith("to")
            for name in self._between(prefix, before, member[2]) if ranges else [member[2]]:
                yield f"{prefix}:{name}", place
            before = member[2]

    def _between(self, prefix: str, first: str, last: str) -> list[str]:
        """The anchors of a range without its first; of a range that makes no sense its last."""
        low, high = _NUMBERED.match(first), _NUMBERED.match(last)
        if low is None or high is None or low[1] != high[1] or last not in self._anchors[prefix]:
            return [last]
        numbers = [(anchor, _NUMBERED.match(anchor)) for anchor in self._anchors[prefix]]
        return [
            anchor
            for anchor, number in numbers
            if number and number[1] == low[1] and int(low[2]) < int(number[2]) <= int(high[2])
        ]


def _statements(root: Path) -> Iterator[Statement]:
    for prefix, name in (*DOCUMENTS.items(), (OURS, f"{OURS}.md")):
        section = "0"
        for line in (root / SPEC / name).read_text(encoding="utf-8").splitlines():
            heading = _HEADING.match(line)
            section = heading[1] if heading else section
            for anchor in _ANCHOR.findall(line):
                yield Statement(prefix, anchor, section, _ANCHOR.sub("", line).strip())


def uncited(spec: Specification) -> list[Statement]:
    """Statements without a citation in src, and cases without one in tests; sections need none."""
    cited = {
        folder: {c.id for path in spec.files([folder]) for c in spec.citations(path)} for folder in ("src", "tests")
    }
    return [
        statement
        for statement in spec.statements
        if not statement.is_section and statement.id not in cited["tests" if statement.is_case else "src"]
    ]


def main(arguments: list[str]) -> int:
    """Print statements, or those without a citation."""
    spec = Specification()
    wanted = uncited(spec) if "--uncited" in arguments else [s for s in spec.statements if s.id in arguments]
    for statement in wanted:
        print(f"{statement.id}\t{statement.text}")
    return 0 if wanted else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
