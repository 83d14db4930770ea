"""Flags that a Config or a SchedulingShard gives by name, for what none of its other fields says.

They are checked against the table of the service before anything is written: a flag that the service does not know
would keep its pods from starting.  Such a flag is left out and reported, as KAI does with those of shards; a value that
cannot be read is refused with its path, so that what runs goes on as it is.

Statements: operations:O-13, E-19, OD-3; install:args.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pykai.api.suggestions import did_you_mean
from pykai.operator.desired.refusals import LeftOut, Refused
from pykai.services.table import SERVICES


class GivenFlags(NamedTuple):
    """What goes on the command line, by name, and what does not."""

    values: dict[str, str]
    left_out: list[LeftOut]

    def arguments(self) -> list[str]:
        """The end of a command line."""
        return [f"--{name}={value}" for name, value in self.values.items()]


def given_flags(
    service: str, given: Mapping[str, str] | None, path: str, *, title: str = "", computed: Iterable[str] = ()
) -> GivenFlags:
    """The flags of `kai run SERVICE` at a path, ordered by name; raises `Refused`.

    `computed` is the command line that follows from other fields: what is on it stays.
    """
    flags = SERVICES[service].all_flags()
    taken = {each.removeprefix("--").partition("=")[0] for each in computed if each.startswith("--")}
    found = GivenFlags({}, [])
    for name, value in sorted((given or {}).items()):
        where = f"{path}.{name}"
        flag = flags.get(name)
        if flag is None:
            text = f"{title or service} has no flag --{name}{did_you_mean(name, flags)}"
            found.left_out.append(LeftOut(where, text))
        elif name in taken:
            text = f"--{name} follows from other fields of the Config, which hold"
            found.left_out.append(LeftOut(where, text, "OverriddenArgument"))
        else:
            try:
                flag.read(value)
            except ValueError as error:
                raise Refused(where, f"{value!r}: {error}") from None
            found.values[name] = value
    return found
