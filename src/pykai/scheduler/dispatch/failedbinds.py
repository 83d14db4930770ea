"""Groups whose binds keep failing, so that they stop evicting others.

A pod that can never be bound (its claim is broken, an admission rule refuses it, the binder gives up on it) would find
victims again and again: they are evicted for it, the bind fails, they come back.  So failed binds are counted by
PodGroup and cause.  After `MAX_BIND_FAILURES` of one cause the group is *free room only*: the engine places it on free
resources only (`core.report.decisions.FreeRoomOnly`), and an event and its condition say why.

The count outlives the pod, because a controller creates a new one, and the scheduler, because it is kept in a record
(`records`), written only when a bind has failed.  It is cleared when a pod similar to the failed one is bound, or the
PodGroup's spec changes; it is ignored while none of the waiting pods is similar to the failed one.

Subtle:

- Pods are similar if scheduling and binding read the same of them, whatever their names (`pod_fingerprint`); causes are
  compared without the names of pods and nodes (`normalise_cause`).
- All pods of a gang may fail for one cause: that is one failure of one attempt, not a hundred.
- A group keeps a few different causes and pods; all others share one count, so memory is bounded.
- The waiting pods of such a group are counted by fingerprint as they come and go: reading them all at every change
  would let one tenant's large pods stop the scheduler.

Statements: security:failed-binds.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from pykai.api import names
from pykai.api.core import Container, Pod, PodSpec
from pykai.api.scheduling import PodGroup
from pykai.core.report.decisions import FreeRoomOnly
from pykai.kube.store import Change, Store
from pykai.scheduler.dispatch.backgroundtasks import BackgroundTasks
from pykai.scheduler.dispatch.gangplans import group_key as key_of_group
from pykai.scheduler.dispatch.records import FAILED_BINDS, HandoverRecord, HandoverRecords
from pykai.scheduler.intake.groupintake import GroupIntake
from pykai.scheduler.status.statusevents import WARNING, StatusEvents, is_waiting

log = logging.getLogger(__name__)

#: failures of one cause that a group may have and still evict others
MAX_BIND_FAILURES = 3
#: different failures kept apart in one group, and BindRequests remembered as counted
_MAX_DISTINCT_FAILURES = 8
_MAX_COUNTED_REQUESTS = 32
_MAX_CAUSE_LENGTH = 200
#: matches any pod and any cause
_ANY = "*"

_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NUMBER = re.compile(r"\d+")

#: annotations with requests of a pod
_REQUEST_ANNOTATIONS = (
    names.GPU_FRACTION_ANNOTATION,
    names.GPU_MEMORY_ANNOTATION,
    names.GPU_NUM_DEVICES_ANNOTATION,
    names.GPU_FRACTION_CONTAINER_ANNOTATION,
)


class BindFailureCount(msgspec.Struct):
    """Failed binds of one cause, of similar pods."""

    cause: str
    likeness: str
    count: int = 0


class _FailedBindsRecord(msgspec.Struct):
    """The content of the record."""

    #: digest of the PodGroup's spec
    spec: str
    failures: list[BindFailureCount]
    #: uids of BindRequests that are already counted
    requests: list[str] = []


_DECODER = msgspec.json.Decoder(_FailedBindsRecord)


@dataclass(slots=True)
class _FailingGroup:
    """A group some of whose binds have failed."""

    key: str
    uid: str
    record: _FailedBindsRecord
    #: fingerprint -> how many of its pods wait
    waiting: Counter[str]
    free_room_only: FreeRoomOnly | None = None
    #: whether an event was published about it
    event_sent: bool = False
    #: changes so far, and how many of them are in the record
    version: int = 0
    written: int = 0
    write_lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class FailedBinds:
    """Counts failed binds, and makes groups with too many of them free room only."""

    def __init__(
        self,
        records: HandoverRecords,
        groups: Store[PodGroup],
        pods_of_group: Callable[[str], Collection[Pod]],
        group_intake: GroupIntake,
        status_events: StatusEvents,
        tasks: BackgroundTasks,
    ) -> None:
        self._records = records
        self._groups = groups
        self._pods_of_group = pods_of_group
        self._group_intake = group_intake
        self._status_events = status_events
        self._tasks = tasks
        #: PodGroup key -> its failures
        self._failing: dict[str, _FailingGroup] = {}
        #: pods fingerprinted so far
        self.pods_read = 0

    def stop(self) -> None:
        """Forget everything: the next leader reads the records."""
        for key in list(self._failing):
            self._group_intake.set_free_room_only(key, None)
        self._failing.clear()

    def take_over(self, records: Iterable[HandoverRecord]) -> None:
        """Continue from the counts of the last leader."""
        for record in records:
            group = self._groups.get(record.group)
            try:
                content = _DECODER.decode(record.data.get("failures", ""))
            except msgspec.DecodeError as error:
                log.warning("the failed binds of %s are forgotten: %s", record.group, error)
                group = None
            if group is None or group.metadata.uid != record.uid or content.spec != _digest(group.spec):
                self._tasks.start(self._records.remove(record.name), f"end of record {record.name}")
                continue
            failing = _FailingGroup(record.group, record.uid, content, self._waiting_by_fingerprint(record.group))
            self._failing[failing.key] = failing
            for pod in self._pods_of_group(failing.key):
                # The last leader may have died before it could record that this pod was bound after all.
                if pod.spec.node_name:
                    self._clear_failures(failing, pod_fingerprint(pod))
            failing.event_sent = self.failure_count(failing.key) >= MAX_BIND_FAILURES
            self._update_free_room_only(failing)

    def count_failure(
        self,
        pod: Pod,
        group_key: str,
        why: str,
        node: str,
        counted_causes: set[str] | None,
        request_uid: str = "",
    ) -> None:
        """Count a failed bind: the API server refused it, or the binder has given up on this BindRequest.

        `counted_causes`: the causes already counted for its gang, each counted once.
        """
        group = self._groups.get(group_key)
        if group is None:
            return
        cause = normalise_cause(why, pod, node)
        if counted_causes is not None:
            if cause in counted_causes:
                return
            counted_causes.add(cause)
        failing = self._failing.get(group_key)
        if failing is None or failing.uid != group.metadata.uid:
            failures_record = _FailedBindsRecord(_digest(group.spec), [])
            failing = _FailingGroup(
                group_key, group.metadata.uid, failures_record, self._waiting_by_fingerprint(group_key)
            )
            self._failing[group_key] = failing
        failures_record = failing.record
        if request_uid:
            if request_uid in failures_record.requests:
                return
            failures_record.requests = [*failures_record.requests, request_uid][-_MAX_COUNTED_REQUESTS:]
        _failure_entry(failures_record, cause, pod_fingerprint(pod)).count += 1
        self._update_free_room_only(failing)
        self._start_write(failing)

    def failure_count(self, group_key: str) -> int:
        """The highest number of failed binds of a group for one cause."""
        failing = self._failing.get(group_key)
        return max((each.count for each in failing.record.failures), default=0) if failing is not None else 0

    def on_pod_change(self, change: Change[Pod], group_key: str) -> None:
        """Handle a change of a pod of a group: bound, recreated, changed or deleted."""
        failing = self._failing.get(group_key)
        if failing is None:
            return
        pod, old = change.new, change.old
        for each, delta in ((old, -1), (pod, 1)):
            if each is not None and is_waiting(each) and key_of_group(each) == group_key:
                failing.waiting[self._count_and_fingerprint(each)] += delta
        if pod is not None and pod.spec.node_name and (old is None or not old.spec.node_name):
            self._clear_failures(failing, pod_fingerprint(pod))
        self._update_free_room_only(failing)

    def on_group_change(self, change: Change[PodGroup]) -> None:
        """Handle a change of a PodGroup: a deleted or recreated one starts over."""
        failing = self._failing.get(change.key)
        if failing is None:
            return
        group = change.new
        if group is None or group.metadata.uid != failing.uid or _digest(group.spec) != failing.record.spec:
            failing.record.failures = []
            self._update_free_room_only(failing)
            self._start_write(failing)

    def _clear_failures(self, failing: _FailingGroup, fingerprint: str) -> None:
        left = [each for each in failing.record.failures if each.likeness not in (fingerprint, _ANY)]
        if len(left) < len(failing.record.failures):
            failing.record.failures = left
            self._start_write(failing)

    def _update_free_room_only(self, failing: _FailingGroup) -> None:
        """Make a group free room only, or end that."""
        why = self._free_room_only_reason(failing)
        if why == failing.free_room_only:
            return
        failing.free_room_only = why
        self._group_intake.set_free_room_only(failing.key, why)
        if why is not None and not failing.event_sent:
            failing.event_sent = True
            text = (
                f"{why.failures} binds failed ({why.cause}). The group is placed on free resources only, without "
                f"evictions, until a bind succeeds or the PodGroup or its pods change"
            )
            log.warning("group %s: %s", failing.key, text)
            self._status_events.group_event(failing.key, WARNING, names.EVENT_BINDS_FAILED, text)

    def _free_room_only_reason(self, failing: _FailingGroup) -> FreeRoomOnly | None:
        over = [each for each in failing.record.failures if each.count >= MAX_BIND_FAILURES]
        if not over:
            return None
        worst = max(over, key=lambda each: (each.count, each.cause))
        why = FreeRoomOnly(worst.count, worst.cause)
        fingerprints = {each.likeness for each in over}
        return why if _ANY in fingerprints or any(failing.waiting[like] > 0 for like in fingerprints) else None

    def _waiting_by_fingerprint(self, group_key: str) -> Counter[str]:
        return Counter(self._count_and_fingerprint(pod) for pod in self._pods_of_group(group_key) if is_waiting(pod))

    def _count_and_fingerprint(self, pod: Pod) -> str:
        self.pods_read += 1
        return pod_fingerprint(pod)

    def _start_write(self, failing: _FailingGroup) -> None:
        failing.version += 1
        if not failing.record.failures and self._failing.get(failing.key) is failing:
            del self._failing[failing.key]
        self._tasks.start(self._write_record(failing), f"record of failed binds of {failing.key}")

    async def _write_record(self, failing: _FailingGroup) -> None:
        """Write the present state; what was written meanwhile is not written again."""
        async with failing.write_lock:
            version = failing.version
            if failing.written >= version:
                return
            if failing.record.failures:
                data = {"failures": msgspec.json.encode(failing.record).decode()}
                why = await self._records.put(FAILED_BINDS, failing.key, failing.uid, data)
                if why:
                    log.warning("the failed binds of %s could not be kept: %s", failing.key, why)
            else:
                await self._records.remove(self._records.name_of(FAILED_BINDS, failing.uid))
            failing.written = version


def _failure_entry(record: _FailedBindsRecord, cause: str, fingerprint: str) -> BindFailureCount:
    """The failure of this cause and pod; the shared one if there are too many."""
    for each in record.failures:
        if (each.cause, each.likeness) == (cause, fingerprint):
            return each
    if len(record.failures) < _MAX_DISTINCT_FAILURES - 1:
        failure = BindFailureCount(cause, fingerprint)
    else:
        failure = next((each for each in record.failures if each.likeness == _ANY), BindFailureCount(cause, _ANY))
        failure.cause = cause
    if failure not in record.failures:
        record.failures.append(failure)
    return failure


def _digest(item: object) -> str:
    return hashlib.sha256(msgspec.json.encode(item, order="deterministic")).hexdigest()[:16]


def pod_fingerprint(pod: Pod) -> str:
    """Equal for pods with the same requests, whatever their names."""

    def without_mounts(containers: Iterable[Container]) -> tuple[Container, ...]:
        return tuple(replace(each, volume_mounts=()) for each in containers)

    spec = pod.spec
    # Where a service account mounts its token, every pod gets new volume names.
    volumes = tuple(replace(each, name="") for each in spec.volumes)
    requested: PodSpec = replace(
        spec,
        node_name="",
        scheduling_gates=(),
        containers=without_mounts(spec.containers),
        init_containers=without_mounts(spec.init_containers),
        volumes=volumes,
    )
    return _digest((requested, {key: pod.metadata.annotations.get(key, "") for key in _REQUEST_ANNOTATIONS}))


def normalise_cause(why: str, pod: Pod, node: str) -> str:
    """A reason without what differs from one try to the next: names of the pod and its node, uids, numbers."""
    text = _UID.sub("<uid>", why)
    meta = pod.metadata
    placeholders = {meta.name: "<pod>", node: "<node>", meta.annotations.get(names.POD_GROUP_ANNOTATION, ""): "<group>"}
    for name in sorted(filter(None, placeholders), key=len, reverse=True):
        text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", placeholders[name], text)
    return _NUMBER.sub("#", " ".join(text.split()))[:_MAX_CAUSE_LENGTH]
