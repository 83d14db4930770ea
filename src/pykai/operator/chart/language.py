"""The small language in which the chart is written: documents with holes.

A document is made of dicts, lists and scalars.  A hole is an `Expression` (a value from the values, the name of the
release, ...), or a `Choice` between two documents, one of which may be nothing.  `evaluated` fills the holes, which is
how `kai install` renders; `templates` writes the same document as a template for Helm.  Both mean the same, and the
Helm tier of the tests compares them.

What is empty is what Helm calls empty: nothing, false, zero, and texts, lists and maps without content.

Subtle: a dict or list whose members are all choices could vanish in YAML, so `templates` refuses to write one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

#: a dict, a list, a scalar, an Expression or a Choice
TemplateNode = Any


class _Nothing:
    """No document at all."""


NOTHING: Final = _Nothing()
#: the annotations by which Helm knows the objects of a release
RELEASE_NAME_ANNOTATION: Final = "meta.helm.sh/release-name"


class TemplateFailure(ValueError):
    """The values exclude each other; the text says which."""


@dataclass(frozen=True, slots=True)
class TemplateScope:
    """What a document is rendered with."""

    #: all values, defaults included
    values: Mapping[str, Any]
    name: str = "kai-scheduler"
    namespace: str = "kai-scheduler"
    #: of the chart
    version: str = ""
    is_install: bool = True
    #: (kind, namespace, name) -> object of the cluster; without one, as where Helm only prints
    live: Mapping[tuple[str, str, str], Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Expression:
    """A hole that a scalar or a document of the user fills."""


@dataclass(frozen=True, slots=True)
class Value(Expression):
    """A value by its path."""

    path: str


@dataclass(frozen=True, slots=True)
class Within(Expression):
    """What stands at some keys in a value that the user writes as a whole; nothing where there is none."""

    path: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReleaseNamespace(Expression):
    """The namespace of the release."""


@dataclass(frozen=True, slots=True)
class Version(Expression):
    """The version of the chart."""


@dataclass(frozen=True, slots=True)
class FirstOf(Expression):
    """The first that is not empty; the last one otherwise."""

    choices: tuple[TemplateNode, ...]


@dataclass(frozen=True, slots=True)
class Text(Expression):
    """A text with `{}` for each part."""

    form: str
    parts: tuple[TemplateNode, ...]


@dataclass(frozen=True, slots=True)
class NamesIn(Expression):
    """The names in a list of `{name: ...}`."""

    path: str


@dataclass(frozen=True, slots=True)
class Pick(Expression):
    """One of two expressions."""

    condition: TemplateCondition
    then: TemplateNode
    otherwise: TemplateNode


@dataclass(frozen=True, slots=True)
class Truth(Expression):
    """A condition as true or false."""

    condition: TemplateCondition


@dataclass(frozen=True, slots=True)
class Embedded(Expression):
    """Another document as a text of JSON; `name` is that of its definition in the chart."""

    name: str
    document: TemplateNode


@dataclass(frozen=True, slots=True)
class FileText(Expression):
    """The text of a file of the chart."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class ImageTag(Expression):
    """The tag of the image at a path: its own, that of all, or the version; `-fips` behind it where asked for."""

    path: str


@dataclass(frozen=True, slots=True)
class ImageReference(Expression):
    """`registry/name:tag` of the image at a path."""

    path: str


@dataclass(frozen=True, slots=True)
class PortOf(Expression):
    """The port in the address at a path, as in `:8080`."""

    path: str


@dataclass(frozen=True, slots=True)
class TemplateCondition:
    """What a choice depends on."""


@dataclass(frozen=True, slots=True)
class IsSet(TemplateCondition):
    """The expression is not empty."""

    expression: Expression


@dataclass(frozen=True, slots=True)
class Has(TemplateCondition):
    """There is such a value, whatever it is."""

    path: str


@dataclass(frozen=True, slots=True)
class IsMoreThan(TemplateCondition):
    """The number is greater."""

    expression: Expression
    number: int


@dataclass(frozen=True, slots=True)
class Equals(TemplateCondition):
    """The expression is this text."""

    expression: Expression
    text: str


@dataclass(frozen=True, slots=True)
class IsInstall(TemplateCondition):
    """The release is new."""


@dataclass(frozen=True, slots=True)
class Exists(TemplateCondition):
    """The cluster has such an object; with `is_ours`, one of this release."""

    api_version: str
    kind: str
    name: TemplateNode
    namespace: TemplateNode = ""
    is_ours: bool = False


@dataclass(frozen=True, slots=True)
class Not(TemplateCondition):
    """The opposite."""

    condition: TemplateCondition


@dataclass(frozen=True, slots=True)
class Any_(TemplateCondition):
    """At least one holds."""

    conditions: tuple[TemplateCondition, ...]


