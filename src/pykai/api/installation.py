"""Config and SchedulingShard (kai.scheduler/v1): what the operator deploys, under KAI's names (operations:2, 3).

All fields are optional and nothing is filled in here: the operator knows the defaults, so that a reader sees only what
was written (operations:O-2).  The descriptions are those that `kubectl explain` prints; the definitions are made from
these types (`typeschemas`).
"""

from typing import Annotated

from msgspec import Meta, field

from pykai.api.conditions import ConditionDocument
from pykai.api.meta import Int64, ObjectMeta, Wire
from pykai.api.unstructured import JsonObject

Quantity = int | str


def says(text: str) -> Meta:
    """The description of a field."""
    return Meta(description=text)


class ImageSpec(Wire):
    """An image; the reference is `repository/name:tag`."""

    repository: Annotated[str | None, says("Where images are; the operator's own repository without it.")] = None
    name: Annotated[str | None, says("Name of the image.")] = None
    tag: Annotated[str | None, says("Tag of the image; the operator's own tag without it.")] = None
    pull_policy: Annotated[str | None, says("When the image is pulled; IfNotPresent without it.")] = None


class ContainerResources(Wire):
    """Resources of a container."""

    requests: Annotated[dict[str, Quantity] | None, says("What is reserved for the container.")] = None
    limits: Annotated[dict[str, Quantity] | None, says("What the container may use at most.")] = None
    claims: Annotated[list[JsonObject] | None, says("Resource claims of the container.")] = None


class ClientConfig(Wire):
    """Limits of an API client."""

    qps: Annotated[int | None, says("Requests a second; 20 without it.")] = None
    burst: Annotated[int | None, says("Requests at once; 100 without it.")] = None


class DisruptionBudgetSpec(Wire):
    """A PodDisruptionBudget."""

    enabled: Annotated[bool | None, says("Make a PodDisruptionBudget where there are several replicas.")] = None
    max_unavailable: Annotated[int | None, says("Pods that may be missing; 1 without it.")] = None


class VerticalAutoscaling(Wire):
    """A VerticalPodAutoscaler."""

    enabled: Annotated[bool | None, says("Make a VerticalPodAutoscaler.")] = None
    update_policy: Annotated[JsonObject | None, says("Its update policy; InPlaceOrRecreate without it.")] = None
    resource_policy: Annotated[JsonObject | None, says("Its resource policy.")] = None


class ServiceSpec(Wire):
    """What every component has."""

    enabled: Annotated[bool | None, says("Deploy the component; true without it.")] = None
    image: Annotated[ImageSpec | None, says("Its image.")] = None
    resources: Annotated[ContainerResources | None, says("Resources of its container.")] = None
    k8s_client_config: Annotated[ClientConfig | None, says("Limits of its API client.")] = None
    affinity: Annotated[JsonObject | None, says("Affinity of its pods.")] = None
    pod_disruption_budget: Annotated[DisruptionBudgetSpec | None, says("Budget of its pods.")] = None
    args: Annotated[
        dict[str, str] | None, says("Flags of its program that follow from no other field, by name. Not in KAI.")
    ] = None


class QueueAdmissionGating(Wire):
    """Gates of pods that are over the quota of their queue."""

    enabled: Annotated[bool | None, says("Hold pods over quota behind a gate, in queues that ask for it.")] = None
    reservation_timeout: Annotated[
        str | None, says("How long an admitted pod that waits for a node is charged to its queue.")
    ] = None


