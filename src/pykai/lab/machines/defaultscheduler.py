"""The default scheduler of a simulated cluster, for pods that do not name KAI's.

In: nodes and pods. Out: bindings of the pods whose `schedulerName` is `default-scheduler`, first come, first served;
for those that fit nowhere the condition PodScheduled=False and an event whenever the reason changes. `placement`
decides; this module keeps its cache and writes.

It considers nodes, taints, node selectors, required node affinity and resources, but not priorities, preferences, pod
affinity, spreading, host ports, claims or volumes; it never evicts.

Subtle:
- a pod is assumed on its node before its binding is sent, so that the next pod does not get the same place. It stays
  assumed while the answer is unknown; the next reconcile settles it;
- unschedulable pods wait in equivalence classes. When a node changes or a pod leaves, one pod of each class is tried,
  and the others only if the answer changes.

Statements: sim:default-scheduler.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from pykai.api import names
from pykai.api.core import Node
from pykai.api.workloads import MachinePod
from pykai.kube.client import PatchKind
from pykai.kube.errors import Conflict, NotFound
from pykai.kube.events import NORMAL, WARNING
from pykai.kube.resources import NODES, PODS
from pykai.kube.runtime import Runtime, Service
from pykai.kube.store import Change
from pykai.lab.controllers.controller import Controller, reference
from pykai.lab.controllers.pods import condition_of, is_active, is_finished, pod_store, pod_writer
from pykai.lab.machines.placement import NoNodeFits, PodRequirements, SchedulerCache, requirements_of
from pykai.lab.machines.requests import pod_requests

#: Key for all pending pods; no pod has this key.
_ALL_PENDING = ""
#: Cluster seconds until a pod whose binding was refused is tried again.
_BIND_RETRY_S = 1.0


@dataclass(slots=True)
class _EquivalenceClass:
    """Pods with the same requirements that fit nowhere."""

    refusal: NoNodeFits
    #: cache version at which they were refused
    cache_version: int
    #: keys in order of arrival
    pods: dict[str, None] = field(default_factory=dict)


class DefaultScheduler:
    """Places pods that name no other scheduler."""

    def __init__(self, runtime: Runtime) -> None:
        self._client = runtime.client
        self._nodes = runtime.caches.store(NODES, Node)
        self._pods = pod_store(runtime)
        self._write = pod_writer(runtime)
        self._cache = SchedulerCache()
        #: grows with every change that may let a pending pod fit
        self._cache_version = 0
        self._pending_classes: dict[PodRequirements, _EquivalenceClass] = {}
        #: pod -> its class
        self._pending: dict[str, PodRequirements] = {}
        #: uids of bound pods that the watch still shows without a node
        self._assumed: set[str] = set()
        self.controller = Controller(
            names.DEFAULT_SCHEDULER_NAME,
            runtime,
            self._reconcile,
            self._nodes,
            on_change=self._on_node,
            watches=[(self._pods, self._on_pod)],
        )

    def _on_node(self, change: Change[Node]) -> None:
        if change.new is None:
            self._cache.drop_node(change.key)
        elif not self._cache.put_node(change.new):
            return
        self._retry_pending()

    def _on_pod(self, change: Change[MachinePod]) -> None:
        old, pod = change.old, change.new
        if old is not None and (pod is None or pod.metadata.uid != old.metadata.uid):
            self._on_pod_ended(change.key, old.metadata.uid)
            old = None
        if pod is None:
            return
        if is_finished(pod):
            self._on_pod_ended(change.key, pod.metadata.uid)
        elif pod.spec.node_name:
            if old is None or not old.spec.node_name:
                self._cache.add_pod(pod.metadata.uid, pod.spec.node_name, pod_requests(pod))
                self._assumed.discard(pod.metadata.uid)
                self._remove_pending(change.key)
        elif pod.spec.scheduler_name == names.DEFAULT_SCHEDULER_NAME and (old is None or old.spec != pod.spec):
            self.controller.enqueue(change.key)

    def _on_pod_ended(self, key: str, uid: str) -> None:
        """A pod holds no resources any more and needs no node."""
        self._remove_pending(key)
        self._assumed.discard(uid)
        if self._cache.remove_pod(uid):
            self._retry_pending()

    def _retry_pending(self) -> None:
        self._cache_version += 1
        if self._pending_classes:
            self.controller.enqueue_soon(_ALL_PENDING)

    async def _reconcile(self, key: str) -> float | None:
        if key == _ALL_PENDING:
            await self._retry_classes()
            return None
        pod = self._pods.get(key)
        if pod is None or not _is_schedulable(pod) or pod.metadata.uid in self._assumed:
            self._remove_pending(key)
            return None
        uid = pod.metadata.uid
        # Assumed by a binding whose answer was lost; it was not carried out.
        if self._cache.remove_pod(uid):
            self._retry_pending()
        requirements = requirements_of(pod)
        chosen = self._choose(requirements)
        if isinstance(chosen, NoNodeFits):
            self._add_pending(key, requirements, chosen)
            await self._report_unschedulable(pod, chosen.message)
            return None
        self._remove_pending(key)
        self._cache.add_pod(uid, chosen, requirements.requests)
        try:
            await self._client.bind(pod.metadata.namespace, pod.metadata.name, uid=uid, node=chosen)
        except (NotFound, Conflict):
            self._forget_assumed(key, uid)
            return _BIND_RETRY_S
        seen = self._pods.get(key)
        if seen is not None and seen.metadata.uid == uid and not seen.spec.node_name:
            self._assumed.add(uid)
        message = f"Successfully assigned {key} to {chosen}"
        self.controller.recorder.event(reference(pod, PODS), NORMAL, names.EVENT_SCHEDULED, message)
        return None

    async def _retry_classes(self) -> None:
        for wants, crowd in list(self._pending_classes.items()):
            # Yield to other tasks between two classes.
            await asyncio.sleep(0)
            if self._cache.choose_node(wants) == crowd.refusal:
                crowd.cache_version = self._cache_version
                continue
            for key in crowd.pods:
                self.controller.enqueue(key)

    def _choose(self, requirements: PodRequirements) -> str | NoNodeFits:
        crowd = self._pending_classes.get(requirements)
        if crowd is not None and crowd.cache_version == self._cache_version:
            return crowd.refusal
        return self._cache.choose_node(requirements)

    def _add_pending(self, key: str, requirements: PodRequirements, refusal: NoNodeFits) -> None:
        if self._pending.get(key) != requirements:
            self._remove_pending(key)
        crowd = self._pending_classes.setdefault(requirements, _EquivalenceClass(refusal, self._cache_version))
        crowd.refusal, crowd.cache_version = refusal, self._cache_version
        crowd.pods[key] = None
        self._pending[key] = requirements

    def _remove_pending(self, key: str) -> None:
        wants = self._pending.pop(key, None)
        if wants is None:
            return
        crowd = self._pending_classes[wants]
        del crowd.pods[key]
        if not crowd.pods:
            del self._pending_classes[wants]

    def _forget_assumed(self, key: str, uid: str) -> None:
        """The pod is not on its assumed node: it is gone, or another scheduler bound it."""
        seen = self._pods.get(key)
        elsewhere = seen is not None and seen.metadata.uid == uid and seen.spec.node_name
        if not elsewhere and self._cache.remove_pod(uid):
            self._retry_pending()

    async def _report_unschedulable(self, pod: MachinePod, message: str) -> None:
        existing = condition_of(pod, names.CONDITION_POD_SCHEDULED)
        reason = names.CONDITION_REASON_UNSCHEDULABLE
        if existing is not None and (existing.status, existing.reason, existing.message) == ("False", reason, message):
            return
        since = existing.last_transition_time if existing is not None and existing.status == "False" else None
        condition = {
            "type": names.CONDITION_POD_SCHEDULED,
            "status": "False",
            "reason": reason,
            "message": message,
            "lastTransitionTime": since or self.controller.now(),
        }
        await self._write.patch_status(pod, {"conditions": [condition]}, kind=PatchKind.STRATEGIC)
        self.controller.recorder.event(reference(pod, PODS), WARNING, names.EVENT_FAILED_SCHEDULING, message)


def default_scheduler(runtime: Runtime) -> Service:
    """The default scheduler as a service."""
    return DefaultScheduler(runtime).controller


def _is_schedulable(pod: MachinePod) -> bool:
    return not pod.spec.node_name and not pod.spec.scheduling_gates and is_active(pod)
