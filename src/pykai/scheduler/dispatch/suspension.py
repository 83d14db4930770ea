"""Evictions by suspending the owner instead of deleting its pods (suspend:evict).

Only for a PodGroup with the annotation `kai.scheduler/eviction-strategy: suspend`, and only if the plan evicts every
pod of it that has a node.  The record is written first, then the owner is patched; its controller deletes the pods.
Where any of that fails, the pods are deleted as usual.  So are pods that have not begun to leave after a time limit:
the eviction must not depend on a controller that a tenant may have stopped.

A move by consolidation deletes the pods: they start again at once, elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.keys import object_key
from pykai.api.scheduling import PodGroup
from pykai.api.timestamp import format_timestamp
from pykai.core.model.tasks import has_ended
from pykai.core.report.decisions import Evict
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.errors import KubeError
from pykai.kube.store import Change, Store
from pykai.scheduler.dispatch.backgroundtasks import BackgroundTasks
from pykai.scheduler.dispatch.deletions import Deletions
from pykai.scheduler.dispatch.evictions import Evictions
from pykai.scheduler.dispatch.gangplans import is_bound_and_active
from pykai.scheduler.dispatch.suspendedworkloads import SuspendedWorkload, SuspendedWorkloads, key_of
from pykai.scheduler.dispatch.suspendrecord import SuspendRecord, SuspendState, templates_of
from pykai.scheduler.dispatch.workloadowner import OwnerError, find_owner, set_suspended
from pykai.scheduler.intake.statusassumptions import StatusAssumptions
from pykai.scheduler.status.statusevents import NORMAL, StatusEvents, now_ns

log = logging.getLogger(__name__)

#: cluster seconds for the pods of a suspended owner to begin to leave
_LEAVE_LIMIT_S = 30.0


class Suspension:
    """Suspends evicted workloads."""

    def __init__(
        self,
        client: Client,
        groups: Store[PodGroup],
        pods_of_group: Callable[[str], Collection[Pod]],
        statuses: StatusAssumptions,
        status_events: StatusEvents,
        deletions: Deletions,
        evictions: Evictions,
        workloads: SuspendedWorkloads,
        tasks: BackgroundTasks,
        clock: Clock,
    ) -> None:
        self._client = client
        self._groups = groups
        self._pods_of_group = pods_of_group
        self._statuses = statuses
        self._status_events = status_events
        self._deletions = deletions
        self._evictions = evictions
        self._workloads = workloads
        self._tasks = tasks
        self._clock = clock

    def select(self, evictions: Iterable[Evict]) -> Mapping[str, Sequence[Evict]]:
        """The evictions to carry out by suspending an owner, by group; nearly always none."""
        groups: dict[str, list[Evict]] = {}
        for eviction in evictions:
            if eviction.group in groups or self._wants_suspension(eviction.group):
                groups.setdefault(eviction.group, []).append(eviction)
        return {key: each for key, each in groups.items() if self._evicts_all(key, each)}

    def _wants_suspension(self, key: str) -> bool:
        group = self._groups.get(key)
        strategy = group.metadata.annotations.get(names.EVICTION_STRATEGY_ANNOTATION) if group is not None else ""
        return strategy == names.EVICTION_STRATEGY_SUSPEND

    def _evicts_all(self, key: str, evictions: Sequence[Evict]) -> bool:
        """Whether the whole group leaves its nodes, and nothing of it is lost with the pods."""
        if key in self._workloads or any(each.unbound or each.moves_to for each in evictions):
            return False
        evicted = {each.uid for each in evictions}
        pods = self._pods_of_group(key)
        if not all(pod.metadata.uid in evicted for pod in pods if is_bound_and_active(pod)):
            return False
        # Claims from templates and ephemeral volumes end with the pod, and nothing can be placed in its name.
        return not any(_has_own_objects(pod) for pod in pods if pod.metadata.uid in evicted)

    async def suspend(self, key: str, evictions: Sequence[Evict]) -> None:
        """Evict a whole group by suspending its owner; where that fails, by deleting its pods."""
        why = await self._try_to_suspend(key, evictions)
        if not why:
            return
        log.info("the pods of %s are deleted, and their owner is not suspended: %s", key, why)
        for eviction in evictions:
            name = f"eviction of {eviction.namespace}/{eviction.pod}"
            self._tasks.start(self._evictions.evict(eviction), name)

    async def _try_to_suspend(self, key: str, evictions: Sequence[Evict]) -> str:
        """Suspend the owner; returns why that failed, "" on success."""
        group = self._groups.get(key)
        if group is None:
            return "its PodGroup is gone"
        evicted = {each.uid for each in evictions}
        pods = [pod for pod in self._pods_of_group(key) if not has_ended(pod)]
        leaving = [pod for pod in pods if pod.metadata.uid in evicted]
        if not leaving:
            return "its pods are gone"
        namespace = group.metadata.namespace
        try:
            owner = await find_owner(self._client, group, leaving)
        except OwnerError as error:
            return str(error)
        if owner.suspended:
            return f"{owner.owner.kind} {owner.owner.name} is suspended already"
        record = SuspendRecord(
            owner.owner,
            format_timestamp(now_ns(self._clock)),
            templates_of(pods),
            SuspendState.SUSPENDING,
            tuple(sorted(pod.metadata.uid for pod in pods)),
        )
        workload = SuspendedWorkload(key, group.metadata.uid, record, set(record.leaving))
        self._workloads.add(workload)
        why = await self._workloads.persist(workload)
        if not why and not self._workloads.is_current(workload):
            why = "its PodGroup is gone"
        if not why:
            try:
                for each in evictions:
                    key = object_key(each.namespace, each.pod)
                    await self._deletions.write_eviction_conditions(key, each.uid, each.message)
                await set_suspended(self._client, namespace, owner, record.mark(workload.uid), suspend=True)
            except (OwnerError, KubeError) as error:
                why = str(error)
        if why:
            self._workloads.end(workload, why)
            return why
        self._on_suspended(workload, evictions)
        return ""

    def _on_suspended(self, workload: SuspendedWorkload, evictions: Sequence[Evict]) -> None:
        for eviction in evictions:
            self._evictions.publish(eviction)
            self._statuses.eviction_written(object_key(eviction.namespace, eviction.pod), eviction.uid)
        text = f"{workload.describe()} was suspended to evict its {len(evictions)} pods; it resumes when it fits again"
        self._status_events.group_event(workload.group, NORMAL, names.EVENT_SUSPENDED, text)
        self.await_leaving(workload)

    def await_leaving(self, workload: SuspendedWorkload) -> None:
        """Wait until the pods of a suspended owner are gone; delete those that do not begin to leave."""
        workload.timer = asyncio.get_running_loop().call_later(
            self._clock.wall_s(_LEAVE_LIMIT_S), self._delete_left, workload
        )
        workload.leaving = {pod.metadata.uid for pod in self._workloads.pods_left(workload) if not has_ended(pod)}
        self._check_left(workload)

    def on_pod_change(self, workload: SuspendedWorkload, change: Change[Pod]) -> None:
        """Handle a change of a pod of a workload that is being suspended."""
        old, pod = change.old, change.new
        if old is not None and (pod is None or pod.metadata.uid != old.metadata.uid or has_ended(pod)):
            workload.leaving.discard(old.metadata.uid)
            self._check_left(workload)

    def _check_left(self, workload: SuspendedWorkload) -> None:
        """Let placeholders wait once the last pod is gone."""
        if (
            workload.leaving
            or workload.state is not SuspendState.SUSPENDING
            or not self._workloads.is_current(workload)
        ):
            return
        if workload.timer is not None:
            workload.timer.cancel()
        workload.record = replace(workload.record, leaving=())
        self._workloads.let_wait(workload)

    def _delete_left(self, workload: SuspendedWorkload) -> None:
        for pod in self._workloads.pods_left(workload):
            if pod.metadata.deletion_timestamp is None and not has_ended(pod):
                key, uid = key_of(pod), pod.metadata.uid
                why = f"{workload.describe()} was suspended and the pod did not leave"
                self._tasks.start(self._deletions.delete_pod(key, uid, why), f"eviction of {key}")


def _has_own_objects(pod: Pod) -> bool:
    """Whether a pod has objects that are created for it and end with it."""
    claims = any(claim.resource_claim_template_name for claim in pod.spec.resource_claims)
    return claims or any(volume.ephemeral is not None for volume in pod.spec.volumes)