class GlobalSpec(Wire):
    """What holds for all components."""

    scheduler_name: Annotated[str | None, says("spec.schedulerName of pods; kai-scheduler without it.")] = None
    queue_label_key: Annotated[str | None, says("Label that names a queue.")] = None
    node_pool_label_key: Annotated[str | None, says("Label that names a node pool.")] = None
    replica_count: Annotated[int | None, says("Replicas of every component; 1 without it.")] = None
    security_context: Annotated[JsonObject | None, says("Security context of every container.")] = None
    openshift: Annotated[bool | None, says("Leave security contexts to OpenShift.")] = None
    affinity: Annotated[JsonObject | None, says("Affinity of all pods.")] = None
    node_selector: Annotated[dict[str, str] | None, says("Node selector of all pods.")] = None
    tolerations: Annotated[list[JsonObject] | None, says("Tolerations of all pods.")] = None
    daemonsets_tolerations: Annotated[list[JsonObject] | None, says("Tolerations of DaemonSets.")] = None
    priority_class_name: Annotated[str | None, says("Priority class of all pods.")] = None
    require_default_pod_anti_affinity_term: Annotated[
        bool | None, says("Never run two replicas of a component on one node.")
    ] = None
    additional_image_pull_secrets: Annotated[list[str] | None, says("Names of pull secrets of all pods.")] = None
    images_pull_secret: Annotated[str | None, says("Deprecated: use additionalImagePullSecrets.")] = None
    namespace_label_selector: Annotated[
        dict[str, str] | None, says("Only pods of namespaces with these labels are handled.")
    ] = None
    pod_label_selector: Annotated[dict[str, str] | None, says("Only pods with these labels are handled.")] = None
    json_log: Annotated[bool | None, says("Log as JSON.")] = None
    vpa: Annotated[VerticalAutoscaling | None, says("Vertical autoscaling of all components.")] = None
    queue_admission_gating: Annotated[QueueAdmissionGating | None, says("Gates of pods over quota.")] = None
    network_policies: Annotated[
        bool | None, says("Close our pods to connections but to ports that they serve. Not in KAI.")
    ] = None


class ComponentSpec(Wire):
    """A component that can be replicated."""

    service: Annotated[ServiceSpec | None, says("What every component has.")] = None
    replicas: Annotated[int | None, says("Replicas; global.replicaCount without it.")] = None
    vpa: Annotated[VerticalAutoscaling | None, says("Vertical autoscaling; global.vpa without it.")] = None


class PodGrouperArgs(Wire):
    """Flags of the pod grouper."""

    gang_schedule_knative: Annotated[bool | None, says("Gang-schedule Knative revisions.")] = None
    generic_karta_fallback: Annotated[bool | None, says("Group unknown kinds as Karta objects describe them.")] = None
    default_priorities_config_map_name: Annotated[str | None, says("ConfigMap with default priorities of kinds.")] = (
        None
    )
    default_priorities_config_map_namespace: Annotated[str | None, says("Its namespace.")] = None


class PodGrouperSpec(ComponentSpec):
    """The pod grouper."""

    args: Annotated[PodGrouperArgs | None, says("Its flags.")] = None
    max_concurrent_reconciles: Annotated[int | None, says("Pods worked on at a time.")] = None
    k8s_client_config: Annotated[ClientConfig | None, says("Limits of its API client.")] = None


class PluginSpec(Wire):
    """A plugin, over its defaults."""

    enabled: Annotated[bool | None, says("Run it; true without it.")] = None
    priority: Annotated[int | None, says("Plugins with a higher priority come first.")] = None
    arguments: Annotated[dict[str, str] | None, says("Its arguments; they replace all default arguments.")] = None


class ActionSpec(Wire):
    """An action, over its defaults."""

    enabled: Annotated[bool | None, says("Run it; true without it.")] = None
    priority: Annotated[int | None, says("Actions with a higher priority run first.")] = None


class ReservationSpec(Wire):
    """Pods that reserve GPUs for pods that share them."""

    namespace: Annotated[str | None, says("Where they are.")] = None
    service_account_name: Annotated[str | None, says("Their account.")] = None
    app_label: Annotated[str | None, says("Their label app.")] = None
    image: Annotated[ImageSpec | None, says("Their image.")] = None
    allocation_timeout: Annotated[int | None, says("Seconds until a pod must know its GPU.")] = None
    runtime_class_name: Annotated[str | None, says("Their runtime class.")] = None
    pod_resources: Annotated[ContainerResources | None, says("Resources of their container.")] = None
    reservation_pod_security_context: Annotated[JsonObject | None, says("Security context of the pods.")] = None
    reservation_container_security_context: Annotated[JsonObject | None, says("Security context of the container.")] = (
        None
    )


class BinderSpec(ComponentSpec):
    """The binder."""

    max_concurrent_reconciles: Annotated[int | None, says("BindRequests worked on at a time.")] = None
    probe_port: Annotated[int | None, says("Port of health checks.")] = None
    metrics_port: Annotated[int | None, says("Port of metrics.")] = None
    volume_binding_timeout_seconds: Annotated[int | None, says("Seconds until volumes must be bound.")] = None
    cdi_enabled: Annotated[bool | None, says("Name devices as CDI does; found out without it.")] = None
    plugins: Annotated[dict[str, PluginSpec] | None, says("Plugins of the binder, over the defaults.")] = None
    resource_reservation: Annotated[ReservationSpec | None, says("Pods that reserve GPUs.")] = None


