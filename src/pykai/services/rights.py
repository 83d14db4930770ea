"""What each service may do.

A service has its own account and no right that it does not use: the tests on a real API server fail on an unused right
and on a request that no right allows.  Rights are written as in `kubectl auth`: API group, resources, verbs.  Those in
a namespace become a Role there, the others a ClusterRole (`operator/roles.py`).

`LIST_WATCH` is what a cache needs.

Statements: operations:OD-11.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

from pykai.api import names
from pykai.api.suspension import PASSED_KINDS, SUSPEND_PATHS
from pykai.kube.resources import KARTAS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from pykai.podgrouper.kinds.table import WorkloadKind, read_kinds, watched_kinds
from pykai.webhooks import table as webhooks

LIST_WATCH = ("list", "watch")
_READ: tuple[str, ...] = ("get",)

_CORE = ""
_SCHEDULING = names.SCHEDULING_GROUP
_STORAGE = names.STORAGE_GROUP
_DRA = names.DRA_GROUP


class RoleRule(NamedTuple):
    """Verbs on resources of one API group."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    #: empty: in all namespaces, and on what has none
    namespace: str = ""
    #: the objects it is about; empty: all
    names: tuple[str, ...] = ()


class Places(NamedTuple):
    """The namespaces of an installation; rules name the default ones (install:places)."""

    services: str = names.DEFAULT_NAMESPACE
    reservations: str = names.RESERVATION_NAMESPACE
    scaling: str = names.SCALE_ADJUST_NAMESPACE

    def of(self, namespace: str) -> str:
        """Where this installation has what a rule names."""
        return dict(zip(DEFAULT_PLACES, self, strict=True)).get(namespace, namespace)


DEFAULT_PLACES: Final = Places()

#: gives rules that follow from another table
RuleSource = Callable[[], Iterable[RoleRule]]


def workload_rules() -> Iterator[RoleRule]:
    """What the pod grouper may do with owners, by the table of workload kinds."""
    yield from _rules_for(watched_kinds())
    yield from _rules_for(read_kinds())


def _rules_for(kinds: Iterable[WorkloadKind]) -> Iterator[RoleRule]:
    ordered = sorted({(kind.resource.group, kind.verbs, kind.resource.plural) for kind in kinds})
    for (group, verbs), rows in groupby(ordered, key=lambda each: each[:2]):
        yield RoleRule(group, tuple(plural for *_, plural in rows), verbs)


def suspend_rules() -> Iterator[RoleRule]:
    """What the scheduler may do with owners of workloads that it suspends (suspend:rights), by the table of fields."""
    for kinds, verbs in ((SUSPEND_PATHS, ("get", "patch")), (PASSED_KINDS, _READ)):
        for group, kind in sorted(kinds):
            yield RoleRule(group, (f"{kind.lower()}s",), verbs)


#: events are counted up by patches
_EVENTS = RoleRule(_CORE, ("events",), ("create", "patch"))
_LEASES = RoleRule("coordination.k8s.io", ("leases",), ("create", "get", "update"), names.DEFAULT_NAMESPACE)
_CLASSES = RoleRule(names.PRIORITY_GROUP, ("priorityclasses",), LIST_WATCH)

SCHEDULER: tuple[RoleRule, ...] = (
    RoleRule(_CORE, ("pods",), (*LIST_WATCH, "delete", "get", "patch")),
    RoleRule(_CORE, ("pods/status",), ("patch",)),
    RoleRule(_CORE, ("pods/binding",), ("create",)),
    RoleRule(_CORE, ("nodes", "namespaces", "configmaps", "persistentvolumes", "persistentvolumeclaims"), LIST_WATCH),
    # Records of gangs, of failed binds and of usage.
    RoleRule(_CORE, ("configmaps",), ("create", "delete", "patch"), names.DEFAULT_NAMESPACE),
    _EVENTS,
    _LEASES,
    _CLASSES,
    RoleRule(_STORAGE, ("csidrivers", "csinodes", "csistoragecapacities", "storageclasses"), LIST_WATCH),
    RoleRule(_DRA, ("deviceclasses", "resourceclaims", "resourceslices"), LIST_WATCH),
    RoleRule(names.NUMA_GROUP, ("noderesourcetopologies",), LIST_WATCH),
    RoleRule(names.POLICY_GROUP, ("poddisruptionbudgets",), LIST_WATCH),
    RoleRule(names.KAI_GROUP, ("topologies",), LIST_WATCH),
    RoleRule(_SCHEDULING, ("queues",), LIST_WATCH),
    # Fair shares.
    RoleRule(_SCHEDULING, ("queues/status",), ("patch",)),
    RoleRule(_SCHEDULING, ("podgroups",), (*LIST_WATCH, "patch")),
    RoleRule(_SCHEDULING, ("podgroups/status",), ("patch",)),
    RoleRule(_SCHEDULING, ("bindrequests",), (*LIST_WATCH, "create", "delete", "get")),
)

