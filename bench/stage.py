"""Shared parts of measurements on a real API server: the server, its objects, the measured programs, and meters.

The server is a running one (`--kubeconfig`), or etcd and kube-apiserver of the tests (`make cluster-programs`), without
controllers and kubelets. Programs are given as command lines with `{kubeconfig}` in them; without any, PyKAI's five
services run with their default flags.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shlex
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from bench.flood import cpu_s, peak_mib
from pykai.api import names
from pykai.api.meta import ObjectMeta, Wire
from pykai.api.timestamp import format_timestamp
from pykai.kube.client import Client
from pykai.kube.credentials import connect
from pykai.kube.errors import AlreadyExists
from pykai.kube.resources import NAMESPACES, NODES, QUEUES, Resource
from pykai.kube.transport import Request, Transport
from pykai.lab.machines.nodes import MachineKind, node_objects
from pykai.lab.story import QueueEntry, ResourceShare, queue_object
from pykai.operator.install import installation
from tests.cluster.controlplane import ControlPlane
from tests.cluster.plane import install

Document = dict[str, Any]
NAMESPACE = "bench"
_AT_ONCE = 32
_SERVICES = ("podgrouper", "scheduler", "binder", "podgroups", "queues")
SERVICE_COMMANDS = [
    f"{shlex.quote(sys.executable)} -m pykai run {name} --kubeconfig {{kubeconfig}}" for name in _SERVICES
]
#: seconds without a write that count as idle
IDLE_S = 2.0
_LOOK_EVERY_S = 0.1


class _Spec(Wire):
    node_name: str = ""


class _Condition(Wire):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _Status(Wire):
    phase: str = ""
    conditions: tuple[_Condition, ...] = ()


class SeenPod(Wire):
    """A pod: its node and conditions."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of all measurements."""
    parser.add_argument("--kubeconfig", type=Path, help="an API server that runs already; otherwise one is started")
    parser.add_argument("--run", action="append", metavar="COMMAND", help="a program; {kubeconfig} is filled in")
    parser.add_argument("--audit", action="store_true", help="keep an audit log in the folder; costs some speed")
    parser.add_argument("--folder", type=Path, help="where logs go; otherwise they are deleted at the end")
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--pods", type=int, default=4000)