class WebhookPorts(Wire):
    """Ports of the admission service."""

    port: Annotated[int | None, says("Port of the Service.")] = None
    target_port: Annotated[int | None, says("Port of the pods.")] = None
    probe_port: Annotated[int | None, says("Port of health checks.")] = None
    metrics_port: Annotated[int | None, says("Port of metrics.")] = None


class AdmissionSpec(ComponentSpec):
    """The admission service."""

    webhook: Annotated[WebhookPorts | None, says("Its ports.")] = None
    gpu_sharing: Annotated[bool | None, says("Allow pods to share GPUs.")] = None
    block_nvidia_visible_devices: Annotated[
        bool | None, says("Refuse pods that set NVIDIA_VISIBLE_DEVICES themselves.")
    ] = None
    queue_label_selector: Annotated[
        bool | None, says("Call the webhooks only for namespaces that have the queue label.")
    ] = None
    validating_webhook_configuration_name: Annotated[str | None, says("Name of the registration.")] = None
    mutating_webhook_configuration_name: Annotated[str | None, says("Name of the registration.")] = None
    gpu_fraction_runtime_class_name: Annotated[str | None, says("Runtime class of pods that share GPUs.")] = None
    gpu_pod_runtime_class_name: Annotated[str | None, says("Deprecated: use gpuFractionRuntimeClassName.")] = None


class ServicePortSpec(Wire):
    """A port of a Service."""

    port: Annotated[int | None, says("Port of the Service.")] = None
    target_port: Annotated[int | None, says("Port of the pods.")] = None
    name: Annotated[str | None, says("Name of the port.")] = None
    type: Annotated[str | None, says("Type of the Service.")] = None


class SchedulerSpec(ComponentSpec):
    """The schedulers of all shards."""

    gogc: Annotated[int | None, says("Accepted, without effect: a setting of the Go runtime.")] = field(
        name="GOGC", default=None
    )
    scheduler_service: Annotated[ServicePortSpec | None, says("The Services of the schedulers.")] = None


class WebhookSwitch(Wire):
    """A webhook that can be switched off."""

    enable_validation: Annotated[bool | None, says("Check objects when they are written; true without it.")] = None
    webhook_configuration_name_prefix: Annotated[str | None, says("Prefix of the name of the registration.")] = None


class ControllerServiceSpec(Wire):
    """Ports of a controller."""

    metrics: Annotated[ServicePortSpec | None, says("Port of metrics.")] = None
    webhook: Annotated[ServicePortSpec | None, says("Port of the webhook.")] = None


class QueueControllerSpec(ComponentSpec):
    """The queue controller."""

    controller_service: Annotated[ControllerServiceSpec | None, says("Its Service.")] = None
    webhooks: Annotated[WebhookSwitch | None, says("The webhook of queues.")] = None
    metrics_namespace: Annotated[str | None, says("Prefix of metrics, also of the schedulers.")] = None
    queue_label_to_metric_label: Annotated[str | None, says("k=m,k=m: label of a queue to label of metrics.")] = None
    queue_label_to_default_metric_value: Annotated[
        str | None, says("k=v,k=v: value where a queue lacks the label.")
    ] = None


class PodGroupControllerSpec(ComponentSpec):
    """The pod group controller."""

    controller_service: Annotated[ControllerServiceSpec | None, says("Its Service.")] = None
    webhooks: Annotated[WebhookSwitch | None, says("The webhook of PodGroups.")] = None
    max_concurrent_reconciles: Annotated[int | None, says("PodGroups worked on at a time.")] = None


class NodeScaleAdjusterArgs(Wire):
    """Flags of the node scale adjuster."""

    scaling_pod_image: Annotated[ImageSpec | None, says("Image of scaling pods.")] = None
    node_scale_namespace: Annotated[str | None, says("Where scaling pods are.")] = None
    node_scale_service_account: Annotated[str | None, says("Their account.")] = None
    gpu_memory_to_fraction_ratio: Annotated[
        float | None, says("Part of a GPU that a request for GPU memory counts while its size is unknown.")
    ] = None


