"""A Node as the engine keeps it: immutable facts, read once when the object changes (cycle:4, gpu:3)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from pykai.api import names
from pykai.api.core import Node
from pykai.api.gpuvendors import is_gpu, is_shareable
from pykai.api.quantity import QuantityError
from pykai.core.model.axes import amount, is_mig, is_tracked
from pykai.core.model.problems import Problem, ProblemReporter

#: Conditions that must be False (cycle:9.1 step 10), in the order they are checked.
_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")

#: What Go reads as an integer; eighteen digits always fit the columns.
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")

#: Memory per GPU assumed while the label is missing (gpu:C-1).
UNKNOWN_GPU_MIB = names.UNKNOWN_GPU_MEMORY_MIB


@dataclass(frozen=True, slots=True)
class NodeTaint:
    """A taint that can keep pods away."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The facts of one Node that scheduling reads."""

    name: str
    labels: dict[str, str]
    taints: tuple[NodeTaint, ...]
    #: resource name -> amount in axis units; zero amounts are left out (cycle:R-2)
    allocatable: tuple[tuple[str, int], ...]
    #: why no pod may start here, "" when it may
    unschedulable_reason: str
    #: MiB of one GPU, floored to a multiple of 100
    gpu_mib: int
    #: MiB of one GPU as the label says
    gpu_label_mib: int
    has_gpu_memory_label: bool
    #: devices by label, else by allocatable
    gpu_count: int
    mig_enabled: bool
    #: `single`, `mixed` or "" (gpu:C-7)
    mig_strategy: str
    #: the resource whose devices are shared here, "" when the node has no GPU that can be shared (ADR-37)
    shared_resource: str
    #: no GPU of any form (cycle:NOD-5)
    cpu_only: bool
    #: GPUs among the devices of its ResourceSlices (gpu:D-6)
    dra_gpus: int = 0

    def with_dra_gpus(self, count: int) -> NodeFacts:
        """The same node with this many GPUs in its slices."""
        if count == self.dra_gpus:
            return self
        amounts = {name: amount for name, amount in self.allocatable if name != names.DRA_GPU}
        if count:
            amounts[names.DRA_GPU] = count
        devices = sum(amount for name, amount in amounts.items() if is_gpu(name))
        return replace(
            self,
            allocatable=tuple(sorted(amounts.items())),
            gpu_count=self.gpu_count - self.dra_gpus + count,
            cpu_only=not self.mig_enabled and devices == 0,
            dra_gpus=count,
        )


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and _INTEGER.fullmatch(text) else None


def _unschedulable_reason(node: Node) -> str:
    if node.spec.unschedulable:
        return "node is unschedulable"
    conditions = {c.type: c.status for c in node.status.conditions}
    if conditions.get("Ready", "True") != "True":
        return "node has NotReady condition"
    for pressure in _PRESSURES:
        if conditions.get(pressure, "False") != "False":
            return f"node has {pressure} condition"
    return ""


def _parse_bool(text: str) -> bool:
    """Go's strconv.ParseBool; text that it rejects counts as false."""
    return text in ("1", "t", "T", "TRUE", "true", "True")


def read_node(node: Node, mig_label: str, report: ProblemReporter) -> NodeFacts:
    """The engine's view of a Node; amounts that cannot be read are reported and count as absent (cycle:NOD-4)."""
    name = node.metadata.name
    labels = node.metadata.labels
    amounts: dict[str, int] = {}
    for resource, raw in node.status.allocatable.items():
        if not is_tracked(resource):
            continue
        try:
            value = amount(resource, raw)
        except QuantityError as error:
            report(Problem(f"Node/{name}", f"status.allocatable[{resource}]", f"{error}; treated as absent"))
            continue
        if value > 0:
            amounts[resource] = value

    whole_gpus = {resource: count for resource, count in amounts.items() if is_gpu(resource)}
    memory = _integer(labels.get(names.GPU_MEMORY_NODE_LABEL))
    has_memory_label = memory is not None and memory > 0
    label_mib = memory if memory is not None and has_memory_label else UNKNOWN_GPU_MIB
    if label_mib >= names.GPU_MEMORY_BYTES_FROM:
        label_mib //= 1 << 20
    gpu_mib = max(label_mib - label_mib % names.GPU_MEMORY_STEP_MIB, UNKNOWN_GPU_MIB)
    mig_flag = labels.get(mig_label)
    mig_enabled = _parse_bool(mig_flag) if mig_flag is not None else any(is_mig(resource) for resource in amounts)
    strategy = labels.get(names.MIG_STRATEGY_NODE_LABEL, "")
    # The label may count more GPUs than the node offers (gpu:C-5).
    count = _integer(labels.get(names.GPU_COUNT_NODE_LABEL))
    allocatable_gpus = sum(whole_gpus.values())
    return NodeFacts(
        name=name,
        labels=labels,
        taints=tuple(NodeTaint(t.key, t.value or "", t.effect) for t in node.spec.taints),
        allocatable=tuple(sorted(amounts.items())),
        unschedulable_reason=_unschedulable_reason(node),
        gpu_mib=gpu_mib,
        gpu_label_mib=max(label_mib, gpu_mib),
        has_gpu_memory_label=has_memory_label,
        gpu_count=count if count is not None else allocatable_gpus,
        mig_enabled=mig_enabled,
        mig_strategy=strategy if mig_enabled and strategy in ("single", "mixed") else "",
        shared_resource=next(filter(is_shareable, whole_gpus), ""),
        cpu_only=not mig_enabled and allocatable_gpus == 0,
    )
