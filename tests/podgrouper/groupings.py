"""Builders for workloads and pods, and the service's steps as one function without a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pykai.api.core import Pod
from pykai.api.decode import decode_as
from pykai.api.meta import ObjectMeta, OwnerReference
from pykai.api.scheduling import PodGroup
from pykai.podgrouper.kinds import grouper_for
from pykai.podgrouper.kinds.table import built_in_groupers
from pykai.podgrouper.metadata import GroupingSettings, KindDefaults, Metadata, ObjectName, ObjectNotRead, Owner

Raw = dict[str, Any]
Labels = Mapping[str, str]
CLASSES = frozenset(("train", "build-preemptible", "build", "inference"))


def owner(
    kind: str,
    name: str = "w",
    uid: str = "u",
    *,
    api: str = "batch/v1",
    labels: Labels | None = None,
    annotations: Labels | None = None,
    by: Owner | None = None,
) -> Owner:
    """A workload, owned by another."""
    above = (by.reference(),) if by is not None else ()
    meta = ObjectMeta(
        name=name,
        namespace="ns",
        uid=uid,
        labels=dict(labels or {}),
        annotations=dict(annotations or {}),
        owner_references=above,
    )
    return Owner(api, kind, meta)


def pod(
    name: str = "p",
    uid: str = "pu",
    *,
    by: Owner | None = None,
    labels: Labels | None = None,
    annotations: Labels | None = None,
    priority_class: str = "",
) -> Pod:
    """A pod of ours, owned by a workload."""
    references: tuple[OwnerReference, ...] = (by.reference(),) if by is not None else ()
    meta = ObjectMeta(
        name=name,
        namespace="ns",
        uid=uid,
        labels=dict(labels or {}),
        annotations=dict(annotations or {}),
        owner_references=references,
    )
    raw = {"spec": {"schedulerName": "kai-scheduler", "priorityClassName": priority_class}}
    return _with_meta(decode_as(Pod, raw), meta)


def _with_meta(base_pod: Pod, meta: ObjectMeta) -> Pod:
    return Pod(metadata=meta, spec=base_pod.spec, status=base_pod.status)


@dataclass
class FakeReaders:
    """What a grouper may look up."""

    classes: frozenset[str] = CLASSES
    defaults: Mapping[str, KindDefaults] = field(default_factory=dict)
    groups: dict[str, PodGroup] = field(default_factory=dict)
    objects: dict[ObjectName, Mapping[str, Any] | None] = field(default_factory=dict)

    def priority_class_exists(self, name: str) -> bool:
        return name in self.classes

    def kind_defaults(self) -> Mapping[str, KindDefaults]:
        return self.defaults

    def pod_group(self, namespace: str, name: str) -> PodGroup | None:
        return self.groups.get(f"{namespace}/{name}")

    def object(self, which: ObjectName) -> Mapping[str, Any] | None:
        if which not in self.objects:
            raise ObjectNotRead(which)
        return self.objects[which]


def grouped(
    one: Pod, *owners: Owner, readers: FakeReaders | None = None, settings: GroupingSettings | None = None
) -> Metadata:
    """The grouper's result for a pod and its owners, nearest first."""
    top = owners[-1] if owners else Owner.of_pod(one)
    grouper = grouper_for(built_in_groupers(), (top.group, top.version, top.kind))
    return grouper(top, one, tuple(owners), settings or GroupingSettings(), readers or FakeReaders())
