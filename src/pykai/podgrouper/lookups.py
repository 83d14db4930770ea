"""What groupers may look up, answered from caches; see `metadata.Readers`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pykai.api import names
from pykai.api.core import Namespace, Pod, PriorityClass
from pykai.api.keys import object_key
from pykai.api.scheduling import PodGroup
from pykai.kube.store import Store
from pykai.podgrouper.gangreader import GangReader
from pykai.podgrouper.kinds import GrouperTable, grouper_for
from pykai.podgrouper.metadata import (
    POD_LOOKUPS,
    Grouper,
    GroupingSettings,
    GroupVersionKind,
    KindDefaults,
    KubernetesGang,
    ObjectName,
    ObjectNotRead,
)
from pykai.podgrouper.origins import origin_keys

#: index of pods by the group of another API that they name
BY_ORIGIN: Final = "podgrouper-origin"


def index_pods(pods: Store[Pod], settings: GroupingSettings) -> None:
    """Index pods by the labels that groupers look them up by, and by what other APIs say about them."""
    for keys in POD_LOOKUPS:
        pods.index(_index_name(keys), _label_values(keys))
    if settings.workload_api or settings.kueue_pod_groups:
        pods.index(BY_ORIGIN, lambda pod: origin_keys(pod, settings))


@dataclass(frozen=True, slots=True)
class Lookups:
    """The readers for one call of one grouper."""

    groupers: Sequence[GrouperTable]
    classes: Store[PriorityClass]
    groups: Store[PodGroup]
    labelled_pods: Store[Pod]
    defaults: Mapping[str, KindDefaults]
    namespaces: Store[Namespace]
    gangs: GangReader
    #: other objects, as far as they have been read for this call; None for one that does not exist
    objects: dict[ObjectName, Mapping[str, Any] | None] = field(default_factory=dict)

    def priority_class_exists(self, name: str) -> bool:
        """See `metadata.Readers`."""
        return name in self.classes

    def kind_defaults(self) -> Mapping[str, KindDefaults]:
        """See `metadata.Readers`."""
        return self.defaults

    def default_queue(self, namespace: str) -> str:
        """See `metadata.Readers`."""
        found = self.namespaces.get(namespace)
        return "" if found is None else found.metadata.annotations.get(names.DEFAULT_QUEUE_ANNOTATION, "").strip()

    def pod_group(self, namespace: str, name: str) -> PodGroup | None:
        """See `metadata.Readers`."""
        return self.groups.get(object_key(namespace, name))

    def pods(self, namespace: str, labels: Mapping[str, str]) -> Collection[Pod]:
        """See `metadata.Readers`."""
        keys = tuple(sorted(labels))
        return self.labelled_pods.by_index(_index_name(keys), _index_value(namespace, [labels[key] for key in keys]))

    def object(self, which: ObjectName) -> Mapping[str, Any] | None:
        """See `metadata.Readers`."""
        if which not in self.objects:
            raise ObjectNotRead(which)
        return self.objects[which]

    def grouper(self, kind: GroupVersionKind) -> Grouper:
        """See `metadata.Readers`."""
        return grouper_for(self.groupers, kind)

    def gang(self, kind: str, namespace: str, name: str) -> KubernetesGang | None:
        """See `metadata.Readers`."""
        return self.gangs.gang(kind, object_key(namespace, name))

    def serves_gangs(self, kind: str) -> bool:
        """See `metadata.Readers`."""
        return self.gangs.serves(kind)

    def count_of_origin(self, key: str) -> int:
        """See `metadata.Readers`."""
        return self.labelled_pods.count_by_index(BY_ORIGIN, key)

    def topologies_with_level(self, label: str) -> Collection[str]:
        """See `metadata.Readers`."""
        return self.gangs.topologies_with_level(label)


def _label_values(keys: tuple[str, ...]) -> Callable[[Pod], tuple[str, ...]]:
    ordered = tuple(sorted(keys))

    def values_of(pod: Pod) -> tuple[str, ...]:
        labels = pod.metadata.labels
        values = [labels[key] for key in ordered if key in labels]
        return (_index_value(pod.metadata.namespace, values),) if len(values) == len(ordered) else ()

    return values_of


def _index_name(keys: tuple[str, ...]) -> str:
    return f"podgrouper-labels {' '.join(sorted(keys))}"


def _index_value(namespace: str, values: list[str]) -> str:
    # Neither names nor label values hold a slash.
    return "/".join((namespace, *values))
