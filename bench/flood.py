"""Binding throughput: creates nodes and pods through an API server and watches until every pod has a node.

    python bench/flood.py                        starts `kai up --scenario none` and floods it over HTTPS
    python bench/flood.py --kubeconfig F         floods a cluster that runs already

Prints pods per second from the first create to the last node name on its watch, and, if it started the cluster itself,
the peak memory of that process.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from pykai.api import names
from pykai.api.meta import ObjectMeta, Wire
from pykai.api.timestamp import format_timestamp
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.credentials import connect
from pykai.kube.errors import AlreadyExists, KubeError
from pykai.kube.resources import NAMESPACES, NODES, PODS, QUEUES
from pykai.lab.machines.nodes import MachineKind, node_objects
from pykai.lab.story import QueueEntry, ResourceShare, queue_object

_AT_ONCE = 64


class _Spec(Wire):
    node_name: str = ""


class _Status(Wire):
    phase: str = ""


class BoundPod(Wire):
    """A pod and its node."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


def pod(number: int) -> dict[str, Any]:
    """A pod that requests one GPU."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"flood-{number}", "labels": {names.QUEUE_LABEL: "flood"}},
        "spec": {
            "schedulerName": names.SCHEDULER_NAME,
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "main",
                    "image": "simulated",
                    "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {names.NVIDIA_GPU: 1}},
                }
            ],
        },
    }


async def create_all(client: Client, resource: Any, documents: list[dict[str, Any]], namespace: str = "") -> None:
    """Create objects, several at a time."""
    waiting = iter(documents)

    async def worker() -> None:
        for document in waiting:
            with contextlib.suppress(AlreadyExists):
                await client.create(resource, document, namespace)

    await asyncio.gather(*(worker() for _ in range(_AT_ONCE)))


async def flood(client: Client, nodes: int, pods: int) -> dict[str, float]:
    """Create everything and wait until it is bound, then until it runs; returns seconds from the first pod."""
    now = format_timestamp(time.time_ns())
    await create_all(client, NODES, node_objects(MachineKind(count=nodes, name="flood-{}", gpus=8), now))
    await create_all(client, QUEUES, [queue_object(QueueEntry(name="flood", gpu=ResourceShare(quota=pods)))])
    await create_all(client, NAMESPACES, [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "flood"}}])
    caches = Caches(client)
    store = caches.store(PODS, BoundPod, namespace="flood")
    bound: set[str] = set()
    running: set[str] = set()
    all_bound, all_running = asyncio.Event(), asyncio.Event()

    def changed(change: Any) -> None:
        if change.new is None:
            return
        if change.new.spec.node_name:
            bound.add(change.key)
        if change.new.status.phase == "Running":
            running.add(change.key)
        if len(bound) == pods:
            all_bound.set()
        if len(running) == pods:
            all_running.set()

    store.subscribe(changed)
    await caches.start()
    await caches.wait_for_sync()
    began = time.monotonic()
    await create_all(client, PODS, [pod(number) for number in range(pods)], "flood")
    created = time.monotonic()
    await all_bound.wait()
    ended = time.monotonic()
    await all_running.wait()
    ran = time.monotonic()
    await caches.stop()
    return {"created_s": created - began, "bound_s": ended - began, "running_s": ran - began}


def peak_mib(pid: int) -> float:
    """Peak memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return float("nan")


def cpu_s(pid: int) -> float:
    """The processor time a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", type=Path)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--pods", type=int, default=4000)
    options = parser.parse_args()
    process = None
    with tempfile.TemporaryDirectory() as folder:
        path = options.kubeconfig
        if path is None:
            path = Path(folder) / "kubeconfig"
            began = time.monotonic()
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "pykai",
                "up",
                "--scenario",
                "none",
                "--kubeconfig",
                str(path),
                "--plain",
                stdout=asyncio.subprocess.PIPE,
            )
            assert process.stdout is not None
            first = await process.stdout.readline()
            print(f"kai up: ready after {time.monotonic() - began:.1f} s: {first.decode().strip()}", flush=True)
            drain = asyncio.create_task(_drain(process.stdout))
        client = Client(connect(path))
        try:
            figures = await flood(client, options.nodes, options.pods)
        except KubeError as error:
            print(f"failed: {error}", file=sys.stderr)
            return 1
        finally:
            if process is not None:
                peak, used = peak_mib(process.pid), cpu_s(process.pid)
                process.terminate()
                await process.wait()
                drain.cancel()
            await client.close()
    rate = options.pods / figures["bound_s"]
    print(
        f"{options.nodes} nodes, {options.pods} pods: created in {figures['created_s']:.1f} s, all bound after "
        f"{figures['bound_s']:.1f} s ({rate:.0f} pods a second), all running after {figures['running_s']:.1f} s"
    )
    if process is not None:
        print(f"the whole process: peak memory {peak:.0f} MiB, {used:.1f} s of processor time")
    return 0


async def _drain(lines: asyncio.StreamReader) -> None:
    while line := await lines.readline():
        print(line.decode().rstrip(), flush=True)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
