"""Groups whose binds keep failing, so that they stop evicting others.

A pod that can never be bound (its claim is broken, an admission rule refuses it, the binder gives up on it) would find
victims again and again: they are evicted for it, the bind fails, they come back.  So failed binds are counted by
PodGroup and cause.  After `MOST_FAILURES` of one cause the group is *confined*: the engine places it on free resources
only (`core.report.decisions.FreeRoomOnly`), and an event and its condition say why.

The count outlives the pod, because a controller makes a new one, and the scheduler, because it is kept in a record
(`records`), written only when a bind has failed.  It is cleared when a pod like the one that failed is bound, or the
PodGroup's spec changes; it does not hold while none of the waiting pods is like the one that failed.

Subtle:

- Pods are alike by what scheduling and binding read of them, not by name (`likeness`); causes are compared without the
  names of pods and nodes (`cause_of`).
- All pods of a gang may fail for one cause: that is one failure of one attempt, not a hundred.
- A group keeps a few different causes and pods; what comes beyond shares one count, so nothing grows without end.
- The waiting pods of such a group are counted by likeness as they come and go: to read them all at every change would
  let one tenant's large pods stop the scheduler.

Statements: security:failed-binds.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from pykai.api import names
from pykai.api.core import Container, Pod, PodSpec
from pykai.api.scheduling import PodGroup
from pykai.core.report.decisions import FreeRoomOnly
from pykai.kube.store import Change
from pykai.scheduler.dispatch.gangbinding import group_key as key_of_group
from pykai.scheduler.dispatch.gangplans import GangPlan
from pykai.scheduler.dispatch.records import FAILED_BINDS, Record, Records
from pykai.scheduler.intake.intake import Intake
from pykai.scheduler.status.statusevents import WARNING, Announcer, is_waiting

log = logging.getLogger(__name__)

#: failures of one cause that a group may have and still evict others
MOST_FAILURES = 3
#: different failures that are kept apart in one group, and BindRequests that are known to be counted
_MOST_KINDS = 8
_MOST_REQUESTS = 32
_LONGEST_CAUSE = 200
#: stands for any pod and any cause
_ANY = "*"

_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NUMBER = re.compile(r"\d+")

#: annotations by which a pod asks for something
_ASKING = (
    names.GPU_FRACTION_ANNOTATION,
    names.GPU_MEMORY_ANNOTATION,
    names.GPU_NUM_DEVICES_ANNOTATION,
    names.GPU_FRACTION_CONTAINER_ANNOTATION,
)


class Failure(msgspec.Struct):
    """Failed binds of one cause, of pods that are alike."""

    cause: str
    likeness: str
    count: int = 0


class _Content(msgspec.Struct):
    """What the record says."""

    #: digest of the PodGroup's spec
    spec: str
    failures: list[Failure]
    #: uids of BindRequests that are counted already
    requests: list[str] = []


_DECODER = msgspec.json.Decoder(_Content)


@dataclass(slots=True)
class _Failing:
    """A group some of whose binds have failed."""

    key: str
    uid: str
    content: _Content
    #: likeness -> how many of its pods wait
    waiting: Counter[str]
    confined: FreeRoomOnly | None = None
    #: whether there was an event about it
    told: bool = False
    #: changes so far, and how many of them the record has
    version: int = 0
    written: int = 0
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)


class FailedBinds:
    """Counts failed binds, and confines the groups that have too many."""

    def __init__(
        self,
        records: Records,
        intake: Intake,
        announcer: Announcer,
        start: Callable[[Coroutine[Any, Any, object], str], object],
    ) -> None:
        self._records = records
        self._intake = intake
        self._announcer = announcer
        self._start = start
        #: PodGroup key -> its failures
        self._failing: dict[str, _Failing] = {}
        #: pods read so far to tell whom they are like
        self.read = 0

    def stop(self) -> None:
        """Forget everything: the next leader reads the records."""
        for key in list(self._failing):
            self._intake.confine(key, None)
        self._failing.clear()

    def take_over(self, records: Iterable[Record]) -> None:
        """Go on from what the last leader has counted."""
        for record in records:
            group = self._intake.groups.get(record.group)
            try:
                content = _DECODER.decode(record.data.get("failures", ""))
            except msgspec.DecodeError as error:
                log.warning("the failed binds of %s are forgotten: %s", record.group, error)
                group = None
            if group is None or group.metadata.uid != record.uid or content.spec != _digest(group.spec):
                self._start(self._records.remove(record.name), f"end of record {record.name}")
                continue
            failing = _Failing(record.group, record.uid, content, self._waiting(record.group))
            self._failing[failing.key] = failing
            for pod in self._intake.pods_of(failing.key):
                # The last leader may have died before it could write that this one was bound after all.
                if pod.spec.node_name:
                    self._succeeded(failing, likeness(pod))
            failing.told = self.times(failing.key) >= MOST_FAILURES
            self._judge(failing)

    def count(self, pod: Pod, group_key: str, why: str, node: str, plan: GangPlan | None, request: str = "") -> None:
        """A bind has failed: the API server refused it, or the binder has given up on this BindRequest."""
        group = self._intake.groups.get(group_key)
        if group is None:
            return
        cause = cause_of(why, pod, node)
        if plan is not None:
            if cause in plan.causes:
                return
            plan.causes.add(cause)
        failing = self._failing.get(group_key)
        if failing is None or failing.uid != group.metadata.uid:
            content = _Content(_digest(group.spec), [])
            failing = _Failing(group_key, group.metadata.uid, content, self._waiting(group_key))
            self._failing[group_key] = failing
        content = failing.content
        if request:
            if request in content.requests:
                return
            content.requests = [*content.requests, request][-_MOST_REQUESTS:]
        _matching(content, cause, likeness(pod)).count += 1
        self._judge(failing)
        self._write(failing)

    def times(self, group_key: str) -> int:
        """How often binds of a group have failed for one cause, at most."""
        failing = self._failing.get(group_key)
        return max((each.count for each in failing.content.failures), default=0) if failing is not None else 0

    # -- what ends it -----------------------------------------------------------------------------------------------

    def saw_pod(self, change: Change[Pod], group_key: str) -> None:
        """News of a pod of a group: bound, made again, changed or gone."""
        failing = self._failing.get(group_key)
        if failing is None:
            return
        pod, old = change.new, change.old
        for each, more in ((old, -1), (pod, 1)):
            if each is not None and is_waiting(each) and key_of_group(each) == group_key:
                failing.waiting[self._likeness(each)] += more
        if pod is not None and pod.spec.node_name and (old is None or not old.spec.node_name):
            self._succeeded(failing, likeness(pod))
        self._judge(failing)

    def saw_group(self, change: Change[PodGroup]) -> None:
        """News of a PodGroup: one that is gone, or another by now, starts over."""
        failing = self._failing.get(change.key)
        if failing is None:
            return
        group = change.new
        if group is None or group.metadata.uid != failing.uid or _digest(group.spec) != failing.content.spec:
            failing.content.failures = []
            self._judge(failing)
            self._write(failing)

    def _succeeded(self, failing: _Failing, like: str) -> None:
        left = [each for each in failing.content.failures if each.likeness not in (like, _ANY)]
        if len(left) < len(failing.content.failures):
            failing.content.failures = left
            self._write(failing)

    def _judge(self, failing: _Failing) -> None:
        """Confine a group, or no longer."""
        why = self._why(failing)
        if why == failing.confined:
            return
        failing.confined = why
        self._intake.confine(failing.key, why)
        if why is not None and not failing.told:
            failing.told = True
            text = (
                f"{why.failures} binds failed ({why.cause}). The group is placed on free resources only, without "
                f"evictions, until a bind succeeds or the PodGroup or its pods change"
            )
            log.warning("group %s: %s", failing.key, text)
            self._announcer.group_event(failing.key, WARNING, names.EVENT_BINDS_FAILED, text)

    def _why(self, failing: _Failing) -> FreeRoomOnly | None:
        over = [each for each in failing.content.failures if each.count >= MOST_FAILURES]
        if not over:
            return None
        worst = max(over, key=lambda each: (each.count, each.cause))
        why = FreeRoomOnly(worst.count, worst.cause)
        likes = {each.likeness for each in over}
        return why if _ANY in likes or any(failing.waiting[like] > 0 for like in likes) else None

    def _waiting(self, group_key: str) -> Counter[str]:
        return Counter(self._likeness(pod) for pod in self._intake.pods_of(group_key) if is_waiting(pod))

    def _likeness(self, pod: Pod) -> str:
        self.read += 1
        return likeness(pod)

    # -- the record -------------------------------------------------------------------------------------------------

    def _write(self, failing: _Failing) -> None:
        failing.version += 1
        if not failing.content.failures and self._failing.get(failing.key) is failing:
            del self._failing[failing.key]
        self._start(self._keep(failing), f"record of failed binds of {failing.key}")

    async def _keep(self, failing: _Failing) -> None:
        """Write what is known by now; what others have written meanwhile is not written again."""
        async with failing.writing:
            version = failing.version
            if failing.written >= version:
                return
            if failing.content.failures:
                data = {"failures": msgspec.json.encode(failing.content).decode()}
                why = await self._records.put(FAILED_BINDS, failing.key, failing.uid, data)
                if why:
                    log.warning("the failed binds of %s could not be kept: %s", failing.key, why)
            else:
                await self._records.remove(self._records.name_of(FAILED_BINDS, failing.uid))
            failing.written = version


def _matching(content: _Content, cause: str, like: str) -> Failure:
    """The failure of this cause and pod; the one for all others when there are too many."""
    for each in content.failures:
        if (each.cause, each.likeness) == (cause, like):
            return each
    if len(content.failures) < _MOST_KINDS - 1:
        found = Failure(cause, like)
    else:
        found = next((each for each in content.failures if each.likeness == _ANY), Failure(cause, _ANY))
        found.cause = cause
    if found not in content.failures:
        content.failures.append(found)
    return found


def _digest(item: object) -> str:
    return hashlib.sha256(msgspec.json.encode(item, order="deterministic")).hexdigest()[:16]


def likeness(pod: Pod) -> str:
    """Equal for pods that ask for the same, however they are called."""

    def unnamed(containers: Iterable[Container]) -> tuple[Container, ...]:
        return tuple(replace(each, volume_mounts=()) for each in containers)

    spec = pod.spec
    # Where a service account mounts its token, every pod gets new names of volumes.
    volumes = tuple(replace(each, name="") for each in spec.volumes)
    asked: PodSpec = replace(
        spec,
        node_name="",
        scheduling_gates=(),
        containers=unnamed(spec.containers),
        init_containers=unnamed(spec.init_containers),
        volumes=volumes,
    )
    return _digest((asked, {key: pod.metadata.annotations.get(key, "") for key in _ASKING}))


def cause_of(why: str, pod: Pod, node: str) -> str:
    """A reason without what differs from one try to the next: names of the pod and its node, uids, numbers."""
    text = _UID.sub("<uid>", why)
    meta = pod.metadata
    known = {meta.name: "<pod>", node: "<node>", meta.annotations.get(names.POD_GROUP_ANNOTATION, ""): "<group>"}
    for name in sorted(filter(None, known), key=len, reverse=True):
        text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", known[name], text)
    return _NUMBER.sub("#", " ".join(text.split()))[:_LONGEST_CAUSE]
