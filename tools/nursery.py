"""A process that has imported everything but the project, and forks for every run of the tests.

Most of what a short run of pytest costs is importing pytest, Hypothesis and NumPy. `tools/mutants.py` starts one of
these for each copy of the tree and asks it for run after run: a line of JSON with pytest's arguments comes in, a line
with the exit status (null when the time was up) and the output goes out. Each run is a fork in a session of its own, so
nothing it imports or changes stays, and whatever it started dies with it.

    python tools/nursery.py SECONDS
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import tempfile
import time
from contextlib import suppress
from typing import TextIO

#: What the tests import that is not the project's; a name that is not installed is passed over.
FOREIGN = (
    "numpy",
    "msgspec",
    "yaml",
    "click.testing",
    "rich.table",
    "cel_expr_python.cel",
    "pytest",
    "_pytest.pytester",
    "pytest_timeout",
    "xdist.plugin",
    "hypothesis",
    "hypothesis.strategies",
    "hypothesis.extra.numpy",
    "_hypothesis_pytestplugin",
)


def run(arguments: list[str], timeout_s: float) -> tuple[int | None, str]:
    """Run pytest in a fork; its exit status, None when it did not end in time, and its output."""
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if not child:
            _be_pytest(arguments, output.fileno())

        def end(*_: object) -> None:
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            sys.exit(1)

        before = signal.signal(signal.SIGTERM, end)
        status = _wait(child, time.monotonic() + timeout_s)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        if status is None:
            os.waitpid(child, 0)
        signal.signal(signal.SIGTERM, before)
        output.seek(0)
        return status, output.read().decode(errors="replace")


def _be_pytest(arguments: list[str], output: int) -> None:
    status = 3
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for stream in (1, 2):
            os.dup2(output, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        import pytest

        status = int(pytest.main(arguments))
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _wait(child: int, end: float) -> int | None:
    """The exit status of a child, None when the time is up; a child that a signal ended counts as pytest's failure."""
    pause = 0.001
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 3
        if time.monotonic() > end:
            return None
        time.sleep(pause)
        pause = min(2 * pause, 0.02)


def serve(asked: TextIO, told: TextIO, timeout_s: float) -> None:
    """Answer until nobody asks any more."""
    for name in FOREIGN:
        with suppress(ImportError):
            importlib.import_module(name)
    for line in asked:
        status, output = run(json.loads(line), timeout_s)
        told.write(json.dumps([status, output]) + "\n")
        told.flush()


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout, float(sys.argv[1]))
