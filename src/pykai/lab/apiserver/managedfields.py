"""Who owns which field: server-side apply, and the record that every other write leaves in `metadata.managedFields`.

    apply(schema, live, config, manager, force, now, api_version, subresource) -> the new object
    track_update(schema, old, new, manager, now, api_version, subresource)     -> new, with its managedFields

An applier names the fields it cares for.  It gets them, unless that changes a field of another manager: that is a
conflict, and `Conflicts` names the fields; with `force` it takes them.  A field it named last time and no longer names
goes, unless somebody else owns it too.  Any other write owns what it changed.  Which parts of an object are one field
and which are many is the schema's matter: `schema.fieldsets`.

Subtle: an entry is told apart by manager, operation and subresource, of updates also by apiVersion.  Nothing changes,
not even a time, when an apply says what is already so.  An object that nobody tracked (its managedFields were removed)
gets an entry of `before-first-apply` for all it has when it is first applied.  The caller drops what the request may
not write (the status, or all but the status) before it calls.

Statements: apiserver:ownership.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pykai.api.names import LAST_APPLIED_ANNOTATION
from pykai.lab.apiserver.patches import PatchError
from pykai.lab.apiserver.schema import fieldsets
from pykai.lab.apiserver.schema.fieldsets import FieldSet, Path
from pykai.lab.apiserver.schema.model import Schema

Object = dict[str, Any]

_APPLY: Final = "Apply"
_UPDATE: Final = "Update"
_BEFORE: Final = "before-first-apply"
_ANCIENT: Final = "ancient-changes"
_KUBECTL: Final = "kubectl"
#: Entries of updates that are kept apart; the oldest beyond are put together.
_MOST_UPDATERS: Final = 10
#: What identifies an object or is the server's own is nobody's field.
_NOBODYS: Final[FieldSet] = {
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
class _Who:
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
class _Entry:
    fields: FieldSet
    time: str
    api_version: str


_Managers = dict[_Who, _Entry]


class Conflicts(Exception):
    """Other managers own fields that an apply would change; the text is Kubernetes'."""

    def __init__(self, conflicts: Iterable[tuple[_Who, Path]]) -> None:
        found = sorted(((str(who), fieldsets.shown(path)) for who, path in conflicts))
        #: causes of the Status, one a field
        self.causes = [
            {"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": field}
            for who, field in found
        ]
        if len(found) == 1:
            who, field = found[0]
            super().__init__(f"Apply failed with 1 conflict: conflict with {who}: {field}")
            return
        lines = []
        for who in dict.fromkeys(who for who, _ in found):
            lines.append(f"conflicts with {who}:")
            lines += [f"- {field}" for other, field in found if other == who]
        super().__init__(f"Apply failed with {len(found)} conflicts: " + "\n".join(lines))


def apply(
    schema: Schema | None,
    live: Object | None,
    config: Mapping[str, Any],
    manager: str,
    force: bool,
    now: str,
    api_version: str,
    subresource: str = "",
) -> Object:
    """The object after an apply; the live object itself when that changes nothing."""
    if (config.get("metadata") or {}).get("managedFields"):
        raise PatchError("metadata.managedFields must be nil", 400)
    before = _without_record(live) if live is not None else {}
    managers = _recorded(live)
    if live is not None and not managers:
        fields = fieldsets.difference(schema, {}, before).added - _NOBODYS
        managers[_Who(_BEFORE, _UPDATE, api_version, "")] = _Entry(fields, now, api_version)
    who = _Who(manager or "unknown", _APPLY, "", subresource)
    last = managers.get(who)
    wanted = fieldsets.fields_of(schema, config)
    try:
        after = fieldsets.merged(schema, before, config)
    except fieldsets.DuplicateKey as error:
        raise PatchError(str(error)) from None
    others = {other: entry for other, entry in managers.items() if other != who}
    if last is not None:
        kept = wanted.union(*(entry.fields for entry in others.values()))
        after = fieldsets.pruned_of(schema, after, last.fields, kept)
    changes = fieldsets.difference(schema, before, after)
    contested = changes.added | changes.modified
    conflicts = [(other, path) for other, entry in others.items() for path in entry.fields & contested]
    if conflicts and not force and not _was_mine(schema, before, manager, {path for _, path in conflicts}):
        raise Conflicts(conflicts)
    after = _with_last_applied(before, after, config, manager)
    owned = wanted - _NOBODYS
    same_object = not (changes.added or changes.modified or changes.removed) and after == before
    if live is not None and same_object and last is not None and last.fields == owned:
        return live
    time = last.time if last is not None and same_object else now
    result = _reduced(others, contested | changes.removed)
    if owned:
        result[who] = _Entry(owned, time, api_version)
    return _with_record(after, result)


def track_update(
    schema: Schema | None,
    old: Object | None,
    new: Object,
    manager: str,
    now: str,
    api_version: str,
    subresource: str = "",
) -> Object:
    """The new object with managedFields that say who changed what; the caller's `new` may carry its own record."""
    given = _record_of(new)
    after = _without_record(new)
    if subresource or not given:
        wiped = given is not None and not subresource
        record = [] if wiped else _record_of(old) or []
    else:
        record = given if any(given) else []
    if old is None:
        fields = _nobodys_left_out(fieldsets.created(schema, after))
        if not fields:
            return after
        return _with_entries(after, [_line(manager, _UPDATE, api_version, now, fields, subresource)])
    if not record:
        return after
    changes = fieldsets.difference(schema, _without_record(old), after)
    changed = changes.added | changes.modified
    if not changed and not changes.removed:
        return _with_entries(after, record)
    lost = fieldsets.encoded(changed | changes.removed)
    taken = fieldsets.encoded(changed - _NOBODYS)
    entries = []
    mine: Object | None = None
    who = (manager or "unknown", _UPDATE, api_version, subresource)
    for entry in record:
        if not isinstance(entry, dict) or not isinstance(entry.get("fieldsV1"), dict):
            continue
        left = fieldsets.minus(entry["fieldsV1"], lost)
        if _identity(entry) == who and taken:
            mine = left
        elif left is entry["fieldsV1"]:
            entries.append(entry)
        elif left:
            entries.append({**entry, "fieldsV1": left})
    if taken:
        fields = fieldsets.plus(mine or {}, taken)
        entries.append(_line(manager, _UPDATE, api_version, now, fields, subresource))
    return _with_entries(after, _capped(entries))


