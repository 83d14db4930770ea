"""The owner of a workload: found from its pods, read, suspended and resumed (suspend:owner).

Tenants write PodGroups, and a PodGroup alone must not make the scheduler change an object that its writer may not
change.  So the owner is climbed to from a pod of the group, by uid and inside the namespace, and must be the one that
the PodGroup names.  Each object is read from the server right before it is patched, and patched at that version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.scheduling import PodGroup
from pykai.api.suspension import PASSED_KINDS, SUSPEND_PATHS, foreign_manager, is_suspended, why_not_suspendable
from pykai.kube.client import Client
from pykai.kube.errors import Conflict, ConnectionLost, KubeError, NotFound
from pykai.kube.resources import Resource
from pykai.scheduler.dispatch.suspendrecord import WorkloadOwner

#: Owners between a pod and the top: a TrainJob has a JobSet, which has Jobs.
_MAX_OWNERS = 5
#: Writes of others during one of ours.
_MAX_CONFLICTS = 5


class OwnerState(NamedTuple):
    """An owner as the server has it."""

    owner: WorkloadOwner
    resource_version: str
    suspended: bool
    #: `kai.scheduler/suspended-by`
    mark: str
    #: the program that runs, suspends or resumes it in place of its own controller, "" if there is none
    managed_by: str


class OwnerError(Exception):
    """An owner cannot be suspended or resumed."""


class OwnerGone(OwnerError):
    """There is no such owner any more, or it belongs to others now."""


async def find_owner(client: Client, group: PodGroup, pods: Iterable[Pod]) -> OwnerState:
    """The owner of the first pod of a PodGroup that can be suspended; raises OwnerError if there is none.

    It is the one that the PodGroup names or, where that one has an owner that can be suspended, the topmost of these:
    a TrainJob resumes a JobSet that others suspend.
    """
    found: OwnerState | None = None
    is_named = False
    wanted = {reference.uid for reference in group.metadata.owner_references}
    pod = min(pods, key=lambda each: each.metadata.name)
    references: list[Mapping[str, Any]] = [
        {"apiVersion": each.api_version, "kind": each.kind, "name": each.name, "uid": each.uid, "controller": True}
        for each in pod.metadata.owner_references
        if each.controller
    ]
    for _ in range(_MAX_OWNERS):
        controller = next((each for each in references if each.get("controller")), None)
        if controller is None:
            break
        api_version, kind = str(controller.get("apiVersion", "")), str(controller.get("kind", ""))
        owner = WorkloadOwner(api_version, kind, str(controller.get("name", "")), str(controller.get("uid", "")))
        group_kind = (api_version.rpartition("/")[0], kind)
        if group_kind not in SUSPEND_PATHS and group_kind not in PASSED_KINDS:
            break
        content = await _read(client, group.metadata.namespace, owner)
        if managed_by := foreign_manager(group_kind[0], content):
            raise OwnerError(f"{kind} {owner.name} is managed by {managed_by}")
        if why := why_not_suspendable(*group_kind, content):
            raise OwnerError(f"{kind} {owner.name} cannot be suspended: {why}")
        is_named = is_named or owner.uid in wanted
        if is_named and group_kind in SUSPEND_PATHS:
            found = _state(owner, content)
        references = (content.get("metadata") or {}).get("ownerReferences") or []
    if found is not None:
        return found
    raise OwnerError(f"no owner of pod {pod.metadata.name} that its PodGroup names has a field to suspend it")


async def read_owner(client: Client, namespace: str, owner: WorkloadOwner) -> OwnerState:
    """An owner as the server has it; raises OwnerError if it is gone or cannot be read."""
    return _state(owner, await _read(client, namespace, owner))


async def set_suspended(client: Client, namespace: str, state: OwnerState, mark: str, *, suspend: bool) -> None:
    """Suspend an owner and mark it, or resume it and remove the mark; raises OwnerError.

    The owner is read again after a conflict, because controllers write its status all the time, and after a patch
    without an answer, which may have been carried out.
    """
    owner, found = state.owner, state
    for _ in range(_MAX_CONFLICTS):
        try:
            content = _suspend_patch(found, mark if suspend else None, suspend=suspend)
            await client.patch(_resource(owner), owner.name, content, namespace, brief=True)
            return
        except (Conflict, ConnectionLost) as error:
            found = await read_owner(client, namespace, owner)
            if found.suspended == suspend and found.mark == (mark if suspend else ""):
                return
            if (found.suspended, found.mark, found.managed_by) != (state.suspended, state.mark, state.managed_by):
                raise OwnerGone(f"{owner.kind} {owner.name} was changed by others: {error}") from None
        except KubeError as error:
            raise OwnerError(f"{owner.kind} {owner.name} cannot be changed: {error}") from None
    raise OwnerError(f"{owner.kind} {owner.name} cannot be changed: it was changed {_MAX_CONFLICTS} times meanwhile")


def _suspend_patch(state: OwnerState, mark: str | None, *, suspend: bool) -> dict[str, Any]:
    content: dict[str, Any] = {
        "metadata": {
            "uid": state.owner.uid,
            "resourceVersion": state.resource_version,
            "annotations": {names.SUSPENDED_BY_ANNOTATION: mark},
        }
    }
    *path, field = SUSPEND_PATHS[_group_kind(state.owner)]
    inner = content
    for name in path:
        inner = inner.setdefault(name, {})
    inner[field] = suspend
    return content


def _group_kind(owner: WorkloadOwner) -> tuple[str, str]:
    return owner.api_version.rpartition("/")[0], owner.kind


def _resource(owner: WorkloadOwner) -> Resource:
    group, _, version = owner.api_version.rpartition("/")
    return Resource(group, version, f"{owner.kind.lower()}s", owner.kind, True)


async def _read(client: Client, namespace: str, owner: WorkloadOwner) -> dict[str, Any]:
    try:
        content = await client.get_raw(_resource(owner), owner.name, namespace)
    except NotFound:
        raise OwnerGone(f"{owner.kind} {owner.name} does not exist") from None
    except KubeError as error:
        raise OwnerError(f"{owner.kind} {owner.name} cannot be read: {error}") from None
    uid = (content.get("metadata") or {}).get("uid")
    if uid != owner.uid:
        raise OwnerGone(f"{owner.kind} {owner.name} is another one of the name: its uid is {uid}, not {owner.uid}")
    return content


def _state(owner: WorkloadOwner, content: Mapping[str, Any]) -> OwnerState:
    meta = content.get("metadata") or {}
    mark = (meta.get("annotations") or {}).get(names.SUSPENDED_BY_ANNOTATION) or ""
    group, kind = _group_kind(owner)
    version = str(meta.get("resourceVersion", ""))
    return OwnerState(owner, version, is_suspended(group, kind, content), mark, foreign_manager(group, content))