BINDER: tuple[RoleRule, ...] = (
    RoleRule(_CORE, ("pods",), (*LIST_WATCH, "delete", "get", "patch")),
    RoleRule(_CORE, ("pods",), ("create",), names.RESERVATION_NAMESPACE),
    RoleRule(_CORE, ("pods/status",), ("patch",)),
    RoleRule(_CORE, ("pods/binding",), ("create",)),
    RoleRule(_CORE, ("configmaps",), ("create", "delete", "get", "patch")),
    RoleRule(_CORE, ("nodes",), (*LIST_WATCH, "get")),
    RoleRule(_CORE, ("persistentvolumes",), (*LIST_WATCH, "get", "update")),
    RoleRule(_CORE, ("persistentvolumeclaims",), (*LIST_WATCH, "get", "patch")),
    _EVENTS,
    _LEASES,
    RoleRule(_STORAGE, ("storageclasses",), ("get",)),
    RoleRule(_DRA, ("resourceclaims",), (*LIST_WATCH, "create", "delete", "get", "patch")),
    RoleRule(_DRA, ("resourceclaims/status",), ("update",)),
    RoleRule(_SCHEDULING, ("bindrequests",), (*LIST_WATCH, "delete", "get")),
    RoleRule(_SCHEDULING, ("bindrequests/status",), ("patch",)),
)

POD_GROUPER: tuple[RoleRule | RuleSource, ...] = (
    RoleRule(_CORE, ("pods",), (*LIST_WATCH, "get", "patch")),
    RoleRule(_CORE, ("namespaces",), LIST_WATCH),
    # The defaults of kinds; elsewhere it needs a Role of its own there.
    RoleRule(_CORE, ("configmaps",), LIST_WATCH, names.DEFAULT_NAMESPACE),
    _EVENTS,
    _LEASES,
    _CLASSES,
    workload_rules,
    RoleRule(KARTAS.group, (KARTAS.plural,), LIST_WATCH),
    # Gangs of Kubernetes, with --workload-api.
    RoleRule(names.PRIORITY_GROUP, ("workloads",), LIST_WATCH),
    RoleRule(_SCHEDULING, ("podgroups",), (*LIST_WATCH, "create", "get", "patch")),
    # Pods that are about to get a node.
    RoleRule(_SCHEDULING, ("bindrequests",), ("list",)),
)

#: since Kubernetes 1.36 a gang is a PodGroup, which may name a level of a Topology
POD_GROUPER_FUTURE: tuple[RoleRule, ...] = (
    RoleRule(names.PRIORITY_GROUP, ("podgroups",), LIST_WATCH),
    RoleRule(names.KAI_GROUP, ("topologies",), LIST_WATCH),
)

POD_GROUP_CONTROLLER: tuple[RoleRule, ...] = (
    RoleRule(_CORE, ("nodes", "pods"), LIST_WATCH),
    _EVENTS,
    _LEASES,
    _CLASSES,
    RoleRule(_DRA, ("resourceclaims",), LIST_WATCH),
    RoleRule(_SCHEDULING, ("podgroups", "queues"), LIST_WATCH),
    RoleRule(_SCHEDULING, ("podgroups/status",), ("patch",)),
)

QUEUE_CONTROLLER: tuple[RoleRule, ...] = (
    _EVENTS,
    _LEASES,
    RoleRule(_SCHEDULING, ("podgroups", "queues"), LIST_WATCH),
    RoleRule(_SCHEDULING, ("queues/status",), ("patch",)),
)

#: Secret and registrations are created by `kai manifests`: a right to create cannot be limited to a name.
ADMISSION: tuple[RoleRule, ...] = (
    RoleRule(_CORE, ("pods",), ("list",)),
    _CLASSES,
    # Watched once a queue selects namespaces by their labels.
    RoleRule(_CORE, ("namespaces",), LIST_WATCH),
    RoleRule(_CORE, ("secrets",), (*LIST_WATCH, "get", "update"), names.DEFAULT_NAMESPACE, (webhooks.TLS_SECRET,)),
    _LEASES,
    *(
        RoleRule(kind.group, (kind.plural,), (*LIST_WATCH, "patch"), names=webhooks.configuration_names(kind))
        for kind in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
    ),
    RoleRule(_SCHEDULING, ("queues",), LIST_WATCH),
    RoleRule(_SCHEDULING, ("podgroups",), (*LIST_WATCH, "get")),
    # Pods that are about to get a node.
    RoleRule(_SCHEDULING, ("bindrequests",), ("list",)),
)

