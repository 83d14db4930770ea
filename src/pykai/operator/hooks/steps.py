"""What the hooks do, each a function over an API client that reports in sentences what it has done.

All may be repeated: what is there already stays, and a step that failed half-way is finished by the next run.

Statements: operations:O-51, O-62, OD-2; topo:TD-20.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from pykai.api.crds import custom_resource_definitions
from pykai.kube.client import Client, PatchKind
from pykai.kube.errors import AlreadyExists, ApiError, NotFound
from pykai.kube.resources import (
    CONFIGS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    MUTATING_WEBHOOKS,
    TOPOLOGIES,
    VALIDATING_WEBHOOKS,
    Resource,
)
from pykai.operator.desired.objects import MANAGED_BY_LABEL, OPERATOR
from pykai.operator.desired.state import CONFIG_NAME
from pykai.webhooks import table as webhooks

#: managers of fields
DEFINITIONS_MANAGER: Final = "crd-upgrader"
CONFIG_MANAGER: Final = "kai-config-deployer"
_DAEMON_SETS: Final = Resource("apps", "v1", "daemonsets", "DaemonSet", True)
_KUEUE: Final = "kueue.x-k8s.io"
#: newest first
_KUEUE_VERSIONS: Final = ("v1beta2", "v1beta1", "v1alpha1")
MIGRATED_FROM_ANNOTATION: Final = "kai.scheduler/migrated-from"
_OLD_HOOK_ANNOTATIONS: Final = ("helm.sh/hook", "helm.sh/hook-weight")


class StepFailure(Exception):
    """A step could not do all of its work; the text says what is left."""


async def upgrade_definitions(client: Client) -> AsyncIterator[str]:
    """Bring the definitions of our kinds up to date; Helm itself installs them once and never again."""
    for definition in custom_resource_definitions():
        name = definition["metadata"]["name"]
        await client.patch(
            CUSTOM_RESOURCE_DEFINITIONS,
            name,
            definition,
            kind=PatchKind.APPLY,
            field_manager=DEFINITIONS_MANAGER,
            force=True,
        )
        yield f"applied the definition {name}"


async def migrate_topologies(client: Client) -> AsyncIterator[str]:
    """Copy Topologies of Kueue that ours do not have yet; one that cannot be copied does not stop the others."""
    topologies = await topologies_of_kueue(client)
    if topologies is None:
        yield "Kueue has no Topologies here: nothing to copy"
        return
    failed = []
    for found in topologies:
        name = found["metadata"]["name"]
        try:
            await client.create(TOPOLOGIES, migrated(found))
        except AlreadyExists:
            yield f"Topology {name} is there already"
        except ApiError as error:
            failed.append(f"{name}: {error}")
            yield f"could not copy Topology {name}: {error}"
        else:
            yield f"copied Topology {name} from Kueue"
    if failed:
        raise StepFailure(f"{len(failed)} Topologies of Kueue could not be copied: {'; '.join(failed)}")


def migrated(topology: Mapping[str, Any]) -> dict[str, Any]:
    """Our Topology for one of Kueue: the version that is served (topo:TD-20), and only fields that ours has."""
    levels = [{"nodeLabel": each["nodeLabel"]} for each in topology["spec"]["levels"]]
    annotations = {MIGRATED_FROM_ANNOTATION: _KUEUE}
    return {"metadata": {"name": topology["metadata"]["name"], "annotations": annotations}, "spec": {"levels": levels}}


async def topologies_of_kueue(client: Client) -> list[dict[str, Any]] | None:
    """In the newest version that is served; None where there is no such kind."""
    for version in _KUEUE_VERSIONS:
        try:
            return await client.list_raw(Resource(_KUEUE, version, "topologies", "Topology", False))
        except NotFound:
            continue
    return None


async def deploy_config(client: Client, config: Mapping[str, Any]) -> AsyncIterator[str]:
    """Apply the Config, and take off marks of a hook that older charts left on it."""
    with suppress(NotFound):
        marks = {"metadata": {"annotations": dict.fromkeys(_OLD_HOOK_ANNOTATIONS)}}
        await client.patch(CONFIGS, CONFIG_NAME, marks, field_manager=CONFIG_MANAGER)
    await client.patch(CONFIGS, CONFIG_NAME, config, kind=PatchKind.APPLY, field_manager=CONFIG_MANAGER, force=True)
    yield f"applied the Config {CONFIG_NAME}"


async def clean_up(client: Client, namespace: str, *, deletes_config: bool) -> AsyncIterator[str]:
    """Delete what the operator has made and would block or cost something; queues, PodGroups and pods stay."""
    if deletes_config:
        async for line in _deleted(client, CONFIGS, [CONFIG_NAME]):
            yield line
    for kind in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        # Without the service behind it, a registration refuses pods and queues.
        async for line in _deleted(client, kind, webhooks.configuration_names(kind)):
            yield line
    for kind in (DEPLOYMENTS, _DAEMON_SETS):
        made = await client.list_raw(kind, namespace=namespace, label_selector=f"{MANAGED_BY_LABEL}={OPERATOR}")
        async for line in _deleted(client, kind, [each["metadata"]["name"] for each in made], namespace):
            yield line


async def _deleted(client: Client, kind: Resource, names: Sequence[str], namespace: str = "") -> AsyncIterator[str]:
    for name in names:
        try:
            await client.delete(kind, name, namespace, propagation="Background")
        except NotFound:
            continue
        yield f"deleted {kind.kind} {name}"
