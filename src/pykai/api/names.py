"""Every name of the wire contract, once: labels, annotations, resource names, reasons and defaults.

Other modules import a constant from here and never spell a key themselves, so that a search for the constant finds
every reader and writer of that key. The values are those of KAI Scheduler and must not change: other programs read
and write the same keys. `runai` in a key is history and stays.

The suffix or prefix of a constant says what it names: `_LABEL` and `_ANNOTATION` are keys in metadata, `_NODE_LABEL`
keys on nodes, `_APP` values of the label `app`, `REASON_` reasons of unschedulable groups, `EVENT_` reasons of events.
Units are at the end of numbers (`_S` seconds, `_MIB` mebibytes).
"""

from typing import Final

# API groups and versions of the custom resources.
SCHEDULING_GROUP: Final = "scheduling.run.ai"
KAI_GROUP: Final = "kai.scheduler"
DRA_GROUP: Final = "resource.k8s.io"
NUMA_GROUP: Final = "topology.node.k8s.io"
STORAGE_GROUP: Final = "storage.k8s.io"
PRIORITY_GROUP: Final = "scheduling.k8s.io"
POLICY_GROUP: Final = "policy"
QUEUE_API_VERSION: Final = "scheduling.run.ai/v2"
POD_GROUP_API_VERSION: Final = "scheduling.run.ai/v2alpha2"
BIND_REQUEST_API_VERSION: Final = "scheduling.run.ai/v1alpha2"
TOPOLOGY_API_VERSION: Final = "kai.scheduler/v1alpha1"
NUMA_API_VERSION: Final = "topology.node.k8s.io/v1alpha2"
DRA_API_VERSION: Final = "resource.k8s.io/v1"
PRIORITY_API_VERSION: Final = "scheduling.k8s.io/v1"

# Names of schedulers.
SCHEDULER_NAME: Final = "kai-scheduler"
DEFAULT_SCHEDULER_NAME: Final = "default-scheduler"
DEFAULT_NAMESPACE: Final = "kai-scheduler"
METRICS_NAMESPACE: Final = "kai"

# How pods, groups, queues and shards refer to each other.
POD_GROUP_ANNOTATION: Final = "pod-group-name"
SUBGROUP_LABEL: Final = "kai.scheduler/subgroup-name"
TASK_PRIORITY_LABEL: Final = "kai.scheduler/task-priority"
QUEUE_LABEL: Final = "kai.scheduler/queue"
NODE_POOL_LABEL: Final = "kai.scheduler/node-pool"
SELECTED_NODE_LABEL: Final = "selected-node"
APP_LABEL: Final = "app"
# Which namespaces may use a queue, on the Queue, and the queue of a namespace, on the Namespace; ours, not in KAI.
ALLOWED_NAMESPACES_ANNOTATION: Final = "kai.scheduler/allowed-namespaces"
ALLOWED_NAMESPACE_SELECTOR_ANNOTATION: Final = "kai.scheduler/allowed-namespace-selector"
DEFAULT_QUEUE_ANNOTATION: Final = "kai.scheduler/default-queue"
HOSTNAME_LABEL: Final = "kubernetes.io/hostname"

# Requests of a user to the pod grouper, on the pod or on one of its owners.
PREEMPTIBILITY_LABEL: Final = "kai.scheduler/preemptibility"
PRIORITY_CLASS_LABEL: Final = "priorityClassName"
PROJECT_LABEL: Final = "project"
USER_LABEL: Final = "user"
USER_ANNOTATION: Final = "user"
PREEMPTION_DELAY_ANNOTATION: Final = "kai.scheduler/preemption-delay"
STALENESS_GRACE_PERIOD_ANNOTATION: Final = "kai.scheduler/staleness-grace-period"
TOPOLOGY_ANNOTATION: Final = "kai.scheduler/topology"
TOPOLOGY_REQUIRED_ANNOTATION: Final = "kai.scheduler/topology-required-placement"
TOPOLOGY_PREFERRED_ANNOTATION: Final = "kai.scheduler/topology-preferred-placement"
SEGMENT_SIZE_ANNOTATION: Final = "kai.scheduler/segment-size"
SEGMENT_TOPOLOGY_REQUIRED_ANNOTATION: Final = "kai.scheduler/segment-topology-required-placement"
SEGMENT_TOPOLOGY_PREFERRED_ANNOTATION: Final = "kai.scheduler/segment-topology-preferred-placement"
BATCH_MIN_MEMBER_ANNOTATION: Final = "kai.scheduler/batch-min-member"
SKIP_POD_GROUPER_ANNOTATION: Final = "kai.scheduler/skip-podgrouper"
TOP_OWNER_METADATA_ANNOTATION: Final = "kai.scheduler/top-owner-metadata"
IGNORE_WORKLOAD_API_ANNOTATION: Final = "kai.scheduler/ignore-workload-api"
#: ours, on PodGroups: the group of another API that this group is made from
MADE_FROM_ANNOTATION: Final = "kai.scheduler/made-from"

