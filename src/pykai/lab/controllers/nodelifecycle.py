"""The taint that keeps pods off a node which is not ready.

An API server puts it on every new node. It is removed when the node's Ready condition is True and added again when that
changes, as Kubernetes' node lifecycle controller does. Both may run on one cluster, since each finds the other's work
done.

Statements: sim:nodes.
"""

from __future__ import annotations

from pykai.api import names
from pykai.api.core import Node
from pykai.api.unstructured import JsonObject
from pykai.kube.client import PatchKind
from pykai.kube.errors import Conflict, Invalid, NotFound
from pykai.kube.resources import NODES
from pykai.kube.runtime import Runtime, Service
from pykai.kube.store import Change
from pykai.lab.controllers.controller import (
    Controller,
)

_EFFECT = "NoSchedule"


class NodeLifecycle:
    """Removes the taint of ready nodes and adds it to others."""

    def __init__(self, runtime: Runtime) -> None:
        self._client = runtime.client
        self._nodes = runtime.caches.store(NODES, Node)
        self.controller = Controller("node-lifecycle", runtime, self._reconcile, self._nodes, on_change=self._on_node)

    def _on_node(self, change: Change[Node]) -> None:
        if change.new is not None and _taint_patch(change.new):
            self.controller.enqueue(change.key)

    async def _reconcile(self, name: str) -> float | None:
        node = self._nodes.get(name)
        change = _taint_patch(node) if node is not None else []
        if change:
            try:
                await self._client.patch(NODES, name, change, kind=PatchKind.JSON, brief=True)
            except (NotFound, Conflict, Invalid):
                # The node is gone or has changed: the watch brings the new version.
                return None
        return None


def node_lifecycle(runtime: Runtime) -> Service:
    """The taints of nodes as a service."""
    return NodeLifecycle(runtime).controller


def _taint_patch(node: Node) -> list[JsonObject]:
    """The JSON patch for exactly this version of the node."""
    ready = next((each.status for each in node.status.conditions if each.type == names.NODE_READY), "")
    taints = node.spec.taints
    rows = [row for row, each in enumerate(taints) if each.key == names.NOT_READY_TAINT and each.effect == _EFFECT]
    same: JsonObject = {"op": "test", "path": "/metadata/resourceVersion", "value": node.metadata.resource_version}
    if ready == "True" and rows:
        # From the end, so that the other indexes stay valid.
        removals: list[JsonObject] = [{"op": "remove", "path": f"/spec/taints/{row}"} for row in reversed(rows)]
        return [same, *removals]
    if ready == "False" and not rows:
        taint = {"key": names.NOT_READY_TAINT, "effect": _EFFECT}
        where, value = ("/spec/taints/-", taint) if taints else ("/spec/taints", [taint])
        return [same, {"op": "add", "path": where, "value": value}]
    return []
