"""Processes of a soak: started, killed in the middle of whatever they do, started again, and ended at last.

Each has a name and writes to `<name>.log` in one folder, whichever life it is in.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

#: how long a process may take to end when it is asked to
_STOP_TIMEOUT_S = 15.0


class SoakFailed(Exception):
    """The soak itself could not go on."""


class Processes:
    """Python programs by name; what was started is ended by `stop`, last started first."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._log = say
        self._running: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, name: str, module: str, arguments: Sequence[str]) -> None:
        """Start a program anew."""
        with (self._folder / f"{name}.log").open("ab") as log:
            self._running[name] = await asyncio.create_subprocess_exec(
                sys.executable, "-m", module, *arguments, stdout=log, stderr=log
            )

    async def kill(self, name: str) -> None:
        """End a program at once, without a word; raises `SoakFailed` if it has ended before."""
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
        """The processes that live."""
        return {name: process.pid for name, process in self._running.items() if process.returncode is None}

    async def stop(self) -> None:
        """Ask all to end, and kill those that do not."""
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
