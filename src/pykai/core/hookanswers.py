"""Checks of what hooks of third-party plugins return: each function returns the value or raises.

A value of the wrong kind or length would raise later, far from the plugin that returned it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from math import isnan
from numbers import Real
from typing import Any, Final

#: Names of the ways to choose victims, see `eviction/scenarios.py`.
GENERATOR_NAMES: Final = ("NodeLocalGreedy", "MultiNodeGang")


def any_answer(answer: Any) -> Any:
    """Any value."""
    return answer


def no_answer(answer: Any) -> None:
    """A hook that is called for its effect."""


def number(answer: Any) -> float:
    """A number, but not NaN."""
    value = float(answer)
    if isnan(value):
        raise ValueError("answered a value that is not a number")
    return value


def sort_key(answer: Any) -> tuple[Any, ...]:
    """A tuple of numbers."""
    if not isinstance(answer, tuple) or not all(isinstance(part, Real) and part == part for part in answer):
        raise TypeError(f"answered {answer!r}, expected a tuple of numbers")
    return answer


def hashable(answer: Any) -> Hashable:
    """A valid key of a dict."""
    hash(answer)
    checked: Hashable = answer
    return checked


def texts_by_name(answer: Any) -> dict[str, str]:
    """Texts by name."""
    if not isinstance(answer, dict) or not all(isinstance(part, str) for item in answer.items() for part in item):
        raise TypeError(f"answered {answer!r}, expected a dict of texts")
    return answer


def generator_names(answer: Any) -> tuple[str, ...]:
    """Names of ways to choose victims."""
    generators = () if isinstance(answer, str) else tuple(answer)
    if isinstance(answer, str) or not all(isinstance(name, str) for name in generators):
        raise TypeError(f"answered {answer!r}, expected names")
    if unknown := [name for name in generators if name not in GENERATOR_NAMES]:
        raise ValueError(f"named {', '.join(unknown)}, known are {', '.join(GENERATOR_NAMES)}")
    return generators


def optional(kind: type) -> Callable[[Any], Any]:
    """A record of this kind, or None."""

    def read(answer: Any) -> Any:
        if answer is not None and not isinstance(answer, kind):
            raise TypeError(f"answered {type(answer).__name__}, expected {kind.__name__} or None")
        return answer

    return read
