"""Processes of a soak: started, killed at any point, restarted, and stopped at the end.

Each has a name and appends to `<name>.log` in one folder across restarts.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

#: how long a process may take to stop
_STOP_TIMEOUT_S = 15.0


class SoakFailed(Exception):
    """The soak itself failed."""


class Processes:
    """Python programs by name; `stop` ends them, last started first."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._log = say
        self._running: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, name: str, module: str, arguments: Sequence[str]) -> None:
        """Start a program."""
        with (self._folder / f"{name}.log").open("ab") as log:
            self._running[name] = await asyncio.create_subprocess_exec(
                sys.executable, "-m", module, *arguments, stdout=log, stderr=log
            )

    async def kill(self, name: str) -> None:
        """Kill a program with SIGKILL; raises `SoakFailed` if it has ended before."""
        self.check_alive(name)
        process = self._running[name]
        process.kill()
        await process.wait()

    def check_alive(self, *names: str) -> None:
        """Raise `SoakFailed` if one of these, or any if none is named, has ended by itself."""
        for name in names or list(self._running):
            code = self._running[name].returncode
            if code is not None:
                raise SoakFailed(f"{name} ended by itself with code {code}; see {self._folder / name}.log")

    def pids(self) -> Mapping[str, int]:
        """The running processes."""
        return {name: process.pid for name, process in self._running.items() if process.returncode is None}

    async def stop(self) -> None:
        """Terminate all, and kill those that do not stop."""
        while self._running:
            name, process = self._running.popitem()
            if process.returncode is None:
                process.terminate()
                try:
                    await asyncio.wait_for(process.wait(), _STOP_TIMEOUT_S)
                except TimeoutError:
                    self._log(f"{name} did not stop and is killed")
                    process.kill()
                    await process.wait()
