"""Workloads and their pods as machines and controllers read them: Job, CronJob, Deployment, ReplicaSet, StatefulSet,
ControllerRevision, ResourceClaimTemplate, and `MachinePod`.

A scheduler reads where a pod may run (`core.Pod`); a machine reads what to start, when to end it and the state of its
containers.  The two views overlap little, so each has its own type and decodes only what it needs.

Templates stay plain JSON (`dict[str, Any]`): a controller copies them into the objects it makes and reads few of their
fields.  Counts that default on the server (`replicas`, `parallelism`) are optional here, because absence and zero mean
different things: a Job without `completions` is done when one of its pods is.
"""

from typing import Any

from msgspec import field

from pykai.api.core import (
    Affinity,
    Condition,
    Container,
    PodResourceClaim,
    PodResourceClaimStatus,
    ResourceList,
    ResourceRequirements,
    SchedulingGate,
    Toleration,
    Volume,
)
from pykai.api.meta import Int64, LabelSelector, ObjectMeta, Wire

#: Plain JSON, passed on unchanged.
TemplateDocument = dict[str, Any]


class WorkloadMeta(ObjectMeta):
    """Metadata of an object whose spec a controller follows."""

    generation: Int64 = 0
    finalizers: list[str] = field(default_factory=list)


class MachinePodMeta(ObjectMeta):
    """Metadata of a pod; the grace period counts once it is being deleted."""

    deletion_grace_period_seconds: Int64 | None = None


class MachineContainer(Container):
    """A container as a machine starts it."""

    image: str = ""
    command: list[str] = field(default_factory=list)
    args: list[str] = field(default_factory=list)


class MachinePodSpec(Wire):
    containers: list[MachineContainer] = field(default_factory=list)
    init_containers: list[MachineContainer] = field(default_factory=list)
    node_name: str = ""
    restart_policy: str = "Always"
    termination_grace_period_seconds: Int64 | None = None
    active_deadline_seconds: Int64 | None = None
    overhead: ResourceList = field(default_factory=dict)
    resources: ResourceRequirements | None = None
    volumes: list[Volume] = field(default_factory=list)
    resource_claims: list[PodResourceClaim] = field(default_factory=list)
    tolerations: list[Toleration] = field(default_factory=list)
    # Read by the simulated cluster's own scheduler.
    scheduler_name: str = ""
    node_selector: dict[str, str] = field(default_factory=dict)
    affinity: Affinity | None = None
    scheduling_gates: list[SchedulingGate] = field(default_factory=list)


class ContainerStateWaiting(Wire):
    reason: str = ""
    message: str = ""


class ContainerStateRunning(Wire):
    started_at: str | None = None


class ContainerStateTerminated(Wire):
    exit_code: Int64 = 0
    reason: str = ""
    started_at: str | None = None
    finished_at: str | None = None


class ContainerState(Wire):
    """At most one of the three."""

    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(Wire):
    name: str = ""
    image: str = ""
    ready: bool = False
    restart_count: Int64 = 0
    state: ContainerState = field(default_factory=ContainerState)


