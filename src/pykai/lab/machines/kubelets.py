"""The kubelets of all simulated machines, as one service.

In: nodes (how much there is), pods that were bound to them, the config maps, claims and volumes that pods need.  Out:
the pods' statuses, the devices they were given, and the deletion of pods that have stopped.

A pod is admitted in the moment its binding is seen, in memory and in the order of the watch.  From then on its `Life`
says what comes next; `lifecycle.step` decides, this module writes.  There is one write a transition: a starting pod
costs one patch, a finishing one another, a deleted one a patch and a deletion.

Subtle:
- what was written is remembered (`Life`), because the watch brings our own writes back late and other people's writes
  in between;
- devices ride on the status patch as an annotation, as kubelets may write it; a server that drops the annotation gets
  it in a second patch;
- after a restart, pods that had started are booked before those that had not, so that nobody loses a place.

Statements: sim:RP-2.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import Any

from pykai.api import names
from pykai.api.core import ConfigMap, Node
from pykai.api.resource import ResourceClaim
from pykai.api.storage import PersistentVolumeClaim
from pykai.api.workloads import MachinePod
from pykai.kube.client import PatchKind
from pykai.kube.errors import Conflict, NotFound
from pykai.kube.events import EventRecorder, InvolvedObject
from pykai.kube.reconcile import Reconciler
from pykai.kube.resources import (
    CONFIG_MAPS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    RESOURCE_CLAIMS,
)
from pykai.kube.runtime import Runtime
from pykai.kube.store import Change, Store
from pykai.lab.cachesync import synced
from pykai.lab.machines.dependencies import Needs, needs_of
from pykai.lab.machines.lifecycle import SHOWN_START_S, Facts, Life, Stage, Step, life_of, step
from pykai.lab.machines.machine import DEFAULT_PODS, Machine, Rejection
from pykai.lab.machines.nodes import node_address, ready_conditions
from pykai.lab.machines.podbehaviour import Course, Habits, course_of, declared, is_refused, is_reservation
from pykai.lab.machines.requests import asks_of
from pykai.lab.timestamps import stamp

log = logging.getLogger(__name__)

#: what a kubelet says when a device plugin fails
_REFUSED = Rejection(
    "UnexpectedAdmissionError",
    "Allocate failed due to rpc error: the simulated device plugin failed, which is unexpected",
)


@dataclass(slots=True)
class _Track:
    """What is remembered of a pod on a machine."""

    uid: str
    node: str
    life: Life
    course: Course
    #: what the course was read from
    declared: tuple[str | None, ...]
    address: str
    needs: Needs
    rejection: Rejection | None = None


class Machines:
    """All simulated machines."""

    name = "machines"

    def __init__(self, runtime: Runtime, habits: Habits | None = None, *, all_nodes: bool = True) -> None:
        """`all_nodes`: every node is simulated, not only those that say so by a label."""
        self._client = runtime.client
        self._clock = runtime.clock
        self._habits = habits or Habits()
        self._all_nodes = all_nodes
        self._nodes: Store[Node] = runtime.caches.store(NODES, Node)
        self._pods: Store[MachinePod] = runtime.caches.store(PODS, MachinePod)
        self._config_maps: Store[ConfigMap] = runtime.caches.store(CONFIG_MAPS, ConfigMap, metadata_only=True)
        self._claims: Store[ResourceClaim] = runtime.caches.store(RESOURCE_CLAIMS, ResourceClaim, optional=True)
        self._volumes: Store[PersistentVolumeClaim] = runtime.caches.store(
            PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim, optional=True
        )
        self._pods.index("node", lambda pod: (pod.spec.node_name,) if pod.spec.node_name else ())
        self._machines: dict[str, Machine] = {}
        self._tracks: dict[str, _Track] = {}
        #: `<resource>/<namespace>/<name>` -> pods that cannot start without it
        self._held_up: dict[str, set[str]] = {}
        self._addresses: set[int] = set()
        self._next_address = 0
        self._reconciler = Reconciler(self.name, self._reconcile, clock=runtime.clock, workers=64, max_delay_s=10.0)
        self._joining = Reconciler("nodes", self._join, clock=runtime.clock, workers=8)
        self._recorder = EventRecorder(runtime.client, component="kubelet", clock=runtime.clock)
        #: whether the server has shown that it takes annotations with a status
        self._annotations_ride = False
        self._ready = False

    def ready(self) -> bool:
        """Whether the machines run."""
        return self._ready

    def machine(self, node: str) -> Machine | None:
        """The books of one machine."""
        return self._machines.get(node)

    async def run(self, stop: asyncio.Event) -> None:
        """Play the machines until told to stop; pods stay as they are then."""
        stores: tuple[Store[Any], ...] = (self._nodes, self._pods, self._config_maps, self._claims, self._volumes)
        if not await synced(stop, *stores):
            return
        self._nodes.subscribe(self._on_node)
        for pod in sorted(self._pods.values(), key=_arrival):
            self._take(pod)
        for track in self._tracks.values():
            # Pods that run without a note of their devices hold some all the same; those with one came first.
            if track.life.stage is Stage.RUNNING:
                self._machines[track.node].take_devices(track.uid)
        self._pods.subscribe(self._on_pod)
        for store in (self._config_maps, self._claims, self._volumes):
            store.subscribe(self._on_need)
        self._ready = True
        async with asyncio.TaskGroup() as group:
            group.create_task(self._recorder.run(stop))
            group.create_task(self._joining.run(stop))
            group.create_task(self._reconciler.run(stop))
        self._ready = False

    def _on_node(self, change: Change[Node]) -> None:
        name, node = change.key, change.new
        if node is None or not self._simulates(node):
            self._machines.pop(name, None)
            for pod in self._pods.by_index("node", name):
                self._drop(_key(pod))
            return
        machine = self._machines.get(name)
        if machine is None:
            machine = self._machines[name] = Machine(name)
        machine.update(node)
        if _has_no_kubelet(node):
            self._joining.enqueue(name)
        if change.old is None:
            for pod in sorted(self._pods.by_index("node", name), key=_arrival):
                self._take(pod)

    def _simulates(self, node: Node) -> bool:
        return self._all_nodes or node.metadata.labels.get(names.SIMULATED_NODE_LABEL) == "true"

    def _on_pod(self, change: Change[MachinePod]) -> None:
        old, pod = change.old, change.new
        if pod is None:
            self._drop(change.key)
            return
        track = self._tracks.get(change.key)
        if track is None or track.uid != pod.metadata.uid:
            self._drop(change.key)
            if pod.spec.node_name:
                self._take(pod)
        elif old is not None and (
            (pod.metadata.deletion_timestamp is not None and old.metadata.deletion_timestamp is None)
            or pod.metadata.deletion_grace_period_seconds != old.metadata.deletion_grace_period_seconds
            or (pod.status.phase != old.status.phase and pod.status.phase in _ENDED)
            or (pod.metadata.annotations != old.metadata.annotations and declared(pod) != track.declared)
        ):
            self._reconciler.enqueue(change.key)

    def _on_need(self, change: Change[Any]) -> None:
        if not self._held_up:
            return
        for kind in _NEEDED:
            for key in self._held_up.get(f"{kind}/{change.key}", ()):
                self._reconciler.enqueue(key)

    def _take(self, pod: MachinePod) -> None:
        """A pod has come to its machine, or was there before us."""
        key, uid = _key(pod), pod.metadata.uid
        machine = self._machines.get(pod.spec.node_name)
        known = self._tracks.get(key)
        if machine is None or (known is not None and known.uid == uid):
            return
        self._drop(key)
        now_s = self._now_s()
        life = life_of(pod, now_s)
        course = course_of(pod, self._habits)
        rejection: Rejection | None = None
        if life.stage is not Stage.ENDED:
            if pod.status.start_time is not None:
                machine.book(uid, asks_of(pod))
            else:
                rejection = _REFUSED if is_refused(pod, self._habits) else machine.admit(uid, asks_of(pod))
            machine.devices.hold(uid, _devices(pod))
        address, needs = self._address(pod), needs_of(pod)
        self._tracks[key] = _Track(uid, machine.name, life, course, declared(pod), address, needs, rejection)
        for problem in course.problems:
            self._tell(pod, names.EVENT_INVALID_ANNOTATION, problem)
        plain = life.stage is Stage.ADMITTED and rejection is None and not needs
        # The usual pod has nothing to do until its containers start: one look the less.
        quiet = plain and course.start_s < SHOWN_START_S and pod.metadata.deletion_timestamp is None
        self._reconciler.enqueue(key, course.start_s if quiet else 0.0)

    def _drop(self, key: str) -> None:
        """A pod is gone, or its machine is."""
        track = self._tracks.pop(key, None)
        if track is None:
            return
        self._release(track)
        self._no_longer_held_up(key, track.needs)
        if track.address:
            self._addresses.discard(_number(track.address))

    def _release(self, track: _Track) -> None:
        machine = self._machines.get(track.node)
        if machine is not None:
            machine.release(track.uid)

    async def _reconcile(self, key: str) -> float | None:
        track, pod = self._tracks.get(key), self._pods.get(key)
        if track is None or pod is None or pod.metadata.uid != track.uid:
            return None
        machine = self._machines.get(track.node)
        if machine is None:
            return None
        if track.declared != (said := declared(pod)):
            track.declared = said
            track.course = course_of(pod, self._habits)
        before = track.life
        facts = self._facts(key, track, pod)
        taken = step(before, pod, self._now_s(), facts)
        if taken.status is not None:
            if not await self._write(pod, machine, taken):
                return None
            if taken.life.stage is Stage.ENDED and track.rejection is not None:
                self._tell(pod, track.rejection.reason, track.rejection.message)
            elif facts.waiting is not None and taken.life.told != before.told:
                self._tell(pod, "Failed", f"Error: {facts.waiting.message}")
        track.life = taken.life
        if taken.life.stage is Stage.ENDED:
            self._release(track)
        if taken.life.stage in (Stage.RUNNING, Stage.ENDED):
            self._no_longer_held_up(key, track.needs)
        if taken.remove:
            await self._remove(pod)
        return taken.wake_s

    def _facts(self, key: str, track: _Track, pod: MachinePod) -> Facts:
        waiting = None
        if track.life.stage is Stage.ADMITTED and track.needs:
            waiting, missing = track.needs.waiting(pod, self._config_maps, self._claims, self._volumes)
            for need in missing:
                self._held_up.setdefault(need, set()).add(key)
        return Facts(
            track.course, self._habits.init_s, node_address(track.node), track.address, track.rejection, waiting
        )

    async def _write(self, pod: MachinePod, machine: Machine, taken: Step) -> bool:
        """Write a transition; False if the pod is gone."""
        metadata: dict[str, Any] = {"uid": pod.metadata.uid}
        annotations: dict[str, str] = {}
        if taken.life.stage is Stage.RUNNING:
            annotations = self._annotations(pod, machine)
            if annotations:
                metadata["annotations"] = annotations
        try:
            written = await self._client.patch(
                PODS,
                pod.metadata.name,
                {"metadata": metadata, "status": taken.status},
                pod.metadata.namespace,
                kind=PatchKind.STRATEGIC,
                subresource="status",
                brief=self._annotations_ride or not annotations,
            )
            if not annotations or self._annotations_ride:
                return True
            self._annotations_ride = annotations.items() <= (written["metadata"].get("annotations") or {}).items()
            if not self._annotations_ride:
                await self._client.patch(
                    PODS, pod.metadata.name, {"metadata": metadata}, pod.metadata.namespace, brief=True
                )
        except NotFound:
            return False
        return True

    def _annotations(self, pod: MachinePod, machine: Machine) -> dict[str, str]:
        devices = machine.take_devices(pod.metadata.uid)
        if not devices:
            return {}
        given = {names.DEVICES_ANNOTATION: ",".join(devices)}
        if is_reservation(pod):
            given[names.RESERVED_GPU_ANNOTATION] = devices[0]
        known = pod.metadata.annotations
        return {key: value for key, value in given.items() if known.get(key) != value}

    async def _remove(self, pod: MachinePod) -> None:
        with contextlib.suppress(NotFound, Conflict):
            await self._client.delete(PODS, pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid, grace_s=0)

    async def _join(self, name: str) -> float | None:
        """A node that somebody made without a machine behind it: let it be one."""
        node = self._nodes.get(name)
        if node is None or not _has_no_kubelet(node):
            return None
        capacity = {names.PODS: str(DEFAULT_PODS), **(node.status.capacity or node.status.allocatable)}
        status = {
            "capacity": capacity,
            "allocatable": {**capacity, **node.status.allocatable},
            "conditions": ready_conditions(stamp(self._now_s())),
            "addresses": [
                {"type": "InternalIP", "address": node_address(name)},
                {"type": "Hostname", "address": name},
            ],
        }
        await self._client.patch(NODES, name, {"status": status}, kind=PatchKind.STRATEGIC, subresource="status")
        return None

    def _no_longer_held_up(self, key: str, needs: Needs) -> None:
        if not self._held_up or not needs:
            return
        for need in [need for need, pods in self._held_up.items() if key in pods]:
            pods = self._held_up[need]
            pods.discard(key)
            if not pods:
                del self._held_up[need]

    def _address(self, pod: MachinePod) -> str:
        number = _number(pod.status.pod_ip)
        if not number or number in self._addresses:
            number = self._next_address
            while True:
                number = (number + 1) % (1 << 24)
                if number & 0xFF not in (0, 255) and number not in self._addresses:
                    break
            self._next_address = number
        self._addresses.add(number)
        return f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"

    def _tell(self, pod: MachinePod, reason: str, message: str) -> None:
        metadata = pod.metadata
        about = InvolvedObject("v1", "Pod", metadata.namespace, metadata.name, metadata.uid)
        self._recorder.event(about, "Warning", reason, message)

    def _now_s(self) -> float:
        return self._clock.now().timestamp()


_ENDED = ("Succeeded", "Failed")
#: what the node lifecycle controller of Kubernetes says of a node whose kubelet has never spoken
_NEVER_UPDATED = "NodeStatusNeverUpdated"
_NEEDED = ("configmaps", "resourceclaims", "persistentvolumeclaims")


def _has_no_kubelet(node: Node) -> bool:
    """Whether no kubelet has ever said how the node is; a controller may have noticed that already."""
    said = (condition for condition in node.status.conditions if condition.type == names.NODE_READY)
    return all(condition.reason == _NEVER_UPDATED for condition in said)


def _key(pod: MachinePod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def _arrival(pod: MachinePod) -> tuple[bool, str, str, str]:
    """Started ones first, in the order in which they started; the others as they were bound, as far as one can tell."""
    scheduled = next((c for c in pod.status.conditions if c.type == names.CONDITION_POD_SCHEDULED), None)
    bound = scheduled.last_transition_time if scheduled is not None else None
    started = pod.status.start_time
    return started is None, started or bound or "", pod.metadata.creation_timestamp or "", pod.metadata.uid


def _devices(pod: MachinePod) -> list[str]:
    return [device for device in pod.metadata.annotations.get(names.DEVICES_ANNOTATION, "").split(",") if device]


def _number(address: str) -> int:
    parts = address.split(".")
    if len(parts) != 4 or parts[0] != "10" or not all(part.isdigit() for part in parts):
        return 0
    return (int(parts[1]) << 16) + (int(parts[2]) << 8) + int(parts[3])
