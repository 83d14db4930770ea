"""The control plane of a soak: an API server that can be killed, and the rest of Kubernetes.

A soak runs on any implementation. `EmbeddedControlPlane` is `kai server` with its state in SQLite and needs nothing
else; a real control plane fits in the same way.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from pykai.dev.soak.processes import Processes

#: how to start one of the programs of PyKAI
KAI_MODULE = "pykai"


class SoakControlPlane(Protocol):
    """What a soak needs from a control plane."""

    @property
    def flags(self) -> Mapping[str, Sequence[str]]:
        """Our services to run on it, each with its flags."""
        ...

    async def start(self) -> None:
        """Start it; returns when it answers."""
        ...

    def kubeconfig(self, service: str = "") -> Path:
        """That of a service under its own account, or that of the administrator."""
        ...

    async def restart(self, pause_s: float) -> None:
        """Kill the API server in the middle of whatever it does, and start it again after a pause."""
        ...

    def check_alive(self) -> None:
        """Raise `SoakFailed` if it has ended by itself."""
        ...

    def pids(self) -> Mapping[str, int]:
        """Those of its processes that are ours to keep small."""
        ...

    async def stop(self) -> None:
        """End it."""
        ...


class EmbeddedControlPlane:
    """`kai server`; the controllers are those of `kai run machines`."""

    #: evicted pods say so, for the failure policy of the Jobs
    flags: Mapping[str, Sequence[str]] = {
        "machines": (),
        "scheduler": ("--update-pod-eviction-condition=true",),
        "binder": (),
        "podgrouper": (),
        "podgroups": (),
        "queues": (),
    }

    def __init__(self, folder: Path, say: Callable[[str], None] = lambda text: None) -> None:
        self._folder = folder
        self._processes = Processes(folder, say)
        self._port = free_port()

    async def start(self) -> None:
        await self._start()
        while not self.kubeconfig().exists():
            self.check_alive()
            await asyncio.sleep(0.05)

    def kubeconfig(self, service: str = "") -> Path:
        return self._folder / "kubeconfig"

    async def restart(self, pause_s: float) -> None:
        await self._processes.kill("server")
        await asyncio.sleep(pause_s)
        await self._start()

    def check_alive(self) -> None:
        self._processes.check_alive()

    def pids(self) -> Mapping[str, int]:
        return self._processes.pids()

    async def stop(self) -> None:
        await self._processes.stop()

    async def _start(self) -> None:
        data, kubeconfig = str(self._folder / "data"), str(self.kubeconfig())
        arguments = ("server", "--data", data, "--port", str(self._port), "--kubeconfig", kubeconfig)
        await self._processes.start("server", KAI_MODULE, arguments)


def free_port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