# Keys that other programs write on workloads, and the pod grouper copies or leaves out.
LAST_APPLIED_ANNOTATION: Final = "kubectl.kubernetes.io/last-applied-configuration"
DEPLOYMENT_REVISION_ANNOTATION: Final = "deployment.kubernetes.io/revision"
SPARK_APP_NAME_LABEL: Final = "spark-app-name"
SPARK_APP_SELECTOR_LABEL: Final = "spark-app-selector"
SPARK_ROLE_LABEL: Final = "spark-role"
SPARK_EXECUTOR: Final = "executor"

# Kueue, which admits workloads by quotas before their pods are scheduled.
KUEUE_POD_GROUP_LABEL: Final = "kueue.x-k8s.io/pod-group-name"
KUEUE_POD_GROUP_COUNT_ANNOTATION: Final = "kueue.x-k8s.io/pod-group-total-count"
KUEUE_PRIORITY_CLASS_LABEL: Final = "kueue.x-k8s.io/priority-class"
KUEUE_STOPPING_ANNOTATION: Final = "kueue.x-k8s.io/stopping"
KUEUE_ADMISSION_GATE: Final = "kueue.x-k8s.io/admission"
KUEUE_TOPOLOGY_GATE: Final = "kueue.x-k8s.io/topology"
KUEUE_GROUP: Final = "kueue.x-k8s.io"
KUEUE_QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"

# The services around pods and groups, as sources of events.
POD_GROUPER: Final = "pod-grouper"
POD_GROUP_CONTROLLER: Final = "podgroup-controller"
QUEUE_CONTROLLER: Final = "queue-controller"
NODE_SCALE_ADJUSTER: Final = "node-scale-adjuster"

# State that a scheduler keeps on a PodGroup (RFC 3339, UTC).
STALE_TIMESTAMP_ANNOTATION: Final = "kai.scheduler/stale-podgroup-timestamp"
LAST_START_TIMESTAMP_ANNOTATION: Final = "kai.scheduler/last-start-timestamp"
LAST_EVICTION_TIMESTAMP_ANNOTATION: Final = "kai.scheduler/last-eviction-timestamp"
# Queue admission gating (queues:Q-405): the gate of a pod, and when the scheduler removed it (RFC 3339, UTC).
ADMISSION_GATE: Final = "kai.scheduler/queue-admission"
ADMITTED_TIMESTAMP_ANNOTATION: Final = "kai.scheduler/queue-admitted-timestamp"
# Plans of gangs as earlier versions kept them; neither read nor written, since tenants write PodGroups.
BIND_PLAN_ANNOTATION: Final = "kai.scheduler/bind-plan"
# Records of a scheduler: their kind and owner (`scheduler/dispatch/records.py`); ours, not in KAI Scheduler.
RECORD_LABEL: Final = "kai.scheduler/record"
RECORD_SCHEDULER_LABEL: Final = "kai.scheduler/record-scheduler"
RECORD_POOL_LABEL: Final = "kai.scheduler/record-node-pool"
# Suspending evicted workloads; ours: on a PodGroup the wish, on a suspended owner the uid of the PodGroup and the time.
EVICTION_STRATEGY_ANNOTATION: Final = "kai.scheduler/eviction-strategy"
EVICTION_STRATEGY_SUSPEND: Final = "suspend"
SUSPENDED_BY_ANNOTATION: Final = "kai.scheduler/suspended-by"

