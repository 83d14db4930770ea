"""The pod grouper's loop: every pod of ours gets its PodGroup (workloads:GR-1 to GR-7).

In: changes of pods, of their owners and of PodGroups.  Out: one create or patch a PodGroup and one patch a pod, and
nothing where everything is as it should be.  A pod that cannot be grouped gets an event and is retried.

A pod costs no read: pods, PodGroups, priority classes and the common kinds of owners are cached, other owners are
remembered for a while.  A change of an owner of a cached kind is applied at once, of another kind when its cache entry
expires.

Subtle:
- Most changes of a pod (it is bound, it runs) do not matter here and are filtered out early.
- A pod may have been replaced by another of the same name; the patch names the uid.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from prometheus_client import CollectorRegistry

from pykai.api import names
from pykai.api.core import Namespace, Pod, PriorityClass
from pykai.api.keys import object_key
from pykai.api.meta import OwnerReference
from pykai.api.scheduling import PodGroup
from pykai.api.timestamp import TimestampError, parse_timestamp
from pykai.kube import resources
from pykai.kube.backoff import Backoff
from pykai.kube.cachesync import wait_for_sync
from pykai.kube.errors import ApiError, Conflict, NotFound
from pykai.kube.events import InvolvedObject
from pykai.kube.flags import read_options
from pykai.kube.heldpods import has_node, subgroup_of
from pykai.kube.reconcilingservice import ReconcilingService
from pykai.kube.runtime import Runtime
from pykai.kube.store import Change, Store
from pykai.podgrouper.defaults import inherited_fields
from pykai.podgrouper.describedkinds import DescribedKinds
from pykai.podgrouper.gangreader import GangReader
from pykai.podgrouper.grouping import needs_grouping, opts_out, pod_metadata
from pykai.podgrouper.groupwriter import PodGroupWriter
from pykai.podgrouper.kinddefaults import TextConfigMap, read_kind_defaults
from pykai.podgrouper.kinds import GrouperTable, installed_groupers
from pykai.podgrouper.lookups import BY_ORIGIN, Lookups, index_pods
from pykai.podgrouper.metadata import (
    Grouper,
    GroupingError,
    GroupVersionKind,
    KindDefaults,
    Metadata,
    ObjectName,
    ObjectNotRead,
    Owner,
)
from pykai.podgrouper.oldestpods import OldestPods, group_key
from pykai.podgrouper.options import FLAGS, PodGrouperOptions, selector_pairs
from pykai.podgrouper.origins import KUEUE_POD_GROUP, MissingGang, origin_of, waiting_siblings_key
from pykai.podgrouper.ownerreader import OwnerReader
from pykai.podgrouper.owners import JobProgress, ObjectMetadataOnly, controller_reference, controller_uid
from pykai.podgrouper.protection import refuse_protected_join
from pykai.podgrouper.unknownkinds import UnknownKindReporter
from pykai.podgrouper.writes import pod_patch

_log = logging.getLogger(__name__)

_BY_OWNER, _BY_GROUP = "podgrouper-owner", "podgrouper-group"
#: groups by API group and kind of their owner
_BY_OWNER_KIND = "podgrouper-owner-kind"
#: pods without a node by their owner: a Job changes with each of its ten thousand pods
_UNSCHEDULED_BY_OWNER = "podgrouper-waiting"
#: Wall seconds to wait for the caches of owners; without them grouping works with more requests.
_OWNER_SYNC_TIMEOUT_S: Final = 5.0
_BACKOFF: Final = Backoff(1.0, 60.0)
_CONFLICT_BACKOFF: Final = Backoff(0.04, 60.0)
#: Cluster seconds until a deleted group is recreated: if its workload was deleted, its pods are gone by then.
_RECREATE_DELAY_S: Final = 1.0
#: seconds until a pod is tried again whose namespace is not known yet
_NAMESPACE_DELAY_S: Final = 0.2
#: Least and most cluster seconds until a pod without subgroup is grouped again.
_NO_SUBGROUP_RETRY_S: Final = (5.0, 60.0)
#: Pods after which to yield to the event loop: a pod that is grouped already never awaits.
_YIELD_EVERY: Final = 50


def make_podgrouper(
    runtime: Runtime,
    options: PodGrouperOptions | None = None,
    groupers: Mapping[GroupVersionKind, Grouper] | None = None,
) -> PodGrouper:
    """The service; `groupers` are those of the table and of the entry points unless given."""
    return PodGrouper(runtime, options or PodGrouperOptions(), groupers or installed_groupers())


def from_flags(runtime: Runtime, given: Mapping[str, str], _: CollectorRegistry) -> list[PodGrouper]:
    """The service that flags ask for; raises `OptionError`."""
    return [make_podgrouper(runtime, read_options(PodGrouperOptions(), FLAGS, given))]


class PodGrouper(ReconcilingService):
    """See the module."""

    name = "podgrouper"

    def __init__(
        self, runtime: Runtime, options: PodGrouperOptions, groupers: Mapping[GroupVersionKind, Grouper]
    ) -> None:
        super().__init__(runtime, component=names.POD_GROUPER, workers=options.max_concurrent_reconciles)
        caches = runtime.caches
        self._options = options
        self._settings = options.settings()
        self._groupers = groupers
        selector = "status.phase!=Failed" if options.shared_cache else f"spec.schedulerName={options.scheduler_name}"
        self._pods = self._need(
            caches.store(resources.PODS, Pod, label_selector=options.pod_label_selector, field_selector=selector)
        )
        self._groups = self._need(caches.store(resources.POD_GROUPS, PodGroup))
        self._classes = self._need(caches.store(resources.PRIORITY_CLASSES, PriorityClass))
        self._namespace_pairs = selector_pairs(options.namespace_label_selector)
        self._namespaces = self._need(caches.store(resources.NAMESPACES, Namespace, metadata_only=True))
        self._defaults: dict[str, KindDefaults] = {}
        self._default_maps: Store[TextConfigMap] | None = None
        where, which = options.default_priorities_configmap_namespace, options.default_priorities_configmap_name
        if where and which:
            self._default_maps = self._need(
                caches.store(
                    resources.CONFIG_MAPS, TextConfigMap, namespace=where, field_selector=f"metadata.name={which}"
                )
            )
        # Before the first list: a hundred thousand pods are sorted in page by page, not at once.
        self._pods.index(_BY_OWNER, controller_uid)
        self._pods.index(_UNSCHEDULED_BY_OWNER, lambda pod: () if pod.spec.node_name else controller_uid(pod))
        self._pods.index(_BY_GROUP, lambda pod: (group,) if (group := group_key(pod)) else ())
        self._groups.index(_BY_OWNER_KIND, _owner_kinds)
        self._described = DescribedKinds(runtime, self._recorder, options)
        index_pods(self._pods, self._settings)
        self._gangs = GangReader(runtime, self._gang_changed)
        self._owners = OwnerReader(runtime, groupers, options.owner_memory_s)
        self._oldest_pods = OldestPods(self._pods)
        self._unknown_kinds = UnknownKindReporter(
            self._recorder, self._pods, self._groups, by_owner=_BY_OWNER, by_group=_BY_GROUP
        )
        self._writer = PodGroupWriter(
            runtime.client,
            self._groups,
            self._settings,
            follow_queue=options.follow_queue,
            held=self._held_in,
            classes=self._classes_by_name,
        )
        #: group -> what it was, of those that were deleted while pods of them had a node
        self._deleted: dict[str, PodGroup] = {}
        #: groups that get what their workload says once no pod of them has a node (protect:grouper)
        self._kept: set[str] = set()
        self._failures: dict[str, int] = {}
        #: group -> the reported problems of its workload
        self._reported_problems: dict[str, str] = {}
        self._reconciled = 0

    def idle(self) -> bool:
        """Whether every pod that was seen has been grouped."""
        return self.ready() and super().idle()

    async def _wait_before_subscribing(self, stop: asyncio.Event) -> None:
        await wait_for_sync((*self._owners.stores, *self._described.stores), stop, _OWNER_SYNC_TIMEOUT_S)

    async def _subscribe(self) -> None:
        for store in self._owners.stores:
            store.subscribe(self._owner_changed)
        if self._default_maps is not None:
            self._default_maps.subscribe(self._defaults_changed)
        self._described.subscribe(self._kind_changed)
        self._groups.subscribe(self._group_changed)
        await self._pods.subscribe_yielding(self._pod_changed)

    def _pod_changed(self, change: Change[Pod]) -> None:
        self._oldest_pods.observe(change)
        old, new = change.old, change.new
        if old is not None and has_node(old) and (new is None or not has_node(new)):
            self._pod_left(group_key(old))
        if new is None:
            self._failures.pop(change.key, None)
        elif self._needs_grouping(new) and not (old is not None and self._is_unchanged(old, new)):
            self._reconciler.enqueue(change.key)
        elif (key := waiting_siblings_key(new, self._settings)) is not None:
            # The minimum of the group follows what is left to do; one pod is enough to write it.
            for pod in islice(self._pods.by_index(BY_ORIGIN, key), 1):
                self._reconciler.enqueue(object_key(pod.metadata.namespace, pod.metadata.name))

    def _pod_left(self, group: str) -> None:
        """A pod has given its node back: the last one lets the group become what its workload says."""
        if not (group in self._kept or group in self._deleted) or self._held_in(group):
            return
        self._kept.discard(group)
        self._deleted.pop(group, None)
        for pod in self._pods.by_index(_BY_GROUP, group):
            if self._needs_grouping(pod):
                self._reconciler.enqueue(object_key(pod.metadata.namespace, pod.metadata.name))
                return

    def _needs_grouping(self, pod: Pod) -> bool:
        return needs_grouping(pod, self._options.scheduler_name, self._settings) and self._in_namespace(
            pod.metadata.namespace
        )

    def _in_namespace(self, name: str) -> bool:
        if not self._namespace_pairs:
            return True
        namespace = self._namespaces.get(name)
        return namespace is not None and self._namespace_pairs.items() <= namespace.metadata.labels.items()

    def _is_unchanged(self, old: Pod, new: Pod) -> bool:
        """Whether nothing changed that grouping reads."""
        before, after = old.metadata, new.metadata
        return (
            before.labels == after.labels
            and before.annotations == after.annotations
            and before.owner_references == after.owner_references
            and before.uid == after.uid
            # Some kinds start in steps: workers once their leader has a node.
            and (old.spec.node_name == new.spec.node_name or self._is_watched(after.owner_references))
        )

    def _is_watched(self, references: Sequence[OwnerReference]) -> bool:
        reference = controller_reference(references)
        return reference is None or self._owners.is_watched(reference.api_version, reference.kind)

    def _owner_changed(self, change: Change[ObjectMetadataOnly]) -> None:
        old, new = change.old, change.new
        if old is None or new is None:
            return
        before, after = old.metadata, new.metadata
        if (before.labels, before.annotations, before.owner_references) != (
            after.labels,
            after.annotations,
            after.owner_references,
        ):
            self._enqueue_descendants(after.uid)
        elif (
            isinstance(old, JobProgress)
            and isinstance(new, JobProgress)
            and (old.spec, old.status) != (new.spec, new.status)
        ):
            self._enqueue_one_unscheduled(after.uid)

    def _enqueue_one_unscheduled(self, uid: str) -> None:
        """One pod of a Job that has no node yet: the minimum of its group follows the Job."""
        for pod in self._pods.by_index(_UNSCHEDULED_BY_OWNER, uid):
            if self._needs_grouping(pod):
                self._reconciler.enqueue(object_key(pod.metadata.namespace, pod.metadata.name))
                return

    def _enqueue_descendants(self, uid: str) -> None:
        """Every pod that an owner owns, directly or through others."""
        uids, visited_uids = [uid], {uid}
        while uids:
            above = uids.pop()
            for pod in self._pods.by_index(_BY_OWNER, above):
                if self._needs_grouping(pod):
                    self._reconciler.enqueue(object_key(pod.metadata.namespace, pod.metadata.name))
            child_uids = self._owners.children(above) - visited_uids
            visited_uids |= child_uids
            uids.extend(child_uids)

    def _group_changed(self, change: Change[PodGroup]) -> None:
        """A group of pods that we manage was changed or deleted."""
        old, new = change.old, change.new
        if old is None or (new is not None and (old.metadata.labels, old.spec) == (new.metadata.labels, new.spec)):
            return
        if new is None:
            self._oldest_pods.forget(change.key)
            self._reported_problems.pop(change.key, None)
            self._kept.discard(change.key)
            if self._held_in(change.key):
                self._deleted[change.key] = old
        for pod in self._pods.by_index(_BY_GROUP, change.key):
            if self._needs_grouping(pod):
                after_s = _RECREATE_DELAY_S if new is None else 0.0
                self._reconciler.enqueue(object_key(pod.metadata.namespace, pod.metadata.name), after_s)
                if new is not None:
                    return  # one pod is enough to reconcile a group

    def _kind_changed(self, kind: GroupVersionKind) -> None:
        """A kind is described otherwise: group its pods again, and those that could not be grouped."""
        group, _, name = kind
        for found in self._groups.by_index(_BY_OWNER_KIND, f"{group}/{name}"):
            for pod in self._pods.by_index(_BY_GROUP, object_key(found.metadata.namespace, found.metadata.name)):
                if self._needs_grouping(pod):
                    self._reconciler.enqueue(object_key(pod.metadata.namespace, pod.metadata.name))
        for key in self._failures:
            self._reconciler.enqueue(key)

    def _gang_changed(self, kind: str, namespace: str, name: str) -> None:
        """A gang of Kubernetes appeared or changed: all pods that name it are grouped, or grouped again."""
        for pod in self._pods.by_index(BY_ORIGIN, f"{namespace}/{kind}/{name}"):
            if self._needs_grouping(pod):
                self._reconciler.enqueue(object_key(namespace, pod.metadata.name))

    def _defaults_changed(self, change: Change[TextConfigMap]) -> None:
        self._defaults = read_kind_defaults(change.new.text("types") if change.new is not None else None)

    async def _reconcile(self, key: str) -> float | None:
        pod = self._pods.get(key)
        if pod is None or not self._needs_grouping(pod):
            # It may have been deleted while it was being grouped.
            self._failures.pop(key, None)
            return None
        try:
            again_s = await self._group(pod)
        except Conflict as error:
            _log.debug("%s: %s; retrying", key, error)
            conflicts = self._failures[key] = self._failures.get(key, 0) + 1
            # At once the first time; a lagging cache must not make us hammer the server.
            return 0.0 if conflicts == 1 else _CONFLICT_BACKOFF.delay_s(conflicts)
        except MissingGang as error:
            if key not in self._failures:
                # A watch may lag behind that of pods: not worth an event.
                self._failures[key] = 1
                return _BACKOFF.delay_s(1)
            return self._failed(key, pod, error)
        except (GroupingError, ApiError) as error:
            return self._failed(key, pod, error)
        self._failures.pop(key, None)
        self._reconciled += 1
        if not self._reconciled % _YIELD_EVERY:
            await asyncio.sleep(0)
        return again_s

    def _failed(self, key: str, pod: Pod, error: Exception) -> float | None:
        if pod.metadata.deletion_timestamp is not None:
            return None
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        # Log once; the event on the pod counts the rest. A job of a thousand pods would flood the log.
        _log.log(logging.INFO if failures == 1 else logging.DEBUG, "Pod %s is not grouped: %s", key, error)
        meta = pod.metadata
        about = InvolvedObject("v1", "Pod", meta.namespace, meta.name, meta.uid)
        self._recorder.event(about, "Warning", names.EVENT_POD_GROUPER_WARNING, str(error))
        return _BACKOFF.delay_s(failures)

    async def _group(self, pod: Pod) -> float | None:
        top, owners = await self._owners.find(pod)
        if opts_out(owners):
            return None
        if pod.metadata.namespace not in self._namespaces:
            # The watch of namespaces lags: the queue of a group is not changed later.
            return _NAMESPACE_DELAY_S
        origin = origin_of(pod, self._settings)
        if origin is not None and origin.kind != KUEUE_POD_GROUP:
            await self._gangs.prepare(origin.kind)
        try:
            meta = await self._run_grouper(top, pod, owners)
        except GroupingError:
            self._owners.forget(owners)
            raise
        meta = await self._as_oldest_pod(meta, pod)
        meta = await self._apply(meta, pod)
        self._unknown_kinds.observe(pod, owners, meta, self._tables())
        patch = pod_patch(pod, meta)
        if patch is not None:
            patch["metadata"]["uid"] = pod.metadata.uid
            try:
                await self._client.patch(resources.PODS, pod.metadata.name, patch, pod.metadata.namespace, brief=True)
            except NotFound:
                return None
        if meta.sub_groups and not meta.pod_sub_group:
            return self._no_subgroup_delay_s(pod)
        unwatched = any(not self._owners.is_watched(owner.api_version, owner.kind) for owner in owners)
        return self._owners.memory_s if unwatched else None

    async def _apply(self, meta: Metadata, pod: Pod) -> Metadata:
        """Write the group, and report what is wrong with it; gives what was written."""
        key, current = object_key(meta.namespace, meta.name), group_key(pod)
        old = self._groups.get(current) or self._deleted.get(current)
        group = self._groups.get(key)
        joining = [meta.pod_sub_group or names.DEFAULT_SUBGROUP] if current != key and has_node(pod) else []
        if group is not None:
            refuse_protected_join(old, group, meta, Counter(joining), self._classes_by_name())
        written = await self._writer.apply(meta, joining, old)
        self._deleted.pop(key, None)
        if written is meta:
            self._kept.discard(key)
        else:
            self._kept.add(key)
        self._report_problems(written, pod)
        return written

    def _held_in(self, group: str) -> Counter[str]:
        """Subgroup -> pods of a group that have a node."""
        return Counter(subgroup_of(pod.metadata) for pod in self._pods.by_index(_BY_GROUP, group) if has_node(pod))

    def _classes_by_name(self) -> dict[str, PriorityClass]:
        return {each.metadata.name: each for each in self._classes.values()}

    def _no_subgroup_delay_s(self, pod: Pod) -> float:
        """When to group a pod without subgroup again: the scheduler refuses it until its workload changes.

        The delay is the age of the pod, so it doubles: ten thousand such pods must not keep the service busy.
        """
        least_s, most_s = _NO_SUBGROUP_RETRY_S
        try:
            created_ns = parse_timestamp(pod.metadata.creation_timestamp or "")
        except TimestampError:
            return most_s
        return min(max(self._clock.now().timestamp() - created_ns / 1e9, least_s), most_s)

    def _report_problems(self, meta: Metadata, pod: Pod) -> None:
        """Report ignored values of the workload once per group, on the group and on this pod."""
        key = object_key(meta.namespace, meta.name)
        if not meta.problems:
            self._reported_problems.pop(key, None)
            return
        text = ". ".join(str(problem) for problem in meta.problems)
        # Of other problems its user was told when the pod came.
        if self._reported_problems.get(key) == text or (pod.spec.node_name and key not in self._kept):
            return
        self._reported_problems[key] = text
        existing = self._groups.get(key)
        uid = existing.metadata.uid if existing is not None else ""
        for about in (
            InvolvedObject("v1", "Pod", pod.metadata.namespace, pod.metadata.name, pod.metadata.uid),
            InvolvedObject(names.POD_GROUP_API_VERSION, "PodGroup", meta.namespace, meta.name, uid),
        ):
            self._recorder.event(about, "Warning", names.EVENT_INVALID_WORKLOAD, text)

    async def _run_grouper(self, top: Owner, pod: Pod, owners: tuple[Owner, ...]) -> Metadata:
        """The result of the top owner's grouper; what it needs is read on the way."""
        readers = Lookups(
            self._tables(), self._classes, self._groups, self._pods, self._defaults, self._namespaces, self._gangs
        )
        while True:
            try:
                return pod_metadata(top, pod, owners, self._settings, readers)
            except ObjectNotRead as wanted:
                await self._read_into(wanted.object_name, readers)
            except GroupingError:
                raise
            except Exception as error:
                # Groupers of entry points are foreign code, and may raise anything.
                _log.exception("the grouper of %s failed", top.kind)
                raise GroupingError(f"the grouper of {top.kind} failed: {error}") from error

    def _tables(self) -> tuple[GrouperTable, ...]:
        """Groupers by kind, the table that wins first (workloads:HB-1)."""
        return self._groupers, *self._described.tables

    async def _as_oldest_pod(self, meta: Metadata, pod: Pod) -> Metadata:
        """The result for the oldest pod of the group, with the subgroup of this one; see `oldestpods`."""
        oldest = self._oldest_pods.oldest_in(object_key(meta.namespace, meta.name))
        if oldest is None or oldest.metadata.uid == pod.metadata.uid:
            return meta
        if inherited_fields(oldest, self._settings) == inherited_fields(pod, self._settings):
            return meta
        try:
            top, owners = await self._owners.find(oldest)
            oldest_meta = await self._run_grouper(top, oldest, owners)
        except GroupingError:
            return meta
        if oldest_meta.name != meta.name:
            return meta
        if not meta.pod_sub_group or any(each.name == meta.pod_sub_group for each in oldest_meta.sub_groups):
            return replace(oldest_meta, pod_sub_group=meta.pod_sub_group)
        # This pod is the first of its subgroup.
        return replace(
            oldest_meta,
            pod_sub_group=meta.pod_sub_group,
            sub_groups=meta.sub_groups,
            min_available=meta.min_available,
            min_sub_group=meta.min_sub_group,
        )

    async def _read_into(self, which: ObjectName, readers: Lookups) -> None:
        try:
            readers.objects[which] = await self._owners.read_named(which)
        except NotFound:
            readers.objects[which] = None


def _owner_kinds(group: PodGroup) -> tuple[str, ...]:
    """API group and kind of a group's owner."""
    return tuple(f"{each.api_version.rpartition('/')[0]}/{each.kind}" for each in group.metadata.owner_references[:1])
