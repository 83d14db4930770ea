"""The desired status of a queue, and the patch that sets it (queues:Q-42, Q-43, 2.2).

Conditions, which KAI declares and never writes:

- `Orphan`: the parent that the queue names does not exist;
- `Cyclic`: the queue is its own ancestor;
- `OverQuota`: of some resource more is allocated than its quota;
- `Valid`: False when numbers or durations of the spec make no sense, with the reason; absent while nothing was wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

from pykai.api import names
from pykai.api.amounts import NanoAmounts, amounts_patch, format_amount
from pykai.api.conditions import DesiredCondition, merge_conditions
from pykai.api.duration import DurationError, parse_duration
from pykai.api.gpuvendors import is_gpu
from pykai.api.scheduling import Queue
from pykai.api.unstructured import JsonObject
from pykai.core.model.axes import is_mig, mig_gpus
from pykai.queues.forest import QueueForest

_NANO = 10**9


def gpus_of(amounts: NanoAmounts) -> int:
    """Billionths of GPUs: those of all vendors, slices by what they are of a GPU, and GPUs of claims (queues:Q-361).

    Statements: operations:E-27.
    """
    total = 0
    for name, value in amounts.items():
        if is_gpu(name):
            total += value
        elif is_mig(name):
            total += value * mig_gpus(name)
        elif "/" not in name and names.DRA_GPU_MARK in name.lower():
            total += value  # a device class of claims
    return total


def status_patch(queue: Queue, forest: QueueForest, now: str) -> JsonObject | None:
    """A merge patch of the status subresource, None when nothing changes."""
    name = queue.metadata.name
    sums = forest.total(name)
    existing = queue.status if isinstance(queue.status, dict) else {}
    status: JsonObject = {}
    for field, wanted in (
        ("allocated", sums.allocated),
        ("allocatedNonPreemptible", sums.allocated_non_preemptible),
        ("requested", sums.requested),
    ):
        patch = amounts_patch(existing.get(field), wanted)
        if patch:
            status[field] = patch if wanted else None
    children = forest.children(name)
    if children != (existing.get("childQueues") or []):
        status["childQueues"] = children or None
    conditions = merge_conditions(existing.get("conditions"), _conditions(queue, forest, sums.allocated, existing), now)
    if conditions is not None:
        status["conditions"] = conditions
    return {"status": status} if status else None


def _conditions(
    queue: Queue, forest: QueueForest, allocated: NanoAmounts, existing: JsonObject
) -> Iterator[DesiredCondition]:
    name, parent = queue.metadata.name, queue.spec.parent_queue
    if forest.is_orphan(name):
        text = f"parent queue {parent!r} does not exist; create it, or change spec.parentQueue"
        yield DesiredCondition(names.CONDITION_ORPHAN, True, "ParentNotFound", text)
    else:
        yield DesiredCondition(names.CONDITION_ORPHAN, False, "ParentFound" if parent else "TopLevel")
    if forest.is_cyclic(name):
        text = f"the queue is below itself, through {parent!r}; change spec.parentQueue"
        yield DesiredCondition(names.CONDITION_CYCLIC, True, "ParentCycle", text)
    else:
        yield DesiredCondition(names.CONDITION_CYCLIC, False, "NoCycle")
    over = list(_over_quota(queue, allocated))
    yield DesiredCondition(
        names.CONDITION_OVER_QUOTA, bool(over), "OverQuota" if over else "WithinQuota", "; ".join(over)
    )
    reason, message = _invalid(queue)
    if reason:
        yield DesiredCondition(names.CONDITION_VALID, False, reason, message)
    elif any(
        isinstance(entry, dict) and entry.get("type") == names.CONDITION_VALID
        for entry in (existing.get("conditions") if isinstance(existing.get("conditions"), list) else None) or ()
    ):
        yield DesiredCondition(names.CONDITION_VALID, True, "Mended")


def _over_quota(queue: Queue, allocated: NanoAmounts) -> Iterator[str]:
    """What is over its quota, in words."""
    spec = queue.spec.resources
    if spec is None:
        return
    for name, resource, value, unit in (
        ("cpu", spec.cpu, allocated.get(names.CPU, 0), _NANO // 1000),
        ("memory", spec.memory, allocated.get(names.MEMORY, 0), _NANO * 10**6),
        ("gpu", spec.gpu, gpus_of(allocated), _NANO),
    ):
        # Every negative amount of memory means unlimited; of the others only -1 does (queues:Q-17).
        unlimited = resource.quota < 0 if name == "memory" else resource.quota == names.UNLIMITED
        # Other negative numbers count as 0, as the scheduler reads them.
        quota_nano = max(0.0, resource.quota) * unit
        if not unlimited and value > quota_nano:
            quota = format_amount(name, int(quota_nano))
            yield f"{name}: {format_amount(name, value)} allocated, quota {quota}"


def _invalid(queue: Queue) -> tuple[str, str]:
    """What is invalid in the spec, and what to do; empty when nothing is."""
    spec = queue.spec
    if spec.resources is None:
        return (
            "NoResources",
            "spec.resources is missing, so nothing may run; set quota and limit of gpu, cpu and memory",
        )
    for name, resource in (("gpu", spec.resources.gpu), ("cpu", spec.resources.cpu), ("memory", spec.resources.memory)):
        for field, value in (("quota", resource.quota), ("limit", resource.limit)):
            if value < 0 and value != names.UNLIMITED:
                text = f"spec.resources.{name}.{field} is {value:g}; use a number of 0 or more, or -1 for unlimited"
                return "NegativeNumber", text
        if resource.over_quota_weight < 0:
            text = f"spec.resources.{name}.overQuotaWeight is {resource.over_quota_weight:g}; use 0 or more"
            return "NegativeNumber", text
    for field, duration in (
        ("preemptMinRuntime", spec.preempt_min_runtime),
        ("reclaimMinRuntime", spec.reclaim_min_runtime),
    ):
        try:
            parse_duration(duration or "0")
        except DurationError as error:
            return "InvalidDuration", f"spec.{field}: {error}"
    return "", ""
