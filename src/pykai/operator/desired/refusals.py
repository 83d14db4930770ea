"""Configurations that cannot work, and parts of them that are left out."""

from __future__ import annotations

from typing import NamedTuple


class Refused(ValueError):
    """A field whose value cannot work; nothing that runs is changed."""

    def __init__(self, path: str, text: str) -> None:
        super().__init__(f"{path}: {text}" if path else text)


class LeftOut(NamedTuple):
    """A field that is known to have no effect."""

    path: str
    text: str
    #: of the event that says so
    reason: str = "UnknownArgument"

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"