NODE_SCALE_ADJUSTER: tuple[RoleRule, ...] = (
    RoleRule(_CORE, ("pods",), (*LIST_WATCH, "get")),
    RoleRule(_CORE, ("pods",), ("create", "delete"), names.SCALE_ADJUST_NAMESPACE),
    RoleRule(_CORE, ("pods/status",), ("patch",), names.SCALE_ADJUST_NAMESPACE),
    RoleRule(_CORE, ("nodes",), LIST_WATCH),
    _EVENTS,
    _LEASES,
)

_WRITE = (*LIST_WATCH, "create", "delete", "patch")

#: roles of the components are installed beside it: it hands out no rights
OPERATOR: tuple[RoleRule, ...] = (
    RoleRule(names.KAI_GROUP, ("configs", "schedulingshards"), LIST_WATCH),
    RoleRule(names.KAI_GROUP, ("configs/status", "schedulingshards/status"), ("patch",)),
    RoleRule(_CORE, ("nodes",), LIST_WATCH),
    RoleRule("apiextensions.k8s.io", ("customresourcedefinitions",), LIST_WATCH),
    RoleRule(
        "apiextensions.k8s.io",
        ("customresourcedefinitions",),
        ("get", "patch"),
        names=(f"queues.{names.SCHEDULING_GROUP}",),
    ),
    RoleRule("nvidia.com", ("clusterpolicies",), LIST_WATCH),
    _EVENTS,
    _LEASES,
    RoleRule("coordination.k8s.io", ("leases",), LIST_WATCH, names.DEFAULT_NAMESPACE),
    RoleRule(_CORE, ("pods",), LIST_WATCH, names.DEFAULT_NAMESPACE),
    RoleRule(_CORE, ("configmaps", "serviceaccounts", "services"), _WRITE, names.DEFAULT_NAMESPACE),
    RoleRule(_CORE, ("secrets",), _WRITE, names.DEFAULT_NAMESPACE, (webhooks.TLS_SECRET,)),
    RoleRule(_CORE, ("serviceaccounts",), _WRITE, names.RESERVATION_NAMESPACE),
    RoleRule(_CORE, ("serviceaccounts",), _WRITE, names.SCALE_ADJUST_NAMESPACE),
    RoleRule("apps", ("daemonsets", "deployments"), _WRITE, names.DEFAULT_NAMESPACE),
    RoleRule("discovery.k8s.io", ("endpointslices",), _WRITE, names.DEFAULT_NAMESPACE),
    RoleRule(names.POLICY_GROUP, ("poddisruptionbudgets",), _WRITE, names.DEFAULT_NAMESPACE),
    RoleRule("networking.k8s.io", ("networkpolicies",), _WRITE, names.DEFAULT_NAMESPACE),
    RoleRule("autoscaling.k8s.io", ("verticalpodautoscalers",), _WRITE, names.DEFAULT_NAMESPACE),
    RoleRule("monitoring.coreos.com", ("prometheuses", "servicemonitors"), _WRITE, names.DEFAULT_NAMESPACE),
    *(
        rule
        for kind in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
        for rule in (
            RoleRule(kind.group, (kind.plural,), LIST_WATCH),
            # An apply names what it creates, so this right can be limited to names.
            RoleRule(
                kind.group,
                (kind.plural,),
                ("create", "delete", "patch"),
                names=webhooks.configuration_names(kind),
            ),
        )
    ),
)

#: it runs on each node: no node may read more than it does, and a patch cannot be limited to the pods of one
NUMA_PLACEMENT_EXPORTER: tuple[RoleRule, ...] = (RoleRule(_CORE, ("pods",), ("list", "patch")),)

#: since Kubernetes 1.36 allocating a claim takes the right to bind it
BINDER_FUTURE: tuple[RoleRule, ...] = (RoleRule(_DRA, ("resourceclaims/binding",), ("update",)),)

#: the program in a reservation pod writes down which GPU it was given
RESERVATION_POD: tuple[RoleRule, ...] = (RoleRule(_CORE, ("pods",), ("get", "patch"), names.RESERVATION_NAMESPACE),)
