"""The wire contract, spelt out a second time: a changed value here breaks every cluster that runs."""

import pytest

from pykai.api import names

CONTRACT = {
    "SCHEDULER_NAME": "kai-scheduler",
    "POD_GROUP_ANNOTATION": "pod-group-name",
    "SUBGROUP_LABEL": "kai.scheduler/subgroup-name",
    "TASK_PRIORITY_LABEL": "kai.scheduler/task-priority",
    "QUEUE_LABEL": "kai.scheduler/queue",
    "NODE_POOL_LABEL": "kai.scheduler/node-pool",
    "SELECTED_NODE_LABEL": "selected-node",
    "GPU_FRACTION_ANNOTATION": "gpu-fraction",
    "GPU_MEMORY_ANNOTATION": "gpu-memory",
    "GPU_NUM_DEVICES_ANNOTATION": "gpu-fraction-num-devices",
    "RECEIVED_TYPE_ANNOTATION": "received-resource-type",
    "GPU_GROUP_LABEL": "runai-gpu-group",
    "GPU_GROUP_LABEL_PREFIX": "runai-gpu-group/",
    "RESERVED_GPU_ANNOTATION": "run.ai/reserve_for_gpu_index",
    "SHARED_GPU_CONFIGMAP_ANNOTATION": "runai/shared-gpu-configmap",
    "STALE_TIMESTAMP_ANNOTATION": "kai.scheduler/stale-podgroup-timestamp",
    "LAST_START_TIMESTAMP_ANNOTATION": "kai.scheduler/last-start-timestamp",
    "LAST_EVICTION_TIMESTAMP_ANNOTATION": "kai.scheduler/last-eviction-timestamp",
    "GPU_MEMORY_NODE_LABEL": "nvidia.com/gpu.memory",
    "GPU_COUNT_NODE_LABEL": "nvidia.com/gpu.count",
    "MIG_STRATEGY_NODE_LABEL": "nvidia.com/mig.strategy",
    "MIG_ENABLED_NODE_LABEL": "node-role.kubernetes.io/mig-enabled",
    "GPU_WORKER_NODE_LABEL": "node-role.kubernetes.io/gpu-worker",
    "CPU_WORKER_NODE_LABEL": "node-role.kubernetes.io/cpu-worker",
    "RESERVATION_APP": "kai-resource-reservation",
    "SCALE_ADJUST_APP": "kai-scale-adjust",
    "SCALING_POD_APP": "scaling-pod",
    "APP_LABEL": "app",
    "KUBEFLOW_ROLE_LABEL": "training.kubeflow.org/job-role",
    "RAY_NODE_TYPE_LABEL": "ray.io/node-type",
    "NVIDIA_GPU": "nvidia.com/gpu",
    "AMD_GPU": "amd.com/gpu",
    "INTEL_GPU_I915": "gpu.intel.com/i915",
    "INTEL_GPU_XE": "gpu.intel.com/xe",
    "MIG_PREFIX": "nvidia.com/mig-",
    "RECEIVED_REGULAR": "Regular",
    "RECEIVED_FRACTION": "Fraction",
    "RECEIVED_MIG": "MigInstance",
    "PREEMPTIBLE": "preemptible",
    "NON_PREEMPTIBLE": "non-preemptible",
    "SEMI_PREEMPTIBLE": "semi-preemptible",
    "SELECTED_NODE_ANNOTATION": "volume.kubernetes.io/selected-node",
    "BIND_COMPLETED_ANNOTATION": "pv.kubernetes.io/bind-completed",
    "STORAGE_CLASS_ANNOTATION": "volume.beta.kubernetes.io/storage-class",
    "WAIT_FOR_FIRST_CONSUMER": "WaitForFirstConsumer",
    "NO_PROVISIONER": "kubernetes.io/no-provisioner",
    "READ_WRITE_ONCE_POD": "ReadWriteOncePod",
    "STORAGE_GROUP": "storage.k8s.io",
    "DEFAULT_JOB_PRIORITY": 50,
    "NON_PREEMPTIBLE_PRIORITY": 100,
    "DEFAULT_QUEUE_PRIORITY": 100,
    "DEFAULT_SUBGROUP": "default",
    "REASON_POD_SCHEDULING_ERRORS": "PodSchedulingErrors",
    "REASON_NON_PREEMPTIBLE_OVER_QUOTA": "NonPreemptibleOverQuota",
    "REASON_OVER_LIMIT": "OverLimit",
    "REASON_PREEMPTION_DELAY": "PreemptionDelayNotElapsed",
    "REASON_QUEUE_DOES_NOT_EXIST": "QueueDoesNotExist",
    "REASON_NOT_ENOUGH_RESOURCES": "Not enough resources for the workload",
    "STUCK_IN_RELEASING_S": 120,
    "STALENESS_GRACE_S": 60,
}


@pytest.mark.parametrize("name", CONTRACT)
def test_the_contract_holds(name: str) -> None:
    assert getattr(names, name) == CONTRACT[name]


def test_keys_of_metadata_are_named_once() -> None:
    keys = [
        (value, name.rsplit("_", 1)[1])
        for name, value in vars(names).items()
        if name.endswith(("_LABEL", "_ANNOTATION"))
    ]
    assert len(keys) == len(set(keys))
