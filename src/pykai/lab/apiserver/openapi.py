"""The OpenAPI v3 documents for `kubectl explain` and `kubectl apply`, one per group and version.

    index_document(paths)                         -> where the documents are
    group_version_document(group, version, kinds) -> the document of these kinds

Schemas of built-in kinds come from the table and carry no descriptions; those of custom kinds are those of their CRDs.
kubectl needs three things: `x-kubernetes-group-version-kind` at operations and schemas, which link a resource to its
schema; the query parameter `fieldValidation` of PATCH, without which `apply` assumes that the server cannot check
fields; and list types with merge keys.

Statements: apiserver:openapi.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, Protocol

from pykai.api.unstructured import JsonObject
from pykai.lab.apiserver.schema.model import SchemaNode
from pykai.lab.apiserver.schema.table import builtin_kinds, table_entries

_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
_SHARED: Final[JsonObject] = {
    f"{_META}.Time": {"type": "string", "format": "date-time"},
    f"{_META}.MicroTime": {"type": "string", "format": "date-time"},
    f"{_META}.Duration": {"type": "string"},
    f"{_META}.FieldsV1": {"type": "object"},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {
        "format": "int-or-string",
        "oneOf": [{"type": "integer"}, {"type": "string"}],
    },
}
_SCALARS: Final[Mapping[str, JsonObject]] = {
    "string": {"type": "string"},
    "boolean": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "double": {"type": "number", "format": "double"},
    "bytes": {"type": "string", "format": "byte"},
    "any": {"type": "object"},
    "quantity": {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.api.resource.Quantity"},
    "intorstring": {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.util.intstr.IntOrString"},
    "time": {"$ref": f"#/components/schemas/{_META}.Time"},
    "microtime": {"$ref": f"#/components/schemas/{_META}.MicroTime"},
    "duration": {"$ref": f"#/components/schemas/{_META}.Duration"},
    "schema-or-array": {},
    "schema-or-boolean": {},
    "schema-or-strings": {},
}
_JSON: Final = "application/json"
_PATCHES: Final = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
)
_STRATEGIC: Final = "application/strategic-merge-patch+json"


class ServedKind(Protocol):
    """A kind as the server serves it."""

    @property
    def plural(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def namespaced(self) -> bool: ...
    @property
    def status(self) -> bool: ...
    @property
    def schema(self) -> SchemaNode | None: ...


def index_document(paths: Iterable[str], digests: Mapping[str, str] | None = None) -> JsonObject:
    """The index of documents: paths like `api/v1`; `marks` change where a document does, against caches."""
    entries = {}
    for path in paths:
        digest = hashlib.sha256(f"{path} {(digests or {}).get(path, '')}".encode()).hexdigest()[:32].upper()
        entries[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
    return {"paths": entries}


def group_version_document(group: str, version: str, served_kinds: Iterable[ServedKind]) -> JsonObject:
    """The document of one group and version."""
    api_version = f"{group}/{version}" if group else version
    built_in: list[str] = []
    schemas: JsonObject = {}
    paths: JsonObject = {}
    for served in served_kinds:
        identity = {"group": group, "version": version, "kind": served.kind}
        table_name = builtin_kinds().get(f"{api_version}/{served.kind}")
        if table_name is not None:
            name = full_name(table_name)
            built_in.append(table_name)
        else:
            name = f"{'.'.join(reversed(group.split('.')))}.{version}.{served.kind}"
            schemas[name] = _custom_schema(served, identity)
        schemas[f"{name}List"] = _list_schema(name, {**identity, "kind": f"{served.kind}List"})
        _add_paths(paths, group, version, served, name, identity, built_in=table_name is not None)
    schemas.update(_built_in_schemas(tuple(built_in), group, version))
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.35.4"},
        "paths": paths,
        "components": {"schemas": dict(sorted(schemas.items()))},
    }


def full_name(table_name: str) -> str:
    """The name that Kubernetes' documents have for a struct of the table."""
    package, _, name = table_name.rpartition(".")
    if package == "meta.v1":
        return f"{_META}.{name}"
    if package == "apiextensions.v1":
        return f"io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.{name}"
    return f"io.k8s.api.{package}.{name}"


def _reference(name: str) -> JsonObject:
    return {"$ref": f"#/components/schemas/{name}"}


@lru_cache(maxsize=64)
def _built_in_schemas(names: tuple[str, ...], group: str, version: str) -> JsonObject:
    schemas: JsonObject = dict(_SHARED)
    table = table_entries([*names, "meta.v1.ObjectMeta", "meta.v1.ListMeta", "meta.v1.Status", "meta.v1.DeleteOptions"])
    for name, entry in table.items():
        properties: JsonObject = {}
        required: list[str] = []
        _add_fields(table, entry, properties, required)
        schema: JsonObject = {"type": "object", "properties": dict(sorted(properties.items()))}
        if required:
            schema["required"] = sorted(required)
        if entry.get("atomic"):
            schema["x-kubernetes-map-type"] = "atomic"
        if name in names:
            kind = name.rpartition(".")[2]
            schema["x-kubernetes-group-version-kind"] = [{"group": group, "version": version, "kind": kind}]
        schemas[full_name(name)] = schema
    return schemas


def _add_fields(
    table: Mapping[str, Any], entry: Mapping[str, Any], properties: JsonObject, required: list[str]
) -> None:
    for _, inner in entry.get("inline", ()):
        _add_fields(table, table[inner], properties, required)
    for field, facts in entry["fields"].items():
        properties[field] = _reference(f"{_META}.FieldsV1") if field == "fieldsV1" else _property(facts)
        if facts.get("r"):
            required.append(field)


