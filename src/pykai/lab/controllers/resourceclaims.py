"""ResourceClaims of pods: created from templates, released when unused.

A pod that names a claim template gets its own claim, which it owns and lists in its status. A pod that has ended or is
gone no longer reserves its claims; a claim without a reservation is deallocated. Claims created for a pod are deleted
with it. The finalizer that protects a claim in use (`resource.kubernetes.io/delete-protection`) is removed once the
claim is not reserved and is being deleted, or its pod has ended.

Subtle: a consumer that is missing in the cache may be newer than the cache, so it is read from the server before its
reservation is removed.

Statements: sim:claims.
"""

from __future__ import annotations

from pykai.api import names
from pykai.api.keys import object_key
from pykai.api.resource import ResourceClaim
from pykai.api.unstructured import JsonObject
from pykai.api.workloads import MachinePod, ResourceClaimTemplate
from pykai.kube.client import PatchKind
from pykai.kube.errors import Conflict, NotFound
from pykai.kube.resources import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from pykai.kube.runtime import Runtime, Service
from pykai.kube.store import Change
from pykai.lab.controllers.controller import (
    AssumingWriter,
    Controller,
    controlled_by,
    key_of,
    owner_reference,
    random_suffix_name,
    reference,
)
from pykai.lab.controllers.pods import CONTROLLER, is_finished, pod_store, pod_writer

_CLAIM, _POD = "claim:", "pod:"
_CONSUMER = "consumer"
_TEMPLATE_USERS = "waits for template"


