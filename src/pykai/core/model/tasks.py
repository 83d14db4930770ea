"""A pod as the engine keeps it: immutable facts read once when the pod changes.

State is the pod's own word (phase, deletion, gates) and that of its BindRequest (cycle:TSK-3, TSK-4); only "stuck in
releasing" also depends on the clock, and the tables settle that when a snapshot is taken.
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
from pykai.api.meta import ObjectMeta
from pykai.api.resource import AllocationResult
from pykai.api.scheduling import BindRequest
from pykai.api.timestamp import TimestampError, parse_timestamp
from pykai.core.model.extendedresources import CLAIM_NAME
from pykai.core.model.groups import Report
from pykai.core.model.numarecords import Record, read_record
from pykai.core.model.podfields import report_unread
from pykai.core.model.shapes import Shape
from pykai.core.model.status import ACTIVE_USED, LEAVING, Status

#: What Go reads as an integer; eighteen digits are as many as surely fit 64 bits.
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")

_PHASES = {
    "Succeeded": Status.SUCCEEDED,
    "Failed": Status.FAILED,
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
    status: Status
    #: node the pod is on or being bound to, "" when none
    node: str
    #: shared GPUs the pod is on; a reservation pod: the one it holds for others
    gpu_groups: tuple[str, ...]
    #: key of its PodGroup, "" when it names none
    group_key: str
    subgroup: str
    labels: dict[str, str]
    #: the pod asks for this scheduler
    ours: bool
    #: holds a GPU for others, whose charge is theirs (gpu:S-2)
    reservation: bool
    #: reservation or scale-adjust pod of our own making: not a foreign load (queues:Q-102)
    utility: bool
    #: when the grace period of a deletion ends, None while not being deleted
    deletion_ns: int | None
    running: bool
    nominated_node: str
    #: labels that decide the order inside a gang (cycle:8.5)
    kubeflow_master: bool
    ray_head: bool
    task_priority: tuple[int, int]
    #: in which NUMA zones of its node it lies, () when nobody has written it down (gpu:N-15)
    numa_record: Record = ()
    #: key of the claim behind each of the shape's claims, "" where there is none (gpu:D-5)
    claim_keys: tuple[str, ...] = ()
    #: key of the claim behind its extended resources, "" while there is none
    extended_key: str = ""
    #: what its BindRequest says its claims get, by their names in the pod (gpu:D-8)
    claim_allocations: tuple[tuple[str, AllocationResult], ...] = ()
    #: how long its deletion gives it to end
    deletion_grace_ns: int = 0
    #: it should have gone long ago, whatever its phase
    overdue: bool = False
    #: evicted by this scheduler: uid of the PodGroup that gets its place, "" = of none; None = not evicted
    evicted_for: str | None = None

    @property
    def holds_node(self) -> bool:
        """Whether the pod uses resources of its node; an Unknown pod may still run there (cycle:SNP-9, Do better)."""
        return bool(self.node) and (ACTIVE_USED[self.status] or self.status is Status.UNKNOWN)

    def lasts(self, stuck_after_ns: int) -> bool:
        """Whether the pod leaves and will not have gone soon: it is stuck, or somebody else gave it a long time."""
        if not LEAVING[self.status]:
            return False
        if self.overdue or self.status is Status.STUCK_IN_RELEASING:
            return True
        return self.evicted_for is None and self.deletion_grace_ns > stuck_after_ns


#: What may change in a pod without anybody here reading it.
_UNREAD = frozenset(("resource_version", "owner_references", "conditions", "start_time"))


def _all_read(kind: type[Struct]) -> Callable[[Any], tuple[Any, ...]]:
    return attrgetter(*(name for name in kind.__struct_fields__ if name not in _UNREAD))


_META, _STATUS = _all_read(ObjectMeta), _all_read(PodStatus)
_FACTS = attrgetter(*(field.name for field in fields(Task)))


def reads_alike(pod: Pod, other: Pod) -> bool:
    """Whether two versions of a pod surely mean the same here; cheap, for the many that tell of conditions only."""
    return (
        _STATUS(pod.status) == _STATUS(other.status)
        and _META(pod.metadata) == _META(other.metadata)
        and pod.spec == other.spec
        and (pod.status.conditions is other.status.conditions or evicted_for(pod) == evicted_for(other))
    )


def same_facts(task: Task, other: Task) -> bool:
    """Whether two tasks say the same."""
    return bool(_FACTS(task) == _FACTS(other))


def by_age(task: Task) -> tuple[int, str, str]:
    """Older first, then by uid: the order where nothing else decides (cycle:8.5)."""
    return (task.creation_ns, task.uid, task.key)


def order_by_priority_label(text: str | None) -> tuple[int, int]:
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
    """Whether the pod has run to its end and holds nothing any more."""
    return pod.status.phase in _PHASES


def _status(pod: Pod, request: BindRequest | None) -> Status:
    phase = pod.status.phase
    deleting = pod.metadata.deletion_timestamp is not None
    if phase == "Running":
        return Status.RELEASING if deleting else Status.RUNNING
    if phase == "Pending":
        if deleting:
            return Status.RELEASING
        if pod.spec.node_name:
            return Status.BOUND
        if request is not None:
            return Status.BINDING
        return Status.GATED if pod.spec.scheduling_gates else Status.PENDING
    return _PHASES.get(phase, Status.UNKNOWN)


def _gpu_groups(labels: dict[str, str], request: BindRequest | None) -> tuple[str, ...]:
    if request is not None and request.spec.selected_gpu_groups:
        return tuple(request.spec.selected_gpu_groups)
    plain = labels.get(names.GPU_GROUP_LABEL)
    # The binder writes only prefixed labels on pods with several devices (gpu:G-12, Do better).
    prefixed = sorted(value for key, value in labels.items() if key.startswith(names.GPU_GROUP_LABEL_PREFIX))
    found = ([plain] if plain else []) + [group for group in prefixed if group != plain]
    return tuple(found)


def _reserved(labels: dict[str, str]) -> tuple[str, ...]:
    """The group for which a reservation pod holds its GPU."""
    group = labels.get(names.GPU_GROUP_LABEL)
    return (group,) if group else ()


def _claim_allocations(request: BindRequest) -> tuple[tuple[str, AllocationResult], ...]:
    found = [(entry.name, entry.allocation) for entry in request.spec.resource_claim_allocations]
    extended = request.spec.extended_resource_claim_allocation
    if extended is not None:
        found.append((CLAIM_NAME, extended.allocation))
    return tuple((name, allocation) for name, allocation in found if allocation is not None)


def instant_or_zero(text: str | None) -> int:
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
    request: BindRequest | None,
    forced: Status | None,
    scheduler_name: str,
    reservation_app: str,
    report: Report,
    claim_keys: tuple[str, ...] = (),
    extended_key: str = "",
    *,
    overdue: bool = False,
) -> Task:
    """The task of a pod.  `forced` is a state the caller knows better than the object (an assumed deletion)."""
    meta, spec = pod.metadata, pod.spec
    labels = meta.labels
    annotations = meta.annotations
    app = labels.get(names.APP_LABEL)
    node = spec.node_name or (request.spec.selected_node if request is not None else "")
    group_name = annotations.get(names.POD_GROUP_ANNOTATION)
    role = labels.get(names.KUBEFLOW_ROLE_LABEL)
    ours = spec.scheduler_name == scheduler_name
    # Anyone can write a label: a member of a group is work, which pays for its GPUs and can be evicted.
    reservation = app == reservation_app and not group_name
    if ours and not node:
        report_unread(pod, shape, report)
    return Task(
        key=f"{meta.namespace}/{meta.name}",
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        creation_ns=instant_or_zero(meta.creation_timestamp),
        shape=shape,
        status=forced if forced is not None else _status(pod, request),
        node=node,
        gpu_groups=_reserved(labels) if reservation else _gpu_groups(labels, request) if shape.shared else (),
        group_key=f"{meta.namespace}/{group_name}" if group_name else "",
        # cycle:TSK-5; topo:T-4; workloads:PS-1.
        subgroup=labels.get(names.SUBGROUP_LABEL) or names.DEFAULT_SUBGROUP,
        labels=labels,
        ours=ours,
        reservation=reservation,
        utility=app in (reservation_app, names.SCALE_ADJUST_APP, names.SCALING_POD_APP),
        deletion_ns=instant_or_zero(meta.deletion_timestamp) if meta.deletion_timestamp is not None else None,
        running=pod.status.phase == "Running",
        nominated_node=pod.status.nominated_node_name,
        kubeflow_master=role in names.KUBEFLOW_FIRST_ROLES,
        ray_head=labels.get(names.RAY_NODE_TYPE_LABEL) == names.RAY_HEAD,
        task_priority=order_by_priority_label(labels.get(names.TASK_PRIORITY_LABEL)),
        numa_record=read_record(pod, request, shape.numa.pod, report) if node and shape.numa is not None else (),
        claim_keys=claim_keys,
        extended_key=extended_key,
        claim_allocations=_claim_allocations(request) if request is not None else (),
        deletion_grace_ns=(meta.deletion_grace_period_seconds or 0) * 1_000_000_000,
        overdue=overdue,
        evicted_for=evicted_for(pod),
    )
