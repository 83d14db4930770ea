"""What clusters of tests say about NUMA zones, devices and their claims."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Self

from tests.core.gatheredobjects import GatheredObjects, Raw, timestamp_before


def numa_record(zones: Mapping[str, Mapping[str, str | int]]) -> str:
    """A NUMA placement as annotations spell it: zone -> amounts."""
    listed = [{"zone": zone, "amount": {k: str(v) for k, v in amounts.items()}} for zone, amounts in zones.items()]
    return json.dumps(listed)


def allocation_of(node: str, *devices: str, driver: str = "gpu.example.com", request: str = "r") -> Raw:
    """What a claim has: devices of a node, in a pool called like it unless they say `pool/device`."""
    results = [
        {"request": request, "driver": driver, "pool": pool or node, "device": device}
        for pool, _, device in (each.rpartition("/") for each in devices)
    ]
    found: Raw = {"devices": {"results": results}}
    if node:
        pin = {"key": "metadata.name", "operator": "In", "values": [node]}
        found["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [pin]}]}
    return found


class DeviceObjects(GatheredObjects):
    """Zones of nodes, and devices that claims request."""

    def zones(
        self,
        node: str,
        *zones: Mapping[str, str | int],
        policy: str = "single-numa-node",
        scope: str = "pod",
        available: tuple[Mapping[str, str | int], ...] | None = None,
    ) -> Self:
        """The NUMA zones of a node, zone-0, zone-1, ...: what each may give and, if it differs, what is left of it."""
        left = zones if available is None else available
        return self.add(
            {
                "apiVersion": "topology.node.k8s.io/v1alpha2",
                "kind": "NodeResourceTopology",
                "metadata": {"name": node},
                "attributes": [
                    {"name": "topologyManagerPolicy", "value": policy},
                    {"name": "topologyManagerScope", "value": scope},
                ],
                "zones": [
                    {
                        "name": f"zone-{number}",
                        "type": "Node",
                        "resources": [
                            {"name": name, "allocatable": str(amount), "available": str(left[number].get(name, 0))}
                            for name, amount in zone.items()
                        ],
                    }
                    for number, zone in enumerate(zones)
                ],
            }
        )

    def device_class(self, name: str, *selectors: str, age: float | None = None, **spec: Any) -> Self:
        """A DeviceClass with CEL selectors; `spec` are further fields as the wire spells them."""
        rules = [{"cel": {"expression": text}} for text in selectors]
        meta = {"name": name, "creationTimestamp": self._older(age)}
        return self.add(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "DeviceClass",
                "metadata": meta,
                "spec": {"selectors": rules, **spec},
            }
        )

    def slice(
        self,
        node: str,
        devices: int | list[Raw] = 1,
        *,
        name: str = "",
        driver: str = "gpu.example.com",
        pool: str = "",
        generation: int = 1,
        of: int = 1,
        **spec: Any,
    ) -> Self:
        """A ResourceSlice: devices gpu-0, gpu-1, ... (or these) that one node reaches; `of` is how many slices the pool
        has, `spec` are further fields as the wire spells them."""
        listed = [{"name": f"gpu-{number}"} for number in range(devices)] if isinstance(devices, int) else devices
        where: Raw = {"nodeName": node} if node else {}
        body = {"driver": driver, "pool": {"name": pool or node, "generation": generation, "resourceSliceCount": of}}
        meta = {"name": name or f"{pool or node}-{driver}"}
        return self.add(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": meta,
                "spec": {**body, **where, "devices": listed, **spec},
            }
        )

    def device_claim(
        self,
        name: str,
        *,
        count: int = 1,
        of: str = "gpu",
        requests: list[Raw] | None = None,
        given: tuple[str, ...] = (),
        on: str = "",
        users: tuple[str, ...] = (),
        owner: str = "",
        queue: str | None = None,
        namespace: str = "default",
        deleted: bool = False,
        annotations: Mapping[str, str] | None = None,
        driver: str = "gpu.example.com",
        **devices: Any,
    ) -> Self:
        """A ResourceClaim of `count` devices of the class `of`, or of these requests; it has the devices `given` of the
        node `on` and is reserved for the pods `users`; `owner` is the uid of the pod it was made for."""
        meta: Raw = {"name": name, "namespace": namespace, "uid": name, "annotations": dict(annotations or {})}
        if owner:
            meta["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "uid": owner, "controller": True}]
        if queue is not None:
            meta["labels"] = {"kai.scheduler/queue": queue}
        if deleted:
            meta["deletionTimestamp"] = timestamp_before(10)
        exactly = {"deviceClassName": of, "allocationMode": "ExactCount", "count": count}
        wanted = requests if requests is not None else [{"name": "r", "exactly": exactly}]
        status: Raw = {"reservedFor": [{"resource": "pods", "name": uid, "uid": uid} for uid in users]}
        if given:
            status["allocation"] = allocation_of(on, *given, driver=driver)
        return self.add(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": meta,
                "spec": {"devices": {"requests": wanted, **devices}},
                "status": status,
            }
        )
