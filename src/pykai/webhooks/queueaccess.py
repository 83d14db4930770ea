"""Pods and PodGroups that name a queue which their namespace may not use (access:admission).

The scheduler decides: it schedules no such group, however it came about.  Admission says the same earlier, where a user
sees it at once: when a pod with the label of a queue is created, or a PodGroup with it.  A pod whose queue only the pod
grouper can tell, from its owners, is admitted.

What is read is cached and may lag a moment, so where something is not known yet the object is admitted.  Namespaces are
watched once a selector needs their labels, and not before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from pykai.api import names
from pykai.api.core import Namespace
from pykai.api.scheduling import Queue
from pykai.core.cluster.queueaccess import find_denial
from pykai.core.model.queueaccess import QueueAccess, read_queue_access
from pykai.core.report.sentences import access_denied_text
from pykai.kube.resources import NAMESPACES, QUEUES
from pykai.kube.runtime import Runtime
from pykai.kube.store import Store
from pykai.webhooks.fields import object_at, texts_at

#: seconds for a cache to be filled, less than an API server waits
_SYNC_LIMIT_S: Final = 2.0


def queue_of_pod(
    pod: Mapping[str, Any], queue_label: str = names.QUEUE_LABEL, node_pool_label: str = names.NODE_POOL_LABEL
) -> str:
    """The queue that a pod names itself; "" if only its owners can tell (workloads:DF-5)."""
    metadata = object_at(pod, "metadata")
    labels = texts_at(metadata, "labels")
    queue = labels.get(queue_label)
    if queue is not None:
        return queue
    project = labels.get(names.PROJECT_LABEL, "")
    if not project or metadata.get("ownerReferences"):
        return ""
    pool = labels.get(node_pool_label)
    return project if pool is None else f"{project}-{pool}"


def queue_of_group(group: Mapping[str, Any]) -> str:
    """The queue that a PodGroup names."""
    queue = object_at(group, "spec").get("queue")
    return queue if isinstance(queue, str) else ""


class QueueAccessCheck:
    """Reads queues, and namespaces where a list selects them."""

    def __init__(
        self, runtime: Runtime, queue_label: str = names.QUEUE_LABEL, node_pool_label: str = names.NODE_POOL_LABEL
    ) -> None:
        self._labels = queue_label, node_pool_label
        self._caches = runtime.caches
        self._queues = runtime.caches.store(QUEUES, Queue)
        self._namespaces: Store[Namespace] | None = None

    def queue_of_pod(self, pod: Mapping[str, Any]) -> str:
        """The queue that a pod names itself, by the labels of this installation."""
        return queue_of_pod(pod, *self._labels)

    async def problem(self, namespace: str, queue: str, old_queue: str = "") -> str:
        """Why a namespace may not use a queue that an object names from now on; "" if it may."""
        if not queue or queue == old_queue or not await _is_filled(self._queues):
            return ""
        denial = find_denial(namespace, queue, self._queues.get, self._access_of, None)
        if denial is None:
            return ""
        refusing = self._access_of(denial.refused_by)
        if refusing is not None and refusing.selector is not None:
            if self._namespaces is None:
                self._namespaces = self._caches.store(NAMESPACES, Namespace, metadata_only=True)
            found = self._namespaces.get(namespace) if await _is_filled(self._namespaces) else None
            if found is None:
                return ""
            denial = find_denial(namespace, queue, self._queues.get, self._access_of, found.metadata.labels)
        return "" if denial is None else access_denied_text(denial)

    def _access_of(self, name: str) -> QueueAccess | None:
        queue = self._queues.get(name)
        return None if queue is None else read_queue_access(queue.metadata.annotations)


async def _is_filled(store: Store[Any]) -> bool:
    try:
        async with asyncio.timeout(_SYNC_LIMIT_S):
            await store.synced.wait()
    except TimeoutError:
        return False
    return True
