"""Validation of Queues (queues:Q-22 to Q-26, Q-39); pure.

`others` are the existing queues, by name.  Refused are a queue without resources, invalid numbers and durations, lists
of namespaces that cannot be read, a queue that is its own ancestor, and the deletion of a queue whose pods, or those of
a queue below it, are still there.
Everything that may be intended is a warning: a resource that is left out, a parent that does not exist yet (children
are often created first), quotas that exceed the parent's (with `quotas`), a deletion that leaves children behind.

Subtle: an invalid queue must stay writable as long as its spec is not touched (a label, a finalizer), so rules that KAI
does not have apply to changed specs, or changed annotations, only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

from pykai.api import names
from pykai.api.decode import DecodeError, decode_as
from pykai.api.duration import DurationError, parse_duration
from pykai.api.scheduling import Queue, QueueResource, QueueResources
from pykai.core.model.queueaccess import QueueAccessError, access_texts, parse_queue_access
from pykai.webhooks.fields import object_at, texts_at
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
    """The verdict about a queue that is created (`old` None) or updated.

    `parent_has_workloads`: PodGroups name its parent as their queue.
    """
    try:
        queue = decode_as(Queue, dict(document))
    except DecodeError as error:
        return ValidationResult((str(error),))
    if queue.spec.resources is None:
        return ValidationResult((_NO_RESOURCES,), (_NO_RESOURCES,))
    name, parent = queue.metadata.name, queue.spec.parent_queue
    errors = [] if _same_spec(document, old) else list(_spec_errors(queue, others))
    errors += _access_errors(document, old)
    warnings = [*_missing_resource_warnings(document), *_weight_warnings(queue.spec.resources)]
    if parent and parent not in others and parent != name:
        warnings.append(f"parent queue {parent} does not exist; the queue is not used until it is created")
    siblings = [each for each in others.values() if each.spec.parent_queue == parent and each.metadata.name != name]
    if parent and parent_has_workloads and not siblings:
        warnings.append(f"parent queue {parent} has workloads of its own; only queues without children run workloads")
    if quotas and parent in others:
        above = others[parent].spec.resources
        if above is None:
            warnings.append(f"parent queue {parent} has no resources defined")
        else:
            warnings += _parent_quota_warnings(queue.spec.resources, above, parent, siblings)
    if quotas and old is not None:
        below = [each for each in others.values() if each.spec.parent_queue == name and each.metadata.name != name]
        warnings += _child_quota_warnings(queue.spec.resources, sorted(below, key=lambda each: each.metadata.name))
    return ValidationResult(tuple(errors), tuple(warnings))


def validate_deletion(
    name: str, others: QueuesByName, *, live_pod: str = "", children_refused: bool = False
) -> ValidationResult:
    """The result for a queue that is deleted; `live_pod` is a pod of it, or of a queue below it (queues:Q-23, Q-39 a).

    Children without pods are refused with `children_refused` only: a subtree is often deleted from the top.
    """
    if live_pod:
        return ValidationResult((f"cannot delete queue {name}: pod {live_pod} uses it or a queue below it",))
    children = sorted(key for key, each in others.items() if each.spec.parent_queue == name and key != name)
    if not children:
        return ValidationResult()
    listed = f"it has child queues [{' '.join(children)}]"
    if children_refused:
        return ValidationResult((f"cannot delete queue {name}: {listed}",))
    return ValidationResult((), (f"queue {name} is deleted: {listed}; these are not used until it is created again",))


def parent_of(document: Mapping[str, Any]) -> str:
    """The parent that a queue names; "" if it names none, or no text."""
    parent = object_at(document, "spec").get("parentQueue")
    return parent if isinstance(parent, str) else ""


def subtree(name: str, others: QueuesByName) -> set[str]:
    """A queue and all queues below it."""
    children: dict[str, list[str]] = {}
    for key, each in others.items():
        children.setdefault(each.spec.parent_queue, []).append(key)
    found, open_names = {name}, [name]
    while open_names:
        below = [child for child in children.get(open_names.pop(), ()) if child not in found]
        found.update(below)
        open_names += below
    return found


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
        weight = resource.over_quota_weight
        if weight < 0 and weight != names.UNLIMITED:
            yield f"spec.resources.{field}.overQuotaWeight: {weight:g} is negative; use 0 or more"
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


def _access_errors(document: Mapping[str, Any], old: Mapping[str, Any] | None) -> Iterator[str]:
    """A list of namespaces that cannot be read would close the queue (access:broken)."""
    annotations = texts_at(object_at(document, "metadata"), "annotations")
    before = texts_at(object_at(old or {}, "metadata"), "annotations")
    if access_texts(annotations) == access_texts(before):
        return
    try:
        parse_queue_access(annotations)
    except QueueAccessError as error:
        yield f"metadata.annotations[{error.annotation}]: {error}"


def _missing_resource_warnings(document: Mapping[str, Any]) -> Iterator[str]:
    """A resource that is left out has a limit of 0 (queues:Q-15, Q-39 d)."""
    spec = document.get("spec")
    resources = spec.get("resources") if isinstance(spec, Mapping) else None
    for field, called, _ in _RESOURCES:
        if isinstance(resources, Mapping) and not resources.get(field):
            yield f"spec.resources.{field} is missing, so the {called} limit is 0; set limit to -1 for unlimited"


def _weight_warnings(resources: QueueResources) -> Iterator[str]:
    for field, _, _ in _RESOURCES:
        resource: QueueResource = getattr(resources, field)
        if resource.over_quota_weight == names.UNLIMITED:
            yield f"spec.resources.{field}.overQuotaWeight: -1 gives no share of the surplus; use 1 or more"


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
