"""Starts every part of a cluster as a process of its own, kills them at random moments, and starts them again.

The processes are those a user starts: `kai server`, `kai run scheduler`, ...  They are killed with SIGKILL, in the
middle of whatever they do, and come back after a pause of up to two seconds.  The server keeps its state in SQLite.

`Soak.run` returns the problems that the checker found in the recording; an empty list is a pass.
"""

from __future__ import annotations

import asyncio
import random
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pykai.api.timestamp import format_timestamp
from pykai.kube.client import Client
from pykai.kube.credentials import connect
from pykai.kube.errors import AlreadyExists, ConnectionLost, NotFound, ServerFailed
from pykai.kube.resources import BIND_REQUESTS, JOBS, NODES, PODS, QUEUES, Resource
from pykai.simulator.machines.nodes import node_objects
from pykai.simulator.scenario import machine_kind, queue_object
from pykai.simulator.soak import load
from pykai.simulator.soak.checking import check, is_complete, read_recording
from pykai.simulator.soak.recording import READY

#: what may be killed, and the arguments that start it; `{...}` are filled in
PARTS: dict[str, tuple[str, ...]] = {
    "server": ("server", "--data", "{data}", "--port", "{port}", "--kubeconfig", "{kubeconfig}"),
    "machines": ("run", "machines", "--kubeconfig", "{kubeconfig}"),
    "scheduler": (
        *("run", "scheduler", "--kubeconfig", "{kubeconfig}"),
        *("--listen-address", "", "--plugin-server-port", "{plugins}"),
    ),
    "binder": ("run", "binder", "--kubeconfig", "{kubeconfig}"),
    "podgrouper": ("run", "podgrouper", "--kubeconfig", "{kubeconfig}"),
    "podgroups": ("run", "podgroups", "--kubeconfig", "{kubeconfig}"),
    "queues": ("run", "queues", "--kubeconfig", "{kubeconfig}"),
}
_KAI = "pykai"
_RECORDER = "pykai.simulator.soak.recording"

#: a gang may be half started that long: the default stale grace period of the scheduler
GRACE_S = 60.0
#: wall seconds after the last kill in which everything must be done
PATIENCE_S = 300.0


class SoakFailed(Exception):
    """The soak itself could not go on."""


@dataclass(slots=True)
class SoakReport:
    """How it went."""

    problems: list[str]
    #: part -> how often it was killed
    kills: dict[str, int]
    jobs: int
    lines: int
    seconds: float


