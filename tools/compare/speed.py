"""Compares the speed of an old and a new installation: `python -m tools.compare.speed --old OLD/.venv/bin/python`.

Runs benchmarks of both in turn (old, new, new, old, ...), each in a process of its own, so that both see the same
minutes of a noisy machine, and compares medians:

    python -m tools.compare.speed --old OLD/.venv/bin/python --rounds 5
    python -m tools.compare.speed --old OLD/.venv/bin/python fill:500 reclaim:500
    python -m tools.compare.speed --old OLD/.venv/bin/python objects:FILE cases:FILE

The last measures processor time: of one cycle on a file of objects, as `kai bench objects` does, and of the first
cycles of all recorded cases of a file together.

Ends with status 1 when a shape got slower than `--tolerance` allows. The figure for a large cluster varies less than
that for a small one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

_FIRST_CYCLES = Path(__file__).absolute().with_name("firstcycles.py")
#: shape and nodes: sizes at which one measurement takes a few seconds
SHAPES = (
    "fill:1000",
    "gang:1024",
    "full:500",
    "reclaim:500",
    "frag:500",
    "racks:1024",
    "racks64:1024",
    "living:1000",
    "apply:5000",
)


class Comparison(NamedTuple):
    """Seconds of one shape in every round."""

    shape: str
    old_s: list[float]
    new_s: list[float]

    @property
    def ratio(self) -> float:
        """Median of the new over median of the old: below 1 is faster."""
        return median(self.new_s) / median(self.old_s)

    def __str__(self) -> str:
        return f"{self.shape[-40:]:14} {median(self.old_s):9.4f} {median(self.new_s):9.4f} {self.ratio:7.3f}"


def measure(python: str, shape: str) -> float:
    """Seconds of one benchmark in a new process of an installation."""
    name, _, size = shape.partition(":")
    figure = "cpu_seconds"
    if name == "cases":
        command = [python, str(_FIRST_CYCLES), str(Path(size).absolute())]
    elif name == "objects":
        command = [python, "-m", "pykai", "bench", name, str(Path(size).absolute()), "--once", "--json"]
    else:
        figure = "seconds"
        command = [python, "-m", "pykai", "bench", name, "--nodes", size, "--json"]
    # Outside of both trees, so that each interpreter imports what it has installed.
    answer = subprocess.run(command, cwd=tempfile.gettempdir(), check=True, capture_output=True, text=True).stdout
    return float(json.loads(answer)[figure])


def compare(old: str, new: str, shape: str, rounds: int) -> Comparison:
    """Measure both in turn; which goes first alternates."""
    seconds: dict[str, list[float]] = {old: [], new: []}
    for number in range(rounds):
        for python in (old, new) if number % 2 == 0 else (new, old):
            seconds[python].append(measure(python, shape))
    return Comparison(shape, seconds[old], seconds[new])


def main(arguments: Sequence[str] | None = None) -> int:
    """The program."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.compare.speed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--old", required=True, metavar="PYTHON", help="interpreter of the old installation")
    parser.add_argument("--new", default=sys.executable, metavar="PYTHON", help="of the new one")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each")
    parser.add_argument("--tolerance", type=float, default=0.05, help="how much slower a shape may be")
    parser.add_argument("shapes", nargs="*", default=SHAPES, metavar="SHAPE:NODES", help="or objects:FILE, cases:FILE")
    given = parser.parse_args(arguments)
    # Absolute without following links: the interpreter of a virtual environment is a link.
    old, new = (str(Path(python).absolute()) for python in (given.old, given.new))
    print(f"{'shape':14} {'old s':>9} {'new s':>9} {'ratio':>7}   medians of {given.rounds}", flush=True)
    slower = 0
    for shape in given.shapes:
        comparison = compare(old, new, shape, given.rounds)
        is_slower = comparison.ratio > 1 + given.tolerance
        slower += is_slower
        print(f"{comparison}{'   slower' if is_slower else ''}", flush=True)
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
