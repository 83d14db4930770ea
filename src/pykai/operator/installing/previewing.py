"""What an installation would do to a cluster, object by object; nothing is written.

An object that is there is applied on the server without being stored, so defaults, and fields of others, are no
difference.

Statements: install:dry-run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from pykai.api.unstructured import JsonObject
from pykai.kube.client import Client, PatchKind
from pykai.kube.errors import AlreadyExists, ApiError, NotFound, Unauthorized
from pykai.kube.resources import DEPLOYMENTS, TOPOLOGIES
from pykai.operator.hooks.steps import migrated, topologies_of_kueue
from pykai.operator.installing.records import MANAGER, Record, is_applied_by_us
from pykai.operator.installing.release import (
    is_handed_over,
    is_kept,
    is_made_once,
    key_of,
    resource_of,
    surplus,
)


class PreviewOutcome(Enum):
    """What would become of an object."""

    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"
    UNCHANGED = "unchanged"
    #: it is there and stays as it is, whatever it holds
    KEEP = "keep"
    REFUSED = "refused"


#: something has to be done about these
CHANGES: Final = frozenset(
    {PreviewOutcome.CREATE, PreviewOutcome.CHANGE, PreviewOutcome.DELETE, PreviewOutcome.REFUSED}
)


@dataclass(frozen=True, slots=True)
class Preview:
    """What would become of one object."""

    outcome: PreviewOutcome
    kind: str
    name: str
    note: str = ""

    def __str__(self) -> str:
        return f"{self.outcome.value} {self.kind} {self.name}{self.note}"


def summary(previews: Sequence[Preview]) -> str:
    """How many objects have which outcome."""
    counts = [(sum(each.outcome is outcome for each in previews), outcome.value) for outcome in PreviewOutcome]
    return f"{', '.join(f'{count} {word}' for count, word in counts if count)}; nothing was written"


async def previews(client: Client, objects: Iterable[JsonObject], before: Record | None) -> AsyncIterator[Preview]:
    """What would become of objects, and of those that an earlier version installed beside them."""
    wanted = list(objects)
    for each in wanted:
        yield await _preview(client, each)
    earlier = before.objects if before else ()
    for key in earlier:
        if is_handed_over(key, wanted):
            yield Preview(PreviewOutcome.KEEP, key[1], key[3], ": these values leave it to you")
    for api_version, kind, namespace, name in surplus(earlier, wanted):
        try:
            found = await client.get_raw(resource_of(api_version, kind, namespace), name, namespace)
        except NotFound:
            continue
        if is_applied_by_us(found):
            yield Preview(PreviewOutcome.DELETE, kind, name)
        else:
            yield Preview(PreviewOutcome.KEEP, kind, name, ": it was made by others")


async def topology_previews(client: Client) -> AsyncIterator[Preview]:
    """What would become of copies of Kueue's Topologies."""
    for found in await topologies_of_kueue(client) or ():
        name = found["metadata"]["name"]
        try:
            await client.create(TOPOLOGIES, migrated(found), dry_run=True)
        except AlreadyExists:
            yield Preview(PreviewOutcome.KEEP, TOPOLOGIES.kind, name, ": it is there already")
            continue
        except NotFound:
            # The kind comes with the installation.
            pass
        except ApiError as error:
            yield Preview(PreviewOutcome.REFUSED, TOPOLOGIES.kind, name, f", copied from Kueue: {error}")
            continue
        yield Preview(PreviewOutcome.CREATE, TOPOLOGIES.kind, name, ", copied from Kueue")


async def _preview(client: Client, wanted: JsonObject) -> Preview:
    api_version, kind, namespace, name = key_of(wanted)
    resource = resource_of(api_version, kind, namespace)
    try:
        live = await client.get_raw(resource, name, namespace)
    except NotFound:
        return Preview(PreviewOutcome.CREATE, kind, name, ", which an uninstallation keeps" if is_kept(wanted) else "")
    if is_made_once(wanted):
        return Preview(PreviewOutcome.KEEP, kind, name, ": it is there already")
    is_rolled_out = was_rolled_out(wanted, live)
    if is_rolled_out:
        wanted = {**wanted, "spec": {key: value for key, value in wanted["spec"].items() if key != "strategy"}}
    try:
        after = await client.patch(
            resource,
            name,
            wanted,
            namespace,
            kind=PatchKind.APPLY,
            field_manager=MANAGER,
            force=True,
            dry_run=True,
        )
    except Unauthorized:
        raise
    except ApiError as error:
        return Preview(PreviewOutcome.REFUSED, kind, name, f": {error}")
    paths = sorted([*_differing(live, after), *(["spec.strategy"] if is_rolled_out else [])])
    if paths:
        return Preview(PreviewOutcome.CHANGE, kind, name, f": {', '.join(paths)}")
    return Preview(PreviewOutcome.UNCHANGED, kind, name)


def was_rolled_out(wanted: JsonObject, live: JsonObject) -> bool:
    """An apply keeps what the API server has filled in for a rolling update, and is refused because of it."""
    if wanted["kind"] != DEPLOYMENTS.kind:
        return False
    asked, found = (each["spec"].get("strategy", {}).get("type") for each in (wanted, live))
    return bool(asked == "Recreate" != found)


def _differing(before: Any, after: Any, path: str = "") -> Iterable[str]:
    """Where two objects differ, three steps deep; what the server keeps for itself is left out."""
    if path in ("metadata.managedFields", "metadata.resourceVersion", "metadata.generation", "status"):
        return
    if isinstance(before, dict) and isinstance(after, dict) and path.count(".") < 2:
        for key in sorted(before.keys() | after.keys()):
            yield from _differing(before.get(key), after.get(key), f"{path}.{key}" if path else key)
    elif before != after:
        yield path
