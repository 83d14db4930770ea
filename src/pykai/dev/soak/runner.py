"""Runs every service as its own process, kills them at random times under load, and restarts them.

The processes are those a user starts: `kai run scheduler`, ... They are killed with SIGKILL and come back after a pause
of up to two seconds; so does the API server. A run has three parts: kills and restarts under load; load alone, where
the run is long enough to judge memory; and the end, when no new work comes and everything must drain.

`Soak.run` returns the problems that the checker found in the recording, and memory figures; no problem is a pass.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pykai.api.timestamp import format_timestamp
from pykai.dev.soak import workload
from pykai.dev.soak.controlplanes import KAI_MODULE, SoakControlPlane, free_port
from pykai.dev.soak.invariants import (
    RecordedChange,
    check_recording,
    is_complete,
    is_of_the_installation,
    read_recording,
)
from pykai.dev.soak.memorygrowth import MemorySampler, ProcessMemory, memory_by_process
from pykai.dev.soak.nodefaults import NodeFaults
from pykai.dev.soak.processes import Processes
from pykai.dev.soak.recorder import READY
from pykai.dev.soak.users import LoadUsers
from pykai.kube.client import Client
from pykai.kube.credentials import connect
from pykai.kube.resources import BIND_REQUESTS, JOBS, NODES, POD_GROUPS, PODS, QUEUES, RUNTIME_CLASSES, Resource
from pykai.lab.machines.nodes import machine_objects
from pykai.lab.story import machine_kind, queue_object

_RECORDER = "pykai.dev.soak.recorder"

#: how long a gang may be half started: the scheduler's default stale grace period
GANG_GRACE_S = 60.0
#: wall seconds without any change after the end of the load until remaining work counts as stuck: the Job controller
#: waits up to ten minutes before it replaces a pod that was evicted or has failed several times
NO_PROGRESS_S = 660.0
#: hard limit, even with changes
_MAX_DRAIN_S = 1800.0
#: with faults: fraction of failed requests, fraction of refused pods, clock error, and extra time for half-started
#: gangs
_FAULT_RATE, _REJECTION_RATE, _SKEW_S, _FAULT_GRACE_S = 0.02, 0.03, 3600.0, 20.0
#: from this many seconds on, kills fall into the first third of a run, and the rest shows what memory does
_LONG_RUN_S = 900.0


@dataclass(slots=True)
class SoakReport:
    """The result of a soak."""

    problems: list[str]
    #: part -> number of kills
    kills: dict[str, int]
    restarts: int
    jobs: int
    given_up: int
    scaled: int
    changes: int
    seconds: float
    memory: list[ProcessMemory]
    #: how often nodes flapped and shrank; None: faults were off
    node_faults: tuple[int, int] | None = None

    def text(self) -> str:
        """The report as text."""
        killed = ", ".join(f"{part} {count}" for part, count in self.kills.items())
        return "\n".join(
            [
                f"{sum(self.kills.values())} kills ({killed}), {self.restarts} restarts of the API server, "
                f"{self.jobs} jobs of which {self.given_up} were given up, {self.scaled} times a service was scaled, "
                f"{self.changes} changes seen, {self.seconds:.0f} s",
                *([_fault_summary(*self.node_faults)] if self.node_faults is not None else ()),
                *(f"  {life}" for life in self.memory),
                *(f"  {problem}" for problem in self.problems),
                f"{len(self.problems)} promises were broken." if self.problems else "Every promise was kept.",
            ]
        )


def _fault_summary(flaps: int, shrinks: int) -> str:
    return (
        f"{_FAULT_RATE:.0%} of all requests and watches failed, kubelets refused {_REJECTION_RATE:.0%} of all pods, "
        f"clocks were up to {_SKEW_S / 3600:g} h wrong, nodes flapped {flaps} times and shrank {shrinks} times"
    )


@dataclass(slots=True)
class Soak:
    """One run; everything it writes goes below `folder`."""

    folder: Path
    plane: SoakControlPlane
    kills: int
    restarts: int = 0
    #: how long the load lasts
    seconds: float = 120.0
    seed: int = 1
    #: how many jobs are open at any time
    at_once: int = 12
    #: whether requests, watches, nodes, kubelets and clocks fail, too
    faults: bool = False
    say: Callable[[str], None] = lambda text: None
    #: what is done under the load instead of killing processes of ours in turn; the load lasts at least as long
    trial: Callable[[], Awaitable[None]] | None = None
    _killed: dict[str, int] = field(default_factory=dict)
    _ports: dict[str, int] = field(default_factory=dict)
    _node_faults: NodeFaults | None = None

    async def run(self) -> SoakReport:
        """Start, kill, wait until all work is done, stop, and check the recording."""
        began_s = time.monotonic()
        self.folder.mkdir(parents=True, exist_ok=True)
        processes = Processes(self.folder, self.say)
        try:
            await self.plane.start()
            client = Client(connect(self.plane.kubeconfig()))
            try:
                users = LoadUsers(client, seed=self.seed, at_once=self.at_once)
                if self.faults:
                    self._node_faults = NodeFaults(client, seed=self.seed)
                await self._set_up(processes, users)
                await self._run_load(processes, users)
                await self._finish(processes, users)
            finally:
                await client.close()
        finally:
            await processes.stop()
            await self.plane.stop()
        lines = 0

        def counted() -> Iterator[RecordedChange]:
            nonlocal lines
            for seen in read_recording(self._recording):
                lines += 1
                yield seen

        self.say("checking the recording")
        problems = check_recording(counted(), grace_s=self._grace_s, submitted=users.submitted, given_up=users.given_up)
        memory = memory_by_process(self._memory)
        problems += [f"memory grows: {life}" for life in memory if life.is_long_enough and not life.is_flat]
        done = self._node_faults
        return SoakReport(
            problems,
            dict(sorted(self._killed.items())),
            self.restarts,
            len(users.submitted),
            len(users.given_up),
            users.scaled,
            lines,
            time.monotonic() - began_s,
            memory,
            (done.flaps, done.shrinks) if done is not None else None,
        )

    @property
    def _grace_s(self) -> float:
        """How long a gang may be half started: with faults, its eviction may need several attempts."""
        return GANG_GRACE_S + (_FAULT_GRACE_S if self.faults else 0.0)

    @property
    def _recording(self) -> Path:
        return self.folder / "recording.jsonl"

    @property
    def _memory(self) -> Path:
        return self.folder / "memory.jsonl"

    async def _set_up(self, processes: Processes, users: LoadUsers) -> None:
        for document in machine_objects(map(machine_kind, workload.machines()), format_timestamp(time.time_ns())):
            await users.create(RUNTIME_CLASSES if document["kind"] == "RuntimeClass" else NODES, document)
        for entry in workload.QUEUES:
            await users.create(QUEUES, queue_object(entry))
        arguments = ("--kubeconfig", str(self.plane.kubeconfig()), "--out", str(self._recording))
        await processes.start("recorder", _RECORDER, arguments)
        for part in self.plane.flags:
            await self._start(processes, part)
        while not (self._recording.exists() and _has_line_of(self._recording, READY)):
            processes.check_alive("recorder")
            await asyncio.sleep(0.1)

    async def _run_load(self, processes: Processes, users: LoadUsers) -> None:
        def pids() -> Mapping[str, int]:
            return {**processes.pids(), **self.plane.pids()}

        ends = asyncio.Event()
        working = asyncio.create_task(users.work(ends))
        sampling = asyncio.create_task(MemorySampler(self._memory, pids).run())
        playing = asyncio.create_task(
            self._node_faults.run(ends) if self._node_faults is not None else asyncio.sleep(0)
        )
        ends_s = time.monotonic() + self.seconds
        try:
            if self.trial is not None:
                await self.trial()
            else:
                await self._kill_in_turn(processes)
            while (left_s := ends_s - time.monotonic()) > 0:
                self._check_alive(processes)
                await asyncio.wait((working, sampling), timeout=min(1.0, left_s), return_when=asyncio.FIRST_COMPLETED)
                for task in (working, sampling):
                    if task.done():
                        task.result()
            ends.set()
            await working
            await playing
        finally:
            for task in (working, sampling, playing):
                task.cancel()
            await asyncio.gather(working, sampling, playing, return_exceptions=True)

    async def _kill_in_turn(self, processes: Processes) -> None:
        """Spread kills and restarts evenly; every part is killed in turn, in random order."""
        draw = random.Random(self.seed)
        count = self.kills + self.restarts
        span_s = self.seconds / 3 if self.seconds >= _LONG_RUN_S else self.seconds * 0.9
        parts = sorted(self.plane.flags)
        restarts = {round((number + 1) * count / (self.restarts + 1)) - 1 for number in range(self.restarts)}
        began_s, order, kills = time.monotonic(), list[str](), 0
        for number in range(count):
            at_s = began_s + span_s * (number + draw.uniform(0.1, 0.9)) / count
            await asyncio.sleep(max(0.0, at_s - time.monotonic()))
            self._check_alive(processes)
            pause_s = draw.uniform(0.0, 2.0)
            if number in restarts:
                self.say(f"{time.monotonic() - began_s:.0f} s: the API server is killed and started again")
                await self.plane.restart(pause_s)
                continue
            order = order or draw.sample(parts, len(parts))
            part = order.pop()
            await processes.kill(part)
            kills += 1
            self._killed[part] = self._killed.get(part, 0) + 1
            self.say(f"{time.monotonic() - began_s:.0f} s: kill {kills} of {self.kills}: {part}")
            await asyncio.sleep(pause_s)
            await self._start(processes, part)

    async def _finish(self, processes: Processes, users: LoadUsers) -> None:
        """Wait until every Job has completed, delete them, and wait until all their objects are gone."""
        await users.delete_services()
        self.say("waiting until every job has completed")
        await self._wait_until(processes, partial(_all, users, JOBS, is_complete), "jobs that do not complete")
        for job in await users.list_all(JOBS):
            await users.delete(JOBS, job["metadata"]["name"])
        self.say("waiting until everything is cleaned up")
        for resource in (JOBS, PODS, BIND_REQUESTS, POD_GROUPS):
            gone = partial(_all, users, resource, is_of_the_installation)
            await self._wait_until(processes, gone, f"{resource.plural} that stay")
        # The recorder sees the last deletion a moment later.
        await asyncio.sleep(1.0)

    async def _wait_until(self, processes: Processes, holds: Callable[[], Awaitable[bool]], what: str) -> None:
        # Progress extends the wait: a busy machine is not a failure.
        began_s = time.monotonic()
        lines, deadline_s = self._recording_size(), began_s + NO_PROGRESS_S
        while not await holds():
            self._check_alive(processes)
            if self._recording_size() > lines:
                lines, deadline_s = (
                    self._recording_size(),
                    min(time.monotonic(), began_s + _MAX_DRAIN_S) + NO_PROGRESS_S,
                )
            if time.monotonic() > deadline_s:
                # Not raised: the checker reports what is left, with everything else.
                self.say(f"gave up after {NO_PROGRESS_S:g} s without a change: {what}")
                return
            await asyncio.sleep(0.3)

    def _recording_size(self) -> int:
        """Grows with every change that the recorder sees."""
        return self._recording.stat().st_size

    def _check_alive(self, processes: Processes) -> None:
        processes.check_alive()
        self.plane.check_alive()

    async def _start(self, processes: Processes, part: str) -> None:
        arguments = ["run", part, "--kubeconfig", str(self.plane.kubeconfig(part)), *self.plane.flags[part]]
        if part == "scheduler":
            port = self._ports.setdefault(part, free_port())
            arguments += ["--listen-address", "", "--plugin-server-port", str(port)]
        if self.faults:
            arguments += self._fault_flags(part)
        await processes.start(part, KAI_MODULE, arguments)

    def _fault_flags(self, part: str) -> list[str]:
        """Fault flags of a service; the machines stand in for Kubernetes, so only their kubelets refuse pods."""
        if part == "machines":
            return ["--refused-pods", str(_REJECTION_RATE)]
        ahead_s = random.Random(f"{self.seed}/{part}").uniform(-_SKEW_S, _SKEW_S)
        return ["--inject-faults", str(_FAULT_RATE), "--clock-ahead", f"{ahead_s:.0f}"]


async def _all(users: LoadUsers, resource: Resource, holds: Callable[[dict[str, Any]], bool]) -> bool:
    return all(holds(each) for each in await users.list_all(resource))


def _has_line_of(recording: Path, resource: str) -> bool:
    return any(seen.resource == resource for seen in read_recording(recording))
