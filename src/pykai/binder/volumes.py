"""Volumes of a pod before it is bound (gpu:BI-8): what kube-scheduler's VolumeBinding does at bind time.

A bound claim must be reachable from the node.  A claim that waits for its pod gets the smallest existing volume that
fits, or its provisioner gets the node; then the attempt waits until the volume controller has bound it.  Which volumes
fit is decided by the engine's code (`core.volumes`), so that scheduler and binder agree.

Nothing is undone: a claim that got a volume keeps it, and the scheduler follows the volume; a claim whose provisioner
got another node gets the new one at the next attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress

import msgspec

from pykai.api import names
from pykai.api.core import Node, Pod
from pykai.api.core import Volume as PodVolume
from pykai.api.keys import object_key
from pykai.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from pykai.binder.attempt import BindAttempt
from pykai.binder.changewaiters import ChangeWaiters, wait_until
from pykai.binder.lifecycle import BindFailure
from pykai.binder.options import VOLUME_BINDING
from pykai.core.cluster.nodematching import matches_requirement
from pykai.core.cluster.storage import StorageIndex, VolumeFacts
from pykai.core.ledgers.volumes.candidates import volume_fits
from pykai.core.model.volumerequests import AccessibleNodes, VolumeRequest
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.errors import Conflict, NotFound
from pykai.kube.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES
from pykai.kube.store import Store

#: index of the volumes' store: by the claim that has each, or by class and place
CANDIDATE_INDEX = "binder-offers"


class VolumeBinderPlugin:
    """Binds the claims of a pod to volumes that its node can reach."""

    name = VOLUME_BINDING

    def __init__(
        self,
        client: Client,
        claims: ChangeWaiters[PersistentVolumeClaim],
        volumes: Store[PersistentVolume],
        *,
        clock: Clock,
        timeout_s: float,
    ) -> None:
        self._client = client
        self._claims = claims
        self._volumes = volumes
        self._clock = clock
        self._timeout_s = timeout_s
        volumes.index(CANDIDATE_INDEX, _candidate_index_keys)

    async def pre_bind(self, attempt: BindAttempt) -> None:
        """Bind the claims that wait, and wait for them."""
        volumes = [volume for volume in attempt.pod.spec.volumes if _claim_name(attempt.pod, volume)]
        if not volumes:
            return
        until_s = self._clock.elapsed_s() + self._timeout_s
        changed = asyncio.Event()
        with ExitStack() as stack:
            for volume in volumes:
                key = object_key(attempt.pod.metadata.namespace, _claim_name(attempt.pod, volume))
                stack.enter_context(self._claims.notify(key, changed))
            waiting = volumes
            while True:
                changed.clear()
                waiting = [volume for volume in waiting if not await self._advance_binding(attempt, volume)]
                if not waiting:
                    return
                if not await wait_until(changed, self._clock, until_s):
                    missing = ", ".join(_claim_name(attempt.pod, volume) for volume in waiting)
                    raise _failure(attempt, "PreBind", f"timed out waiting for volumes to be bound: {missing}")

    async def rollback(self, attempt: BindAttempt) -> None:
        """Nothing: see the module."""

    async def _advance_binding(self, attempt: BindAttempt, volume: PodVolume) -> bool:
        """Whether a claim has its volume; takes the next step towards it if not."""
        pod, node = attempt.pod, attempt.node
        name = _claim_name(pod, volume)
        storage = StorageIndex()
        claim = await self._read_claim(pod, name)
        if claim is not None:
            storage.apply(claim)
            await self._load_candidates(storage, claim, node)
        single_volume_pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, volumes=[volume]))
        (request,) = storage.resolve(single_volume_pod)
        if claim is None or (request.problem and not _is_binding_in_progress(claim)):
            raise _failure(attempt, "Filter", request.problem.replace("{pod}", attempt.key))
        if request.bound:
            if request.lost:
                raise _failure(attempt, "Filter", f'persistentvolume "{claim.spec.volume_name}" not found')
            if not is_reachable_from(request.accessible_from, node):
                raise _failure(attempt, "Filter", "node(s) had volume node affinity conflict")
            return True
        if request.problem:
            # Its volume has been chosen; the volume controller has yet to finish.
            return False
        chosen = self._choose_volume(storage, request, node)
        if chosen is not None:
            await self._reserve_volume(attempt, claim, chosen)
        elif not request.driver:
            raise _failure(attempt, "Filter", "node(s) didn't find available persistent volumes to bind")
        elif request.selected_node != node.metadata.name:
            if not is_reachable_from(storage.provisionable_from(request.storage_class), node):
                raise _failure(attempt, "Filter", "node(s) had volume node affinity conflict")
            await self._select_node(attempt, claim)
        return False

    async def _read_claim(self, pod: Pod, name: str) -> PersistentVolumeClaim | None:
        try:
            return await self._client.get(
                PERSISTENT_VOLUME_CLAIMS, name, pod.metadata.namespace, into=PersistentVolumeClaim
            )
        except NotFound:
            return None

    async def _load_candidates(self, storage: StorageIndex, claim: PersistentVolumeClaim, node: Node) -> None:
        """What a claim may be bound to on a node."""
        if claim.spec.volume_name:
            with suppress(NotFound):
                storage.apply(await self._client.get(PERSISTENT_VOLUMES, claim.spec.volume_name, into=PersistentVolume))
            return
        storage_class = (
            claim.metadata.annotations.get(names.STORAGE_CLASS_ANNOTATION) or claim.spec.storage_class_name or ""
        )
        for volume in candidate_volumes(self._volumes, claim, storage_class, node):
            storage.apply(volume)
        if storage_class:
            with suppress(NotFound):
                storage.apply(await self._client.get(STORAGE_CLASSES, storage_class, into=StorageClass))

    @staticmethod
    def _choose_volume(storage: StorageIndex, request: VolumeRequest, node: Node) -> VolumeFacts | None:
        """The volume kept for the claim, else the smallest that fits and is reached from the node."""
        candidates = [
            volume
            for volume in storage.volumes.values()
            if volume_fits(request, volume) and is_reachable_from(volume.accessible_from, node)
        ]
        return min(candidates, key=lambda v: (v.name not in request.reserved_volumes, v.size, v.name), default=None)

    async def _reserve_volume(self, attempt: BindAttempt, claim: PersistentVolumeClaim, volume: VolumeFacts) -> None:
        """Keep a volume for the claim; the volume controller does the rest."""
        meta = claim.metadata
        if volume.claim_uid == meta.uid:
            return
        document = await self._client.get_raw(PERSISTENT_VOLUMES, volume.name)
        current_claim = document["spec"].get("claimRef")
        if current_claim and (current_claim.get("namespace"), current_claim.get("name")) != (meta.namespace, meta.name):
            raise _failure(attempt, "Reserve", f'persistentvolume "{volume.name}" was taken by another claim')
        reference = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": meta.namespace,
            "name": meta.name,
            "uid": meta.uid,
        }
        metadata = document["metadata"]
        annotations = {**(metadata.get("annotations") or {}), names.BOUND_BY_CONTROLLER_ANNOTATION: "yes"}
        changed = {
            **document,
            "metadata": {**metadata, "annotations": annotations},
            "spec": {**document["spec"], "claimRef": reference},
        }
        try:
            await self._client.update(PERSISTENT_VOLUMES, changed)
        except Conflict:
            text = f'persistentvolume "{volume.name}" changed while it was being bound'
            raise _failure(attempt, "Reserve", text) from None

    async def _select_node(self, attempt: BindAttempt, claim: PersistentVolumeClaim) -> None:
        """Let the provisioner make a volume for the node."""
        patch = {"metadata": {"annotations": {names.SELECTED_NODE_ANNOTATION: attempt.node.metadata.name}}}
        meta = claim.metadata
        await self._client.patch(PERSISTENT_VOLUME_CLAIMS, meta.name, patch, meta.namespace)


def is_reachable_from(place: AccessibleNodes, node: Node) -> bool:
    """Whether a volume can be used from a node; no place means everywhere."""
    if place is None:
        return True
    labels, name = node.metadata.labels, node.metadata.name
    for term in place:
        selector_term = term.as_term()
        if not (selector_term.match_expressions or selector_term.match_fields):
            continue
        if all(
            matches_requirement(expression, labels.get(expression.key))
            for expression in selector_term.match_expressions
        ) and all(
            matches_requirement(field, name if field.key == "metadata.name" else None)
            for field in selector_term.match_fields
        ):
            return True
    return False


def _is_binding_in_progress(claim: PersistentVolumeClaim) -> bool:
    """Whether a volume has been named for a claim and its controller has yet to finish."""
    usable = claim.metadata.deletion_timestamp is None and claim.status.phase != "Lost"
    return bool(claim.spec.volume_name) and usable


def _claim_name(pod: Pod, volume: PodVolume) -> str:
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name
    return f"{pod.metadata.name}-{volume.name}" if volume.ephemeral is not None else ""


def candidate_volumes(
    volumes: Store[PersistentVolume], claim: PersistentVolumeClaim, storage_class: str, node: Node
) -> Iterator[PersistentVolume]:
    """The volumes that may serve a claim on a node: those kept for it, and unclaimed ones of its class near the node.

    A class has as many local volumes as there are nodes, and each pod searches several times.
    """
    meta = claim.metadata
    yield from volumes.by_index(CANDIDATE_INDEX, _reserved_key(meta.namespace, meta.name))
    yield from volumes.by_index(CANDIDATE_INDEX, _unreserved_key(storage_class))
    for label, value in node.metadata.labels.items():
        yield from volumes.by_index(CANDIDATE_INDEX, _unreserved_key(storage_class, label, value))


def _candidate_index_keys(volume: PersistentVolume) -> Iterable[str]:
    """Where `candidate_volumes` finds a volume; never narrower than `is_reachable_from`."""
    spec = volume.spec
    if spec.claim_ref is not None:
        return (_reserved_key(spec.claim_ref.namespace, spec.claim_ref.name),)
    storage_class = volume.metadata.annotations.get(names.STORAGE_CLASS_ANNOTATION) or spec.storage_class_name
    affinity = spec.node_affinity.required if spec.node_affinity is not None else None
    if affinity is None:
        return (_unreserved_key(storage_class),)
    index_keys: list[str] = []
    for term in affinity.node_selector_terms:
        in_expressions = [each for each in term.match_expressions if each.operator == "In"]
        if not in_expressions:
            return (_unreserved_key(storage_class),)
        narrowest = min(in_expressions, key=lambda each: (each.key != names.HOSTNAME_LABEL, len(each.values)))
        index_keys += [_unreserved_key(storage_class, narrowest.key, value) for value in narrowest.values]
    return dict.fromkeys(index_keys)


def _reserved_key(namespace: str, name: str) -> str:
    return f"claim {namespace}/{name}"


def _unreserved_key(storage_class: str, label: str = "", value: str = "") -> str:
    return f"class {storage_class} {label}={value}"


def _failure(attempt: BindAttempt, stage: str, text: str) -> BindFailure:
    node = attempt.node.metadata.name
    return BindFailure(
        "volumes", f"K8sPlugin VolumeBinding failed {stage} for pod: {attempt.key} and node {node}. error: {text}"
    )
