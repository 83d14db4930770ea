"""Role-based access control from the stored roles and bindings.

The semantics are Kubernetes': rights are only ever added; a ClusterRoleBinding grants everywhere, a RoleBinding in its
namespace; a rule with resource names allows nothing that has no name; an aggregated ClusterRole holds the rules of
those its selectors find. Members of `system:masters` may do everything without a lookup.

Roles are read again when one of them changes, and decisions are cached until then. The key is verb, resource and
namespace: a decision holds for all names, or for a set of them.

Subtle: writing a role grants its rights, so `check_grant` requires that the user holds each of them, or may `escalate`
the role or `bind` it.

Statements: rbac:grant, rbac:names, rbac:namespace, rbac:subresource.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from pykai.api.keys import object_key
from pykai.kube import errors
from pykai.lab.apiserver.apierrors import forbidden
from pykai.lab.apiserver.kinds import StoreKey
from pykai.lab.apiserver.selectors import selector_matches
from pykai.lab.apiserver.storage import ObjectStorage
from pykai.lab.apiserver.users import MASTERS, User

GROUP: Final = "rbac.authorization.k8s.io"
ROLES: Final[StoreKey] = (GROUP, "roles")
CLUSTER_ROLES: Final[StoreKey] = (GROUP, "clusterroles")
ROLE_BINDINGS: Final[StoreKey] = (GROUP, "rolebindings")
CLUSTER_ROLE_BINDINGS: Final[StoreKey] = (GROUP, "clusterrolebindings")

_STORES: Final = (ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS)
#: cached decisions
_MAX_CACHED: Final = 20_000
_ACCOUNT: Final = "system:serviceaccount:"


class PolicyRule(NamedTuple):
    """One rule of a role."""

    verbs: frozenset[str]
    groups: frozenset[str]
    #: `pods`, `pods/status`, `*/status`, `*`
    resources: frozenset[str]
    #: empty: all
    names: frozenset[str]
    paths: frozenset[str]

    def covers(self, verb: str, group: str, resource: str) -> bool:
        """Whether the rule covers a request, ignoring names."""
        if not (_listed(self.verbs, verb) and _listed(self.groups, group)):
            return False
        if _listed(self.resources, resource):
            return True
        _, slash, subresource = resource.partition("/")
        return bool(slash) and f"*/{subresource}" in self.resources

    def covers_path(self, verb: str, path: str) -> bool:
        """Whether the rule covers a non-resource path."""
        return _listed(self.verbs, verb) and any(
            path == each or (each.endswith("*") and path.startswith(each[:-1])) for each in self.paths
        )


class _Grant(NamedTuple):
    """A binding, with the rules behind it."""

    users: frozenset[str]
    groups: frozenset[str]
    #: empty: everywhere
    namespace: str
    rules: tuple[PolicyRule, ...]
    #: the reason in reviews
    source: str

    def is_for(self, user: User) -> bool:
        return user.name in self.users or not self.groups.isdisjoint(user.groups)


class _Decision(NamedTuple):
    """The decision on a verb for a resource in a namespace."""

    #: why it is allowed for every name; empty if it is not
    reason: str
    #: name -> why it is allowed
    names: Mapping[str, str]


_NO_GRANTS: Final[tuple[_Grant, ...]] = ()


class Authorizer:
    """Authorises requests."""

    def __init__(self, storage: ObjectStorage) -> None:
        self._storage = storage
        self._grants: list[_Grant] | None = None
        self._grants_by_user: dict[tuple[str, tuple[str, ...]], tuple[_Grant, ...]] = {}
        self._decisions: dict[tuple[str, tuple[str, ...], str, str, str, str], _Decision] = {}
        for store in _STORES:
            storage.collection(store).listeners.append(lambda _: self._invalidate())

    def allowed(self, user: User, verb: str, group: str, resource: str, *, namespace: str = "", name: str = "") -> bool:
        """Whether the user may do this; `resource` includes the subresource, as in `pods/status`."""
        return MASTERS in user.groups or bool(self.reason(user, verb, group, resource, namespace=namespace, name=name))

    def reason(self, user: User, verb: str, group: str, resource: str, *, namespace: str = "", name: str = "") -> str:
        """The binding that allows it; empty if none does."""
        key = (user.name, user.groups, verb, group, resource, namespace)
        decision = self._decisions.get(key)
        if decision is None:
            if len(self._decisions) >= _MAX_CACHED:
                self._decisions.clear()
            decision = self._decisions[key] = self._decide(user, verb, group, resource, namespace)
        return decision.reason or (decision.names.get(name, "") if name else "")

    def allowed_path(self, user: User, verb: str, path: str) -> bool:
        """Whether the user may request a non-resource path."""
        if MASTERS in user.groups:
            return True
        grants = (grant for grant in self._grants_of(user) if not grant.namespace)
        return any(rule.covers_path(verb, path) for grant in grants for rule in grant.rules)

    def rules(self, user: User, namespace: str) -> Iterator[PolicyRule]:
        """All rules of the user in a namespace."""
        if MASTERS in user.groups:
            everything = frozenset({"*"})
            yield PolicyRule(everything, everything, everything, frozenset(), everything)
        for grant in self._grants_of(user):
            if grant.namespace in ("", namespace):
                yield from grant.rules

    def check_grant(self, user: User, store: StoreKey, obj: Mapping[str, Any], old: Mapping[str, Any] | None) -> None:
        """403 if a role or a binding would grant rights that its writer does not hold."""
        if MASTERS in user.groups or store not in _STORES:
            return
        meta = obj["metadata"]
        namespace = str(meta.get("namespace") or "")
        if store in (ROLES, CLUSTER_ROLES):
            if old is not None and old.get("rules") == obj.get("rules"):
                return
            if self.allowed(user, "escalate", GROUP, store[1], namespace=namespace, name=str(meta["name"])):
                return
            rules = tuple(_rules(obj))
        else:
            if old is not None and all(old.get(field) == obj.get(field) for field in ("subjects", "roleRef")):
                return
            role = obj.get("roleRef") or {}
            plural = "clusterroles" if role.get("kind") == "ClusterRole" else "roles"
            if self.allowed(user, "bind", GROUP, plural, namespace=namespace, name=str(role.get("name"))):
                return
            rules = self._role_rules(role, namespace)
        missing = list(self._missing_rights(user, namespace, rules))
        if missing:
            groups = " ".join(f'"{group}"' for group in user.groups)
            text = (
                f'user "{user.name}" (groups=[{groups}]) is attempting to grant RBAC permissions not currently held:\n'
                + "\n".join(missing)
            )
            raise forbidden(GROUP, store[1], str(meta["name"]), text)

    def _missing_rights(self, user: User, namespace: str, rules: Iterable[PolicyRule]) -> Iterator[str]:
        for rule in rules:
            names = sorted(rule.names) or [""]
            for group in sorted(rule.groups):
                for resource in sorted(rule.resources):
                    verbs = [
                        verb
                        for verb in sorted(rule.verbs)
                        if not all(
                            self.allowed(user, verb, group, resource, namespace=namespace, name=name) for name in names
                        )
                    ]
                    if verbs:
                        quoted = " ".join(f'"{verb}"' for verb in verbs)
                        yield f'{{APIGroups:["{group}"], Resources:["{resource}"], Verbs:[{quoted}]}}'
            for path in sorted(rule.paths):
                verbs = [verb for verb in sorted(rule.verbs) if not self.allowed_path(user, verb, path)]
                if verbs:
                    yield f'{{NonResourceURLs:["{path}"], Verbs:[{" ".join(verbs)}]}}'

    def _invalidate(self) -> None:
        self._grants = None
        self._grants_by_user.clear()
        self._decisions.clear()

    def _decide(self, user: User, verb: str, group: str, resource: str, namespace: str) -> _Decision:
        by_name: dict[str, str] = {}
        for grant in self._grants_of(user):
            if grant.namespace not in ("", namespace):
                continue
            for rule in grant.rules:
                if rule.covers(verb, group, resource):
                    if not rule.names:
                        return _Decision(grant.source, {})
                    by_name.update((name, grant.source) for name in rule.names if name not in by_name)
        return _Decision("", by_name)

    def _grants_of(self, user: User) -> tuple[_Grant, ...]:
        key = (user.name, user.groups)
        grants = self._grants_by_user.get(key)
        if grants is None:
            if len(self._grants_by_user) >= _MAX_CACHED:
                self._grants_by_user.clear()
            if self._grants is None:
                self._grants = list(self._load_grants())
            grants = self._grants_by_user[key] = tuple(grant for grant in self._grants if grant.is_for(user))
        return grants

    def _load_grants(self) -> Iterator[_Grant]:
        for store in (CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS):
            collection = self._storage.collection(store)
            for key in collection.keys:
                binding = collection.records[key].object()
                namespace = str(binding["metadata"].get("namespace") or "")
                rules = self._role_rules(binding.get("roleRef") or {}, namespace)
                if not rules:
                    continue
                subjects = binding.get("subjects") or ()
                users = {name for subject in subjects if (name := _user_name(subject, namespace))}
                groups = {str(subject.get("name")) for subject in subjects if subject.get("kind") == "Group"}
                yield _Grant(frozenset(users), frozenset(groups), namespace, rules, _binding_text(binding))

    def _role_rules(self, role: Mapping[str, Any], namespace: str) -> tuple[PolicyRule, ...]:
        name = str(role.get("name") or "")
        if role.get("kind") == "Role":
            record = self._storage.get(ROLES, object_key(namespace, name))
            return tuple(_rules(record.object())) if record is not None else ()
        return tuple(self._cluster_rules(name, set()))

    def _cluster_rules(self, name: str, visited: set[str]) -> Iterator[PolicyRule]:
        record = self._storage.get(CLUSTER_ROLES, name)
        if record is None or name in visited:
            return
        visited.add(name)
        role = record.object()
        aggregation = role.get("aggregationRule")
        if not aggregation:
            yield from _rules(role)
            return
        collection = self._storage.collection(CLUSTER_ROLES)
        for key in collection.keys:
            labels = collection.records[key].labels
            if any(selector_matches(selector, labels) for selector in aggregation.get("clusterRoleSelectors") or ()):
                yield from self._cluster_rules(key, visited)


def forbidden_resource(
    user: User, verb: str, group: str, resource: str, *, namespace: str = "", name: str = ""
) -> errors.Forbidden:
    """403 in Kubernetes' words."""
    plural = resource.partition("/")[0]
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    text = f'User "{user.name}" cannot {verb} resource "{resource}" in API group "{group}" {where}'
    return forbidden(group, plural, name, text)