@dataclass(slots=True)
class Soak:
    """One run; everything it writes goes below `folder`."""

    folder: Path
    kills: int
    seed: int = 1
    #: jobs submitted for every kill, and the shortest and longest pause between kills
    jobs_per_kill: int = 2
    pause_s: tuple[float, float] = (0.2, 2.0)
    say: Callable[[str], None] = lambda text: None
    _processes: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)
    _killed: dict[str, int] = field(default_factory=dict)
    _settings: dict[str, str] = field(default_factory=dict)
    _connected: Client | None = None

    async def run(self) -> SoakReport:
        """Start, kill, wait until all work is done, stop, and check the recording."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._settings = {
            "data": str(self.folder / "data"),
            "kubeconfig": str(self.folder / "kubeconfig"),
            "recording": str(self.folder / "recording.jsonl"),
            "port": str(_free_port()),
            "plugins": str(_free_port()),
        }
        count = self.kills * self.jobs_per_kill
        try:
            await self._begin()
            await self._kill_and_submit(count)
            await self._finish()
        finally:
            await self._stop_all()
        lines = list(read_recording(self._path("recording")))
        problems = check(lines, grace_s=GRACE_S)
        return SoakReport(problems, dict(sorted(self._killed.items())), count, len(lines), loop.time() - began_s)

    @property
    def _client(self) -> Client:
        assert self._connected is not None
        return self._connected

    def _path(self, name: str) -> Path:
        return Path(self._settings[name])

    async def _begin(self) -> None:
        await self._start("server")
        while not self._path("kubeconfig").exists():
            self._must_live("server")
            await asyncio.sleep(0.05)
        self._connected = Client(connect(self._path("kubeconfig")))
        for machines in load.machines():
            for document in node_objects(machine_kind(machines), _now()):
                await self._insist(NODES, document)
        for entry in load.QUEUES:
            await self._insist(QUEUES, queue_object(entry))
        await self._launch("recorder", _RECORDER, ("--kubeconfig", "{kubeconfig}", "--out", "{recording}"))
        for part in PARTS:
            if part != "server":
                await self._start(part)
        await self._recording_ready()

    async def _kill_and_submit(self, count: int) -> None:
        draw = random.Random(self.seed)
        work = load.jobs(self.seed, count)
        for number in range(self.kills):
            for _ in range(self.jobs_per_kill):
                await self._insist(JOBS, next(work))
            await asyncio.sleep(draw.uniform(*self.pause_s))
            # Every part is killed in turn; when and in which order is drawn.
            if number % len(PARTS) == 0:
                order = draw.sample(sorted(PARTS), len(PARTS))
            part = order[number % len(PARTS)]
            process = self._processes[part]
            self._must_live(part)
            process.send_signal(signal.SIGKILL)
            await process.wait()
            self._killed[part] = self._killed.get(part, 0) + 1
            self.say(f"kill {number + 1} of {self.kills}: {part}")
            await asyncio.sleep(draw.uniform(0.0, 2.0))
            await self._start(part)

    async def _finish(self) -> None:
        """Wait until every Job has completed, delete them, and wait until nothing of them is left."""
        self.say("waiting until every job has completed")
        await self._until(lambda: self._all(JOBS, is_complete), "jobs that do not complete")
        for job in await self._listed(JOBS):
            await self._insist_deleted(job["metadata"]["name"])
        self.say("waiting until everything is cleaned up")
        for resource in (JOBS, PODS, BIND_REQUESTS):
            await self._until(partial(self._all, resource, lambda each: False), f"{resource.plural} that stay")
        # The recorder sees the last deletion a moment later.
        await asyncio.sleep(1.0)

    async def _all(self, resource: Resource, holds: Callable[[dict[str, Any]], bool]) -> bool:
        return all(holds(each) for each in await self._listed(resource))

    async def _until(self, holds: Callable[[], Awaitable[bool]], what: str) -> None:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + PATIENCE_S
        while not await holds():
            for part in (*PARTS, "recorder"):
                self._must_live(part)
            if loop.time() > deadline_s:
                # Not raised: the checker names what is left, with all the rest.
                self.say(f"gave up after {PATIENCE_S:g} s: {what}")
                return
            await asyncio.sleep(0.3)

    async def _recording_ready(self) -> None:
        path = self._path("recording")
        while not (path.exists() and f'"resource":"{READY}"' in path.read_text(encoding="utf-8")):
            self._must_live("recorder")
            await asyncio.sleep(0.1)

    async def _start(self, part: str) -> None:
        await self._launch(part, _KAI, PARTS[part])

    async def _launch(self, part: str, module: str, arguments: Sequence[str]) -> None:
        filled = [each.format(**self._settings) for each in arguments]
        with (self.folder / f"{part}.log").open("ab") as log:
            self._processes[part] = await asyncio.create_subprocess_exec(
                sys.executable, "-m", module, *filled, stdout=log, stderr=log
            )

    def _must_live(self, part: str) -> None:
        code = self._processes[part].returncode
        if code is not None:
            raise SoakFailed(f"{part} ended by itself with code {code}; see {self.folder / part}.log")

    async def _stop_all(self) -> None:
        """End the services first, the server last."""
        for part, process in reversed(self._processes.items()):
            if process.returncode is None:
                process.terminate()
                try:
                    await asyncio.wait_for(process.wait(), 15)
                except TimeoutError:
                    self.say(f"{part} did not stop and is killed")
                    process.kill()
                    await process.wait()
        if self._connected is not None:
            await self._connected.close()

    async def _insist(self, resource: Resource, document: dict[str, Any]) -> None:
        """Create an object, however often the server dies meanwhile."""
        namespace = "default" if resource.namespaced else ""
        while True:
            try:
                await self._client.create(resource, document, namespace)
                return
            except AlreadyExists:
                return
            except (ConnectionLost, ServerFailed):
                await asyncio.sleep(0.1)

    async def _insist_deleted(self, name: str) -> None:
        while True:
            try:
                await self._client.delete(JOBS, name, "default", propagation="Background")
                return
            except NotFound:
                return
            except (ConnectionLost, ServerFailed):
                await asyncio.sleep(0.1)

    async def _listed(self, resource: Resource) -> list[dict[str, Any]]:
        while True:
            try:
                return await self._client.list_raw(resource)
            except (ConnectionLost, ServerFailed):
                await asyncio.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _now() -> str:
    return format_timestamp(time.time_ns())
