"""Runs the pods of some namespaces as processes of this machine, whichever node they are bound to.

In: pods that were bound, their config maps and secrets.  Out: processes, and statuses that say how they are.  The other
pods of a cluster belong to the simulated machines (`lab.machines.kubelets`), which leave these namespaces alone.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp

from pykai.api.unstructured import JsonObject
from pykai.kube.resources import CONFIG_MAPS, PODS, SECRETS, Resource
from pykai.kube.runtime import Runtime
from pykai.kube.store import Change, Store
from pykai.lab.cachesync import wait_for_cache_sync
from pykai.lab.processes.addresses import PodAddresses
from pykai.lab.processes.network import ServiceNetwork
from pykai.lab.processes.podprocess import PodProcess, Surface
from pykai.lab.processes.tokens import AccountTokens

log = logging.getLogger(__name__)
_KINDS: Final[dict[str, Resource]] = {"configmap": CONFIG_MAPS, "secret": SECRETS}
#: below the folder
NETWORK_SOCKET: Final = "network.sock"


class PodProcesses:
    """All pods of some namespaces."""

    name = "processes"

    def __init__(
        self,
        runtime: Runtime,
        server: str,
        namespaces: Sequence[str],
        folder: Path,
        *,
        addresses: PodAddresses | None = None,
    ) -> None:
        """`server`: the URL of the API server for the pods.  `folder`: one folder for each pod, with its logs and
        mounted files, and the socket of the network."""
        self._runtime = runtime
        self._server = server
        self._folder = folder.resolve()
        self._addresses = addresses or PodAddresses()
        caches = runtime.caches
        self._pods = [caches.store(PODS, dict, namespace=each) for each in namespaces]
        self._objects = {
            (kind, namespace): caches.store(resource, dict, namespace=namespace)
            for kind, resource in _KINDS.items()
            for namespace in namespaces
        }
        self._network = ServiceNetwork(caches, self._addresses, folder / NETWORK_SOCKET)
        self._running: dict[str, PodProcess] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._surface: Surface | None = None

    def ready(self) -> bool:
        """Whether pods are started."""
        return self._surface is not None

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set; then every process ends, and the pods stay."""
        stores: list[Store[Any]] = [*self._pods, *self._objects.values(), *self._network.stores]
        if not await wait_for_cache_sync(stop, *stores):
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        async with aiohttp.ClientSession() as session:
            client = self._runtime.client
            tokens = AccountTokens(client, self._server, self._read)
            self._surface = Surface(
                client, self._runtime.clock, self._folder, self._addresses, tokens, session, self._read
            )
            for pods in self._pods:
                pods.subscribe(self._on_pod)
            for (kind, _), objects in self._objects.items():
                objects.subscribe(partial(self._on_object, kind))
            try:
                await self._network.run(stop)
            finally:
                self._surface = None
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)
                shutil.rmtree(self._folder / "host", ignore_errors=True)

    def _read(self, kind: str, namespace: str, name: str) -> JsonObject | None:
        return self._objects[kind, namespace].get(f"{namespace}/{name}")

    def _on_pod(self, change: Change[JsonObject]) -> None:
        pod = change.new
        known = self._running.get(change.key)
        if known is not None and (pod is None or pod["metadata"]["uid"] != known.uid):
            self._running.pop(change.key).update(None)
            known = None
        if pod is None or self._surface is None:
            return
        if known is not None:
            known.update(pod)
        elif pod["spec"].get("nodeName") and pod["status"].get("phase") not in ("Succeeded", "Failed"):
            self._start(change.key, pod, self._surface)

    def _start(self, key: str, pod: JsonObject, surface: Surface) -> None:
        started = self._running[key] = PodProcess(pod, surface)
        task = asyncio.create_task(started.run(), name=key)
        self._tasks.add(task)
        task.add_done_callback(self._on_end)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the pod %s is given up: %r", task.get_name(), error, exc_info=error)

    def _on_object(self, kind: str, change: Change[JsonObject]) -> None:
        namespace, _, name = change.key.partition("/")
        for key, pod in self._running.items():
            if key.startswith(f"{namespace}/"):
                pod.on_object(kind, name)
