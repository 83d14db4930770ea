"""Everything that must be in a cluster before the services start, as plain objects in the order of installation.

`kai manifests` prints them, `kai up` and `kai server` put them into the embedded API server.  Only what is missing is
created there: a queue or priority class that was changed stays as it is.  Roles and policies are brought up to date:
they belong to the version of the services.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pykai.api import names
from pykai.api.crds import custom_resource_definitions
from pykai.api.guardedfields import DEFAULT_GUARD_SETTINGS, GuardSettings
from pykai.operator.policies import admission_policies
from pykai.operator.roles import role_name, role_rules, rules_by_namespace
from pykai.services.rights import DEFAULT_PLACES, RESERVATION_POD, Places, RoleRule
from pykai.services.table import installed_services

#: name -> value (workloads:PR-1)
# KAI's classes (queues:Q-84).
PRIORITY_CLASSES = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}

_RBAC = "rbac.authorization.k8s.io"


def installation(
    settings: GuardSettings | None = DEFAULT_GUARD_SETTINGS, places: Places = DEFAULT_PLACES
) -> list[dict[str, Any]]:
    """All objects: definitions, namespaces, accounts and roles, admission policies, priority classes, default queues.

    Without settings there are no policies; those that are given name the same places.
    """
    return [
        *custom_resource_definitions(),
        *(_object("v1", "Namespace", name) for name in places),
        *_accounts(places),
        *(admission_policies(settings) if settings is not None else ()),
        *_priority_classes(),
        *_default_queues(),
    ]


def optional_role(feature: str, namespace: str = names.DEFAULT_NAMESPACE) -> list[dict[str, Any]]:
    """The role that a service needs for one of its features, and its binding; not part of the installation."""
    return [
        each
        for service in installed_services()
        if feature in service.optional_roles
        for each in role_and_binding(
            f"{role_name(service.account)}-{feature}",
            "",
            service.optional_roles[feature](),
            (service.account, namespace),
        )
    ]


def role_objects() -> list[dict[str, Any]]:
    """The roles of all services and of reservation pods, and their bindings."""
    return [each for each in _accounts(DEFAULT_PLACES) if each["kind"] != "ServiceAccount"]


def _object(api_version: str, kind: str, name: str, namespace: str = "", **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def _accounts(places: Places) -> Iterator[dict[str, Any]]:
    for service in installed_services():
        account = service.account
        yield _object("v1", "ServiceAccount", account, places.services)
        for namespace, table in rules_by_namespace(service).items():
            yield from role_and_binding(role_name(account), places.of(namespace), table, (account, places.services))
    name, namespace = names.RESERVATION_APP, places.reservations
    yield _object("v1", "ServiceAccount", name, namespace)
    yield from role_and_binding(name, namespace, RESERVATION_POD, (name, namespace))
    # Scaling pods only end; they need no rights.
    yield _object("v1", "ServiceAccount", names.SCALING_POD_APP, places.scaling)


def role_and_binding(
    name: str, namespace: str, table: Iterable[RoleRule], account_key: tuple[str, str]
) -> Iterator[dict[str, Any]]:
    """A role in a namespace, or in all of them, and its binding to an account."""
    kind = "Role" if namespace else "ClusterRole"
    account, account_namespace = account_key
    yield _object(f"{_RBAC}/v1", kind, name, namespace, rules=role_rules(table))
    yield _object(
        f"{_RBAC}/v1",
        f"{kind}Binding",
        name,
        namespace,
        roleRef={"apiGroup": _RBAC, "kind": kind, "name": name},
        subjects=[{"kind": "ServiceAccount", "name": account, "namespace": account_namespace}],
    )


def _priority_classes() -> Iterator[dict[str, Any]]:
    for name, value in PRIORITY_CLASSES.items():
        yield _object(f"{names.PRIORITY_GROUP}/v1", "PriorityClass", name, value=value)


def _default_queues() -> Iterator[dict[str, Any]]:
    """queues:2.3: no quota and no limit, so unused resources are available to everyone."""
    amounts = {"quota": 0, "limit": -1, "overQuotaWeight": 1}
    everything = {"gpu": amounts, "cpu": amounts, "memory": amounts}
    for name, parent in ((names.DEFAULT_PARENT_QUEUE, ""), (names.DEFAULT_QUEUE, names.DEFAULT_PARENT_QUEUE)):
        spec: dict[str, Any] = {"resources": everything}
        if parent:
            spec["parentQueue"] = parent
        yield _object(f"{names.SCHEDULING_GROUP}/v2", "Queue", name, spec=spec)
