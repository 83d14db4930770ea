"""Command-line flags of a service, read into its options.

A service has a dataclass of options and a table from flag to field; the type of the field's default says how the text
is read.  A flag that is only accepted (because a program that starts us passes it) stands in the table without a field.
An unknown flag and a bad value raise `OptionError`, which names the flag: a service that starts with other settings
than those it was given does the wrong thing unnoticed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar, cast

from pykai.api.suggestions import did_you_mean

T = TypeVar("T")

_BOOLEANS = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}


class OptionError(ValueError):
    """A flag that cannot be used; the text names it."""


def read_options(options: T, flags: Mapping[str, str], given: Mapping[str, object]) -> T:
    """The options with what was given; raises `OptionError`.

    `flags` maps names without dashes to fields, "" for what is accepted without effect.
    """
    defaults = {field.name: getattr(options, field.name) for field in fields(cast(Any, options))}
    values: dict[str, Any] = {}
    for spelled, value in given.items():
        name = spelled.lstrip("-")
        field_name = flags.get(name)
        if field_name is None:
            raise OptionError(f"--{name}: unknown flag{did_you_mean(name, flags, '--')}")
        elif field_name and value is not None:
            try:
                values[field_name] = _read(str(value), defaults[field_name])
            except ValueError as error:
                raise OptionError(f"--{name}: {value!r}: {error}") from None
    return cast(T, replace(cast(Any, options), **values))


def _read(text: str, default: object) -> object:
    if isinstance(default, bool):
        if text.lower() not in _BOOLEANS:
            raise ValueError("expected true or false")
        return _BOOLEANS[text.lower()]
    if isinstance(default, int):
        if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text) > 0):
            raise ValueError("expected a whole number of at least 1")
        return int(text)
    if isinstance(default, float):
        try:
            number = float(text)
        except ValueError:
            number = 0.0
        if not 0 < number < 1e9:
            raise ValueError("expected a number of more than 0")
        return number
    if isinstance(default, Mapping):
        return _pairs(text)
    return text


def _pairs(text: str) -> dict[str, str]:
    """`k1=v1,k2=v2`; empty text for none, the last of equal keys wins."""
    pairs: dict[str, str] = {}
    for part in text.split(",") if text else ():
        key, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"expected key=value pairs, got {part!r}")
        pairs[key.strip()] = value.strip()
    return pairs