# Shared GPUs: the request of a pod, and its allocation.
GPU_FRACTION_ANNOTATION: Final = "gpu-fraction"
GPU_MEMORY_ANNOTATION: Final = "gpu-memory"
GPU_NUM_DEVICES_ANNOTATION: Final = "gpu-fraction-num-devices"
GPU_FRACTION_CONTAINER_ANNOTATION: Final = "gpu-fraction-container-name"
MPS_ANNOTATION: Final = "mps"
RECEIVED_TYPE_ANNOTATION: Final = "received-resource-type"
SHARED_GPU_CONFIGMAP_ANNOTATION: Final = "runai/shared-gpu-configmap"
GPU_GROUP_LABEL: Final = "runai-gpu-group"
# Pods with several shared devices carry one label a group: `runai-gpu-group/<group>` = `<group>`.
GPU_GROUP_LABEL_PREFIX: Final = "runai-gpu-group/"
# The value is the UUID of the GPU; only the key still says index.
RESERVED_GPU_ANNOTATION: Final = "run.ai/reserve_for_gpu_index"
FAKE_GPU_NODE_LABEL: Final = "run.ai/fake.gpu"
# A whole GPU that is not shared yet, in lists of GPU groups.
WHOLE_GPU_GROUP: Final = "-2"

# NUMA placement of a pod: predicted by the scheduler, and observed by the exporter.
NUMA_PREDICTED_ANNOTATION: Final = "kai.scheduler/numa-placement-predicted"
NUMA_OBSERVED_ANNOTATION: Final = "kai.scheduler/numa-placement-observed"
NUMA_POLICY_ATTRIBUTE: Final = "topologyManagerPolicy"
NUMA_SCOPE_ATTRIBUTE: Final = "topologyManagerScope"
NUMA_ZONE_TYPE_NODE: Final = "Node"

# Facts about nodes.
GPU_MEMORY_NODE_LABEL: Final = "nvidia.com/gpu.memory"
#: followed by the amount, in the key: `beta.amd.com/gpu.vram.16G`
AMD_GPU_MEMORY_NODE_LABEL_PREFIX: Final = "beta.amd.com/gpu.vram"
GPU_COUNT_NODE_LABEL: Final = "nvidia.com/gpu.count"
AMD_GPU_PRODUCT_NODE_LABEL: Final = "amd.com/gpu.product-name"
INTEL_GPU_PRODUCT_NODE_LABEL: Final = "gpu.intel.com/product"
#: bytes of all GPUs of the node
INTEL_GPU_MEMORY_NODE_LABEL: Final = "gpu.intel.com/memory.max"
MIG_STRATEGY_NODE_LABEL: Final = "nvidia.com/mig.strategy"
MIG_ENABLED_NODE_LABEL: Final = "node-role.kubernetes.io/mig-enabled"
GPU_WORKER_NODE_LABEL: Final = "node-role.kubernetes.io/gpu-worker"
CPU_WORKER_NODE_LABEL: Final = "node-role.kubernetes.io/cpu-worker"
MIG_STRATEGY_SINGLE: Final = "single"
MIG_STRATEGY_MIXED: Final = "mixed"

# KAI's own pods: they hold or attract GPUs for others and are no workload.
RESERVATION_APP: Final = "kai-resource-reservation"
SCALE_ADJUST_APP: Final = "kai-scale-adjust"
SCALING_POD_APP: Final = "scaling-pod"
RESERVATION_NAMESPACE: Final = "kai-resource-reservation"
SCALE_ADJUST_NAMESPACE: Final = "kai-scale-adjust"
SHARED_GPU_POD_NAME_LABEL: Final = "shared-gpu-pod-name"
SHARED_GPU_POD_NAMESPACE_LABEL: Final = "shared-gpu-pod-namespace"
KARPENTER_DO_NOT_DISRUPT_ANNOTATION: Final = "karpenter.sh/do-not-disrupt"
RESERVATION_NAME_PREFIX: Final = "gpu-reservation-"

