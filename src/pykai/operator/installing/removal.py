"""Takes an installation away: what `kai install` has applied, and what operator and services have made of it.

What users work in stays: definitions with all queues, PodGroups and BindRequests, shards, namespaces and running pods.
So do objects of the same name that others have made or taken over, such as a Config from GitOps, and what schedulers
have recorded.  All of it is named in the end.

Subtle:
- The roles go with the operator, so a pod of it that still ends makes nothing again.
- The Config goes last: what it owns goes with it, and the account of reservation pods, which stays, must not.

Statements: install:uninstall; operations:O-62.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pykai.api import names
from pykai.api.decode import DecodeError, decode_as
from pykai.api.installation import Config
from pykai.api.unstructured import JsonObject
from pykai.kube.client import Client
from pykai.kube.errors import Conflict, NotFound
from pykai.kube.resources import (
    BIND_REQUESTS,
    CONFIG_MAPS,
    CONFIGS,
    LEASES,
    POD_GROUPS,
    PODS,
    QUEUES,
    SCHEDULING_SHARDS,
    SERVICE_ACCOUNTS,
    TOPOLOGIES,
    Resource,
)
from pykai.operator.applying.comparison import is_made_by_us
from pykai.operator.applying.kinds import OWNED_KINDS
from pykai.operator.chart.values import default_values, merged_values
from pykai.operator.desired.objects import OPERATOR
from pykai.operator.desired.settings import Settings
from pykai.operator.desired.state import CONFIG_NAME
from pykai.operator.hooks.steps import clean_up
from pykai.operator.installing.givenvalues import ValueProblem
from pykai.operator.installing.records import MANAGER, RECORD, Record, is_applied_by_us
from pykai.operator.installing.release import Key, Release, is_kept, key_of, release_objects, resource_of
from pykai.services.rights import Places
from pykai.services.table import installed_services
from pykai.webhooks.table import CERTIFICATES_LEASE

_KINDS_OF_WORK: Final = (QUEUES, POD_GROUPS, BIND_REQUESTS, TOPOLOGIES)


@dataclass(frozen=True, slots=True)
class _Installation:
    """What is known of an installation before it goes."""

    release: Release
    places: Places
    reservation_account: str
    scheduler_name: str


async def remove(client: Client, record: Record, namespace: str) -> AsyncIterator[str]:
    """Delete what a record has and what came of it, then the record; name what stays."""
    installation = await _look_at(client, record, namespace)
    configs = [key for key in record.objects if key[1] == CONFIGS.kind]
    async for line in delete_applied(client, [key for key in reversed(record.objects) if key not in configs]):
        yield line
    has_operator = any(kind == "Deployment" and name == OPERATOR for _, kind, _, name in record.objects)
    if has_operator:
        async for line in clean_up(client, namespace, deletes_config=False):
            yield line
        async for line in _delete_made(client, installation):
            yield line
    async for line in delete_applied(client, configs):
        yield line
    await client.delete(CONFIG_MAPS, RECORD, namespace)
    if not has_operator:
        yield f"kept Namespace {namespace}"
        return
    async for line in _kept(client, installation):
        yield line


async def delete_applied(client: Client, keys: Iterable[Key]) -> AsyncIterator[str]:
    """Delete what `kai install` applied; what others have made under these names meanwhile is theirs."""
    for api_version, kind, namespace, name in keys:
        resource = resource_of(api_version, kind, namespace)
        try:
            found = await client.get_raw(resource, name, namespace)
        except NotFound:
            continue
        if not is_applied_by_us(found):
            yield f"kept {kind} {name}: it was made by others"
        elif await _deleted(client, resource, found):
            yield f"deleted {kind} {name}"


async def _deleted(client: Client, resource: Resource, found: Mapping[str, Any]) -> bool:
    """Delete the very object that was found; whether it was still there."""
    metadata = found["metadata"]
    place = metadata.get("namespace", "")
    try:
        await client.delete(resource, metadata["name"], place, uid=metadata["uid"], propagation="Background")
    except (NotFound, Conflict):
        return False
    return True


async def _look_at(client: Client, record: Record, namespace: str) -> _Installation:
    release = Release(record.values, namespace)
    try:
        release.scope()
    except ValueProblem:
        # Of a version with other values.
        release = Release({}, namespace)
    values = merged_values(default_values(), release.values)
    places = Places(
        namespace,
        values["global"]["resourceReservation"]["namespace"],
        values["nodescaleadjuster"]["scalingPodNamespace"],
    )
    try:
        settings = Settings((await client.get(CONFIGS, CONFIG_NAME, into=Config)).spec)
    except (NotFound, DecodeError):
        settings = Settings(decode_as(Config, {}).spec)
    account = values["global"]["resourceReservation"]["serviceAccount"]
    return _Installation(release, places, account, settings.scheduler_name)


async def _delete_made(client: Client, installation: _Installation) -> AsyncIterator[str]:
    """What operator and services have made."""
    for kind in reversed(OWNED_KINDS):
        for namespace in dict.fromkeys(installation.places if kind.resource.namespaced else ("",)):
            for found in await _listed(client, kind.resource, namespace):
                if not is_made_by_us(found):
                    continue
                if _is_reservation_account(installation, kind.resource, found):
                    await _disown(client, kind.resource, found)
                elif await _deleted(client, kind.resource, found):
                    yield f"deleted {kind.resource.kind} {found['metadata']['name']}"
    for found in await _listed(client, LEASES, installation.places.services):
        if _is_lease_of_ours(found, installation.scheduler_name) and await _deleted(client, LEASES, found):
            yield f"deleted Lease {found['metadata']['name']}"
    selector = f"{names.APP_LABEL}={names.SCALING_POD_APP}"
    for found in await _listed(client, PODS, installation.places.scaling, selector):
        # They only make autoscalers keep nodes.
        if await _deleted(client, PODS, found):
            yield f"deleted Pod {found['metadata']['name']}"


def _is_reservation_account(installation: _Installation, kind: Resource, found: Mapping[str, Any]) -> bool:
    """It may be the user's own, and pods that stay have it."""
    metadata = found["metadata"]
    place = (installation.places.reservations, installation.reservation_account)
    return kind == SERVICE_ACCOUNTS and (metadata["namespace"], metadata["name"]) == place


