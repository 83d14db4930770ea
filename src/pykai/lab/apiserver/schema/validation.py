"""Walks an object along its schema: fills in defaults, prunes unknown fields, finds problems.

    apply_defaults(schema, obj)           -> obj
    prune(schema, obj)                    -> obj, paths of the unknown fields
    validate(schema, obj)                 -> problems, to answer with 422
    validate_transition(schema, old, new) -> problems of an update

Inputs are not changed; unchanged parts are shared with the result, and an unchanged object is returned itself. Every
write passes here, so the walks go only where the schema requires it: pruning compares names of fields as sets and
descends into containers only, defaulting descends only to nodes with defaults. Most objects are valid: a first pass
checks without building paths and messages, and only if it fails a second one collects the reasons.

Subtle: a null means "absent" in a built-in kind and is dropped; in a CRD it is dropped from a field that is not
nullable.  Elements of lists and values of maps stay, and must be allowed by the schema.

Statements: apiserver:schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pykai.api.quantity import QuantityError, canonical_quantity, nano_value
from pykai.api.timestamp import TimestampError, parse_timestamp
from pykai.api.unstructured import JsonObject
from pykai.lab.apiserver.schema.checks import (
    DUPLICATE,
    REQUIRED,
    TYPE_INVALID,
    format_value,
    invalid,
    is_number,
    type_name,
    unsupported,
    wrong_type,
)
from pykai.lab.apiserver.schema.defaulting import DEFAULTING_RULES
from pykai.lab.apiserver.schema.model import FieldProblem, SchemaNode

_INT32: Final = 1 << 31
_INT64: Final = 1 << 63
#: Objects nested deeper than this are refused rather than walked.
_MAX_DEPTH: Final = 200


def apply_defaults(schema: SchemaNode, obj: JsonObject) -> JsonObject:
    """The object with its absent fields filled in, and its quantities in canonical form."""
    if schema.defaulting is None:
        _mark_defaulting_nodes(schema)
    defaulted: JsonObject = _apply_defaults(schema, obj)
    return defaulted


def prune(schema: SchemaNode, obj: JsonObject) -> tuple[JsonObject, list[str]]:
    """The object without unknown fields, and where they were."""
    if _has_only_known_fields(schema, obj):
        return obj, []
    unknown: list[str] = []
    kept: JsonObject = _prune(schema, obj, "", unknown)
    return kept, unknown


def validate(schema: SchemaNode, obj: JsonObject) -> list[FieldProblem]:
    """Everything in the object that the schema does not allow."""
    problems: list[FieldProblem] = []
    if not _is_valid(schema, obj, 0):
        _check(schema, obj, "", problems, 0)
    return problems


def validate_transition(schema: SchemaNode, old: JsonObject, new: JsonObject) -> list[FieldProblem]:
    """Problems of a change by a CRD's rules; unchanged values are skipped."""
    problems: list[FieldProblem] = []
    _check_transition(schema, old, new, "", problems)
    return problems


def summarise_problems(problems: Iterable[FieldProblem]) -> str:
    """The problems as one text, as in `Pod "x" is invalid: ...`."""
    texts = list(dict.fromkeys(map(str, problems)))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def _mark_defaulting_nodes(root: SchemaNode) -> None:
    """Fill in `defaulting` of all nodes that can be reached: the fields below which there are defaults."""
    nodes: dict[SchemaNode, None] = {}
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node not in nodes:
            nodes[node] = None
            waiting += _child_nodes(node)
    nodes_with_defaults = {
        node for node in nodes if node.defaults or node.name in DEFAULTING_RULES or _is_rewritten(node)
    }
    has_grown = True
    while has_grown:
        more = {
            node
            for node in nodes
            if node not in nodes_with_defaults and any(child in nodes_with_defaults for child in _child_nodes(node))
        }
        nodes_with_defaults |= more
        has_grown = bool(more)
    for node in nodes:
        node.defaulting = {name: child for name, child in node.fields.items() if child in nodes_with_defaults}
        if node.values is not None and node.values in nodes_with_defaults:
            node.defaulting[""] = node.values
        if node.items is not None and node.items in nodes_with_defaults:
            node.defaulting[""] = node.items


def _child_nodes(node: SchemaNode) -> list[SchemaNode]:
    quantities = [child for child in node.fields.values() if _is_rewritten(child)]
    return [
        *node.container_fields.values(),
        *quantities,
        *(child for child in (node.values, node.items) if child is not None),
    ]


def _is_rewritten(node: SchemaNode) -> bool:
    """Quantities of built-in kinds are rewritten in canonical form."""
    return node.format == "quantity" and node.builtin


def _apply_defaults(schema: SchemaNode, value: Any) -> Any:
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
        rule = DEFAULTING_RULES.get(schema.name) if builtin else None
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
                filled = _apply_defaults(child, inner)
                if filled is not inner:
                    if result is value:
                        result = dict(value)
                    result[name] = filled
        return result
    if isinstance(value, list) and below and schema.items is not None:
        items = schema.items
        filled = [_apply_defaults(items, inner) for inner in value]
        return value if all(map(_is_same_object, filled, value)) else filled
    if schema.format == "quantity" and schema.builtin and type(value) in (str, int, float):
        return canonical_quantity(value)
    return value


