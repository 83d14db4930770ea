"""Normalises an object to its schema: drops unknown fields, fills in defaults, finds problems.

Every write passes here, so it does as little as possible: of an update it walks only top-level fields that are not
identical to the stored ones, and in these (except spec) only fields that are not; the spec of a new object is looked up
in a cache, since a workload's pods share theirs. On any problem the whole object is walked again for the full report.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from pykai.api.unstructured import JsonObject
from pykai.lab.apiserver.schema.defaulting import DEFAULTING_RULES
from pykai.lab.apiserver.schema.model import FieldProblem, SchemaNode
from pykai.lab.apiserver.schema.validation import apply_defaults, prune, validate
from pykai.lab.apiserver.storage import encode

#: cached specs, and the size of the largest
_MAX_CACHED_SPECS: Final = 512
_MAX_CACHED_SPEC_BYTES: Final = 16 << 10
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


class NormalisedObject(NamedTuple):
    """The result."""

    obj: JsonObject
    #: paths of unknown fields, which are gone
    unknown: list[str]
    problems: list[FieldProblem]


class Normaliser:
    """Normalises objects and caches specs."""

    def __init__(self) -> None:
        self._spec_cache: dict[tuple[int, bytes], Any] = {}

    def normalise(self, schema: SchemaNode, obj: JsonObject, before: JsonObject | None = None) -> NormalisedObject:
        """The normalised object; fields identical to `before`'s are taken to be valid."""
        if schema.checks or schema.name in DEFAULTING_RULES:
            return _normalise_fully(schema, obj)
        result = obj
        fields = schema.fields
        for name, value in obj.items():
            if before is not None and value is before.get(name):
                continue
            field = fields.get(name)
            if field is None or value is None:
                return _normalise_fully(schema, obj)
            if field.is_scalar:
                filled = value
                if validate(field, value):
                    return _normalise_fully(schema, obj)
            elif name == "metadata" and type(value) is dict and value.keys() <= _METADATA:
                # `metadata` checks these fields for every kind.
                filled = value
            elif name == "spec":
                filled = self._normalised_spec(field, value)
            else:
                filled = _normalise_changes(field, value, before.get(name) if before is not None else None)
            if filled is _INVALID:
                return _normalise_fully(schema, obj)
            if filled is not value:
                if result is obj:
                    result = dict(obj)
                result[name] = filled
        for name, default in schema.defaults.items():
            if name not in result or result[name] == "":
                result = {**result, name: default}
        for name in schema.required_nonempty if schema.builtin else schema.required:
            if not result.get(name):
                return _normalise_fully(schema, obj)
        return NormalisedObject(result, [], [])

    def _normalised_spec(self, schema: SchemaNode, spec: Any) -> Any:
        raw = encode(spec)
        if len(raw) > _MAX_CACHED_SPEC_BYTES:
            return _normalise_if_valid(schema, spec)
        # The id of a freed schema could be reused, so the cache holds the schema too.
        key = id(schema), raw
        cached = self._spec_cache.get(key)
        if cached is not None and cached[0] is schema:
            return cached[1]
        filled = _normalise_if_valid(schema, spec)
        if filled is not _INVALID:
            if len(self._spec_cache) >= _MAX_CACHED_SPECS:
                del self._spec_cache[next(iter(self._spec_cache))]
            self._spec_cache[key] = schema, filled
        return filled


_INVALID: Final = object()


def _normalise_if_valid(schema: SchemaNode, value: Any) -> Any:
    value, unknown = prune(schema, value)
    if unknown:
        return _INVALID
    try:
        value = apply_defaults(schema, value)
    except (TypeError, AttributeError):
        return _INVALID
    return _INVALID if validate(schema, value) else value


def _normalise_changes(schema: SchemaNode, value: Any, before: Any) -> Any:
    """The same for an update, skipping fields identical to `before`'s."""
    if type(value) is not dict or type(before) is not dict or schema.values is not None or schema.checks:
        return _normalise_if_valid(schema, value)
    if schema.name in DEFAULTING_RULES:
        return _normalise_if_valid(schema, value)
    changed = {name: inner for name, inner in value.items() if inner is not before.get(name)}
    if len(changed) == len(value):
        return _normalise_if_valid(schema, value)
    filled = _normalise_if_valid(schema, changed)
    if filled is changed or filled is _INVALID:
        return value if filled is changed else filled
    return {**value, **{name: inner for name, inner in filled.items() if name in changed or name not in value}}


def _normalise_fully(schema: SchemaNode, obj: JsonObject) -> NormalisedObject:
    obj, unknown = prune(schema, obj)
    try:
        filled = apply_defaults(schema, obj)
    except (TypeError, AttributeError):
        # A default that depends on a field of the wrong type; the walk below finds that field.
        problems_found = validate(schema, obj)
        if not problems_found:
            raise
        return NormalisedObject(obj, unknown, problems_found)
    return NormalisedObject(filled, unknown, validate(schema, filled))
