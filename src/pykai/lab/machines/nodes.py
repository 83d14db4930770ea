"""Machines as objects: nodes with GPUs, and what their drivers publish.

`node_objects` makes Node objects from a `MachineKind`; a lab (`machine_objects`) is a list of kinds. GPUs appear as a
real cluster shows them: an extended resource with the labels of its vendor, MIG profiles as resources of
their own, or, with `dra`, devices in a ResourceSlice under a DeviceClass. Labels say where machines stand, one per
level: `levels` names them from the outside in, with the number of machines in a domain.

Nodes are Ready from the start and stay so: heartbeats would only cost writes.

Statements: operations:E-30, E-34.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from pykai.api import names
from pykai.api.gpuvendors import AMD, NVIDIA, vendor_of
from pykai.api.unstructured import JsonObject
from pykai.lab.machines.devices import device_id


@dataclass(frozen=True, slots=True)
class TopologyLevelLabels:
    """A level of the topology: machines in groups of `machines`, each with its own value of `label`."""

    label: str
    machines: int
    prefix: str


@dataclass(frozen=True, slots=True)
class MachineKind:
    """Machines that are alike."""

    count: int = 1
    #: `{}` is replaced by the number of the machine, from 0; without it `-<number>` is added to several
    name: str = "node-{}"
    gpus: int = 0
    #: what the device plugin calls them
    gpu_resource: str = names.NVIDIA_GPU
    gpu_product: str = "NVIDIA-H100-80GB-HBM3"
    gpu_memory_mib: int = 81559
    cpu: str = "128"
    memory: str = "1Ti"
    ephemeral_storage: str = "1Ti"
    pods: int = 110
    labels: Mapping[str, str] = field(default_factory=dict)
    #: from the outside in, each with machines a multiple of the next one's
    levels: Sequence[TopologyLevelLabels] = ()
    taints: Sequence[Mapping[str, str]] = ()
    #: MIG profile (`1g.10gb`) -> number per machine, instead of whole GPUs
    mig: Mapping[str, int] = field(default_factory=dict)
    #: GPUs are published in ResourceSlices, not as a resource of the node
    dra: bool = False


def machine_objects(kinds: Iterable[MachineKind], now: str) -> list[JsonObject]:
    """All objects of a lab: shared objects first, then the nodes of each kind."""
    all_kinds = list(kinds)
    shared = [runtime_class()] if any(kind.gpus for kind in all_kinds) else []
    return [*shared, *(each for kind in all_kinds for each in node_objects(kind, now))]


def node_objects(kind: MachineKind, now: str) -> list[JsonObject]:
    """The nodes of this kind, with the slices and the device class of their GPUs where they use DRA."""
    objects: list[JsonObject] = []
    for number in range(kind.count):
        node = _node(kind, number, now)
        objects.append(node)
        if kind.dra and kind.gpus:
            objects.append(_slice(kind, node["metadata"]["name"]))
    if kind.dra and kind.gpus:
        objects.append(device_class())
    return objects


@lru_cache(maxsize=1 << 14)
def node_address(node: str) -> str:
    """An address for a machine, from its name alone."""
    digest = hashlib.blake2b(node.encode(), digest_size=4).digest()
    return f"172.{16 + digest[0] % 16}.{digest[1]}.{1 + digest[2] % 254}"


def runtime_class() -> JsonObject:
    """The runtime class of the GPU operator; pods that share a GPU name it."""
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": names.GPU_RUNTIME_CLASS},
        "handler": names.GPU_RUNTIME_CLASS,
    }


def device_class() -> JsonObject:
    """The class under which simulated GPUs are claimed."""
    return {
        "apiVersion": names.DRA_API_VERSION,
        "kind": "DeviceClass",
        "metadata": {"name": names.GPU_DEVICE_CLASS},
        "spec": {
            "selectors": [
                {"cel": {"expression": f"device.driver == '{names.GPU_DEVICE_CLASS}'"}},
            ]
        },
    }


def ready_conditions(now: str) -> list[JsonObject]:
    """The conditions of a healthy machine."""

    def holds(kind: str, status: str, reason: str, message: str) -> JsonObject:
        return {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }

    return [
        holds("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        holds("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        holds("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        holds("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ]


def _node(kind: MachineKind, number: int, now: str) -> JsonObject:
    name = kind.name.replace("{}", str(number))
    if name == kind.name and kind.count > 1:
        name = f"{name}-{number}"
    labels = {
        names.HOSTNAME_LABEL: name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        names.SIMULATED_NODE_LABEL: "true",
    }
    for level in kind.levels:
        labels[level.label] = f"{level.prefix}{number // max(1, level.machines)}"
    resources: JsonObject = {
        names.CPU: kind.cpu,
        names.MEMORY: kind.memory,
        names.EPHEMERAL_STORAGE: kind.ephemeral_storage,
        names.PODS: str(kind.pods),
    }
    if kind.gpus:
        labels |= _gpu_labels(kind)
        if kind.mig:
            labels[names.MIG_ENABLED_NODE_LABEL] = "true"
            labels[names.MIG_STRATEGY_NODE_LABEL] = names.MIG_STRATEGY_MIXED
            resources |= {f"{names.MIG_PREFIX}{profile}": str(count) for profile, count in kind.mig.items()}
        if not kind.dra:
            resources[kind.gpu_resource] = str(0 if kind.mig else kind.gpus)
    labels |= kind.labels
    spec: JsonObject = {"providerID": f"simulated://{name}"}
    if kind.taints:
        spec["taints"] = [dict(taint) for taint in kind.taints]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {
            "capacity": resources,
            "allocatable": dict(resources),
            "conditions": ready_conditions(now),
            "addresses": [
                {"type": "InternalIP", "address": node_address(name)},
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": "",
                "containerRuntimeVersion": "simulated://1",
                "kernelVersion": "",
                "kubeProxyVersion": "",
                "kubeletVersion": "v1.35.4",
                "machineID": name,
                "operatingSystem": "linux",
                "osImage": "simulated",
                "systemUUID": name,
            },
        },
    }


def _gpu_labels(kind: MachineKind) -> dict[str, str]:
    """What the software of the vendor says of the GPUs of a node."""
    vendor = vendor_of(kind.gpu_resource)
    if vendor is None:
        return {}
    labels = {vendor.product_label: re.sub(r"[^A-Za-z0-9_.-]+", "-", kind.gpu_product)}
    if vendor is NVIDIA:
        return labels | {vendor.memory_label: str(kind.gpu_memory_mib), names.GPU_COUNT_NODE_LABEL: str(kind.gpus)}
    if vendor is AMD:
        # The amount stands in the key, the number of such GPUs in the value.
        return labels | {f"{vendor.memory_label}.{round(kind.gpu_memory_mib / 1024)}G": str(kind.gpus)}
    return labels | {vendor.memory_label: str(kind.gpu_memory_mib * kind.gpus << 20)}


def _slice(kind: MachineKind, node: str) -> JsonObject:
    devices = [
        {
            "name": f"gpu-{index}",
            "attributes": {
                "type": {"string": "gpu"},
                "uuid": {"string": device_id(node, names.NVIDIA_GPU, index)},
                "productName": {"string": kind.gpu_product},
                "index": {"int": index},
            },
            "capacity": {"memory": {"value": f"{kind.gpu_memory_mib}Mi"}},
        }
        for index in range(kind.gpus)
    ]
    return {
        "apiVersion": names.DRA_API_VERSION,
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{names.GPU_DEVICE_CLASS}"},
        "spec": {
            "driver": names.GPU_DEVICE_CLASS,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }
