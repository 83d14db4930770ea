"""A pod as the engine keeps it: immutable facts read once when the pod changes.

The status follows from the pod (phase, deletion, gates) and its BindRequest (cycle:TSK-3, TSK-4).  Only "stuck in
releasing" also depends on the clock; the tables decide that when a snapshot is taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

from msgspec import Struct

from pykai.api import names
from pykai.api.core import Pod, PodStatus
from pykai.api.keys import object_key
from pykai.api.meta import ObjectMeta
from pykai.api.resource import AllocationResult
from pykai.api.scheduling import BindRequest
from pykai.api.timestamp import TimestampError, parse_timestamp
from pykai.core.model.extendedresources import EXTENDED_CLAIM_NAME
from pykai.core.model.gates import Gate, admitted_ns, read_gate
from pykai.core.model.numarecords import ZoneRecord, read_zone_record
from pykai.core.model.podfields import report_unreadable_fields
from pykai.core.model.problems import ProblemReporter
from pykai.core.model.shapes import Shape
from pykai.core.model.status import ACTIVE_USED, TERMINATING, TaskStatus

#: What Go reads as an integer; eighteen digits always fit 64 bits.
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")

_PHASES = {
    "Succeeded": TaskStatus.SUCCEEDED,
    "Failed": TaskStatus.FAILED,
}


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """The facts of one pod that scheduling reads."""

    key: str
    namespace: str
    name: str
    uid: str
    creation_ns: int
    shape: Shape
    status: TaskStatus
    #: node the pod is on or being bound to, "" when none
    node: str
    #: shared GPUs the pod is on; a reservation pod: the one it holds for others
    gpu_groups: tuple[str, ...]
    #: key of its PodGroup, "" when it names none
    group_key: str
    subgroup: str
    labels: dict[str, str]
    #: the pod names this scheduler
    for_this_scheduler: bool
    #: holds a GPU for other pods, which are charged for it (gpu:S-2)
    is_reservation: bool
    #: reservation or scale-adjust pod of ours: not foreign load (queues:Q-102)
    is_utility: bool
    #: when the grace period of a deletion ends, None while not being deleted
    deletion_ns: int | None
    running: bool
    nominated_node: str
    #: labels that decide the order inside a gang (cycle:8.5)
    kubeflow_master: bool
    ray_head: bool
    task_priority: tuple[int, int]
    #: its NUMA zones on its node, () without a record (gpu:N-15)
    numa_record: ZoneRecord = ()
    #: key of the claim behind each of the shape's claims, "" where there is none (gpu:D-5)
    claim_keys: tuple[str, ...] = ()
    #: key of the claim behind its extended resources, "" while there is none
    extended_key: str = ""
    #: what its BindRequest says its claims get, by their names in the pod (gpu:D-8)
    claim_allocations: tuple[tuple[str, AllocationResult], ...] = ()
    #: how long its deletion gives it to end
    deletion_grace_ns: int = 0
    #: it should be gone by now, whatever its phase
    overdue: bool = False
    #: evicted by this scheduler: uid of the PodGroup that gets its place, "" = of none; None = not evicted
    evicted_for: str | None = None
    #: which scheduling gates hold it
    gate: Gate = Gate.NONE
    #: when the gate of its queue was removed, None = it had none (queues:Q-406)
    admitted_ns: int | None = None

    @property
    def holds_node(self) -> bool:
        """Whether the pod uses resources of its node; an Unknown pod may still run there (cycle:SNP-9, Do better)."""
        return bool(self.node) and (ACTIVE_USED[self.status] or self.status is TaskStatus.UNKNOWN)

    @property
    def held_by_queue(self) -> bool:
        """Whether the gate of its queue, and nothing else, keeps the pod from being scheduled (queues:Q-406)."""
        return self.gate is Gate.QUEUE and self.status is TaskStatus.GATED and self.for_this_scheduler

    def was_admitted(self, now_ns: int) -> bool:
        """Whether the pod has a time of admission that can be true: not before its creation, nor in the future."""
        return self.admitted_ns is not None and self.creation_ns <= self.admitted_ns <= now_ns

    def terminates_slowly(self, stuck_after_ns: int) -> bool:
        """Whether the pod terminates slowly: it is stuck, or another client gave it a long grace period."""
        if not TERMINATING[self.status]:
            return False
        if self.overdue or self.status is TaskStatus.STUCK_IN_RELEASING:
            return True
        return self.evicted_for is None and self.deletion_grace_ns > stuck_after_ns


#: Fields of a pod that nothing here reads.
_IGNORED_FIELDS = frozenset(("resource_version", "owner_references", "conditions", "start_time"))


def _relevant_fields(kind: type[Struct]) -> Callable[[Any], tuple[Any, ...]]:
    return attrgetter(*(name for name in kind.__struct_fields__ if name not in _IGNORED_FIELDS))


_RELEVANT_METADATA, _RELEVANT_STATUS = _relevant_fields(ObjectMeta), _relevant_fields(PodStatus)
_TASK_FACTS = attrgetter(*(field.name for field in fields(Task)))


def is_equivalent_pod(pod: Pod, other: Pod) -> bool:
    """Whether two versions of a pod are certainly equivalent here; cheap, for the many updates of conditions only."""
    return (
        _RELEVANT_STATUS(pod.status) == _RELEVANT_STATUS(other.status)
        and _RELEVANT_METADATA(pod.metadata) == _RELEVANT_METADATA(other.metadata)
        and pod.spec == other.spec
        and (pod.status.conditions is other.status.conditions or evicted_for(pod) == evicted_for(other))
    )


def same_facts(task: Task, other: Task) -> bool:
    """Whether two tasks say the same."""
    return bool(_TASK_FACTS(task) == _TASK_FACTS(other))


def by_age(task: Task) -> tuple[int, str, str]:
    """Older first, then by uid: the order where nothing else decides (cycle:8.5)."""
    return (task.creation_ns, task.uid, task.key)


def priority_label_key(text: str | None) -> tuple[int, int]:
    """Sort key of the task-priority label: higher first, then unreadable, then absent (cycle:8.5)."""
    if text is None:
        return (2, 0)
    return (0, -int(text)) if _INTEGER.fullmatch(text) else (1, 0)


def evicted_for(pod: Pod) -> str | None:
    """For which PodGroup this scheduler evicts a pod (its uid, "" = for none); None for a pod that it does not evict.

    The condition is part of the status, which the role `edit` may not write.
    """
    for condition in pod.status.conditions:
        if condition.type == names.CONDITION_EVICTED_FOR and condition.status == "True":
            return condition.message.rpartition("/")[2]
    return None


def has_ended(pod: Pod) -> bool:
    """Whether the pod has ended and holds nothing."""
    return pod.status.phase in _PHASES


def _status(pod: Pod, bind_request: BindRequest | None) -> TaskStatus:
    phase = pod.status.phase
    deleting = pod.metadata.deletion_timestamp is not None
    if phase == "Running":
        return TaskStatus.RELEASING if deleting else TaskStatus.RUNNING
    if phase == "Pending":
        if deleting:
            return TaskStatus.RELEASING
        if pod.spec.node_name:
            return TaskStatus.BOUND
        if bind_request is not None:
            return TaskStatus.BINDING
        return TaskStatus.GATED if pod.spec.scheduling_gates else TaskStatus.PENDING
    return _PHASES.get(phase, TaskStatus.UNKNOWN)


def _gpu_groups(labels: dict[str, str], bind_request: BindRequest | None, shape: Shape) -> tuple[str, ...]:
    if not shape.shared:
        return ()
    if bind_request is not None and bind_request.spec.selected_gpu_groups:
        return tuple(bind_request.spec.selected_gpu_groups)
    single = labels.get(names.GPU_GROUP_LABEL)
    # The binder writes only prefixed labels on pods with several devices (gpu:G-12, Do better).
    prefixed = sorted(value for key, value in labels.items() if key.startswith(names.GPU_GROUP_LABEL_PREFIX))
    groups = ([single] if single else []) + [group for group in prefixed if group != single]
    return tuple(groups)


def _reserved_group(labels: dict[str, str]) -> tuple[str, ...]:
    """The group for which a reservation pod holds its GPU."""
    group = labels.get(names.GPU_GROUP_LABEL)
    return (group,) if group else ()


def _numa_record(pod: Pod, bind_request: BindRequest | None, shape: Shape, report: ProblemReporter) -> ZoneRecord:
    return read_zone_record(pod, bind_request, shape.numa.pod, report) if shape.numa is not None else ()


def _claim_allocations(bind_request: BindRequest) -> tuple[tuple[str, AllocationResult], ...]:
    allocations = [(entry.name, entry.allocation) for entry in bind_request.spec.resource_claim_allocations]
    extended = bind_request.spec.extended_resource_claim_allocation
    if extended is not None:
        allocations.append((EXTENDED_CLAIM_NAME, extended.allocation))
    return tuple((name, allocation) for name, allocation in allocations if allocation is not None)


def timestamp_or_zero(text: str | None) -> int:
    """A timestamp in nanoseconds; absent or unreadable is the beginning of time (oldest)."""
    if not text:
        return 0
    try:
        return parse_timestamp(text)
    except TimestampError:
        return 0


def read_task(
    pod: Pod,
    shape: Shape,
    bind_request: BindRequest | None,
    assumed_status: TaskStatus | None,
    scheduler_name: str,
    reservation_app: str,
    report: ProblemReporter,
    claim_keys: tuple[str, ...] = (),
    extended_key: str = "",
    *,
    overdue: bool = False,
) -> Task:
    """The task of a pod.  `assumed_status` overrides what the object shows (an assumed deletion)."""
    meta, spec = pod.metadata, pod.spec
    labels = meta.labels
    annotations = meta.annotations
    app = labels.get(names.APP_LABEL)
    node = spec.node_name or (bind_request.spec.selected_node if bind_request is not None else "")
    group_name = annotations.get(names.POD_GROUP_ANNOTATION)
    role = labels.get(names.KUBEFLOW_ROLE_LABEL)
    for_this_scheduler = spec.scheduler_name == scheduler_name
    # Users can write labels: a member of a group is work, which is charged for its GPUs and can be evicted.
    is_reservation = app == reservation_app and not group_name
    if for_this_scheduler and not node:
        report_unreadable_fields(pod, shape, report)
    return Task(
        key=object_key(meta.namespace, meta.name),
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        creation_ns=timestamp_or_zero(meta.creation_timestamp),
        shape=shape,
        status=assumed_status if assumed_status is not None else _status(pod, bind_request),
        node=node,
        gpu_groups=_reserved_group(labels) if is_reservation else _gpu_groups(labels, bind_request, shape),
        group_key=object_key(meta.namespace, group_name) if group_name else "",
        # cycle:TSK-5; topo:T-4; workloads:PS-1.
        subgroup=labels.get(names.SUBGROUP_LABEL) or names.DEFAULT_SUBGROUP,
        labels=labels,
        for_this_scheduler=for_this_scheduler,
        is_reservation=is_reservation,
        is_utility=app in (reservation_app, names.SCALE_ADJUST_APP, names.SCALING_POD_APP),
        deletion_ns=timestamp_or_zero(meta.deletion_timestamp) if meta.deletion_timestamp is not None else None,
        running=pod.status.phase == "Running",
        nominated_node=pod.status.nominated_node_name,
        kubeflow_master=role in names.KUBEFLOW_FIRST_ROLES,
        ray_head=labels.get(names.RAY_NODE_TYPE_LABEL) == names.RAY_HEAD,
        task_priority=priority_label_key(labels.get(names.TASK_PRIORITY_LABEL)),
        numa_record=_numa_record(pod, bind_request, shape, report) if node else (),
        claim_keys=claim_keys,
        extended_key=extended_key,
        claim_allocations=_claim_allocations(bind_request) if bind_request is not None else (),
        deletion_grace_ns=(meta.deletion_grace_period_seconds or 0) * 1_000_000_000,
        overdue=overdue,
        evicted_for=evicted_for(pod),
        gate=read_gate(spec.scheduling_gates) if spec.scheduling_gates else Gate.NONE,
        admitted_ns=admitted_ns(annotations),
    )