class ExtendedResourceMapping(Wire):
    """Which extended resource of which container a request of the synthetic claim serves."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class ExtendedResourceClaimStatus(Wire):
    """The claim behind the extended resources of a pod, with the resources it serves."""

    resource_claim_name: str = ""
    request_mappings: list[ExtendedResourceMapping] = field(default_factory=list)


class MachinePodStatus(Wire):
    phase: str = ""
    reason: str = ""
    qos_class: str = ""
    start_time: str | None = None
    pod_ip: str = field(default="", name="podIP")
    conditions: list[Condition] = field(default_factory=list)
    container_statuses: list[ContainerStatus] = field(default_factory=list)
    resource_claim_statuses: list[PodResourceClaimStatus] = field(default_factory=list)
    extended_resource_claim_status: ExtendedResourceClaimStatus | None = None


class MachinePod(Wire):
    """A pod as the machine that runs it sees it."""

    metadata: MachinePodMeta = field(default_factory=MachinePodMeta)
    spec: MachinePodSpec = field(default_factory=MachinePodSpec)
    status: MachinePodStatus = field(default_factory=MachinePodStatus)


class PodFailureExitCodes(Wire):
    """Exit codes of a container (of any, if none is named)."""

    container_name: str | None = None
    operator: str = ""
    values: list[Int64] = field(default_factory=list)


class PodFailureCondition(Wire):
    type: str = ""
    status: str = ""


class PodFailureRule(Wire):
    """How a failed pod counts for its Job: Ignore, Count, FailJob or FailIndex."""

    action: str = ""
    on_exit_codes: PodFailureExitCodes | None = None
    on_pod_conditions: list[PodFailureCondition] = field(default_factory=list)


class PodFailurePolicy(Wire):
    rules: list[PodFailureRule] = field(default_factory=list)


class JobSpec(Wire):
    parallelism: Int64 | None = None
    completions: Int64 | None = None
    completion_mode: str = ""
    backoff_limit: Int64 | None = None
    active_deadline_seconds: Int64 | None = None
    ttl_seconds_after_finished: Int64 | None = None
    suspend: bool = False
    pod_replacement_policy: str = ""
    pod_failure_policy: PodFailurePolicy | None = None
    template: TemplateDocument = field(default_factory=dict)


class JobStatus(Wire):
    active: Int64 = 0
    ready: Int64 | None = None
    terminating: Int64 | None = None
    succeeded: Int64 = 0
    failed: Int64 = 0
    start_time: str | None = None
    completion_time: str | None = None
    completed_indexes: str = ""
    conditions: list[Condition] = field(default_factory=list)


class Job(Wire):
    """A number of pods that run to completion (batch/v1)."""

    metadata: WorkloadMeta = field(default_factory=WorkloadMeta)
    spec: JobSpec = field(default_factory=JobSpec)
    status: JobStatus = field(default_factory=JobStatus)


class CronJobSpec(Wire):
    schedule: str = ""
    time_zone: str | None = None
    suspend: bool = False
    concurrency_policy: str = ""
    starting_deadline_seconds: Int64 | None = None
    successful_jobs_history_limit: Int64 | None = None
    failed_jobs_history_limit: Int64 | None = None
    job_template: TemplateDocument = field(default_factory=dict)


class ObjectReference(Wire):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class CronJobStatus(Wire):
    active: list[ObjectReference] = field(default_factory=list)
    last_schedule_time: str | None = None
    last_successful_time: str | None = None


class CronJob(Wire):
    """A Job at certain times (batch/v1)."""

    metadata: WorkloadMeta = field(default_factory=WorkloadMeta)
    spec: CronJobSpec = field(default_factory=CronJobSpec)
    status: CronJobStatus = field(default_factory=CronJobStatus)


class ReplicaSetSpec(Wire):
    replicas: Int64 | None = None
    min_ready_seconds: Int64 = 0
    selector: LabelSelector | None = None
    template: TemplateDocument = field(default_factory=dict)


class ReplicaSetStatus(Wire):
    replicas: Int64 = 0
    fully_labeled_replicas: Int64 = 0
    ready_replicas: Int64 = 0
    available_replicas: Int64 = 0
    terminating_replicas: Int64 | None = None
    observed_generation: Int64 = 0


class ReplicaSet(Wire):
    """A number of equal pods (apps/v1)."""

    metadata: WorkloadMeta = field(default_factory=WorkloadMeta)
    spec: ReplicaSetSpec = field(default_factory=ReplicaSetSpec)
    status: ReplicaSetStatus = field(default_factory=ReplicaSetStatus)


class RollingUpdateDeployment(Wire):
    """The maximum surge and the maximum unavailable pods, as numbers or as percentages in text."""

    max_surge: Int64 | str | None = None
    max_unavailable: Int64 | str | None = None


class DeploymentStrategy(Wire):
    type: str = ""
    rolling_update: RollingUpdateDeployment | None = None


class DeploymentSpec(Wire):
    replicas: Int64 | None = None
    min_ready_seconds: Int64 = 0
    progress_deadline_seconds: Int64 | None = None
    revision_history_limit: Int64 | None = None
    paused: bool = False
    selector: LabelSelector | None = None
    strategy: DeploymentStrategy = field(default_factory=DeploymentStrategy)
    template: TemplateDocument = field(default_factory=dict)


class DeploymentCondition(Condition):
    """A condition with the time of its last update."""

    last_update_time: str | None = None


class DeploymentStatus(Wire):
    replicas: Int64 = 0
    updated_replicas: Int64 = 0
    ready_replicas: Int64 = 0
    available_replicas: Int64 = 0
    unavailable_replicas: Int64 = 0
    observed_generation: Int64 = 0
    collision_count: Int64 | None = None
    conditions: list[DeploymentCondition] = field(default_factory=list)


class Deployment(Wire):
    """Equal pods whose template may change while they serve (apps/v1)."""

    metadata: WorkloadMeta = field(default_factory=WorkloadMeta)
    spec: DeploymentSpec = field(default_factory=DeploymentSpec)
    status: DeploymentStatus = field(default_factory=DeploymentStatus)


class RollingUpdateStatefulSet(Wire):
    """Pods with a lower number than `partition` keep the old template."""

    partition: Int64 | None = None


class StatefulSetUpdateStrategy(Wire):
    type: str = ""
    rolling_update: RollingUpdateStatefulSet | None = None


class StatefulSetSpec(Wire):
    replicas: Int64 | None = None
    min_ready_seconds: Int64 = 0
    revision_history_limit: Int64 | None = None
    pod_management_policy: str = ""
    service_name: str = ""
    selector: LabelSelector | None = None
    update_strategy: StatefulSetUpdateStrategy = field(default_factory=StatefulSetUpdateStrategy)
    template: TemplateDocument = field(default_factory=dict)
    volume_claim_templates: list[TemplateDocument] = field(default_factory=list)


class StatefulSetStatus(Wire):
    replicas: Int64 = 0
    ready_replicas: Int64 = 0
    available_replicas: Int64 = 0
    current_replicas: Int64 = 0
    updated_replicas: Int64 = 0
    current_revision: str = ""
    update_revision: str = ""
    observed_generation: Int64 = 0


class StatefulSet(Wire):
    """Pods with names and volumes of their own, in an order (apps/v1)."""

    metadata: WorkloadMeta = field(default_factory=WorkloadMeta)
    spec: StatefulSetSpec = field(default_factory=StatefulSetSpec)
    status: StatefulSetStatus = field(default_factory=StatefulSetStatus)


class ControllerRevision(Wire):
    """An earlier or present template of a StatefulSet (apps/v1)."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    revision: Int64 = 0
    data: Any = None


class ClaimTemplateSpec(Wire):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: TemplateDocument = field(default_factory=dict)


class ResourceClaimTemplate(Wire):
    """The template for the ResourceClaim of each pod (resource.k8s.io)."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: ClaimTemplateSpec = field(default_factory=ClaimTemplateSpec)
