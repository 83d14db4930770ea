"""Garbage collection of pods on missing nodes, and eviction by NoExecute taints.

A pod whose node is missing is failed and removed after a short wait, in case the node comes back. A taint with the
effect NoExecute removes pods that do not tolerate it, after their tolerationSeconds if they have any.

Statements: sim:taints.
"""

from __future__ import annotations

from pykai.api import names
from pykai.api.core import Node, Taint, Toleration
from pykai.api.workloads import MachinePod
from pykai.kube.client import PatchKind
from pykai.kube.resources import NODES, PODS
from pykai.kube.runtime import Runtime, Service
from pykai.kube.store import Change
from pykai.lab.controllers.controller import Controller, reference
from pykai.lab.controllers.pods import is_finished, is_terminating, pod_store, pod_writer

#: How long a node may be missing before its pods are removed.
NODE_MISSING_S = 20.0
_ON_NODE = "node"


class PodGarbageCollector:
    """Removes pods that cannot stay on their nodes."""

    def __init__(self, runtime: Runtime) -> None:
        self._nodes = runtime.caches.store(NODES, Node)
        self._pods = pod_store(runtime)
        self._pods.index(_ON_NODE, lambda pod: (pod.spec.node_name,) if pod.spec.node_name else ())
        self._write = pod_writer(runtime)
        #: node -> since when it is missing
        self._missing_since: dict[str, float] = {}
        #: (pod uid, taint) -> since when the pod tolerates it
        self._tolerated_since: dict[tuple[str, str], float] = {}
        self.controller = Controller(
            "pod-garbage-collector",
            runtime,
            self._reconcile,
            self._nodes,
            on_change=self._on_node,
            watches=[(self._pods, self._on_pod)],
        )

    def _on_node(self, change: Change[Node]) -> None:
        old = change.old.spec.taints if change.old is not None else []
        if change.new is None or change.new.spec.taints != old:
            self.controller.enqueue(change.key)
        elif change.key in self._missing_since:
            del self._missing_since[change.key]

    def _on_pod(self, change: Change[MachinePod]) -> None:
        pod, old = change.new, change.old
        if pod is None or not pod.spec.node_name or (old is not None and old.spec.node_name):
            return
        node = self._nodes.get(pod.spec.node_name)
        if node is None or _no_execute_taints(node):
            self.controller.enqueue(pod.spec.node_name)

    async def _reconcile(self, name: str) -> float | None:
        node = self._nodes.get(name)
        pods = self._pods.by_index(_ON_NODE, name)
        now_s = self.controller.now_s()
        if node is None:
            if not pods:
                self._missing_since.pop(name, None)
                return None
            since_s = self._missing_since.setdefault(name, now_s)
            if now_s < since_s + NODE_MISSING_S:
                return since_s + NODE_MISSING_S - now_s
            for pod in pods:
                await self._fail_pod(pod)
            self._missing_since.pop(name, None)
            return None
        self._missing_since.pop(name, None)
        return await self._evict_untolerated(node, now_s)

    async def _fail_pod(self, pod: MachinePod) -> None:
        if not is_finished(pod):
            message = "PodGC: node no longer exists"
            condition = {
                "type": names.CONDITION_DISRUPTION_TARGET,
                "status": "True",
                "reason": "DeletionByPodGC",
                "message": message,
                "lastTransitionTime": self.controller.now(),
            }
            await self._write.patch_status(
                pod, {"phase": "Failed", "conditions": [condition]}, kind=PatchKind.STRATEGIC
            )
        await self._write.delete(pod, grace_s=0)

    async def _evict_untolerated(self, node: Node, now_s: float) -> float | None:
        waits: list[float] = []
        for pod in self._pods.by_index(_ON_NODE, node.metadata.name):
            if is_finished(pod) or is_terminating(pod):
                continue
            for taint in _no_execute_taints(node):
                seconds = toleration_s(taint, pod.spec.tolerations)
                mark = (pod.metadata.uid, f"{node.metadata.name}/{taint.key}={taint.value}")
                if seconds is None:
                    continue
                left_s = self._tolerated_since.setdefault(mark, now_s) + seconds - now_s
                if left_s > 0:
                    waits.append(left_s)
                    continue
                self._tolerated_since.pop(mark, None)
                about = reference(pod, PODS)
                message = f"Taint manager: deleting due to NoExecute taint {taint.key}"
                self.controller.recorder.event(about, "Normal", "TaintManagerEviction", message)
                await self._write.delete(pod)
                break
        if not waits:
            self._tolerated_since = {
                mark: since
                for mark, since in self._tolerated_since.items()
                if not mark[1].startswith(f"{node.metadata.name}/")
            }
        return min(waits, default=None)


def pod_garbage_collector(runtime: Runtime) -> Service:
    """The pod garbage collector as a service."""
    return PodGarbageCollector(runtime).controller


def _no_execute_taints(node: Node) -> list[Taint]:
    return [taint for taint in node.spec.taints if taint.effect == "NoExecute"]


def toleration_s(taint: Taint, tolerations: list[Toleration]) -> float | None:
    """How long a taint is tolerated: None: forever, 0: not at all."""
    limits: list[float] = []
    for toleration in tolerations:
        if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
            continue
        if toleration.operator != "Exists" and (not toleration.key or toleration.value != taint.value):
            continue
        if toleration.toleration_seconds is None:
            return None
        limits.append(max(0.0, float(toleration.toleration_seconds)))
    return min(limits, default=0.0)
