"""What the validation of a queue reads of the cluster: other queues, and the pods that use a queue.

Queues and PodGroups are cached.  A cache may lag, so a deletion is refused only on what the API server itself says: a
pod that has not finished, its PodGroup, and the queues as they are now.  Of pods only metadata is asked for.

A namespace that may not use a queue must not keep it either: its pods count only if they have a node, since access may
have been withdrawn (access:deletion).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import groupby

from pykai.api import names
from pykai.api.decode import DecodeError
from pykai.api.scheduling import PodGroup, Queue
from pykai.kube.decoding import PartialObjectMetadata, ResourceDecoder
from pykai.kube.errors import NotFound
from pykai.kube.resources import POD_GROUPS, PODS, QUEUES
from pykai.kube.runtime import Runtime
from pykai.webhooks.queueaccess import QueueAccessCheck
from pykai.webhooks.queues import subtree

_BY_QUEUE = "queue"
_GATED = "gated"


class QueueLookups:
    """Reads queues and their pods."""

    def __init__(
        self, runtime: Runtime, scheduler_name: str = names.SCHEDULER_NAME, access: QueueAccessCheck | None = None
    ) -> None:
        """With `access`, pods of namespaces that may not use their queue keep it only if they have a node."""
        self._client = runtime.client
        self._access = access
        self._queues = runtime.caches.store(QUEUES, Queue)
        self._groups = runtime.caches.store(POD_GROUPS, PodGroup)
        self._queues.index(_GATED, lambda queue: ("",) if queue.spec.admission_gating else ())
        self._groups.index(_BY_QUEUE, lambda group: (group.spec.queue,))
        self._live = f"spec.schedulerName={scheduler_name},status.phase!=Succeeded,status.phase!=Failed"
        self._pod_decoder = ResourceDecoder(PODS, PartialObjectMetadata)

    def is_synced(self) -> bool:
        """Whether the caches are filled."""
        return self._queues.synced.is_set() and self._groups.synced.is_set()

    async def synced(self) -> None:
        """Wait until the caches are filled."""
        await self._queues.synced.wait()
        await self._groups.synced.wait()

    def queues(self) -> Mapping[str, Queue]:
        """All queues, by name."""
        return {queue.metadata.name: queue for queue in self._queues.values()}

    def is_gated(self, queue: str) -> bool:
        """Whether new pods of a queue get its gate (queues:Q-405); "" = of a pod whose queue is not known yet.

        In doubt they do, because the scheduler can open the gate, and only an API server can add it.
        """
        if not self._queues.synced.is_set():
            return True
        if not queue:
            return bool(self._queues.by_index(_GATED, ""))
        found = self._queues.get(queue)
        return found is None or found.spec.admission_gating

    def has_groups(self, queue: str) -> bool:
        """Whether PodGroups name this queue."""
        return bool(queue and self._groups.by_index(_BY_QUEUE, queue))

    async def live_pod(self, queue: str) -> str:
        """`namespace/name` of a pod that uses the queue or one below it and has not finished; "" if there is none."""
        below = subtree(queue, self.queues())
        found = sorted(
            (group.metadata.namespace, group.metadata.name, each)
            for each in below
            for group in self._groups.by_index(_BY_QUEUE, each)
        )
        for namespace, rows in groupby(found, key=lambda row: row[0]):
            allowed, denied = set[str](), set[str]()
            for _, name, used in rows:
                (denied if await self._is_denied(namespace, used) else allowed).add(name)
            for groups, selector in ((allowed, self._live), (denied, f"{self._live},spec.nodeName!=")):
                pod = await self._live_pod_in(namespace, groups, queue, selector) if groups else ""
                if pod:
                    return f"{namespace}/{pod}"
        return ""

    async def _is_denied(self, namespace: str, queue: str) -> bool:
        return self._access is not None and bool(await self._access.problem(namespace, queue))

    async def _live_pod_in(self, namespace: str, groups: Collection[str], queue: str, selector: str) -> str:
        confirmed: dict[str, bool] = {}
        async for page in self._client.pages(PODS, namespace=namespace, field_selector=selector, metadata_only=True):
            for raw in page.items:
                try:
                    metadata = self._pod_decoder.decode(raw).metadata
                except DecodeError:
                    continue
                group = metadata.annotations.get(names.POD_GROUP_ANNOTATION, "")
                if group not in groups:
                    continue
                if group not in confirmed:
                    confirmed[group] = await self._uses(namespace, group, queue)
                if confirmed[group]:
                    return metadata.name
        return ""

    async def _uses(self, namespace: str, group: str, queue: str) -> bool:
        """Whether a PodGroup uses the queue or one below it now; nothing here comes from a cache."""
        try:
            found = await self._client.get(POD_GROUPS, group, namespace, into=PodGroup)
        except (NotFound, DecodeError):
            return False
        listing = await self._client.list(QUEUES, into=Queue)
        return found.spec.queue in subtree(queue, {each.metadata.name: each for each in listing.items})
