"""Our own ValidatingAdmissionPolicies, enforced from the table they are made of (`pykai.api.guardedfields`).

This server evaluates no policies in general: that takes a CEL library, which is an extra. Policies of `kai manifests`
are recognised by name: while such a policy and its binding are stored, its row of the table is enforced, with the
decisions and messages of a Kubernetes API server. Any other stored policy has no effect, which is logged.

Subtle: the list of closed namespaces is read from the stored policy, so that an installation with another list works;
everything else comes from the table.

Statements: policies:closed, policies:creating, policies:prefix, policies:whole.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pykai.api import guardedfields
from pykai.api.guardedfields import CREATE, UPDATE, ClosedNamespaces, FieldGuard, FieldPolicy, GuardedField
from pykai.api.unstructured import JsonMapping
from pykai.kube import errors
from pykai.lab.apiserver.apierrors import forbidden
from pykai.lab.apiserver.calls import Call
from pykai.lab.apiserver.kinds import StoreKey
from pykai.lab.apiserver.rbac import Authorizer
from pykai.lab.apiserver.storage import ObjectStorage
from pykai.lab.apiserver.users import MASTERS

POLICIES: Final[StoreKey] = ("admissionregistration.k8s.io", "validatingadmissionpolicies")
BINDINGS: Final[StoreKey] = ("admissionregistration.k8s.io", "validatingadmissionpolicybindings")
_log = logging.getLogger(__name__)


def is_touched(guard: FieldGuard, operation: str, new: JsonMapping, old: JsonMapping | None) -> bool:
    """Whether a write sets, changes or removes a guarded field."""
    if operation == UPDATE and not guard.updating:
        return False
    if guard.scheduler and _value_at(new, ("spec", "schedulerName")) != guard.scheduler:
        return False
    if guard.guards_creation and operation == CREATE:
        return True
    return any(_guarded_value(field, new) != _guarded_value(field, old or {}) for field in guard.fields)


def _guarded_value(field: GuardedField, obj: JsonMapping) -> Any:
    """The value of a guarded field, comparable between versions."""
    parent = _value_at(obj, field.path)
    if not field.key:
        return parent or None
    if not isinstance(parent, Mapping):
        parent = {}
    if field.prefix:
        return {key: value for key, value in parent.items() if key.startswith(field.key)}
    value = parent.get(field.key)
    return value == field.value if field.value else value


def _value_at(obj: JsonMapping, path: Iterable[str]) -> Any:
    value: Any = obj
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


class PolicyEnforcer:
    """Enforces our installed policies."""

    def __init__(self, storage: ObjectStorage, authorizer: Authorizer) -> None:
        self._storage = storage
        self._authorizer = authorizer
        self._policies_by_name = {policy.name: policy for policy in guardedfields.field_policies()}
        self._by_resource: dict[tuple[str, str], list[FieldPolicy]] = {}
        self._closed: ClosedNamespaces | None = None
        self._unsupported_policies: set[str] = set()
        self._load_policies()
        for store in (POLICIES, BINDINGS):
            storage.collection(store).listeners.append(lambda _: self._load_policies())

    def is_needed(self, call: Call) -> bool:
        """Whether a policy concerns this write."""
        if MASTERS in call.user.groups:
            return False
        return (self._has_guarded_fields(call) and not call.subresource) or self._is_in_closed_namespace(call)

    def check(self, call: Call, new: JsonMapping | None, old: JsonMapping | None) -> None:
        """403 if a policy refuses; `new` is None for a delete."""
        if MASTERS in call.user.groups:
            return
        if self._is_in_closed_namespace(call) and self._closed is not None:
            raise _denied(call, self._closed.name, self._closed.message)
        if new is None or call.subresource:
            return
        operation = CREATE if old is None else UPDATE
        for policy in self._by_resource.get((call.kind.group, call.kind.plural), ()):
            for guard in policy.guards:
                if is_touched(guard, operation, new, old) and not self._has_right(call, guard, operation):
                    raise _denied(call, policy.name, guard.message)

    def _has_right(self, call: Call, guard: FieldGuard, operation: str) -> bool:
        return any(
            self._authorizer.allowed(
                call.user, right.verb, right.group, right.resource, namespace=right.namespace or call.namespace
            )
            for right in (guard.creating if operation == CREATE else guard.updating)
        )

    def _has_guarded_fields(self, call: Call) -> bool:
        return (call.kind.group, call.kind.plural) in self._by_resource

    def _is_in_closed_namespace(self, call: Call) -> bool:
        table = self._closed
        if table is None or call.namespace not in table.namespaces or table.accounts not in call.user.groups:
            return False
        resource = f"{call.kind.plural}/*" if call.subresource else call.kind.plural
        return any(group == call.kind.group and resource in resources for group, resources in table.resources)

    def _load_policies(self) -> None:
        stored = self._storage.collection(POLICIES).records
        bound = {name for name in self._bound_policy_names() if name in stored}
        self._by_resource = {}
        for name in sorted(bound & self._policies_by_name.keys()):
            policy = self._policies_by_name[name]
            self._by_resource.setdefault((policy.group, policy.resource), []).append(policy)
        table = guardedfields.closed_namespaces()
        self._closed = None
        if table.name in bound:
            namespaces = _selected_namespaces(stored[table.name].object())
            self._closed = table._replace(namespaces=namespaces)
        unknown = stored.keys() - self._policies_by_name.keys() - {table.name}
        for name in sorted(unknown - self._unsupported_policies):
            _log.warning("the ValidatingAdmissionPolicy %s is stored and has no effect on this server", name)
        self._unsupported_policies = unknown

    def _bound_policy_names(self) -> Iterator[str]:
        for record in self._storage.collection(BINDINGS).records.values():
            spec = record.object().get("spec") or {}
            if "Deny" in (spec.get("validationActions") or ()):
                yield str(spec.get("policyName"))


def _selected_namespaces(policy: JsonMapping) -> tuple[str, ...]:
    selector = _value_at(policy, ("spec", "matchConstraints", "namespaceSelector", "matchExpressions")) or ()
    return tuple(str(name) for term in selector for name in term.get("values") or ())


def _denied(call: Call, policy: str, message: str) -> errors.ApiError:
    text = f"ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {message}"
    return forbidden(call.kind.group, call.kind.plural, call.name, text, [{"message": text}])