# The configuration of a container with a shared GPU: environment variables, and keys of the ConfigMaps they come from.
VISIBLE_DEVICES_KEY: Final = "NVIDIA_VISIBLE_DEVICES"
LEGACY_VISIBLE_DEVICES_KEY: Final = "RUNAI-VISIBLE-DEVICES"
NUM_OF_GPUS_KEY: Final = "RUNAI_NUM_OF_GPUS"
GPU_PORTION_KEY: Final = "GPU_PORTION"
CUDA_MEMORY_LIMIT_KEY: Final = "CUDA_DEVICE_MEMORY_LIMIT"
CDI_DEVICE_PREFIX: Final = "k8s.device-plugin.nvidia.com/gpu="

# Labels of workload frameworks that decide the order of tasks.
KUBEFLOW_JOB_NAME_LABEL: Final = "training.kubeflow.org/job-name"
KUBEFLOW_ROLE_LABEL: Final = "training.kubeflow.org/job-role"
KUBEFLOW_FIRST_ROLES: Final = frozenset({"master", "launcher"})
RAY_NODE_TYPE_LABEL: Final = "ray.io/node-type"
RAY_HEAD: Final = "head"

# Labels and annotations of workload frameworks that say which part of its workload a pod is.
JOBSET_REPLICATED_JOB_LABEL: Final = "jobset.sigs.k8s.io/replicatedjob-name"
JOBSET_JOB_INDEX_LABEL: Final = "jobset.sigs.k8s.io/job-index"
KUBEFLOW_REPLICA_TYPE_LABEL: Final = "training.kubeflow.org/replica-type"
KUBEFLOW_REPLICA_INDEX_LABEL: Final = "training.kubeflow.org/replica-index"
LWS_WORKER_INDEX_LABEL: Final = "leaderworkerset.sigs.k8s.io/worker-index"
LWS_GROUP_INDEX_LABEL: Final = "leaderworkerset.sigs.k8s.io/group-index"
LWS_SIZE_ANNOTATION: Final = "leaderworkerset.sigs.k8s.io/size"
RAY_GROUP_LABEL: Final = "ray.io/group"
RAY_PRIORITY_CLASS_LABEL: Final = "ray.io/priority-class-name"
GROVE_POD_GANG_LABEL: Final = "grove.io/podgang"
GROVE_POD_CLIQUE_LABEL: Final = "grove.io/podclique"
GROVE_TOPOLOGY_ANNOTATION: Final = "grove.io/topology-name"
KNATIVE_REVISION_LABEL: Final = "serving.knative.dev/revision"
KNATIVE_MIN_SCALE_ANNOTATION: Final = "autoscaling.knative.dev/min-scale"
#: On a Karta: the kind it describes, as the Karta operator writes it.
KARTA_GROUP_LABEL: Final = "run.ai/karta-group"
KARTA_VERSION_LABEL: Final = "run.ai/karta-version"
KARTA_KIND_LABEL: Final = "run.ai/karta-kind"

# Resource names.
CPU: Final = "cpu"
MEMORY: Final = "memory"
PODS: Final = "pods"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
STORAGE: Final = "storage"
HUGEPAGES_PREFIX: Final = "hugepages-"
ATTACHABLE_VOLUMES_PREFIX: Final = "attachable-volumes-"
NATIVE_RESOURCE_PREFIX: Final = "kubernetes.io/"
NVIDIA_GPU: Final = "nvidia.com/gpu"
AMD_GPU: Final = "amd.com/gpu"
INTEL_GPU_I915: Final = "gpu.intel.com/i915"
INTEL_GPU_XE: Final = "gpu.intel.com/xe"
GPU_SUFFIX: Final = "/gpu"
MIG_PREFIX: Final = "nvidia.com/mig-"
GPU_MEMORY_RESOURCE: Final = "run.ai/gpu.memory"

