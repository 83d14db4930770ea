"""Nodes: labels of GPUs, node pools and their shards, the runtime class of shared GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pykai.api import names
from pykai.api.core import Node
from pykai.api.gpuvendors import is_gpu
from pykai.api.quantity import QuantityError, nano_value
from pykai.doctor.components import components
from pykai.doctor.facts import DEVICE_SLICES, NODES, RUNTIME_CLASSES, SHARDS, Facts
from pykai.doctor.findings import Finding, Severity, counted, listed
from pykai.operator.desired.settings import default

_DISCOVERY: Final = "Is GPU feature discovery running on them? Else label them by hand."
_UNITS: Final = 1_000_000_000


def gpus_of(node: Node) -> int:
    """Whole GPUs that a node offers, of any vendor."""
    return sum(_whole(amount) for name, amount in node.status.allocatable.items() if is_gpu(name))


def _whole(amount: object) -> int:
    try:
        return max(0, nano_value(str(amount)) // _UNITS)
    except QuantityError:
        return 0


def gpu_labels(facts: Facts) -> Iterator[Finding]:
    """GPU nodes whose labels are missing, or say something else than the node offers."""
    no_memory, other_count, not_offered = [], [], []
    claimed = _nodes_with_claimed_gpus(facts)
    for node in facts.all(NODES):
        labels, name = node.metadata.labels, node.metadata.name
        offered = _whole(node.status.allocatable.get(names.NVIDIA_GPU, "0"))
        said = labels.get(names.GPU_COUNT_NODE_LABEL, "")
        if offered and names.GPU_MEMORY_NODE_LABEL not in labels:
            no_memory.append(name)
        if said.isdecimal() and int(said) and not offered:
            not_offered += [name] if name not in claimed else []
        elif said.isdecimal() and int(said) != _whole(node.status.capacity.get(names.NVIDIA_GPU, said)):
            other_count.append(name)
    for code, found, what, fix in (
        (
            "gpu-memory-label",
            no_memory,
            f"GPU nodes without the label {names.GPU_MEMORY_NODE_LABEL} count as {names.UNKNOWN_GPU_MEMORY_MIB} MiB a "
            "GPU: pods that ask for GPU memory do not fit.",
            _DISCOVERY,
        ),
        (
            "gpu-count-label",
            other_count,
            f"The label {names.GPU_COUNT_NODE_LABEL} is not the number of GPUs that the node has.",
            _DISCOVERY,
        ),
        (
            "gpus-not-offered",
            not_offered,
            f"Nodes with GPUs by their label offer no {names.NVIDIA_GPU}, and no GPUs for claims: no pod gets them.",
            "Is the device plugin, or the driver for claims, running on them?",
        ),
    ):
        if found:
            yield Finding(Severity.WARNING, code, f"Node {listed(found)}", what, fix, counted(len(found), "node"))


def _nodes_with_claimed_gpus(facts: Facts) -> set[str]:
    """Nodes whose GPUs a driver publishes for claims (DRA); NVIDIA's has the name of its device class."""
    slices = (each.spec for each in facts.all(DEVICE_SLICES))
    return {each.node_name for each in slices if each.driver == names.GPU_DEVICE_CLASS}


def pools(facts: Facts) -> Iterator[Finding]:
    """Node pools without a scheduler, shards without nodes, and pools of two shards."""
    key = facts.settings.node_pool_label
    nodes_in: dict[str, list[Node]] = {}
    for node in facts.all(NODES):
        nodes_in.setdefault(node.metadata.labels.get(key, ""), []).append(node)
    shards: dict[str, list[str]] = {}
    for each in facts.all(SHARDS):
        shards.setdefault(default(each.spec.partition_label_value, ""), []).append(each.metadata.name)
    served = set(shards) | {each.flag("partition-label-value") for each in components(facts) if each.is_scheduler}
    if not served:
        # The schedulers run outside of the cluster.
        return
    for pool, found in sorted(nodes_in.items()):
        gpus = sum(map(gpus_of, found))
        if pool not in served and (gpus or pool):
            what = f"No shard schedules {_described(pool, key)}: pods get none of their {counted(gpus, 'GPU')}."
            fix = f"Create a SchedulingShard with partitionLabelValue: {pool!r}, or change the label."
            where = f"Node {listed(each.metadata.name for each in found)}"
            yield Finding(Severity.ERROR, "pool-without-shard", where, what, fix, counted(len(found), "node"))
    for pool, owners in sorted(shards.items()):
        where = f"SchedulingShard {listed(owners)}"
        if len(owners) > 1:
            what = f"Several shards schedule {_described(pool, key)}: they give the same GPUs away."
            fix = "Delete all but one of them."
            yield Finding(Severity.ERROR, "pool-of-two-shards", where, what, fix, counted(len(owners), "shard"))
        if pool not in nodes_in:
            what = f"There are no {_described(pool, key)}."
            fix = f"Label nodes with {key}={pool}, or delete the shard." if pool else "Delete the shard, or add nodes."
            yield Finding(Severity.WARNING, "shard-without-nodes", where, what, fix)


def _described(pool: str, key: str) -> str:
    return f"nodes with {key}={pool}" if pool else f"nodes without the label {key}"


def runtime_class(facts: Facts) -> Iterator[Finding]:
    """The runtime class that pods with a shared GPU get."""
    spec = facts.settings.admission
    wanted = default(spec.gpu_fraction_runtime_class_name, default(spec.gpu_pod_runtime_class_name, ""))
    wanted = wanted if spec.gpu_fraction_runtime_class_name is not None or wanted else names.GPU_RUNTIME_CLASS
    there = {each.metadata.name for each in facts.all(RUNTIME_CLASSES)}
    if wanted and wanted not in there:
        matters = default(spec.gpu_sharing, False)
        what = f"Pods that share a GPU get the runtime class {wanted}, which does not exist: they are refused."
        fix = "Install NVIDIA's container runtime, or set admission.gpuFractionRuntimeClassName in kai-config."
        severity = Severity.ERROR if matters else Severity.INFO
        yield Finding(severity, "runtime-class-missing", f"RuntimeClass {wanted}", what, fix)
