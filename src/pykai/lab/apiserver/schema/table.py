"""Schemas of kinds: built-in ones from a checked-in table, those of CRDs from their OpenAPI schema.

`builtin_schema` gives the graph of a built-in kind, made at first use from `builtin.json`, which
`tools/schemas/make.py` makes from Kubernetes' Go modules.  `crd_schema` reads a structural OpenAPI v3 schema.  Both
give `model.SchemaNode`.

Subtle: a CRD's `metadata` has the built-in shape whatever its schema says, and apiVersion, kind and metadata are never
unknown.  A list without a list type is atomic; a map or an object is granular unless the schema says otherwise.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from importlib import resources
from typing import Any, Final

import msgspec

from pykai.lab.apiserver.schema.celrules import transition_checks
from pykai.lab.apiserver.schema.checks import compile_checks
from pykai.lab.apiserver.schema.model import SchemaNode

_SCALARS: Final = {
    "string": ("string", ""),
    "boolean": ("boolean", ""),
    "int32": ("integer", "int32"),
    "int64": ("integer", "int64"),
    "double": ("number", "double"),
    "bytes": ("string", "bytes"),
    "quantity": ("any", "quantity"),
    "intorstring": ("any", "int-or-string"),
    "time": ("string", "time"),
    "microtime": ("string", "microtime"),
    "duration": ("string", "duration"),
    "any": ("any", ""),
    "schema-or-array": ("any", "schema-or-array"),
    "schema-or-boolean": ("any", "schema-or-boolean"),
    "schema-or-strings": ("any", "schema-or-strings"),
}
#: Fields that Kubernetes got after the version of the table: gangs in the form of 1.36.  Their numbers matter to
#: protobuf clients alone, and those of this version send none of them.
_FIELDS_OF_LATER_RELEASES: Final[Mapping[str, Mapping[str, Any]]] = {
    "core.v1.PodSchedulingGroup": {"podGroupName": {"n": 1, "t": "string"}},
    "core.v1.PodSpec": {"schedulingGroup": {"n": 43, "t": "#core.v1.PodSchedulingGroup"}},
}
#: schemas of CRDs that are kept: those of all kinds that a cluster of ours has
_KEPT_SCHEMAS: Final = 64
_OBJECT_META: Final = "meta.v1.ObjectMeta"


@cache
def builtin_schema(group: str, version: str, kind: str) -> SchemaNode | None:
    """The schema of a built-in kind; None for any other."""
    name = builtin_kinds().get(f"{group}/{version}/{kind}".removeprefix("/"))
    return struct_schema(name) if name is not None else None


@cache
def builtin_kinds() -> Mapping[str, str]:
    """The built-in kinds as `group/version/Kind` (`v1/Pod`) with their definition."""
    kinds: dict[str, str] = _table()["kinds"]
    return kinds


def struct_schema(name: str) -> SchemaNode:
    """A struct of the built-in table by its name there, like `core.v1.PodSpec`."""
    return _TableReader(_table()["definitions"]).struct(name)


def table_entries(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The table's own entries of these structs and of all they refer to."""
    table = _table()["definitions"]
    entries: dict[str, dict[str, Any]] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in entries:
            continue
        entries[name] = table[name]
        waiting += [inner for _, inner in table[name].get("inline", ())]
        for entry in table[name]["fields"].values():
            if "#" in entry["t"]:
                waiting.append(entry["t"].rpartition("#")[2])
            elif entry["t"].rpartition("]")[2].rpartition("}")[2].startswith("schema-or"):
                waiting.append("apiextensions.v1.JSONSchemaProps")
    return entries


@cache
def _table() -> dict[str, Any]:
    text = resources.files("pykai.lab.apiserver.schema").joinpath("builtin.json").read_bytes()
    table: dict[str, Any] = json.loads(text)
    definitions = table["definitions"]
    for name, fields in _FIELDS_OF_LATER_RELEASES.items():
        definitions.setdefault(name, {"fields": {}})["fields"].update(fields)
    return table


#: Structs made so far, by name; shared by all kinds.
_structs: dict[str, SchemaNode] = {}


