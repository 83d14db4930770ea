"""Field ownership: server-side apply, and the entries that other writes leave in `metadata.managedFields`.

    apply(schema, live, config, manager, force, now, api_version, subresource) -> the new object
    track_update(schema, old, new, manager, now, api_version, subresource)     -> new, with its managedFields

An applier names the fields it wants to own. Changing a field of another manager is a conflict, and `ApplyConflicts`
names the fields; `force` takes them over. A field that the last apply named and this one does not is removed, unless
another manager owns it too. Any other write owns what it changed. The schema decides which parts of an object are one
field and which are many: `schema.fieldsets`.

Subtle: entries are keyed by manager, operation and subresource, those of updates also by apiVersion. An apply that
changes nothing changes no time either. An untracked object (its managedFields were removed) gets an entry
`before-first-apply` for all its fields at the first apply. The caller drops what the request may not write (the status,
or all but the status) before it calls.

Statements: apiserver:ownership.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pykai.api.names import LAST_APPLIED_ANNOTATION
from pykai.api.unstructured import JsonObject
from pykai.lab.apiserver.patches import PatchError
from pykai.lab.apiserver.schema import fieldsets
from pykai.lab.apiserver.schema.fieldsets import FieldSet, Path
from pykai.lab.apiserver.schema.model import SchemaNode

_APPLY: Final = "Apply"
_UPDATE: Final = "Update"
_BEFORE: Final = "before-first-apply"
_ANCIENT: Final = "ancient-changes"
_KUBECTL: Final = "kubectl"
#: Maximum number of update entries; older ones are merged.
_MAX_UPDATERS: Final = 10
#: Identifying and server-set fields have no owner.
_UNMANAGED_FIELDS: Final[FieldSet] = {
    ("f:apiVersion",),
    ("f:kind",),
    ("f:metadata",),
    *(
        ("f:metadata", f"f:{name}")
        for name in (
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
        )
    ),
}


@dataclass(frozen=True, slots=True)
class _FieldManager:
    manager: str
    operation: str
    #: empty for appliers, which own a field in any version
    api_version: str
    subresource: str

    def __str__(self) -> str:
        text = f'"{self.manager}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return f"{text} using {self.api_version}" if self.operation == _UPDATE else text


@dataclass(frozen=True, slots=True)
class _ManagedEntry:
    fields: FieldSet
    time: str
    api_version: str


_ManagersByIdentity = dict[_FieldManager, _ManagedEntry]


class ApplyConflicts(Exception):
    """Other managers own fields that an apply would change; the text is Kubernetes'."""

    def __init__(self, conflicts: Iterable[tuple[_FieldManager, Path]]) -> None:
        conflicting_fields = sorted(((str(who), fieldsets.format_path(path)) for who, path in conflicts))
        #: causes of the Status, one per field
        self.causes = [
            {"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": field}
            for who, field in conflicting_fields
        ]
        if len(conflicting_fields) == 1:
            who, field = conflicting_fields[0]
            super().__init__(f"Apply failed with 1 conflict: conflict with {who}: {field}")
            return
        lines = []
        for who in dict.fromkeys(who for who, _ in conflicting_fields):
            lines.append(f"conflicts with {who}:")
            lines += [f"- {field}" for other, field in conflicting_fields if other == who]
        super().__init__(f"Apply failed with {len(conflicting_fields)} conflicts: " + "\n".join(lines))


def apply(
    schema: SchemaNode | None,
    live: JsonObject | None,
    config: Mapping[str, Any],
    manager: str,
    force: bool,
    now: str,
    api_version: str,
    subresource: str = "",
) -> JsonObject:
    """The object after an apply; the live object itself when that changes nothing."""
    if (config.get("metadata") or {}).get("managedFields"):
        raise PatchError("metadata.managedFields must be nil", 400)
    before = _without_managed_fields(live) if live is not None else {}
    managers = _decoded_managers(live)
    if live is not None and not managers:
        fields = fieldsets.difference(schema, {}, before).added - _UNMANAGED_FIELDS
        managers[_FieldManager(_BEFORE, _UPDATE, api_version, "")] = _ManagedEntry(fields, now, api_version)
    who = _FieldManager(manager or "unknown", _APPLY, "", subresource)
    last = managers.get(who)
    applied_fields = fieldsets.applied_fields(schema, config)
    try:
        after = fieldsets.merge(schema, before, config)
    except fieldsets.DuplicateKey as error:
        raise PatchError(str(error)) from None
    others = {other: entry for other, entry in managers.items() if other != who}
    if last is not None:
        still_owned = applied_fields.union(*(entry.fields for entry in others.values()))
        after = fieldsets.remove_fields(schema, after, last.fields, still_owned)
    changes = fieldsets.difference(schema, before, after)
    contested = changes.added | changes.modified
    conflicts = [(other, path) for other, entry in others.items() for path in entry.fields & contested]
    if (
        conflicts
        and not force
        and not _was_set_by_client_side_apply(schema, before, manager, {path for _, path in conflicts})
    ):
        raise ApplyConflicts(conflicts)
    after = _with_last_applied(before, after, config, manager)
    owned = applied_fields - _UNMANAGED_FIELDS
    same_object = not (changes.added or changes.modified or changes.removed) and after == before
    if live is not None and same_object and last is not None and last.fields == owned:
        return live
    time = last.time if last is not None and same_object else now
    result = _without_fields(others, contested | changes.removed)
    if owned:
        result[who] = _ManagedEntry(owned, time, api_version)
    return _with_managers(after, result)