def _each_value(schema: SchemaNode, value: JsonObject) -> JsonObject:
    filled = {name: _apply_defaults(schema, inner) for name, inner in value.items()}
    return value if all(filled[name] is inner for name, inner in value.items()) else filled


def _is_same_object(left: Any, right: Any) -> bool:
    return left is right


def _has_only_known_fields(schema: SchemaNode, value: Any) -> bool:
    """Whether pruning would leave the value as it is."""
    if type(value) is dict:
        if schema.type != "object":
            return True
        values = schema.values
        if values is not None:
            return values.is_scalar or all(_has_only_known_fields(values, inner) for inner in value.values())
        if not value.keys() <= schema.fields.keys() and not schema.preserves_unknown:
            return False
        if None in value.values():
            return False
        deep = schema.container_fields
        for name, inner in value.items():
            if inner and name in deep and not _has_only_known_fields(deep[name], inner):
                return False
        return True
    if type(value) is list:
        items = schema.items
        if items is not None and not items.is_scalar:
            for inner in value:
                if not _has_only_known_fields(items, inner):
                    return False
    return True


def _prune(schema: SchemaNode, value: Any, path: str, unknown: list[str]) -> Any:
    if isinstance(value, dict) and schema.type == "object":
        if schema.values is not None:
            return _prune_map(schema, schema.values, value, path, unknown)
        result = value
        fields = schema.fields
        if not value.keys() <= fields.keys() and not schema.preserves_unknown:
            prefix = f"{path}." if path else ""
            unknown += [f"{prefix}{name}" for name in value if name not in fields]
            result = {name: inner for name, inner in value.items() if name in fields}
        if None in result.values():
            if schema.builtin:
                result = {name: inner for name, inner in result.items() if inner is not None}
            else:
                result = {
                    name: inner for name, inner in result.items() if inner is not None or _is_null_allowed(fields, name)
                }
        deep = schema.container_fields
        for name in deep.keys() & result.keys():
            inner = result[name]
            if inner:
                kept = _prune(deep[name], inner, f"{path}.{name}" if path else name, unknown)
                if kept is not inner:
                    if result is value:
                        result = dict(value)
                    result[name] = kept
        return result
    if isinstance(value, list) and schema.type == "list":
        items = schema.items
        if items is None or items.is_scalar:
            return value
        kept = [_prune(items, inner, f"{path}[{index}]", unknown) for index, inner in enumerate(value)]
        return value if all(map(_is_same_object, kept, value)) else kept
    return value


def _is_null_allowed(fields: Mapping[str, SchemaNode], name: str) -> bool:
    field = fields.get(name)
    return field is None or field.nullable or field.type == "any"


def _prune_map(schema: SchemaNode, values: SchemaNode, value: JsonObject, path: str, unknown: list[str]) -> JsonObject:
    if values.is_scalar:
        return value
    kept = {name: _prune(values, inner, f"{path}.{name}", unknown) for name, inner in value.items()}
    return value if all(kept[name] is inner for name, inner in value.items()) else kept


def _is_valid(schema: SchemaNode, value: Any, depth: int) -> bool:
    """Whether the value is valid; the fast version of `_check`."""
    kind = schema.type
    if kind == "object":
        if type(value) is not dict or depth > _MAX_DEPTH:
            return False
        for name in schema.required_nonempty if schema.builtin else schema.required:
            if not value.get(name) and (schema.builtin or name not in value):
                return False
        values = schema.values
        if values is not None:
            if values.type == "string" and not values.format and not values.checks:
                for inner in value.values():
                    if type(inner) is not str:
                        return False
            else:
                for inner in value.values():
                    if not _is_valid(values, inner, depth + 1):
                        return False
        else:
            plain, fields = schema.plain_types, schema.fields
            for name, inner in value.items():
                if plain.get(name) is not type(inner):
                    child = fields.get(name)
                    if child is not None and not _is_valid(child, inner, depth + 1):
                        return False
    elif kind == "list":
        if type(value) is not list:
            return False
        items = schema.items
        if items is not None:
            for inner in value:
                if not _is_valid(items, inner, depth + 1):
                    return False
        if schema.list_type != "atomic" and len(value) > 1 and not _has_unique_elements(schema, value):
            return False
    elif not _scalar_fits(schema, value) or (value is None and not schema.nullable and kind != "any"):
        return False
    if schema.enum and value not in schema.enum:
        return False
    if schema.checks:
        problems: list[FieldProblem] = []
        for check in schema.checks:
            check(value, "", problems)
        return not problems
    return True


def _has_unique_elements(schema: SchemaNode, value: list[Any]) -> bool:
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