def _property(facts: Mapping[str, Any]) -> JsonObject:
    schema = _type_schema(facts["t"])
    extra: JsonObject = {}
    if "d" in facts:
        extra["default"] = facts["d"]
    if "e" in facts:
        extra["enum"] = facts["e"]
    if facts["t"].startswith("[]"):
        extra["x-kubernetes-list-type"] = facts.get("l", "atomic")
        if facts.get("k"):
            extra["x-kubernetes-list-map-keys"] = facts["k"]
    if facts.get("a"):
        extra["x-kubernetes-map-type"] = "atomic"
    if "p" in facts:
        extra["x-kubernetes-patch-strategy"] = facts["p"]
    if "pk" in facts:
        extra["x-kubernetes-patch-merge-key"] = facts["pk"]
    if not extra:
        return schema
    # A reference allows no other keywords.
    return {"allOf": [schema], **extra} if "$ref" in schema else {**schema, **extra}


def _type_schema(written: str) -> JsonObject:
    if written.startswith("#"):
        return _reference(full_name(written[1:]))
    if written.startswith("<>"):
        return _type_schema(written[2:])
    if written.startswith("[]"):
        return {"type": "array", "items": _type_schema(written[2:])}
    if written.startswith("{}"):
        return {"type": "object", "additionalProperties": _type_schema(written[2:])}
    return dict(_SCALARS[written])


def _custom_schema(served: ServedKind, identity: Mapping[str, str]) -> JsonObject:
    source = served.schema.source if served.schema is not None else {}
    return {
        "type": "object",
        **source,
        "properties": {
            **(source.get("properties") or {}),
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"allOf": [_reference(f"{_META}.ObjectMeta")]},
        },
        "x-kubernetes-group-version-kind": [dict(identity)],
    }


def _list_schema(name: str, identity: Mapping[str, str]) -> JsonObject:
    return {
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"allOf": [_reference(f"{_META}.ListMeta")]},
            "items": {"type": "array", "items": _reference(name)},
        },
        "x-kubernetes-group-version-kind": [dict(identity)],
    }


def _query(name: str, kind: str = "string") -> JsonObject:
    return {"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": True}}


_READING: Final = [_query(name) for name in ("labelSelector", "fieldSelector", "continue", "resourceVersion")] + [
    _query("limit", "integer"),
    _query("watch", "boolean"),
    _query("timeoutSeconds", "integer"),
]
_WRITING: Final = [_query("dryRun"), _query("fieldManager"), _query("fieldValidation")]
_PATCHING: Final = [*_WRITING, _query("force", "boolean")]
_DELETING: Final = [
    _query("dryRun"),
    _query("gracePeriodSeconds", "integer"),
    _query("orphanDependents", "boolean"),
    _query("propagationPolicy"),
]


def _add_paths(
    paths: JsonObject,
    group: str,
    version: str,
    served: ServedKind,
    name: str,
    identity: Mapping[str, str],
    *,
    built_in: bool,
) -> None:
    prefix = f"/apis/{group}/{version}" if group else f"/api/{version}"
    collection = (
        f"{prefix}/namespaces/{{namespace}}/{served.plural}" if served.namespaced else f"{prefix}/{served.plural}"
    )
    patches = (*_PATCHES, _STRATEGIC) if built_in else _PATCHES

    def operation(action: str, parameters: list[JsonObject], result: str, body: Iterable[str] = ()) -> JsonObject:
        described: JsonObject = {
            "tags": [group or "core"],
            "operationId": f"{action}{served.kind}",
            "parameters": parameters,
            "responses": {"200": {"description": "OK", "content": {_JSON: {"schema": _reference(result)}}}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": dict(identity),
        }
        if body:
            what = _reference(name) if action in ("post", "put") else {"type": "object"}
            described["requestBody"] = {"content": {kind: {"schema": what} for kind in body}}
        return described

    place = [{"name": "namespace", "in": "path", "required": True, "schema": {"type": "string"}}]
    within = place if served.namespaced else []
    one = [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}, *within]
    status = f"{_META}.Status"
    paths[collection] = {
        "get": operation("list", _READING, f"{name}List"),
        "post": operation("post", _WRITING, name, [_JSON]),
        "delete": operation("deletecollection", [*_READING, *_DELETING], status),
        "parameters": within,
    }
    if served.namespaced:
        paths[f"{prefix}/{served.plural}"] = {"get": operation("list", _READING, f"{name}List")}
    item = {
        "get": operation("get", [], name),
        "put": operation("put", _WRITING, name, [_JSON]),
        "patch": operation("patch", _PATCHING, name, patches),
        "parameters": one,
    }
    paths[f"{collection}/{{name}}"] = {**item, "delete": operation("delete", _DELETING, status)}
    if served.status:
        paths[f"{collection}/{{name}}/status"] = item


#: content types of a version 2 document in requests and responses
V2_ACCEPTED = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
V2_CONTENT_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


def empty_v2_document() -> bytes:
    """An OpenAPI version 2 document without kinds, as protobuf.

    kubectl reads it to check objects of kind `List` itself, and accepts kinds that it does not find. Field numbers are
    those of gnostic's `Document`: swagger 1, info 2 (title 1, version 2), paths 8.
    """
    info = _field(1, b"PyKAI") + _field(2, b"v1")
    return _field(1, b"2.0") + _field(2, info) + _field(8, b"")


def _field(number: int, value: bytes) -> bytes:
    return bytes((number << 3 | 2, len(value))) + value
