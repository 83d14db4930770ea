"""The default scheduler of a simulated cluster: pods that do not ask for KAI get a node, too.

In: nodes and pods.  Out: bindings of the pods whose `schedulerName` is `default-scheduler`, first come, first served;
for those that fit nowhere the condition PodScheduled=False and an event, whenever the reason is a new one.
`placement` decides; this module keeps its books and writes.

It is plain.  It looks at nodes, taints, node selectors, required node affinity and resources, and not at priorities,
preferences, pod affinity, spreading, host ports, claims or volumes; it evicts nobody.

Subtle:
- what a pod takes is booked before its binding is sent, so that the next one does not get the same place.  It stays
  booked while the answer is unknown; the next look at the pod settles it;
- pods that fit nowhere wait in crowds of equals.  A node that changes, or a pod that leaves, is a new situation: then
  each crowd is tried once, and its pods only if the answer is another one than before.

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
from pykai.lab.machines.placement import Places, Refusal, Wants, wants_of
from pykai.lab.machines.requests import asks_of

#: Stands for all who wait; no pod has this key.
_ALL_WHO_WAIT = ""
#: Cluster seconds after which a pod is looked at again whose binding was refused.
_REFUSED_S = 1.0


@dataclass(slots=True)
class _Crowd:
    """Pods that want the same and fit nowhere."""

    refusal: Refusal
    #: of the situation in which they were refused
    situation: int
    #: keys, first come first
    pods: dict[str, None] = field(default_factory=dict)


class DefaultScheduler:
    """Places pods that name no other scheduler."""

    def __init__(self, runtime: Runtime) -> None:
        self._client = runtime.client
        self._nodes = runtime.caches.store(NODES, Node)
        self._pods = pod_store(runtime)
        self._write = pod_writer(runtime)
        self._places = Places()
        #: counts what could let a pod fit that did not
        self._situation = 0
        self._crowds: dict[Wants, _Crowd] = {}
        #: pod -> its crowd
        self._waiting: dict[str, Wants] = {}
        #: uids of pods that we have bound and that the cache still shows without a node
        self._bound: set[str] = set()
        self.controller = Controller(
            names.DEFAULT_SCHEDULER_NAME,
            runtime,
            self._reconcile,
            [(self._nodes, self._on_node), (self._pods, self._on_pod)],
        )

    def _on_node(self, change: Change[Node]) -> None:
        if change.new is None:
            self._places.drop_node(change.key)
        elif not self._places.put_node(change.new):
            return
        self._try_again()

    def _on_pod(self, change: Change[MachinePod]) -> None:
        old, pod = change.old, change.new
        if old is not None and (pod is None or pod.metadata.uid != old.metadata.uid):
            self._leave(change.key, old.metadata.uid)
            old = None
        if pod is None:
            return
        if is_finished(pod):
            self._leave(change.key, pod.metadata.uid)
        elif pod.spec.node_name:
            if old is None or not old.spec.node_name:
                self._places.hold(pod.metadata.uid, pod.spec.node_name, asks_of(pod))
                self._bound.discard(pod.metadata.uid)
                self._stop_waiting(change.key)
        elif pod.spec.scheduler_name == names.DEFAULT_SCHEDULER_NAME and (old is None or old.spec != pod.spec):
            self.controller.enqueue(change.key)

    def _leave(self, key: str, uid: str) -> None:
        """A pod takes no place any more, and wants none."""
        self._stop_waiting(key)
        self._bound.discard(uid)
        if self._places.release(uid):
            self._try_again()

    def _try_again(self) -> None:
        self._situation += 1
        if self._crowds:
            self.controller.enqueue_soon(_ALL_WHO_WAIT)

    async def _reconcile(self, key: str) -> float | None:
        if key == _ALL_WHO_WAIT:
            await self._look_at_crowds()
            return None
        pod = self._pods.get(key)
        if pod is None or not _needs_a_node(pod) or pod.metadata.uid in self._bound:
            self._stop_waiting(key)
            return None
        uid = pod.metadata.uid
        # Booked by a binding that failed without saying whether it was carried out: it was not.
        if self._places.release(uid):
            self._try_again()
        wants = wants_of(pod)
        chosen = self._choose(wants)
        if isinstance(chosen, Refusal):
            self._wait(key, wants, chosen)
            await self._tell(pod, chosen.message)
            return None
        self._stop_waiting(key)
        self._places.hold(uid, chosen, wants.asks)
        try:
            await self._client.bind(pod.metadata.namespace, pod.metadata.name, uid=uid, node=chosen)
        except (NotFound, Conflict):
            self._unbook(key, uid)
            return _REFUSED_S
        seen = self._pods.get(key)
        if seen is not None and seen.metadata.uid == uid and not seen.spec.node_name:
            self._bound.add(uid)
        message = f"Successfully assigned {key} to {chosen}"
        self.controller.recorder.event(reference(pod, PODS), NORMAL, names.EVENT_SCHEDULED, message)
        return None

    async def _look_at_crowds(self) -> None:
        for wants, crowd in list(self._crowds.items()):
            # Between two crowds others get their turn.
            await asyncio.sleep(0)
            if self._places.choose(wants) == crowd.refusal:
                crowd.situation = self._situation
                continue
            for key in crowd.pods:
                self.controller.enqueue(key)

    def _choose(self, wants: Wants) -> str | Refusal:
        crowd = self._crowds.get(wants)
        if crowd is not None and crowd.situation == self._situation:
            return crowd.refusal
        return self._places.choose(wants)

    def _wait(self, key: str, wants: Wants, refusal: Refusal) -> None:
        if self._waiting.get(key) != wants:
            self._stop_waiting(key)
        crowd = self._crowds.setdefault(wants, _Crowd(refusal, self._situation))
        crowd.refusal, crowd.situation = refusal, self._situation
        crowd.pods[key] = None
        self._waiting[key] = wants

    def _stop_waiting(self, key: str) -> None:
        wants = self._waiting.pop(key, None)
        if wants is None:
            return
        crowd = self._crowds[wants]
        del crowd.pods[key]
        if not crowd.pods:
            del self._crowds[wants]

    def _unbook(self, key: str, uid: str) -> None:
        """The pod is not where we meant it to be: it is gone, or somebody else has bound it."""
        seen = self._pods.get(key)
        elsewhere = seen is not None and seen.metadata.uid == uid and seen.spec.node_name
        if not elsewhere and self._places.release(uid):
            self._try_again()

    async def _tell(self, pod: MachinePod, message: str) -> None:
        told = condition_of(pod, names.CONDITION_POD_SCHEDULED)
        reason = names.CONDITION_REASON_UNSCHEDULABLE
        if told is not None and (told.status, told.reason, told.message) == ("False", reason, message):
            return
        since = told.last_transition_time if told is not None and told.status == "False" else None
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


def _needs_a_node(pod: MachinePod) -> bool:
    return not pod.spec.node_name and not pod.spec.scheduling_gates and is_active(pod)
