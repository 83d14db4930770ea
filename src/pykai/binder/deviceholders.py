"""Which claim holds which device: the last check before devices are written into a claim.

The API server lets two claims hold one device; the allocator has to prevent it.  The scheduler does, but a BindRequest
may be forged and may name any device.  So before an allocation is written it is checked against what other claims have,
and against what its own claim asks for:

- no device that another claim has, and none twice, unless the claim asks for admin access, which may share devices of
  others;
- for each request at most as many devices as it asks for.

Subtle: the cache shows an allocation a moment after it was written, and many attempts run side by side.  Devices that
were reserved here count until the cache shows them.  A claim that the cache still shows as a holder may have released
its device, so it is read from the server before a bind is refused for it.

Statements: trust:claims.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pykai.api.resource import AllocationResult, ResourceClaim
from pykai.kube.client import Client
from pykai.kube.errors import NotFound
from pykai.kube.resources import RESOURCE_CLAIMS
from pykai.kube.store import Change, Store

#: index of the claims' store: the devices that a claim has
DEVICE_INDEX = "binder-devices"
_ALL = "All"


class DeviceHolders:
    """Knows which claim holds which device."""

    def __init__(self, client: Client, claims: Store[ResourceClaim]) -> None:
        self._client = client
        self._claims = claims
        #: device -> uid of the claim that it was reserved for here and that the cache does not show with it yet
        self._reserved: dict[str, str] = {}
        claims.index(DEVICE_INDEX, lambda claim: _held_devices(claim.status.allocation))
        claims.subscribe(self._claim_changed)

    async def reserve(self, claim: Mapping[str, Any], allocation: Mapping[str, Any]) -> str:
        """Reserve these devices for a claim; if it must not have them, reserve nothing and return why."""
        if why := _over_allocation(claim, allocation):
            return why
        uid, devices = claim["metadata"]["uid"], list(_exclusive_devices(claim, allocation))
        if duplicates := [device for device, times in Counter(devices).items() if times > 1]:
            return f"device {duplicates[0]} is given twice"
        stale: set[tuple[str, str]] = set()
        for device in devices:
            for other in self._other_holders(device, uid):
                meta = other.metadata
                if await self._still_holds(other, device):
                    return f"device {device} belongs to resource claim {meta.namespace}/{meta.name}"
                stale.add((device, meta.uid))
        for device in devices:
            new_holders = [
                other for other in self._other_holders(device, uid) if (device, other.metadata.uid) not in stale
            ]
            if new_holders or self._reserved.get(device, uid) != uid:
                return f"device {device} was just given to another resource claim"
        self._reserved.update(dict.fromkeys(devices, uid))
        return ""

    def release(self, uid: str) -> None:
        """An allocation made here was not written, or was undone."""
        for device in [device for device, holder in self._reserved.items() if holder == uid]:
            del self._reserved[device]

    def _other_holders(self, device: str, uid: str) -> list[ResourceClaim]:
        return [claim for claim in self._claims.by_index(DEVICE_INDEX, device) if claim.metadata.uid != uid]

    async def _still_holds(self, claim: ResourceClaim, device: str) -> bool:
        meta = claim.metadata
        try:
            live = await self._client.get(RESOURCE_CLAIMS, meta.name, meta.namespace, into=ResourceClaim)
        except NotFound:
            return False
        return live.metadata.uid == meta.uid and device in _held_devices(live.status.allocation)

    def _claim_changed(self, change: Change[ResourceClaim]) -> None:
        claim = change.new
        if self._reserved and (claim is None or claim.status.allocation is not None):
            settled_claim = change.old if claim is None else claim
            if settled_claim is not None:
                self.release(settled_claim.metadata.uid)


def _held_devices(allocation: AllocationResult | None) -> list[str]:
    """The devices that an allocation keeps from others."""
    if allocation is None:
        return []
    return [
        _device_id(each.driver, each.pool, each.device) for each in allocation.devices.results if not each.admin_access
    ]


def _results(allocation: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    return (allocation.get("devices") or {}).get("results") or ()


def _exclusive_devices(claim: Mapping[str, Any], allocation: Mapping[str, Any]) -> Iterator[str]:
    """The devices of an allocation that no other claim may have; admin access is read from the claim, not from here."""
    admin = {name for name, asked in _device_requests(claim) if asked.get("adminAccess")}
    for result in _results(allocation):
        if not (result.get("adminAccess") and result.get("request") in admin):
            yield _device_id(result.get("driver", ""), result.get("pool", ""), result.get("device", ""))


def _over_allocation(claim: Mapping[str, Any], allocation: Mapping[str, Any]) -> str:
    """Why an allocation has more than its claim requests, "" if it does not."""
    device_requests = dict(_device_requests(claim))
    for name, count in Counter(str(result.get("request", "")) for result in _results(allocation)).items():
        request = device_requests.get(name)
        if request is None:
            return f"request {name} is given {count} devices and does not exist"
        most = request.get("count") or 1
        if request.get("allocationMode") != _ALL and count > most:
            return f"request {name} asks for {most} devices and is given {count}"
    return ""


def _device_requests(claim: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The requests of a claim, under the names that results use for them."""
    for request in (claim["spec"].get("devices") or {}).get("requests") or ():
        name = request.get("name", "")
        for choice in request.get("firstAvailable") or ():
            yield f"{name}/{choice.get('name', '')}", choice
        yield name, request.get("exactly") or request


def _device_id(driver: str, pool: str, device: str) -> str:
    return f"{driver}/{pool}/{device}"