class NodeScaleAdjusterSpec(ComponentSpec):
    """The node scale adjuster."""

    args: Annotated[NodeScaleAdjusterArgs | None, says("Its flags.")] = None


class ServiceMonitorSpec(Wire):
    """ServiceMonitors."""

    enabled: Annotated[bool | None, says("Make ServiceMonitors; true without it.")] = None
    interval: Annotated[str | None, says("How often metrics are read.")] = None
    scrape_timeout: Annotated[str | None, says("Time limit of a reading.")] = None
    bearer_token_file: Annotated[str | None, says("File with a token.")] = None


class HealthProbeSpec(Wire):
    """Checks of an external Prometheus."""

    interval: Annotated[int | None, says("Seconds between checks.")] = None
    timeout: Annotated[int | None, says("Seconds until a check fails.")] = None
    max_retries: Annotated[int | None, says("Failed checks until it counts as lost.")] = None


class PrometheusSpec(Wire):
    """Prometheus, for usage over time."""

    enabled: Annotated[bool | None, says("Deploy a Prometheus through its operator.")] = None
    instance_name: Annotated[str | None, says("Name of the Prometheus object.")] = None
    retention_period: Annotated[str | None, says("How long data is kept.")] = None
    sample_interval: Annotated[str | None, says("How often metrics are read.")] = None
    enable_persistent_storage: Annotated[bool | None, says("Keep data on a volume; true without it.")] = None
    storage_size: Annotated[str | None, says("Size of the volume.")] = None
    storage_class_name: Annotated[str | None, says("Class of the volume.")] = None
    service_monitor: Annotated[ServiceMonitorSpec | None, says("ServiceMonitors.")] = None
    external_prometheus_url: Annotated[str | None, says("Use this Prometheus instead.")] = None
    external_prometheus_health_probe: Annotated[HealthProbeSpec | None, says("How it is checked.")] = None
    accounting_label_key: Annotated[str | None, says("Label of what Prometheus reads.")] = None
    accounting_label_value: Annotated[str | None, says("Value of that label.")] = None


class NumaPlacementExporterSpec(Wire):
    """The exporter of NUMA placements."""

    service: Annotated[ServiceSpec | None, says("What every component has.")] = None
    node_selector: Annotated[dict[str, str] | None, says("Nodes it runs on.")] = None
    tolerations: Annotated[list[JsonObject] | None, says("Its tolerations, beside global.daemonsetsTolerations.")] = (
        None
    )
    poll_interval: Annotated[str | None, says("How often the kubelet is asked.")] = None
    drift_resync_interval: Annotated[str | None, says("How often annotations are compared.")] = None
    pod_resources_host_path: Annotated[str | None, says("Folder of the kubelet's socket.")] = None
    pod_resources_socket: Annotated[str | None, says("The kubelet's socket.")] = None
    sysfs_host_path: Annotated[str | None, says("Where sysfs is mounted on nodes.")] = None


class ConfigSpec(Wire):
    """What is installed."""

    namespace: Annotated[str | None, says("Where components run; kai-scheduler without it.")] = None
    global_: Annotated[GlobalSpec | None, says("What holds for all components.")] = field(name="global", default=None)
    pod_grouper: Annotated[PodGrouperSpec | None, says("Makes PodGroups for workloads.")] = None
    binder: Annotated[BinderSpec | None, says("Carries out BindRequests.")] = None
    admission: Annotated[AdmissionSpec | None, says("Serves the webhooks.")] = None
    scheduler: Annotated[SchedulerSpec | None, says("The schedulers of all shards.")] = None
    queue_controller: Annotated[QueueControllerSpec | None, says("Writes the statuses of Queues.")] = None
    pod_group_controller: Annotated[PodGroupControllerSpec | None, says("Writes the statuses of PodGroups.")] = None
    node_scale_adjuster: Annotated[NodeScaleAdjusterSpec | None, says("Makes autoscalers add nodes for shares.")] = None
    prometheus: Annotated[PrometheusSpec | None, says("Prometheus, for usage over time.")] = None
    numa_placement_exporter: Annotated[NumaPlacementExporterSpec | None, says("Reports NUMA placements.")] = None


class InstallationStatus(Wire):
    """How far the operator is."""

    conditions: Annotated[
        list[ConditionDocument] | None, says("Deployed, Available, DependenciesFulfilled, Ready, Reconciling.")
    ] = None


