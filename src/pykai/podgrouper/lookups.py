"""What groupers may look up, answered from caches; see `metadata.Readers`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pykai.api.core import PriorityClass
from pykai.api.keys import object_key
from pykai.api.scheduling import PodGroup
from pykai.kube.store import Store
from pykai.podgrouper.metadata import KindDefaults, ObjectName, ObjectNotRead


@dataclass(frozen=True, slots=True)
class Lookups:
    """The readers for one call of one grouper."""

    classes: Store[PriorityClass]
    groups: Store[PodGroup]
    defaults: Mapping[str, KindDefaults]
    #: other objects, as far as they have been read for this call; None for one that does not exist
    objects: dict[ObjectName, Mapping[str, Any] | None] = field(default_factory=dict)

    def priority_class_exists(self, name: str) -> bool:
        """See `metadata.Readers`."""
        return name in self.classes

    def kind_defaults(self) -> Mapping[str, KindDefaults]:
        """See `metadata.Readers`."""
        return self.defaults

    def pod_group(self, namespace: str, name: str) -> PodGroup | None:
        """See `metadata.Readers`."""
        return self.groups.get(object_key(namespace, name))

    def object(self, which: ObjectName) -> Mapping[str, Any] | None:
        """See `metadata.Readers`."""
        if which not in self.objects:
            raise ObjectNotRead(which)
        return self.objects[which]
