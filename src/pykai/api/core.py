"""Core Kubernetes objects: Node, Pod, PriorityClass, ConfigMap, Namespace.

The fields are those that scheduling reads: requests, placement constraints, volumes and ConfigMap references, states.
A field is optional (`None`) where Kubernetes gives absence a meaning: an absent namespace selector means the pod's
own namespace, an empty one all namespaces. Everything else defaults to empty.

Resource lists stay as they are on the wire, text or numbers, for `quantity.milli_value` and `quantity.unit_value` to
read: most pods repeat a handful of quantities, so reading lazily through their cache is cheaper than decoding each.

The data of ConfigMaps is never decoded: the scheduler only needs to know whether one exists, and need not hold secrets
in memory.
"""

from msgspec import field

from pykai.api.meta import Int64, LabelSelector, ObjectMeta, Wire
from pykai.api.quantity import RawQuantity

#: Resource name to quantity, unparsed.
ResourceList = dict[str, RawQuantity]


class Taint(Wire):
    """Keeps pods off a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class Condition(Wire):
    """A condition of a node or pod."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class NodeSpec(Wire):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(Wire):
    allocatable: ResourceList = field(default_factory=dict)
    capacity: ResourceList = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()


class Node(Wire):
    """A machine."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)


class ResourceRequirements(Wire):
    """Requests and limits of a container, or of a pod as a whole."""

    requests: ResourceList = field(default_factory=dict)
    limits: ResourceList = field(default_factory=dict)


class ContainerPort(Wire):
    """A port; only one with a host port occupies the node."""

    container_port: Int64 = 0
    host_port: Int64 = 0
    host_ip: str = field(default="", name="hostIP")
    protocol: str = "TCP"


class ConfigMapReference(Wire):
    """A ConfigMap named by a volume or by `envFrom`; unless optional, the pod cannot start without it."""

    name: str = ""
    optional: bool = False


class ConfigMapKeyReference(Wire):
    """One key of a ConfigMap as the value of an environment variable."""

    name: str = ""
    key: str = ""
    optional: bool = False


class EnvVarSource(Wire):
    config_map_key_ref: ConfigMapKeyReference | None = None


class EnvVar(Wire):
    """An environment variable; its literal value is not read."""

    name: str = ""
    value_from: EnvVarSource | None = None


class EnvFromSource(Wire):
    config_map_ref: ConfigMapReference | None = None


class VolumeMount(Wire):
    name: str = ""


class Container(Wire):
    """A container; an init container with `restart_policy` Always is a sidecar."""

    name: str = ""
    resources: ResourceRequirements = field(default_factory=ResourceRequirements)
    ports: tuple[ContainerPort, ...] = ()
    env: tuple[EnvVar, ...] = ()
    env_from: tuple[EnvFromSource, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    restart_policy: str = ""


class NodeSelectorRequirement(Wire):
    """One expression over node labels or fields: In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Wire):
    """Expressions that must all hold; a term without any matches no node."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Wire):
    """Terms of which one must match."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(Wire):
    weight: Int64 = 0
    preference: NodeSelectorTerm = field(default_factory=NodeSelectorTerm)


class NodeAffinity(Wire):
    required: NodeSelector | None = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredSchedulingTerm, ...] = field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(Wire):
    """Pods to be near or away from. No label selector matches no pod; no namespace selector means `namespaces` alone,
    and without these the pod's own namespace."""

    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    topology_key: str = ""


class WeightedPodAffinityTerm(Wire):
    weight: Int64 = 0
    pod_affinity_term: PodAffinityTerm = field(default_factory=PodAffinityTerm)


class PodAffinity(Wire):
    """Terms of affinity, or of anti-affinity: both have one shape."""

    required: tuple[PodAffinityTerm, ...] = field(default=(), name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[WeightedPodAffinityTerm, ...] = field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Wire):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Wire):
    """Tolerates a taint; an empty key with Exists tolerates all, an empty effect any effect."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class SchedulingGate(Wire):
    name: str = ""


class WorkloadReference(Wire):
    """The group of a pod in a Workload (scheduling.k8s.io/v1alpha1)."""

    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str = ""


class PodSchedulingGroup(Wire):
    """The PodGroup of a pod (scheduling.k8s.io/v1alpha2 and later)."""

    pod_group_name: str = ""


class TopologySpreadConstraint(Wire):
    max_skew: Int64 = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: Int64 | None = None
    node_affinity_policy: str = ""
    node_taints_policy: str = ""
    match_label_keys: tuple[str, ...] = ()


class ClaimVolumeSource(Wire):
    claim_name: str = ""
    read_only: bool = False


class EphemeralVolumeSource(Wire):
    """A claim made for this pod alone, named `<pod>-<volume>`; its template is not read."""


class VolumeProjection(Wire):
    config_map: ConfigMapReference | None = None


class ProjectedVolumeSource(Wire):
    sources: tuple[VolumeProjection, ...] = ()


class Volume(Wire):
    """A volume; sources that do not bind the pod to nodes or ConfigMaps are not read."""

    name: str = ""
    config_map: ConfigMapReference | None = None
    projected: ProjectedVolumeSource | None = None
    persistent_volume_claim: ClaimVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None


class PodResourceClaim(Wire):
    """A DRA claim of the pod, by name or by template."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSpec(Wire):
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    node_name: str = ""
    node_selector: dict[str, str] = field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    scheduler_name: str = ""
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    overhead: ResourceList = field(default_factory=dict)
    resources: ResourceRequirements | None = None
    volumes: tuple[Volume, ...] = ()
    priority_class_name: str = ""
    priority: Int64 | None = None
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    runtime_class_name: str | None = None
    termination_grace_period_seconds: Int64 | None = None
    #: how Kubernetes 1.35, and later versions, say which gang a pod belongs to; only the pod grouper reads them
    workload_ref: WorkloadReference | None = None
    scheduling_group: PodSchedulingGroup | None = None


class PodResourceClaimStatus(Wire):
    """The claim generated for a `PodResourceClaim`; no name means that none is needed."""

    name: str = ""
    resource_claim_name: str | None = None


class PodExtendedResourceClaimStatus(Wire):
    """The claim that serves the pod's extended resources through DRA."""

    resource_claim_name: str = ""


class PodStatus(Wire):
    phase: str = ""
    nominated_node_name: str = ""
    qos_class: str = ""
    start_time: str | None = None
    conditions: tuple[Condition, ...] = ()
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None


class Pod(Wire):
    """A pod."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus = field(default_factory=PodStatus)


class PriorityClass(Wire):
    """A named priority (scheduling.k8s.io)."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    value: Int64 = 0
    global_default: bool = False
    preemption_policy: str = ""


class ConfigMap(Wire):
    """The existence of a ConfigMap; its content is not decoded."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)


class Namespace(Wire):
    """A namespace and its labels, which namespace selectors match."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
