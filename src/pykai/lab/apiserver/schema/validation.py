"""Walks of an object beside its schema: fill in defaults, drop what is unknown, find what is wrong.

    with_defaults(schema, obj) -> obj
    pruned(schema, obj)        -> obj, paths of the unknown fields
    problems(schema, obj)      -> what to answer with 422
    transition_problems(schema, old, new) -> the same, for what an update may not do

Nothing that comes in is changed; parts without a change are shared with the result, and where nothing changes the
object itself comes back.  Every write passes here, so the walks go only where the schema gives them something to do:
pruning compares names of fields as sets and looks into containers only, defaults go down only to where some are.  Most
objects are in order: a first pass says so without building paths and texts, and only where it does not a second one
looks for the reasons.

Subtle: a null stands for "absent" in a built-in kind and is dropped; in a CRD it is dropped from a field that is not
nullable.  Elements of lists and values of maps stay, and must be allowed by the schema.

Statements: apiserver:schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pykai.api.quantity import QuantityError, canonical_quantity, nano_value
from pykai.api.timestamp import TimestampError, parse_timestamp
from pykai.lab.apiserver.schema.checks import (
    DUPLICATE,
    REQUIRED,
    TYPE_INVALID,
    invalid,
    is_number,
    shown,
    type_name,
    unsupported,
    wrong_type,
)
from pykai.lab.apiserver.schema.defaulting import RULES
from pykai.lab.apiserver.schema.model import FieldProblem, Schema

Object = dict[str, Any]

_INT32: Final = 1 << 31
_INT64: Final = 1 << 63
#: Objects nested deeper than this are refused rather than walked.
_DEEPEST: Final = 200


def with_defaults(schema: Schema, obj: Object) -> Object:
    """The object with its absent fields filled in, and its quantities in the form they are given back."""
    if schema.defaulting is None:
        _find_defaults(schema)
    defaulted: Object = _defaulted(schema, obj)
    return defaulted


def pruned(schema: Schema, obj: Object) -> tuple[Object, list[str]]:
    """The object without unknown fields, and where they were."""
    if _known(schema, obj):
        return obj, []
    unknown: list[str] = []
    kept: Object = _pruned(schema, obj, "", unknown)
    return kept, unknown


def problems(schema: Schema, obj: Object) -> list[FieldProblem]:
    """Everything in the object that the schema does not allow."""
    found: list[FieldProblem] = []
    if not _fits(schema, obj, 0):
        _check(schema, obj, "", found, 0)
    return found


def transition_problems(schema: Schema, old: Object, new: Object) -> list[FieldProblem]:
    """What the rules of a CRD have against this change; values that stay the same are not looked at."""
    found: list[FieldProblem] = []
    _check_transition(schema, old, new, "", found)
    return found


def summary(found: Iterable[FieldProblem]) -> str:
    """The problems as one text, as in `Pod "x" is invalid: ...`."""
    texts = list(dict.fromkeys(map(str, found)))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def _find_defaults(root: Schema) -> None:
    """Fill in `defaulting` of all nodes that can be reached: the fields below which there are defaults."""
    nodes: dict[Schema, None] = {}
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node not in nodes:
            nodes[node] = None
            waiting += _below(node)
    has = {node for node in nodes if node.defaults or node.name in RULES or _is_rewritten(node)}
    grown = True
    while grown:
        more = {node for node in nodes if node not in has and any(child in has for child in _below(node))}
        has |= more
        grown = bool(more)
    for node in nodes:
        node.defaulting = {name: child for name, child in node.fields.items() if child in has}
        if node.values is not None and node.values in has:
            node.defaulting[""] = node.values
        if node.items is not None and node.items in has:
            node.defaulting[""] = node.items


def _below(node: Schema) -> list[Schema]:
    quantities = [child for child in node.fields.values() if _is_rewritten(child)]
    return [*node.deep.values(), *quantities, *(child for child in (node.values, node.items) if child is not None)]


def _is_rewritten(node: Schema) -> bool:
    """Quantities of built-in kinds are given back in their shortest form, whatever they were sent as."""
    return node.form == "quantity" and node.builtin


def _defaulted(schema: Schema, value: Any) -> Any:
    below = schema.defaulting
    if isinstance(value, dict):
        result = value
        builtin = schema.builtin
        for name, default in schema.defaults.items():
            present = value.get(name)
            if present is None:
                if name in value and not builtin and schema.fields[name].nullable:
                    continue
            elif not (present == "" and builtin and default and isinstance(default, str)):
                continue
            if result is value:
                result = dict(value)
            result[name] = default
        rule = RULES.get(schema.name) if builtin else None
        if rule is not None:
            added = rule(result)
            if added and any(result.get(name) != field for name, field in added.items()):
                result = {**result, **added}
        if not below:
            return result
        if schema.values is not None:
            return _each_value(schema.values, result)
        for name, child in below.items():
            inner = result.get(name)
            if inner is not None:
                filled = _defaulted(child, inner)
                if filled is not inner:
                    if result is value:
                        result = dict(value)
                    result[name] = filled
        return result
    if isinstance(value, list) and below and schema.items is not None:
        items = schema.items
        filled = [_defaulted(items, inner) for inner in value]
        return value if all(map(_is, filled, value)) else filled
    if schema.form == "quantity" and schema.builtin and type(value) in (str, int, float):
        return canonical_quantity(value)
    return value


def _each_value(schema: Schema, value: Object) -> Object:
    filled = {name: _defaulted(schema, inner) for name, inner in value.items()}
    return value if all(filled[name] is inner for name, inner in value.items()) else filled


def _is(left: Any, right: Any) -> bool:
    return left is right


def _known(schema: Schema, value: Any) -> bool:
    """Whether pruning would leave the value as it is."""
    if type(value) is dict:
        if schema.type != "object":
            return True
        values = schema.values
        if values is not None:
            return values.scalar or all(_known(values, inner) for inner in value.values())
        if not value.keys() <= schema.fields.keys() and not schema.preserve:
            return False
        if None in value.values():
            return False
        deep = schema.deep
        for name, inner in value.items():  # noqa: SIM110 - a generator costs a third more on every write
            if inner and name in deep and not _known(deep[name], inner):
                return False
        return True
    if type(value) is list:
        items = schema.items
        if items is not None and not items.scalar:
            for inner in value:
                if not _known(items, inner):
                    return False
    return True


def _pruned(schema: Schema, value: Any, path: str, unknown: list[str]) -> Any:
    if isinstance(value, dict) and schema.type == "object":
        if schema.values is not None:
            return _pruned_map(schema, schema.values, value, path, unknown)
        result = value
        fields = schema.fields
        if not value.keys() <= fields.keys() and not schema.preserve:
            prefix = f"{path}." if path else ""
            unknown += [f"{prefix}{name}" for name in value if name not in fields]
            result = {name: inner for name, inner in value.items() if name in fields}
        if None in result.values():
            if schema.builtin:
                result = {name: inner for name, inner in result.items() if inner is not None}
            else:
                result = {
                    name: inner for name, inner in result.items() if inner is not None or _may_be_null(fields, name)
                }
        deep = schema.deep
        for name in deep.keys() & result.keys():
            inner = result[name]
            if inner:
                kept = _pruned(deep[name], inner, f"{path}.{name}" if path else name, unknown)
                if kept is not inner:
                    if result is value:
                        result = dict(value)
                    result[name] = kept
        return result
    if isinstance(value, list) and schema.type == "list":
        items = schema.items
        if items is None or items.scalar:
            return value
        kept = [_pruned(items, inner, f"{path}[{index}]", unknown) for index, inner in enumerate(value)]
        return value if all(map(_is, kept, value)) else kept
    return value


def _may_be_null(fields: Mapping[str, Schema], name: str) -> bool:
    field = fields.get(name)
    return field is None or field.nullable or field.type == "any"


def _pruned_map(schema: Schema, values: Schema, value: Object, path: str, unknown: list[str]) -> Object:
    if values.scalar:
        return value
    kept = {name: _pruned(values, inner, f"{path}.{name}", unknown) for name, inner in value.items()}
    return value if all(kept[name] is inner for name, inner in value.items()) else kept


def _fits(schema: Schema, value: Any, depth: int) -> bool:
    """Whether there is nothing to say about the value; the quick twin of `_check`."""
    kind = schema.type
    if kind == "object":
        if type(value) is not dict or depth > _DEEPEST:
            return False
        for name in schema.essential if schema.builtin else schema.required:
            if not value.get(name) and (schema.builtin or name not in value):
                return False
        values = schema.values
        if values is not None:
            if values.type == "string" and not values.form and not values.checks:
                for inner in value.values():
                    if type(inner) is not str:
                        return False
            else:
                for inner in value.values():
                    if not _fits(values, inner, depth + 1):
                        return False
        else:
            plain, fields = schema.plain, schema.fields
            for name, inner in value.items():
                if plain.get(name) is not type(inner):
                    child = fields.get(name)
                    if child is not None and not _fits(child, inner, depth + 1):
                        return False
    elif kind == "list":
        if type(value) is not list:
            return False
        items = schema.items
        if items is not None:
            for inner in value:
                if not _fits(items, inner, depth + 1):
                    return False
        if schema.list_type != "atomic" and len(value) > 1 and not _unique(schema, value):
            return False
    elif not _scalar_fits(schema, value) or (value is None and not schema.nullable and kind != "any"):
        return False
    if schema.enum and value not in schema.enum:
        return False
    if schema.checks:
        found: list[FieldProblem] = []
        for check in schema.checks:
            check(value, "", found)
        return not found
    return True


def _unique(schema: Schema, value: list[Any]) -> bool:
    """Whether the elements are plainly different."""
    try:
        if schema.list_type == "set":
            return len(set(value)) == len(value)
        if len(schema.keys) == 1:
            key = schema.keys[0]
            return len({inner[key] for inner in value}) == len(value)
        return len({tuple([inner[key] for key in schema.keys]) for inner in value}) == len(value)
    except (KeyError, TypeError):
        return False


def _check(schema: Schema, value: Any, path: str, found: list[FieldProblem], depth: int) -> None:
    if depth > _DEEPEST:
        found.append(invalid(path, "...", f"nested deeper than {_DEEPEST} levels"))
        return
    kind = schema.type
    if value is None:
        if not (schema.nullable or kind == "any" or schema.builtin):
            found.append(wrong_type(path, value, {"list": "array"}.get(kind, kind)))
        return
    if kind == "object":
        if not isinstance(value, dict):
            found.append(wrong_type(path, value, "object"))
            return
        _check_fields(schema, value, path, found, depth)
    elif kind == "list":
        if not isinstance(value, list):
            found.append(wrong_type(path, value, "array"))
            return
        if schema.items is not None:
            items = schema.items
            for index, inner in enumerate(value):
                if inner is None and items.builtin and not items.scalar:
                    # Absent is a word for fields; an element that is not there would be met by everybody who reads.
                    found.append(wrong_type(f"{path}[{index}]", inner, {"list": "array"}.get(items.type, items.type)))
                else:
                    _check(items, inner, f"{path}[{index}]", found, depth + 1)
        if schema.list_type != "atomic":
            _check_unique(schema, value, path, found)
    elif not _scalar_fits(schema, value):
        found.append(_scalar_problem(schema, value, path))
        return
    if schema.enum and value not in schema.enum and (value != "" or not schema.builtin):
        found.append(unsupported(path, value, schema.enum))
    for check in schema.checks:
        check(value, path, found)


def _check_fields(schema: Schema, value: Object, path: str, found: list[FieldProblem], depth: int) -> None:
    for name in schema.essential if schema.builtin else schema.required:
        present = value.get(name)
        if present is None or (schema.builtin and present in ("", 0, [], {}) and present is not False):
            if present is None and name in value and not schema.builtin:
                continue
            found.append(FieldProblem(f"{path}.{name}" if path else name, REQUIRED, "Required value"))
    values = schema.values
    if values is not None:
        for name, inner in value.items():
            _check(values, inner, f"{path}.{name}", found, depth + 1)
        return
    fields = schema.fields
    for name, inner in value.items():
        child = fields.get(name)
        if child is None:
            continue
        if name == "status" and not path and schema.builtin:
            # A status is written by those who observe; its words are not held to the lists of today.
            observed: list[FieldProblem] = []
            _check(child, inner, name, observed, depth + 1)
            found += [problem for problem in observed if problem.kind == TYPE_INVALID]
            continue
        _check(child, inner, f"{path}.{name}" if path else name, found, depth + 1)


def _check_transition(schema: Schema, old: Any, new: Any, path: str, found: list[FieldProblem]) -> None:
    if not schema.watched or old is None or new is None or old == new:
        return
    for check in schema.transitions:
        check(old, new, path, found)
    if isinstance(old, dict) and isinstance(new, dict):
        for name in old.keys() & new.keys():
            child = schema.child(name)
            if child is not None:
                _check_transition(child, old[name], new[name], f"{path}.{name}" if path else name, found)
    elif isinstance(old, list) and isinstance(new, list) and schema.list_type == "map" and schema.items is not None:
        # Only elements with a key are the same ones before and after.
        before = {shown([item.get(key) for key in schema.keys]): item for item in old if isinstance(item, dict)}
        for index, item in enumerate(new):
            if isinstance(item, dict):
                past = before.get(shown([item.get(key) for key in schema.keys]))
                _check_transition(schema.items, past, item, f"{path}[{index}]", found)


def _check_unique(schema: Schema, value: list[Any], path: str, found: list[FieldProblem]) -> None:
    seen: set[str] = set()
    for index, inner in enumerate(value):
        if schema.list_type == "map":
            if not isinstance(inner, dict):
                continue
            identity: Any = {key: inner[key] for key in schema.keys if key in inner}
            if schema.builtin and len(identity) < len(schema.keys):
                continue
        else:
            identity = inner
        text = shown(identity)
        if text in seen:
            found.append(FieldProblem(f"{path}[{index}]", DUPLICATE, f"Duplicate value: {text}"))
        seen.add(text)


def _scalar_fits(schema: Schema, value: Any) -> bool:
    kind, form = schema.type, schema.form
    if kind == "string":
        if not isinstance(value, str):
            return False
        return not schema.builtin or form not in ("time", "microtime") or _is_time(value)
    if kind == "integer":
        if schema.builtin:
            edge = _INT32 if form == "int32" else _INT64
            return type(value) is int and -edge <= value < edge
        return type_name(value) == "integer"
    if kind == "number":
        return is_number(value)
    if kind == "boolean":
        return isinstance(value, bool)
    if form == "quantity":
        return _is_quantity(value)
    if form == "int-or-string":
        return isinstance(value, str) or type_name(value) == "integer"
    return True


def _scalar_problem(schema: Schema, value: Any, path: str) -> FieldProblem:
    if schema.form == "quantity" and isinstance(value, str):
        pattern = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
        detail = f"quantities must match the regular expression '{pattern}'"
        return FieldProblem(path, TYPE_INVALID, f"Invalid value: {shown(value)}: {detail}")
    if schema.form in ("time", "microtime") and isinstance(value, str):
        detail = f"{path} in body must be of type date-time: {shown(value)}"
        return FieldProblem(path, TYPE_INVALID, f"Invalid value: {shown(value)}: {detail}")
    if schema.form in ("int32", "int64") and schema.builtin and type(value) is int:
        return FieldProblem(path, TYPE_INVALID, f"Invalid value: {value}: {path} in body must be of type {schema.form}")
    expected = schema.form if schema.type == "any" else schema.type
    return wrong_type(path, value, {"int-or-string": "integer,string", "quantity": "string"}.get(expected, expected))


def _is_quantity(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return False
    try:
        nano_value(value)
    except QuantityError:
        return False
    return True


def _is_time(value: str) -> bool:
    try:
        parse_timestamp(value)
    except TimestampError:
        return False
    return True
