"""Writing objects: what happens between a request's body and the store.

Create, update, patch and delete for every kind.  The order is Kubernetes': the body is pruned and defaulted by its
schema, mutating admission runs, what belongs to the server is put in (uid, stamps, generation), the rules of the kind
are applied (`strategies`), the result is checked, validating admission runs, and the object is stored.

All of it happens without giving up the event loop, so nobody writes in between, except while a webhook is asked; then
the write starts again from the present object, as it does for any patch that meets a conflict.

Subtle: old objects are shared with readers and never changed; every step that changes something makes new dicts on the
way to it.  A write that changes nothing is answered with the object as it is and leaves no trace.

Statements: apiserver:conflict, apiserver:dry-run, apiserver:generation, apiserver:namespace, apiserver:no-op.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from pykai.kube.clock import Clock
from pykai.lab.apiserver import apierrors, deletion, metadata, strategies
from pykai.lab.apiserver.admission import Admission
from pykai.lab.apiserver.calls import Call, check_type, report_unknown, unhandled
from pykai.lab.apiserver.kinds import Kind, Registry
from pykai.lab.apiserver.managedfields import track_update
from pykai.lab.apiserver.normalising import Shaper
from pykai.lab.apiserver.schema.checks import TYPE_INVALID
from pykai.lab.apiserver.schema.model import FieldProblem
from pykai.lab.apiserver.schema.validation import summary, transition_problems
from pykai.lab.apiserver.storage import Record, Storage, encode

JsonObject = dict[str, Any]
#: makes the wanted object from the present one
Change = Callable[[JsonObject], JsonObject]

#: how often a change is tried again when a webhook took so long that the object changed meanwhile
_ATTEMPTS: Final = 5
_NAME_ATTEMPTS: Final = 8
#: new objects whose fields are remembered
_OWNED: Final = 256
#: metadata that only the server writes; an update carries it over whatever the body says
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
class Deleted:
    """What a delete did: the object goes on for a while, or is gone."""

    record: Record
    gone: bool


class Writer:
    """Carries out writes."""

    def __init__(self, storage: Storage, registry: Registry, clock: Clock, admission: Admission) -> None:
        self.storage = storage
        self.registry = registry
        self.clock = clock
        self.admission = admission
        self._shaper = Shaper()
        self._second, self._stamp = -1, ""
        #: fields of new objects, by all that decides on them
        self._owned: dict[tuple[Any, ...], JsonObject] = {}

    def now(self) -> str:
        """Cluster time as Kubernetes writes it."""
        moment = self.clock.now()
        second = int(moment.timestamp())
        if second != self._second:
            self._second, self._stamp = second, metadata.timestamp(moment)
        return self._stamp

    async def create(self, call: Call, body: Any) -> Record:
        """Store a new object."""
        kind = call.kind
        obj = check_type(call, body)
        meta = obj["metadata"]
        self._place(call, meta)
        obj, found = self._shaped(call, obj)
        if self.admission.concerns(call):
            mutated = await self.admission.mutate(call, obj, None)
            if mutated is not obj:
                obj, found = self._shaped(call, mutated)
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
        meta["creationTimestamp"] = self.now()
        if kind.generation:
            meta["generation"] = 1
        else:
            meta.pop("generation", None)
        self._namespace_is_open(call)
        self._check_shape(call, obj, None, found)
        obj = strategies.prepare_create(self, call, obj)
        self._check_rules(call, obj, None)
        if self.admission.concerns(call):
            await self.admission.validate(call, obj, None)
        if self.storage.get(kind.store, call.key) is not None:
            raise apierrors.already_exists(kind.group, kind.plural, name)
        if call.verb != "apply":
            obj["metadata"].pop("managedFields", None)
        if call.tracked and call.verb != "apply":
            obj = self._tracked_new(call, obj)
        return self._store(call, obj)

    async def update(self, call: Call, change: Change, *, unconditional: bool = True) -> Record:
        """Replace an object by what `change` makes of it; again where somebody wrote while webhooks were asked."""
        for _ in range(_ATTEMPTS):
            old = self._present(call)
            before = old.object()
            wanted = change(before)
            if not unconditional and not check_type(call, wanted)["metadata"].get("resourceVersion"):
                raise apierrors.invalid(
                    call.kind.group,
                    call.kind.plural,
                    call.name,
                    [apierrors.wrong("metadata.resourceVersion", 0, "must be specified for an update")],
                )
            new = self._changed(call, before, wanted)
            if new is None:
                return old
            if self.admission.concerns(call):
                new = await self._admitted(call, new, before)
                if self.storage.get(call.kind.store, call.key) is not old:
                    continue
            return self._finish(call, old, new)
        raise apierrors.conflict(call.kind.group, call.kind.plural, call.name)

    async def delete(self, call: Call, options: Mapping[str, Any]) -> Deleted:
        """Delete an object, or begin to."""
        if self.admission.concerns(call):
            old = self._present(call)
            await self.admission.validate(call, None, old.object())
        return self.delete_now(call, options)

    def delete_now(self, call: Call, options: Mapping[str, Any]) -> Deleted:
        """Delete without asking admission: garbage collection, namespaces that are emptied."""
        kind = call.kind
        old = self._present(call)
        obj = old.object()
        deletion.check_preconditions(kind, call.name, obj, options)
        plan = deletion.planned(kind, obj, options)
        if plan is None:
            if call.dry_run:
                return Deleted(old, True)
            return Deleted(self.storage.remove(kind.store, call.key), True)
        meta = {**obj["metadata"]}
        if plan.finalizers:
            meta["finalizers"] = plan.finalizers
        if "deletionTimestamp" not in meta or plan.grace_s < int(meta.get("deletionGracePeriodSeconds") or 0):
            until = self.clock.now() + timedelta(seconds=plan.grace_s)
            meta["deletionTimestamp"] = metadata.timestamp(until)
            meta["deletionGracePeriodSeconds"] = plan.grace_s
            if kind.generation:
                meta["generation"] = int(meta.get("generation") or 0) + 1
        new = strategies.prepare_delete(kind, {**obj, "metadata": meta})
        if new["metadata"] == obj["metadata"]:
            return Deleted(old, False)
        return Deleted(self._store(call, new), False)

    def remove_finalizer(self, call: Call, finalizer: str) -> None:
        """Take one finalizer away; the object goes if it waited for nothing else."""
        old = self.storage.get(call.kind.store, call.key)
        if old is None:
            return
        obj = old.object()
        kept = [name for name in obj["metadata"].get("finalizers") or () if name != finalizer]
        new = {**obj, "metadata": {**obj["metadata"], "finalizers": kept}}
        if not kept:
            del new["metadata"]["finalizers"]
        self._finish(call, old, new)

    def write(self, kind: Kind, obj: JsonObject) -> Record:
        """Store what the server itself has made, without checks; metadata must be the caller's own dict."""
        meta = obj["metadata"]
        call = Call("update", kind, meta.get("namespace", ""), meta["name"])
        return self._store(call, obj)

    def _place(self, call: Call, meta: JsonObject) -> None:
        given = meta.get("namespace") or ""
        if call.kind.namespaced:
            if given and given != call.namespace:
                raise apierrors.bad_request(_OTHER_NAMESPACE)
            meta["namespace"] = call.namespace
        elif given:
            meta.pop("namespace")

    def _namespace_is_open(self, call: Call) -> None:
        kind = call.kind
        if not kind.namespaced:
            return
        namespace = self.storage.get(("", "namespaces"), call.namespace)
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

    def _free_name(self, kind: Kind, namespace: str, prefix: str) -> str:
        for _ in range(_NAME_ATTEMPTS):
            name = metadata.generated_name(prefix)
            if self.storage.get(kind.store, f"{namespace}/{name}" if kind.namespaced else name) is None:
                return name
        raise apierrors.already_exists(kind.group, kind.plural, prefix)

    def _present(self, call: Call) -> Record:
        record = self.storage.get(call.kind.store, call.key)
        if record is None:
            raise apierrors.not_found(call.kind.group, call.kind.plural, call.name)
        return record

    def _shaped(
        self, call: Call, obj: JsonObject, before: JsonObject | None = None
    ) -> tuple[JsonObject, list[FieldProblem]]:
        """Without unknown fields, with defaults, metadata as a dict of its own; and what is wrong with it."""
        found: list[FieldProblem] = []
        if call.kind.schema is not None:
            obj, unknown, found = self._shaper.shape(call.kind.schema, obj, before)
            if unknown:
                report_unknown(call, unknown)
        meta = obj.get("metadata")
        return {**obj, "metadata": dict(meta) if isinstance(meta, dict) else {}}, found

    def _changed(self, call: Call, before: JsonObject, body: Any) -> JsonObject | None:
        """The object to store in place of `before`, or None where nothing changes."""
        kind = call.kind
        wanted = check_type(call, body)
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
        if settled := _server_fields_changed(call, meta, old_meta):
            raise apierrors.invalid(kind.group, kind.kind, call.name, settled)
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
        wanted, found = self._shaped(call, wanted, before)
        self._check_shape(call, wanted, before, found)
        wanted = strategies.prepare_update(self, call, before, wanted)
        meta = wanted["metadata"]
        if _without_managed(wanted) == _without_managed(before):
            # Only the manager of an apply may be new; everything else is as it was.
            if call.verb != "apply" or meta.get("managedFields") == old_meta.get("managedFields"):
                return None
        elif kind.generation and _spec_differs(kind, before, wanted):
            meta["generation"] = int(old_meta.get("generation") or 0) + 1
        self._check_rules(call, wanted, before)
        if call.verb != "apply" and (call.tracked or _has_applied(old_meta)):
            wanted = self._tracked(call, before, wanted)
        return wanted

    async def _admitted(self, call: Call, new: JsonObject, before: JsonObject) -> JsonObject:
        mutated = await self.admission.mutate(call, new, before)
        if mutated is not new:
            new, found = self._shaped(call, mutated, before)
            for field in (*_SERVER_FIELDS, "name", "resourceVersion"):
                if field in before["metadata"] and field != "generation":
                    new["metadata"][field] = before["metadata"][field]
            self._check_shape(call, new, before, found)
            self._check_rules(call, new, before)
        await self.admission.validate(call, new, before)
        return new

    def _finish(self, call: Call, old: Record, new: JsonObject) -> Record:
        """Store, or remove what was only waiting for its last finalizer."""
        meta = new["metadata"]
        if "deletionTimestamp" in meta and not meta.get("finalizers") and deletion.is_over(call.kind, new):
            if call.dry_run:
                return old
            self._store(call, new)
            return self.storage.remove(call.kind.store, call.key)
        return self._store(call, new)

    def _check_shape(
        self, call: Call, obj: JsonObject, before: JsonObject | None, misshapen: list[FieldProblem]
    ) -> None:
        """Names, metadata and types; whatever comes after this may take types for granted."""
        kind = call.kind
        meta = obj["metadata"]
        found = metadata.name_problems(kind, meta["name"]) if before is None else []
        found += metadata.metadata_problems(meta, before["metadata"] if before is not None else {})
        if not found and before is not None and "deletionTimestamp" in before["metadata"]:
            found += deletion.finalizer_problems(before["metadata"], meta)
        if not kind.custom and call.verb in ("create", "update"):
            mistyped = [problem for problem in misshapen if problem.kind == TYPE_INVALID]
            if mistyped:
                raise apierrors.bad_request(unhandled(call, summary(mistyped)))
        found += [apierrors.Cause(problem.path, problem.kind, problem.message) for problem in misshapen]
        if found:
            raise apierrors.invalid(kind.group, kind.kind, meta["name"], found)

    def _check_rules(self, call: Call, obj: JsonObject, before: JsonObject | None) -> None:
        """The rules of the kind."""
        found = strategies.problems_of(self, call, obj, before)
        schema = call.kind.schema
        if before is not None and schema is not None and schema.watched:
            changes = transition_problems(schema, before, obj)
            found = [*found, *(apierrors.Cause(problem.path, problem.kind, problem.message) for problem in changes)]
        if found:
            raise apierrors.invalid(call.kind.group, call.kind.kind, obj["metadata"]["name"], found)

    def _tracked_new(self, call: Call, new: JsonObject) -> JsonObject:
        """A new object with its creator in managedFields.

        Which fields there are does not depend on names and stamps, and pods of a workload differ in nothing else, so
        the list of fields, which is dear to make, is remembered.
        """
        meta = new["metadata"]
        rest = {name: value for name, value in new.items() if name != "metadata"}
        named = [tuple(meta.get(field) or ()) for field in ("labels", "annotations", "finalizers")]
        owners = tuple(owner.get("uid") for owner in meta.get("ownerReferences") or ())
        key = (call.kind.api_version, encode(rest), tuple(named), owners, "generateName" in meta)
        known = self._owned.get(key)
        if known is None:
            tracked = self._tracked(call, None, new)
            entries = tracked["metadata"].get("managedFields") or []
            if len(entries) == 1:
                if len(self._owned) >= _OWNED:
                    del self._owned[next(iter(self._owned))]
                self._owned[key] = entries[0]
            return tracked
        meta["managedFields"] = [{**known, "manager": call.manager, "time": self.now()}]
        return new

    def _tracked(self, call: Call, before: JsonObject | None, new: JsonObject) -> JsonObject:
        tracked = track_update(
            call.kind.schema, before, new, call.manager, self.now(), call.kind.api_version, call.subresource
        )
        return {**tracked, "metadata": dict(tracked["metadata"])}

    def _store(self, call: Call, obj: JsonObject) -> Record:
        kind = call.kind
        # In this order, whatever the client's: lists leave them out by it.
        rest = {name: value for name, value in obj.items() if name not in ("kind", "apiVersion")}
        obj = {"kind": kind.kind, "apiVersion": kind.storage_api_version, **rest}
        fields = metadata.fields_of(kind)(obj)
        try:
            if call.dry_run:
                present = self.storage.get(kind.store, call.key)
                if present is not None:
                    obj["metadata"]["resourceVersion"] = present.object()["metadata"]["resourceVersion"]
                return Record(call.key, self.storage.published, encode(obj), obj, fields)
            return self.storage.write(kind.store, call.key, obj, fields)
        except (OverflowError, UnicodeError, TypeError) as error:
            raise apierrors.bad_request(f"the object cannot be written as JSON: {error}") from None


