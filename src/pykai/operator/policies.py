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
    made: list[dict[str, Any]] = []
    for policy in field_policies(settings):
        made += _policy(policy.name, _guarding(policy))
    if settings.closed_namespaces:
        table = closed_namespaces(settings)
        made += _policy(table.name, _closing(table))
    return made


def touched(guard: FieldGuard) -> str:
    """CEL for: this write sets, changes or removes a guarded field."""
    found = " || ".join(_touched(field) for field in guard.fields)
    if guard.scheduler:
        found = f"object.spec.schedulerName == {_quoted(guard.scheduler)} && ({found})"
    if guard.guards_creation:
        found = f"request.operation == 'CREATE' || {found}"
    if not guard.updating:
        found = f"request.operation == 'CREATE' && ({found})"
    return found


def variables(guards: Iterable[FieldGuard]) -> list[dict[str, str]]:
    """The maps that the guards look into, of the new and of the old object; empty where there are none."""
    used = {field.path for guard in guards for field in guard.fields if field.key}
    made = []
    for path, (new, old) in _MAPS.items():
        if path in used:
            where = ".".join(path)
            made.append({"name": new, "expression": f"has(object.{where}) ? object.{where} : {{}}"})
            present = f"request.operation == 'UPDATE' && has(oldObject.{where})"
            made.append({"name": old, "expression": f"{present} ? oldObject.{where} : {{}}"})
    return made


def match_condition(guards: Iterable[FieldGuard]) -> str:
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


def _guarding(policy: FieldPolicy) -> dict[str, Any]:
    rule = _rule(policy.group, (policy.resource,), (CREATE, UPDATE))
    looked_into = variables(policy.guards)
    return {
        "matchConstraints": _constraints([rule]),
        "matchConditions": [{"name": "touches-what-is-guarded", "expression": match_condition(policy.guards)}],
        **({"variables": looked_into} if looked_into else {}),
        "validations": [
            {"expression": f"!({touched(guard)}) || {_right(guard)}", "message": guard.message, "reason": "Forbidden"}
            for guard in policy.guards
        ],
    }


def _closing(table: ClosedNamespaces) -> dict[str, Any]:
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


def _touched(field: GuardedField) -> str:
    if not field.key:
        return _changed(field.path) if field.path in _MAPS or len(field.path) == 1 else _given(field.path)
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


def _given(path: tuple[str, ...]) -> str:
    where = ".".join(path)
    return f"has(object.{where}) && object.{where} != ''"


def _right(guard: FieldGuard) -> str:
    creating, updating = _any(guard.creating), _any(guard.updating)
    if not updating or updating == creating:
        return f"({creating})"
    return f"(request.operation == 'CREATE' ? ({creating}) : ({updating}))"


def _any(rights: Iterable[RequiredRight]) -> str:
    return " || ".join(map(_asked, rights))


def _asked(right: RequiredRight) -> str:
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
