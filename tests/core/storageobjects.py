"""What clusters of tests say about storage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from tests.core.gatheredobjects import GatheredObjects, Raw, timestamp_before


class StorageObjects(GatheredObjects):
    """Classes, volumes, claims and drivers."""

    def storage_class(
        self,
        name: str = "fast",
        *,
        provisioner: str = "kubernetes.io/no-provisioner",
        waits: bool = True,
        zones: tuple[str, ...] = (),
    ) -> Self:
        """A StorageClass, of existing volumes unless it has a provisioner; `zones` where it may provision."""
        terms = [{"matchLabelExpressions": [{"key": "zone", "values": list(zones)}]}] if zones else []
        return self.add(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": name},
                "provisioner": provisioner,
                "volumeBindingMode": "WaitForFirstConsumer" if waits else "Immediate",
                "allowedTopologies": terms,
            }
        )

    def volume(
        self,
        name: str,
        *,
        size: str | int = "10Gi",
        on: str | tuple[str, ...] = (),
        zone: str = "",
        of: str | None = "fast",
        claim: str = "",
        claim_uid: str = "",
        phase: str | None = None,
        modes: tuple[str, ...] = ("ReadWriteOnce",),
        labels: Mapping[str, str] | None = None,
        driver: str = "",
        deleted: bool = False,
        namespace: str = "default",
        **spec: Any,
    ) -> Self:
        """A PersistentVolume of class `of` that the nodes `on` reach (or those of a zone, or all), kept for or bound to
        `claim`; `spec` are further fields as the wire spells them."""
        meta: Raw = {"name": name, "labels": dict(labels or {})}
        if deleted:
            meta["deletionTimestamp"] = timestamp_before(10)
        body: Raw = {"capacity": {"storage": size}, "accessModes": list(modes), "storageClassName": of or "", **spec}
        nodes = (on,) if isinstance(on, str) else on
        if nodes or zone:
            key, values = ("kubernetes.io/hostname", list(nodes)) if nodes else ("zone", [zone])
            term = {"matchExpressions": [{"key": key, "operator": "In", "values": values}]}
            body["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
        if claim:
            body["claimRef"] = {"name": claim, "namespace": namespace, "uid": claim_uid}
        if driver:
            body["csi"] = {"driver": driver, "volumeHandle": name}
        status = {"phase": phase or ("Bound" if claim else "Available")}
        return self.add(
            {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": body, "status": status}
        )

    def claim(
        self,
        name: str,
        *,
        size: str | int = "5Gi",
        of: str | None = "fast",
        bound_to: str = "",
        selected_node: str = "",
        phase: str | None = None,
        modes: tuple[str, ...] = ("ReadWriteOnce",),
        deleted: bool = False,
        owner: str = "",
        annotations: Mapping[str, str] | None = None,
        namespace: str = "default",
        uid: str = "",
        **spec: Any,
    ) -> Self:
        """A PersistentVolumeClaim of class `of`, bound to a volume or waiting; `owner` is the uid of the pod it was
        made for, `spec` are further fields as the wire spells them."""
        notes = dict(annotations or {})
        if bound_to:
            notes["pv.kubernetes.io/bind-completed"] = "yes"
        if selected_node:
            notes["volume.kubernetes.io/selected-node"] = selected_node
        meta: Raw = {"name": name, "namespace": namespace, "uid": uid or name, "annotations": notes}
        if deleted:
            meta["deletionTimestamp"] = timestamp_before(10)
        if owner:
            meta["ownerReferences"] = [{"kind": "Pod", "uid": owner, "controller": True}]
        body: Raw = {
            "accessModes": list(modes),
            "resources": {"requests": {"storage": size}},
            "volumeName": bound_to,
            **spec,
        }
        if of is not None:
            body["storageClassName"] = of
        status = {"phase": phase or ("Bound" if bound_to else "Pending")}
        return self.add(
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": body, "status": status}
        )

    def csi_driver(self, name: str, *, tells_capacity: bool = True) -> Self:
        """A CSIDriver."""
        spec = {"storageCapacity": tells_capacity}
        return self.add(
            {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": name}, "spec": spec}
        )

    def csi_node(self, name: str, **most: int | None) -> Self:
        """A CSINode: how many volumes each driver attaches there at most, None for any number."""
        drivers = [
            {"name": driver, "allocatable": None if count is None else {"count": count}}
            for driver, count in most.items()
        ]
        spec = {"drivers": drivers}
        return self.add(
            {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name}, "spec": spec}
        )

    def storage_capacity(
        self,
        name: str,
        *,
        of: str = "fast",
        room: str | int | None = "10Gi",
        largest: str | int | None = None,
        on: str = "",
        zone: str = "",
        nowhere: bool = False,
    ) -> Self:
        """A CSIStorageCapacity for one node, one zone, or all nodes; `nowhere` leaves the topology out."""
        labels = {"kubernetes.io/hostname": on} if on else {"zone": zone} if zone else {}
        return self.add(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "CSIStorageCapacity",
                "metadata": {"name": name, "namespace": "csi"},
                "storageClassName": of,
                "nodeTopology": None if nowhere else {"matchLabels": labels},
                "capacity": room,
                "maximumVolumeSize": largest,
            }
        )
