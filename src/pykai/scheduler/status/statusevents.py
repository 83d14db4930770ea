"""Publishes decisions: events, conditions and timestamps, in the words of cycle:16 and cycle:17.

`StatusEvents` runs on the event loop.  Events go to the recorder, which returns at once; conditions, timestamps and
labels go to `StatusWrites`, each with a callable that reads the object again right before it is written.

Subtle: several timestamps of one PodGroup are one patch.  They wait together in `_pending_annotations` until it is
sent; those added meanwhile make a second one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.decode import API_GROUPS
from pykai.api.keys import split_key
from pykai.api.scheduling import PodGroup
from pykai.api.timestamp import format_timestamp
from pykai.core.model.shard import Shard
from pykai.core.report.decisions import Evict
from pykai.kube import resources
from pykai.kube.client import PatchKind
from pykai.kube.clock import Clock
from pykai.kube.events import EventRecorder, InvolvedObject
from pykai.kube.store import Store
from pykai.kube.yielding import yielding_to_loop
from pykai.scheduler.intake.bindassumptions import BindAssumptions
from pykai.scheduler.intake.groupintake import GroupIntake
from pykai.scheduler.intake.placeholderpods import is_placeholder
from pykai.scheduler.status.conditions import conditions_patch, pod_condition_patch, unschedulable_conditions
from pykai.scheduler.status.starttimestamps import earliest_bind_ns
from pykai.scheduler.status.statusdiff import GroupStatusDiff, PodStatusDiff, StatusDiff
from pykai.scheduler.status.statuswrites import StatusPatch, StatusWrites

NORMAL = "Normal"
WARNING = "Warning"
_MAX_EVENT_LENGTH = 1000
#: each of them publishes for its pods
_GROUPS_AT_A_TIME = 20

_ANNOTATIONS = "annotations"
_CONDITIONS = "conditions"


def now_ns(clock: Clock) -> int:
    """The time of the cluster in nanoseconds since 1970."""
    moment = clock.now()
    return int(moment.timestamp()) * 1_000_000_000 + moment.microsecond * 1000


class StatusEvents:
    """Events and statuses of the scheduler."""

    def __init__(
        self,
        pods: Store[Pod],
        groups: Store[PodGroup],
        stores: Mapping[str, Store[Any]],
        binds: BindAssumptions,
        group_intake: GroupIntake,
        writes: StatusWrites,
        recorder: EventRecorder,
        shard: Shard,
        clock: Clock,
    ) -> None:
        self._pods = pods
        self._groups = groups
        #: kind -> store
        self._stores = stores
        self._binds = binds
        self._group_intake = group_intake
        self._writes = writes
        self._recorder = recorder
        self._shard = shard
        self._clock = clock
        self._pending_annotations: dict[str, dict[str, str | None]] = {}

    @property
    def node_pool(self) -> str:
        """The node pool as messages name it."""
        return self._shard.node_pool or names.DEFAULT_NODE_POOL

    async def publish(self, diff: StatusDiff) -> None:
        """Publish everything that changed with a plan."""
        async for key, timestamp_annotations in yielding_to_loop(diff.timestamp_annotations.items()):
            self.annotate_group(key, timestamp_annotations)
        self._annotate_start_times(diff)
        for key, text in diff.stale:
            self.group_event(key, NORMAL, names.EVENT_STALE_JOB, text)
        async for key, uid, node, why in yielding_to_loop(diff.pipelined):
            text = f"Pod {key} was pipelined to node {node}" + (f" and cannot start yet. {why}" if why else "")
            self.pod_event(key, uid, NORMAL, names.EVENT_PIPELINED, text)
        async for group in yielding_to_loop(diff.groups, _GROUPS_AT_A_TIME):
            self._publish_waiting_group(group)
        async for pod in yielding_to_loop(diff.pods):
            self._publish_waiting_pod(pod)
        async for key in yielding_to_loop(diff.cleared):
            self._clear_conditions(key)

    def _publish_waiting_pod(self, diff: PodStatusDiff) -> None:
        if diff.event:
            self.pod_event(diff.key, diff.uid, WARNING, diff.reason, diff.text)
        if diff.condition:
            self.pod_condition(diff.key, diff.uid, diff.reason, diff.text)

    def pod_condition(self, key: str, uid: str, reason: str, message: str) -> None:
        """Set PodScheduled to False, with this reason."""

        def make_patch() -> StatusPatch | None:
            pod = self._pods.get(key)
            if pod is None or pod.metadata.uid != uid or pod.spec.node_name or self._binds.is_assumed(key):
                return None
            now = format_timestamp(now_ns(self._clock))
            content = pod_condition_patch(pod, names.CONDITION_POD_SCHEDULED, "False", reason, message, now)
            if content is None:
                return None
            namespace, name = split_key(key)
            return StatusPatch(resources.PODS, namespace, name, content, PatchKind.STRATEGIC, "status")

        self._writes.put(f"pod status {key}", make_patch)

    def pod_scheduled(self, key: str, uid: str, node: str) -> None:
        """A pod is placed (cycle:OUT-2): earlier reasons for waiting no longer hold."""
        self._writes.drop(f"pod status {key}")
        text = f"Successfully assigned pod {key} to node {node} at node-pool {self.node_pool}"
        self.pod_event(key, uid, NORMAL, names.EVENT_SCHEDULED, text)

    def label_node_pool(self, key: str, uid: str) -> None:
        """Give a pod the label of its node pool (gpu:B-3)."""
        labels = self.node_pool_label()
        pod = self._pods.get(key)
        if not labels or pod is None or labels.items() <= pod.metadata.labels.items():
            return
        namespace, name = split_key(key)
        content = {"metadata": {"uid": uid, "labels": labels}}
        self._writes.put(f"pod labels {key}", lambda: StatusPatch(resources.PODS, namespace, name, content))

    def node_pool_label(self) -> dict[str, str]:
        """The label that pods and BindRequests of this pool carry."""
        shard = self._shard
        return {shard.node_pool_key: shard.node_pool} if shard.node_pool_key and shard.node_pool else {}

    def binding_failed(self, key: str, uid: str, node: str, error: str) -> None:
        """Publish a failed bind (cycle:OUT-3)."""
        text = f"Failed to bind pod {key} to node {node}. {error}"
        self.pod_event(key, uid, WARNING, names.EVENT_FAILED_BINDING, text)
        self.pod_condition(key, uid, names.CONDITION_REASON_BINDING_ERROR, text)

    def _publish_waiting_group(self, diff: GroupStatusDiff) -> None:
        for pod in diff.pods:
            self._publish_waiting_pod(pod)
        if diff.event:
            self.group_event(diff.key, NORMAL, diff.reason, diff.text)
        if diff.reasons is not None:
            self._set_condition(diff.key, diff.text, diff.reasons)

    def _set_condition(self, key: str, text: str, reasons: tuple[Mapping[str, object], ...]) -> None:
        group = self._group_intake.with_patch(key)
        if group is None:
            return
        pool = group.metadata.labels.get(self._shard.node_pool_key) or names.DEFAULT_NODE_POOL
        now = format_timestamp(now_ns(self._clock))
        conditions = unschedulable_conditions(
            group.status.scheduling_conditions, pool=pool, message=text, reasons=reasons, now=now
        )
        if conditions is None:
            return

        def make_patch() -> StatusPatch | None:
            # Made from the object as the server has it: the assumed patch is this very write.
            current = self._groups.get(key)
            if current is None or current.metadata.uid != group.metadata.uid:
                return None
            wanted = unschedulable_conditions(
                current.status.scheduling_conditions, pool=pool, message=text, reasons=reasons, now=now
            )
            if wanted is None:
                return None
            shared = any(each.node_pool != pool for each in wanted)
            version = current.metadata.resource_version if shared else ""
            return self._group_patch(current, conditions_patch(current.metadata.uid, wanted, version), "status")

        self._group_intake.assume_patch(key, _CONDITIONS, conditions=conditions)
        on_written = partial(self._group_intake.on_patch_written, key, group.metadata.uid, _CONDITIONS)
        self._writes.put(f"group status {key}", make_patch, on_written)

    def _clear_conditions(self, key: str) -> None:
        group = self._group_intake.with_patch(key)
        if group is None or not group.status.scheduling_conditions:
            return

        def make_patch() -> StatusPatch | None:
            current = self._groups.get(key)
            if current is None or current.metadata.uid != group.metadata.uid:
                return None
            if not current.status.scheduling_conditions:
                return None
            return self._group_patch(current, conditions_patch(current.metadata.uid, [], ""), "status")

        self._group_intake.assume_patch(key, _CONDITIONS, conditions=[])
        on_written = partial(self._group_intake.on_patch_written, key, group.metadata.uid, _CONDITIONS)
        self._writes.put(f"group status {key}", make_patch, on_written)

    def annotate_group(self, key: str, timestamp_annotations: Mapping[str, str | None]) -> None:
        """Set (or with None remove) annotations of a PodGroup."""
        group = self._group_intake.with_patch(key)
        if group is None:
            return
        uid = group.metadata.uid
        self._pending_annotations.setdefault(key, {}).update(timestamp_annotations)

        def make_patch() -> StatusPatch | None:
            current = self._groups.get(key)
            if current is None or current.metadata.uid != uid:
                return None
            return self._group_patch(
                current, {"metadata": {"uid": uid, "annotations": dict(self._pending_annotations[key])}}, ""
            )

        def on_written(version: str) -> None:
            self._pending_annotations.pop(key, None)
            self._group_intake.on_patch_written(key, uid, _ANNOTATIONS, version)

        self._group_intake.assume_patch(key, _ANNOTATIONS, annotations=timestamp_annotations)
        self._writes.put(f"group annotations {key}", make_patch, on_written)

    def _annotate_start_times(self, diff: StatusDiff) -> None:
        """Write start times that were not needed so far, read from the pods."""
        since_ns = now_ns(self._clock) - diff.protected_ns
        for key, pods in diff.without_start_time.items():
            started_ns = earliest_bind_ns(pod for pod in map(self._pods.get, pods) if pod is not None)
            if started_ns is not None and started_ns > since_ns:
                self.annotate_group(key, {names.LAST_START_TIMESTAMP_ANNOTATION: format_timestamp(started_ns)})

    def _group_patch(self, group: PodGroup, content: Mapping[str, object], subresource: str) -> StatusPatch:
        meta = group.metadata
        return StatusPatch(resources.POD_GROUPS, meta.namespace, meta.name, content, PatchKind.MERGE, subresource)

    def pod_evicted(self, eviction: Evict) -> None:
        """Publish an eviction (cycle:OUT-5)."""
        annotations = {
            names.EVICTED_PODS_ANNOTATION: str(eviction.gang_size),
            names.EVICTOR_ACTION_ANNOTATION: eviction.action,
        }
        if eviction.preemptor:
            namespace, name = split_key(eviction.preemptor)
            annotations[names.EVICTOR_POD_GROUP_ANNOTATION] = name
            annotations[names.EVICTOR_POD_GROUP_NAMESPACE_ANNOTATION] = namespace
        self.group_event(eviction.group, NORMAL, names.EVENT_EVICT, eviction.message, annotations)

    def pod_event(self, key: str, uid: str, type_: str, reason: str, text: str) -> None:
        """Publish an event about a pod; placeholders are no pods."""
        if is_placeholder(uid):
            return
        namespace, name = split_key(key)
        self._event(InvolvedObject("v1", "Pod", namespace, name, uid), type_, reason, text)

    def group_event(
        self, key: str, type_: str, reason: str, text: str, annotations: Mapping[str, str] | None = None
    ) -> None:
        """Publish an event about a PodGroup."""
        namespace, name = split_key(key)
        group = self._groups.get(key)
        uid = group.metadata.uid if group is not None else ""
        about = InvolvedObject(names.POD_GROUP_API_VERSION, "PodGroup", namespace, name, uid)
        self._event(about, type_, reason, text, annotations)

    def object_event(self, kind: str, key: str, type_: str, reason: str, text: str) -> None:
        """Publish an event about an object of any kind we read."""
        namespace, name = split_key(key)
        store = self._stores.get(kind)
        current = store.get(key) if store is not None else None
        version = store.resource.api_version if store is not None else API_GROUPS.get(kind, "v1")
        uid = current.metadata.uid if current is not None else ""
        if store is not None and key in store.problems:
            uid = store.problems[key].uid
        self._event(InvolvedObject(version, kind, namespace, name, uid), type_, reason, text)

    def _event(
        self, about: InvolvedObject, type_: str, reason: str, text: str, annotations: Mapping[str, str] | None = None
    ) -> None:
        if len(text) > _MAX_EVENT_LENGTH:
            text = text[: _MAX_EVENT_LENGTH - 3] + "..."
        self._recorder.event(about, type_, reason, text, annotations=annotations)


def is_waiting(pod: Pod) -> bool:
    """Whether a pod has no node yet and may get one."""
    return not pod.spec.node_name and pod.metadata.deletion_timestamp is None and pod.status.phase in ("", "Pending")