class Config(Wire):
    """The configuration of an installation; only the one named kai-config counts (operations:O-1)."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: Annotated[ConfigSpec, says("What is installed; the operator fills in what is not said.")] = field(
        default_factory=ConfigSpec
    )
    status: Annotated[InstallationStatus | None, says("How far the operator is.")] = None


class PlacementStrategy(Wire):
    """How pods are placed."""

    gpu: Annotated[str | None, says("binpack (default) or spread, for pods with GPUs.")] = None
    cpu: Annotated[str | None, says("binpack (default) or spread, for other pods.")] = None


class MinRuntimeSpec(Wire):
    """How long workloads run undisturbed."""

    preempt_min_runtime: Annotated[str | None, says("Before they are preempted.")] = None
    reclaim_min_runtime: Annotated[str | None, says("Before they are reclaimed.")] = None


class UsageParams(Wire):
    """Which usage counts."""

    half_life_period: Annotated[str | None, says("After this time usage counts half.")] = None
    window_size: Annotated[str | None, says("How far back usage counts; 1w without it.")] = None
    window_type: Annotated[str | None, says("sliding (default), tumbling or cron.")] = None
    tumbling_window_start_time: Annotated[str | None, says("When the first tumbling window starts.")] = None
    cron_string: Annotated[str | None, says("When windows start.")] = None
    fetch_interval: Annotated[str | None, says("How often usage is read; 1m without it.")] = None
    staleness_period: Annotated[str | None, says("When usage counts as old; 5m without it.")] = None
    wait_timeout: Annotated[str | None, says("How long a scheduler waits for usage at its start; 1m without it.")] = (
        None
    )
    extra_params: Annotated[dict[str, str] | None, says("Settings of the client.")] = None


class UsageDBConfig(Wire):
    """Where usage over time comes from."""

    client_type: Annotated[str | None, says("prometheus or builtin.")] = None
    connection_string: Annotated[str | None, says("Address of the database.")] = None
    connection_string_env_var: Annotated[str | None, says("Environment variable with the address.")] = None
    usage_params: Annotated[UsageParams | None, says("Which usage counts.")] = None


class ScenarioSearchBudgets(Wire):
    """How long searches for victims may take."""

    max_action_search_duration: Annotated[
        dict[str, str] | None, says("By action: default, reclaim, preempt, consolidation.")
    ] = None
    max_job_search_duration: Annotated[str | None, says("For one job; 4m without it.")] = None
    min_job_search_duration: Annotated[str | None, says("What a job has at least.")] = None
    max_generator_search_duration: Annotated[dict[str, str] | None, says("By generator.")] = None


class ShardSpec(Wire):
    """One scheduler for one node pool."""

    args: Annotated[dict[str, str] | None, says("Flags of the scheduler, by name.")] = None
    partition_label_value: Annotated[str | None, says("Node pool; nodes without the label without it.")] = None
    placement_strategy: Annotated[PlacementStrategy | None, says("How pods are placed.")] = None
    go_mem_limit_ratio: Annotated[float | None, says("Accepted, without effect: a setting of the Go runtime.")] = None
    go_mem_limit: Annotated[Quantity | None, says("Accepted, without effect: a setting of the Go runtime.")] = None
    queue_depth_per_action: Annotated[dict[str, Int64] | None, says("Jobs tried in a queue, by action.")] = None
    min_runtime: Annotated[MinRuntimeSpec | None, says("How long workloads run undisturbed.")] = None
    k_value: Annotated[float | None, says("How much usage over time counts; 1 without it.")] = None
    usage_db_config: Annotated[UsageDBConfig | None, says("Where usage over time comes from.")] = field(
        name="usageDBConfig", default=None
    )
    scenario_search_budgets: Annotated[
        ScenarioSearchBudgets | None, says("How long searches for victims may take.")
    ] = None
    plugins: Annotated[dict[str, PluginSpec] | None, says("Plugins, over the defaults.")] = None
    actions: Annotated[dict[str, ActionSpec] | None, says("Actions, over the defaults.")] = None


class SchedulingShard(Wire):
    """One scheduler for one node pool."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: Annotated[ShardSpec, says("The scheduler of a node pool.")] = field(default_factory=ShardSpec)
    status: Annotated[InstallationStatus | None, says("How far the operator is.")] = None
