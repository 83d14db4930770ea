"""What a new command line means for a scheduler that runs (operations:OD-10).

The operator writes the command line into the ConfigMap of a shard beside the configuration file, then replaces the pod.
Until then the old process goes on: with flags that are in force at once, and with old values of flags that decide
nothing.  Any other flag would let it place pods by rules that do not hold any more, so it stops deciding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from pykai.kube.flags import parse_command_line, set_fields
from pykai.scheduler.flags import FLAGS, Flags, read_flags

#: in force from the next cycle on
RELOADED: Final = frozenset(
    flag.name for flag in FLAGS if flag.field and not flag.field.startswith("shard.") and flag.name != "profile"
) | {"schedule-period", "min-cycle-interval"}
#: they decide nothing: the new process has the new value, the old one keeps its own until then
DECIDING_NOTHING: Final = frozenset(flag.name for flag in FLAGS if flag.no_effect) | {
    "burst",
    "fair-share-status-interval",
    "listen-address",
    "log-json",
    "metrics-namespace",
    "num-of-status-recording-workers",
    "plugin-server-port",
    # Where the file is: its content comes with the command line, from the same ConfigMap.
    "scheduler-conf",
    "qps",
    "v",
    "version",
}


class NewCommandLine(NamedTuple):
    """What of a new command line is in force at once, and what needs a new process."""

    flags: Flags
    #: the flags for which this process must not decide any more
    stopping: tuple[str, ...] = ()


def compare_command_lines(running: Flags, arguments: Sequence[str]) -> NewCommandLine:
    """The flags to go on with; raises `OptionError` if they cannot be read at all."""
    wanted = read_flags(parse_command_line(arguments))
    if wanted.problems:
        # Written for another version: the new process knows them.
        return NewCommandLine(running, tuple(each.field for each in wanted.problems))
    changed = (flag.name for flag in FLAGS if running.values[flag.name] != wanted.values[flag.name])
    stopping = tuple(f"--{name}" for name in changed if name not in RELOADED and name not in DECIDING_NOTHING)
    other = {**running.other, **{name: value for name, value in wanted.other.items() if name in RELOADED}}
    live = set_fields(replace(running, other=other), (flag for flag in FLAGS if flag.name in RELOADED), wanted.values)
    return NewCommandLine(live, stopping)
