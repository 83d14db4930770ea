"""ValidatingAdmissionPolicies from the table of guarded fields (`pykai.api.guardedfields`).

An API server evaluates such a policy itself, in CEL: there is no webhook that could be down or slow.  The policies run
on writes of pods, PodGroups and BindRequests, so the expressions are cheap: an update that touches neither labels nor
annotations ends at the match condition, and the authoriser is asked only when a guarded field was touched.

The failure policy is Fail.  An expression fails only where its cost limit is exceeded, which takes a tenant thousands
of labels: letting such a write pass would open a way around the policy.

Subtle: writes through subresources need no policy.  `pods/status` may be written only with the right that is asked for
here, `pods/binding` only with a right that no tenant has, and `ephemeralcontainers` and `resize` leave metadata alone.

Statements: policies:removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pykai.api.guardedfields import (
    ANNOTATIONS,
    CREATE,
    DEFAULT_GUARD_SETTINGS,
    DELETE,
    LABELS,
    UPDATE,
    ClosedNamespaces,
    FieldGuard,
    FieldPolicy,
    GuardedField,
    GuardSettings,
    RequiredRight,
    closed_namespaces,
    field_policies,
)

_API_VERSION = "admissionregistration.k8s.io/v1"
#: maps that several fields look into: path -> names of the variables for the new and the old object
_MAPS: dict[tuple[str, ...], tuple[str, str]] = {
    LABELS: ("labels", "oldLabels"),
    ANNOTATIONS: ("annotations", "oldAnnotations"),
}
_NAME_LABEL = "kubernetes.io/metadata.name"


def admission_policies(settings: GuardSettings = DEFAULT_GUARD_SETTINGS) -> list[dict[str, Any]]:
    """The policies and their bindings."""
    objects: list[dict[str, Any]] = []
    for policy in field_policies(settings):
        objects += _policy(policy.name, _guard_spec(policy))
    if settings.closed_namespaces:
        table = closed_namespaces(settings)
        objects += _policy(table.name, _closed_namespace_spec(table))
    return objects


def touched_expression(guard: FieldGuard) -> str:
    """CEL for: this write sets, changes or removes a guarded field."""
    expression = " || ".join(_field_touched(field) for field in guard.fields)
    if guard.scheduler:
        expression = f"object.spec.schedulerName == {_quoted(guard.scheduler)} && ({expression})"
    if guard.guards_creation:
        expression = f"request.operation == 'CREATE' || {expression}"
    if not guard.updating:
        expression = f"request.operation == 'CREATE' && ({expression})"
    return expression


def policy_variables(guards: Iterable[FieldGuard]) -> list[dict[str, str]]:
    """The maps that the guards look into, of the new and of the old object; empty where there are none."""
    map_paths = {field.path for guard in guards for field in guard.fields if field.key}
    entries = []
    for path, (new, old) in _MAPS.items():
        if path in map_paths:
            where = ".".join(path)
            entries.append({"name": new, "expression": f"has(object.{where}) ? object.{where} : {{}}"})
            present = f"request.operation == 'UPDATE' && has(oldObject.{where})"
            entries.append({"name": old, "expression": f"{present} ? oldObject.{where} : {{}}"})
    return entries


def match_expression(guards: Iterable[FieldGuard]) -> str:
    """CEL for: the guards must be looked at, since one of their maps or fields is new or has changed."""
    paths = sorted({field.path for guard in guards for field in guard.fields if guard.updating})
    changed = " || ".join(_changed(path) for path in paths)
    return f"request.operation == 'CREATE' || {changed}"


def _policy(name: str, spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {
        "apiVersion": _API_VERSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {"failurePolicy": "Fail", **spec},
    }
    yield {
        "apiVersion": _API_VERSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }


def _guard_spec(policy: FieldPolicy) -> dict[str, Any]:
    rule = _rule(policy.group, (policy.resource,), (CREATE, UPDATE))
    map_variables = policy_variables(policy.guards)
    return {
        "matchConstraints": _constraints([rule]),
        "matchConditions": [{"name": "touches-what-is-guarded", "expression": match_expression(policy.guards)}],
        **({"variables": map_variables} if map_variables else {}),
        "validations": [
            {
                "expression": f"!({touched_expression(guard)}) || {_right_expression(guard)}",
                "message": guard.message,
                "reason": "Forbidden",
            }
            for guard in policy.guards
        ],
    }


def _closed_namespace_spec(table: ClosedNamespaces) -> dict[str, Any]:
    group = _quoted(table.accounts)
    ours = f"has(request.userInfo.groups) && {group} in request.userInfo.groups"
    selected = {"key": _NAME_LABEL, "operator": "In", "values": list(table.namespaces)}
    return {
        "matchConstraints": _constraints(
            [_rule(group, resources, (CREATE, UPDATE, DELETE)) for group, resources in table.resources],
            {"matchExpressions": [selected]},
        ),
        "matchConditions": [{"name": "by-our-services", "expression": ours}],
        "validations": [{"expression": "false", "message": table.message, "reason": "Forbidden"}],
    }


def _constraints(rules: list[dict[str, Any]], namespaces: dict[str, Any] | None = None) -> dict[str, Any]:
    """What a policy is about, defaults included: it is one value for server-side apply, which would meet a conflict."""
    return {
        "matchPolicy": "Equivalent",
        "namespaceSelector": namespaces or {},
        "objectSelector": {},
        "resourceRules": rules,
    }


def _rule(group: str, resources: tuple[str, ...], operations: tuple[str, ...]) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "resources": list(resources),
        "operations": list(operations),
        "scope": "*",
    }


def _field_touched(field: GuardedField) -> str:
    if not field.key:
        return _changed(field.path) if field.path in _MAPS or len(field.path) == 1 else _is_set(field.path)
    new, old = (f"variables.{name}" for name in _MAPS[field.path])
    key = _quoted(field.key)
    if field.prefix:
        return (
            f"{new}.exists(key, key.startsWith({key}) && {old}[?key] != {new}[?key])"
            f" || {old}.exists(key, key.startsWith({key}) && !(key in {new}))"
        )
    if field.value:
        value = _quoted(field.value)
        return f"({new}[?{key}].orValue('') == {value}) != ({old}[?{key}].orValue('') == {value})"
    return f"{new}[?{key}] != {old}[?{key}]"


def _changed(path: tuple[str, ...]) -> str:
    """Of an update: the new object has something else at the path, or only one of the two has anything."""
    where = ".".join((*path[:-1], f"?{path[-1]}"))
    return f"object.{where} != oldObject.{where}"


def _is_set(path: tuple[str, ...]) -> str:
    where = ".".join(path)
    return f"has(object.{where}) && object.{where} != ''"


def _right_expression(guard: FieldGuard) -> str:
    creating, updating = _any_right(guard.creating), _any_right(guard.updating)
    if not updating or updating == creating:
        return f"({creating})"
    return f"(request.operation == 'CREATE' ? ({creating}) : ({updating}))"


def _any_right(rights: Iterable[RequiredRight]) -> str:
    return " || ".join(map(_right_check, rights))


def _right_check(right: RequiredRight) -> str:
    resource, _, subresource = right.resource.partition("/")
    below = f".subresource({_quoted(subresource)})" if subresource else ""
    namespace = _quoted(right.namespace) if right.namespace else "request.namespace"
    return (
        f"authorizer.group({_quoted(right.group)}).resource({_quoted(resource)}){below}.namespace({namespace})"
        f".check({_quoted(right.verb)}).allowed()"
    )


def _quoted(text: str) -> str:
    """A CEL string."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
