"""What every service is given, and what it has to be.

A service is made from a `Runtime` and its own options and then run until told to stop.  Services in one process share
the runtime, and with it the caches: pods are watched and decoded once, however many services read them.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock


@dataclass(frozen=True, slots=True)
class Runtime:
    """The way to the API server, shared by the services of a process."""

    client: Client
    caches: Caches
    clock: Clock


class Service(Protocol):
    """A part of the system that runs on its own."""

    @property
    def name(self) -> str:
        """`scheduler`, `binder`, ...: in logs, metrics and on the command line."""
        ...

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then finish or undo what is in flight and return."""
        ...

    def ready(self) -> bool:
        """Whether caches are filled and work is being done (or, for a standby, could be)."""
        ...
