"""Our own ValidatingAdmissionPolicies, enforced from the table they are made of (`pykai.api.guardedfields`).

This server evaluates no policies in general: that takes a CEL library, which is an extra.  Those that `kai manifests`
installs are known by their names: while such a policy and a binding of it are stored, its row of the table holds here,
with the verdicts and the words of a Kubernetes API server.  Any other stored policy has no effect, which is logged.

Subtle: the list of closed namespaces is read from the stored policy, so that an installation with another list works;
everything else in a stored policy is what the table says.

Statements: policies:closed, policies:creating, policies:prefix, policies:whole.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pykai.api import guardedfields
from pykai.api.guardedfields import CREATE, UPDATE, ClosedNamespaces, FieldGuard, FieldPolicy, GuardedField
from pykai.kube import errors
from pykai.lab.apiserver.apierrors import forbidden
from pykai.lab.apiserver.calls import Call
from pykai.lab.apiserver.kinds import StoreKey
from pykai.lab.apiserver.rbac import Authorizer
from pykai.lab.apiserver.storage import Storage
from pykai.lab.apiserver.users import MASTERS

JsonObject = Mapping[str, Any]

POLICIES: Final[StoreKey] = ("admissionregistration.k8s.io", "validatingadmissionpolicies")
BINDINGS: Final[StoreKey] = ("admissionregistration.k8s.io", "validatingadmissionpolicybindings")
_log = logging.getLogger(__name__)


def touched(guard: FieldGuard, operation: str, new: JsonObject, old: JsonObject | None) -> bool:
    """Whether a write sets, changes or removes a guarded field."""
    if operation == UPDATE and not guard.updating:
        return False
    if guard.scheduler and _at(new, ("spec", "schedulerName")) != guard.scheduler:
        return False
    if guard.guards_creation and operation == CREATE:
        return True
    return any(_held(field, new) != _held(field, old or {}) for field in guard.fields)


def _held(field: GuardedField, obj: JsonObject) -> Any:
    """What an object has of a field, so that equal values mean that nothing was touched."""
    found = _at(obj, field.path)
    if not field.key:
        return found or None
    if not isinstance(found, Mapping):
        found = {}
    if field.prefix:
        return {key: value for key, value in found.items() if key.startswith(field.key)}
    value = found.get(field.key)
    return value == field.value if field.value else value


def _at(obj: JsonObject, path: Iterable[str]) -> Any:
    found: Any = obj
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


class Guards:
    """The policies of ours that are installed."""

    def __init__(self, storage: Storage, authorizer: Authorizer) -> None:
        self._storage = storage
        self._authorizer = authorizer
        self._known = {policy.name: policy for policy in guardedfields.field_policies()}
        self._by_resource: dict[tuple[str, str], list[FieldPolicy]] = {}
        self._closed: ClosedNamespaces | None = None
        self._unknown: set[str] = set()
        self._read()
        for store in (POLICIES, BINDINGS):
            storage.collection(store).listeners.append(lambda _: self._read())

    def concern(self, call: Call) -> bool:
        """Whether one of them is about this write."""
        if MASTERS in call.user.groups:
            return False
        return (self._guarded(call) and not call.subresource) or self._closes(call)

    def check(self, call: Call, new: JsonObject | None, old: JsonObject | None) -> None:
        """403 where a policy refuses; `new` is None for a delete."""
        if MASTERS in call.user.groups:
            return
        if self._closes(call) and self._closed is not None:
            raise _denied(call, self._closed.name, self._closed.message)
        if new is None or call.subresource:
            return
        operation = CREATE if old is None else UPDATE
        for policy in self._by_resource.get((call.kind.group, call.kind.plural), ()):
            for guard in policy.guards:
                if touched(guard, operation, new, old) and not self._entitled(call, guard, operation):
                    raise _denied(call, policy.name, guard.message)

    def _entitled(self, call: Call, guard: FieldGuard, operation: str) -> bool:
        return any(
            self._authorizer.allowed(
                call.user, right.verb, right.group, right.resource, namespace=right.namespace or call.namespace
            )
            for right in (guard.creating if operation == CREATE else guard.updating)
        )

    def _guarded(self, call: Call) -> bool:
        return (call.kind.group, call.kind.plural) in self._by_resource

    def _closes(self, call: Call) -> bool:
        table = self._closed
        if table is None or call.namespace not in table.namespaces or table.accounts not in call.user.groups:
            return False
        resource = f"{call.kind.plural}/*" if call.subresource else call.kind.plural
        return any(group == call.kind.group and resource in resources for group, resources in table.resources)

    def _read(self) -> None:
        stored = self._storage.collection(POLICIES).records
        bound = {name for name in self._bound() if name in stored}
        self._by_resource = {}
        for name in sorted(bound & self._known.keys()):
            policy = self._known[name]
            self._by_resource.setdefault((policy.group, policy.resource), []).append(policy)
        table = guardedfields.closed_namespaces()
        self._closed = None
        if table.name in bound:
            namespaces = _selected_namespaces(stored[table.name].object())
            self._closed = table._replace(namespaces=namespaces)
        unknown = stored.keys() - self._known.keys() - {table.name}
        for name in sorted(unknown - self._unknown):
            _log.warning("the ValidatingAdmissionPolicy %s is stored and has no effect on this server", name)
        self._unknown = unknown

    def _bound(self) -> Iterator[str]:
        for record in self._storage.collection(BINDINGS).records.values():
            spec = record.object().get("spec") or {}
            if "Deny" in (spec.get("validationActions") or ()):
                yield str(spec.get("policyName"))


def _selected_namespaces(policy: JsonObject) -> tuple[str, ...]:
    selector = _at(policy, ("spec", "matchConstraints", "namespaceSelector", "matchExpressions")) or ()
    return tuple(str(name) for term in selector for name in term.get("values") or ())


def _denied(call: Call, policy: str, message: str) -> errors.ApiError:
    text = f"ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {message}"
    return forbidden(call.kind.group, call.kind.plural, call.name, text, [{"message": text}])