# DRA.
#: GPUs that nodes offer by ResourceSlices, as a resource of the node: a name of our own that ends as GPUs' names do.
DRA_GPU: Final = "resource.k8s.io/gpu"
POD_CLAIM_NAME_ANNOTATION: Final = "resource.kubernetes.io/pod-claim-name"
EXTENDED_RESOURCE_CLAIM_ANNOTATION: Final = "resource.kubernetes.io/extended-resource-claim"
DEVICE_CLASS_RESOURCE_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
DRA_DELETE_PROTECTION_FINALIZER: Final = "resource.kubernetes.io/delete-protection"
ALLOCATION_EXACT_COUNT: Final = "ExactCount"
ALLOCATION_ALL: Final = "All"
# A device class or driver whose name contains this, in any case, provides GPUs.
DRA_GPU_MARK: Final = "gpu"
CLAIM_MAX_CONSUMERS: Final = 256
CLAIM_MAX_RESULTS: Final = 32

# Storage: annotations of claims, and the labels that name the zone of a volume.
SELECTED_NODE_ANNOTATION: Final = "volume.kubernetes.io/selected-node"
BIND_COMPLETED_ANNOTATION: Final = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER_ANNOTATION: Final = "pv.kubernetes.io/bound-by-controller"
STORAGE_CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"
WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
#: a zone label of a volume -> the label that nodes may have instead
ZONE_LABELS: Final = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}

# Simulated machines: the behaviour that a pod declares, and its devices.
SIMULATED_NODE_LABEL: Final = "simulator.kai.scheduler/node"
# Simulated autoscalers; the labels and taints are those of the real ones, except the group of cluster-autoscaler,
# which no label names.
SIMULATED_NODE_GROUP_LABEL: Final = "simulator.kai.scheduler/node-group"
CLUSTER_AUTOSCALER_LEAVING_TAINT: Final = "ToBeDeletedByClusterAutoscaler"
KARPENTER_NODE_POOL_LABEL: Final = "karpenter.sh/nodepool"
KARPENTER_LEAVING_TAINT: Final = "karpenter.sh/disrupted"
CREATES_ANNOTATION: Final = "simulator.kai.scheduler/creates"
RUN_SECONDS_ANNOTATION: Final = "simulator.kai.scheduler/run-seconds"
EXIT_CODE_ANNOTATION: Final = "simulator.kai.scheduler/exit-code"
START_SECONDS_ANNOTATION: Final = "simulator.kai.scheduler/start-seconds"
STOP_SECONDS_ANNOTATION: Final = "simulator.kai.scheduler/stop-seconds"
DEVICES_ANNOTATION: Final = "simulator.kai.scheduler/devices"
GPU_PRODUCT_NODE_LABEL: Final = "nvidia.com/gpu.product"
SIMULATED_PROVISIONER: Final = "simulator.kai.scheduler/volumes"
GPU_DEVICE_CLASS: Final = "gpu.nvidia.com"
GPU_RUNTIME_CLASS: Final = "nvidia"

# Keys that the controllers of Kubernetes write on the objects they make.
JOB_NAME_LABEL: Final = "batch.kubernetes.io/job-name"
JOB_CONTROLLER_UID_LABEL: Final = "batch.kubernetes.io/controller-uid"
LEGACY_JOB_NAME_LABEL: Final = "job-name"
LEGACY_JOB_CONTROLLER_UID_LABEL: Final = "controller-uid"
COMPLETION_INDEX_LABEL: Final = "batch.kubernetes.io/job-completion-index"
COMPLETION_INDEX_ANNOTATION: Final = "batch.kubernetes.io/job-completion-index"
CRON_SCHEDULED_AT_ANNOTATION: Final = "batch.kubernetes.io/cronjob-scheduled-timestamp"
POD_TEMPLATE_HASH_LABEL: Final = "pod-template-hash"
DESIRED_REPLICAS_ANNOTATION: Final = "deployment.kubernetes.io/desired-replicas"
MAX_REPLICAS_ANNOTATION: Final = "deployment.kubernetes.io/max-replicas"
POD_DELETION_COST_ANNOTATION: Final = "controller.kubernetes.io/pod-deletion-cost"
REVISION_HASH_LABEL: Final = "controller-revision-hash"
STATEFUL_POD_NAME_LABEL: Final = "statefulset.kubernetes.io/pod-name"
POD_INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"
PROVISIONED_BY_ANNOTATION: Final = "pv.kubernetes.io/provisioned-by"
DEFAULT_STORAGE_CLASS_ANNOTATION: Final = "storageclass.kubernetes.io/is-default-class"
NODE_ROLE_LABEL_PREFIX: Final = "node-role.kubernetes.io/"
NODE_ROLE_LABEL: Final = "kubernetes.io/role"
NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"

