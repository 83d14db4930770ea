"""`kai up` as a process of its own, and kubectl against it, as a user would."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.patience import PROGRAM_S

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
_START_TIMEOUT_S = PROGRAM_S
_EVENT_TIMEOUT_S = PROGRAM_S


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What kubectl said."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Kubectl:
    """A kubectl program that talks to one cluster."""

    program: str
    kubeconfig: Path

    def __call__(self, *arguments: str, given: str | None = None, environment: dict[str, str] | None = None) -> str:
        """Run a command that must succeed; what it printed."""
        done = self.run(*arguments, given=given, environment=environment)
        assert done.code == 0, f"kubectl {' '.join(arguments)}: {done.err or done.out}"
        return done.out

    def wait_for_output(self, text: str, *arguments: str) -> str:
        """Repeat a command until it prints this: events are written a moment after what they tell of."""
        deadline_s = time.monotonic() + _EVENT_TIMEOUT_S
        while text not in (said := self(*arguments)):
            assert time.monotonic() < deadline_s, f"kubectl {' '.join(arguments)} never said {text!r}:\n{said}"
            time.sleep(0.2)
        return said

    def run(
        self, *arguments: str, given: str | None = None, environment: dict[str, str] | None = None
    ) -> CommandResult:
        """Run a command that may fail."""
        done = subprocess.run(
            [self.program, "--kubeconfig", str(self.kubeconfig), *arguments],
            input=given,
            capture_output=True,
            text=True,
            timeout=PROGRAM_S,
            check=False,
            env={**os.environ, **(environment or {}), "KUBECACHEDIR": str(self.kubeconfig.parent / "cache")},
        )
        return CommandResult(done.returncode, done.stdout, done.stderr)


def programs() -> list[str]:
    """The kubectl on PATH, and the one built from source, where they are."""
    found = [shutil.which("kubectl"), os.environ.get("KAI_KUBECTL")]
    return [each for each in found if each]


@contextmanager
def running_cluster(folder: Path, *arguments: str) -> Iterator[Path]:
    """`kai up` with these arguments; gives the path of its kubeconfig once it is ready."""
    kubeconfig = folder / "kubeconfig"
    with (folder / "up.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "pykai", "up", "--plain", "--kubeconfig", str(kubeconfig), *arguments],
            stdout=subprocess.PIPE,
            stderr=log,
        )
    try:
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        said = b""
        while b"Ready" not in said:
            said += process.stdout.read() or b""
            assert process.poll() is None, (folder / "up.log").read_text(encoding="utf-8")
            assert time.monotonic() < deadline_s, "kai up was not ready in time"
            time.sleep(0.05)
        yield kubeconfig
    finally:
        process.terminate()
        process.wait(30)
