"""The programs of Debian that `make image` uses, and how they are run.

    python -m tools.image.programs              fails with a message if no image can be built here
    python -m tools.image.programs --install    installs missing programs with apt-get first

`mmdebstrap` fetches and verifies Debian packages without changing the machine, `umoci` writes and unpacks images
without a daemon.  Both are small packages of Debian.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

#: Program -> the Debian package that has it.
NEEDED = {
    "mmdebstrap": "mmdebstrap",
    "umoci": "umoci",
    "dpkg-deb": "dpkg",
    "unshare": "util-linux",
    "mount": "mount",
    "chroot": "coreutils",
}
_ENDS_WITHIN_S = 10.0


class CannotRun(Exception):
    """A program failed; the text has its command and the end of what it said."""


def missing() -> list[str]:
    """The Debian packages whose programs are not on PATH."""
    return sorted({package for program, package in NEEDED.items() if shutil.which(program) is None})


def problems() -> list[str]:
    """Why no image can be built here, as sentences; empty if one can."""
    found = []
    if os.geteuid() != 0:
        found.append("It needs root, because it runs the interpreter of the image with chroot.")
    if packages := missing():
        found.append(f"Missing: {', '.join(packages)}. On Debian: apt-get install {' '.join(packages)}")
    return found


def install() -> None:
    """Install what is missing, if this is root on a machine with apt-get."""
    packages = missing()
    if packages and os.geteuid() == 0 and shutil.which("apt-get"):
        print(f"Installing {' and '.join(packages)} with apt-get", flush=True)
        command = ["apt-get", "install", "--quiet=2", "--yes", "--no-install-recommends", *packages]
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        try:
            run(command, env=environment)
        except CannotRun:
            # A fresh machine has no package lists, and old ones name files that mirrors no longer have.
            try:
                run(["apt-get", "update", "--quiet=2"], env=environment)
                run(command, env=environment)
            except CannotRun as error:
                print(error, file=sys.stderr)


def run(command: Sequence[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    """What a program prints; it does not outlive this call, whatever interrupts it."""
    process = subprocess.Popen(
        command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        output, _ = process.communicate()
    except BaseException:
        end(process)
        raise
    if process.returncode != 0:
        shown = "\n".join(output.splitlines()[-20:])
        raise CannotRun(f"{' '.join(map(str, command))} ended with {process.returncode}:\n{shown}")
    return output


def end(process: subprocess.Popen[str]) -> None:
    """Ask a process to end, so that it can clean up; kill it if it does not."""
    process.terminate()
    try:
        process.wait(_ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def interrupt_on_sigterm() -> None:
    """Let SIGTERM raise as Ctrl-C does, so that temporary folders are removed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def banner(lines: Sequence[str]) -> str:
    """A message that cannot be overlooked among the output of a build."""
    stars = "*" * 70
    return "\n".join(["", stars, *(f"**  {line}" for line in lines), stars, ""])


if __name__ == "__main__":
    if "--install" in sys.argv[1:]:
        install()
    if left := problems():
        print(banner(["NO IMAGE: it is neither built nor tested here.", *left]), file=sys.stderr)
        sys.exit(1)