def _server_fields_changed(call: Call, meta: JsonObject, old_meta: JsonObject) -> list[apierrors.Cause]:
    """What an update says about fields that are settled; a plain update of another uid is a conflict instead."""
    fields = ["deletionTimestamp", "deletionGracePeriodSeconds"]
    if call.verb == "patch":
        fields.append("uid")
    return [
        apierrors.wrong(f"metadata.{field}", meta[field], "field is immutable")
        for field in fields
        if meta.get(field) is not None and meta[field] != old_meta.get(field)
    ]


def _without_managed(obj: JsonObject) -> JsonObject:
    meta = obj["metadata"]
    if "managedFields" not in meta:
        return obj
    return {**obj, "metadata": {name: value for name, value in meta.items() if name != "managedFields"}}


def _spec_differs(kind: Kind, before: JsonObject, new: JsonObject) -> bool:
    if kind.custom and not kind.status:
        ignored = {"metadata", "apiVersion", "kind"}
    else:
        ignored = {"metadata", "status", "apiVersion", "kind"}
    return any(before.get(field) != new.get(field) for field in (before.keys() | new.keys()) - ignored)


def _has_applied(meta: JsonObject) -> bool:
    return any(entry.get("operation") == "Apply" for entry in meta.get("managedFields") or ())
