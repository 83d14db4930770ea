"""The kubelets of all simulated machines, as one service.

In: nodes (how much there is), pods that were bound to them, the config maps, claims and volumes that pods need.  Out:
the pods' statuses, the devices they were given, and the deletion of pods that have stopped.

A pod is admitted, in memory, when the watch shows its binding, in the order of the watch. From then on
`lifecycle.next_step` decides from its `LifecycleState`, and this module writes. There is one write per transition: one
patch for a start, one for an end, a patch and a delete for a deletion.

Subtle:
- what was written is remembered (`LifecycleState`), because the watch returns our own writes late and those of others
  in between;
- devices are an annotation in the status patch, as kubelets may write it; if the server drops the annotation, a second
  patch follows;
- after a restart, pods that had started are admitted before those that had not, so that none loses its place.

Statements: sim:RP-2; operations:E-31, E-33.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from pykai.api import names
from pykai.api.core import ConfigMap, Node
from pykai.api.keys import object_key
from pykai.api.numa import NodeResourceTopology
from pykai.api.resource import ResourceClaim
from pykai.api.storage import PersistentVolumeClaim
from pykai.api.workloads import MachinePod
from pykai.kube.client import PatchKind
from pykai.kube.errors import Conflict, NotFound
from pykai.kube.events import EventRecorder, InvolvedObject
from pykai.kube.reconcile import Reconciler
from pykai.kube.resources import (
    CONFIG_MAPS,
    NODE_RESOURCE_TOPOLOGIES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    RESOURCE_CLAIMS,
)
from pykai.kube.runtime import Runtime
from pykai.kube.store import Change, Store
from pykai.lab.cachesync import wait_for_cache_sync
from pykai.lab.machines.dependencies import PodDependencies, dependencies_of
from pykai.lab.machines.lifecycle import (
    MIN_REPORTED_START_S,
    LifecycleState,
    LifecycleStep,
    MachineFacts,
    Stage,
    next_step,
    restored_state,
)
from pykai.lab.machines.machine import DEFAULT_PODS, Machine, Rejection
from pykai.lab.machines.nodes import node_address, ready_conditions
from pykai.lab.machines.podbehaviour import (
    BehaviourDefaults,
    PodBehaviour,
    behaviour_of,
    declared_annotations,
    is_randomly_rejected,
    is_reservation,
)
from pykai.lab.machines.requests import pod_requests
from pykai.lab.timestamps import to_timestamp

log = logging.getLogger(__name__)

#: a kubelet's message when a device plugin fails
_RANDOM_REJECTION = Rejection(
    "UnexpectedAdmissionError",
    "Allocate failed due to rpc error: the simulated device plugin failed, which is unexpected",
)


@dataclass(slots=True)
class _TrackedPod:
    """What is remembered about a pod on a machine."""

    uid: str
    node: str
    state: LifecycleState
    behaviour: PodBehaviour
    #: annotations from which the behaviour was read
    declared: tuple[str | None, ...]
    address: str
    dependencies: PodDependencies
    rejection: Rejection | None = None


class Kubelets:
    """All simulated machines."""

    name = "machines"

    def __init__(
        self,
        runtime: Runtime,
        behaviour_defaults: BehaviourDefaults | None = None,
        *,
        all_nodes: bool = True,
        without: Collection[str] = (),
    ) -> None:
        """`all_nodes`: every node is simulated, not only labelled ones; `without`: namespaces whose pods others run."""
        self._client = runtime.client
        self._clock = runtime.clock
        self._behaviour_defaults = behaviour_defaults or BehaviourDefaults()
        self._all_nodes = all_nodes
        self._without = frozenset(without)
        self._nodes: Store[Node] = runtime.caches.store(NODES, Node)
        self._pods: Store[MachinePod] = runtime.caches.store(PODS, MachinePod)
        self._config_maps: Store[ConfigMap] = runtime.caches.store(CONFIG_MAPS, ConfigMap, metadata_only=True)
        self._claims: Store[ResourceClaim] = runtime.caches.store(RESOURCE_CLAIMS, ResourceClaim, optional=True)
        self._volumes: Store[PersistentVolumeClaim] = runtime.caches.store(
            PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim, optional=True
        )
        self._topologies: Store[NodeResourceTopology] = runtime.caches.store(
            NODE_RESOURCE_TOPOLOGIES, NodeResourceTopology, optional=True
        )
        self._pods.index("node", lambda pod: (pod.spec.node_name,) if pod.spec.node_name else ())
        self._machines: dict[str, Machine] = {}
        self._tracked_pods: dict[str, _TrackedPod] = {}
        #: `<resource>/<namespace>/<name>` -> pods that cannot start without it
        self._pods_by_missing_object: dict[str, set[str]] = {}
        self._addresses: set[int] = set()
        self._next_address = 0
        self._reconciler = Reconciler(self.name, self._reconcile, clock=runtime.clock, workers=64, max_delay_s=10.0)
        self._node_reconciler = Reconciler("nodes", self._initialise_node, clock=runtime.clock, workers=8)
        self._recorder = EventRecorder(runtime.client, component="kubelet", clock=runtime.clock)
        #: whether the server is known to store annotations of a status patch
        self._status_patch_keeps_annotations = False
        self._ready = False

    def ready(self) -> bool:
        """Whether the machines run."""
        return self._ready

    def machine(self, node: str) -> Machine | None:
        """The state of one machine."""
        return self._machines.get(node)

    async def run(self, stop: asyncio.Event) -> None:
        """Run the machines until `stop` is set; pods then stay as they are."""
        needs: tuple[Store[Any], ...] = (self._config_maps, self._claims, self._volumes)
        stores: tuple[Store[Any], ...] = (self._nodes, self._pods, self._topologies, *needs)
        if not await wait_for_cache_sync(stop, *stores):
            return
        self._nodes.subscribe(self._on_node)
        for pod in sorted(self._pods.values(), key=_admission_order):
            self._track_pod(pod)
        for track in self._tracked_pods.values():
            # Running pods without a device annotation hold devices, too; those with one come first.
            if track.state.stage is Stage.RUNNING:
                self._machines[track.node].assign_devices(track.uid)
        self._pods.subscribe(self._on_pod)
        self._topologies.subscribe(self._on_topology)
        for store in needs:
            store.subscribe(self._on_dependency)
        self._ready = True
        async with asyncio.TaskGroup() as group:
            group.create_task(self._recorder.run(stop))
            group.create_task(self._node_reconciler.run(stop))
            group.create_task(self._reconciler.run(stop))
        self._ready = False

    def _on_node(self, change: Change[Node]) -> None:
        name, node = change.key, change.new
        if node is None or not self._simulates(node):
            self._machines.pop(name, None)
            for pod in self._pods.by_index("node", name):
                self._forget_pod(_key(pod))
            return
        machine = self._machines.get(name)
        if machine is None:
            machine = self._machines[name] = Machine(name)
            machine.zones.update(self._topologies.get(name))
        machine.update(node)
        if _has_no_kubelet(node):
            self._node_reconciler.enqueue(name)
        if change.old is None:
            for pod in sorted(self._pods.by_index("node", name), key=_admission_order):
                self._track_pod(pod)

    def _on_topology(self, change: Change[NodeResourceTopology]) -> None:
        if machine := self._machines.get(change.key):
            machine.zones.update(change.new)

    def _simulates(self, node: Node) -> bool:
        return self._all_nodes or node.metadata.labels.get(names.SIMULATED_NODE_LABEL) == "true"

    def _on_pod(self, change: Change[MachinePod]) -> None:
        old, pod = change.old, change.new
        if pod is None:
            self._forget_pod(change.key)
            return
        track = self._tracked_pods.get(change.key)
        if track is None or track.uid != pod.metadata.uid:
            self._forget_pod(change.key)
            if pod.spec.node_name:
                self._track_pod(pod)
        elif old is not None and (
            (pod.metadata.deletion_timestamp is not None and old.metadata.deletion_timestamp is None)
            or pod.metadata.deletion_grace_period_seconds != old.metadata.deletion_grace_period_seconds
            or (pod.status.phase != old.status.phase and pod.status.phase in _ENDED)
            or (pod.metadata.annotations != old.metadata.annotations and declared_annotations(pod) != track.declared)
        ):
            self._reconciler.enqueue(change.key)

    def _on_dependency(self, change: Change[Any]) -> None:
        if not self._pods_by_missing_object:
            return
        for kind in _DEPENDENCY_RESOURCES:
            for key in self._pods_by_missing_object.get(f"{kind}/{change.key}", ()):
                self._reconciler.enqueue(key)

    def _track_pod(self, pod: MachinePod) -> None:
        """A pod was bound to its machine, or was there before this process."""
        if pod.metadata.namespace in self._without:
            return
        key, uid = _key(pod), pod.metadata.uid
        machine = self._machines.get(pod.spec.node_name)
        tracked = self._tracked_pods.get(key)
        if machine is None or (tracked is not None and tracked.uid == uid):
            return
        self._forget_pod(key)
        now_s = self._now_s()
        state = restored_state(pod, now_s)
        behaviour = behaviour_of(pod, self._behaviour_defaults)
        rejection: Rejection | None = None
        if state.stage is not Stage.ENDED:
            if pod.status.start_time is not None:
                machine.admit_existing(uid, pod_requests(pod))
                machine.zones.record(pod)
            elif is_randomly_rejected(pod, self._behaviour_defaults):
                rejection = _RANDOM_REJECTION
            else:
                rejection = machine.admit(uid, pod_requests(pod)) or machine.align(pod)
            machine.devices.record_assignment(uid, _devices(pod))
        address, dependencies = self._address(pod), dependencies_of(pod)
        self._tracked_pods[key] = _TrackedPod(
            uid, machine.name, state, behaviour, declared_annotations(pod), address, dependencies, rejection
        )
        for problem in behaviour.problems:
            self._record_warning(pod, names.EVENT_INVALID_ANNOTATION, problem)
        plain = state.stage is Stage.ADMITTED and rejection is None and not dependencies
        # Most pods have nothing to do until their containers start: save one reconcile.
        quiet = plain and behaviour.start_s < MIN_REPORTED_START_S and pod.metadata.deletion_timestamp is None
        self._reconciler.enqueue(key, behaviour.start_s if quiet else 0.0)

    def _forget_pod(self, key: str) -> None:
        """A pod is gone, or its machine is."""
        track = self._tracked_pods.pop(key, None)
        if track is None:
            return
        self._release(track)
        self._clear_missing_objects(key, track.dependencies)
        if track.address:
            self._addresses.discard(_number(track.address))

    def _release(self, track: _TrackedPod) -> None:
        machine = self._machines.get(track.node)
        if machine is not None:
            machine.release(track.uid)

    async def _reconcile(self, key: str) -> float | None:
        track, pod = self._tracked_pods.get(key), self._pods.get(key)
        if track is None or pod is None or pod.metadata.uid != track.uid:
            return None
        machine = self._machines.get(track.node)
        if machine is None:
            return None
        if track.declared != (declared_now := declared_annotations(pod)):
            track.declared = declared_now
            track.behaviour = behaviour_of(pod, self._behaviour_defaults)
        before = track.state
        facts = self._facts(key, track, pod)
        transition = next_step(before, pod, self._now_s(), facts)
        if transition.status is not None:
            if not await self._write(pod, machine, transition):
                return None
            if transition.state.stage is Stage.ENDED and track.rejection is not None:
                self._record_warning(pod, track.rejection.reason, track.rejection.message)
            elif facts.waiting is not None and transition.state.reported_waiting != before.reported_waiting:
                self._record_warning(pod, "Failed", f"Error: {facts.waiting.message}")
        track.state = transition.state
        if transition.state.stage is Stage.ENDED:
            self._release(track)
        if transition.state.stage in (Stage.RUNNING, Stage.ENDED):
            self._clear_missing_objects(key, track.dependencies)
        if transition.remove:
            await self._remove(pod)
        return transition.wake_s

    def _facts(self, key: str, track: _TrackedPod, pod: MachinePod) -> MachineFacts:
        waiting = None
        if track.state.stage is Stage.ADMITTED and track.dependencies:
            waiting, missing = track.dependencies.missing_objects(pod, self._config_maps, self._claims, self._volumes)
            for need in missing:
                self._pods_by_missing_object.setdefault(need, set()).add(key)
        return MachineFacts(
            track.behaviour,
            self._behaviour_defaults.init_s,
            node_address(track.node),
            track.address,
            track.rejection,
            waiting,
        )

    async def _write(self, pod: MachinePod, machine: Machine, transition: LifecycleStep) -> bool:
        """Write a transition; False if the pod is gone."""
        metadata: dict[str, Any] = {"uid": pod.metadata.uid}
        annotations: dict[str, str] = {}
        if transition.state.stage is Stage.RUNNING:
            annotations = self._annotations(pod, machine)
            if annotations:
                metadata["annotations"] = annotations
        try:
            written = await self._client.patch(
                PODS,
                pod.metadata.name,
                {"metadata": metadata, "status": transition.status},
                pod.metadata.namespace,
                kind=PatchKind.STRATEGIC,
                subresource="status",
                brief=self._status_patch_keeps_annotations or not annotations,
            )
            if not annotations or self._status_patch_keeps_annotations:
                return True
            self._status_patch_keeps_annotations = (
                annotations.items() <= (written["metadata"].get("annotations") or {}).items()
            )
            if not self._status_patch_keeps_annotations:
                await self._client.patch(
                    PODS, pod.metadata.name, {"metadata": metadata}, pod.metadata.namespace, brief=True
                )
        except NotFound:
            return False
        return True

    def _annotations(self, pod: MachinePod, machine: Machine) -> dict[str, str]:
        given: dict[str, str] = {}
        if devices := machine.assign_devices(pod.metadata.uid):
            given[names.DEVICES_ANNOTATION] = ",".join(devices)
            if is_reservation(pod):
                given[names.RESERVED_GPU_ANNOTATION] = devices[0]
        if zones := machine.zones.annotation(pod.metadata.uid):
            given[names.NUMA_OBSERVED_ANNOTATION] = zones
        known = pod.metadata.annotations
        return {key: value for key, value in given.items() if known.get(key) != value}

    async def _remove(self, pod: MachinePod) -> None:
        with contextlib.suppress(NotFound, Conflict):
            await self._client.delete(PODS, pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid, grace_s=0)

    async def _initialise_node(self, name: str) -> float | None:
        """Turn a node that a user created without a kubelet into a machine."""
        node = self._nodes.get(name)
        if node is None or not _has_no_kubelet(node):
            return None
        capacity = {names.PODS: str(DEFAULT_PODS), **(node.status.capacity or node.status.allocatable)}
        status = {
            "capacity": capacity,
            "allocatable": {**capacity, **node.status.allocatable},
            "conditions": ready_conditions(to_timestamp(self._now_s())),
            "addresses": [
                {"type": "InternalIP", "address": node_address(name)},
                {"type": "Hostname", "address": name},
            ],
        }
        await self._client.patch(NODES, name, {"status": status}, kind=PatchKind.STRATEGIC, subresource="status")
        return None

    def _clear_missing_objects(self, key: str, dependencies: PodDependencies) -> None:
        if not self._pods_by_missing_object or not dependencies:
            return
        for need in [need for need, pods in self._pods_by_missing_object.items() if key in pods]:
            pods = self._pods_by_missing_object[need]
            pods.discard(key)
            if not pods:
                del self._pods_by_missing_object[need]

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

    def _record_warning(self, pod: MachinePod, reason: str, message: str) -> None:
        metadata = pod.metadata
        about = InvolvedObject("v1", "Pod", metadata.namespace, metadata.name, metadata.uid)
        self._recorder.event(about, "Warning", reason, message)

    def _now_s(self) -> float:
        return self._clock.now().timestamp()


_ENDED = ("Succeeded", "Failed")
#: reason that Kubernetes' node lifecycle controller gives for a node whose kubelet never reported
_NEVER_UPDATED = "NodeStatusNeverUpdated"
_DEPENDENCY_RESOURCES = ("configmaps", "resourceclaims", "persistentvolumeclaims")


def _has_no_kubelet(node: Node) -> bool:
    """Whether no kubelet has ever reported; a controller may have noticed that already."""
    said = (condition for condition in node.status.conditions if condition.type == names.NODE_READY)
    return all(condition.reason == _NEVER_UPDATED for condition in said)


def _key(pod: MachinePod) -> str:
    return object_key(pod.metadata.namespace, pod.metadata.name)


def _admission_order(pod: MachinePod) -> tuple[bool, str, str, str]:
    """Started pods first, by start time; then the others, by binding time as far as it is known."""
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