def _identity(entry: Object) -> tuple[str, str, str, str]:
    return (
        str(entry.get("manager") or "unknown"),
        str(entry.get("operation") or _UPDATE),
        str(entry.get("apiVersion") or ""),
        str(entry.get("subresource") or ""),
    )


def _nobodys_left_out(fields: Object) -> Object:
    """FieldsV1 of a new object without what is nobody's."""
    kept = {name: node for name, node in fields.items() if (name,) not in _NOBODYS}
    metadata = {
        name: node for name, node in fields.get("f:metadata", {}).items() if ("f:metadata", name) not in _NOBODYS
    }
    return {"f:metadata": metadata, **kept} if metadata else kept


def _was_mine(schema: Schema | None, live: Object, manager: str, paths: FieldSet) -> bool:
    """Whether kubectl set these fields itself, by an apply on the client's side, and nobody changed them since."""
    try:
        applied = json.loads(_last_applied(live)) if manager == _KUBECTL else None
    except ValueError:
        return False
    if not isinstance(applied, dict):
        return False
    changes = fieldsets.difference(schema, applied, live)
    return paths <= fieldsets.fields_of(schema, applied) - changes.added - changes.modified - changes.removed


def _last_applied(obj: Object) -> str:
    annotations = (obj.get("metadata") or {}).get("annotations")
    return str(annotations.get(LAST_APPLIED_ANNOTATION) or "") if isinstance(annotations, dict) else ""


def _with_last_applied(before: Object, after: Object, config: Mapping[str, Any], manager: str) -> Object:
    """kubectl's own note of what it applied last, kept true where there is one, so that both ways of apply agree."""
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


def _reduced(managers: _Managers, lost: FieldSet) -> _Managers:
    """The entries without these fields; an entry without any is gone."""
    result: _Managers = {}
    for who, entry in managers.items():
        left = entry.fields - lost
        if left:
            result[who] = entry if len(left) == len(entry.fields) else _Entry(left, entry.time, entry.api_version)
    return result


def _capped(entries: list[Object]) -> list[Object]:
    """The entries, with the oldest of too many updaters put together, those of one version into one."""
    updaters = [entry for entry in entries if entry.get("operation") == _UPDATE]
    if len(updaters) <= _MOST_UPDATERS:
        return entries
    updaters.sort(key=lambda entry: (str(entry.get("time") or ""), str(entry.get("manager"))))
    oldest = updaters[: len(updaters) - _MOST_UPDATERS + 1]
    buckets: dict[str, Object] = {}
    for entry in oldest:
        version = str(entry.get("apiVersion") or "")
        present = buckets.get(version)
        fields = fieldsets.plus(present["fieldsV1"], entry["fieldsV1"]) if present else entry["fieldsV1"]
        buckets[version] = _line(_ANCIENT, _UPDATE, version, str(entry.get("time") or ""), fields, "")
    kept = [entry for entry in entries if not any(entry is old for old in oldest)]
    return [*kept, *buckets.values()]


def _record_of(obj: Object | None) -> list[Any] | None:
    metadata = obj.get("metadata") if obj is not None else None
    record = metadata.get("managedFields") if isinstance(metadata, dict) else None
    return record if isinstance(record, list) else None


def _recorded(obj: Object | None) -> _Managers:
    """The managers of an object; a record that cannot be read counts as none."""
    managers: _Managers = {}
    for entry in _record_of(obj) or ():
        if not isinstance(entry, dict) or not isinstance(entry.get("fieldsV1"), dict):
            continue
        version = str(entry.get("apiVersion") or "")
        operation = _APPLY if entry.get("operation") == _APPLY else _UPDATE
        who = _Who(
            str(entry.get("manager") or "unknown"),
            operation,
            "" if operation == _APPLY else version,
            str(entry.get("subresource") or ""),
        )
        managers[who] = _Entry(fieldsets.decoded(entry["fieldsV1"]), str(entry.get("time") or ""), version)
    return managers


def _without_record(obj: Object) -> Object:
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return obj
    return {**obj, "metadata": {name: value for name, value in metadata.items() if name != "managedFields"}}


def _with_record(obj: Object, managers: _Managers) -> Object:
    lines = [
        _line(
            who.manager, who.operation, entry.api_version, entry.time, fieldsets.encoded(entry.fields), who.subresource
        )
        for who, entry in managers.items()
    ]
    return _with_entries(obj, lines)


def _line(manager: str, operation: str, api_version: str, time: str, fields: Object, subresource: str) -> Object:
    line: Object = {
        "manager": manager or "unknown",
        "operation": operation,
        "apiVersion": api_version,
        "time": time,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    if not time:
        del line["time"]
    if subresource:
        line["subresource"] = subresource
    return line


def _with_entries(obj: Object, entries: list[Object]) -> Object:
    if not entries:
        return obj

    def order(entry: Object) -> tuple[str, ...]:
        names = ("operation", "time", "manager", "apiVersion", "subresource")
        return tuple(str(entry.get(name) or "") for name in names)

    return {**obj, "metadata": {**(obj.get("metadata") or {}), "managedFields": sorted(entries, key=order)}}
