"""What each service may do: one table of rules, from which ClusterRoles and their bindings are made.

A service has its own account and its own role, with no right it does not use.  Rights are written as in `kubectl auth`:
API group, resources, verbs.  `READ` is what a cache needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pykai.api import names

READ = ("get", "list", "watch")
#: events are counted up by patches
TELL = ("create", "patch", "update")
HOLD = ("create", "get", "list", "patch", "update", "watch")

_CORE = ""
_SCHEDULING = names.SCHEDULING_GROUP
_STORAGE = names.STORAGE_GROUP
_DRA = names.DRA_GROUP


class Rule(NamedTuple):
    """Verbs on resources of one API group."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]


_EVENTS = Rule(_CORE, ("events",), TELL)
_LEASES = Rule("coordination.k8s.io", ("leases",), HOLD)
_CLASSES = Rule(names.PRIORITY_GROUP, ("priorityclasses",), READ)

#: service account -> rules
ROLES: Mapping[str, tuple[Rule, ...]] = {
    "scheduler": (
        Rule(_CORE, ("pods",), (*READ, "delete", "patch")),
        Rule(_CORE, ("pods/status",), ("patch",)),
        Rule(_CORE, ("pods/binding",), ("create",)),
        Rule(_CORE, ("nodes", "namespaces", "configmaps", "persistentvolumes", "persistentvolumeclaims"), READ),
        _EVENTS,
        _LEASES,
        _CLASSES,
        Rule(_STORAGE, ("csidrivers", "csinodes", "csistoragecapacities", "storageclasses"), READ),
        Rule(_DRA, ("deviceclasses", "resourceclaims", "resourceslices"), READ),
        Rule(names.NUMA_GROUP, ("noderesourcetopologies",), READ),
        Rule(names.KAI_GROUP, ("topologies",), READ),
        Rule(_SCHEDULING, ("queues",), READ),
        Rule(_SCHEDULING, ("podgroups",), (*READ, "patch")),
        Rule(_SCHEDULING, ("podgroups/status",), ("patch", "update")),
        Rule(_SCHEDULING, ("bindrequests",), (*READ, "create", "delete")),
    ),
    "binder": (
        Rule(_CORE, ("pods", "configmaps"), (*READ, "create", "delete", "patch", "update")),
        Rule(_CORE, ("pods/status",), ("patch",)),
        Rule(_CORE, ("pods/binding",), ("create",)),
        Rule(_CORE, ("nodes", "persistentvolumes"), READ),
        Rule(_CORE, ("persistentvolumeclaims",), (*READ, "patch", "update")),
        _EVENTS,
        _LEASES,
        Rule(_STORAGE, ("csidrivers", "csinodes", "csistoragecapacities", "storageclasses"), READ),
        Rule(_DRA, ("deviceclasses", "resourceslices"), READ),
        Rule(_DRA, ("resourceclaims",), (*READ, "create", "delete", "patch", "update")),
        Rule(_DRA, ("resourceclaims/status",), ("patch", "update")),
        Rule(_DRA, ("resourceclaims/binding",), ("patch", "update")),
        Rule(_SCHEDULING, ("bindrequests",), (*READ, "delete")),
        Rule(_SCHEDULING, ("bindrequests/status",), ("patch", "update")),
    ),
    "pod-grouper": (
        Rule(_CORE, ("pods",), (*READ, "patch")),
        Rule(_CORE, ("configmaps", "namespaces"), READ),
        _EVENTS,
        _LEASES,
        _CLASSES,
        Rule("apps", ("deployments", "replicasets", "statefulsets"), READ),
        Rule("batch", ("cronjobs", "jobs"), READ),
        Rule(_SCHEDULING, ("podgroups",), (*READ, "create", "patch", "update")),
    ),
    "podgroup-controller": (
        Rule(_CORE, ("nodes", "pods"), READ),
        _EVENTS,
        _LEASES,
        _CLASSES,
        Rule(_DRA, ("resourceclaims",), READ),
        Rule(_SCHEDULING, ("podgroups",), READ),
        Rule(_SCHEDULING, ("podgroups/status",), ("patch", "update")),
    ),
    "queue-controller": (
        _EVENTS,
        _LEASES,
        Rule(_SCHEDULING, ("podgroups", "queues"), READ),
        Rule(_SCHEDULING, ("queues/status",), ("patch", "update")),
    ),
    "admission": (_EVENTS, _LEASES),
}

#: the program in a reservation pod writes down which GPU it was given
RESERVATION_RULES: tuple[Rule, ...] = (Rule(_CORE, ("pods",), ("get", "patch")),)


def role_name(service: str) -> str:
    """The ClusterRole of a service."""
    return f"kai-{service}"


def rules(table: tuple[Rule, ...]) -> list[dict[str, Any]]:
    """The rules as a role spells them."""
    return [
        {"apiGroups": [rule.group], "resources": sorted(rule.resources), "verbs": sorted(rule.verbs)} for rule in table
    ]
