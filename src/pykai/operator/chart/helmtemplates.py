"""Writes documents of the chart's language as templates for Helm.

Everything that a value fills in is written by `toJson`, which YAML reads wherever a value may stand, so that no
template depends on indentation or quoting.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, Final

from pykai.operator.chart.language import (
    NOTHING,
    RELEASE_NAME_ANNOTATION,
    All,
    Any_,
    Choice,
    Embedded,
    Equals,
    Exists,
    Expression,
    Failure,
    FileText,
    FirstOf,
    Has,
    ImageReference,
    ImageTag,
    IsInstall,
    IsMoreThan,
    IsSet,
    NamesIn,
    Not,
    Pick,
    PortOf,
    ReleaseNamespace,
    TemplateCondition,
    TemplateNode,
    Text,
    Truth,
    Value,
    Version,
    Within,
)

_PLAIN: Final = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
#: words that YAML reads as something else
_RESERVED: Final = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))
_STEP: Final = "  "
#: of `str.format` -> of `printf`
_VERBS: Final = {"{{": "{", "}}": "}", "{}": "%v", "%": "%%"}
_MARKS: Final = re.compile("|".join(map(re.escape, _VERBS)))


def template(documents: list[TemplateNode]) -> str:
    """A template file with these documents."""
    return "".join("\n".join(_document(each)) + "\n" for each in documents)


def definition(name: str, document: TemplateNode) -> str:
    """A named template."""
    body = "\n".join(_block(document, ""))
    return f'{{{{- define "{name}" -}}}}\n{body}\n{{{{- end -}}}}\n'


def included(name: str) -> str:
    """A template file with a document that is defined elsewhere."""
    return f'---\n{{{{ include "{name}" . }}}}\n'


def _document(node: TemplateNode) -> Iterator[str]:
    if isinstance(node, Choice):
        yield f"{{{{- if {_condition(node.condition)} }}}}"
        yield from _document(node.then)
        if node.otherwise is not NOTHING:
            yield "{{- else }}"
            yield from _document(node.otherwise)
        yield "{{- end }}"
    elif isinstance(node, list):
        for each in node:
            yield from _document(each)
    elif isinstance(node, Failure):
        yield f"{{{{- fail {_text(node.text)} }}}}"
    else:
        yield "---"
        yield from _block(node, "")


def _block(node: TemplateNode, indent: str) -> Iterator[str]:
    """Lines of a dict or a list that is not empty."""
    members = node.values() if isinstance(node, dict) else node
    if all(isinstance(each, Choice) and each.otherwise is NOTHING for each in members):
        raise ValueError(f"a part of the chart may be empty in YAML: {node}")
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _member(f"{indent}{_scalar(key)}:", value, indent)
    else:
        for item in node:
            yield from _item(item, indent)


def _member(head: str, value: TemplateNode, indent: str) -> Iterator[str]:
    if isinstance(value, Choice):
        yield f"{indent}{{{{- if {_condition(value.condition)} }}}}"
        yield from _member(head, value.then, indent)
        if value.otherwise is not NOTHING:
            yield f"{indent}{{{{- else }}}}"
            yield from _member(head, value.otherwise, indent)
        yield f"{indent}{{{{- end }}}}"
    elif isinstance(value, dict | list) and value:
        yield head
        yield from _block(value, indent + _STEP)
    else:
        yield f"{head} {_inline(value)}"


def _item(item: TemplateNode, indent: str) -> Iterator[str]:
    if isinstance(item, Choice):
        yield f"{indent}{{{{- if {_condition(item.condition)} }}}}"
        yield from _item(item.then, indent)
        if item.otherwise is not NOTHING:
            yield f"{indent}{{{{- else }}}}"
            yield from _item(item.otherwise, indent)
        yield f"{indent}{{{{- end }}}}"
    elif isinstance(item, dict) and item:
        lines = list(_block(item, indent + _STEP))
        # The first member stands behind the dash; a choice cannot.
        if lines[0].lstrip().startswith("{{"):
            raise ValueError(f"an item of a list of the chart begins with a choice: {item}")
        yield f"{indent}- {lines[0].lstrip()}"
        yield from lines[1:]
    else:
        yield f"{indent}- {_inline(item)}"


def _inline(value: TemplateNode) -> str:
    if isinstance(value, Expression):
        return f"{{{{ {_bare(value)} | toJson }}}}"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and value.lower() not in _RESERVED:
            return value
        if "{{" in value:
            # Helm would take it for a hole.
            return f"{{{{ {_text(value)} | toJson }}}}"
    return json.dumps(value, ensure_ascii=False)


def _text(text: str) -> str:
    """A text of Go."""
    return json.dumps(text, ensure_ascii=False)


def _bare(node: TemplateNode) -> str:
    """An expression without the parentheses around it."""
    written = _expression(node)
    return written[1:-1] if written.startswith("(") else written


def _expression(node: TemplateNode) -> str:
    match node:
        case str():
            return _text(node)
        case Value(path):
            return f".Values.{path}"
        case Within(path, keys):
            return f'(dig {" ".join(map(_text, keys))} "" .Values.{path})'
        case ReleaseNamespace():
            return ".Release.Namespace"
        case Version():
            return ".Chart.AppVersion"
        case FirstOf(choices):
            # `coalesce` would make nothing of an empty last one.
            *_, written = accumulate(
                map(_expression, reversed(choices)), lambda rest, first: f"(default {rest} {first})"
            )
            return str(written)
        case Text(form, parts):
            verbs = _MARKS.sub(lambda mark: _VERBS[mark[0]], form)
            return f"(printf {_text(verbs)} {' '.join(map(_expression, parts))})"
        case NamesIn(path):
            return f'(include "kai-scheduler.names" .Values.{path} | fromJsonArray)'
        case FileText(path, _):
            return f"($.Files.Get {_text(path)})"
        case ImageTag(path):
            return f'(include "kai-scheduler.tag" (list $ .Values.{path}))'
        case ImageReference(path):
            return f'(include "kai-scheduler.image" (list $ .Values.{path}))'
        case PortOf(path):
            return f'(splitList ":" .Values.{path} | last | int)'
        case Pick(condition, then, otherwise):
            return f"(ternary {_expression(then)} {_expression(otherwise)} {_boolean(condition)})"
        case Truth(condition):
            return _boolean(condition)
        case Embedded(name, _):
            return f'(include "{name}" . | fromYaml | toJson)'
    raise TypeError(f"Helm cannot be told {node!r}")


def _boolean(condition: TemplateCondition) -> str:
    """A condition as true or false, where Helm does not convert."""
    return f"(not (empty {_operand(condition)}))"


def _condition(condition: TemplateCondition) -> str:
    written = _operand(condition)
    return written[1:-1] if written.startswith("(") else written


def _operand(condition: TemplateCondition) -> str:
    match condition:
        case IsSet(expression):
            return _expression(expression)
        case Has(path):
            parent, _, key = path.rpartition(".")
            return f'(hasKey .Values.{parent} "{key}")'
        case IsMoreThan(expression, number):
            return f"(gt (int {_expression(expression)}) {number})"
        case Equals(expression, text):
            return f"(eq {_expression(expression)} {_text(text)})"
        case IsInstall():
            return ".Release.IsInstall"
        case Exists(api_version, kind, name, namespace, is_ours):
            places = f"{_expression(namespace)} {_expression(name)}"
            found = f"(lookup {_text(api_version)} {_text(kind)} {places})"
            if not is_ours:
                return found
            path = f'"metadata" "annotations" {_text(RELEASE_NAME_ANNOTATION)} ""'
            return f"(eq .Release.Name (dig {path} {found}))"
        case Not(other):
            return f"(not {_operand(other)})"
        case Any_(conditions):
            return f"(or {' '.join(map(_operand, conditions))})"
        case All(conditions):
            return f"(and {' '.join(map(_operand, conditions))})"
    raise TypeError(f"Helm cannot be told {condition!r}")
