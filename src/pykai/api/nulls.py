"""The slow path of decoding: replaces nulls as Go would read them, and finds the exact field that is wrong.

`replace_nulls` walks a parsed document along the types it should have. In: the document (dicts, lists, scalars) and a
wire type. Out: the same document without unknown fields and without nulls that the types do not allow, which msgspec
then converts; or a `FieldError` with the path to the first field that is wrong, indices and map keys included. Objects
come here only after the fast decoder refused them, so speed does not matter.

A null means the zero value, as in Go: a struct's field takes its default; an element of a list or a value of a map
becomes empty text, 0, false or an empty object. Dropping it instead would widen the meaning of the object:
`nodeSelector: {zone: null}` selects an empty zone, not any zone.
"""

import math
from functools import cache
from typing import Any

from msgspec import inspect

from pykai.api.meta import Wire


class FieldError(ValueError):
    """A field has a value that its type does not allow."""

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{path}: {problem}" if path else problem)


def replace_nulls(document: object, wire_type: type[Wire]) -> dict[str, Any]:
    """The document with its nulls replaced, ready for conversion to the type."""
    replaced = _replace(document, _type_info(wire_type), "")
    assert isinstance(replaced, dict)  # a struct type gives an object or raises
    return replaced


@cache
def _type_info(wire_type: type[Wire]) -> inspect.Type:
    return inspect.type_info(wire_type)


def _replace(value: Any, kind: inspect.Type, path: str) -> Any:
    if isinstance(kind, inspect.AnyType):
        return value
    if isinstance(kind, inspect.UnionType):
        return _replace_in_union(value, kind, path)
    if isinstance(kind, inspect.StructType):
        return _replace_in_struct(value, kind, path)
    if isinstance(kind, inspect.DictType):
        return _replace_in_map(value, kind, path)
    if isinstance(kind, inspect.ListType | inspect.VarTupleType):
        if not isinstance(value, list):
            raise FieldError(path, f"expected a list, got {describe_value(value)}")
        return [_replace_element(element, kind.item_type, f"{path}[{index}]") for index, element in enumerate(value)]
    return _checked(value, kind, path)


def _replace_in_struct(value: Any, kind: inspect.StructType, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FieldError(path, f"expected an object, got {describe_value(value)}")
    replaced = {}
    for member in kind.fields:
        element = value.get(member.encode_name)
        if element is not None:
            below = f"{path}.{member.encode_name}" if path else member.encode_name
            replaced[member.encode_name] = _replace(element, member.type, below)
    return replaced


def _replace_in_map(value: Any, kind: inspect.DictType, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FieldError(path, f"expected a map, got {describe_value(value)}")
    replaced = {}
    for key, element in value.items():
        if not isinstance(key, str):
            raise FieldError(path, f"expected text as key, got {describe_value(key)}")
        replaced[key] = _replace_element(element, kind.value_type, f"{path}[{key!r}]")
    return replaced


def _replace_in_union(value: Any, kind: inspect.UnionType, path: str) -> Any:
    members = [member for member in kind.types if not isinstance(member, inspect.NoneType)]
    if len(members) == 1:
        return _replace(value, members[0], path)
    # The only other union is that of raw quantities, so all members are scalars.
    if any(_is_admissible(member, value) for member in members):
        return value
    raise FieldError(path, f"expected {' or '.join(map(_type_text, members))}, got {describe_value(value)}")


def _replace_element(value: Any, kind: inspect.Type, path: str) -> Any:
    # A null reaches no other place: structs drop it, and the types hold no optional elements.
    return _replace(_zero_value(kind) if value is None else value, kind, path)


def _checked(value: Any, kind: inspect.Type, path: str) -> Any:
    if not _is_admissible(kind, value):
        raise FieldError(path, f"expected {_type_text(kind)}, got {describe_value(value)}")
    return value


def _is_admissible(kind: inspect.Type, value: Any) -> bool:
    if isinstance(kind, inspect.StrType):
        return isinstance(value, str)
    if isinstance(kind, inspect.BoolType):
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if isinstance(kind, inspect.IntType):
        return isinstance(value, int) and _within(kind, value)
    if isinstance(kind, inspect.FloatType):
        # isfinite() of an int beyond the range of floats raises; comparing it does not.
        finite = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
        return finite and _within(kind, value)
    raise TypeError(f"wire types do not use {type(kind).__name__}")


def _within(kind: inspect.IntType | inspect.FloatType, value: float) -> bool:
    return (kind.ge is None or value >= kind.ge) and (kind.le is None or value <= kind.le)


def _zero_value(kind: inspect.Type) -> Any:
    if isinstance(kind, inspect.StructType | inspect.DictType):
        return {}
    if isinstance(kind, inspect.ListType | inspect.VarTupleType):
        return []
    if isinstance(kind, inspect.StrType):
        return ""
    if isinstance(kind, inspect.BoolType):
        return False
    if isinstance(kind, inspect.AnyType):
        return None
    return 0


def _type_text(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.StrType):
        return "text"
    if isinstance(kind, inspect.BoolType):
        return "true or false"
    if isinstance(kind, inspect.IntType):
        return "a whole number" if kind.ge is None else "a whole number of 64 bits"
    return "a finite number"


def describe_value(value: object) -> str:
    """The value in a few words, for messages."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"the text {value!r}" if len(value) <= 64 else f"the text {value[:61]!r}..."
    # repr of an int of thousands of digits raises.
    if isinstance(value, int) and value.bit_length() > 256:
        return "a huge number"
    return f"{value!r}" if isinstance(value, int | float) else f"a {type(value).__name__}"
