"""Input and result of a grouper.

A *grouper* is a pure function `(top, pod, owners, settings, readers) -> Metadata`.  `top` is the workload at the top of
the pod's chain of owners, or the pod itself; `owners` is that chain, nearest first, `top` last, empty for a pod without
owners.  `Readers` looks up the few other objects that groupers need.  The result describes the PodGroup and the pod's
place in it; `writes` turns it into writes.

Subtle: groupers cannot wait.  A grouper that needs an unread object calls `readers.object`, which raises
`ObjectNotRead`; the service reads the object and calls the grouper again.  So groupers stay functions, and reading
stays in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.meta import ObjectMeta, OwnerReference
from pykai.api.scheduling import PodGroup, SubGroup, TopologyConstraint
from pykai.api.workloadapi import KubernetesPodGroup, KubernetesWorkload
from pykai.core.model.problems import Problem

#: API group, version (`*` for any), kind
GroupVersionKind = tuple[str, str, str]


class GroupingError(Exception):
    """The pod cannot be grouped; the text says why, and becomes an event on the pod."""


class ObjectName(NamedTuple):
    """Which object is meant."""

    api_version: str
    kind: str
    namespace: str
    name: str


class ObjectNotRead(Exception):
    """A grouper needs this object, which has not been read yet."""

    def __init__(self, which: ObjectName) -> None:
        self.object_name = which
        super().__init__(f"{which.kind} {which.namespace}/{which.name} is not read yet")


@dataclass(frozen=True, slots=True)
class Owner:
    """A workload: its metadata, and the whole object where it was read in full."""

    api_version: str
    kind: str
    metadata: ObjectMeta
    #: the whole object; empty where its grouper reads the metadata alone
    body: Mapping[str, Any] = field(default_factory=dict)

    @property
    def group(self) -> str:
        """The API group, "" for the core group."""
        return self.api_version.partition("/")[0] if "/" in self.api_version else ""

    @property
    def version(self) -> str:
        """The version without the group."""
        return self.api_version.rpartition("/")[2]

    @property
    def group_version_kind(self) -> GroupVersionKind:
        """What its grouper is looked up by."""
        return self.group, self.version, self.kind

    @classmethod
    def of_pod(cls, pod: Pod) -> Owner:
        """The pod as a workload of its own."""
        return cls("v1", "Pod", pod.metadata)

    def document(self) -> dict[str, Any]:
        """The whole object with the metadata of this workload, which may hold more than the object's own."""
        return {**self.body, "kind": self.kind, "metadata": msgspec.to_builtins(self.metadata)}

    def reference(self) -> OwnerReference:
        """How a PodGroup names it."""
        meta = self.metadata
        return OwnerReference(api_version=self.api_version, kind=self.kind, name=meta.name, uid=meta.uid)


@dataclass(frozen=True, slots=True)
class GroupingSettings:
    """Keys and switches that groupers read."""

    queue_label: str = names.QUEUE_LABEL
    node_pool_label: str = names.NODE_POOL_LABEL
    search_legacy_groups: bool = True
    knative_gang_schedule: bool = True
    #: gangs of Kubernetes (scheduling.k8s.io) are groups
    workload_api: bool = False
    #: pods of a pod group of Kueue are one group
    kueue_pod_groups: bool = False
    #: the priority class that workloads name for Kueue is theirs here too
    kueue_priority_classes: bool = False


#: Sets of labels by which groupers look up pods; pods are indexed by each.
POD_LOOKUPS: Final = (
    (names.KUBEFLOW_JOB_NAME_LABEL, names.KUBEFLOW_ROLE_LABEL),
    (names.KNATIVE_REVISION_LABEL,),
)


class KubernetesGang(NamedTuple):
    """A Workload or a PodGroup of scheduling.k8s.io, and the version that the server has."""

    api_version: str
    content: KubernetesWorkload | KubernetesPodGroup


class KindDefaults(NamedTuple):
    """The entry of a kind in the defaults ConfigMap; empty text for nothing."""

    priority_class: str = ""
    preemptibility: str = ""


class Readers(Protocol):
    """Lookups of other objects for a grouper."""

    def priority_class_exists(self, name: str) -> bool:
        """Whether there is a PriorityClass of this name."""
        ...

    def kind_defaults(self) -> Mapping[str, KindDefaults]:
        """`Kind.group`, or `Kind`, to the defaults for workloads that set nothing themselves."""
        ...

    def default_queue(self, namespace: str) -> str:
        """The queue of workloads in this namespace that name none, "" if the namespace does not say."""
        ...

    def pod_group(self, namespace: str, name: str) -> PodGroup | None:
        """The PodGroup, if there is one."""
        ...

    def pods(self, namespace: str, labels: Mapping[str, str]) -> Collection[Pod]:
        """Pods of ours with these labels, terminating ones included; `POD_LOOKUPS` must list the keys."""
        ...

    def object(self, which: ObjectName) -> Mapping[str, Any] | None:
        """Any other object, None if it does not exist; raises `ObjectNotRead` while it has not been read."""
        ...

    def grouper(self, kind: GroupVersionKind) -> Grouper:
        """The grouper of another kind, for kinds that leave grouping to what they own."""
        ...

    def gang(self, kind: str, namespace: str, name: str) -> KubernetesGang | None:
        """The Workload or PodGroup of scheduling.k8s.io, None if it does not exist; raises `GroupingError`."""
        ...

    def serves_gangs(self, kind: str) -> bool:
        """Whether the server has such gangs at all."""
        ...

    def count_of_origin(self, key: str) -> int:
        """How many pods of ours have this key, ended ones included; see `origins.origin_keys`."""
        ...

    def topologies_with_level(self, label: str) -> Collection[str]:
        """The names of the Topologies that have this node label as a level."""
        ...


@dataclass(frozen=True, slots=True)
class Metadata:
    """A desired PodGroup, and the place of one pod in it."""

    namespace: str
    name: str
    owner: OwnerReference
    queue: str
    priority_class: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    #: "" leaves it to the priority
    preemptibility: str = ""
    preemption_delay_ns: int | None = None
    staleness_grace_ns: int | None = None
    min_available: int = 1
    #: set for a group of subgroups; `min_available` is then not written
    min_sub_group: int | None = None
    topology: TopologyConstraint = field(default_factory=TopologyConstraint)
    sub_groups: tuple[SubGroup, ...] = ()
    #: the subgroup of this pod, "" for none
    pod_sub_group: str = ""
    #: requested values that could not be used
    problems: tuple[Problem, ...] = ()


Grouper = Callable[[Owner, Pod, tuple[Owner, ...], GroupingSettings, Readers], Metadata]
