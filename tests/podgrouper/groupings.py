"""Builders for workloads and pods, and the service's steps as one function without a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykai.api.core import Pod
from pykai.api.decode import decode_as
from pykai.api.meta import ObjectMeta, OwnerReference
from pykai.dev.groupingcases import RecordedReaders
from pykai.podgrouper.grouping import pod_metadata
from pykai.podgrouper.metadata import GroupingSettings, Metadata, Owner

Raw = dict[str, Any]
Labels = Mapping[str, str]


def owner(
    kind: str,
    name: str = "w",
    uid: str = "u",
    *,
    api: str = "batch/v1",
    labels: Labels | None = None,
    annotations: Labels | None = None,
    by: Owner | None = None,
    **body: Any,
) -> Owner:
    """A workload, owned by another, with the fields of its body such as `spec`."""
    above = (by.reference(),) if by is not None else ()
    meta = ObjectMeta(
        name=name,
        namespace="ns",
        uid=uid,
        labels=dict(labels or {}),
        annotations=dict(annotations or {}),
        owner_references=above,
    )
    return Owner(api, kind, meta, body)


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


def grouped(
    one: Pod, *owners: Owner, readers: RecordedReaders | None = None, settings: GroupingSettings | None = None
) -> Metadata:
    """The grouper's result for a pod and its owners, nearest first."""
    top = owners[-1] if owners else Owner.of_pod(one)
    return pod_metadata(top, one, owners, settings or GroupingSettings(), readers or RecordedReaders())
