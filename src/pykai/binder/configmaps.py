"""Two ConfigMaps that configure the container of a shared GPU (gpu:8.5).

Admission has pointed the container's environment at them; here they are created, owned by the pod, so that they are
deleted with it.  `capabilities` holds the devices, the portion and, for HAMi-core, the memory limit; `environment` is
taken over as a whole by `envFrom`, and gets the devices of pods that admission did not treat.

Subtle: the names come from an annotation, which the creator of the pod may write.  So an existing ConfigMap is written
or deleted only if this pod owns it (gpu:E-3 overwrites; `docs/adr/0018-checking-tenant-input.md`), and only the keys
that are ours.

Statements: trust:configmaps; operations:E-11.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from pykai.api import names
from pykai.api.core import Container, Node, Pod
from pykai.api.keys import object_key
from pykai.api.sharing import NoSuchContainer, config_map_names, container_index, fraction_container
from pykai.binder.attempt import BindAttempt
from pykai.binder.lifecycle import BindFailure
from pykai.binder.options import GPU_SHARING, HAMI_CORE
from pykai.kube.client import Client
from pykai.kube.errors import AlreadyExists, Conflict, NotFound
from pykai.kube.resources import CONFIG_MAPS

log = logging.getLogger(__name__)


def fraction_container_of(pod: Pod) -> tuple[Container, str]:
    """The container that gets the fraction, and its index in names; raises `NoSuchContainer`."""
    init, index = fraction_container(
        pod.metadata.annotations,
        [container.name for container in pod.spec.init_containers],
        [container.name for container in pod.spec.containers],
    )
    containers = pod.spec.init_containers if init else pod.spec.containers
    return containers[index], container_index(init, index)


def pod_config_map_names(pod: Pod, index: str) -> tuple[str, str]:
    """Names of the two ConfigMaps; raises `BindFailure` for a pod that admission has not treated."""
    prefix = pod.metadata.annotations.get(names.SHARED_GPU_CONFIGMAP_ANNOTATION)
    if not prefix:
        key = object_key(pod.metadata.namespace, pod.metadata.name)
        text = f"no desired configmap name found in pod {key} annotations"
        raise BindFailure("configmaps", f"{text}; the admission service adds it to new pods: is it registered?")
    return config_map_names(prefix, index)


def visible_devices(gpus: list[str], cdi: bool) -> str:
    """Devices as the NVIDIA runtime reads them (gpu:E-4)."""
    return ",".join(names.CDI_DEVICE_PREFIX + gpu if cdi else gpu for gpu in gpus)


def memory_limit(pod: Pod, node: Node, portion: str) -> str | None:
    """The memory of each device that HAMi-core lets the container use, None when it is unknown (gpu:E-6)."""
    annotations = pod.metadata.annotations
    if names.GPU_FRACTION_ANNOTATION not in annotations:
        # A pod that asked for memory gets just that; its portion was rounded up to a hundredth of the GPU.
        requested_mib = annotations.get(names.GPU_MEMORY_ANNOTATION, "")
        if requested_mib.isascii() and requested_mib.isdigit() and int(requested_mib) > 0:
            return f"{int(requested_mib)}m"
    try:
        memory = int(node.metadata.labels[names.GPU_MEMORY_NODE_LABEL])
        share = float(portion)
    except (KeyError, ValueError):
        return None
    if memory >= names.GPU_MEMORY_BYTES_FROM:
        memory //= names.GPU_MEMORY_BYTES_FROM
    limit = int(memory * share) if 0 < share <= 1 else 0
    return f"{limit}m" if limit > 0 else None


class GpuSharingBinderPlugin:
    """Creates the ConfigMaps of pods with shared GPUs (operations:E-26)."""

    name = GPU_SHARING

    def __init__(self, client: Client, *, cdi: bool) -> None:
        self._config_maps = PodConfigMaps(client)
        self._cdi = cdi

    async def pre_bind(self, attempt: BindAttempt) -> None:
        """Create or update both (gpu:E-5)."""
        if not attempt.is_shared:
            return
        pod = attempt.pod
        container, index = _require_fraction_container(pod)
        capabilities, environment = pod_config_map_names(pod, index)
        devices = visible_devices([reserved.gpu for reserved in attempt.reserved], self._cdi)
        received = attempt.request.spec.received_gpu
        portion = received.portion if received is not None else ""
        capabilities_data = {names.GPU_PORTION_KEY: portion, names.NUM_OF_GPUS_KEY: portion}
        environment_data: dict[str, str] = {}
        reads_devices_by_key = any(
            entry.name == names.VISIBLE_DEVICES_KEY
            and entry.value_from is not None
            and entry.value_from.config_map_key_ref is not None
            for entry in container.env
        )
        (capabilities_data if reads_devices_by_key else environment_data)[names.VISIBLE_DEVICES_KEY] = devices
        await self._config_maps.put(pod, capabilities, capabilities_data)
        await self._config_maps.put(pod, environment, environment_data)

    async def rollback(self, attempt: BindAttempt) -> None:
        """Delete both (gpu:RB-2)."""
        if not attempt.is_shared:
            return
        try:
            _, index = fraction_container_of(attempt.pod)
            both = pod_config_map_names(attempt.pod, index)
        except (NoSuchContainer, BindFailure):
            return
        for name in both:
            await self._config_maps.remove(attempt.pod, name)


class PodConfigMaps:
    """Writes the ConfigMaps of pods, and never one that is not the pod's own."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def put(self, pod: Pod, name: str, data: Mapping[str, str]) -> None:
        """Set these keys of a ConfigMap of the pod, which is made if there is none; raises `BindFailure`."""
        namespace = pod.metadata.namespace
        metadata = {"name": name, "namespace": namespace, "ownerReferences": [_owner(pod)]}
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}
        try:
            await self._client.create(CONFIG_MAPS, config_map, brief=True)
            return
        except AlreadyExists:
            existing = await self._client.get_raw(CONFIG_MAPS, name, namespace)
        if not is_owned_by(existing, pod):
            raise BindFailure("configmaps", _not_owned_text(existing, pod))
        existing_data = existing.get("data") or {}
        if names.LEGACY_VISIBLE_DEVICES_KEY in existing_data and names.VISIBLE_DEVICES_KEY in data:
            data = {**data, names.LEGACY_VISIBLE_DEVICES_KEY: data[names.VISIBLE_DEVICES_KEY]}
        changed = {key: value for key, value in data.items() if existing_data.get(key) != value}
        if changed:
            # This version only: another ConfigMap may take the name meanwhile.
            preconditions = {
                "uid": existing["metadata"]["uid"],
                "resourceVersion": existing["metadata"]["resourceVersion"],
            }
            await self._client.patch(
                CONFIG_MAPS, name, {"metadata": preconditions, "data": changed}, namespace, brief=True
            )

    async def remove(self, pod: Pod, name: str) -> None:
        """Delete a ConfigMap, if it is the pod's own."""
        namespace = pod.metadata.namespace
        try:
            existing = await self._client.get_raw(CONFIG_MAPS, name, namespace)
            if is_owned_by(existing, pod):
                await self._client.delete(CONFIG_MAPS, name, namespace, uid=existing["metadata"]["uid"])
        except (NotFound, Conflict):
            pass


