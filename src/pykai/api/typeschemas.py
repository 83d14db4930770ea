"""Schemas of custom resources from wire types, with the descriptions of their fields.

Only what wire types use is known; another type is an error of ours and raises `TypeError` when definitions are made.
"""

from typing import Any

import msgspec.inspect as shape

from pykai.api.meta import Wire

_PRESERVED: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_QUANTITY: dict[str, Any] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
}


def properties_of(wire: type[Wire]) -> dict[str, Any]:
    """The schemas of the fields of an object, without its metadata, which the API server knows."""
    kind = shape.type_info(wire)
    assert isinstance(kind, shape.StructType)
    return {each.encode_name: _schema(each.type) for each in kind.fields if each.encode_name != "metadata"}


def _schema(kind: shape.Type) -> dict[str, Any]:
    if isinstance(kind, shape.Metadata):
        text = (kind.extra_json_schema or {}).get("description")
        return {"description": text, **_schema(kind.type)} if text else _schema(kind.type)
    if isinstance(kind, shape.StructType):
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {each.encode_name: _schema(each.type) for each in kind.fields},
        }
        if required := [each.encode_name for each in kind.fields if each.required]:
            schema["required"] = required
        return schema
    if isinstance(kind, shape.UnionType):
        return _union(kind)
    if isinstance(kind, shape.DictType):
        values = _schema(kind.value_type)
        return {"type": "object", "additionalProperties": values} if values else dict(_PRESERVED)
    if isinstance(kind, shape.ListType):
        return {"type": "array", "items": _schema(kind.item_type)}
    return _scalar(kind)


def _union(kind: shape.UnionType) -> dict[str, Any]:
    """An optional type, or a quantity: a number or a text."""
    types = [each for each in kind.types if not isinstance(each, shape.NoneType)]
    if len(types) == 1:
        return _schema(types[0])
    if {type(each) for each in types} == {shape.IntType, shape.StrType}:
        return dict(_QUANTITY)
    raise TypeError(f"a schema cannot be one of {types}")


def _scalar(kind: shape.Type) -> dict[str, Any]:
    if isinstance(kind, shape.AnyType):
        return {}
    if isinstance(kind, shape.BoolType):
        return {"type": "boolean"}
    if isinstance(kind, shape.IntType):
        # A type with bounds of 64 bits says so; the others are Go's int32 in KAI.
        return {"type": "integer", "format": "int64" if kind.le is not None else "int32"}
    if isinstance(kind, shape.FloatType):
        return {"type": "number"}
    if isinstance(kind, shape.StrType):
        return {"type": "string"}
    raise TypeError(f"there is no schema for {kind}")
