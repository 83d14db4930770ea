"""What a check has found: how bad, what, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final

import msgspec

_SHOWN: Final = 3


class Severity(IntEnum):
    """How bad something is; the value is the exit code of `kai doctor` (doctor:exit)."""

    #: worth knowing
    INFO = 0
    #: works, but not as meant, or not for long
    WARNING = 1
    #: something does not work
    ERROR = 2

    @property
    def label(self) -> str:
        """As it is printed."""
        return self.name.lower()


class Finding(msgspec.Struct, frozen=True):
    """One thing to know or to fix; all texts are for people, `code` is for programs."""

    severity: Severity
    code: str
    #: the object
    where: str
    what: str
    #: what to do
    fix: str
    #: the number that decides, with its unit; empty where there is none
    figure: str = ""


def listed(names: Iterable[str]) -> str:
    """The first names, and how many more there are."""
    found: Sequence[str] = sorted(names)
    more = len(found) - _SHOWN
    return ", ".join(found[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def counted(number: int, noun: str) -> str:
    """`1 queue`, `2 queues`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
