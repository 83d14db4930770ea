"""The three patches without field ownership: JSON patch (RFC 6902), merge patch (RFC 7386), strategic merge patch.

In: an object as plain dicts and lists, and a patch. Out: the patched object; nothing that came in is changed, and what
the patch does not touch is the same dict or list in the result. A patch that cannot be applied raises `PatchError` with
the HTTP code and the sentence for the answer. Server-side apply is in `lab.apiserver.managedfields`.

A strategic merge patch needs the schema, which says which lists merge and by which key. It may carry directives:
`$patch: delete | replace | merge` in an object, `$retainKeys`, `$deleteFromPrimitiveList/<field>`, and
`$setElementOrder/<field>`, which gives the order of the merged list.

Subtle: the order of a merged list.  Elements named by the patch (or by `$setElementOrder`) have the patch's order, the
others keep the server's; where the server's order does not separate two of them, the patch's element comes first.  A
new element of a plain strategic patch therefore comes first, as on a real server.

Statements: apiserver:patching.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pykai.lab.apiserver.schema.model import SchemaNode

_PATCH: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_ORDER: Final = "$setElementOrder/"
_DELETE_PRIMITIVES: Final = "$deleteFromPrimitiveList/"
#: JSON patches longer than this are refused, as the real server does.
_MAX_OPERATIONS: Final = 10_000
#: Total elements that `copy` operations may add, against patches that double a document each step.
_MAX_COPIED_ELEMENTS: Final = 1_000_000


class PatchError(ValueError):
    """A patch that cannot be applied: `code` and `message` of the answer."""

    def __init__(self, message: str, code: int = 422) -> None:
        self.code = code
        self.message = message
        super().__init__(message)


def json_patch(obj: Mapping[str, Any], operations: Any) -> dict[str, Any]:
    """The object after the operations; PatchError if one of them does not apply."""
    if not isinstance(operations, list):
        raise PatchError("a JSON patch is a list of operations", 400)
    if len(operations) > _MAX_OPERATIONS:
        raise PatchError(
            f"the allowed maximum operations in a JSON patch is {_MAX_OPERATIONS}, got {len(operations)}", 413
        )
    document: Any = obj
    copied = 0
    for operation in operations:
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            raise PatchError("an operation of a JSON patch is an object with op and path", 400)
        source = operation.get("from")
        if operation.get("op") == "copy" and isinstance(source, str):
            copied += _element_count(_lookup(document, _tokens(source), "copy", source))
            if copied > _MAX_COPIED_ELEMENTS:
                raise PatchError("the copy operations of the patch make the object too large", 413)
        document = _apply_operation(document, operation)
    if not isinstance(document, dict):
        raise PatchError("the result of the patch is not an object")
    return document


def merge_patch(obj: Any, patch: Any) -> Any:
    """The object after an RFC 7386 patch: null removes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(obj) if isinstance(obj, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            merged[name] = merge_patch(merged.get(name), value)
        else:
            merged[name] = value
    return merged


def strategic_patch(schema: SchemaNode | None, obj: Mapping[str, Any], patch: Any) -> dict[str, Any]:
    """The object after a strategic merge patch; kinds without a built-in schema (CRDs) refuse it with 415."""
    if schema is None or not schema.builtin:
        raise PatchError(
            "the body of the request was in an unknown format - accepted media types include: "
            "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            415,
        )
    if not isinstance(patch, dict):
        raise PatchError("a strategic merge patch is an object", 400)
    return _merged_map(schema, obj, patch)


def _apply_operation(document: Any, operation: dict[str, Any]) -> Any:
    op = operation.get("op")
    path = operation["path"]
    tokens = _tokens(path)
    if op in ("add", "replace", "test") and "value" not in operation:
        raise PatchError(f"{op} operation for path {path} has no value", 400)
    if op == "add":
        return _added(document, tokens, operation["value"], path)
    if op == "remove":
        return _removed(document, tokens, "remove", path)
    if op == "replace":
        return _replaced(document, tokens, operation["value"], path)
    if op == "test":
        try:
            current_value = _lookup(document, tokens, "test", path)
        except PatchError:
            if operation["value"] is None:
                return document
            raise PatchError(f"testing path {path} failed: the path does not exist: test failed") from None
        if not _is_json_equal(current_value, operation["value"]):
            raise PatchError(f"testing value {path} failed: test failed")
        return document
    if op in ("move", "copy"):
        source = operation.get("from")
        if not isinstance(source, str):
            raise PatchError(f"{op} operation for path {path} has no from", 400)
        value = _lookup(document, _tokens(source), op, source)
        if op == "move":
            if path.startswith(source + "/"):
                raise PatchError(f"move operation does not apply: {path} lies within {source}")
            document = _removed(document, _tokens(source), "move", source)
        return _added(document, tokens, value, path)
    raise PatchError(f"unexpected kind of operation in a JSON patch: {op!r}", 400)


def _tokens(path: str) -> list[str]:
    if path == "":
        return []
    if not path.startswith("/"):
        raise PatchError(f"path {path} of a JSON patch does not start with a slash", 400)
    return [token.replace("~1", "/").replace("~0", "~") for token in path[1:].split("/")]


def _index(token: str, length: int, op: str, path: str) -> int:
    """An index into a list of this length; `length` itself is one past the end."""
    digits = token[1:] if token.startswith("-") else token
    if not digits.isascii() or not digits.isdigit() or (len(digits) > 1 and digits.startswith("0")):
        raise PatchError(f"{op} operation does not apply: {token!r} in {path} is not an index")
    index = int(token)
    if index < 0:
        index += length
    if not 0 <= index <= length:
        raise PatchError(f"{op} operation does not apply: index {token} in {path} is out of bounds")
    return index


def _missing(op: str, path: str) -> PatchError:
    return PatchError(f"{op} operation does not apply: doc is missing path: {path}: missing value")


def _lookup(document: Any, tokens: Sequence[str], op: str, path: str) -> Any:
    for token in tokens:
        if isinstance(document, dict):
            if token not in document:
                raise _missing(op, path)
            document = document[token]
        elif isinstance(document, list):
            index = _index(token, len(document), op, path)
            if index == len(document):
                raise _missing(op, path)
            document = document[index]
        else:
            raise _missing(op, path)
    return document


def _copy_and_child(document: Any, tokens: Sequence[str], op: str, path: str) -> tuple[Any, Any]:
    """A copy of the container, and its child at the first token (which must exist)."""
    child = _lookup(document, tokens[:1], op, path)
    return (dict(document) if isinstance(document, dict) else list(document)), child


def _put(container: Any, token: str, value: Any) -> Any:
    container[token if isinstance(container, dict) else int(token)] = value
    return container


def _added(document: Any, tokens: list[str], value: Any, path: str) -> Any:
    if not tokens:
        return value
    if len(tokens) > 1:
        container, child = _copy_and_child(document, tokens, "add", path)
        return _put(container, tokens[0], _added(child, tokens[1:], value, path))
    if isinstance(document, dict):
        return {**document, tokens[0]: value}
    if isinstance(document, list):
        at = len(document) if tokens[0] == "-" else _index(tokens[0], len(document), "add", path)
        return [*document[:at], value, *document[at:]]
    raise _missing("add", path)


def _removed(document: Any, tokens: list[str], op: str, path: str) -> Any:
    if not tokens:
        raise PatchError(f"{op} operation does not apply: the whole object cannot be removed")
    container, child = _copy_and_child(document, tokens, op, path)
    if len(tokens) > 1:
        return _put(container, tokens[0], _removed(child, tokens[1:], op, path))
    del container[tokens[0] if isinstance(container, dict) else int(tokens[0])]
    return container


def _replaced(document: Any, tokens: list[str], value: Any, path: str) -> Any:
    if not tokens:
        return value
    if len(tokens) == 1 and isinstance(document, dict):
        # A field that is absent is added, against the letter of RFC 6902: Kubernetes does so.
        return {**document, tokens[0]: value}
    container, child = _copy_and_child(document, tokens, "replace", path)
    return _put(container, tokens[0], _replaced(child, tokens[1:], value, path) if len(tokens) > 1 else value)


def _is_json_equal(left: Any, right: Any) -> bool:
    """Equality of JSON: true is not 1, but 1.0 is 1."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_is_json_equal(value, right[name]) for name, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_is_json_equal, left, right))
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


def _element_count(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(_element_count, value.values()))
    return 1 + sum(map(_element_count, value)) if isinstance(value, list) else 1


def _merged_map(schema: SchemaNode | None, original: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    directive = patch.get(_PATCH)
    if directive is not None:
        if directive == "replace":
            return {name: _without_directives(value) for name, value in patch.items() if name != _PATCH}
        if directive == "delete":
            return {}
        if directive != "merge":
            raise PatchError(f"unknown patch type: {directive}", 400)
    merged = dict(original)
    if _RETAIN in patch:
        _retain(merged, patch)
    fields = schema.fields if schema is not None else {}
    for name, value in patch.items():
        if _is_directive(name):
            if name.startswith(_DELETE_PRIMITIVES):
                _delete_primitives(merged, name, value)
            elif name.startswith(_ORDER) and name.removeprefix(_ORDER) not in patch:
                _reorder(merged, name.removeprefix(_ORDER), value, fields)
            continue
        if value is None:
            merged.pop(name, None)
            continue
        child = fields.get(name)
        if child is None and schema is not None:
            child = schema.values
        present = merged.get(name)
        order = patch.get(_ORDER + name)
        if isinstance(value, dict):
            if child is not None and child.patch == "replace":
                merged[name] = _without_directives(value)
            else:
                merged[name] = _merged_map(child, present if isinstance(present, dict) else {}, value)
        elif isinstance(value, list) and child is not None and "merge" in child.patch:
            before = present if isinstance(present, list) else []
            merged[name] = _merged_list(child, before, value, order, name)
        else:
            merged[name] = _without_directives(value)
    return merged


def _is_directive(name: str) -> bool:
    # A field of a JSON schema may be called `$ref`.
    return name.startswith("$") and (name in (_PATCH, _RETAIN) or name.startswith((_ORDER, _DELETE_PRIMITIVES)))


def _retain(merged: dict[str, Any], patch: Mapping[str, Any]) -> None:
    kept = patch[_RETAIN]
    if not isinstance(kept, list):
        raise PatchError(f"{_RETAIN} is a list of names", 400)
    for name in patch:
        if not _is_directive(name) and patch[name] is not None and name not in kept:
            raise PatchError(f"{_RETAIN} list doesn't contain {name}, which the patch sets", 400)
    for name in [name for name in merged if name not in kept]:
        del merged[name]


def _delete_primitives(merged: dict[str, Any], directive: str, values: Any) -> None:
    name = directive.removeprefix(_DELETE_PRIMITIVES)
    if not isinstance(values, list):
        raise PatchError(f"{directive} is a list", 400)
    present = merged.get(name)
    if isinstance(present, list):
        merged[name] = [element for element in present if element not in values]


def _reorder(merged: dict[str, Any], name: str, order: Any, fields: Mapping[str, SchemaNode]) -> None:
    """Order a list that the patch itself does not change."""
    present = merged.get(name)
    child = fields.get(name)
    if isinstance(present, list) and isinstance(order, list) and child is not None and "merge" in child.patch:
        merged[name] = _ordered(present, order, present, child.patch_key)


def _merged_list(schema: SchemaNode, original: list[Any], patch: list[Any], order: Any, name: str) -> list[Any]:
    key = schema.patch_key
    if not key:
        if any(isinstance(value, (dict, list)) for value in patch):
            raise PatchError(f"the list {name} holds scalars, the patch has objects", 400)
        merged = list(dict.fromkeys([*original, *patch]))
        return _ordered(merged, order if isinstance(order, list) else patch, original, "")
    kept: list[dict[str, Any]] = []
    replacing = False
    deleted_keys: list[Any] = []
    for element in patch:
        if not isinstance(element, dict):
            raise PatchError(f"the list {name} holds objects, the patch has {element!r}", 400)
        directive = element.get(_PATCH)
        if directive == "replace":
            replacing = True
            rest = {field: value for field, value in element.items() if field != _PATCH}
            if rest:
                kept.append(rest)
        elif key not in element:
            raise PatchError(f"an element of {name} does not contain declared merge key: {key}")
        elif directive == "delete":
            deleted_keys.append(element[key])
        elif directive in (None, "merge"):
            kept.append({field: value for field, value in element.items() if field != _PATCH})
        else:
            raise PatchError(f"unknown patch type: {directive}", 400)
    if replacing:
        return [_without_directives(element) for element in kept]
    before = [element for element in original if not isinstance(element, dict) or element.get(key) not in deleted_keys]
    positions = {element.get(key): place for place, element in enumerate(before) if isinstance(element, dict)}
    merged_elements = list(before)
    for element in kept:
        place = positions.get(element[key])
        if place is None:
            positions[element[key]] = len(merged_elements)
            merged_elements.append(_merged_map(schema.items, {}, element))
        else:
            merged_elements[place] = _merged_map(schema.items, merged_elements[place], element)
    return _ordered(merged_elements, order if isinstance(order, list) else kept, original, key)


def _ordered(merged: list[Any], order: list[Any], server: list[Any], key: str) -> list[Any]:
    """Elements that `order` names in its order, the rest between them in the server's order."""

    def identity(element: Any) -> Any:
        return element.get(key) if key and isinstance(element, dict) else element

    requested_positions: dict[Any, int] = {}
    for element in order:
        requested_positions.setdefault(identity(element), len(requested_positions))
    server_positions: dict[Any, int] = {}
    for element in server:
        server_positions.setdefault(identity(element), len(server_positions))
    named = sorted(
        (element for element in merged if identity(element) in requested_positions),
        key=lambda element: requested_positions[identity(element)],
    )
    others = [element for element in merged if identity(element) not in requested_positions]
    result: list[Any] = []
    at = 0
    for element in others:
        place = server_positions.get(identity(element))
        while at < len(named):
            named_place = server_positions.get(identity(named[at]))
            if place is not None and named_place is not None and place < named_place:
                break
            result.append(named[at])
            at += 1
        result.append(element)
    return result + named[at:]


def _without_directives(value: Any) -> Any:
    """A part of a patch without a counterpart to merge with: drop nulls and directives."""
    if isinstance(value, dict):
        if value.get(_PATCH) == "delete":
            return {}
        return {
            name: _without_directives(inner)
            for name, inner in value.items()
            if inner is not None and not _is_directive(name)
        }
    if isinstance(value, list):
        return [
            _without_directives(inner)
            for inner in value
            if not (isinstance(inner, dict) and (inner.get(_PATCH) == "delete" or inner.keys() == {_PATCH}))
        ]
    return value
