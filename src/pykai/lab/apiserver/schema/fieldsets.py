"""Field sets for server-side apply: the fields of a value, changed fields, removed fields.

A path is a tuple of elements in the notation of FieldsV1: `f:name` a field or a map's key, `k:{"name":"a"}` an element
of a list that is keyed, `v:"a"` an element of a list that is a set. A set of fields is a plain set of paths, so union
and difference are Python's. `encode_fields` and `decode_fields` convert to and from the nested objects of
`managedFields`. Apply, which compares many sets, works on sets; updates, which are frequent and small, work on the
nested objects directly: `created_fields`, `subtract_fields` and `add_fields`.

The schema decides where a value is a leaf: scalars, lists without a list type and atomic values are one field;
everything else is granular. Below a field the schema does not know (a CRD that keeps unknown fields) objects are
granular and lists atomic.

Subtle: an element of a list and a key of a map are fields of their own besides what they hold (`.` in FieldsV1); a
struct is only where it is empty or came as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from json.encoder import encode_basestring
from typing import Any, Final, NamedTuple

from pykai.lab.apiserver.schema.model import SchemaNode

Path = tuple[str, ...]
FieldSet = set[Path]

_ABSENT: Final = object()


class FieldDifference(NamedTuple):
    """Differences of the fields between two versions of an object."""

    added: FieldSet
    modified: FieldSet
    removed: FieldSet


class DuplicateKey(ValueError):
    """Two elements of a keyed list, or of a set, are equal."""


def applied_fields(schema: SchemaNode | None, value: Any) -> FieldSet:
    """All fields that an applied value names."""
    field_set: FieldSet = set()
    _collect(schema, value, (), field_set)
    return field_set


def difference(schema: SchemaNode | None, old: Any, new: Any) -> FieldDifference:
    """The fields in which two objects differ."""
    result = FieldDifference(set(), set(), set())
    _compare(schema, old, new, (), result)
    return result


def merge(schema: SchemaNode | None, live: Any, config: Any) -> Any:
    """The live value with what the configuration says; a null in the configuration removes."""
    if isinstance(live, dict) and isinstance(config, dict) and _is_granular_map(schema):
        result = dict(live)
        for name, value in config.items():
            if value is None:
                result.pop(name, None)
            else:
                result[name] = merge(_child(schema, name), live.get(name), value)
        return result
    if isinstance(live, list) and isinstance(config, list) and schema is not None and _is_granular_list(schema):
        return _merged_list(schema, live, config)
    return _without_nulls(config)


def remove_fields(schema: SchemaNode | None, value: Any, last: FieldSet, kept: FieldSet) -> Any:
    """The value without the fields of `last` that are not in `kept`."""
    result = _prune(schema, value, (), (last, _prefixes(last)), (kept, _prefixes(kept)))
    return {} if result is _ABSENT else result


def encode_fields(paths: Iterable[Path]) -> dict[str, Any]:
    """The set as FieldsV1."""
    root: dict[str, Any] = {}
    for path in sorted(paths):
        node = root
        for element in path:
            node = node.setdefault(element, {})
        node["."] = {}
    return _without_leaf_marks(root)


def decode_fields(fields: Mapping[str, Any]) -> FieldSet:
    """The set that FieldsV1 describes."""
    field_set: FieldSet = set()
    _decode(fields, (), field_set)
    return field_set


def created_fields(schema: SchemaNode | None, obj: Mapping[str, Any]) -> dict[str, Any]:
    """FieldsV1 of a new object: `encode_fields(difference(schema, {}, obj).added)` in one pass."""
    return _created_node(schema, obj, False) or {}


def subtract_fields(fields: dict[str, Any], lost: Mapping[str, Any]) -> dict[str, Any]:
    """FieldsV1 without these fields; the same object if it has none of them."""
    result = fields
    for name, gone in lost.items():
        present = fields.get(name)
        if present is None:
            continue
        left = None if name == "." else _node_minus(present, gone)
        if left is not present:
            if result is fields:
                result = dict(fields)
            if left is None:
                del result[name]
            else:
                result[name] = left
    return result


def add_fields(fields: dict[str, Any], taken: Mapping[str, Any]) -> dict[str, Any]:
    """FieldsV1 with these fields added; the same object if it has them all."""
    result = fields
    for name, more in taken.items():
        present = fields.get(name)
        if present is not None and name == ".":
            continue
        both = more if present is None else _node_plus(present, more)
        if both is not present:
            if result is fields:
                result = dict(fields)
            result[name] = both
    return result


#: A node that holds nothing is a field; one that holds others is a field if it is marked with a dot.
_MARKED: Final[dict[str, Any]] = {".": {}}


def _node_minus(node: dict[str, Any], gone: dict[str, Any]) -> dict[str, Any] | None:
    left = subtract_fields(node or _MARKED, gone or _MARKED)
    if not left:
        return None
    if left == _MARKED:
        return {} if node else node
    return left


def _node_plus(node: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    both = add_fields(node or _MARKED, more or _MARKED)
    return node if both == _MARKED and not node else both


def _created_node(schema: SchemaNode | None, value: Any, fresh: bool) -> dict[str, Any] | None:
    """The node of a new value; not `fresh`: it existed, but empty. None if there is nothing to record."""
    node: dict[str, Any] = {".": {}} if fresh else {}
    if isinstance(value, dict) and value and _is_granular_map(schema):
        by_value = schema.by_value if schema is not None and not fresh else ()
        for name, inner in value.items():
            below = _created_node(_child(schema, name), inner, name not in by_value)
            if below is not None:
                node[f"f:{name}"] = below
    elif isinstance(value, list) and value and schema is not None and _is_granular_list(schema):
        for element, item in _indexed(schema, value).items():
            node[element] = _created_node(schema.items, item, True)
    elif not fresh and value in ({}, []):
        return None
    else:
        return {}
    if not node:
        return None
    return {} if len(node) == 1 and fresh else node


def format_path(path: Path) -> str:
    """A readable path: `.spec.containers[name="a"].image`."""
    return "".join(map(_shown_element, path))


def _shown_element(element: str) -> str:
    kind, text = element[:2], element[2:]
    if kind == "f:":
        return f".{text}"
    if kind == "k:":
        return "[" + ",".join(f"{name}={_json(value)}" for name, value in json.loads(text).items()) + "]"
    return f"[={text}]" if kind == "v:" else f"[{text}]"


def _without_leaf_marks(node: dict[str, Any]) -> dict[str, Any]:
    """Without the marks of fields that hold nothing else; these are empty objects."""
    if len(node) == 1 and "." in node:
        return {}
    return {name: {} if name == "." else _without_leaf_marks(node[name]) for name in sorted(node)}


def _decode(node: Mapping[str, Any], path: Path, field_set: FieldSet) -> None:
    for name, inner in node.items():
        if name == ".":
            if path:
                field_set.add(path)
        elif isinstance(inner, dict) and inner:
            _decode(inner, (*path, name), field_set)
        else:
            field_set.add((*path, name))


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _child(schema: SchemaNode | None, name: str) -> SchemaNode | None:
    return schema.child(name) if schema is not None else None


def _is_granular_map(schema: SchemaNode | None) -> bool:
    """Whether an object of this shape is granular."""
    if schema is None:
        return True
    if schema.type == "object":
        return not schema.atomic
    # Raw JSON in a built-in kind is one field; in a CRD it is granular.
    return schema.type == "any" and not schema.builtin


def _is_granular_list(schema: SchemaNode | None) -> bool:
    return schema is not None and schema.type == "list" and schema.list_type != "atomic"


def _element(schema: SchemaNode, item: Any) -> str:
    """The key of a list element."""
    if schema.list_type == "map" and isinstance(item, dict):
        if len(schema.keys) == 1:
            value = item.get(schema.keys[0])
            if type(value) is str:
                return f'k:{{"{schema.keys[0]}":{encode_basestring(value)}}}'
        defaults = schema.items.defaults if schema.items is not None else {}
        return "k:" + _json({key: item.get(key, defaults.get(key)) for key in schema.keys})
    return "v:" + _json(item)


def _indexed(schema: SchemaNode, items: list[Any]) -> dict[str, Any]:
    """Elements by key; the first of equal ones counts."""
    elements: dict[str, Any] = {}
    for item in items:
        elements.setdefault(_element(schema, item), item)
    return elements


def _collect(schema: SchemaNode | None, value: Any, path: Path, field_set: FieldSet) -> None:
    if isinstance(value, dict) and _is_granular_map(schema):
        fields = schema.fields if schema is not None else {}
        for name, inner in value.items():
            at = (*path, f"f:{name}")
            _collect(_child(schema, name), inner, at, field_set)
            if name not in fields or inner is None or inner == {}:
                field_set.add(at)
    elif isinstance(value, list) and schema is not None and _is_granular_list(schema):
        for item in value:
            at = (*path, _element(schema, item))
            field_set.add(at)
            _collect(schema.items, item, at, field_set)
    elif path:
        field_set.add(path)


def _compare(schema: SchemaNode | None, old: Any, new: Any, path: Path, result: FieldDifference) -> None:
    if old is new or (old == new and type(old) is type(new)):
        return
    maps = _is_granular_map(schema) and _are_type_or_absent(old, new, dict)
    lists = _is_granular_list(schema) and _are_type_or_absent(old, new, list)
    # Two empty ones, or one and none, are a leaf: that keeps null, absent and empty apart.
    if (maps or lists) and (_is_nonempty(old) or _is_nonempty(new)):
        if maps:
            _compare_maps(schema, old, new, path, result)
        else:
            assert schema is not None  # an unknown list is atomic
            _compare_lists(schema, old, new, path, result)
        if path and old is _ABSENT:
            result.added.add(path)
        elif path and new is _ABSENT:
            result.removed.add(path)
    elif old is _ABSENT:
        result.added.add(path)
    elif new is _ABSENT:
        result.removed.add(path)
    else:
        result.modified.add(path)


def _are_type_or_absent(old: Any, new: Any, kind: type) -> bool:
    return (old is _ABSENT or isinstance(old, kind)) and (new is _ABSENT or isinstance(new, kind))


def _is_nonempty(value: Any) -> bool:
    return value is not _ABSENT and bool(value)


def _compare_maps(schema: SchemaNode | None, old: Any, new: Any, path: Path, result: FieldDifference) -> None:
    before = old if old is not _ABSENT else {}
    after = new if new is not _ABSENT else {}
    by_value = schema.by_value if schema is not None else ()
    for name in before.keys() | after.keys():
        left, right = before.get(name, _ABSENT), after.get(name, _ABSENT)
        if left is right:
            continue
        if name in by_value:
            # A struct held by value exists whenever its holder does.
            empty: Any = [] if isinstance(left, list) or isinstance(right, list) else {}
            left = empty if left is _ABSENT and old is not _ABSENT else left
            right = empty if right is _ABSENT and new is not _ABSENT else right
        _compare(_child(schema, name), left, right, (*path, f"f:{name}"), result)


def _compare_lists(schema: SchemaNode, old: Any, new: Any, path: Path, result: FieldDifference) -> None:
    before = _indexed(schema, old) if old is not _ABSENT else {}
    after = _indexed(schema, new) if new is not _ABSENT else {}
    for element in before.keys() | after.keys():
        left, right = before.get(element, _ABSENT), after.get(element, _ABSENT)
        _compare(schema.items, left, right, (*path, element), result)


def _merged_list(schema: SchemaNode, live: list[Any], config: list[Any]) -> list[Any]:
    """The elements of both: the configuration's in its order, the others where they stood between them."""
    present = _indexed(schema, live)
    wanted = _indexed(schema, config)
    if len(wanted) < len(config):
        raise DuplicateKey("the configuration names an element of a list twice")
    lefts, rights = list(present), list(wanted)
    result: list[Any] = []
    emitted: set[str] = set()
    left = right = 0
    while left < len(lefts) or right < len(rights):
        if left < len(lefts):
            name = lefts[left]
            if name not in wanted:
                result.append(present[name])
                left += 1
                continue
            awaited = next((other for other in rights[right:] if other in present), None)
            if name in emitted or (awaited is not None and awaited != name):
                left += 1
                continue
        name = rights[right]
        item = merge(schema.items, present[name], wanted[name]) if name in present else _without_nulls(wanted[name])
        result.append(item)
        emitted.add(name)
        right += 1
    return result


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return value


