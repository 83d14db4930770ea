"""Reads the workload kinds that an administrator declares: YAML, a list below `kinds`.

Each mistake is a sentence with the line, the path of the field and what to do.  An entry with a mistake is left out and
the others are used; a text that is no YAML declares nothing (kinds:declared).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import yaml

from pykai.api.decode import DecodeError, decode_as
from pykai.api.suggestions import did_you_mean
from pykai.podgrouper.declaredkind import ALL, DeclaredKind, declared_grouper
from pykai.podgrouper.kinds.table import built_in_groupers
from pykai.podgrouper.metadata import Grouper, GroupVersionKind
from pykai.podgrouper.ownerspec import SUB_GROUP_NAME

#: Characters of the whole text: a second of reading.
_MAX_LENGTH: Final = 1 << 16
#: Levels of brackets, and characters before the content of a line; reading deep text takes the square of its depth.
_MAX_DEPTH: Final = 50
_MAX_INDENT: Final = 200
_MAX_ROLES: Final = 100
_KIND_KEYS: Final = ("apiVersion", "kind", "roles", "minimum", "priorityClass")
_ROLE_KEYS: Final = ("name", "replicas", "default", "podLabel", "podLabelValue")


@dataclass(frozen=True, slots=True)
class DeclaredKinds:
    """The kinds that a text declares, and what is wrong with it."""

    groupers: dict[GroupVersionKind, Grouper]
    kinds: dict[GroupVersionKind, DeclaredKind]
    problems: tuple[str, ...]


def read_declared_kinds(text: str) -> DeclaredKinds:
    """The kinds of a text; raises nothing."""
    kinds: dict[GroupVersionKind, DeclaredKind] = {}
    problems: list[str] = []
    for line, path, entry in _entries(text, problems):
        wrong = list(_mistakes(entry, kinds))
        if wrong:
            problems += [f"line {line}, {path}{where}: {what}" for where, what in wrong]
        else:
            declared = decode_as(DeclaredKind, entry)
            kinds[declared.group_version_kind] = declared
    return DeclaredKinds({key: declared_grouper(kind) for key, kind in kinds.items()}, kinds, tuple(problems))


def _entries(text: str, problems: list[str]) -> Iterator[tuple[int, str, Any]]:
    """Line, path and content of each entry."""
    if len(text) > _MAX_LENGTH:
        problems.append(f"{len(text)} characters are more than {_MAX_LENGTH}; declare fewer kinds")
        return
    if _is_deep(text):
        problems.append("no YAML that can be read: it is nested too deeply")
        return
    try:
        # Not the C loader, which crashes on text that is nested deeply.
        loader = yaml.SafeLoader(text)
        top = loader.get_single_node()
        content = loader.construct_document(top) if top is not None else {}
    except RecursionError:
        problems.append("no YAML: it is nested too deeply")
        return
    except (yaml.YAMLError, ValueError) as error:
        problems.append(f"no YAML: {' '.join(str(error).split())}")
        return
    listed = content.get("kinds") if isinstance(content, dict) else None
    if listed is None and not content:
        return
    if not isinstance(listed, list):
        problems.append("line 1: expected the key `kinds` with a list of kinds")
        return
    assert isinstance(top, yaml.MappingNode)
    nodes = [value for key, value in top.value if key.value == "kinds"][-1].value
    for number, (node, entry) in enumerate(zip(nodes, listed, strict=True)):
        yield node.start_mark.line + 1, f"kinds[{number}]", entry


def _is_deep(text: str) -> bool:
    depth = 0
    for character in text:
        depth += (character in "[{") - (character in "]}")
        if depth > _MAX_DEPTH:
            return True
    return any(len(line) - len(line.lstrip(" -?:")) > _MAX_INDENT for line in text.splitlines())


def _mistakes(entry: Any, earlier: dict[GroupVersionKind, DeclaredKind]) -> Iterator[tuple[str, str]]:
    """Path below the entry, and what is wrong there."""
    if not isinstance(entry, dict):
        yield "", "expected apiVersion, kind and roles"
        return
    if not _is_readable(entry):
        yield "", "it holds half of a character, which no object can hold; correct the text"
        return
    yield from _unknown_keys(entry, _KIND_KEYS, "")
    roles = entry.get("roles")
    for number, role in enumerate(roles if isinstance(roles, list) else ()):
        if isinstance(role, dict):
            yield from _unknown_keys(role, _ROLE_KEYS, f".roles[{number}]")
    try:
        declared = decode_as(DeclaredKind, entry)
    except DecodeError as error:
        yield f".{error.path}" if error.path else "", error.problem
        return
    yield from _wrong_kind(declared, earlier)
    yield from _wrong_roles(declared)
    if isinstance(declared.minimum, str) and declared.minimum != ALL and not _is_place(declared.minimum):
        yield ".minimum", f"{declared.minimum!r} is neither `all`, a number nor a place such as spec.minAvailable"
    elif isinstance(declared.minimum, int) and declared.minimum < 0:
        yield ".minimum", f"{declared.minimum} is negative; use 0 or more"
    elif declared.minimum == ALL and not declared.roles:
        yield "", "declare roles, or a minimum that is a number or its place"


def _unknown_keys(part: dict[Any, Any], known: tuple[str, ...], path: str) -> Iterator[tuple[str, str]]:
    for key in part:
        if key not in known:
            yield path, f"{key!r} is unknown{did_you_mean(str(key), known)}"


def _wrong_kind(declared: DeclaredKind, earlier: dict[GroupVersionKind, DeclaredKind]) -> Iterator[tuple[str, str]]:
    group, version, kind = key = declared.group_version_kind
    if not group or not version:
        yield ".apiVersion", f"{declared.api_version!r} is no group and version, such as example.com/v1"
    if not kind:
        yield ".kind", "missing; name the kind, such as Sweep"
    built_in = built_in_groupers()
    if key in built_in or (group, "*", kind) in built_in:
        yield ".kind", f"{kind} of {declared.api_version} has a grouper already, which wins; remove the entry"
    if key in earlier:
        yield ".kind", f"{kind} of {declared.api_version} is declared twice; the first entry counts"


def _wrong_roles(declared: DeclaredKind) -> Iterator[tuple[str, str]]:
    if len(declared.roles) > _MAX_ROLES:
        yield ".roles", f"{len(declared.roles)} roles are more than {_MAX_ROLES}"
        return
    names = [role.name for role in declared.roles]
    for number, role in enumerate(declared.roles):
        path = f".roles[{number}]"
        if not SUB_GROUP_NAME.fullmatch(role.name):
            yield (
                f"{path}.name",
                f"{role.name!r} is no name of a subgroup: lower-case letters, digits and dashes, at most 63",
            )
        elif names.index(role.name) != number:
            yield f"{path}.name", f"{role.name!r} is the name of two roles; give each its own"
        if isinstance(role.replicas, str) and not _is_place(role.replicas):
            yield f"{path}.replicas", f"{role.replicas!r} is neither a number nor a place such as spec.workers.replicas"
        for field, number_of_pods in (("replicas", role.replicas), ("default", role.default)):
            if isinstance(number_of_pods, int) and number_of_pods < 0:
                yield f"{path}.{field}", f"{number_of_pods} is negative; use 0 or more"
    if sum(not role.pod_label for role in declared.roles) > 1:
        yield ".roles", "more than one role has no podLabel; pods of one of them could not be told from the other's"


def _is_readable(entry: Any) -> bool:
    """Whether all text can be written; YAML escapes allow half of a surrogate pair."""
    waiting, visited = [entry], set[int]()
    while waiting:
        value = waiting.pop()
        if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
            return False
        # Aliases may repeat a part again and again.
        if isinstance(value, list | dict) and id(value) not in visited:
            visited.add(id(value))
            waiting.extend((*value, *value.values()) if isinstance(value, dict) else value)
    return True


def _is_place(text: str) -> bool:
    return all(text.split(".")) and not any(character.isspace() or character in "[]{}*|" for character in text)
