"""Keeps `PodGroup.status` up to date (workloads:PC-1 to PC-7).

In: changes of pods, PodGroups, priority classes, queues, claims and nodes.  Out: one merge patch of a group's status
when its content changes, and an event for a PodGroup that cannot be read or whose node pool no scheduler serves.

Subtle:
- Sums follow every pod event at once, in memory; writing waits `settle_s` after the first change, so that a gang of
  hundreds of pods is one write and not hundreds.  The more groups wait, the longer each does: under load most pods
  have started by then, and one write suffices.  Writes are rate-limited, too; the newest state is written.
- Our own writes come back through the watch and are ignored; what others write over them is corrected.
- Whether a pod counts is decided by its annotation alone; a pod that changes its group is moved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry

from pykai.api import names
from pykai.api.core import Node, Pod, PriorityClass
from pykai.api.decode import DecodeError
from pykai.api.keys import object_key, split_key
from pykai.api.resource import ResourceClaim
from pykai.api.scheduling import PodGroup, Queue
from pykai.core.cluster.claims.counting import GpuCount, claim_gpus
from pykai.core.model.shapes import ShapeRegister
from pykai.kube import resources
from pykai.kube.errors import Invalid, NotFound
from pykai.kube.events import InvolvedObject
from pykai.kube.flags import read_options
from pykai.kube.limits import TokenBucket
from pykai.kube.reconcilingservice import ReconcilingService
from pykai.kube.runtime import Runtime
from pykai.kube.store import Change
from pykai.podgroups.groupusage import GroupUsage
from pykai.podgroups.nodepools import NodePoolMonitor
from pykai.podgroups.options import FLAGS, PodGroupsOptions
from pykai.podgroups.podusage import GroupMember, read_member, same_member
from pykai.podgroups.status import POOL_NOT_SERVED, StatusInputs, is_complete, status_patch

_BY_QUEUE, _BY_CLASS = "podgroups-queue", "podgroups-class"
#: Shapes of pods that are remembered before the register is cleared.
_MAX_SHAPES: Final = 20_000
#: Groups after which to yield to the event loop: a group whose status is up to date never awaits.
_YIELD_EVERY: Final = 50
#: A group without placed pods waits this many times as long: usually it is placed by then, and one write suffices.
_UNPLACED_SETTLE_FACTOR: Final = 5.0
#: Wall seconds that load may add to the delay.
_MAX_LOAD_DELAY_S: Final = 10.0


def make_podgroups(runtime: Runtime, chosen: PodGroupsOptions | None = None) -> PodGroups:
    """The service."""
    return PodGroups(runtime, chosen or PodGroupsOptions())


def from_flags(runtime: Runtime, given: Mapping[str, str], _: CollectorRegistry) -> list[PodGroups]:
    """The service that flags ask for; raises `OptionError`."""
    return [make_podgroups(runtime, read_options(PodGroupsOptions(), FLAGS, given))]


class PodGroups(ReconcilingService):
    """See the module."""

    name = "podgroups"

    def __init__(self, runtime: Runtime, chosen: PodGroupsOptions) -> None:
        super().__init__(runtime, component=names.POD_GROUP_CONTROLLER, workers=chosen.max_concurrent_reconciles)
        caches = runtime.caches
        self._options = chosen
        selector = "status.phase!=Failed" if chosen.shared_cache else f"spec.schedulerName={chosen.scheduler_name}"
        self._pods = self._need(caches.store(resources.PODS, Pod, field_selector=selector))
        self._groups = self._need(caches.store(resources.POD_GROUPS, PodGroup))
        self._classes = self._need(caches.store(resources.PRIORITY_CLASSES, PriorityClass))
        self._queues = self._need(caches.store(resources.QUEUES, Queue))
        self._nodes = self._need(caches.store(resources.NODES, Node))
        self._claims = self._need(caches.store(resources.RESOURCE_CLAIMS, ResourceClaim, optional=True))
        self._shapes = ShapeRegister()
        #: group key -> its sums
        self._usages: dict[str, GroupUsage] = {}
        #: pod key -> key of the group it is counted in
        self._group_of_pod: dict[str, str] = {}
        #: node -> pods whose share is measured by its GPU memory; claim -> pods that use it
        self._pods_by_memory_node: dict[str, set[str]] = {}
        self._pods_by_claim: dict[str, set[str]] = {}
        self._bucket = TokenBucket(chosen.writes_per_s, int(chosen.writes_per_s))
        self._pools = NodePoolMonitor(
            runtime.clock, chosen.node_pool_label, chosen.scheduler_name, chosen.pool_patience_s
        )
        #: groups that were reported as not served by any scheduler
        self._unserved: set[str] = set()
        self._dirty: set[str] = set()
        #: groups that are being written -> the version that the watch brought meanwhile, "" for none
        self._writes_in_flight: dict[str, str] = {}
        #: groups that were written -> the version that came of it, until the watch brings it
        self._own_versions: dict[str, str] = {}
        self._reconciled = 0

    def idle(self) -> bool:
        """Whether every change that was seen has been written."""
        return not self._dirty and super().idle()

    async def _subscribe(self) -> None:
        self._groups.index(_BY_QUEUE, lambda group: (group.spec.queue,))
        self._groups.index(_BY_CLASS, lambda group: (group.spec.priority_class_name,))
        self._groups.subscribe(self._group_changed)
        self._groups.on_problem(self._group_problem)
        self._classes.subscribe(self._class_changed)
        self._queues.subscribe(self._queue_changed)
        self._nodes.subscribe(self._node_changed)
        self._claims.subscribe(self._claim_changed)
        await self._pods.subscribe_yielding(self._pod_changed)

    def _mark_dirty(self, key: str) -> None:
        """The status of a group may be out of date."""
        if key not in self._dirty:
            load_s = min(_MAX_LOAD_DELAY_S, len(self._dirty) / self._options.writes_per_s)
            self._dirty.add(key)
            tally = self._usages.get(key)
            settle_s = self._options.settle_s * (
                1.0 if tally is not None and tally.allocated else _UNPLACED_SETTLE_FACTOR
            )
            self._reconciler.enqueue(key, after_s=(settle_s + load_s) * self._clock.speed)

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod, key = change.new, change.key
        group = ""
        if pod is not None and pod.spec.scheduler_name == self._options.scheduler_name:
            name = pod.metadata.annotations.get(names.POD_GROUP_ANNOTATION)
            group = object_key(pod.metadata.namespace, name) if name else ""
        before = self._group_of_pod.get(key, "")
        old = change.old
        for served in self._pools.observe(old, pod, self._groups.get(group) if group else None):
            self._mark_dirty(served)
        if old is not None and pod is not None and group == before and same_member(old, pod):
            return
        if before and before != group:
            self._drop(key, before)
        if pod is not None and group:
            self._count(key, group, pod)

    def _count(self, key: str, group: str, pod: Pod) -> None:
        tally = self._usages.setdefault(group, GroupUsage())
        if len(self._shapes.shapes) > _MAX_SHAPES:
            self._shapes = ShapeRegister()
        node = self._nodes.get(pod.spec.node_name) if pod.spec.node_name else None
        member = read_member(pod, self._shapes, node.metadata.labels if node is not None else None)
        previous = tally.members.get(key)
        if previous is not None:
            self._unlink(key, previous)
        self._group_of_pod[key] = group
        self._link(key, member)
        if tally.update(key, member):
            self._mark_dirty(group)

    def _drop(self, key: str, group: str) -> None:
        del self._group_of_pod[key]
        tally = self._usages[group]
        member = tally.members[key]
        self._unlink(key, member)
        tally.remove(key)
        if not tally.members:
            del self._usages[group]
        self._mark_dirty(group)

    def _link(self, key: str, member: GroupMember) -> None:
        if member.gpu_memory_node:
            self._pods_by_memory_node.setdefault(member.gpu_memory_node, set()).add(key)
        for claim in member.claims:
            self._pods_by_claim.setdefault(claim, set()).add(key)

    def _unlink(self, key: str, member: GroupMember) -> None:
        if member.gpu_memory_node:
            _discard(self._pods_by_memory_node, member.gpu_memory_node, key)
        for claim in member.claims:
            _discard(self._pods_by_claim, claim, key)

    def _group_changed(self, change: Change[PodGroup]) -> None:
        old, new = change.old, change.new
        if new is None:
            self._own_versions.pop(change.key, None)
            self._pools.forget(change.key)
            self._unserved.discard(change.key)
        elif old is None or old.spec != new.spec or old.metadata.labels != new.metadata.labels:
            self._mark_dirty(change.key)
        elif _owned_status(old) != _owned_status(new):
            # Our part of the status: our own writes are correct, those of others may not be.
            if change.key in self._writes_in_flight:
                self._writes_in_flight[change.key] = new.metadata.resource_version
            elif self._own_versions.pop(change.key, "") != new.metadata.resource_version:
                self._mark_dirty(change.key)

    def _group_problem(self, key: str, problem: DecodeError | None) -> None:
        if problem is not None:
            namespace, name = split_key(key)
            about = InvolvedObject(names.POD_GROUP_API_VERSION, "PodGroup", namespace, name, problem.uid)
            self._recorder.event(
                about, "Warning", names.EVENT_UNREADABLE, f"{problem}; its pods wait until it is fixed"
            )

    def _class_changed(self, change: Change[PriorityClass]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and (old.value, old.global_default) == (new.value, new.global_default):
            return
        if any(each is not None and each.global_default for each in (old, new)):
            self._mark_all_dirty(self._groups.values())
            return
        self._mark_all_dirty(self._groups.by_index(_BY_CLASS, change.key))

    def _queue_changed(self, change: Change[Queue]) -> None:
        if change.old is None or change.new is None:
            self._mark_all_dirty(self._groups.by_index(_BY_QUEUE, change.key))

    def _mark_all_dirty(self, groups: Iterable[PodGroup]) -> None:
        for group in groups:
            self._mark_dirty(object_key(group.metadata.namespace, group.metadata.name))

    def _node_changed(self, change: Change[Node]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and old.metadata.labels == new.metadata.labels:
            return
        for key in list(self._pods_by_memory_node.get(change.key, ())):
            pod = self._pods.get(key)
            if pod is not None:
                self._count(key, self._group_of_pod[key], pod)

    def _claim_changed(self, change: Change[ResourceClaim]) -> None:
        old, new = change.old, change.new
        if old is None or new is None or old.spec != new.spec:
            for key in self._pods_by_claim.get(change.key, ()):
                self._mark_dirty(self._group_of_pod[key])

    async def _reconcile(self, key: str) -> float | None:
        self._dirty.discard(key)
        patch, again_s = self._patch(key)
        if patch is None:
            self._reconciled += 1
            if not self._reconciled % _YIELD_EVERY:
                await asyncio.sleep(0)
            return again_s
        await self._bucket.take()
        if key in self._dirty:
            # It changed while it waited: write the newest state, once.
            self._dirty.discard(key)
            patch, again_s = self._patch(key)
        if patch is not None:
            await self._write(key, patch)
        return again_s

    async def _write(self, key: str, patch: dict[str, Any]) -> None:
        namespace, name = split_key(key)
        self._writes_in_flight[key] = ""
        version = ""
        try:
            answer = await self._client.patch(
                resources.POD_GROUPS, name, patch, namespace, subresource="status", brief=True
            )
            version = self._own_versions[key] = str(answer["metadata"].get("resourceVersion", ""))
        except NotFound:
            pass
        except Invalid as refusal:
            # The object makes every status invalid; only a change of the object can fix that.
            about = InvolvedObject(names.POD_GROUP_API_VERSION, "PodGroup", namespace, name, patch["metadata"]["uid"])
            self._recorder.event(about, "Warning", names.EVENT_UNREADABLE, f"no status can be written: {refusal}")
        finally:
            seen = self._writes_in_flight.pop(key)
        if seen == version:
            self._own_versions.pop(key, None)
        elif seen:
            self._mark_dirty(key)

    def _patch(self, key: str) -> tuple[dict[str, Any] | None, float | None]:
        """The patch, and after how many seconds to reconcile the group again."""
        group = self._groups.get(key)
        if group is None:
            return None, None
        tally = self._usages.get(key) or GroupUsage()
        pods = (pod for each in tally.members if (pod := self._pods.get(each)) is not None)
        unserved, again_s = self._pools.check(key, group, pods, lambda: is_complete(group, tally))
        self._report_unserved(key, group, unserved)
        patch = status_patch(group, tally, self._status_inputs(group, unserved))
        if patch is not None:
            # A recreated group of the same name is another group.
            patch["metadata"] = {"uid": group.metadata.uid}
        return patch, again_s

    def _report_unserved(self, key: str, group: PodGroup, unserved: str) -> None:
        if not unserved:
            self._unserved.discard(key)
        elif key not in self._unserved:
            self._unserved.add(key)
            meta = group.metadata
            about = InvolvedObject(names.POD_GROUP_API_VERSION, "PodGroup", meta.namespace, meta.name, meta.uid)
            self._recorder.event(about, "Warning", POOL_NOT_SERVED, unserved)

    def _status_inputs(self, group: PodGroup, unserved: str) -> StatusInputs:
        return StatusInputs(
            priority=self._priority(group.spec.priority_class_name),
            queue_exists=group.spec.queue in self._queues,
            claim_gpus=self._claim_gpus,
            now=self._clock.now().isoformat(timespec="seconds")[:19] + "Z",
            unserved=unserved,
        )

    def _priority(self, name: str) -> int:
        """workloads:PR-2."""
        priority_class = self._classes.get(name) if name else None
        if priority_class is not None:
            return priority_class.value
        defaults = [each.value for each in self._classes.values() if each.global_default]
        return max(defaults, default=names.DEFAULT_JOB_PRIORITY)

    def _claim_gpus(self, key: str) -> GpuCount | None:
        claim = self._claims.get(key)
        return claim_gpus(claim.spec) if claim is not None else None


def _owned_status(group: PodGroup) -> tuple[object, ...]:
    status = group.status
    return status.conditions, status.resources_status, status.state, status.pods


def _discard(sets: dict[str, set[str]], name: str, key: str) -> None:
    keys = sets.get(name)
    if keys is not None:
        keys.discard(key)
        if not keys:
            del sets[name]
