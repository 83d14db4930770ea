"""Create, update, patch and delete: the steps between a request's body and the storage.

The order is Kubernetes': the body is pruned and defaulted by its schema, mutating admission runs, server fields are set
(uid, timestamps, generation), the rules of the kind are applied (`strategies`), the result is checked, validating
admission runs, and the object is stored.

All of it runs without yielding to the event loop, so no other write comes in between, except during a webhook call.
Then the write starts again from the present object, as for any patch that meets a conflict.

Subtle: old objects are shared with readers and never changed; every changing step copies the dicts on the path. A write
that changes nothing returns the present object and creates no revision.

Statements: apiserver:conflict, apiserver:dry-run, apiserver:generation, apiserver:namespace, apiserver:no-op.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from pykai.api.keys import object_key
from pykai.api.unstructured import JsonObject
from pykai.lab.apiserver import apierrors, deletion, metadata, strategies
from pykai.lab.apiserver.admission import Admission
from pykai.lab.apiserver.calls import Call, check_object_type, decode_failure_text, report_unknown_fields
from pykai.lab.apiserver.kinds import ResourceKind
from pykai.lab.apiserver.managedfields import track_update
from pykai.lab.apiserver.normalising import Normaliser
from pykai.lab.apiserver.schema.checks import TYPE_INVALID
from pykai.lab.apiserver.schema.model import FieldProblem
from pykai.lab.apiserver.schema.validation import summarise_problems, validate_transition
from pykai.lab.apiserver.serverstate import ServerState
from pykai.lab.apiserver.storage import StoredObject, encode

#: makes the wanted object from the present one
UpdateFunction = Callable[[JsonObject], JsonObject]

#: attempts of an update whose object changes during webhook calls
_ATTEMPTS: Final = 5
_NAME_ATTEMPTS: Final = 8
#: cached field sets of new objects
_MAX_CACHED_ENTRIES: Final = 256
#: metadata that only the server writes; an update keeps it whatever the body says
_SERVER_FIELDS: Final = (
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "namespace",
    "uid",
)
_OTHER_NAMESPACE: Final = "the namespace of the provided object does not match the namespace sent on the request"


@dataclass(frozen=True, slots=True)
class DeletionResult:
    """The result of a delete: the object is pending or removed."""

    record: StoredObject
    is_removed: bool


class ObjectWriter:
    """Carries out writes."""

    def __init__(self, state: ServerState, admission: Admission) -> None:
        self._state = state
        self._storage = state.storage
        self.admission = admission
        self._normaliser = Normaliser()
        #: managedFields entries of new objects by content
        self._managed_fields_cache: dict[tuple[Any, ...], JsonObject] = {}

    async def create(self, call: Call, body: Any) -> StoredObject:
        """Store a new object."""
        kind = call.kind
        obj = check_object_type(call, body)
        meta = obj["metadata"]
        self._set_namespace(call, meta)
        obj, problems = self._normalised(call, obj)
        if self.admission.is_needed(call):
            mutated = await self.admission.mutate(call, obj, None)
            if mutated is not obj:
                obj, problems = self._normalised(call, mutated)
        meta = obj["metadata"]
        name = meta.get("name") or ""
        prefix = meta.get("generateName")
        generated = not name and bool(prefix)
        if generated:
            name = self._free_name(kind, call.namespace, str(prefix))
        meta["name"] = call.name = name
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"):
            meta.pop(field, None)
        meta["uid"] = metadata.new_uid()
        meta["creationTimestamp"] = self._state.now()
        if kind.generation:
            meta["generation"] = 1
        else:
            meta.pop("generation", None)
        self._check_namespace(call)
        self._check_structure(call, obj, None, problems)
        obj = strategies.prepare_create(self._state, call, obj)
        self._check_rules(call, obj, None)
        if self.admission.is_needed(call):
            await self.admission.validate(call, obj, None)
        if self._storage.get(kind.store, call.key) is not None:
            raise apierrors.already_exists(kind.group, kind.plural, name)
        if call.verb != "apply":
            obj["metadata"].pop("managedFields", None)
        if call.tracked and call.verb != "apply":
            obj = self._with_creator_fields(call, obj)
        return self._state.store(call, obj)

    async def update(self, call: Call, change: UpdateFunction, *, unconditional: bool = True) -> StoredObject:
        """Replace an object by `change` of it; retried if it changes during webhook calls."""
        for _ in range(_ATTEMPTS):
            old = self._stored_object(call)
            before = old.object()
            wanted = change(before)
            if not unconditional and not check_object_type(call, wanted)["metadata"].get("resourceVersion"):
                raise apierrors.invalid(
                    call.kind.group,
                    call.kind.plural,
                    call.name,
                    [apierrors.invalid_value("metadata.resourceVersion", 0, "must be specified for an update")],
                )
            new = self._updated_object(call, before, wanted)
            if new is None:
                return old
            if self.admission.is_needed(call):
                new = await self._admitted(call, new, before)
                if self._storage.get(call.kind.store, call.key) is not old:
                    continue
            return self._store_or_remove(call, old, new)
        raise apierrors.conflict(call.kind.group, call.kind.plural, call.name)

    async def delete(self, call: Call, options: Mapping[str, Any]) -> DeletionResult:
        """Delete an object, or start its deletion."""
        if self.admission.is_needed(call):
            old = self._stored_object(call)
            await self.admission.validate(call, None, old.object())
        return self.delete_now(call, options)

    def delete_now(self, call: Call, options: Mapping[str, Any]) -> DeletionResult:
        """Delete without admission, for garbage collection and namespace cleanup."""
        kind = call.kind
        old = self._stored_object(call)
        obj = old.object()
        deletion.check_preconditions(kind, call.name, obj, options)
        pending = deletion.pending_deletion(kind, obj, options)
        if pending is None:
            if call.dry_run:
                return DeletionResult(old, True)
            return DeletionResult(self._storage.remove(kind.store, call.key), True)
        meta = {**obj["metadata"]}
        if pending.finalizers:
            meta["finalizers"] = pending.finalizers
        if "deletionTimestamp" not in meta or pending.grace_s < int(meta.get("deletionGracePeriodSeconds") or 0):
            until = self._state.clock.now() + timedelta(seconds=pending.grace_s)
            meta["deletionTimestamp"] = metadata.format_rfc3339(until)
            meta["deletionGracePeriodSeconds"] = pending.grace_s
            if kind.generation:
                meta["generation"] = int(meta.get("generation") or 0) + 1
        new = strategies.prepare_delete(kind, {**obj, "metadata": meta})
        if new["metadata"] == obj["metadata"]:
            return DeletionResult(old, False)
        return DeletionResult(self._state.store(call, new), False)

    def remove_finalizer(self, call: Call, finalizer: str) -> None:
        """Remove one finalizer, and the object if that was the last."""
        old = self._storage.get(call.kind.store, call.key)
        if old is None:
            return
        obj = old.object()
        kept = [name for name in obj["metadata"].get("finalizers") or () if name != finalizer]
        new = {**obj, "metadata": {**obj["metadata"], "finalizers": kept}}
        if not kept:
            del new["metadata"]["finalizers"]
        self._store_or_remove(call, old, new)

    def _set_namespace(self, call: Call, meta: JsonObject) -> None:
        given = meta.get("namespace") or ""
        if call.kind.namespaced:
            if given and given != call.namespace:
                raise apierrors.bad_request(_OTHER_NAMESPACE)
            meta["namespace"] = call.namespace
        elif given:
            meta.pop("namespace")

    def _check_namespace(self, call: Call) -> None:
        kind = call.kind
        if not kind.namespaced:
            return
        namespace = self._storage.get(("", "namespaces"), call.namespace)
        if namespace is None:
            raise apierrors.not_found("", "namespaces", call.namespace)
        if "deletionTimestamp" in namespace.object()["metadata"]:
            text = f"unable to create new content in namespace {call.namespace} because it is being terminated"
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {call.namespace} is being terminated",
                "field": "metadata.namespace",
            }
            raise apierrors.forbidden(kind.group, kind.plural, call.name, text, [cause])

    def _free_name(self, kind: ResourceKind, namespace: str, prefix: str) -> str:
        for _ in range(_NAME_ATTEMPTS):
            name = metadata.generated_name(prefix)
            if self._storage.get(kind.store, object_key(namespace, name) if kind.namespaced else name) is None:
                return name
        raise apierrors.already_exists(kind.group, kind.plural, prefix)

    def _stored_object(self, call: Call) -> StoredObject:
        record = self._storage.get(call.kind.store, call.key)
        if record is None:
            raise apierrors.not_found(call.kind.group, call.kind.plural, call.name)
        return record

    def _normalised(
        self, call: Call, obj: JsonObject, before: JsonObject | None = None
    ) -> tuple[JsonObject, list[FieldProblem]]:
        """The object without unknown fields, with defaults and its own metadata dict; and its problems."""
        problems: list[FieldProblem] = []
        if call.kind.schema is not None:
            obj, unknown, problems = self._normaliser.normalise(call.kind.schema, obj, before)
            if unknown:
                report_unknown_fields(call, unknown)
        meta = obj.get("metadata")
        return {**obj, "metadata": dict(meta) if isinstance(meta, dict) else {}}, problems

    def _updated_object(self, call: Call, before: JsonObject, body: Any) -> JsonObject | None:
        """The object to store in place of `before`, or None if nothing changes."""
        kind = call.kind
        wanted = check_object_type(call, body)
        meta = wanted["metadata"]
        old_meta = before["metadata"]
        if meta.get("name", call.name) != call.name:
            raise apierrors.bad_request(
                f"the name of the object ({meta.get('name')}) does not match the name on the URL ({call.name})"
            )
        if kind.namespaced and meta.get("namespace", call.namespace) != call.namespace:
            raise apierrors.bad_request(_OTHER_NAMESPACE)
        given = meta.get("resourceVersion")
        if given and given != old_meta["resourceVersion"]:
            raise apierrors.conflict(kind.group, kind.plural, call.name)
        if immutable_causes := _server_fields_changed(call, meta, old_meta):
            raise apierrors.invalid(kind.group, kind.kind, call.name, immutable_causes)
        if meta.get("uid") and meta["uid"] != old_meta["uid"]:
            text = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {old_meta['uid']}"
            raise apierrors.conflict(kind.group, kind.plural, call.name, text)
        wanted = strategies.restrict(kind, call.subresource, before, wanted)
        meta = wanted["metadata"]
        for field in _SERVER_FIELDS:
            if field in old_meta:
                meta[field] = old_meta[field]
            else:
                meta.pop(field, None)
        meta["name"] = call.name
        meta["resourceVersion"] = old_meta["resourceVersion"]
        meta.pop("selfLink", None)
        for field in ("finalizers", "ownerReferences", "labels", "annotations", "managedFields"):
            if field in meta and not meta[field]:
                del meta[field]
        if "managedFields" not in meta and "managedFields" in old_meta and call.verb != "apply":
            meta["managedFields"] = old_meta["managedFields"]
        wanted["apiVersion"] = kind.storage_api_version
        if wanted == before:
            return None
        wanted, problems = self._normalised(call, wanted, before)
        self._check_structure(call, wanted, before, problems)
        wanted = strategies.prepare_update(self._state, call, before, wanted)
        meta = wanted["metadata"]
        if _without_managed_fields(wanted) == _without_managed_fields(before):
            # Only the field manager of an apply may be new.
            if call.verb != "apply" or meta.get("managedFields") == old_meta.get("managedFields"):
                return None
        elif kind.generation and _spec_differs(kind, before, wanted):
            meta["generation"] = int(old_meta.get("generation") or 0) + 1
        self._check_rules(call, wanted, before)
        if call.verb != "apply" and (call.tracked or _has_applied(old_meta)):
            wanted = self._with_managed_fields(call, before, wanted)
        return wanted

    async def _admitted(self, call: Call, new: JsonObject, before: JsonObject) -> JsonObject:
        mutated = await self.admission.mutate(call, new, before)
        if mutated is not new:
            new, problems = self._normalised(call, mutated, before)
            for field in (*_SERVER_FIELDS, "name", "resourceVersion"):
                if field in before["metadata"] and field != "generation":
                    new["metadata"][field] = before["metadata"][field]
            self._check_structure(call, new, before, problems)
            self._check_rules(call, new, before)
        await self.admission.validate(call, new, before)
        return new

    def _store_or_remove(self, call: Call, old: StoredObject, new: JsonObject) -> StoredObject:
        """Store an object, or remove it if its deletion only waited for finalizers."""
        meta = new["metadata"]
        if "deletionTimestamp" in meta and not meta.get("finalizers") and deletion.is_ready_to_remove(call.kind, new):
            if call.dry_run:
                return old
            self._state.store(call, new)
            return self._storage.remove(call.kind.store, call.key)
        return self._state.store(call, new)

    def _check_structure(
        self, call: Call, obj: JsonObject, before: JsonObject | None, problems: list[FieldProblem]
    ) -> None:
        """Check names, metadata and types; later steps rely on the types."""
        kind = call.kind
        meta = obj["metadata"]
        causes = metadata.validate_name(kind, meta["name"]) if before is None else []
        causes += metadata.validate_metadata(meta, before["metadata"] if before is not None else {})
        if not causes and before is not None and "deletionTimestamp" in before["metadata"]:
            causes += deletion.validate_finalizers(before["metadata"], meta)
        if not kind.is_custom and call.verb in ("create", "update"):
            mistyped = [problem for problem in problems if problem.kind == TYPE_INVALID]
            if mistyped:
                raise apierrors.bad_request(decode_failure_text(call, summarise_problems(mistyped)))
        causes += [apierrors.StatusCause(problem.path, problem.kind, problem.message) for problem in problems]
        if causes:
            raise apierrors.invalid(kind.group, kind.kind, meta["name"], causes)

    def _check_rules(self, call: Call, obj: JsonObject, before: JsonObject | None) -> None:
        """Check the rules of the kind."""
        causes = strategies.validate(self._state, call, obj, before)
        schema = call.kind.schema
        if before is not None and schema is not None and schema.has_transition_checks:
            changes = validate_transition(schema, before, obj)
            causes = [
                *causes,
                *(apierrors.StatusCause(problem.path, problem.kind, problem.message) for problem in changes),
            ]
        if causes:
            raise apierrors.invalid(call.kind.group, call.kind.kind, obj["metadata"]["name"], causes)

    def _with_creator_fields(self, call: Call, new: JsonObject) -> JsonObject:
        """A new object with its creator in managedFields.

        The set of fields does not depend on names and timestamps, and pods of a workload differ in nothing else, so the
        set, which is expensive to compute, is cached.
        """
        meta = new["metadata"]
        rest = {name: value for name, value in new.items() if name != "metadata"}
        named = [tuple(meta.get(field) or ()) for field in ("labels", "annotations", "finalizers")]
        owners = tuple(owner.get("uid") for owner in meta.get("ownerReferences") or ())
        key = (call.kind.api_version, encode(rest), tuple(named), owners, "generateName" in meta)
        cached_entry = self._managed_fields_cache.get(key)
        if cached_entry is None:
            tracked = self._with_managed_fields(call, None, new)
            entries = tracked["metadata"].get("managedFields") or []
            if len(entries) == 1:
                if len(self._managed_fields_cache) >= _MAX_CACHED_ENTRIES:
                    del self._managed_fields_cache[next(iter(self._managed_fields_cache))]
                self._managed_fields_cache[key] = entries[0]
            return tracked
        meta["managedFields"] = [{**cached_entry, "manager": call.manager, "time": self._state.now()}]
        return new

    def _with_managed_fields(self, call: Call, before: JsonObject | None, new: JsonObject) -> JsonObject:
        tracked = track_update(
            call.kind.schema, before, new, call.manager, self._state.now(), call.kind.api_version, call.subresource
        )
        return {**tracked, "metadata": dict(tracked["metadata"])}


def _server_fields_changed(call: Call, meta: JsonObject, old_meta: JsonObject) -> list[apierrors.StatusCause]:
    """Changes of immutable metadata; a plain update with another uid is a conflict instead."""
    fields = ["deletionTimestamp", "deletionGracePeriodSeconds"]
    if call.verb == "patch":
        fields.append("uid")
    return [
        apierrors.invalid_value(f"metadata.{field}", meta[field], "field is immutable")
        for field in fields
        if meta.get(field) is not None and meta[field] != old_meta.get(field)
    ]


def _without_managed_fields(obj: JsonObject) -> JsonObject:
    meta = obj["metadata"]
    if "managedFields" not in meta:
        return obj
    return {**obj, "metadata": {name: value for name, value in meta.items() if name != "managedFields"}}


def _spec_differs(kind: ResourceKind, before: JsonObject, new: JsonObject) -> bool:
    if kind.is_custom and not kind.status:
        ignored = {"metadata", "apiVersion", "kind"}
    else:
        ignored = {"metadata", "status", "apiVersion", "kind"}
    return any(before.get(field) != new.get(field) for field in (before.keys() | new.keys()) - ignored)


def _has_applied(meta: JsonObject) -> bool:
    return any(entry.get("operation") == "Apply" for entry in meta.get("managedFields") or ())
