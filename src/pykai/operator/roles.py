"""What each service may do: one table of rules, from which roles and their bindings are made.

A service has its own account and no right that it does not use: the tests on a real API server fail on a right that
nobody has used, and on a request that no right allows.  Rights are written as in `kubectl auth`: API group, resources,
verbs.  Those in a namespace become a Role there, the others a ClusterRole.

`FOLLOW` is what a cache needs.  `LATER` is what Kubernetes will ask for in a version after the one tested.

Statements: operations:OD-11.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple

from pykai.api import names
from pykai.kube.resources import Resource
from pykai.podgrouper.ownerkinds import FOREIGN, WATCHED

FOLLOW = ("list", "watch")

_CORE = ""
_SCHEDULING = names.SCHEDULING_GROUP
_STORAGE = names.STORAGE_GROUP
_DRA = names.DRA_GROUP


class Rule(NamedTuple):
    """Verbs on resources of one API group."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    #: empty: in all namespaces, and on what has none
    namespace: str = ""


def _rules(kinds: Iterable[Resource], verbs: tuple[str, ...]) -> Iterator[Rule]:
    """The same verbs on all these kinds."""
    ordered = sorted({(kind.group, kind.plural) for kind in kinds})
    for group, found in groupby(ordered, key=lambda each: each[0]):
        yield Rule(group, tuple(plural for _, plural in found), verbs)


#: events are counted up by patches
_EVENTS = Rule(_CORE, ("events",), ("create", "patch"))
_LEASES = Rule("coordination.k8s.io", ("leases",), ("create", "get", "update"), names.DEFAULT_NAMESPACE)
_CLASSES = Rule(names.PRIORITY_GROUP, ("priorityclasses",), FOLLOW)

#: service account -> rules
ROLES: Mapping[str, tuple[Rule, ...]] = {
    "scheduler": (
        Rule(_CORE, ("pods",), (*FOLLOW, "delete", "get", "patch")),
        Rule(_CORE, ("pods/status",), ("patch",)),
        Rule(_CORE, ("pods/binding",), ("create",)),
        Rule(_CORE, ("nodes", "namespaces", "configmaps", "persistentvolumes", "persistentvolumeclaims"), FOLLOW),
        # Records of gangs and of failed binds; with another --namespace it needs this Role there.
        Rule(_CORE, ("configmaps",), ("create", "delete", "patch"), names.DEFAULT_NAMESPACE),
        _EVENTS,
        _LEASES,
        _CLASSES,
        Rule(_STORAGE, ("csidrivers", "csinodes", "csistoragecapacities", "storageclasses"), FOLLOW),
        Rule(_DRA, ("deviceclasses", "resourceclaims", "resourceslices"), FOLLOW),
        Rule(names.NUMA_GROUP, ("noderesourcetopologies",), FOLLOW),
        Rule(names.KAI_GROUP, ("topologies",), FOLLOW),
        Rule(_SCHEDULING, ("queues",), FOLLOW),
        Rule(_SCHEDULING, ("podgroups",), (*FOLLOW, "patch")),
        Rule(_SCHEDULING, ("podgroups/status",), ("patch",)),
        Rule(_SCHEDULING, ("bindrequests",), (*FOLLOW, "create", "delete", "get")),
    ),
    "binder": (
        Rule(_CORE, ("pods",), (*FOLLOW, "delete", "get", "patch")),
        Rule(_CORE, ("pods",), ("create",), names.RESERVATION_NAMESPACE),
        Rule(_CORE, ("pods/status",), ("patch",)),
        Rule(_CORE, ("pods/binding",), ("create",)),
        Rule(_CORE, ("configmaps",), ("create", "delete", "get", "patch")),
        Rule(_CORE, ("nodes",), (*FOLLOW, "get")),
        Rule(_CORE, ("persistentvolumes",), (*FOLLOW, "get", "update")),
        Rule(_CORE, ("persistentvolumeclaims",), (*FOLLOW, "get", "patch")),
        _EVENTS,
        _LEASES,
        Rule(_STORAGE, ("storageclasses",), ("get",)),
        Rule(_DRA, ("resourceclaims",), (*FOLLOW, "create", "delete", "get", "patch")),
        Rule(_DRA, ("resourceclaims/status",), ("update",)),
        Rule(_SCHEDULING, ("bindrequests",), (*FOLLOW, "delete", "get")),
        Rule(_SCHEDULING, ("bindrequests/status",), ("patch",)),
    ),
    "pod-grouper": (
        Rule(_CORE, ("pods",), (*FOLLOW, "get", "patch")),
        Rule(_CORE, ("namespaces",), FOLLOW),
        # The defaults of kinds; elsewhere it needs a Role of its own there.
        Rule(_CORE, ("configmaps",), FOLLOW, names.DEFAULT_NAMESPACE),
        _EVENTS,
        _LEASES,
        _CLASSES,
        *_rules(WATCHED, (*FOLLOW, "get")),
        *_rules(FOREIGN, ("get",)),
        Rule(_SCHEDULING, ("podgroups",), (*FOLLOW, "create", "get", "patch")),
    ),
    "podgroup-controller": (
        Rule(_CORE, ("nodes", "pods"), FOLLOW),
        _EVENTS,
        _LEASES,
        _CLASSES,
        Rule(_DRA, ("resourceclaims",), FOLLOW),
        Rule(_SCHEDULING, ("podgroups", "queues"), FOLLOW),
        Rule(_SCHEDULING, ("podgroups/status",), ("patch",)),
    ),
    "queue-controller": (
        _EVENTS,
        _LEASES,
        Rule(_SCHEDULING, ("podgroups", "queues"), FOLLOW),
        Rule(_SCHEDULING, ("queues/status",), ("patch",)),
    ),
    # It answers the API server and asks it nothing.
    "admission": (),
}

#: service account -> further rules: since Kubernetes 1.36 who allocates a claim must be allowed to bind it
LATER: Mapping[str, tuple[Rule, ...]] = {"binder": (Rule(_DRA, ("resourceclaims/binding",), ("update",)),)}

#: the program in a reservation pod writes down which GPU it was given
RESERVATION_RULES: tuple[Rule, ...] = (Rule(_CORE, ("pods",), ("get", "patch"), names.RESERVATION_NAMESPACE),)


def role_name(service: str) -> str:
    """The ClusterRole of a service, and its Roles."""
    return f"kai-{service}"


def by_namespace(service: str) -> dict[str, list[Rule]]:
    """The rules of a service by where they hold; "" for everywhere."""
    found: dict[str, list[Rule]] = {}
    for rule in (*ROLES[service], *LATER.get(service, ())):
        found.setdefault(rule.namespace, []).append(rule)
    return found


def rules(table: Iterable[Rule]) -> list[dict[str, Any]]:
    """The rules as a role spells them."""
    return [
        {"apiGroups": [rule.group], "resources": sorted(rule.resources), "verbs": sorted(rule.verbs)} for rule in table
    ]