def _prefixes(paths: FieldSet) -> FieldSet:
    return {path[:length] for path in paths for length in range(1, len(path) + 1)}


#: A set of fields and all their ancestors.
_FieldsAndPrefixes = tuple[FieldSet, FieldSet]


def _prune(
    schema: SchemaNode | None, value: Any, path: Path, last: _FieldsAndPrefixes, kept: _FieldsAndPrefixes
) -> Any:
    if path and path not in last[1]:
        return value
    if isinstance(value, dict) and _is_granular_map(schema):
        fields = schema.fields if schema is not None else {}
        result: dict[str, Any] = {}
        for name, inner in value.items():
            at = (*path, f"f:{name}")
            # A struct is removed when no field in it has an owner; a map's key when the key has none.
            side = 1 if name in fields else 0
            if at in last[side] and at not in kept[side]:
                continue
            left = _prune(_child(schema, name), inner, at, last, kept)
            if left is not _ABSENT:
                result[name] = left
        return result if result or not value or path in kept[0] else _ABSENT
    if isinstance(value, list) and schema is not None and _is_granular_list(schema):
        items = []
        for item in value:
            at = (*path, _element(schema, item))
            if at in last[0] and at not in kept[0]:
                continue
            left = _prune(schema.items, item, at, last, kept)
            if left is not _ABSENT:
                items.append(left)
        return items if items or not value or path in kept[0] else _ABSENT
    return value
