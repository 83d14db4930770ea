"""The entries an object holds, to be compared before and after things have come and gone."""

from __future__ import annotations

from collections.abc import Sized


def entry_counts(thing: object) -> dict[str, int]:
    """Attribute -> how many entries it has, of those that have any."""
    return {
        name: len(value)
        for name, value in vars(thing).items()
        if isinstance(value, Sized) and not isinstance(value, str) and len(value)
    }
