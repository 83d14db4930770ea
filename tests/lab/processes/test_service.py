"""Pods as processes, from start to end (operations:OD-21).

The processes are real ones; the API server is the embedded one, which has no accounts for them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.resources import CONFIG_MAPS, PODS
from pykai.kube.runtime import Runtime, run_services
from pykai.kube.store import Store
from pykai.lab.processes.service import PodProcesses
from tests.servers import api_server

pytestmark = pytest.mark.embedded_only("a real control plane is shown by tests/cluster/test_installation.py")

Document = dict[str, Any]
NAMESPACE = "kai-scheduler"


class Station:
    """The service, and its pods as an observer sees them."""

    def __init__(self, client: Client, pods: Store[Document], folder: Path) -> None:
        self.client = client
        self.pods = pods
        self.folder = folder

    async def start(self, name: str, *words: str, **fields: Any) -> None:
        """A pod that is bound to a machine."""
        container = {"name": "main", "image": "kai", "command": ["kai"], "args": list(words)}
        spec = {
            "nodeName": "node-0",
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "containers": [container],
            **fields,
        }
        await self.client.create(PODS, {"metadata": {"name": name}, "spec": spec}, NAMESPACE)

    async def until(self, name: str, phase: str) -> Document:
        """The status of a pod that has reached a phase."""
        key = f"{NAMESPACE}/{name}"

        def reached(store: Store[Document]) -> bool:
            found = store.get(key)
            return found is not None and found["status"].get("phase") == phase

        await self.pods.wait_until(reached, 60)
        found = self.pods.get(key)
        assert found is not None
        return dict(found["status"])

    def log(self, name: str) -> str:
        """What its process has written."""
        (path,) = self.folder.glob(f"{NAMESPACE}_{name}_*/main.log")
        return path.read_text()


@pytest.fixture
async def station(tmp_path: Path) -> AsyncIterator[Station]:
    clock = Clock()
    async with api_server(clock, namespaces=[NAMESPACE]) as server:
        client = Client(server.transport())
        runtime = Runtime(client, Caches(client), clock)
        service = PodProcesses(runtime, "https://127.0.0.1:1", [NAMESPACE], tmp_path / "pods")
        stop = asyncio.Event()
        pods: Store[Document] = runtime.caches.store(PODS, dict, namespace=NAMESPACE)
        running = asyncio.create_task(run_services(runtime, [service], stop))
        try:
            yield Station(client, pods, tmp_path / "pods")
        finally:
            stop.set()
            await running


async def test_a_pod_runs_to_its_end_and_says_how_it_ended(station: Station) -> None:
    await station.start("good", "--version")
    await station.start("bad", "run", "binder", "--no-such-flag")
    good, bad = await station.until("good", "Succeeded"), await station.until("bad", "Failed")
    assert good["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    assert bad["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 2
    assert "no-such-flag" in station.log("bad")


async def test_a_pod_waits_for_its_config_map_and_says_so(station: Station) -> None:
    volume = {"name": "config", "configMap": {"name": "settings"}}
    await station.start("patient", "--version", volumes=[volume])
    waiting = await station.until("patient", "Pending")
    while "containerStatuses" not in waiting:
        await asyncio.sleep(0)
        waiting = await station.until("patient", "Pending")
    (entry,) = waiting["containerStatuses"]
    assert entry["state"]["waiting"]["message"] == "volume 'config': configmap 'settings' not found"
    await station.client.create(CONFIG_MAPS, {"metadata": {"name": "settings"}, "data": {}}, NAMESPACE)
    await station.until("patient", "Succeeded")


async def test_a_deleted_pod_takes_its_process_with_it(station: Station) -> None:
    # A lab without work runs until it is stopped.
    await station.start("lasting", "up", "--scenario=none", "--plain", terminationGracePeriodSeconds=30)
    await station.until("lasting", "Running")
    (command,) = [path for path in Path("/proc").glob("[0-9]*/cwd") if _is_in(path, station.folder)]
    await station.client.delete(PODS, "lasting", NAMESPACE)
    await station.pods.wait_until(lambda store: f"{NAMESPACE}/lasting" not in store, 60)
    assert not command.exists()


def _is_in(link: Path, folder: Path) -> bool:
    try:
        return Path(os.readlink(link)).is_relative_to(folder)
    except OSError:
        return False
