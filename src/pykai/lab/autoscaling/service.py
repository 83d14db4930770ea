"""Plays the autoscalers of a cluster: looks at pods and nodes, asks the planner, orders and deletes nodes.

In: changes of pods and nodes. Out: Node objects, an event about each pod for which a node comes, and a sentence for
each thing done (`listeners`), for displays.

Subtle: ordered nodes are remembered here only. After a restart they are ordered again if pods still wait.

Statements: sim:autoscaler.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, Final

from pykai.api.core import Node
from pykai.api.decode import decode_as
from pykai.api.unstructured import JsonObject
from pykai.kube.client import PatchKind
from pykai.kube.clock import stopped_within
from pykai.kube.errors import AlreadyExists, Conflict, Invalid, KubeError, NotFound
from pykai.kube.events import NORMAL, EventRecorder
from pykai.kube.resources import NODES, PODS
from pykai.kube.runtime import Runtime
from pykai.kube.store import Change
from pykai.lab.autoscaling.nodegroups import PROVISIONERS, NodeGroup
from pykai.lab.autoscaling.planner import BootingNode, NodeOrder, ObservedCluster, is_closed, plan_nodes
from pykai.lab.controllers.controller import reference
from pykai.lab.controllers.pods import pod_store
from pykai.lab.timestamps import to_timestamp

_LOG = logging.getLogger(__name__)
#: cluster seconds between two looks (10 in cluster-autoscaler), and the least wall seconds
_SCAN_S: Final = 1.0
_SCAN_WALL_S: Final = 0.05
#: wall seconds without a change before a look, so that the pods of a gang are seen together, and the most it waits
_BATCH_WALL_S: Final = 0.2
_MAX_BATCH_WALL_S: Final = 2.0
#: wall seconds in which binds on their way to a closed node arrive
_DRAIN_WALL_S: Final = 0.5


class Autoscaler:
    """All node groups of a cluster."""

    name = "autoscaler"

    def __init__(self, runtime: Runtime, groups: Sequence[NodeGroup]) -> None:
        self._client = runtime.client
        self._clock = runtime.clock
        self._groups = tuple(groups)
        self._pods = pod_store(runtime)
        self._nodes = runtime.caches.store(NODES, Node)
        self._recorders = {
            name: EventRecorder(runtime.client, component=name, clock=runtime.clock) for name in PROVISIONERS
        }
        self._booting: list[BootingNode] = []
        self._empty_since_s: dict[str, float] = {}
        self._is_dirty = True
        #: wall seconds of the first and the last change since the last look
        self._batch_s = (0.0, 0.0)
        #: called with a sentence for each node that is ordered, comes or goes
        self.listeners: list[Callable[[str], Any]] = []

    def ready(self) -> bool:
        """Whether the caches are filled."""
        return self._pods.synced.is_set() and self._nodes.synced.is_set()

    async def run(self, stop: asyncio.Event) -> None:
        """Look again and again until `stop` is set."""
        await self._pods.synced.wait()
        await self._nodes.synced.wait()
        self._pods.subscribe(self._changed)
        self._nodes.subscribe(self._changed)
        recording = [asyncio.create_task(recorder.run(stop)) for recorder in self._recorders.values()]
        pause_s = max(_SCAN_WALL_S, self._clock.wall_s(_SCAN_S))
        while not await stopped_within(stop, pause_s):
            if self._has_work() and not self._is_batching():
                try:
                    await self.scan()
                except KubeError as error:
                    self._is_dirty = True
                    _LOG.warning("nodes were not scaled, the next attempt is in %g s: %s", pause_s, error)
        await asyncio.gather(*recording)

    def _changed(self, _: Change[Any]) -> None:
        now_s = time.monotonic()
        self._batch_s = (self._batch_s[0], now_s) if self._is_dirty else (now_s, now_s)
        self._is_dirty = True

    def _has_work(self) -> bool:
        return self._is_dirty or bool(self._booting or self._empty_since_s)

    def _is_batching(self) -> bool:
        """Whether more changes are likely to follow."""
        first_s, last_s = self._batch_s
        now_s = time.monotonic()
        return self._is_dirty and now_s - last_s < _BATCH_WALL_S and now_s - first_s < _MAX_BATCH_WALL_S

    async def scan(self) -> None:
        """Look once, and do what follows."""
        self._is_dirty = False
        now_s = self._clock.elapsed_s()
        for node in [each for each in self._booting if each.ready_s <= now_s]:
            await self._join(node)
        cluster = ObservedCluster(list(self._nodes.values()), list(self._pods.values()), tuple(self._booting))
        plan = plan_nodes(self._groups, cluster, self._empty_since_s, now_s, _DRAIN_WALL_S * self._clock.speed)
        self._empty_since_s = {
            name: since_s for name, since_s in plan.empty_since_s.items() if self._group_of(name) is not None
        }
        for order in plan.orders:
            self._order(order, now_s)
        for name in plan.close:
            await self._mark(name, leaving=True)
        for name in plan.reopen:
            await self._mark(name, leaving=False)
        for name in plan.delete:
            await self._delete(name)

    def _group_of(self, name: str) -> NodeGroup | None:
        node = self._nodes.get(name)
        return next((group for group in self._groups if node is not None and group.owns(node)), None)

    def _order(self, order: NodeOrder, now_s: float) -> None:
        name = next(self._free_names(order))
        self._booting.append(BootingNode(name, order.group, order.machine, now_s + order.group.boot_s))
        provisioner, group = order.group.provisioner, order.group.name
        for pod in order.pods:
            text = provisioner.message.format(node=name, group=group)
            self._recorders[provisioner.name].event(reference(pod, PODS), NORMAL, provisioner.event, text)
        pods = f"{len(order.pods)} unschedulable pod{'' if len(order.pods) == 1 else 's'}"
        self._say(f"{provisioner.name} orders node {name} for {pods if order.pods else 'the least size of its group'}")

    def _free_names(self, order: NodeOrder) -> Iterator[str]:
        taken = {node.name for node in self._booting} | {node.metadata.name for node in self._nodes.values()}
        return (name for number in count(1) if (name := f"{order.machine.name}-{number}") not in taken)

    async def _join(self, node: BootingNode) -> None:
        now = to_timestamp(self._clock.now().timestamp())
        try:
            created = await self._client.create(NODES, node.group.node(node.machine, node.name, now))
        except AlreadyExists:
            pass
        else:
            self._nodes.assume(decode_as(Node, created))
            self._say(f"node {node.name} of group {node.group.name} joins the cluster")
        self._booting.remove(node)

    async def _mark(self, name: str, *, leaving: bool) -> None:
        """Add the taint of a node that goes, or remove it."""
        node, group = self._nodes.get(name), self._group_of(name)
        if node is None or group is None or is_closed(node, group) == leaving:
            return
        key = group.provisioner.leaving_taint
        kept: list[JsonObject] = [
            {"key": taint.key, "value": taint.value or "", "effect": taint.effect}
            for taint in node.spec.taints
            if taint.key != key
        ]
        taints = [*kept, {"key": key, "effect": "NoSchedule"}] if leaving else kept
        change = {"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": taints}}
        try:
            await self._client.patch(NODES, name, change, kind=PatchKind.MERGE)
        except (NotFound, Conflict, Invalid):
            # The node is gone or has changed: the watch brings the new version.
            return

    async def _delete(self, name: str) -> None:
        node, group = self._nodes.get(name), self._group_of(name)
        if node is None or group is None:
            return
        try:
            await self._client.delete(NODES, name, uid=node.metadata.uid)
        except (NotFound, Conflict):
            return
        self._empty_since_s.pop(name, None)
        self._say(f"node {name} of group {group.name} was empty for {group.idle_s:g} s and goes")

    def _say(self, sentence: str) -> None:
        _LOG.info("%s", sentence)
        for listener in self.listeners:
            listener(sentence)