# `BindRequest.spec.receivedResourceType`.
RECEIVED_REGULAR: Final = "Regular"
RECEIVED_FRACTION: Final = "Fraction"
RECEIVED_MIG: Final = "MigInstance"

# `BindRequest.status.phase`.
BIND_PENDING: Final = "Pending"
BIND_SUCCEEDED: Final = "Succeeded"
BIND_FAILED: Final = "Failed"

# `PodGroup.spec.preemptibility`.
PREEMPTIBLE: Final = "preemptible"
NON_PREEMPTIBLE: Final = "non-preemptible"
SEMI_PREEMPTIBLE: Final = "semi-preemptible"

# `PodGroup.spec.schedulingBackoff`: try forever, or stop after one failed cycle in this node pool.
BACKOFF_NONE: Final = -1
BACKOFF_ONCE: Final = 1

# Default priorities. A group below NON_PREEMPTIBLE_PRIORITY is preemptible.
DEFAULT_JOB_PRIORITY: Final = 50
NON_PREEMPTIBLE_PRIORITY: Final = 100
DEFAULT_QUEUE_PRIORITY: Final = 100

# Priority classes of workloads whose owner names none: services, interactive work, everything else.
PRIORITY_CLASS_INFERENCE: Final = "inference"
PRIORITY_CLASS_BUILD: Final = "build"
PRIORITY_CLASS_TRAIN: Final = "train"

# Names that mean "none was given".
DEFAULT_SUBGROUP: Final = "default"
ROOT_SUBGROUP: Final = ""
DEFAULT_NODE_POOL: Final = "default"
DEFAULT_QUEUE: Final = "default-queue"
#: before the uid of a pod: the name under which a pod without a PodGroup is charged
STAND_IN_PREFIX: Final = "ungrouped-"
DEFAULT_PARENT_QUEUE: Final = "default-parent-queue"
# The parent of all queues when the hierarchy above the leaves is switched off.
SYNTHETIC_PARENT_QUEUE: Final = "default"

# Quota and limit on the wire: exactly this number means unlimited.
UNLIMITED: Final = -1

# Why a group did not fit (reasons of its fit errors).
REASON_POD_SCHEDULING_ERRORS: Final = "PodSchedulingErrors"
REASON_NON_PREEMPTIBLE_OVER_QUOTA: Final = "NonPreemptibleOverQuota"
REASON_OVER_LIMIT: Final = "OverLimit"
REASON_PREEMPTION_DELAY: Final = "PreemptionDelayNotElapsed"
#: ours: a group whose binds keep failing may use free resources only
REASON_BINDS_FAILED: Final = "BindsFailed"
REASON_QUEUE_DOES_NOT_EXIST: Final = "QueueDoesNotExist"
#: ours: the namespace may not use the queue
REASON_QUEUE_ACCESS_DENIED: Final = "QueueAccessDenied"
REASON_NOT_ENOUGH_RESOURCES: Final = "Not enough resources for the workload"

