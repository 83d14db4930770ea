"""Reads request bodies in `application/vnd.kubernetes.protobuf` into the dicts that JSON would have given.

kubectl sends built-in kinds (`create job`, `create namespace`, `auth can-i`, options of `delete`) this way and does not
fall back to JSON. A body is the four bytes `k8s\\0` and a `runtime.Unknown` message: apiVersion and kind, and the
object as bytes. Field numbers and types come from the built-in table; unknown fields are skipped, as protobuf requires.

Subtle: Go writes every field that is not a pointer, even if empty; such a zero means "absent" wherever JSON would omit
it. Fields of an inlined struct (a volume's source) are a separate message here and are among the other fields in JSON.
Quantities, times, int-or-string and raw JSON are messages here and scalars there.

Statements: apiserver:protobuf.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from typing import Any, Final

from pykai.api.duration import format_go_duration
from pykai.api.protobufwire import BYTES, FIXED64, VARINT, packed_varints, signed, utf8, wire_fields
from pykai.api.timestamp import TimestampError, format_timestamp
from pykai.lab.apiserver.schema.model import SchemaNode
from pykai.lab.apiserver.schema.table import builtin_schema, struct_schema

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\x00"
#: Options that exist in every group.
_OPTIONS: Final = ("DeleteOptions", "CreateOptions", "UpdateOptions", "PatchOptions")
_MAX_DEPTH: Final = 100


def decode(body: bytes) -> dict[str, Any]:
    """The object in the body; ValueError if there is none, or its kind is unknown."""
    if not body.startswith(_MAGIC):
        raise ValueError("the body is not Kubernetes protobuf: it does not start with k8s\\0")
    api_version = kind = ""
    raw = b""
    for number, wire, value in wire_fields(body[len(_MAGIC) :]):
        if number == 1 and wire == BYTES:
            for inner, inner_wire, text in wire_fields(value):
                if inner == 1 and inner_wire == BYTES:
                    api_version = utf8(text)
                elif inner == 2 and inner_wire == BYTES:
                    kind = utf8(text)
        elif number == 2 and wire == BYTES:
            raw = value
    group, _, version = api_version.rpartition("/")
    schema = struct_schema(f"meta.v1.{kind}") if kind in _OPTIONS else builtin_schema(group, version, kind)
    if schema is None:
        raise ValueError(f"no protobuf is known for kind {kind!r} of {api_version!r}; send it as JSON")
    return {"apiVersion": api_version, "kind": kind, **_decode_message(schema, raw, 0)}


def _decode_message(schema: SchemaNode, body: bytes, depth: int) -> dict[str, Any]:
    if depth > _MAX_DEPTH:
        raise ValueError("the protobuf body is nested too deep")
    fields: dict[str, Any] = {}
    for number, wire, value in wire_fields(body):
        known = schema.numbers.get(number)
        if known is None:
            continue
        name, zero_means_absent = known
        if not name:
            _expect(wire, BYTES, schema, number)
            fields.update(_decode_message(schema.inline[number], value, depth + 1))
            continue
        child = schema.fields[name]
        if child.type == "list":
            _expect(wire, (BYTES, VARINT, FIXED64), schema, number)
            fields.setdefault(name, []).extend(_elements(child, wire, value, depth))
        elif child.type == "object" and child.values is not None:
            _expect(wire, BYTES, schema, number)
            key, inner = _map_entry(child.values, value, depth)
            fields.setdefault(name, {})[key] = inner
        else:
            decoded = _single(child, wire, value, depth)
            if decoded is None or (zero_means_absent and decoded in ("", 0, {})):
                continue
            if child.type == "object" and name in fields:
                fields[name] = {**fields[name], **decoded}
            else:
                fields[name] = decoded
    return fields


def _elements(schema: SchemaNode, wire: int, value: Any, depth: int) -> list[Any]:
    items = schema.items
    assert items is not None  # lists of the table have items
    if wire == BYTES and items.type in ("integer", "boolean"):
        # Packed: many numbers in one entry.
        return [_single(items, VARINT, number, depth) for number in packed_varints(value)]
    return [_single(items, wire, value, depth)]


def _map_entry(values: SchemaNode, body: bytes, depth: int) -> tuple[str, Any]:
    key = ""
    inner: Any = _zero(values)
    for number, wire, value in wire_fields(body):
        if number == 1 and wire == BYTES:
            key = utf8(value)
        elif number == 2:
            inner = _single(values, wire, value, depth)
    return key, inner


def _zero(schema: SchemaNode) -> Any:
    if schema.format == "quantity":
        return "0"
    return {"string": "", "integer": 0, "number": 0, "boolean": False, "object": {}, "list": []}.get(schema.type)


def _single(schema: SchemaNode, wire: int, value: Any, depth: int) -> Any:
    """One value: a scalar, a struct, or a list in its own message."""
    if schema.type == "object":
        _expect(wire, BYTES, schema, 0)
        return _decode_message(schema, value, depth + 1)
    if schema.type == "boolean":
        _expect(wire, VARINT, schema, 0)
        return bool(value)
    if schema.type == "integer":
        _expect(wire, VARINT, schema, 0)
        return signed(value)
    if schema.type == "number":
        _expect(wire, FIXED64, schema, 0)
        number = struct.unpack("<d", value)[0]
        return int(number) if number.is_integer() else number
    _expect(wire, BYTES, schema, 0)
    if schema.type == "list":
        return (
            [_single(schema.items, inner_wire, inner, depth + 1) for _, inner_wire, inner in wire_fields(value)]
            if (schema.items is not None)
            else []
        )
    if not schema.format:
        return utf8(value) if schema.type == "string" else _decode_raw(value)
    return _DECODERS[schema.format](value)


def _decode_raw(body: bytes) -> Any:
    """Raw JSON in a message, or another Kubernetes object in protobuf."""
    raw = _first_bytes_field(body, 1)
    if not raw:
        return None
    if raw.startswith(_MAGIC):
        return decode(raw)
    try:
        return json.loads(raw)
    except ValueError:
        raise ValueError("raw JSON within the protobuf body cannot be read") from None


def _quantity(body: bytes) -> str:
    return utf8(_first_bytes_field(body, 1)) or "0"


def _int_or_string(body: bytes) -> int | str:
    kind = number = 0
    text = ""
    for field, wire, value in wire_fields(body):
        if field == 1 and wire == VARINT:
            kind = value
        elif field == 2 and wire == VARINT:
            number = signed(value)
        elif field == 3 and wire == BYTES:
            text = utf8(value)
    return text if kind else number


def _seconds_and_nanos(body: bytes) -> tuple[int, int] | None:
    if not body:
        return None
    seconds = nanos = 0
    for field, wire, value in wire_fields(body):
        if wire == VARINT:
            if field == 1:
                seconds = signed(value)
            elif field == 2:
                nanos = signed(value)
    return seconds, nanos


def _time(body: bytes) -> str | None:
    instant = _seconds_and_nanos(body)
    return None if instant is None else _formatted(instant[0])


def _micro_time(body: bytes) -> str | None:
    instant = _seconds_and_nanos(body)
    if instant is None:
        return None
    return f"{_formatted(instant[0]).removesuffix('Z')}.{instant[1] // 1000:06d}Z"


def _formatted(seconds: int) -> str:
    try:
        return format_timestamp(seconds * 1_000_000_000)
    except TimestampError as error:
        raise ValueError(f"the protobuf body holds a time that cannot be: {error}") from None


def _duration(body: bytes) -> str:
    for field, wire, value in wire_fields(body):
        if field == 1 and wire == VARINT:
            return format_go_duration(signed(value))
    return "0s"


def _decode_json_schema(body: bytes) -> Any:
    """A JSON schema or its alternatives: a boolean, a list of schemas, a list of names."""
    props = struct_schema("apiextensions.v1.JSONSchemaProps")
    return _decode_message(props, body, 0)


def _schema_or_array(body: bytes) -> Any:
    schemas = []
    for field, wire, value in wire_fields(body):
        if wire == BYTES and field == 1:
            return _decode_json_schema(value)
        if wire == BYTES and field == 2:
            schemas.append(_decode_json_schema(value))
    return schemas


def _schema_or_boolean(body: bytes) -> Any:
    allows = False
    for field, wire, value in wire_fields(body):
        if field == 2 and wire == BYTES:
            return _decode_json_schema(value)
        if field == 1 and wire == VARINT:
            allows = bool(value)
    return allows


def _schema_or_strings(body: bytes) -> Any:
    names = []
    for field, wire, value in wire_fields(body):
        if wire == BYTES and field == 1:
            return _decode_json_schema(value)
        if wire == BYTES and field == 2:
            names.append(utf8(value))
    return names


_DECODERS: Final[dict[str, Callable[[bytes], Any]]] = {
    "bytes": lambda value: base64.b64encode(value).decode(),
    "quantity": _quantity,
    "int-or-string": _int_or_string,
    "time": _time,
    "microtime": _micro_time,
    "duration": _duration,
    "schema-or-array": _schema_or_array,
    "schema-or-boolean": _schema_or_boolean,
    "schema-or-strings": _schema_or_strings,
}


def _first_bytes_field(body: bytes, number: int) -> bytes:
    for field, wire, value in wire_fields(body):
        if field == number and wire == BYTES:
            field_value: bytes = value
            return field_value
    return b""


def _expect(wire: int, expected: int | tuple[int, ...], schema: SchemaNode, number: int) -> None:
    if wire not in (expected if isinstance(expected, tuple) else (expected,)):
        where = f" of {schema.name}" if schema.name else ""
        raise ValueError(f"the protobuf body has the wrong wire type {wire} in field {number}{where}")