def track_update(
    schema: SchemaNode | None,
    old: JsonObject | None,
    new: JsonObject,
    manager: str,
    now: str,
    api_version: str,
    subresource: str = "",
) -> JsonObject:
    """The new object with updated managedFields; the caller's `new` may carry its own."""
    given = _managed_fields_of(new)
    after = _without_managed_fields(new)
    if subresource or not given:
        wiped = given is not None and not subresource
        record = [] if wiped else _managed_fields_of(old) or []
    else:
        record = given if any(given) else []
    if old is None:
        fields = _without_unmanaged_fields(fieldsets.created_fields(schema, after))
        if not fields:
            return after
        return _with_managed_entries(after, [_managed_entry(manager, _UPDATE, api_version, now, fields, subresource)])
    if not record:
        return after
    changes = fieldsets.difference(schema, _without_managed_fields(old), after)
    changed = changes.added | changes.modified
    if not changed and not changes.removed:
        return _with_managed_entries(after, record)
    lost = fieldsets.encode_fields(changed | changes.removed)
    changed_fields = fieldsets.encode_fields(changed - _UNMANAGED_FIELDS)
    entries = []
    own_fields: JsonObject | None = None
    who = (manager or "unknown", _UPDATE, api_version, subresource)
    for entry in record:
        if not isinstance(entry, dict) or not isinstance(entry.get("fieldsV1"), dict):
            continue
        left = fieldsets.subtract_fields(entry["fieldsV1"], lost)
        if _identity(entry) == who and changed_fields:
            own_fields = left
        elif left is entry["fieldsV1"]:
            entries.append(entry)
        elif left:
            entries.append({**entry, "fieldsV1": left})
    if changed_fields:
        fields = fieldsets.add_fields(own_fields or {}, changed_fields)
        entries.append(_managed_entry(manager, _UPDATE, api_version, now, fields, subresource))
    return _with_managed_entries(after, _merge_oldest_updaters(entries))


def _identity(entry: JsonObject) -> tuple[str, str, str, str]:
    return (
        str(entry.get("manager") or "unknown"),
        str(entry.get("operation") or _UPDATE),
        str(entry.get("apiVersion") or ""),
        str(entry.get("subresource") or ""),
    )


def _without_unmanaged_fields(fields: JsonObject) -> JsonObject:
    """FieldsV1 of a new object without fields that have no owner."""
    kept = {name: node for name, node in fields.items() if (name,) not in _UNMANAGED_FIELDS}
    metadata = {
        name: node
        for name, node in fields.get("f:metadata", {}).items()
        if ("f:metadata", name) not in _UNMANAGED_FIELDS
    }
    return {"f:metadata": metadata, **kept} if metadata else kept


def _was_set_by_client_side_apply(schema: SchemaNode | None, live: JsonObject, manager: str, paths: FieldSet) -> bool:
    """Whether kubectl set these fields by client-side apply, and they have not changed since."""
    try:
        applied = json.loads(_last_applied(live)) if manager == _KUBECTL else None
    except ValueError:
        return False
    if not isinstance(applied, dict):
        return False
    changes = fieldsets.difference(schema, applied, live)
    return paths <= fieldsets.applied_fields(schema, applied) - changes.added - changes.modified - changes.removed


def _last_applied(obj: JsonObject) -> str:
    annotations = (obj.get("metadata") or {}).get("annotations")
    return str(annotations.get(LAST_APPLIED_ANNOTATION) or "") if isinstance(annotations, dict) else ""


