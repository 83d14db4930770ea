"""Recorded work of KAI's pod grouper: owners and pods as they were, PodGroups and writes on pods as they came out.

A line of a file is a grouping case when it has `owners`, `pods` and `expect`.  `group_case` groups the pods of a case
in their order, and again while something changes, as the service does when it sees its own writes.  All steps are those
of the service (climb to the top owner, grouper, object or patch); answers come from the case.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.decode import DecodeError, decode_as
from pykai.api.scheduling import PodGroup
from pykai.dev.cases import CaseError, Raw, read_lines
from pykai.kube.clock import Clock
from pykai.kube.errors import NotFound
from pykai.lab.apiserver.patches import merge_patch
from pykai.podgrouper.grouping import needs_grouping, opts_out, pod_metadata
from pykai.podgrouper.kinds import grouper_for
from pykai.podgrouper.kinds.table import built_in_groupers
from pykai.podgrouper.metadata import (
    POD_LOOKUPS,
    Grouper,
    GroupingError,
    GroupingSettings,
    GroupVersionKind,
    KindDefaults,
    KubernetesGang,
    Metadata,
    ObjectName,
    ObjectNotRead,
    Owner,
)
from pykai.podgrouper.origins import origin_keys
from pykai.podgrouper.owners import OwnerCache, find_owners
from pykai.podgrouper.writes import group_patch, new_group, pod_patch

#: PriorityClasses of the recorded cluster.
RECORDED_CLASSES: Final = frozenset(("train", "build-preemptible", "build", "inference"))
#: What a grouping case expects, and may be asked for alone.
GROUPING_FIELDS: Final = ("podGroups", "pods")
#: Times that all pods are grouped; more would mean that groups never settle.
_MAX_ROUNDS: Final = 5


class GroupingCase(msgspec.Struct, frozen=True):
    """One recorded case."""

    id: str
    #: objects above the pods, the top owner first
    owners: list[Raw]
    pods: list[Raw]
    #: `podGroups` and `pods` afterwards
    expect: Raw

    def __post_init__(self) -> None:
        for field_name, objects in (("owners", self.owners), ("pods", self.pods)):
            for index, raw in enumerate(objects):
                meta = raw.get("metadata")
                if not isinstance(meta, dict) or not meta.get("name"):
                    raise ValueError(f"{field_name}[{index}]: expected an object with metadata.name")


_DECODER = msgspec.json.Decoder(GroupingCase)


def is_grouping_file(path: Path) -> bool:
    """Whether the first case of a file is a grouping case."""
    try:
        with path.open("rb") as lines:
            first = next((line for line in lines if line.strip()), b"null")
        decoded = msgspec.json.decode(first)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return False
    return isinstance(decoded, dict) and decoded.keys() >= {"owners", "pods", "expect"}


def read_grouping_cases(path: Path) -> Iterator[GroupingCase]:
    """The cases of one file; raises `CaseError` at a line that is none."""
    return read_lines(path, _DECODER)


@dataclass
class RecordedReaders:
    """`metadata.Readers` that answer from plain values."""

    classes: frozenset[str] = RECORDED_CLASSES
    defaults: Mapping[str, KindDefaults] = field(default_factory=dict)
    #: by namespace
    default_queues: Mapping[str, str] = field(default_factory=dict)
    #: by namespace/name
    groups: dict[str, PodGroup] = field(default_factory=dict)
    cluster_pods: Collection[Pod] = ()
    objects: dict[ObjectName, Mapping[str, Any] | None] = field(default_factory=dict)
    groupers: Mapping[GroupVersionKind, Grouper] = field(default_factory=built_in_groupers)
    #: gangs of Kubernetes by kind/namespace/name, and the kinds that the server has
    gangs: Mapping[str, KubernetesGang] = field(default_factory=dict)
    gang_kinds: Collection[str] = ()
    #: name -> node labels of its levels
    topologies: Mapping[str, Collection[str]] = field(default_factory=dict)

    def priority_class_exists(self, name: str) -> bool:
        """See `metadata.Readers`."""
        return name in self.classes

    def default_queue(self, namespace: str) -> str:
        """See `metadata.Readers`."""
        return self.default_queues.get(namespace, "")

    def kind_defaults(self) -> Mapping[str, KindDefaults]:
        """See `metadata.Readers`."""
        return self.defaults

    def pod_group(self, namespace: str, name: str) -> PodGroup | None:
        """See `metadata.Readers`."""
        return self.groups.get(f"{namespace}/{name}")

    def pods(self, namespace: str, labels: Mapping[str, str]) -> Collection[Pod]:
        """See `metadata.Readers`."""
        if frozenset(labels) not in map(frozenset, POD_LOOKUPS):
            raise KeyError(f"pods are not indexed by {', '.join(labels)}")
        return [
            pod
            for pod in self.cluster_pods
            if pod.metadata.namespace == namespace and labels.items() <= pod.metadata.labels.items()
        ]

    def object(self, which: ObjectName) -> Mapping[str, Any] | None:
        """See `metadata.Readers`."""
        if which not in self.objects:
            raise ObjectNotRead(which)
        return self.objects[which]

    def grouper(self, kind: GroupVersionKind) -> Grouper:
        """See `metadata.Readers`."""
        return grouper_for((self.groupers,), kind)

    def gang(self, kind: str, namespace: str, name: str) -> KubernetesGang | None:
        """See `metadata.Readers`."""
        return self.gangs.get(f"{kind}/{namespace}/{name}")

    def serves_gangs(self, kind: str) -> bool:
        """See `metadata.Readers`."""
        return kind in self.gang_kinds

    def count_of_origin(self, key: str) -> int:
        """See `metadata.Readers`."""
        everything = GroupingSettings(workload_api=True, kueue_pod_groups=True)
        return sum(key in origin_keys(pod, everything) for pod in self.cluster_pods)

    def topologies_with_level(self, label: str) -> Collection[str]:
        """See `metadata.Readers`."""
        return [name for name, labels in self.topologies.items() if label in labels]


class _GroupedCase:
    """The objects of a case, changed by what is written."""

    def __init__(self, case: GroupingCase) -> None:
        self._owners = {_object_name(raw): raw for raw in case.owners}
        # A case says the phase of a pod beside its spec.
        self.pods: dict[str, Raw] = {_key(raw): {**raw, "status": {"phase": raw.get("phase")}} for raw in case.pods}
        self.groups: dict[str, Raw] = {}
        self._settings = GroupingSettings()

    async def settle(self) -> None:
        """Group all pods until nothing changes."""
        for _ in range(_MAX_ROUNDS):
            if not [key for key in self.pods if await self._group(key)]:
                return
        raise CaseError(f"groups still change after {_MAX_ROUNDS} rounds")

    async def _group(self, key: str) -> bool:
        """Whether grouping this pod wrote anything."""
        pod = decode_as(Pod, self.pods[key])
        if not needs_grouping(pod, names.SCHEDULER_NAME):
            return False
        readers = RecordedReaders(
            groups={name: decode_as(PodGroup, raw) for name, raw in self.groups.items()},
            cluster_pods=[decode_as(Pod, raw) for raw in self.pods.values()],
        )
        try:
            top, owners = await find_owners(pod, lambda _: None, self._fetch, OwnerCache(Clock(), 60.0))
            meta = None if opts_out(owners) else self._metadata(top, pod, owners, readers)
        except GroupingError:
            return False
        return meta is not None and self._write(key, pod, meta, readers.groups)

    def _metadata(self, top: Owner, pod: Pod, owners: tuple[Owner, ...], readers: RecordedReaders) -> Metadata:
        while True:
            try:
                return pod_metadata(top, pod, owners, self._settings, readers)
            except ObjectNotRead as wanted:
                readers.objects[wanted.object_name] = self._owners.get(wanted.object_name)

    def _write(self, key: str, pod: Pod, meta: Metadata, groups: Mapping[str, PodGroup]) -> bool:
        group_key = f"{meta.namespace}/{meta.name}"
        existing = groups.get(group_key)
        of_group = new_group(meta) if existing is None else group_patch(existing, meta, self._settings)
        if of_group is not None:
            self.groups[group_key] = merge_patch(self.groups.get(group_key, {}), of_group)
        of_pod = pod_patch(pod, meta)
        if of_pod is not None:
            self.pods[key] = merge_patch(self.pods[key], of_pod)
        return of_group is not None or of_pod is not None

    async def _fetch(self, which: ObjectName) -> Mapping[str, Any]:
        if which not in self._owners:
            raise NotFound(404)
        return dict(self._owners[which])


def group_case(case: GroupingCase) -> Raw:
    """What becomes of a case, in the terms of `expect`; raises `CaseError` when groups never settle."""
    grouped = _GroupedCase(case)
    asyncio.run(grouped.settle())
    return outcome_of(grouped.groups.values(), grouped.pods.values())


def outcome_of(groups: Iterable[Raw], pods: Iterable[Raw]) -> Raw:
    """Stored PodGroups and pods in the terms of `expect`."""
    kept = ("name", "namespace", "labels", "annotations", "ownerReferences")
    trimmed = [
        {"metadata": {key: each["metadata"][key] for key in kept if key in each["metadata"]}, "spec": each["spec"]}
        for each in groups
    ]
    return {
        "podGroups": sorted(trimmed, key=lambda group: str(group["metadata"]["name"])),
        "pods": {pod["metadata"]["name"]: _written(pod) for pod in pods},
    }


def _written(pod: Raw) -> Raw:
    labels, annotations = (pod["metadata"].get(field_name) or {} for field_name in ("labels", "annotations"))
    written = {names.POD_GROUP_ANNOTATION: annotations.get(names.POD_GROUP_ANNOTATION)}
    if names.SUBGROUP_LABEL in labels:
        written[names.SUBGROUP_LABEL] = labels[names.SUBGROUP_LABEL]
    return written


def grouping_differences(expect: Raw, outcome: Raw, fields: Collection[str] | None = None) -> list[str]:
    """One line for each PodGroup and pod that is not as recorded, byte for byte."""
    found: list[str] = []
    if fields is None or "podGroups" in fields:
        recorded, now = (
            {str(group["metadata"]["name"]): group for group in each["podGroups"]} for each in (expect, outcome)
        )
        found += _compare("PodGroup", recorded, now)
    if fields is None or "pods" in fields:
        found += _compare("pod", expect["pods"], outcome["pods"])
    return found


def check_grouping_case(case: GroupingCase, fields: Collection[str] | None = None) -> list[str]:
    """How the outcome of a case differs from the recorded one; a case that cannot be run differs, too."""
    try:
        return grouping_differences(case.expect, group_case(case), fields)
    except (CaseError, DecodeError, GroupingError) as error:
        return [str(error)]


def _compare(what: str, recorded: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted({*recorded, *now}):
        if _bytes(recorded.get(name)) != _bytes(now.get(name)):
            yield f"{what} {name}: {_bytes(now.get(name))}, expected {_bytes(recorded.get(name))}"


def _bytes(value: Any) -> str:
    return "none" if value is None else json.dumps(value, sort_keys=True)


def _key(raw: Raw) -> str:
    return f"{raw['metadata'].get('namespace', '')}/{raw['metadata']['name']}"


def _object_name(raw: Raw) -> ObjectName:
    meta = raw["metadata"]
    return ObjectName(
        str(raw.get("apiVersion", "")), str(raw.get("kind", "")), meta.get("namespace", ""), str(meta["name"])
    )