@dataclass(frozen=True, slots=True)
class All(TemplateCondition):
    """All hold."""

    conditions: tuple[TemplateCondition, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of two documents; as a member of a dict or list it may be nothing."""

    condition: TemplateCondition
    then: TemplateNode
    otherwise: TemplateNode = NOTHING


@dataclass(frozen=True, slots=True)
class Failure:
    """Rendering ends with a text."""

    text: str


def when_set(path: str, then: TemplateNode = None) -> Choice:
    """The value at a path, or a document, where that value is not empty."""
    return Choice(IsSet(Value(path)), Value(path) if then is None else then)


def when_given(path: str) -> Choice:
    """The value at a path, where it is given, even if it is empty."""
    return Choice(Has(path), Value(path))


def evaluated(node: TemplateNode, scope: TemplateScope) -> Any:
    """The document with its holes filled; `NOTHING` where none is left."""
    if isinstance(node, Expression):
        return _expression(node, scope)
    if isinstance(node, Choice):
        return evaluated(node.then if holds(node.condition, scope) else node.otherwise, scope)
    if isinstance(node, Failure):
        raise TemplateFailure(node.text)
    if isinstance(node, dict):
        members = ((key, evaluated(value, scope)) for key, value in node.items())
        return {key: value for key, value in members if value is not NOTHING}
    if isinstance(node, list):
        return [each for each in (evaluated(item, scope) for item in node) if each is not NOTHING]
    return node


def _expression(node: Expression, scope: TemplateScope) -> Any:
    match node:
        case Value(path):
            return value_at(scope.values, path)
        case Within(path, keys):
            return value_at(scope.values, ".".join((path, *keys)))
        case ReleaseNamespace():
            return scope.namespace
        case Version():
            return scope.version
        case FirstOf(choices):
            filled = [evaluated(each, scope) for each in choices]
            return next((each for each in filled if each), filled[-1])
        case Text(form, parts):
            return form.format(*(_printed(evaluated(each, scope)) for each in parts))
        case NamesIn(path):
            return [each["name"] for each in value_at(scope.values, path) or ()]
        case FileText(_, text):
            return text
        case ImageTag(path):
            return image_tag(scope, path)
        case ImageReference(path):
            image = value_at(scope.values, path)
            registry = image.get("registry") or value_at(scope.values, "global.registry")
            return f"{f'{registry}/' if registry else ''}{image['name']}:{image_tag(scope, path)}"
        case PortOf(path):
            return int(value_at(scope.values, path).rpartition(":")[2])
        case Pick(condition, then, otherwise):
            return evaluated(then if holds(condition, scope) else otherwise, scope)
        case Truth(condition):
            return holds(condition, scope)
        case Embedded(_, document):
            return json.dumps(evaluated(document, scope), sort_keys=True, separators=(",", ":"))
    raise TypeError(f"{node} is no expression of the chart")


def _printed(value: Any) -> str:
    """A value as Go prints it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def image_tag(scope: TemplateScope, path: str) -> str:
    """The tag of an image (operations:O-63)."""
    own = value_at(scope.values, f"{path}.tag") or value_at(scope.values, "global.tag") or scope.version
    return f"{own}-fips" if value_at(scope.values, "global.fipsMode") in ("on", "only") else str(own)


def holds(condition: TemplateCondition, scope: TemplateScope) -> bool:
    """Whether a condition is true."""
    match condition:
        case IsSet(expression):
            return bool(evaluated(expression, scope))
        case Has(path):
            parent, _, key = path.rpartition(".")
            return key in (value_at(scope.values, parent) or {})
        case IsMoreThan(expression, number):
            return int(evaluated(expression, scope)) > number
        case Equals(expression, text):
            return bool(evaluated(expression, scope) == text)
        case IsInstall():
            return scope.is_install
        case Exists():
            return _exists(condition, scope)
        case Not(other):
            return not holds(other, scope)
        case Any_(conditions):
            return any(holds(each, scope) for each in conditions)
        case All(conditions):
            return all(holds(each, scope) for each in conditions)
    raise TypeError(f"{condition} is no condition of the chart")


def _exists(condition: Exists, scope: TemplateScope) -> bool:
    namespace, name = evaluated(condition.namespace, scope), evaluated(condition.name, scope)
    found = scope.live.get((condition.kind, namespace, name))
    if found is None or not condition.is_ours:
        return found is not None
    annotations = found.get("metadata", {}).get("annotations") or {}
    return bool(annotations.get(RELEASE_NAME_ANNOTATION) == scope.name)


def value_at(values: Mapping[str, Any], path: str) -> Any:
    """The value at a path; None where there is none."""
    found: Any = values
    for key in path.split("."):
        if not isinstance(found, Mapping):
            return None
        found = found.get(key)
    return found