def _with_last_applied(before: JsonObject, after: JsonObject, config: Mapping[str, Any], manager: str) -> JsonObject:
    """Update kubectl's last-applied annotation, if there is one, so that both ways of apply agree."""
    if manager != _KUBECTL or not _last_applied(before):
        return after
    metadata = dict(config.get("metadata") or {})
    noted = {
        name: value for name, value in (metadata.get("annotations") or {}).items() if name != LAST_APPLIED_ANNOTATION
    }
    metadata["annotations"] = noted
    text = json.dumps({**config, "metadata": metadata}, sort_keys=True, separators=(",", ":")) + "\n"
    annotations = {**(after["metadata"].get("annotations") or {}), LAST_APPLIED_ANNOTATION: text}
    return {**after, "metadata": {**after["metadata"], "annotations": annotations}}


def _without_fields(managers: _ManagersByIdentity, lost: FieldSet) -> _ManagersByIdentity:
    """The entries without these fields; empty entries are dropped."""
    result: _ManagersByIdentity = {}
    for who, entry in managers.items():
        left = entry.fields - lost
        if left:
            result[who] = (
                entry if len(left) == len(entry.fields) else _ManagedEntry(left, entry.time, entry.api_version)
            )
    return result


def _merge_oldest_updaters(entries: list[JsonObject]) -> list[JsonObject]:
    """The entries, with the oldest surplus updaters merged by version."""
    updaters = [entry for entry in entries if entry.get("operation") == _UPDATE]
    if len(updaters) <= _MAX_UPDATERS:
        return entries
    updaters.sort(key=lambda entry: (str(entry.get("time") or ""), str(entry.get("manager"))))
    oldest = updaters[: len(updaters) - _MAX_UPDATERS + 1]
    buckets: dict[str, JsonObject] = {}
    for entry in oldest:
        version = str(entry.get("apiVersion") or "")
        present = buckets.get(version)
        fields = fieldsets.add_fields(present["fieldsV1"], entry["fieldsV1"]) if present else entry["fieldsV1"]
        buckets[version] = _managed_entry(_ANCIENT, _UPDATE, version, str(entry.get("time") or ""), fields, "")
    kept = [entry for entry in entries if not any(entry is old for old in oldest)]
    return [*kept, *buckets.values()]


def _managed_fields_of(obj: JsonObject | None) -> list[Any] | None:
    metadata = obj.get("metadata") if obj is not None else None
    record = metadata.get("managedFields") if isinstance(metadata, dict) else None
    return record if isinstance(record, list) else None


def _decoded_managers(obj: JsonObject | None) -> _ManagersByIdentity:
    """The managers of an object; an unreadable record counts as none."""
    managers: _ManagersByIdentity = {}
    for entry in _managed_fields_of(obj) or ():
        if not isinstance(entry, dict) or not isinstance(entry.get("fieldsV1"), dict):
            continue
        version = str(entry.get("apiVersion") or "")
        operation = _APPLY if entry.get("operation") == _APPLY else _UPDATE
        who = _FieldManager(
            str(entry.get("manager") or "unknown"),
            operation,
            "" if operation == _APPLY else version,
            str(entry.get("subresource") or ""),
        )
        managers[who] = _ManagedEntry(fieldsets.decode_fields(entry["fieldsV1"]), str(entry.get("time") or ""), version)
    return managers


def _without_managed_fields(obj: JsonObject) -> JsonObject:
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return obj
    return {**obj, "metadata": {name: value for name, value in metadata.items() if name != "managedFields"}}


def _with_managers(obj: JsonObject, managers: _ManagersByIdentity) -> JsonObject:
    entries = [
        _managed_entry(
            who.manager,
            who.operation,
            entry.api_version,
            entry.time,
            fieldsets.encode_fields(entry.fields),
            who.subresource,
        )
        for who, entry in managers.items()
    ]
    return _with_managed_entries(obj, entries)


def _managed_entry(
    manager: str, operation: str, api_version: str, time: str, fields: JsonObject, subresource: str
) -> JsonObject:
    entry: JsonObject = {
        "manager": manager or "unknown",
        "operation": operation,
        "apiVersion": api_version,
        "time": time,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    if not time:
        del entry["time"]
    if subresource:
        entry["subresource"] = subresource
    return entry


def _with_managed_entries(obj: JsonObject, entries: list[JsonObject]) -> JsonObject:
    if not entries:
        return obj

    def order(entry: JsonObject) -> tuple[str, ...]:
        names = ("operation", "time", "manager", "apiVersion", "subresource")
        return tuple(str(entry.get(name) or "") for name in names)

    return {**obj, "metadata": {**(obj.get("metadata") or {}), "managedFields": sorted(entries, key=order)}}
