"""Kubernetes objects in one line each, for synthetic clusters.

The structs are those the engine reads from a real cluster.  Everything has a sensible default, so that a call says only
what matters: `node("a", gpus=8)`, `queue("team", quota=4)`, `pod_group("job", queue="team", minimum=2)`,
`pod("job-0", group="job", gpus=1)`.  Quota, limit and weight are those of GPUs; -1 is unlimited.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pykai.api import names
from pykai.api.core import (
    Container,
    Node,
    NodeSpec,
    NodeStatus,
    Pod,
    PodSpec,
    PodStatus,
    PriorityClass,
    ResourceRequirements,
    Taint,
    Toleration,
)
from pykai.api.keys import object_key
from pykai.api.meta import ObjectMeta
from pykai.api.quantity import RawQuantity
from pykai.api.scheduling import PodGroup, PodGroupSpec, Queue, QueueResource, QueueResources, QueueSpec, SubGroup

_UNBOUNDED = QueueResource(quota=-1, limit=-1, over_quota_weight=1)


def node(
    name: str,
    *,
    gpus: int = 0,
    gpu_memory_mib: int = 0,
    cpu: str = "64",
    memory: str = "512Gi",
    pods: int = 110,
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Taint] = (),
    unschedulable: bool = False,
) -> Node:
    """A machine; `gpu_memory_mib` is the memory of each GPU, 0 = not known."""
    node_labels = {names.HOSTNAME_LABEL: name, **(labels or {})}
    allocatable: dict[str, RawQuantity] = {"cpu": cpu, "memory": memory, "pods": str(pods)}
    if gpus:
        allocatable[names.NVIDIA_GPU] = str(gpus)
    if gpu_memory_mib:
        node_labels[names.GPU_MEMORY_NODE_LABEL] = str(gpu_memory_mib)
    return Node(
        metadata=ObjectMeta(name=name, uid=name, labels=node_labels),
        spec=NodeSpec(unschedulable=unschedulable, taints=tuple(taints)),
        status=NodeStatus(allocatable=allocatable),
    )


def priority_class(name: str, value: int) -> PriorityClass:
    """A priority class for groups; higher goes first in its queue, and below 100 is preemptible."""
    return PriorityClass(metadata=ObjectMeta(name=name, uid=name), value=value)


def queue(
    name: str,
    *,
    parent: str = "",
    quota: float = -1,
    limit: float = -1,
    weight: float = 1,
    priority: int | None = None,
    display_name: str = "",
    created: str | None = None,
) -> Queue:
    """A queue with unbounded CPU and memory."""
    gpu = QueueResource(quota=quota, limit=limit, over_quota_weight=weight)
    return Queue(
        metadata=ObjectMeta(name=name, uid=name, creation_timestamp=created),
        spec=QueueSpec(
            parent_queue=parent,
            display_name=display_name,
            priority=priority,
            resources=QueueResources(gpu=gpu, cpu=_UNBOUNDED, memory=_UNBOUNDED),
        ),
    )


def pod_group(
    name: str,
    *,
    queue: str,
    minimum: int = 1,
    namespace: str = "default",
    preemptible: bool = True,
    priority_class: str = "",
    sub_groups: Iterable[SubGroup] = (),
    created: str | None = None,
) -> PodGroup:
    """A group whose `minimum` pods start together or not at all."""
    return PodGroup(
        metadata=ObjectMeta(name=name, namespace=namespace, uid=name, creation_timestamp=created),
        spec=PodGroupSpec(
            queue=queue,
            min_member=minimum,
            preemptibility=names.PREEMPTIBLE if preemptible else names.NON_PREEMPTIBLE,
            priority_class_name=priority_class,
            sub_groups=list(sub_groups),
        ),
    )


def pod(
    name: str,
    *,
    group: str = "",
    namespace: str = "default",
    gpus: int = 0,
    fraction: float = 0,
    gpu_memory_mib: int = 0,
    cpu: str = "1",
    memory: str = "1Gi",
    on: str = "",
    devices: Iterable[str] = (),
    terminating: str | None = None,
    subgroup: str = "",
    node_selector: Mapping[str, str] | None = None,
    tolerations: Iterable[Toleration] = (),
    created: str | None = None,
) -> Pod:
    """A pending pod, or one that runs `on` a node, there on shared `devices`.

    It requests whole GPUs, a fraction of one, or memory of one; `terminating` is the end of its grace period.
    """
    pod_annotations: dict[str, str] = {}
    if group:
        pod_annotations[names.POD_GROUP_ANNOTATION] = group
    if fraction:
        pod_annotations[names.GPU_FRACTION_ANNOTATION] = str(fraction)
    if gpu_memory_mib:
        pod_annotations[names.GPU_MEMORY_ANNOTATION] = str(gpu_memory_mib)
    pod_labels: dict[str, str] = {}
    if subgroup:
        pod_labels[names.SUBGROUP_LABEL] = subgroup
    shared_devices = list(devices)
    if len(shared_devices) == 1:
        pod_labels[names.GPU_GROUP_LABEL] = shared_devices[0]
    elif shared_devices:
        pod_labels.update({names.GPU_GROUP_LABEL_PREFIX + device: device for device in shared_devices})
    requests: dict[str, RawQuantity] = {"cpu": cpu, "memory": memory}
    if gpus:
        requests[names.NVIDIA_GPU] = str(gpus)
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=object_key(namespace, name),
            labels=pod_labels,
            annotations=pod_annotations,
            creation_timestamp=created,
            deletion_timestamp=terminating,
        ),
        spec=PodSpec(
            scheduler_name=names.SCHEDULER_NAME,
            containers=(Container(name="main", resources=ResourceRequirements(requests=requests)),),
            node_name=on,
            node_selector=dict(node_selector or {}),
            tolerations=tuple(tolerations),
        ),
        status=PodStatus(phase="Running" if on else "Pending"),
    )