class HamiCoreBinderPlugin:
    """Tells HAMi-core how much memory of its devices a container may use."""

    name = HAMI_CORE

    def __init__(self, client: Client) -> None:
        self._config_maps = PodConfigMaps(client)

    async def pre_bind(self, attempt: BindAttempt) -> None:
        """Add the limit to the capabilities that `GpuSharingBinderPlugin` has made."""
        if not attempt.is_shared:
            return
        received = attempt.request.spec.received_gpu
        limit = memory_limit(attempt.pod, attempt.node, received.portion if received is not None else "")
        if limit is None:
            return
        pod = attempt.pod
        capabilities, _ = pod_config_map_names(pod, _require_fraction_container(pod)[1])
        await self._config_maps.put(pod, capabilities, {names.CUDA_MEMORY_LIMIT_KEY: limit})

    async def rollback(self, attempt: BindAttempt) -> None:
        """Nothing of its own: the ConfigMap goes as a whole."""


def _require_fraction_container(pod: Pod) -> tuple[Container, str]:
    try:
        return fraction_container_of(pod)
    except NoSuchContainer as error:
        raise BindFailure("configmaps", str(error)) from None


def is_owned_by(document: Mapping[str, Any], pod: Pod) -> bool:
    """Whether a ConfigMap was made for this very pod: the pod controls it, or is all that owns it (KAI's maps)."""
    owners = document["metadata"].get("ownerReferences") or ()
    own_references = [owner for owner in owners if owner.get("kind") == "Pod" and owner.get("uid") == pod.metadata.uid]
    return any(owner.get("controller") for owner in own_references) or 0 < len(owners) == len(own_references)


def _owner(pod: Pod) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod.metadata.name,
        "uid": pod.metadata.uid,
        "controller": True,
    }


def _not_owned_text(document: Mapping[str, Any], pod: Pod) -> str:
    meta = document["metadata"]
    owners = meta.get("ownerReferences") or ()
    owner = next((each for each in owners if each.get("controller")), owners[0] if owners else None)
    ownership = f"belongs to {owner['kind']} {owner['name']} ({owner['uid']})" if owner else "has no owner"
    return (
        f"ConfigMap {meta['namespace']}/{meta['name']} was not made for pod {pod.metadata.name} ({pod.metadata.uid}):"
        f" it {ownership}, so nothing is written; leave annotation {names.SHARED_GPU_CONFIGMAP_ANNOTATION} of the pod"
        " to the admission service, or name a prefix that is not in use"
    )
