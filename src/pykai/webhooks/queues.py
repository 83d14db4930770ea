"""Validation of Queues (queues:Q-22 to Q-26, Q-39); pure.

`others` are the existing queues, by name.  Refused are a queue without resources, invalid numbers and durations, a
queue that is its own ancestor, and the deletion of a queue with children.  Everything that may be intended is a
warning: a resource that is left out, a parent that does not exist yet, quotas that exceed the parent's (with `quotas`).

Subtle: an invalid queue must stay writable as long as its spec is not touched (a label, a finalizer), so rules that KAI
does not have apply to changed specs only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

from pykai.api import names
from pykai.api.decode import DecodeError, decode_as
from pykai.api.duration import DurationError, parse_duration
from pykai.api.scheduling import Queue, QueueResource, QueueResources
from pykai.webhooks.validationresult import ValidationResult

QueuesByName = Mapping[str, Queue]
_NO_RESOURCES = "resources must be specified"
#: Resource, how messages call it, decimals of its numbers.
_RESOURCES = (("cpu", "CPU", 0), ("gpu", "GPU", 2), ("memory", "Memory", 0))


def validate(
    document: Mapping[str, Any],
    old: Mapping[str, Any] | None,
    others: QueuesByName,
    *,
    quotas: bool = False,
    parent_has_workloads: bool = False,
) -> ValidationResult:
    """The verdict about a queue that is created (`old` None) or updated; `busy`: groups run in its parent directly."""
    try:
        queue = decode_as(Queue, dict(document))
    except DecodeError as error:
        return ValidationResult((str(error),))
    if queue.spec.resources is None:
        return ValidationResult((_NO_RESOURCES,), (_NO_RESOURCES,))
    name, parent = queue.metadata.name, queue.spec.parent_queue
    errors = [] if _same_spec(document, old) else list(_spec_errors(queue, others))
    warnings = list(_missing_resource_warnings(document))
    if parent and parent not in others and parent != name:
        if quotas:
            errors.append(f"failed to get parent queue {parent}: it does not exist")
        else:
            warnings.append(f"parent queue {parent} does not exist; the queue is not used until it is created")
    siblings = [each for each in others.values() if each.spec.parent_queue == parent and each.metadata.name != name]
    if parent and parent_has_workloads and not siblings:
        warnings.append(f"parent queue {parent} has workloads of its own; only queues without children run workloads")
    if quotas and parent in others:
        above = others[parent].spec.resources
        if above is None:
            errors.append(f"parent queue {parent} has no resources defined")
        else:
            warnings += _parent_quota_warnings(queue.spec.resources, above, parent, siblings)
    if quotas and old is not None:
        below = [each for each in others.values() if each.spec.parent_queue == name and each.metadata.name != name]
        warnings += _child_quota_warnings(queue.spec.resources, sorted(below, key=lambda each: each.metadata.name))
    return ValidationResult(tuple(errors), tuple(warnings))


def validate_deletion(document: Mapping[str, Any], others: QueuesByName) -> ValidationResult:
    """The result for a queue that is deleted (queues:Q-23)."""
    metadata, status = document.get("metadata"), document.get("status")
    name = str(metadata.get("name", "")) if isinstance(metadata, Mapping) else ""
    listed = status.get("childQueues") if isinstance(status, Mapping) else None
    # Existing queues count; the status may lag and is used only where nothing else is known.
    children = {key for key, each in others.items() if each.spec.parent_queue == name and key != name}
    children |= {child for child in listed if child in others or not others} if isinstance(listed, list) else set()
    if not children:
        return ValidationResult()
    return ValidationResult((f"cannot delete queue {name}: it has child queues [{' '.join(sorted(children))}]",))


def _same_spec(document: Mapping[str, Any], old: Mapping[str, Any] | None) -> bool:
    return old is not None and document.get("spec") == old.get("spec")


def _spec_errors(queue: Queue, others: QueuesByName) -> Iterator[str]:
    """Invalid values (queues:Q-39 b, c)."""
    spec = queue.spec
    assert spec.resources is not None
    for field, _, _ in _RESOURCES:
        resource: QueueResource = getattr(spec.resources, field)
        for number, value in (("quota", resource.quota), ("limit", resource.limit)):
            if value < 0 and value != names.UNLIMITED:
                yield f"spec.resources.{field}.{number}: {value:g} is negative; use -1 for unlimited"
        if resource.over_quota_weight < 0:
            yield f"spec.resources.{field}.overQuotaWeight: {resource.over_quota_weight:g} is negative; use 0 or more"
    for field, text in (
        ("preemptMinRuntime", spec.preempt_min_runtime),
        ("reclaimMinRuntime", spec.reclaim_min_runtime),
    ):
        try:
            parse_duration(text or "0")
        except DurationError as error:
            yield f"spec.{field}: {error}"
    seen = {queue.metadata.name}
    above = spec.parent_queue
    while above and above not in seen and above in others:
        seen.add(above)
        above = others[above].spec.parent_queue
    if above and above == queue.metadata.name:
        yield f"spec.parentQueue: queue {queue.metadata.name} would be below itself, through {spec.parent_queue}"


def _missing_resource_warnings(document: Mapping[str, Any]) -> Iterator[str]:
    """A resource that is left out has a limit of 0 (queues:Q-15, Q-39 d)."""
    spec = document.get("spec")
    resources = spec.get("resources") if isinstance(spec, Mapping) else None
    for field, called, _ in _RESOURCES:
        if isinstance(resources, Mapping) and not resources.get(field):
            yield f"spec.resources.{field} is missing, so the {called} limit is 0; set limit to -1 for unlimited"


# Warnings only: children may be created before their parents (operations:E-4).
def _parent_quota_warnings(
    own: QueueResources, above: QueueResources, parent: str, siblings: list[Queue]
) -> Iterator[str]:
    for field, called, decimals in _RESOURCES:
        quota, over = _quota(own, field), _quota(above, field)
        if quota > over:
            yield (
                f"child queue {called} quota ({_format_quota(quota, decimals)}) exceeds "
                f"parent queue {parent} {called} quota ({_format_quota(over, decimals)})"
            )
        total = quota + sum(_quota(each.spec.resources, field) for each in siblings)
        if total > over:
            yield (
                f"total children {called} quota ({_format_quota(total, decimals)}) exceeds "
                f"parent queue {parent} {called} quota ({_format_quota(over, decimals)})"
            )


def _child_quota_warnings(own: QueueResources, children: list[Queue]) -> Iterator[str]:
    for field, called, decimals in _RESOURCES:
        quota = _quota(own, field)
        for child in children:
            below = _quota(child.spec.resources, field)
            if below > quota:
                yield (
                    f"child queue {child.metadata.name} {called} quota ({_format_quota(below, decimals)}) exceeds "
                    f"parent {called} quota ({_format_quota(quota, decimals)})"
                )
        total = sum(_quota(child.spec.resources, field) for child in children)
        if total > quota:
            yield (
                f"total children {called} quota ({_format_quota(total, decimals)}) exceeds parent {called} quota "
                f"({_format_quota(quota, decimals)})"
            )


def _quota(resources: QueueResources | None, field: str) -> float:
    """Quota of a resource; unlimited is infinite (queues:Q-39 e)."""
    quota: float = getattr(resources, field).quota if resources is not None else 0.0
    return inf if quota == names.UNLIMITED else quota


def _format_quota(quota: float, decimals: int) -> str:
    return "unlimited" if quota == inf else f"{quota:.{decimals}f}"