class _TableReader:
    def __init__(self, table: Mapping[str, Any]) -> None:
        self._table = table

    def struct(self, name: str) -> SchemaNode:
        made = _structs.get(name)
        if made is not None:
            return made
        entry = self._table[name]
        schema = SchemaNode("object", name=name, builtin=True, atomic=bool(entry.get("atomic")))
        schema.required_nonempty = tuple(entry.get("essential", ()))
        # Registered before its fields are built: a field may refer back to it.
        _structs[name] = schema
        required = []
        for field, facts in entry["fields"].items():
            child = self._field(facts)
            if "w" in facts:
                # The same struct with defaults of its own, and a name of its own for the rules that depend on others.
                child = dataclasses.replace(
                    child, name=f"{name}.{field}", defaults={**child.defaults, **facts["w"]}, defaulting=None
                )
            schema.add_field(field, child)
            if facts.get("r"):
                required.append(field)
            if (facts.get("z") and facts["t"].startswith("#")) or (facts.get("r") and facts["t"].startswith("[]")):
                schema.by_value.add(field)
            if "d" in facts:
                schema.defaults[field] = facts["d"]
            if "n" in facts:
                schema.numbers[facts["n"]] = (field, bool(facts.get("z")))
        for number, inner_name in entry.get("inline", ()):
            inner = self.struct(inner_name)
            for field, child in inner.fields.items():
                schema.add_field(field, child)
            schema.defaults.update(inner.defaults)
            schema.by_value |= inner.by_value
            required += inner.required
            schema.required_nonempty += inner.required_nonempty
            if number:
                schema.numbers[number] = ("", True)
                schema.inline[number] = inner
        schema.required = tuple(required)
        return schema

    def _field(self, facts: Mapping[str, Any]) -> SchemaNode:
        schema = self._typed(facts["t"])
        if schema.name and (facts.get("a") or "p" in facts):
            # Share the dicts, so that a struct that is still being read is complete here, too.
            schema = dataclasses.replace(schema)
        elif schema.type in ("object", "list") and not schema.name:
            schema.list_type = facts.get("l", "atomic")
            schema.keys = tuple(facts.get("k", ()))
        if "e" in facts:
            schema.enum = tuple(facts["e"])
        if facts.get("a"):
            schema.atomic = True
        schema.patch = facts.get("p", "")
        schema.patch_key = facts.get("pk", "")
        return schema

    def _typed(self, written: str) -> SchemaNode:
        if written.startswith("#"):
            return self.struct(written[1:])
        if written.startswith("[]"):
            return SchemaNode("list", builtin=True, items=self._typed(written[2:]))
        if written.startswith("<>"):
            # A list that protobuf wraps into a message and JSON does not.
            return SchemaNode("list", format="message", builtin=True, items=self._typed(written[4:]))
        if written.startswith("{}"):
            return SchemaNode("object", builtin=True, values=self._typed(written[2:]))
        kind, form = _SCALARS[written]
        return SchemaNode(kind, format=form, builtin=True)


def crd_schema(source: Mapping[str, Any] | None) -> SchemaNode:
    """The schema of a CRD version from its openAPIV3Schema; without one all fields are kept.

    Equal sources share one: it is asked for when a definition is checked, and again when it is served.
    """
    return _compiled(msgspec.json.encode(source or {"type": "object", "x-kubernetes-preserve-unknown-fields": True}))


@lru_cache(maxsize=_KEPT_SCHEMAS)
def _compiled(source: bytes) -> SchemaNode:
    schema = _openapi_node(msgspec.json.decode(source))
    if schema.type == "any":
        schema.type = "object"
    return _with_object_fields(schema)


def _with_object_fields(schema: SchemaNode) -> SchemaNode:
    """The schema of a whole object: with apiVersion, kind and the built-in metadata."""
    schema.by_value.add("metadata")
    schema.plain_types.pop("metadata", None)
    schema.add_field("apiVersion", SchemaNode("string"))
    schema.add_field("kind", SchemaNode("string"))
    schema.add_field("metadata", struct_schema(_OBJECT_META))
    return schema


def _openapi_node(source: dict[str, Any]) -> SchemaNode:
    kind = source.get("type") or "any"
    schema = SchemaNode({"array": "list"}.get(kind, kind), format=str(source.get("format") or ""), source=source)
    if source.get("x-kubernetes-int-or-string"):
        schema.type, schema.format = "any", "int-or-string"
    schema.nullable = bool(source.get("nullable"))
    schema.preserves_unknown = bool(source.get("x-kubernetes-preserve-unknown-fields"))
    schema.embedded = bool(source.get("x-kubernetes-embedded-resource"))
    schema.atomic = source.get("x-kubernetes-map-type") == "atomic"
    schema.list_type = source.get("x-kubernetes-list-type") or "atomic"
    schema.keys = tuple(source.get("x-kubernetes-list-map-keys") or ())
    schema.required = tuple(source.get("required") or ())
    if isinstance(source.get("items"), dict):
        schema.items = _openapi_node(source["items"])
    values = source.get("additionalProperties")
    if isinstance(values, dict):
        schema.values = _openapi_node(values)
    elif values is True:
        schema.values = SchemaNode("any", preserves_unknown=True, nullable=True)
    for name, inner in (source.get("properties") or {}).items():
        schema.add_field(name, _openapi_node(inner))
        if "default" in inner:
            schema.defaults[name] = inner["default"]
    if schema.type == "any" and (schema.fields or schema.values is not None):
        schema.type = "object"
    if schema.embedded:
        _with_object_fields(schema)
    schema.checks = compile_checks(source)
    schema.transitions = transition_checks(source)
    below = [*schema.fields.values(), schema.values, schema.items]
    schema.has_transition_checks = bool(schema.transitions) or any(
        child is not None and child.has_transition_checks for child in below
    )
    return schema
