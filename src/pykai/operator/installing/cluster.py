"""Carries out installations: applies objects, remembers them, and deletes what is no longer wanted.

The ConfigMap `kai-install` of the namespace says what was installed, and for which values.  So an upgrade needs no
values again, and `kai uninstall` finds everything.  Objects in which users work are made once and stay.  A step that
fails leaves the rest for the next run: applying is the same however often it happens.

Statements: operations:O-51, OD-14; install:kubernetes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

import pykai
from pykai.api.crds import custom_resource_definitions
from pykai.api.installation import Config, SchedulingShard
from pykai.api.unstructured import JsonObject
from pykai.kube.client import Client, PatchKind
from pykai.kube.clock import Clock
from pykai.kube.errors import AlreadyExists, NotFound
from pykai.kube.resources import CONFIG_MAPS, CONFIGS, CUSTOM_RESOURCE_DEFINITIONS, DEPLOYMENTS, SCHEDULING_SHARDS
from pykai.operator.chart.configuration import OPENSHIFT_DEFINITION
from pykai.operator.chart.kubernetesversion import version_problem
from pykai.operator.chart.language import RELEASE_NAME_ANNOTATION
from pykai.operator.chart.values import merged_values
from pykai.operator.desired.objects import OPERATOR
from pykai.operator.desired.refusals import Refused
from pykai.operator.desired.settings import Settings
from pykai.operator.desired.state import CONFIG_NAME
from pykai.operator.hooks.steps import StepFailure, migrate_topologies, upgrade_definitions
from pykai.operator.installing.givenvalues import ValueProblem
from pykai.operator.installing.previewing import Preview, previews, topology_previews, was_rolled_out
from pykai.operator.installing.records import MANAGER, Record, read_record
from pykai.operator.installing.release import (
    Key,
    Release,
    is_handed_over,
    is_kept,
    is_made_once,
    key_of,
    release_objects,
    resource_of,
    surplus,
)
from pykai.operator.installing.removal import delete_applied, remove
from pykai.operator.installing.shadow import (
    REPORT_PORT,
    Observed,
    config_map_of,
    expected,
    shadow_name,
    shadow_objects,
)

_ESTABLISHED: Final = "Established"
_PAUSE_S: Final = 0.2
_PATIENCE_S: Final = 30.0


async def install(client: Client, release: Release, clock: Clock | None = None) -> AsyncIterator[str]:
    """Bring everything up to date, definitions first."""
    await _refuse_version(client)
    await _refuse_helm(client, release.namespace)
    before = await read_record(client, release.namespace)
    objects = release_objects(replace(await _looked_around(client, release), is_install=before is None))
    async for line in upgrade_definitions(client):
        yield line
    await _await_definitions(client, clock or Clock())
    values = release.scope().values
    if values["topologyMigration"]["enabled"]:
        async for line in migrate_topologies(client):
            yield line
    async for line in put_in_place(client, release, objects, before):
        yield line
    yield f"PyKAI {pykai.__version__} is installed in {release.namespace}; `kai doctor` checks it"


async def put_in_place(
    client: Client, release: Release, objects: Sequence[JsonObject], before: Record | None
) -> AsyncIterator[str]:
    """Apply objects and delete what an earlier version had; whenever it ends, the record has all that is there."""
    earlier = before.objects if before else ()
    wanted = tuple(key_of(each) for each in objects if not is_kept(each))
    namespaces = [each for each in objects if each["kind"] == "Namespace"]
    async for line in apply_objects(client, namespaces):
        yield line
    await _remember(client, release, tuple(dict.fromkeys((*earlier, *wanted))))
    async for line in apply_objects(client, [each for each in objects if each not in namespaces]):
        yield line
    async for line in delete_applied(client, surplus(earlier, objects)):
        yield line
    if any(is_handed_over(each, objects) for each in earlier):
        yield f"left the Config {CONFIG_NAME} as it is: these values leave it to you"
    await _remember(client, release, wanted)


async def _remember(client: Client, release: Release, keys: tuple[Key, ...]) -> None:
    record = Record(pykai.__version__, release.values, keys)
    await _apply(client, record.config_map(release.namespace))


async def install_shadow(client: Client, release: Release, shards: Sequence[str] = ()) -> AsyncIterator[str]:
    """Install schedulers that write nothing, one for each shard or for those that are named; no more is touched."""
    observed, objects = await _shadows(client, release, shards)
    before = await read_record(client, release.namespace)
    async for line in put_in_place(client, release, objects, before):
        yield line
    beside = observed.settings.namespace
    for shard in observed.shards:
        name, followed = shadow_name(shard), config_map_of(observed, shard)
        try:
            await client.get_raw(CONFIG_MAPS, followed, beside)
        except NotFound:
            yield f"{name}: there is no ConfigMap {beside}/{followed}, so it decides by the built-in configuration"
        else:
            yield f"{name} decides by ConfigMap {beside}/{followed}; what it would do, and how far both agree:"
        yield f"  kubectl --namespace {release.namespace} logs --follow deployment/{name}"
        yield f"  kubectl --namespace {release.namespace} port-forward deployment/{name} {REPORT_PORT}"
        yield f"  kai shadow report --url http://127.0.0.1:{REPORT_PORT}"


async def _shadows(client: Client, release: Release, shards: Sequence[str]) -> tuple[Observed, list[JsonObject]]:
    observed = await look_beside(client, release)
    try:
        observed = observed.only(shards)
        return observed, shadow_objects((await _looked_around(client, release)).scope(), observed)
    except (ValueProblem, Refused) as error:
        raise StepFailure(str(error)) from None


async def look_beside(client: Client, release: Release) -> Observed:
    """The installation beside a shadow; what the cluster does not say is as the chart has it."""
    beside = expected(release)
    with suppress(NotFound):
        found = await client.get(CONFIGS, CONFIG_NAME, into=Config)
        beside = replace(beside, settings=Settings(found.spec))
    with suppress(NotFound):
        listed = await client.list(SCHEDULING_SHARDS, into=SchedulingShard)
        shards = sorted(listed.items, key=lambda each: each.metadata.name)
        beside = replace(beside, shards=tuple(shards) or beside.shards)
    return beside


async def _looked_around(client: Client, release: Release) -> Release:
    """The release with what its documents ask about the cluster: whether it is OpenShift."""
    try:
        found = await client.get_raw(CUSTOM_RESOURCE_DEFINITIONS, OPENSHIFT_DEFINITION)
    except NotFound:
        return release
    return replace(release, live={(CUSTOM_RESOURCE_DEFINITIONS.kind, "", OPENSHIFT_DEFINITION): found})


async def with_earlier_values(client: Client, release: Release, *, needs_record: bool = True) -> Release:
    """The release with the values of the record below its own."""
    record = await read_record(client, release.namespace)
    if record is None and needs_record:
        await _refuse_helm(client, release.namespace)
        raise StepFailure(f"nothing was installed in {release.namespace} by `kai install`: use `kai install`")
    earlier = record.values if record else {}
    return replace(release, values=merged_values(earlier, release.values, keeps_nulls=True))


async def uninstall(client: Client, namespace: str) -> AsyncIterator[str]:
    """Delete what was installed and what came of it, and name what stays."""
    record = await read_record(client, namespace)
    if record is None:
        await _refuse_helm(client, namespace)
        raise StepFailure(f"nothing was installed in {namespace} by `kai install`: name the --namespace it is in")
    async for line in remove(client, record, namespace):
        yield line


async def preview(client: Client, release: Release) -> AsyncIterator[Preview]:
    """What `install` would do, object by object; raises `StepFailure` where it would be refused."""
    await _refuse_version(client)
    await _refuse_helm(client, release.namespace)
    before = await read_record(client, release.namespace)
    found = replace(await _looked_around(client, release), is_install=before is None)
    async for each in previews(client, [*custom_resource_definitions(), *release_objects(found)], before):
        yield each
    if release.scope().values["topologyMigration"]["enabled"]:
        async for each in topology_previews(client):
            yield each


async def preview_shadow(client: Client, release: Release, shards: Sequence[str] = ()) -> AsyncIterator[Preview]:
    """What `install_shadow` would do."""
    _, objects = await _shadows(client, release, shards)
    async for each in previews(client, objects, await read_record(client, release.namespace)):
        yield each


async def apply_objects(client: Client, objects: Iterable[JsonObject]) -> AsyncIterator[str]:
    """Apply objects in their order; those that are made once are left alone where they exist."""
    for each in objects:
        api_version, kind, namespace, name = key_of(each)
        if is_made_once(each):
            try:
                await client.create(resource_of(api_version, kind, namespace), each, namespace)
            except AlreadyExists:
                continue
            yield f"created {kind} {name}"
        else:
            await _apply(client, each)
            yield f"applied {kind} {name}"


async def _apply(client: Client, obj: JsonObject) -> None:
    api_version, kind, namespace, name = key_of(obj)
    resource = resource_of(api_version, kind, namespace)
    if resource == DEPLOYMENTS:
        with suppress(NotFound):
            if was_rolled_out(obj, await client.get_raw(resource, name, namespace)):
                strategy = {"type": "Recreate", "rollingUpdate": None}
                await client.patch(resource, name, {"spec": {"strategy": strategy}}, namespace, field_manager=MANAGER)
    await client.patch(resource, name, obj, namespace, kind=PatchKind.APPLY, field_manager=MANAGER, force=True)


# install:kubernetes
async def _refuse_version(client: Client) -> None:
    if text := version_problem(await client.server_version()):
        raise StepFailure(text)


async def _refuse_helm(client: Client, namespace: str) -> None:
    """Helm would delete what it does not know, and know nothing of what it did not install."""
    try:
        operator = await client.get_raw(DEPLOYMENTS, OPERATOR, namespace)
    except NotFound:
        return
    release = (operator["metadata"].get("annotations") or {}).get(RELEASE_NAME_ANNOTATION)
    if release:
        raise StepFailure(
            f"the operator in {namespace} belongs to the Helm release {release}: use `helm upgrade {release}` or"
            f" `helm uninstall {release}`"
        )


async def _await_definitions(client: Client, clock: Clock) -> None:
    """Objects of a kind can be made once its definition is established."""
    waited = 0.0
    for definition in custom_resource_definitions():
        name = definition["metadata"]["name"]
        while True:
            found = await client.get_raw(CUSTOM_RESOURCE_DEFINITIONS, name)
            conditions = found.get("status", {}).get("conditions") or ()
            if any(each["type"] == _ESTABLISHED and each["status"] == "True" for each in conditions):
                break
            if waited >= _PATIENCE_S:
                raise StepFailure(f"the API server has not accepted the definition {name} in {_PATIENCE_S:.0f} s")
            await clock.sleep(_PAUSE_S)
            waited += _PAUSE_S