async def _disown(client: Client, kind: Resource, found: Mapping[str, Any]) -> None:
    metadata = found["metadata"]
    patch = {"metadata": {"ownerReferences": None}}
    await client.patch(kind, metadata["name"], patch, metadata["namespace"], field_manager=MANAGER)


def _is_lease_of_ours(lease: Mapping[str, Any], scheduler_name: str) -> bool:
    name = lease["metadata"]["name"]
    known = {names.BINDER_LEASE, CERTIFICATES_LEASE, *(each.lease for each in installed_services() if each.lease)}
    if name in known or name == scheduler_name:
        return True
    # operations:O-39: that of another node pool, which may have no shard any more
    holder = str((lease.get("spec") or {}).get("holderIdentity") or "")
    return name.startswith(f"{scheduler_name}-") and holder.startswith(f"{scheduler_name}-")


async def _kept(client: Client, installation: _Installation) -> AsyncIterator[str]:
    """What stays, a line each."""
    for kind in _KINDS_OF_WORK:
        count = len(await _listed(client, kind))
        yield f"kept the definition {kind.plural}.{kind.group}" + (f" and {count} of it" if count else "")
    for kind in (CONFIGS, SCHEDULING_SHARDS):
        yield f"kept the definition {kind.plural}.{kind.group}"
        for found in await _listed(client, kind):
            if not found["metadata"].get("deletionTimestamp"):
                yield f"kept {kind.kind} {found['metadata']['name']}, which nothing carries out any more"
    for each in release_objects(installation.release):
        kind_name, name = each["kind"], each["metadata"]["name"]
        if is_kept(each) and kind_name in ("Namespace", "ServiceAccount") and await _is_there(client, each):
            yield f"kept {kind_name} {name}"
    for found in await _listed(client, CONFIG_MAPS, installation.places.services, names.RECORD_SCHEDULER_LABEL):
        yield f"kept ConfigMap {found['metadata']['name']}: a scheduler has recorded usage or a gang under way in it"
    if reserving := await _listed(client, PODS, installation.places.reservations):
        where = installation.places.reservations
        yield f"kept {len(reserving)} pods in {where}: they hold GPUs that running pods share"
    yield "kept all other pods"


async def _is_there(client: Client, obj: JsonObject) -> bool:
    api_version, kind, namespace, name = key_of(obj)
    try:
        await client.get_raw(resource_of(api_version, kind, namespace), name, namespace)
    except NotFound:
        return False
    return True


async def _listed(client: Client, kind: Resource, namespace: str = "", selector: str = "") -> list[dict[str, Any]]:
    """All of a kind; none where it is not served."""
    try:
        return await client.list_raw(kind, namespace=namespace, label_selector=selector)
    except NotFound:
        return []