def forbidden_path(user: User, verb: str, path: str) -> errors.Forbidden:
    """403 for a non-resource path."""
    text = f'forbidden: User "{user.name}" cannot {verb} path "{path}"'
    return errors.Forbidden(403, "Forbidden", text, details={})


def _listed(values: frozenset[str], value: str) -> bool:
    return value in values or "*" in values


def _rules(role: Mapping[str, Any]) -> Iterator[PolicyRule]:
    for rule in role.get("rules") or ():
        fields = ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")
        yield PolicyRule(*(frozenset(map(str, rule.get(field) or ())) for field in fields))


def _user_name(subject: Mapping[str, Any], namespace: str) -> str:
    name = str(subject.get("name") or "")
    if subject.get("kind") == "User":
        return name
    home = str(subject.get("namespace") or namespace)
    return f"{_ACCOUNT}{home}:{name}" if subject.get("kind") == "ServiceAccount" and home else ""


def _binding_text(binding: Mapping[str, Any]) -> str:
    meta, role = binding["metadata"], binding.get("roleRef") or {}
    name = f"{meta['name']}/{meta['namespace']}" if meta.get("namespace") else meta["name"]
    return f'RBAC: allowed by {binding["kind"]} "{name}" of {role.get("kind")} "{role.get("name")}"'
