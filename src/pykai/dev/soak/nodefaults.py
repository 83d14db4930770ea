"""Nodes that flap and shrink while a soak runs.

Every few seconds one node reports not ready, or far less memory, and recovers a moment later. GPUs do not change: a
node that loses devices under running pods is over-filled by definition, and the checker would report it.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from pykai.kube.client import Client, PatchKind
from pykai.kube.clock import stopped_within
from pykai.kube.errors import KubeError
from pykai.kube.resources import NODES

_PAUSE_S = (4.0, 12.0)
_DURATION_S = (0.2, 3.0)
_SHRUNK_MEMORY = "1Gi"


class NodeFaults:
    """Flaps and shrinks the nodes of one cluster."""

    def __init__(self, client: Client, *, seed: int) -> None:
        self._client = client
        self._draw = random.Random(seed)
        #: how often a node flapped, and how often one shrank
        self.flaps = 0
        self.shrinks = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Inject faults until `stop` is set; nodes are healthy at the end."""
        while not await stopped_within(stop, self._draw.uniform(*_PAUSE_S)):
            try:
                node = self._draw.choice(await self._client.list_raw(NODES))
            except (KubeError, IndexError):
                continue
            if self._draw.random() < 0.5:
                self.flaps += 1
                bad, good = _ready(False), _ready(True)
            else:
                self.shrinks += 1
                bad, good = _memory(_SHRUNK_MEMORY), _memory(node["status"]["allocatable"]["memory"])
            await self._write(node["metadata"]["name"], bad)
            await stopped_within(stop, self._draw.uniform(*_DURATION_S))
            await self._write(node["metadata"]["name"], good)

    async def _write(self, node: str, status: dict[str, Any]) -> None:
        """Retry until written: a node must not stay faulty."""
        while True:
            try:
                await self._client.patch(
                    NODES, node, {"status": status}, kind=PatchKind.STRATEGIC, subresource="status", brief=True
                )
                return
            except KubeError:
                await asyncio.sleep(0.2)


def _ready(is_ready: bool) -> dict[str, Any]:
    reason = "KubeletReady" if is_ready else "KubeletNotReady"
    return {"conditions": [{"type": "Ready", "status": "True" if is_ready else "False", "reason": reason}]}


def _memory(amount: str) -> dict[str, Any]:
    return {"allocatable": {"memory": amount}}
