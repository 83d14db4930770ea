"""Recorded cases: one JSON object per line, with cluster objects, what to run and what to expect.

The format is described in the README of the case folder. A line is a case when it has an id, a clock, objects, an
expectation and either `actions` or `cycles`; anything else is an error that names file and line. Unknown fields are
kept: the runner and the comparison decide whether they support a setting or an expectation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import field

from pykai.api.timestamp import parse_timestamp

Raw = dict[str, Any]
T = TypeVar("T")


class CaseError(ValueError):
    """The folder, a file or a line cannot be used; the text says which and why."""


class Cycles(msgspec.Struct, frozen=True, rename="camel"):
    """How many whole cycles to run, and when to compare."""

    #: run this many, compare once; None = the two numbers below
    run: int | None = None
    #: cycles before the first comparison
    until_match: int = 1
    #: cycles after it, with a comparison after each
    still_match_for: int = 0
    #: what the clock moves by after a cycle
    seconds_between: float = 0.0

    @property
    def first_comparison(self) -> int:
        """The number of the cycle after which to compare first."""
        return self.run if self.run is not None else self.until_match

    @property
    def last_cycle(self) -> int:
        """The number of the last cycle."""
        return self.run if self.run is not None else self.until_match + self.still_match_for


class Case(msgspec.Struct, frozen=True, rename="camel"):
    """One recorded case."""

    id: str
    now: str
    objects: list[Raw]
    #: what the decisions must be; see `comparison.py`
    expect: Raw
    #: run these once ...
    actions: list[str] | None = None
    #: ... or whole cycles
    cycles: Cycles | None = None
    #: pod name -> state that its object does not show
    pod_states: dict[str, str] = field(default_factory=dict)
    environment: Raw = field(default_factory=dict)
    #: scheduler flags that differ from the default
    settings: Raw = field(default_factory=dict)
    #: scheduler configuration instead of the built-in one
    scheduler_conf: Raw | None = None

    def __post_init__(self) -> None:
        parse_timestamp(self.now)
        if (self.actions is None) == (self.cycles is None):
            raise ValueError("expected either actions or cycles")
        if self.cycles is not None and self.cycles.first_comparison < 1:
            raise ValueError("cycles: expected at least one")
        for index, raw in enumerate(self.objects):
            meta = raw.get("metadata")
            if not isinstance(raw.get("kind"), str) or not isinstance(meta, dict) or not meta.get("name"):
                raise ValueError(f"objects[{index}]: expected an object with kind and metadata.name")

    @property
    def now_ns(self) -> int:
        """The clock of the first cycle."""
        return parse_timestamp(self.now)


_DECODER = msgspec.json.Decoder(Case)


def read_cases(path: Path) -> Iterator[Case]:
    """The cases of one file; raises CaseError at a line that is none."""
    return read_lines(path, _DECODER)


def read_lines(path: Path, decoder: msgspec.json.Decoder[T]) -> Iterator[T]:
    """The lines of a file, empty ones left out; raises CaseError at a line that cannot be decoded."""
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    yield decoder.decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    raise CaseError(f"{path}, line {number}: not a case: {error}") from error
    except OSError as error:
        raise CaseError(f"{path}: cannot be read: {error.strerror}") from error


def case_files(folder: Path, patterns: Sequence[str] = ("*.jsonl",)) -> list[Path]:
    """The files of a folder whose names fit one of the patterns; raises CaseError when there is none."""
    if not folder.is_dir():
        raise CaseError(f"{folder}: no such folder")
    all_files = sorted(path for path in folder.glob("*.jsonl") if path.is_file())
    if not all_files:
        raise CaseError(f"{folder}: no *.jsonl files there")
    matching: set[Path] = set()
    for pattern in patterns:
        files = [path for path in all_files if fnmatchcase(path.name, pattern)]
        if not files:
            listed = ", ".join(path.name for path in all_files)
            raise CaseError(f"{folder}: no file fits {pattern}; there are {listed}")
        matching.update(files)
    return sorted(matching)
