"""The objects that the binder caches."""

from __future__ import annotations

from typing import NamedTuple

from pykai.api.core import Node, Pod
from pykai.api.resource import ResourceClaim
from pykai.api.scheduling import BindRequest
from pykai.api.storage import PersistentVolume, PersistentVolumeClaim
from pykai.kube import resources
from pykai.kube.caches import Caches
from pykai.kube.store import Store

#: pods that failed hold nothing; the scheduler reads the same pods, so they are watched once
LIVE_PODS_SELECTOR = "status.phase!=Failed"


class BinderStores(NamedTuple):
    """One store a kind."""

    requests: Store[BindRequest]
    pods: Store[Pod]
    failed_reservations: Store[Pod]
    nodes: Store[Node]
    volume_claims: Store[PersistentVolumeClaim]
    volumes: Store[PersistentVolume]
    device_claims: Store[ResourceClaim]


def open_stores(caches: Caches, reservation_namespace: str) -> BinderStores:
    """The stores, filled once the caches run."""
    return BinderStores(
        caches.store(resources.BIND_REQUESTS, BindRequest),
        caches.store(resources.PODS, Pod, field_selector=LIVE_PODS_SELECTOR),
        caches.store(resources.PODS, Pod, namespace=reservation_namespace, field_selector="status.phase=Failed"),
        caches.store(resources.NODES, Node),
        caches.store(resources.PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim),
        caches.store(resources.PERSISTENT_VOLUMES, PersistentVolume),
        caches.store(resources.RESOURCE_CLAIMS, ResourceClaim, optional=True),
    )
