"""KAI's own objects: Queue (v2), PodGroup (v2alpha2), BindRequest (v1alpha2), all in group scheduling.run.ai.

A Queue limits what its workloads may use, a PodGroup says which pods belong together and how, a BindRequest carries the
node and devices of a pod from the scheduler to the binder. Nothing else passes between the services.

Subtle: absence has a meaning in many fields, so these are optional. A queue without `priority` has 100, with 0 it has
0. `min_sub_group` absent means all children, 0 means none. `scheduling_backoff` absent means try forever. Quota, limit
and weight on the other hand are plainly 0 when absent, and -1 means unlimited; the numbers are MB (10⁶ bytes) for
memory, milli-cores for CPU, devices for GPU. Durations are text for `duration.parse_duration`.
"""

from typing import Annotated, Any

from msgspec import Meta, field

from pykai.api.core import ResourceList
from pykai.api.meta import Int64, ObjectMeta, Wire
from pykai.api.resource import AllocationResult, DeviceRequest

#: A number that is neither infinite nor NaN: YAML can spell these, and arithmetic on shares fails with them.
FiniteFloat = Annotated[float, Meta(ge=-1e300, le=1e300)]


class QueueResource(Wire, omit_defaults=False):
    """Guaranteed amount, hard cap and share of the surplus of one resource; writers spell zeros out."""

    quota: FiniteFloat = 0.0
    limit: FiniteFloat = 0.0
    over_quota_weight: FiniteFloat = 0.0


class QueueResources(Wire):
    gpu: QueueResource = field(default_factory=QueueResource)
    cpu: QueueResource = field(default_factory=QueueResource)
    memory: QueueResource = field(default_factory=QueueResource)


class QueueSpec(Wire):
    display_name: str = ""
    parent_queue: str = ""
    priority: Int64 | None = None
    preempt_min_runtime: str | None = None
    reclaim_min_runtime: str | None = None
    resources: QueueResources | None = None
    #: pods are held by a gate until the queue may take them (queues:Q-405)
    admission_gating: bool = False


class Queue(Wire):
    """A queue of the forest; only leaves run workloads."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: QueueSpec = field(default_factory=QueueSpec)
    #: not decoded: only the service that writes it reads it, and bad content must not hide the queue
    status: Any = None


class TopologyConstraint(Wire):
    """Levels are node labels or aliases of the named Topology."""

    topology: str = ""
    required_topology_level: str = ""
    preferred_topology_level: str = ""


#: Subgroups of a PodGroup, and levels of them; real workloads have dozens and three or four.
MOST_SUBGROUPS = 1024
DEEPEST_SUBGROUP = 32


class SubGroup(Wire):
    """A part of a group; one that others name as parent holds sub-groups, the others hold pods."""

    name: str = ""
    parent: str | None = None
    min_member: Int64 | None = None
    min_sub_group: Int64 | None = None
    topology_constraint: TopologyConstraint | None = None


class PodGroupSpec(Wire):
    min_member: Int64 | None = None
    min_sub_group: Int64 | None = None
    queue: str = ""
    priority_class_name: str = ""
    preemptibility: str = ""
    sub_groups: list[SubGroup] = field(default_factory=list)
    topology_constraint: TopologyConstraint | None = None
    mark_unschedulable: bool | None = None
    scheduling_backoff: Int64 | None = None
    staleness_grace_period: str | None = None
    preemption_delay: str | None = None


class UnschedulableReason(Wire):
    """One fit error of a scheduling condition; the details vary with the reason."""

    reason: str = ""
    message: str = ""
    details: Any = None


class SchedulingCondition(Wire):
    """The last condition of one node pool about the group; `transition_id` (an integer as text) orders the pools."""

    type: str = ""
    node_pool: str = ""
    reason: str = ""
    message: str = ""
    status: str = ""
    transition_id: str = field(default="", name="transitionID")
    last_transition_time: str | None = None
    reasons: list[UnschedulableReason] = field(default_factory=list)


class PodGroupStatus(Wire):
    scheduling_conditions: list[SchedulingCondition] = field(default_factory=list)
    #: these are not decoded, like a queue's status
    conditions: Any = None
    resources_status: Any = None
    #: ours
    state: Any = None
    pods: Any = None


class PodGroup(Wire):
    """Pods that are scheduled together."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PodGroupSpec = field(default_factory=PodGroupSpec)
    status: PodGroupStatus = field(default_factory=PodGroupStatus)


class ReceivedGpu(Wire):
    """Devices of a pod, and the portion of each as text with two decimals."""

    count: Int64 = 0
    portion: str = ""


class ResourceClaimAllocation(Wire):
    """The allocation for one claim of the pod; `name` is the name inside the pod."""

    name: str = ""
    allocation: AllocationResult | None = None


class ContainerExtendedResourceRequest(Wire):
    """Which request of the synthetic claim serves which resource of which container."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class ExtendedResourceClaimAllocation(Wire):
    """The synthetic claim that serves a pod's extended resources through DRA."""

    allocation: AllocationResult | None = None
    device_requests: list[DeviceRequest] = field(default_factory=list)
    container_mappings: list[ContainerExtendedResourceRequest] = field(default_factory=list)


class NumaZonePlacement(Wire):
    """What the pod takes of one NUMA zone."""

    zone: str = ""
    amount: ResourceList = field(default_factory=dict)


class BindRequestSpec(Wire):
    pod_name: str = ""
    selected_node: str = ""
    received_resource_type: str = ""
    received_gpu: ReceivedGpu | None = field(default=None, name="receivedGPU")
    selected_gpu_groups: list[str] = field(default_factory=list, name="selectedGPUGroups")
    resource_claim_allocations: list[ResourceClaimAllocation] = field(default_factory=list)
    extended_resource_claim_allocation: ExtendedResourceClaimAllocation | None = None
    predicted_numa_zones: list[NumaZonePlacement] = field(default_factory=list, name="predictedNUMAZones")
    backoff_limit: Int64 | None = None


class BindRequestStatus(Wire):
    phase: str = ""
    reason: str = ""
    failed_attempts: Int64 = 0


class BindRequest(Wire):
    """A placement on its way from the scheduler to the binder."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: BindRequestSpec = field(default_factory=BindRequestSpec)
    status: BindRequestStatus = field(default_factory=BindRequestStatus)
