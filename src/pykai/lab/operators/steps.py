"""What operators decide with: the view of one workload, and the step that follows from it.

Planning is pure: `plan(workload, seen)` gets the object and what exists of it and returns a `Step`: what to create, to
delete and to patch, and the status as it should be. `operator` carries steps out and calls again when something
changed, so a plan needs no memory and a step that is done twice does no harm: names are fixed.

Subtle: the status belongs to what was seen, before the step. What the step changes shows in the next one.

Statements: sim:operators, sim:operators-bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from pykai.api.meta import Wire
from pykai.api.unstructured import JsonMapping, JsonObject
from pykai.api.workloads import MachinePod, WorkloadMeta
from pykai.kube.resources import PODS, Resource
from pykai.lab.controllers.controller import owner_reference
from pykai.lab.controllers.pods import is_finished, is_terminating, pod_from_template
from pykai.lab.timestamps import to_seconds

T = TypeVar("T", bound="OperatedWorkload")

#: A tenant may ask for any number; more than this is refused instead of filling the memory of the lab.
MOST_PODS: Final = 10_000


class OperatedWorkload(Wire):
    """A workload of an operator; each kind adds its spec."""

    metadata: WorkloadMeta = msgspec.field(default_factory=WorkloadMeta)
    status: JsonObject = msgspec.field(default_factory=dict)


class RefusedWorkload(Exception):
    """A workload that no operator can run; the text says what to change."""


class Creation(NamedTuple):
    """An object to create."""

    resource: Resource
    document: JsonObject


class Deletion(NamedTuple):
    """An object to delete."""

    resource: Resource
    obj: Wire


class Patching(NamedTuple):
    """A merge patch of an object."""

    resource: Resource
    obj: Wire
    patch: JsonObject


@dataclass(frozen=True, slots=True)
class Step:
    """What to do for one workload, and its status."""

    #: the whole status; only what differs is written
    status: JsonMapping
    create: Sequence[Creation] = ()
    delete: Sequence[Deletion] = ()
    patch: Sequence[Patching] = ()
    #: cluster seconds until it must be looked at again, if nothing changes before
    wait_s: float | None = None


@dataclass(frozen=True, slots=True)
class ObservedWorkload:
    """What exists of a workload."""

    now: str
    now_s: float
    #: its pods, and those that these own
    pods: Sequence[MachinePod] = ()
    #: pods that have gone since the last step
    vanished: Sequence[MachinePod] = ()
    #: other objects that it controls
    owned: Mapping[Resource, Sequence[Any]] = field(default_factory=dict)
    #: any object of a kind that the operator reads, by its key
    find: Callable[[Resource, str], Any] = lambda _resource, _key: None


@dataclass(frozen=True, slots=True)
class OperatedKind(Generic[T]):
    """One kind, and how its operator decides."""

    resource: Resource
    into: type[T]
    plan: Callable[[T, ObservedWorkload], Step]
    #: kinds of its dependents beside pods
    owns: tuple[tuple[Resource, type[Wire]], ...] = ()
    #: kinds that it looks up by name
    reads: tuple[tuple[Resource, type[Wire]], ...] = ()


class WantedPod(NamedTuple):
    """A pod that a workload should have."""

    name: str
    template: JsonObject
    labels: Mapping[str, str]
    #: fields that replace those of the template's spec
    spec: Mapping[str, Any] = {}
    annotations: Mapping[str, str] = {}


def converge_pods(
    owner: OperatedWorkload | MachinePod,
    resource: Resource,
    wanted: Iterable[WantedPod],
    existing: Iterable[MachinePod],
) -> tuple[list[Creation], list[Deletion]]:
    """What to create and to delete until exactly these pods exist; one in deletion holds its name until it is gone."""
    missing = {pod.name: pod for pod in wanted}
    surplus = []
    for pod in existing:
        if missing.pop(pod.metadata.name, None) is None:
            surplus.append(pod)
    reference = owner_reference(owner, resource)
    created = [
        pod_from_template(
            pod.template,
            pod.name,
            owner.metadata.namespace,
            reference,
            labels=pod.labels,
            annotations=pod.annotations,
            spec=pod.spec,
        )
        for pod in missing.values()
    ]
    return [Creation(PODS, document) for document in created], delete_pods(surplus)


def delete_pods(pods: Iterable[MachinePod]) -> list[Deletion]:
    """Deletions of those that are not being deleted yet."""
    return [Deletion(PODS, pod) for pod in pods if not is_terminating(pod)]


def unfinished(pods: Iterable[MachinePod]) -> list[MachinePod]:
    """Those whose containers may still run."""
    return [pod for pod in pods if not is_finished(pod)]


def checked_count(count: int | None, path: str, default: int = 1) -> int:
    """A number of pods as a tenant wrote it; raises `RefusedWorkload`."""
    value = default if count is None else count
    if not 0 <= value <= MOST_PODS:
        raise RefusedWorkload(f"{path}: {value} is not a number from 0 to {MOST_PODS}")
    return value


def condition(
    conditions: Sequence[JsonMapping], kind: str, reason: str, message: str, now: str, *, holds: bool = True
) -> list[JsonMapping]:
    """The conditions with this one; its time stays as it is while its status does."""
    status = "True" if holds else "False"
    known = next((each for each in conditions if each.get("type") == kind), None)
    if known is not None and known.get("status") == status and known.get("reason") == reason:
        return list(conditions)
    if known is None and not holds:
        return list(conditions)
    changed = known is None or known.get("status") != status
    made = {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": now if changed or known is None else known.get("lastTransitionTime", now),
    }
    return [*(each for each in conditions if each.get("type") != kind), made]


def holding(conditions: Iterable[JsonMapping], kind: str) -> JsonMapping | None:
    """The condition, if it is True."""
    return next((each for each in conditions if each.get("type") == kind and each.get("status") == "True"), None)


def conditions_of(status: JsonMapping) -> list[JsonMapping]:
    """The conditions in a status; others may have written anything there."""
    found = status.get("conditions")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def seconds_left(since: object, duration_s: int, now_s: float) -> float:
    """The cluster seconds until a duration is over; 0 if it is."""
    began_s = to_seconds(since) if isinstance(since, str) else None
    return max(0.0, (now_s if began_s is None else began_s) + duration_s - now_s)


def merge_difference(old: JsonMapping, new: JsonMapping) -> JsonObject:
    """The merge patch that makes `new` of `old`; empty if they are equal."""
    patch: JsonObject = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            if difference := merge_difference(before, value):
                patch[key] = difference
        elif before != value or key not in old:
            patch[key] = value
    return patch