# Reasons of events.
EVENT_SCHEDULED: Final = "Scheduled"
EVENT_FAILED_SCHEDULING: Final = "FailedScheduling"
EVENT_FAILED_BINDING: Final = "FailedBinding"
EVENT_EVICT: Final = "Evict"
EVENT_PIPELINED: Final = "Pipelined"
EVENT_UNSCHEDULABLE: Final = "Unschedulable"
EVENT_NOT_READY: Final = "NotReady"
# Ours: the namespace may not use the queue.
EVENT_QUEUE_ACCESS_DENIED: Final = "QueueAccessDenied"
EVENT_ADMITTED: Final = "Admitted"
EVENT_SUSPENDED: Final = "WorkloadSuspended"
EVENT_RESUMED: Final = "WorkloadResumed"
EVENT_NOT_RESUMED: Final = "WorkloadNotResumed"
# Ours: the API server refuses to remove the gate of a queue from a pod.
EVENT_ADMISSION_REFUSED: Final = "AdmissionRefused"
EVENT_STALE_JOB: Final = "StaleJob"
EVENT_BOUND: Final = "Bound"
EVENT_BINDING_ERROR: Final = "BindingError"
EVENT_FAILED_CREATE: Final = "FailedCreate"
EVENT_INVALID_ANNOTATION: Final = "InvalidAnnotation"
# Ours: an incomplete gang loses its nodes; an object of some kind cannot be used.
EVENT_GANG_BROKEN: Final = "GangBroken"
# Ours: a group whose binds keep failing is placed on free resources only.
EVENT_BINDS_FAILED: Final = "BindsFailed"
EVENT_INVALID_PREFIX: Final = "Invalid"
EVENT_POD_GROUPER_WARNING: Final = "PodGrouperWarning"
#: Values of a workload that the pod grouper ignored.
EVENT_INVALID_WORKLOAD: Final = "InvalidWorkload"
#: A workload of a kind that the pod grouper does not know has several pods.
EVENT_UNKNOWN_KIND: Final = "UnknownWorkloadKind"
#: about a pod that shares GPUs: an autoscaler is asked for a node
EVENT_SCALE_UP_REQUESTED: Final = "ScaleUpRequested"
#: of autoscalers, as cluster-autoscaler and Karpenter call them: a node comes for this pod
EVENT_TRIGGERED_SCALE_UP: Final = "TriggeredScaleUp"
EVENT_NOMINATED: Final = "Nominated"
EVENT_UNREADABLE: Final = "Unreadable"
EVENT_RESERVATION_MISSING: Final = "GPUReservationMissing"
EVENT_INVALID_BIND_REQUEST: Final = "InvalidBindRequest"
EVENT_INVALID_CONFIGURATION: Final = "InvalidConfiguration"

#: On the Secret of the webhooks' certificate: asks for a new one, and goes away when it is served.
ROTATE_CERTIFICATE_ANNOTATION: Final = "kai.scheduler/rotate-certificate"

# Annotations of eviction events.
EVICTED_PODS_ANNOTATION: Final = "num-evicted-pods"
EVICTOR_ACTION_ANNOTATION: Final = "evictor-action-type"
EVICTOR_POD_GROUP_ANNOTATION: Final = "evictor-pod-group-name"
EVICTOR_POD_GROUP_NAMESPACE_ANNOTATION: Final = "evictor-pod-group-namespace"

# Condition types and their reasons.
CONDITION_POD_SCHEDULED: Final = "PodScheduled"
CONDITION_POD_BOUND: Final = "PodBound"
CONDITION_DISRUPTION_TARGET: Final = "DisruptionTarget"
#: Of pods that the scheduler evicts; its message is namespace/name/uid of the PodGroup that gets the place, or empty.
CONDITION_EVICTED_FOR: Final = "kai.scheduler/EvictedFor"
CONDITION_UNSCHEDULABLE_ON_NODE_POOL: Final = "UnschedulableOnNodePool"
#: `PodGroup.status.conditions`
CONDITION_GROUP_READY: Final = "Ready"
CONDITION_GROUP_SCHEDULED: Final = "Scheduled"
CONDITION_GROUP_RUNNING: Final = "Running"
#: of PodGroups and queues: False says what is wrong with the object
CONDITION_VALID: Final = "Valid"
#: `Queue.status.conditions`
CONDITION_ORPHAN: Final = "Orphan"
CONDITION_CYCLIC: Final = "Cyclic"
CONDITION_OVER_QUOTA: Final = "OverQuota"
CONDITION_REASON_UNSCHEDULABLE: Final = "Unschedulable"
#: Pods of a gang of which too few exist; not `Unschedulable`, on which autoscalers add nodes.
CONDITION_REASON_NOT_READY: Final = "PodGroupNotReady"
#: Ours: the namespace may not use the queue; as above, no node would help.
CONDITION_REASON_QUEUE_ACCESS_DENIED: Final = "QueueAccessDenied"
CONDITION_REASON_GATED: Final = "SchedulingGated"
CONDITION_REASON_BINDING_ERROR: Final = "BindingError"
CONDITION_REASON_BOUND: Final = "Bound"
CONDITION_REASON_PREEMPTION: Final = "PreemptionByScheduler"

