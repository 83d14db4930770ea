"""Writes that would protect running pods from queues which want their quota back (protect:change).

Work that is not preemptible was within quota when it was placed.  A tenant who makes work so after it was placed, by a
change of its PodGroup or by moving pods into another one, would keep what was placed beyond the quota.

Only a change that could protect pods costs requests; those go to the API server, because a cache may lag.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykai.api import names
from pykai.api.core import PriorityClass
from pykai.api.decode import DecodeError, decode_as
from pykai.api.scheduling import PodGroup
from pykai.core.model.protected import may_protect, newly_protected, protection_of
from pykai.kube.errors import NotFound
from pykai.kube.heldpods import FINISHED, held_pods
from pykai.kube.resources import POD_GROUPS, PRIORITY_CLASSES
from pykai.kube.runtime import Runtime
from pykai.webhooks.fields import object_at, texts_at


class ProtectionCheck:
    """Reads priority classes, PodGroups and pods."""

    def __init__(self, runtime: Runtime) -> None:
        self._client = runtime.client
        self._classes = runtime.caches.store(PRIORITY_CLASSES, PriorityClass)

    async def group_problem(
        self, namespace: str, document: Mapping[str, Any], old_document: Mapping[str, Any] | None
    ) -> str:
        """Why a PodGroup may not be written so; "" if it may.  Raises `KubeError`."""
        try:
            group = decode_as(PodGroup, dict(document))
            old = None if old_document is None else decode_as(PodGroup, dict(old_document))
        except DecodeError:
            # The new one is refused for that; an old one that nothing could read must be repaired.
            return ""
        classes = await self._priority_classes()
        if not may_protect(old, group, classes):
            return ""
        name = group.metadata.name
        pods = newly_protected(old, group, await held_pods(self._client, namespace, name), classes)
        if not pods:
            return ""
        return (
            f"PodGroup {namespace}/{name}: this would protect {pods} pods that have a node already. They may have been "
            "placed beyond the quota of their queue, and other queues could not take it back. Make the change while no "
            "pod of the group has a node"
        )

    async def pod_problem(self, namespace: str, document: Mapping[str, Any], old_document: Mapping[str, Any]) -> str:
        """Why a pod may not join a PodGroup, or a subgroup of it; "" if it may.  Raises `KubeError`."""
        place, old_place = _place(document), _place(old_document)
        if place == old_place or not _has_node(old_document):
            return ""
        group, old = await self._group(namespace, place[0]), await self._group(namespace, old_place[0])
        if group is None:
            return ""
        classes = await self._priority_classes()
        protection = protection_of(group, classes)
        if protection == names.PREEMPTIBLE:
            return ""
        if old is not None and old.spec.queue == group.spec.queue:
            if protection_of(old, classes) == names.NON_PREEMPTIBLE:
                return ""
        return (
            f"pod {namespace}/{object_at(document, 'metadata').get('name')}: it has a node already, so it cannot "
            f"join {protection} PodGroup {place[0]}. It may have been placed beyond the quota of its queue, and other "
            "queues could not take it back"
        )

    async def _group(self, namespace: str, name: str) -> PodGroup | None:
        try:
            return await self._client.get(POD_GROUPS, name, namespace, into=PodGroup) if name else None
        except (DecodeError, NotFound):
            return None

    async def _priority_classes(self) -> dict[str, PriorityClass]:
        await self._classes.synced.wait()
        return {each.metadata.name: each for each in self._classes.values()}


def _place(pod: Mapping[str, Any]) -> tuple[str, str]:
    """The PodGroup and the subgroup that a pod names."""
    meta = object_at(pod, "metadata")
    group = texts_at(meta, "annotations").get(names.POD_GROUP_ANNOTATION, "")
    return group, texts_at(meta, "labels").get(names.SUBGROUP_LABEL) or names.DEFAULT_SUBGROUP


def _has_node(pod: Mapping[str, Any]) -> bool:
    return bool(object_at(pod, "spec").get("nodeName")) and object_at(pod, "status").get("phase") not in FINISHED
