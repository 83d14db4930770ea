"""Volumes of a pod before it is bound (gpu:BI-8): what kube-scheduler's VolumeBinding does at bind time.

A bound claim must be reachable from the node.  A claim that waits for its pod gets the smallest volume that is there
and fits, or its provisioner is told the node; then the attempt waits until the volume controller has bound it.  Which
volumes fit is the engine's own judgement (`core.volumes`), so that scheduler and binder agree.

Nothing is undone: a claim that got a volume keeps it, and the scheduler follows the volume; one whose provisioner was
told another node is told anew at the next attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress

import msgspec

from pykai.api import names
from pykai.api.core import Node, Pod
from pykai.api.core import Volume as PodVolume
from pykai.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from pykai.binder.attempt import Attempt
from pykai.binder.changewaiters import Wakes, woken
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
OFFER_INDEX = "binder-offers"


class VolumeBinding:
    """Sees to it that the claims of a pod are bound where it goes."""

    name = VOLUME_BINDING

    def __init__(
        self,
        client: Client,
        claims: Wakes[PersistentVolumeClaim],
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
        volumes.index(OFFER_INDEX, _offers)

    async def prepare(self, attempt: Attempt) -> None:
        """Bind the claims that wait, and wait for them."""
        volumes = [volume for volume in attempt.pod.spec.volumes if _claim_of(attempt.pod, volume)]
        if not volumes:
            return
        until_s = self._clock.elapsed_s() + self._timeout_s
        changed = asyncio.Event()
        with ExitStack() as stack:
            for volume in volumes:
                key = f"{attempt.pod.metadata.namespace}/{_claim_of(attempt.pod, volume)}"
                stack.enter_context(self._claims.on(key, changed))
            waiting = volumes
            while True:
                changed.clear()
                waiting = [volume for volume in waiting if not await self._bound(attempt, volume)]
                if not waiting:
                    return
                if not await woken(changed, self._clock, until_s):
                    missing = ", ".join(_claim_of(attempt.pod, volume) for volume in waiting)
                    raise _failure(attempt, "PreBind", f"timed out waiting for volumes to be bound: {missing}")

    async def undo(self, attempt: Attempt) -> None:
        """Nothing: see the module."""

    async def _bound(self, attempt: Attempt, volume: PodVolume) -> bool:
        """Whether a claim has its volume; takes the next step towards it if not."""
        pod, node = attempt.pod, attempt.node
        name = _claim_of(pod, volume)
        storage = StorageIndex()
        claim = await self._claim(pod, name)
        if claim is not None:
            storage.apply(claim)
            await self._load(storage, claim, node)
        alone = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, volumes=[volume]))
        (ask,) = storage.resolve(alone)
        if claim is None or (ask.problem and not _under_way(claim)):
            raise _failure(attempt, "Filter", ask.problem.replace("{pod}", attempt.key))
        if ask.bound:
            if ask.lost:
                raise _failure(attempt, "Filter", f'persistentvolume "{claim.spec.volume_name}" not found')
            if not reaches(ask.accessible_from, node):
                raise _failure(attempt, "Filter", "node(s) had volume node affinity conflict")
            return True
        if ask.problem:
            # Its volume has been chosen; the volume controller has yet to finish.
            return False
        chosen = self._choose(storage, ask, node)
        if chosen is not None:
            await self._take(attempt, claim, chosen)
        elif not ask.driver:
            raise _failure(attempt, "Filter", "node(s) didn't find available persistent volumes to bind")
        elif ask.selected_node != node.metadata.name:
            if not reaches(storage.provisionable_from(ask.storage_class), node):
                raise _failure(attempt, "Filter", "node(s) had volume node affinity conflict")
            await self._tell(attempt, claim)
        return False

    async def _claim(self, pod: Pod, name: str) -> PersistentVolumeClaim | None:
        try:
            return await self._client.get(
                PERSISTENT_VOLUME_CLAIMS, name, pod.metadata.namespace, into=PersistentVolumeClaim
            )
        except NotFound:
            return None

    async def _load(self, storage: StorageIndex, claim: PersistentVolumeClaim, node: Node) -> None:
        """What a claim may be bound to on a node."""
        if claim.spec.volume_name:
            with suppress(NotFound):
                storage.apply(await self._client.get(PERSISTENT_VOLUMES, claim.spec.volume_name, into=PersistentVolume))
            return
        storage_class = (
            claim.metadata.annotations.get(names.STORAGE_CLASS_ANNOTATION) or claim.spec.storage_class_name or ""
        )
        for volume in offered(self._volumes, claim, storage_class, node):
            storage.apply(volume)
        if storage_class:
            with suppress(NotFound):
                storage.apply(await self._client.get(STORAGE_CLASSES, storage_class, into=StorageClass))

    @staticmethod
    def _choose(storage: StorageIndex, ask: VolumeRequest, node: Node) -> VolumeFacts | None:
        """The volume kept for the claim, else the smallest that fits and is reached from the node."""
        found = [
            volume
            for volume in storage.volumes.values()
            if volume_fits(ask, volume) and reaches(volume.accessible_from, node)
        ]
        return min(found, key=lambda v: (v.name not in ask.reserved_volumes, v.size, v.name), default=None)

    async def _take(self, attempt: Attempt, claim: PersistentVolumeClaim, volume: VolumeFacts) -> None:
        """Keep a volume for the claim; the volume controller does the rest."""
        meta = claim.metadata
        if volume.claim_uid == meta.uid:
            return
        document = await self._client.get_raw(PERSISTENT_VOLUMES, volume.name)
        held = document["spec"].get("claimRef")
        if held and (held.get("namespace"), held.get("name")) != (meta.namespace, meta.name):
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

    async def _tell(self, attempt: Attempt, claim: PersistentVolumeClaim) -> None:
        """Let the provisioner make a volume for the node."""
        patch = {"metadata": {"annotations": {names.SELECTED_NODE_ANNOTATION: attempt.node.metadata.name}}}
        meta = claim.metadata
        await self._client.patch(PERSISTENT_VOLUME_CLAIMS, meta.name, patch, meta.namespace)


def reaches(place: AccessibleNodes, node: Node) -> bool:
    """Whether a node is where a volume can be used; no place means everywhere."""
    if place is None:
        return True
    labels, name = node.metadata.labels, node.metadata.name
    for term in place:
        wire = term.as_term()
        if not (wire.match_expressions or wire.match_fields):
            continue
        if all(
            matches_requirement(expression, labels.get(expression.key)) for expression in wire.match_expressions
        ) and all(
            matches_requirement(field, name if field.key == "metadata.name" else None) for field in wire.match_fields
        ):
            return True
    return False


def _under_way(claim: PersistentVolumeClaim) -> bool:
    """Whether a volume has been named for a claim and its controller has yet to finish."""
    usable = claim.metadata.deletion_timestamp is None and claim.status.phase != "Lost"
    return bool(claim.spec.volume_name) and usable


def _claim_of(pod: Pod, volume: PodVolume) -> str:
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name
    return f"{pod.metadata.name}-{volume.name}" if volume.ephemeral is not None else ""


def offered(
    volumes: Store[PersistentVolume], claim: PersistentVolumeClaim, storage_class: str, node: Node
) -> Iterator[PersistentVolume]:
    """The volumes among which a claim finds its own on a node: those kept for it, and those of its class that nobody
    has and that may be near.  A class has as many local volumes as there are nodes, and each pod looks several times.
    """
    meta = claim.metadata
    yield from volumes.by(OFFER_INDEX, _kept_for(meta.namespace, meta.name))
    yield from volumes.by(OFFER_INDEX, _free(storage_class))
    for label, value in node.metadata.labels.items():
        yield from volumes.by(OFFER_INDEX, _free(storage_class, label, value))


def _offers(volume: PersistentVolume) -> Iterable[str]:
    """Where `offered` finds a volume; under nothing narrower than what `reaches` would say."""
    spec = volume.spec
    if spec.claim_ref is not None:
        return (_kept_for(spec.claim_ref.namespace, spec.claim_ref.name),)
    storage_class = volume.metadata.annotations.get(names.STORAGE_CLASS_ANNOTATION) or spec.storage_class_name
    affinity = spec.node_affinity.required if spec.node_affinity is not None else None
    if affinity is None:
        return (_free(storage_class),)
    found: list[str] = []
    for term in affinity.node_selector_terms:
        near = [each for each in term.match_expressions if each.operator == "In"]
        if not near:
            return (_free(storage_class),)
        narrowest = min(near, key=lambda each: (each.key != names.HOSTNAME_LABEL, len(each.values)))
        found += [_free(storage_class, narrowest.key, value) for value in narrowest.values]
    return dict.fromkeys(found)


def _kept_for(namespace: str, name: str) -> str:
    return f"claim {namespace}/{name}"


def _free(storage_class: str, label: str = "", value: str = "") -> str:
    return f"class {storage_class} {label}={value}"


def _failure(attempt: Attempt, stage: str, text: str) -> BindFailure:
    node = attempt.node.metadata.name
    return BindFailure(
        "volumes", f"K8sPlugin VolumeBinding failed {stage} for pod: {attempt.key} and node {node}. error: {text}"
    )
