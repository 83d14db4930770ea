"""Devices of dynamic resource allocation: what the scheduler chose is written into the claims (gpu:D-12, D-17).

For each claim of the pod the request carries an allocation: it goes into the claim's status together with the pod as a
consumer, under optimistic locking, unless the claim has an allocation already (claims may be shared).  Extended
resources that drivers serve get a claim of their own, owned by the pod, and the pod's status tells the kubelet which
container uses which request of it.

The name of that claim follows from the pod's uid, so that an attempt after a crash finds the one it made.

Undoing removes the pod from the consumers and, where the claim has no other consumer and holds the allocation of this
request, removes that too.

Subtle: allocations are copied as plain documents; the pruned types would lose what newer drivers add.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pykai.api import names
from pykai.api.core import Pod
from pykai.binder.attempt import BindAttempt
from pykai.binder.deviceholders import DeviceHolders
from pykai.binder.lifecycle import BindFailure
from pykai.binder.options import DYNAMIC_RESOURCES
from pykai.kube.client import Client
from pykai.kube.errors import AlreadyExists, Conflict, NotFound
from pykai.kube.resources import PODS, RESOURCE_CLAIMS

#: how often an update that lost a race is tried
_MAX_TRIES = 6
#: the longest name of an object
_MAX_NAME_LENGTH = 253


class DynamicResourcesBinderPlugin:
    """Writes allocations into ResourceClaims."""

    name = DYNAMIC_RESOURCES

    def __init__(self, client: Client, device_holders: DeviceHolders) -> None:
        self._client = client
        self._device_holders = device_holders

    async def pre_bind(self, attempt: BindAttempt) -> None:
        """Allocate and reserve every claim of the pod."""
        spec = attempt.raw_request["spec"]
        for entry in spec.get("resourceClaimAllocations") or ():
            allocation = entry.get("allocation")
            if not allocation:
                raise _failure(attempt, f"no allocation for claim {entry.get('name', '')} in the BindRequest")
            claim = claim_name(attempt.pod, entry.get("name", ""))
            if claim is None:
                raise _failure(attempt, f"no resource claim name found for {entry.get('name', '')}")
            await self._allocate(attempt, claim, allocation)
        extended = spec.get("extendedResourceClaimAllocation")
        if extended:
            await self._allocate_extended(attempt, extended)

    async def rollback(self, attempt: BindAttempt) -> None:
        """Undo what this request allocated."""
        spec = attempt.raw_request["spec"]
        for entry in spec.get("resourceClaimAllocations") or ():
            claim = claim_name(attempt.pod, entry.get("name", ""))
            if claim is not None:
                await self._release(attempt.pod, claim, entry.get("allocation"))
        if spec.get("extendedResourceClaimAllocation"):
            await self._clear_extended(attempt.pod)

    async def _allocate(self, attempt: BindAttempt, name: str, allocation: dict[str, Any]) -> None:
        pod = attempt.pod
        for _ in range(_MAX_TRIES):
            try:
                claim = await self._client.get_raw(RESOURCE_CLAIMS, name, pod.metadata.namespace)
            except NotFound:
                raise _failure(attempt, f"resource claim {pod.metadata.namespace}/{name} not found") from None
            if claim["metadata"].get("deletionTimestamp"):
                raise _failure(attempt, f"resource claim {pod.metadata.namespace}/{name} is being deleted")
            status = claim.get("status") or {}
            current_allocation = status.get("allocation")
            if (
                current_allocation is not None
                and _devices(current_allocation) != _devices(allocation)
                and not _is_usable_from_node(current_allocation, attempt)
            ):
                raise _failure(attempt, f"resource claim {pod.metadata.namespace}/{name} is allocated on other nodes")
            consumers = list(status.get("reservedFor") or ())
            is_reserved = any(consumer.get("uid") == pod.metadata.uid for consumer in consumers)
            if current_allocation is not None and is_reserved:
                return
            if not is_reserved:
                if len(consumers) >= names.CLAIM_MAX_CONSUMERS:
                    most = names.CLAIM_MAX_CONSUMERS
                    text = f"resource claim {pod.metadata.namespace}/{name} has reached its maximum number of consumers"
                    raise _failure(attempt, f"{text} ({most})")
                consumers.append({"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid})
            changed = {
                **status,
                "allocation": allocation if current_allocation is None else current_allocation,
                "reservedFor": consumers,
            }
            if current_allocation is None and (why := await self._device_holders.reserve(claim, allocation)):
                raise _failure(attempt, f"resource claim {pod.metadata.namespace}/{name} cannot be allocated: {why}")
            written = False
            try:
                written = await self._update_status(claim, changed)
            finally:
                if not written:
                    self._device_holders.release(claim["metadata"]["uid"])
            if written:
                return
        raise _failure(attempt, f"resource claim {pod.metadata.namespace}/{name} changes too often")

    async def _release(self, pod: Pod, name: str, allocation: object) -> None:
        for _ in range(_MAX_TRIES):
            try:
                claim = await self._client.get_raw(RESOURCE_CLAIMS, name, pod.metadata.namespace)
            except NotFound:
                return
            status = claim.get("status") or {}
            consumers = status.get("reservedFor") or []
            others = [consumer for consumer in consumers if consumer.get("uid") != pod.metadata.uid]
            if len(others) == len(consumers):
                return
            changed = {key: value for key, value in status.items() if key != "reservedFor"}
            if others:
                changed["reservedFor"] = others
            elif _devices(status.get("allocation")) == _devices(allocation):
                changed.pop("allocation", None)
            if await self._update_status(claim, changed):
                self._device_holders.release(claim["metadata"]["uid"])
                return

    async def _update_status(self, claim: dict[str, Any], status: dict[str, Any]) -> bool:
        try:
            await self._client.update(RESOURCE_CLAIMS, {**claim, "status": status}, subresource="status")
        except Conflict:
            return False
        return True

    async def _allocate_extended(self, attempt: BindAttempt, extended: Mapping[str, Any]) -> None:
        pod = attempt.pod
        if not extended.get("allocation"):
            raise _failure(attempt, "no allocation for the extended resources in the BindRequest")
        name = extended_claim_name(pod)
        expected = _extended_claim(pod, name, extended.get("deviceRequests") or [])
        for _ in range(_MAX_TRIES):
            try:
                await self._client.create(RESOURCE_CLAIMS, expected)
                break
            except AlreadyExists:
                if await self._can_reuse(attempt, name, expected, extended["allocation"]):
                    break
                await self._delete_claim(pod, name)
        await self._allocate(attempt, name, extended["allocation"])
        mappings = extended.get("containerMappings") or []
        claim_status = {"resourceClaimName": name, "requestMappings": list(mappings)}
        await self._client.patch(
            PODS,
            pod.metadata.name,
            {"metadata": {"uid": pod.metadata.uid}, "status": {"extendedResourceClaimStatus": claim_status}},
            pod.metadata.namespace,
            subresource="status",
        )

    async def _can_reuse(self, attempt: BindAttempt, name: str, expected: dict[str, Any], allocation: object) -> bool:
        """Whether the existing claim has the same requests and is not tied to a node chosen earlier.

        One that was not made for this pod is left alone, and the bind fails.
        """
        pod = attempt.pod
        try:
            existing = await self._client.get_raw(RESOURCE_CLAIMS, name, pod.metadata.namespace)
        except NotFound:
            return False
        if not _is_controlled_by(existing, pod):
            text = f"resource claim {pod.metadata.namespace}/{name} was not made for this pod; delete it"
            raise _failure(attempt, text)
        current_allocation = (existing.get("status") or {}).get("allocation")
        if existing["metadata"].get("deletionTimestamp") or (
            current_allocation and _devices(current_allocation) != _devices(allocation)
        ):
            return False
        return _device_requests(existing) == _device_requests(expected)

    async def _clear_extended(self, pod: Pod) -> None:
        await self._delete_claim(pod, extended_claim_name(pod))
        patch = {"metadata": {"uid": pod.metadata.uid}, "status": {"extendedResourceClaimStatus": None}}
        with suppress(NotFound, Conflict):
            await self._client.patch(PODS, pod.metadata.name, patch, pod.metadata.namespace, subresource="status")

    async def _delete_claim(self, pod: Pod, name: str) -> None:
        """Delete the claim of a pod that does not run; the finalizer that protects claims in use is removed first."""
        namespace = pod.metadata.namespace
        try:
            existing = await self._client.get_raw(RESOURCE_CLAIMS, name, namespace)
            if not _is_controlled_by(existing, pod):
                return
            if existing["metadata"].get("finalizers"):
                await self._client.patch(RESOURCE_CLAIMS, name, {"metadata": {"finalizers": None}}, namespace)
            await self._client.delete(RESOURCE_CLAIMS, name, namespace, uid=existing["metadata"]["uid"])
        except (NotFound, Conflict):
            pass


def _is_controlled_by(claim: Mapping[str, Any], pod: Pod) -> bool:
    """Whether the pod controls a claim."""
    owners = claim["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner.get("uid") == pod.metadata.uid for owner in owners)


def claim_name(pod: Pod, entry: str) -> str | None:
    """The claim behind a name inside the pod; None while it has not been generated."""
    for status in pod.status.resource_claim_statuses:
        if status.name == entry:
            return status.resource_claim_name
    for claim in pod.spec.resource_claims:
        if claim.name == entry:
            return claim.resource_claim_name
    return None


def extended_claim_name(pod: Pod) -> str:
    """The claim of a pod's extended resources: looks like a generated name, and is the same each time."""
    letters = "bcdfghjklmnpqrstvwxz2456789"
    number = int.from_bytes(hashlib.sha256(pod.metadata.uid.encode()).digest()[:8])
    suffix = ""
    for _ in range(5):
        number, digit = divmod(number, len(letters))
        suffix += letters[digit]
    base = f"{pod.metadata.name}-extended-resources-"
    return base[: _MAX_NAME_LENGTH - len(suffix)] + suffix


