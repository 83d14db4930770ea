"""Compares what an old and a new installation decide, say and write, byte for byte.

    python -m tools.compare --old OLD/.venv/bin/python --old-tree OLD --new .venv/bin/python --cases FOLDER

Each interpreter has its own installed PyKAI and runs `runner.py`; both get the same input:

- cases: recorded cases of a folder, every cycle of each, and whether they come out as recorded;
- clusters: random clusters, several cycles each with one model and one memory, and events in between;
- story: what all services write to each object of the embedded API server in the story of `tests/faults`, which is
  taken from the source tree that belongs to the interpreter.

Ends with status 1 at the first difference, and names its case, cycle and field.  The hash seeds of both sides differ,
so that an order that depends on them is found as well.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tools.compare.counting import Counts
from tools.compare.differing import first_difference

_RUNNER = Path(__file__).with_name("runner.py")
_PARTS = ("cases", "clusters", "story")


@contextmanager
def _running(python: Path, seed: int, arguments: list[str], folder: Path) -> Iterator[IO[str]]:
    """The lines of a runner; its errors go to ours."""
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTHONPATH", None)
    # An absolute path that is not resolved: an interpreter in a virtual environment is a link.
    command = [os.path.abspath(python), str(_RUNNER), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, cwd=folder, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise SystemExit(f"{python} {' '.join(arguments)}: ended with status {process.returncode}")


class Different(Exception):
    """The first difference; the text names it."""


def _compare(part: str, options: argparse.Namespace) -> None:
    """Compare a part; raises `Different`, which also ends both runners."""
    given = {
        "cases": ([str(options.cases)], [str(options.cases)]),
        "clusters": ([str(options.clusters), str(options.seed), str(options.cycles)],) * 2,
        "story": ([str(options.old_tree)], [str(options.new_tree)]),
    }
    old_arguments, new_arguments = given[part]
    began_s, counts = time.monotonic(), Counts()
    with (
        _running(options.old, 1, [part, *old_arguments], options.old_tree) as old,
        _running(options.new, 2, [part, *new_arguments], options.new_tree) as new,
    ):
        for number, ours in enumerate(new, 1):
            theirs = old.readline()
            if not theirs:
                raise Different(f"{part}: the old installation ends after {number - 1} lines")
            counts.add(json.loads(ours))
            ignored = {"ignore_own": options.ignore_own_sentences, "ignore_work": options.ignore_work}
            if text := first_difference(theirs, ours, **ignored):
                raise Different(text)
        if old.readline():
            raise Different(f"{part}: the new installation ends before the old one")
    for line in counts.lines():
        print(f"  {line}")
    if not counts.total:
        raise Different(f"{part}: nothing was compared")
    print(f"{part}: {counts.total} lines equal, {time.monotonic() - began_s:.0f} s", flush=True)


def main() -> int:
    """Compare; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(_PARTS)}; all when left out")
    parser.add_argument("--old", type=Path, required=True, metavar="PYTHON", help="interpreter of the old installation")
    parser.add_argument("--new", type=Path, default=Path(sys.executable), metavar="PYTHON", help="of the new one")
    parser.add_argument("--old-tree", type=Path, required=True, help="source tree of the old one, for its tests")
    parser.add_argument("--new-tree", type=Path, default=Path.cwd(), help="source tree of the new one")
    parser.add_argument("--cases", type=Path, default=Path("../shared/conformance"), help="folder of recorded cases")
    parser.add_argument("--clusters", type=int, default=200, help="how many random clusters")
    parser.add_argument("--cycles", type=int, default=3, help="cycles of each of them")
    parser.add_argument("--seed", type=int, default=1, help="another seed, other clusters")
    parser.add_argument(
        "--ignore-own-sentences",
        action="store_true",
        help="compare decisions, figures, ids and sentences of KAI Scheduler, not sentences that are ours",
    )
    parser.add_argument("--ignore-work", action="store_true", help="compare all but the units of work that a plan took")
    options = parser.parse_args()
    if unknown := [part for part in options.parts if part not in _PARTS]:
        parser.error(f"no such part: {', '.join(unknown)}")
    for name in ("cases", "old_tree", "new_tree"):
        path = getattr(options, name).resolve()
        setattr(options, name, path)
        if not path.is_dir():
            parser.error(f"{path}: no such folder")
    try:
        for part in options.parts or _PARTS:
            _compare(part, options)
    except Different as difference:
        print(difference)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
