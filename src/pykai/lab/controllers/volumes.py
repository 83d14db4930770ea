"""Volumes: claims are bound to existing volumes or get new ones.

A claim is bound to the volume that names it (a binder chose it), to the one it names, or, unless its class waits for
the first pod, to the smallest that fits. If none fits, a volume is provisioned; with WaitForFirstConsumer once the
claim names its node (`volume.kubernetes.io/selected-node`). A volume whose claim is gone is deleted or released by its
reclaim policy.

Every provisioner is simulated except `kubernetes.io/no-provisioner`.
"""

from __future__ import annotations

from pykai.api import names
from pykai.api.keys import object_key
from pykai.api.quantity import QuantityError, unit_value
from pykai.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from pykai.api.unstructured import JsonObject
from pykai.kube.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES
from pykai.kube.runtime import Runtime, Service
from pykai.kube.store import Change
from pykai.lab.controllers.controller import (
    AssumingWriter,
    Controller,
    key_of,
    reference,
    selector_matches,
)

_CLAIM, _VOLUME = "claim:", "volume:"
_FOR_CLAIM, _OF_CLASS = "claim", "class"


class Volumes:
    """The persistent volume controller."""

    def __init__(self, runtime: Runtime) -> None:
        caches = runtime.caches
        self._claims = caches.store(PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim, optional=True)
        self._volumes = caches.store(PERSISTENT_VOLUMES, PersistentVolume, optional=True)
        self._classes = caches.store(STORAGE_CLASSES, StorageClass, optional=True)
        self._volumes.index(_FOR_CLAIM, _claim_key)
        self._volumes.index(_OF_CLASS, lambda volume: [volume.spec.storage_class_name])
        self._claims.index(_OF_CLASS, lambda claim: [] if claim.spec.volume_name else [class_of(claim)])
        self._write_claim = AssumingWriter(runtime.client, self._claims, PersistentVolumeClaim, runtime.clock)
        self._write_volume = AssumingWriter(runtime.client, self._volumes, PersistentVolume, runtime.clock)
        self.controller = Controller(
            "persistentvolume-controller",
            runtime,
            self._reconcile,
            self._classes,
            on_change=self._on_class,
            watches=[(self._volumes, self._on_volume), (self._claims, self._on_claim)],
        )

    def _on_class(self, change: Change[StorageClass]) -> None:
        for claim in (*self._claims.by_index(_OF_CLASS, change.key), *self._claims.by_index(_OF_CLASS, "")):
            self.controller.enqueue(_CLAIM + key_of(claim))

    def _on_volume(self, change: Change[PersistentVolume]) -> None:
        volume = change.new
        if volume is None:
            return
        self.controller.enqueue(_VOLUME + change.key)
        for key in _claim_key(volume):
            self.controller.enqueue(_CLAIM + key)
        if volume.spec.claim_ref is None:
            for claim in self._claims.by_index(_OF_CLASS, volume.spec.storage_class_name):
                self.controller.enqueue(_CLAIM + key_of(claim))

    def _on_claim(self, change: Change[PersistentVolumeClaim]) -> None:
        if change.new is not None:
            if change.new.status.phase != "Bound":
                self.controller.enqueue(_CLAIM + change.key)
            return
        for volume in self._volumes.by_index(_FOR_CLAIM, change.key):
            self.controller.enqueue(_VOLUME + key_of(volume))

    async def _reconcile(self, key: str) -> float | None:
        if key.startswith(_CLAIM):
            await self._reconcile_claim(key.removeprefix(_CLAIM))
        else:
            await self._reconcile_volume(key.removeprefix(_VOLUME))
        return None

    async def _reconcile_claim(self, key: str) -> None:
        claim = self._claims.get(key)
        if claim is None or claim.status.phase == "Bound" or claim.metadata.deletion_timestamp is not None:
            return
        volume = self._prebound_volume(claim)
        if volume is None and not claim.spec.volume_name:
            storage_class = self._class(claim)
            waits = storage_class is not None and storage_class.volume_binding_mode == names.WAIT_FOR_FIRST_CONSUMER
            node = claim.metadata.annotations.get(names.SELECTED_NODE_ANNOTATION, "")
            if not waits:
                volume = self._smallest_fitting(claim)
            if volume is None and storage_class is not None and (node or not waits):
                volume = await self._provision(claim, storage_class)
        if volume is not None:
            await self._bind(claim, volume)

    def _class(self, claim: PersistentVolumeClaim) -> StorageClass | None:
        name = class_of(claim)
        if name or claim.spec.storage_class_name is not None:
            return self._classes.get(name)
        return next(
            (
                one
                for one in self._classes.values()
                if one.metadata.annotations.get(names.DEFAULT_STORAGE_CLASS_ANNOTATION) == "true"
            ),
            None,
        )

    def _prebound_volume(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        if claim.spec.volume_name:
            volume = self._volumes.get(claim.spec.volume_name)
            taken = volume.spec.claim_ref if volume is not None else None
            return volume if taken is None or _is_reference_to(taken.namespace, taken.name, taken.uid, claim) else None
        for volume in self._volumes.by_index(_FOR_CLAIM, key_of(claim)):
            chosen = volume.spec.claim_ref
            if chosen is not None and _is_reference_to(chosen.namespace, chosen.name, chosen.uid, claim):
                return volume
        return None

    def _smallest_fitting(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        wanted = _size(claim.spec.resources.requests.get(names.STORAGE, 0))
        fitting = [
            (_size(volume.spec.capacity.get(names.STORAGE, 0)), volume.metadata.name, volume)
            for volume in self._volumes.by_index(_OF_CLASS, class_of(claim))
            if volume.spec.claim_ref is None
            and volume.metadata.deletion_timestamp is None
            and set(claim.spec.access_modes) <= set(volume.spec.access_modes)
            and (volume.spec.volume_mode or "Filesystem") == (claim.spec.volume_mode or "Filesystem")
            and (claim.spec.selector is None or selector_matches(claim.spec.selector, volume.metadata.labels))
        ]
        large_enough = sorted((entry for entry in fitting if entry[0] >= wanted), key=lambda entry: entry[:2])
        return large_enough[0][2] if large_enough else None

    async def _provision(self, claim: PersistentVolumeClaim, storage_class: StorageClass) -> PersistentVolume | None:
        if storage_class.provisioner == names.NO_PROVISIONER:
            return None
        name = f"pvc-{claim.metadata.uid}"
        created = await self._write_volume.create(volume_document(claim, storage_class, name))
        if created is not None:
            about = reference(claim, PERSISTENT_VOLUME_CLAIMS)
            message = f"Successfully provisioned volume {name}"
            self.controller.recorder.event(about, "Normal", "ProvisioningSucceeded", message)
        return created or self._volumes.get(name)

    async def _bind(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        held = volume.spec.claim_ref
        if held is None or held.uid != claim.metadata.uid:
            patch = {
                "metadata": {"annotations": {names.BOUND_BY_CONTROLLER_ANNOTATION: "yes"}},
                "spec": {"claimRef": _claim_reference(claim)},
            }
            if await self._write_volume.patch(volume, patch) is None:
                return
        if volume.status.phase != "Bound":
            await self._write_volume.patch_status(volume, {"phase": "Bound"})
        bound = await self._write_claim.patch(
            claim,
            {
                "metadata": {
                    "annotations": {
                        names.BIND_COMPLETED_ANNOTATION: "yes",
                        names.BOUND_BY_CONTROLLER_ANNOTATION: "yes",
                    }
                },
                "spec": {"volumeName": volume.metadata.name},
            },
        )
        if bound is not None:
            status = {
                "phase": "Bound",
                "accessModes": volume.spec.access_modes,
                "capacity": dict(volume.spec.capacity),
            }
            await self._write_claim.patch_status(bound, status)

    async def _reconcile_volume(self, key: str) -> None:
        """A volume without a claim is Available; one whose claim is gone is deleted or released."""
        volume = self._volumes.get(key)
        if volume is None or volume.metadata.deletion_timestamp is not None:
            return
        held = volume.spec.claim_ref
        if held is None or not held.uid:
            if volume.status.phase not in ("Available", "Bound"):
                await self._write_volume.patch_status(volume, {"phase": "Available"})
            return
        claim = self._claims.get(object_key(held.namespace, held.name))
        if claim is not None and claim.metadata.uid == held.uid:
            return
        if names.PROVISIONED_BY_ANNOTATION in volume.metadata.annotations:
            await self._write_volume.delete(volume)
        elif volume.status.phase == "Bound":
            await self._write_volume.patch_status(volume, {"phase": "Released"})


def volumes(runtime: Runtime) -> Service:
    """The persistent volume controller as a service."""
    return Volumes(runtime).controller


def class_of(claim: PersistentVolumeClaim) -> str:
    """The storage class a claim names."""
    return claim.spec.storage_class_name or claim.metadata.annotations.get(names.STORAGE_CLASS_ANNOTATION, "")


def volume_document(claim: PersistentVolumeClaim, storage_class: StorageClass, name: str) -> JsonObject:
    """A new volume for a claim."""
    return {
        "apiVersion": PERSISTENT_VOLUMES.api_version,
        "kind": PERSISTENT_VOLUMES.kind,
        "metadata": {"name": name, "annotations": {names.PROVISIONED_BY_ANNOTATION: storage_class.provisioner}},
        "spec": {
            "capacity": {names.STORAGE: claim.spec.resources.requests.get(names.STORAGE, "1Gi")},
            "accessModes": claim.spec.access_modes or ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": storage_class.metadata.name,
            "volumeMode": claim.spec.volume_mode or "Filesystem",
            "claimRef": _claim_reference(claim),
            "csi": {"driver": storage_class.provisioner, "volumeHandle": name},
        },
    }


def _claim_reference(claim: PersistentVolumeClaim) -> JsonObject:
    return {
        "apiVersion": PERSISTENT_VOLUME_CLAIMS.api_version,
        "kind": PERSISTENT_VOLUME_CLAIMS.kind,
        "namespace": claim.metadata.namespace,
        "name": claim.metadata.name,
        "uid": claim.metadata.uid,
    }


def _claim_key(volume: PersistentVolume) -> list[str]:
    held = volume.spec.claim_ref
    return [object_key(held.namespace, held.name)] if held is not None and held.name else []


def _is_reference_to(namespace: str, name: str, uid: str, claim: PersistentVolumeClaim) -> bool:
    metadata = claim.metadata
    return (namespace, name) == (metadata.namespace, metadata.name) and uid in ("", metadata.uid)


def _size(quantity: str | int | float) -> int:
    try:
        return unit_value(quantity)
    except QuantityError:
        return 0
