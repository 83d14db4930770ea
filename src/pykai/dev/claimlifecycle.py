"""Allocates, reserves and releases ResourceClaims as the binder and Kubernetes' controllers do (gpu:D-12, D-17)."""

from __future__ import annotations

from msgspec.structs import replace

from pykai.api import names
from pykai.api.keys import split_key
from pykai.api.meta import ObjectMeta, OwnerReference
from pykai.api.resource import (
    AllocationResult,
    ConsumerReference,
    DeviceClaim,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
)
from pykai.core.cluster.tables import Tables
from pykai.core.model.tasks import Task
from pykai.core.report.decisions import Bind


def allocate_claims(tables: Tables, task: Task, bind: Bind) -> str:
    """Allocate the claims of a starting pod; returns the claim of its extended resources, "" if none."""
    keys = {claim.name: key for claim, key in zip(task.shape.claims, task.claim_keys, strict=True)}
    for name, allocation in bind.claims:
        claim = tables.claims.claims.get(keys[name])
        if claim is not None:
            tables.apply(_with_consumer(claim, task, allocation))
    extended = bind.extended_claim
    if extended is None or extended.allocation is None:
        return ""
    extended_claim = ResourceClaim(
        metadata=ObjectMeta(
            name=f"{task.name}-extended-resources",
            namespace=task.namespace,
            annotations={names.EXTENDED_RESOURCE_CLAIM_ANNOTATION: "true"},
            owner_references=(OwnerReference(kind="Pod", name=task.name, uid=task.uid),),
        ),
        spec=ResourceClaimSpec(devices=DeviceClaim(requests=extended.device_requests)),
    )
    tables.apply(_with_consumer(extended_claim, task, extended.allocation))
    return extended_claim.metadata.name


def _with_consumer(claim: ResourceClaim, task: Task, allocation: AllocationResult) -> ResourceClaim:
    users = [user for user in claim.status.reserved_for if user.uid != task.uid]
    users.append(ConsumerReference(resource="pods", name=task.name, uid=task.uid))
    existing_allocation = claim.status.allocation if claim.status.allocation is not None else allocation
    return replace(claim, status=ResourceClaimStatus(allocation=existing_allocation, reserved_for=users))


def release_claims(tables: Tables, task: Task) -> None:
    """Remove the reservations of a pod that left its node; a claim without reservations is deallocated."""
    if not task.node:
        return
    for key in dict.fromkeys(task.claim_keys):
        claim = tables.claims.claims.get(key)
        if claim is None:
            continue
        users = [user for user in claim.status.reserved_for if user.uid != task.uid]
        allocation = claim.status.allocation if users else None
        tables.apply(replace(claim, status=ResourceClaimStatus(allocation=allocation, reserved_for=users)))
    if task.extended_key:
        tables.remove("ResourceClaim", *split_key(task.extended_key))