@dataclass
class Stage:
    """An API server, and the programs started on it."""

    kubeconfig: Path
    folder: Path
    transport: Transport
    client: Client
    processes: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)
    plane: ControlPlane | None = None

    async def start(self, commands: Sequence[str]) -> float:
        """Start the programs; returns when the first one started."""
        began = time.monotonic()
        for command in commands or SERVICE_COMMANDS:
            words = shlex.split(command.format(kubeconfig=shlex.quote(str(self.kubeconfig))))
            name = _name(words)
            with (self.folder / f"{name}.log").open("wb") as log:
                self.processes[name] = await asyncio.create_subprocess_exec(*words, stdout=log, stderr=log)
        return began

    async def stop(self) -> None:
        """End the programs."""
        for process in self.processes.values():
            if process.returncode is None:
                process.terminate()
        for process in self.processes.values():
            await process.wait()

    async def revision(self) -> int:
        """The revision of the server's storage, which counts all writes."""
        answer = await self.transport.send(Request("GET", "/api/v1/namespaces", {"limit": "1"}))
        return int(msgspec.json.decode(answer.body)["metadata"]["resourceVersion"])

    async def wait_until_idle(self) -> tuple[float, int]:
        """Wait until writes stop; returns the time and the revision of the last write.

        Single writes do not count: the API server renews leases of its own.
        """
        last, at = await self.revision(), time.monotonic()
        while time.monotonic() - at < IDLE_S:
            self.check_alive()
            await asyncio.sleep(_LOOK_EVERY_S)
            now = await self.revision()
            if now > last + 1:
                last, at = now, time.monotonic()
        return at, last

    def check_alive(self) -> None:
        """Raise if a program has ended."""
        for name, process in self.processes.items():
            if process.returncode is not None:
                words = (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace").splitlines()[-10:]
                raise SystemExit(f"{name} ended with status {process.returncode}:\n" + "\n".join(words))

    def costs(self) -> list[str]:
        """Peak memory and processor time, one line per process."""
        lines = [_cost(name, process.pid) for name, process in self.processes.items()]
        pids = [process.pid for process in self.processes.values()]
        lines.append(_cost("together", *pids))
        if self.plane is not None:
            lines += [f"{_cost(name, self.plane.pid(name))}, all in all" for name in self.plane.programs]
        return lines

    async def create_all(self, resource: Resource, documents: Iterable[Document], namespace: str = "") -> None:
        """Create objects, several at a time."""
        waiting = iter(documents)

        async def worker() -> None:
            for document in waiting:
                with contextlib.suppress(AlreadyExists):
                    await self.client.create(resource, document, namespace)

        await asyncio.gather(*(worker() for _ in range(_AT_ONCE)))

    async def patch_all(
        self, resource: Resource, patches: Iterable[tuple[str, Document, str]], namespace: str = ""
    ) -> None:
        """Merge (name, patch, subresource) into objects, several at a time."""
        waiting = iter(patches)

        async def worker() -> None:
            for name, patch, subresource in waiting:
                await self.client.patch(resource, name, patch, namespace, subresource=subresource)

        await asyncio.gather(*(worker() for _ in range(_AT_ONCE)))

    async def set_up(self, nodes: int, queues: Sequence[QueueEntry]) -> list[str]:
        """Create our CRDs, machines of eight GPUs, queues and a namespace; returns the names of the machines."""
        await install(self.transport, installation())
        await self.create_all(NAMESPACES, [{"metadata": {"name": NAMESPACE}}])
        machines = node_objects(MachineKind(count=nodes, name="bench-{}", gpus=8), format_timestamp(time.time_ns()))
        await self.create_all(NODES, machines)
        node_names = [machine["metadata"]["name"] for machine in machines]
        # No controller removes the taint of new nodes here.
        await self.patch_all(NODES, [(name, {"spec": {"taints": None}}, "") for name in node_names])
        await self.create_all(QUEUES, [queue_object(entry) for entry in queues])
        return node_names


def gpu_pod(
    name: str, queue: str, *, gpus: int = 1, scheduler: str = names.SCHEDULER_NAME, group: str = ""
) -> Document:
    """A pod that requests GPUs; with a group it needs no grouper."""
    resources = {
        "requests": {"cpu": "1", "memory": "1Gi", names.NVIDIA_GPU: str(gpus)},
        "limits": {names.NVIDIA_GPU: str(gpus)},
    }
    metadata: Document = {"name": name, "labels": {names.QUEUE_LABEL: queue}}
    if group:
        metadata["annotations"] = {names.POD_GROUP_ANNOTATION: group}
    containers = [{"name": "main", "image": "none", "resources": resources}]
    spec = {"schedulerName": scheduler, "terminationGracePeriodSeconds": 0, "containers": containers}
    return {"metadata": metadata, "spec": spec}


def pod_group(name: str, queue: str, minimum: int = 1) -> Document:
    """A PodGroup."""
    return {
        "metadata": {"name": name, "labels": {names.QUEUE_LABEL: queue}},
        "spec": {"queue": queue, "minMember": minimum},
    }


def shared_queue(name: str, quota: float) -> QueueEntry:
    """A queue with a quota of GPUs."""
    return QueueEntry(name=name, gpu=ResourceShare(quota=quota))


@contextlib.asynccontextmanager
async def stage(options: argparse.Namespace) -> AsyncIterator[Stage]:
    """The server that the options name, or a new one."""
    with contextlib.ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        plane = None
        path = options.kubeconfig
        if path is None:
            plane = stack.enter_context(ControlPlane(folder / "plane", audit=options.audit))
            path = plane.kubeconfig
        transport = connect(path)
        running_stage = Stage(path, folder, transport, Client(transport), plane=plane)
        try:
            yield running_stage
        finally:
            await running_stage.stop()
            await transport.close()


def _cost(name: str, *pids: int) -> str:
    peak, used = sum(map(peak_mib, pids)), sum(map(cpu_s, pids))
    return f"  {name:<24} peak {peak:6.0f} MiB   {used:6.1f} s of processor"


def _name(words: Sequence[str]) -> str:
    """The name of a command: `scheduler` for `kai run scheduler ...`, else that of its program."""
    if "run" in words[:-1]:
        return words[words.index("run") + 1]
    return Path(words[0]).name
