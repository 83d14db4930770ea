"""The BindRequests of a cluster: placements on their way from the scheduler to the binder (cycle:SNP-6 to SNP-8).

A request counts for its pod until the binder gives up on it, its node is gone, or another pod takes the name.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.keys import object_key
from pykai.api.meta import ObjectMeta
from pykai.api.scheduling import BindRequest


class BindRequests:
    """All requests, by pod and by node."""

    def __init__(self) -> None:
        self._requests: dict[str, BindRequest] = {}
        #: pod key -> requests that name it
        self._by_pod: dict[str, set[str]] = {}
        #: node -> requests to bind pods to it
        self._by_node: dict[str, set[str]] = {}
        self._failed: set[str] = set()

    def apply(self, request: BindRequest) -> set[str]:
        """Add or replace a request; returns the keys of the affected pods."""
        key = object_key(request.metadata.namespace, request.metadata.name)
        affected_pods = {self.forget(key), _pod_key(request)}
        self._requests[key] = request
        self._by_pod.setdefault(_pod_key(request), set()).add(key)
        self._by_node.setdefault(request.spec.selected_node, set()).add(key)
        if _has_failed(request):
            self._failed.add(key)
        return affected_pods

    def forget(self, key: str) -> str:
        """Remove a request; returns the key of its pod, "" if there was no such request."""
        old = self._requests.pop(key, None)
        if old is None:
            return ""
        self._failed.discard(key)
        for index, name in ((self._by_pod, _pod_key(old)), (self._by_node, old.spec.selected_node)):
            index[name].discard(key)
            if not index[name]:
                del index[name]
        return _pod_key(old)

    def pods_binding_to(self, node: str) -> set[str]:
        """Keys of pods that are being bound to a node."""
        return {_pod_key(self._requests[key]) for key in self._by_node.get(node, ())}

    def effective(self, key: str, pod: Pod, nodes: Container[str]) -> BindRequest | None:
        """The request that counts for this pod (cycle:SNP-6, SNP-7; gpu:B-4 compares the owner's uid).

        It has the name of the pod (gpu:B-1); where several requests name the pod, that one goes first.
        """
        request_keys = self._by_pod.get(key)
        if not request_keys:
            return None
        for request_key in sorted(request_keys, key=lambda own: (own != key, own)):
            request = self._requests[request_key]
            owners = [owner.uid for owner in request.metadata.owner_references if owner.kind == "Pod" and owner.uid]
            belongs_to_pod = not owners or pod.metadata.uid in owners
            if belongs_to_pod and request.spec.selected_node in nodes and request_key not in self._failed:
                return request
        return None

    def stale(self, nodes: Container[str], covers: Callable[[ObjectMeta], bool]) -> list[str]:
        """Keys of requests to delete: failed for good, or for a node that left this shard (cycle:SNP-8)."""
        stale_keys = [key for key in self._failed if self._requests[key].spec.selected_node in nodes]
        for node, keys in self._by_node.items():
            if node not in nodes:
                stale_keys.extend(key for key in keys if covers(self._requests[key].metadata))
        return sorted(stale_keys)


def _pod_key(request: BindRequest) -> str:
    return object_key(request.metadata.namespace, request.spec.pod_name)


def _has_failed(request: BindRequest) -> bool:
    """Whether the binder has given up on a request (cycle:SNP-7)."""
    limit = request.spec.backoff_limit
    return request.status.phase == names.BIND_FAILED and (limit is None or request.status.failed_attempts >= limit)