# Node conditions: the first must be True, the others must be False.
NODE_READY: Final = "Ready"
NODE_BAD_CONDITIONS: Final = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
# The taint of every new node, with the effect NoSchedule, until its Ready condition is True.
NOT_READY_TAINT: Final = "node.kubernetes.io/not-ready"

# Predicates, as they are named in messages.
PREDICATE_HOST_PORTS: Final = "PodFitsHostPorts"
PREDICATE_NODE_AFFINITY: Final = "NodeAffinity"
PREDICATE_POD_AFFINITY: Final = "PodAffinity"
PREDICATE_VOLUME_BINDING: Final = "VolumeBinding"
PREDICATE_MAX_NODE_POOL_RESOURCES: Final = "MaxNodePoolResources"
PREDICATE_CONFIG_MAP: Final = "ConfigMap"

# Actions, in the default order.
ACTION_ALLOCATE: Final = "allocate"
ACTION_CONSOLIDATION: Final = "consolidation"
ACTION_RECLAIM: Final = "reclaim"
ACTION_PREEMPT: Final = "preempt"
ACTION_STALE_GANG_EVICTION: Final = "stalegangeviction"
# Last, if queue admission gating is on.
ACTION_UNGATE: Final = "ungate"
DEFAULT_ACTIONS: Final = (
    ACTION_ALLOCATE,
    ACTION_CONSOLIDATION,
    ACTION_RECLAIM,
    ACTION_PREEMPT,
    ACTION_STALE_GANG_EVICTION,
)

# Values of plugin arguments.
STRATEGY_BINPACK: Final = "binpack"
STRATEGY_SPREAD: Final = "spread"
RESOLVE_LCA: Final = "lca"
RESOLVE_QUEUE: Final = "queue"

# Scenario generators and the other keys of the search budgets.
GENERATOR_NODE_LOCAL_GREEDY: Final = "NodeLocalGreedy"
GENERATOR_MULTI_NODE_GANG: Final = "MultiNodeGang"
BUDGET_DEFAULT: Final = "default"

# Defaults that are more than the default of a flag (those are in the table of flags).
STALENESS_GRACE_S: Final = 60
ADMISSION_RESERVATION_S: Final = 600
METRICS_ADDRESS: Final = ":8080"
STUCK_IN_RELEASING_S: Final = 120

# Defaults of plugin arguments and search budgets. A maximum of 0 means unlimited.
PREEMPT_MIN_RUNTIME_S: Final = 0
RECLAIM_MIN_RUNTIME_S: Final = 0
CEL_CACHE_ENTRIES: Final = 10
MAX_ACTION_SEARCH_S: Final = 300
MAX_JOB_SEARCH_S: Final = 240
MIN_JOB_SEARCH_S: Final = 0
MAX_GENERATOR_SEARCH_S: Final = 120
MAX_NODE_LOCAL_GREEDY_SEARCH_S: Final = 30
MAX_MULTI_NODE_GANG_SEARCH_S: Final = 120

# Per-GPU memory of a node whose label is missing or unreadable, and the size above which a label counts bytes.
UNKNOWN_GPU_MEMORY_MIB: Final = 100
GPU_MEMORY_BYTES_FROM: Final = 1 << 20
GPU_MEMORY_STEP_MIB: Final = 100

# Leader election.
BINDER_LEASE: Final = "2ad35f9c.kai.scheduler"
LEASE_DURATION_S: Final = 15
LEASE_RENEW_DEADLINE_S: Final = 10
LEASE_RETRY_S: Final = 5