class ResourceClaims:
    """The ResourceClaim controller."""

    def __init__(self, runtime: Runtime) -> None:
        self._client = runtime.client
        self._claims = runtime.caches.store(RESOURCE_CLAIMS, ResourceClaim, optional=True)
        self._claims.index(CONTROLLER, controlled_by)
        self._claims.index(_CONSUMER, lambda claim: [user.uid for user in claim.status.reserved_for])
        self._templates = runtime.caches.store(RESOURCE_CLAIM_TEMPLATES, ResourceClaimTemplate, optional=True)
        self._pods = pod_store(runtime)
        self._pods.index(_TEMPLATE_USERS, _missing_templates)
        self._write = AssumingWriter(runtime.client, self._claims, ResourceClaim, runtime.clock)
        self._write_pod = pod_writer(runtime)
        self.controller = Controller(
            "resourceclaim-controller",
            runtime,
            self._reconcile,
            self._claims,
            on_change=self._on_claim,
            watches=[(self._templates, self._on_template), (self._pods, self._on_pod)],
        )

    def _on_claim(self, change: Change[ResourceClaim]) -> None:
        claim = change.new
        if claim is None:
            return
        leaving = claim.metadata.deletion_timestamp is not None
        if leaving or claim.status.reserved_for or claim.status.allocation is not None:
            self.controller.enqueue(_CLAIM + change.key)

    def _on_template(self, change: Change[ResourceClaimTemplate]) -> None:
        if change.new is not None:
            for pod in self._pods.by_index(_TEMPLATE_USERS, change.key):
                self.controller.enqueue(_POD + key_of(pod))

    def _on_pod(self, change: Change[MachinePod]) -> None:
        pod = change.new or change.old
        if pod is None or not (pod.spec.resource_claims or pod.status.extended_resource_claim_status is not None):
            return
        if change.new is None or is_finished(pod):
            for claim in self._claims.by_index(_CONSUMER, pod.metadata.uid):
                self.controller.enqueue(_CLAIM + key_of(claim))
            for claim in self._claims.by_index(CONTROLLER, pod.metadata.uid):
                self.controller.enqueue(_CLAIM + key_of(claim))
        elif _missing_templates(pod):
            self.controller.enqueue(_POD + change.key)

    async def _reconcile(self, key: str) -> float | None:
        if key.startswith(_POD):
            await self._create_claims(key.removeprefix(_POD))
        else:
            await self._release_claim(key.removeprefix(_CLAIM))
        return None

    async def _create_claims(self, key: str) -> None:
        pod = self._pods.get(key)
        if pod is None or is_finished(pod) or pod.metadata.deletion_timestamp is not None:
            return
        existing_names = {status.name for status in pod.status.resource_claim_statuses}
        existing = {
            claim.metadata.annotations.get(names.POD_CLAIM_NAME_ANNOTATION, ""): claim
            for claim in self._claims.by_index(CONTROLLER, pod.metadata.uid)
        }
        claim_statuses: list[JsonObject] = []
        for pod_claim in pod.spec.resource_claims:
            if not pod_claim.resource_claim_template_name or pod_claim.name in existing_names:
                continue
            claim = existing.get(pod_claim.name)
            if claim is None:
                template = self._templates.get(
                    object_key(pod.metadata.namespace, pod_claim.resource_claim_template_name)
                )
                if template is None:
                    message = f'resourceclaimtemplate "{pod_claim.resource_claim_template_name}" not found'
                    self.controller.recorder.event(
                        reference(pod, PODS), "Warning", "FailedResourceClaimCreation", message
                    )
                    continue
                claim = await self._write.create(claim_document(pod, pod_claim.name, template))
                if claim is None:
                    continue
            claim_statuses.append({"name": pod_claim.name, "resourceClaimName": claim.metadata.name})
        if claim_statuses:
            await self._write_pod.patch_status(pod, {"resourceClaimStatuses": claim_statuses}, kind=PatchKind.STRATEGIC)

    async def _release_claim(self, key: str) -> None:
        claim = self._claims.get(key)
        if claim is None:
            return
        ended_consumers = [
            user.uid for user in claim.status.reserved_for if not await self._is_in_use_by(claim, user.name, user.uid)
        ]
        remaining_consumers = [user for user in claim.status.reserved_for if user.uid not in ended_consumers]
        if ended_consumers or (
            not remaining_consumers and claim.status.allocation is not None and claim.status.reserved_for
        ):
            status: JsonObject = {
                "reservedFor": [
                    {"resource": user.resource, "name": user.name, "uid": user.uid} for user in remaining_consumers
                ]
                or None
            }
            if not remaining_consumers:
                status["allocation"] = None
                status["devices"] = None
            # The resource version makes sure that it was not reserved meanwhile.
            patch = {"metadata": {"resourceVersion": claim.metadata.resource_version}, "status": status}
            try:
                await self._client.patch(
                    RESOURCE_CLAIMS, claim.metadata.name, patch, claim.metadata.namespace, subresource="status"
                )
            except (NotFound, Conflict):
                return
        if remaining_consumers:
            return
        ended = await self._has_owner_pod_ended(claim)
        if ended or claim.metadata.deletion_timestamp is not None:
            await self._remove_finalizer(claim)
        if ended:
            await self._write.delete(claim)

    async def _is_in_use_by(self, claim: ResourceClaim, name: str, uid: str) -> bool:
        pod = self._pods.get(object_key(claim.metadata.namespace, name))
        if pod is None or pod.metadata.uid != uid:
            try:
                pod = await self._client.get(PODS, name, claim.metadata.namespace, into=MachinePod)
            except NotFound:
                return False
        return pod.metadata.uid == uid and not is_finished(pod)

    async def _has_owner_pod_ended(self, claim: ResourceClaim) -> bool:
        """Whether the claim was made for a pod that has ended or is gone."""
        for owner in claim.metadata.owner_references:
            if owner.kind == "Pod" and owner.controller:
                return not await self._is_in_use_by(claim, owner.name, owner.uid)
        return False

    async def _remove_finalizer(self, claim: ResourceClaim) -> None:
        """Remove the finalizer unless the claim is reserved after all; retries on conflict."""
        name, namespace = claim.metadata.name, claim.metadata.namespace
        try:
            live = await self._client.get_raw(RESOURCE_CLAIMS, name, namespace)
            metadata = live["metadata"]
            finalizers = metadata.get("finalizers") or []
            if (
                metadata["uid"] != claim.metadata.uid
                or names.DRA_DELETE_PROTECTION_FINALIZER not in finalizers
                or (live.get("status") or {}).get("reservedFor")
            ):
                return
            kept = [each for each in finalizers if each != names.DRA_DELETE_PROTECTION_FINALIZER]
            patch = {"metadata": {"resourceVersion": metadata["resourceVersion"], "finalizers": kept or None}}
            await self._client.patch(RESOURCE_CLAIMS, name, patch, namespace, brief=True)
        except NotFound:
            return


def resource_claims(runtime: Runtime) -> Service:
    """The ResourceClaim controller as a service."""
    return ResourceClaims(runtime).controller


def claim_document(pod: MachinePod, name: str, template: ResourceClaimTemplate) -> JsonObject:
    """The claim of a pod from its template."""
    metadata = template.spec.metadata
    return {
        "apiVersion": RESOURCE_CLAIMS.api_version,
        "kind": RESOURCE_CLAIMS.kind,
        "metadata": {
            "name": random_suffix_name(f"{pod.metadata.name}-{name}", pod.metadata.uid, 0),
            "namespace": pod.metadata.namespace,
            "labels": metadata.labels,
            "annotations": {**metadata.annotations, names.POD_CLAIM_NAME_ANNOTATION: name},
            "ownerReferences": [owner_reference(pod, PODS)],
        },
        "spec": template.spec.spec,
    }


def _missing_templates(pod: MachinePod) -> list[str]:
    """Templates for which the pod has no claim yet."""
    if not pod.spec.resource_claims or is_finished(pod):
        return []
    existing_names = {status.name for status in pod.status.resource_claim_statuses}
    return [
        object_key(pod.metadata.namespace, wish.resource_claim_template_name)
        for wish in pod.spec.resource_claims
        if wish.resource_claim_template_name and wish.name not in existing_names
    ]
