"""An object in the shape of its schema: unknown fields dropped, defaults filled in, problems found.

Every write passes here, so it does as little as it can: of an update only the top-level fields that are not the very
ones stored are walked, and of these, spec aside, only fields that are not; the spec of a new object is looked up among
those seen lately, since a workload's pods share theirs.  As soon as anything is out of order, the whole object is
walked again for the full and exact report.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from pykai.lab.apiserver.schema.defaulting import RULES
from pykai.lab.apiserver.schema.model import FieldProblem, Schema
from pykai.lab.apiserver.schema.validation import problems, pruned, with_defaults
from pykai.lab.apiserver.storage import encode

JsonObject = dict[str, Any]

#: specs that are remembered, and the largest one
_MEMO: Final = 512
_MEMO_BYTES: Final = 16 << 10
_METADATA: Final = frozenset(
    {
        "annotations",
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "labels",
        "managedFields",
        "name",
        "namespace",
        "ownerReferences",
        "resourceVersion",
        "uid",
    }
)


class Shaped(NamedTuple):
    """What came of it."""

    obj: JsonObject
    #: paths of unknown fields, which are gone
    unknown: list[str]
    problems: list[FieldProblem]


class Shaper:
    """Shapes objects, and remembers specs."""

    def __init__(self) -> None:
        self._memo: dict[tuple[int, bytes], Any] = {}

    def shape(self, schema: Schema, obj: JsonObject, before: JsonObject | None = None) -> Shaped:
        """The object shaped; fields that are `before`'s own are taken to be in order."""
        if schema.checks or schema.name in RULES:
            return _whole(schema, obj)
        result = obj
        fields = schema.fields
        for name, value in obj.items():
            if before is not None and value is before.get(name):
                continue
            field = fields.get(name)
            if field is None or value is None:
                return _whole(schema, obj)
            if field.scalar:
                filled = value
                if problems(field, value):
                    return _whole(schema, obj)
            elif name == "metadata" and type(value) is dict and value.keys() <= _METADATA:
                # What is in these fields is checked by `metadata`, whatever the kind.
                filled = value
            elif name == "spec":
                filled = self._spec(field, value)
            else:
                filled = _changes_in_order(field, value, before.get(name) if before is not None else None)
            if filled is _OUT_OF_ORDER:
                return _whole(schema, obj)
            if filled is not value:
                if result is obj:
                    result = dict(obj)
                result[name] = filled
        for name, default in schema.defaults.items():
            if name not in result or result[name] == "":
                result = {**result, name: default}
        for name in schema.essential if schema.builtin else schema.required:
            if not result.get(name):
                return _whole(schema, obj)
        return Shaped(result, [], [])

    def _spec(self, schema: Schema, spec: Any) -> Any:
        raw = encode(spec)
        if len(raw) > _MEMO_BYTES:
            return _in_order(schema, spec)
        # Schemas live as long as their kind; a dead one's id could come again, so the memo holds the schema too.
        key = id(schema), raw
        known = self._memo.get(key)
        if known is not None and known[0] is schema:
            return known[1]
        filled = _in_order(schema, spec)
        if filled is not _OUT_OF_ORDER:
            if len(self._memo) >= _MEMO:
                del self._memo[next(iter(self._memo))]
            self._memo[key] = schema, filled
        return filled


_OUT_OF_ORDER: Final = object()


def _in_order(schema: Schema, value: Any) -> Any:
    value, unknown = pruned(schema, value)
    if unknown:
        return _OUT_OF_ORDER
    try:
        value = with_defaults(schema, value)
    except (TypeError, AttributeError):
        return _OUT_OF_ORDER
    return _OUT_OF_ORDER if problems(schema, value) else value


def _changes_in_order(schema: Schema, value: Any, before: Any) -> Any:
    """The same, where fields that are `before`'s own need no look: a status of which one condition changes."""
    if type(value) is not dict or type(before) is not dict or schema.values is not None or schema.checks:
        return _in_order(schema, value)
    if schema.name in RULES:
        return _in_order(schema, value)
    changed = {name: inner for name, inner in value.items() if inner is not before.get(name)}
    if len(changed) == len(value):
        return _in_order(schema, value)
    filled = _in_order(schema, changed)
    if filled is changed or filled is _OUT_OF_ORDER:
        return value if filled is changed else filled
    return {**value, **{name: inner for name, inner in filled.items() if name in changed or name not in value}}


def _whole(schema: Schema, obj: JsonObject) -> Shaped:
    obj, unknown = pruned(schema, obj)
    try:
        filled = with_defaults(schema, obj)
    except (TypeError, AttributeError):
        # A default that depends on a field of the wrong type; the walk below finds that field.
        found = problems(schema, obj)
        if not found:
            raise
        return Shaped(obj, unknown, found)
    return Shaped(filled, unknown, problems(schema, filled))
