"""What must exist before the containers of a pod can start: config maps, claims given to it, volumes bound.

`dependencies_of` reads them from the pod once; most pods have none and cost nothing. `missing_objects` looks them up
and returns the reason that a kubelet would show, with the objects to watch for.

Statements: sim:needs.
"""

from __future__ import annotations

from dataclasses import dataclass

from pykai.api.core import ConfigMap
from pykai.api.keys import object_key
from pykai.api.resource import ResourceClaim
from pykai.api.storage import PersistentVolumeClaim
from pykai.api.workloads import MachineContainer, MachinePod
from pykai.kube.store import Store
from pykai.lab.machines.lifecycle import ContainerWaiting


@dataclass(frozen=True, slots=True)
class PodDependencies:
    """Names, all in the namespace of the pod."""

    #: of containers: without them a container cannot be made
    config_maps: tuple[str, ...] = ()
    #: of volumes: without them nothing can be mounted
    mounted_config_maps: tuple[str, ...] = ()
    volume_claims: tuple[str, ...] = ()
    #: whether it has claims for devices; their names come later, in its status
    claims: bool = False

    def __bool__(self) -> bool:
        return bool(self.config_maps or self.mounted_config_maps or self.volume_claims or self.claims)

    def missing_objects(
        self,
        pod: MachinePod,
        config_maps: Store[ConfigMap],
        claims: Store[ResourceClaim],
        volumes: Store[PersistentVolumeClaim],
    ) -> tuple[ContainerWaiting | None, list[str]]:
        """Why the pod cannot start, and the objects that could change it as `<resource>/<namespace>/<name>`."""
        namespace = pod.metadata.namespace
        missing: list[str] = []
        why: ContainerWaiting | None = None
        for name in self.mounted_config_maps:
            if config_maps.get(object_key(namespace, name)) is None:
                missing.append(f"configmaps/{namespace}/{name}")
                why = why or ContainerWaiting("ContainerCreating", f'configmap "{name}" not found')
        for name in self.volume_claims:
            volume = volumes.get(object_key(namespace, name))
            if volume is None or volume.status.phase != "Bound":
                missing.append(f"persistentvolumeclaims/{namespace}/{name}")
                why = why or ContainerWaiting("ContainerCreating", f'persistentvolumeclaim "{name}" is not bound')
        if self.claims:
            for name in _claim_names(pod):
                claim = claims.get(object_key(namespace, name))
                users = claim.status.reserved_for if claim is not None else ()
                if not any(user.uid == pod.metadata.uid for user in users):
                    missing.append(f"resourceclaims/{namespace}/{name}")
                    why = why or ContainerWaiting(
                        "ContainerCreating", f'resourceclaim "{name}" is not reserved for this pod'
                    )
        for name in self.config_maps:
            if config_maps.get(object_key(namespace, name)) is None:
                missing.append(f"configmaps/{namespace}/{name}")
                why = why or ContainerWaiting("CreateContainerConfigError", f'configmap "{name}" not found')
        return why, missing


_NO_DEPENDENCIES = PodDependencies()


def dependencies_of(pod: MachinePod) -> PodDependencies:
    """What this pod needs."""
    spec = pod.spec
    named: dict[str, None] = {}
    for container in (*spec.init_containers, *spec.containers):
        if container.env or container.env_from:
            _from_environment(container, named)
    mounted: dict[str, None] = {}
    volume_claims: list[str] = []
    for volume in spec.volumes:
        if volume.config_map is not None and not volume.config_map.optional:
            mounted[volume.config_map.name] = None
        if volume.projected is not None:
            for source in volume.projected.sources:
                # Every pod mounts the API server's CA bundle, which exists in every namespace of a real cluster.
                if source.config_map is not None and not source.config_map.optional:
                    if source.config_map.name != "kube-root-ca.crt":
                        mounted[source.config_map.name] = None
        if volume.persistent_volume_claim is not None:
            volume_claims.append(volume.persistent_volume_claim.claim_name)
        elif volume.ephemeral is not None:
            volume_claims.append(f"{pod.metadata.name}-{volume.name}")
    claims = bool(spec.resource_claims) or pod.status.extended_resource_claim_status is not None
    if not (named or mounted or volume_claims or claims):
        return _NO_DEPENDENCIES
    return PodDependencies(tuple(named), tuple(mounted), tuple(volume_claims), claims)


def _from_environment(container: MachineContainer, named: dict[str, None]) -> None:
    for variable in container.env:
        source = variable.value_from.config_map_key_ref if variable.value_from is not None else None
        if source is not None and not source.optional:
            named[source.name] = None
    for origin in container.env_from:
        if origin.config_map_ref is not None and not origin.config_map_ref.optional:
            named[origin.config_map_ref.name] = None


def _claim_names(pod: MachinePod) -> list[str]:
    made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    claim_names = []
    for claim in pod.spec.resource_claims:
        name = claim.resource_claim_name or made.get(claim.name)
        if name:
            claim_names.append(name)
    if pod.status.extended_resource_claim_status is not None:
        claim_names.append(pod.status.extended_resource_claim_status.resource_claim_name)
    return claim_names