def _check(schema: SchemaNode, value: Any, path: str, problems: list[FieldProblem], depth: int) -> None:
    if depth > _MAX_DEPTH:
        problems.append(invalid(path, "...", f"nested deeper than {_MAX_DEPTH} levels"))
        return
    kind = schema.type
    if value is None:
        if not (schema.nullable or kind == "any" or schema.builtin):
            problems.append(wrong_type(path, value, {"list": "array"}.get(kind, kind)))
        return
    if kind == "object":
        if not isinstance(value, dict):
            problems.append(wrong_type(path, value, "object"))
            return
        _check_fields(schema, value, path, problems, depth)
    elif kind == "list":
        if not isinstance(value, list):
            problems.append(wrong_type(path, value, "array"))
            return
        if schema.items is not None:
            items = schema.items
            for index, inner in enumerate(value):
                if inner is None and items.builtin and not items.is_scalar:
                    # Only fields can be absent; a null element would reach every reader.
                    problems.append(
                        wrong_type(f"{path}[{index}]", inner, {"list": "array"}.get(items.type, items.type))
                    )
                else:
                    _check(items, inner, f"{path}[{index}]", problems, depth + 1)
        if schema.list_type != "atomic":
            _check_unique(schema, value, path, problems)
    elif not _scalar_fits(schema, value):
        problems.append(_scalar_problem(schema, value, path))
        return
    if schema.enum and value not in schema.enum and (value != "" or not schema.builtin):
        problems.append(unsupported(path, value, schema.enum))
    for check in schema.checks:
        check(value, path, problems)


def _check_fields(schema: SchemaNode, value: JsonObject, path: str, problems: list[FieldProblem], depth: int) -> None:
    for name in schema.required_nonempty if schema.builtin else schema.required:
        present = value.get(name)
        if present is None or (schema.builtin and present in ("", 0, [], {}) and present is not False):
            if present is None and name in value and not schema.builtin:
                continue
            problems.append(FieldProblem(f"{path}.{name}" if path else name, REQUIRED, "Required value"))
    values = schema.values
    if values is not None:
        for name, inner in value.items():
            _check(values, inner, f"{path}.{name}", problems, depth + 1)
        return
    fields = schema.fields
    for name, inner in value.items():
        child = fields.get(name)
        if child is None:
            continue
        if name == "status" and not path and schema.builtin:
            # Observers write statuses, which may use newer values than this table lists.
            status_problems: list[FieldProblem] = []
            _check(child, inner, name, status_problems, depth + 1)
            problems += [problem for problem in status_problems if problem.kind == TYPE_INVALID]
            continue
        _check(child, inner, f"{path}.{name}" if path else name, problems, depth + 1)


def _check_transition(schema: SchemaNode, old: Any, new: Any, path: str, problems: list[FieldProblem]) -> None:
    if not schema.has_transition_checks or old is None or new is None or old == new:
        return
    for check in schema.transitions:
        check(old, new, path, problems)
    if isinstance(old, dict) and isinstance(new, dict):
        for name in old.keys() & new.keys():
            child = schema.child(name)
            if child is not None:
                _check_transition(child, old[name], new[name], f"{path}.{name}" if path else name, problems)
    elif isinstance(old, list) and isinstance(new, list) and schema.list_type == "map" and schema.items is not None:
        # Only keyed elements can be matched with their old version.
        before = {format_value([item.get(key) for key in schema.keys]): item for item in old if isinstance(item, dict)}
        for index, item in enumerate(new):
            if isinstance(item, dict):
                past = before.get(format_value([item.get(key) for key in schema.keys]))
                _check_transition(schema.items, past, item, f"{path}[{index}]", problems)


def _check_unique(schema: SchemaNode, value: list[Any], path: str, problems: list[FieldProblem]) -> None:
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
        text = format_value(identity)
        if text in seen:
            problems.append(FieldProblem(f"{path}[{index}]", DUPLICATE, f"Duplicate value: {text}"))
        seen.add(text)


def _scalar_fits(schema: SchemaNode, value: Any) -> bool:
    kind, form = schema.type, schema.format
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


def _scalar_problem(schema: SchemaNode, value: Any, path: str) -> FieldProblem:
    if schema.format == "quantity" and isinstance(value, str):
        pattern = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
        detail = f"quantities must match the regular expression '{pattern}'"
        return FieldProblem(path, TYPE_INVALID, f"Invalid value: {format_value(value)}: {detail}")
    if schema.format in ("time", "microtime") and isinstance(value, str):
        detail = f"{path} in body must be of type date-time: {format_value(value)}"
        return FieldProblem(path, TYPE_INVALID, f"Invalid value: {format_value(value)}: {detail}")
    if schema.format in ("int32", "int64") and schema.builtin and type(value) is int:
        return FieldProblem(
            path, TYPE_INVALID, f"Invalid value: {value}: {path} in body must be of type {schema.format}"
        )
    expected = schema.format if schema.type == "any" else schema.type
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
