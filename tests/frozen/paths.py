"""Field paths: of wire and plan types, and of documents.

    spec.containers[].resources.requests{}: str
    unscheduled[].refusals[]<NoPlace>.nodes{}: int

`[]` is an item of a list, `{}` a value of a map, `<Tag>` one of several records.  Names of Python types do not appear,
because they may change; tags do, because they are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import inspect


def of_type(kind: Any, prefix: str = "") -> list[str]:
    """The paths that values of a type can have."""
    return sorted(set(_of(inspect.type_info(kind), prefix, ())))


def _of(info: inspect.Type, path: str, above: tuple[type, ...]) -> Iterator[str]:
    match info:
        case inspect.StructType(cls=cls, fields=fields, tag=tag):
            if cls in above:
                yield f"{path}: as above"
                return
            inner = f"{path}<{tag}>" if tag is not None else path
            if tag is not None:
                yield f"{inner}: tagged"
            for field in fields:
                yield from _of(field.type, f"{inner}.{field.encode_name}".lstrip("."), (*above, cls))
        case (
            inspect.ListType(item_type=item)
            | inspect.VarTupleType(item_type=item)
            | inspect.SetType(item_type=item)
            | inspect.FrozenSetType(item_type=item)
        ):
            yield from _of(item, f"{path}[]", above)
        case inspect.TupleType(item_types=items):
            for number, each in enumerate(items):
                yield from _of(each, f"{path}[{number}]", above)
        case inspect.DictType(value_type=value):
            yield from _of(value, f"{path}{{}}", above)
        case inspect.UnionType(types=types):
            for each in types:
                if not isinstance(each, inspect.NoneType):
                    yield from _of(each, path, above)
        case inspect.Metadata(type=inner_type):
            yield from _of(inner_type, path, above)
        case inspect.CustomType():
            # `Plan.encoded` writes such values as their text.
            yield f"{path}: str"
        case _:
            yield f"{path}: {type(info).__name__.removesuffix('Type').lower()}"


def of_document(document: Any, prefix: str = "", maps: Iterable[str] = ()) -> list[str]:
    """The paths of a document; `maps` are paths below which keys are data."""
    return sorted(set(_in(document, prefix, frozenset(maps))))


def _in(value: Any, path: str, maps: frozenset[str]) -> Iterator[str]:
    if isinstance(value, dict):
        if path in maps:
            for each in value.values():
                yield from _in(each, f"{path}{{}}", maps)
            return
        if not value:
            yield f"{path}: empty"
        for key, each in value.items():
            yield from _in(each, f"{path}.{key}".lstrip("."), maps)
    elif isinstance(value, list):
        if not value:
            yield f"{path}[]: empty"
        for each in value:
            yield from _in(each, f"{path}[]", maps)
    elif value is not None:
        yield f"{path}: {type(value).__name__}"


def of_schema(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """The paths of an OpenAPI schema."""
    kind = schema.get("type", "any")
    if "items" in schema:
        yield from of_schema(schema["items"], f"{path}[]")
    elif "additionalProperties" in schema:
        yield from of_schema(schema["additionalProperties"], f"{path}{{}}")
    elif schema.get("properties"):
        for name, each in schema["properties"].items():
            yield from of_schema(each, f"{path}.{name}".lstrip("."))
    else:
        yield f"{path}: {kind}"