def _extended_claim(pod: Pod, name: str, requests: list[Any]) -> dict[str, Any]:
    return {
        "apiVersion": RESOURCE_CLAIMS.api_version,
        "kind": RESOURCE_CLAIMS.kind,
        "metadata": {
            "name": name,
            "namespace": pod.metadata.namespace,
            "finalizers": [names.DRA_DELETE_PROTECTION_FINALIZER],
            "annotations": {names.EXTENDED_RESOURCE_CLAIM_ANNOTATION: "true"},
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": pod.metadata.name,
                    "uid": pod.metadata.uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {"devices": {"requests": requests}},
    }


def _devices(allocation: object) -> list[tuple[str, str, str, str]]:
    """What makes two allocations the same: the devices and what they serve."""
    devices = allocation.get("devices") if isinstance(allocation, Mapping) else None
    results = devices.get("results") if isinstance(devices, Mapping) else None
    return sorted(
        (r.get("request", ""), r.get("driver", ""), r.get("pool", ""), r.get("device", "")) for r in results or ()
    )


def _device_requests(claim: Mapping[str, Any]) -> list[tuple[str, str, int]]:
    """The requests of a claim; the server may have filled in defaults."""
    requests = claim["spec"].get("devices", {}).get("requests") or ()
    device_requests = []
    for request in requests:
        exactly = request.get("exactly") or {}
        device_requests.append((request.get("name", ""), exactly.get("deviceClassName", ""), exactly.get("count") or 1))
    return sorted(device_requests)


def _is_usable_from_node(allocation: Mapping[str, Any], attempt: BindAttempt) -> bool:
    """Whether an earlier allocation of a claim can be used from the node; node-local devices name theirs."""
    selector = allocation.get("nodeSelector")
    if not selector:
        return True
    terms = selector.get("nodeSelectorTerms") or ()
    fields = [field for term in terms for field in term.get("matchFields") or ()]
    node_names = [
        value for field in fields if field.get("key") == "metadata.name" for value in field.get("values") or ()
    ]
    return not node_names or attempt.node.metadata.name in node_names


def _failure(attempt: BindAttempt, text: str) -> BindFailure:
    node = attempt.node.metadata.name
    message = f"K8sPlugin DynamicResources failed Bind for pod: {attempt.key} and node {node}. error: {text}"
    return BindFailure("claims", message)
