"""Fields that only services write on pods, PodGroups and BindRequests, and the right that identifies a service.

One table with two readers.  `pykai.operator.policies` makes ValidatingAdmissionPolicies of it, which a Kubernetes API
server evaluates itself.  The embedded API server evaluates the table directly (`pykai.lab.apiserver.policyenforcer`).
One test sends the same requests to both.

A guard names fields and rights.  A write that sets, changes or removes one of the fields passes if its user holds one
of the rights; a write that leaves them unchanged always passes.  Rights are checked by the server's authoriser, never
by names of users: cluster administrators, the services of KAI Scheduler and ours, and fake-gpu-operator pass by their
roles.

Why `pods/status`: Kubernetes' role `edit` may only read it, and so may every controller that makes pods of a tenant's
template; both schedulers, both binders and kubelets write it.  `pods/binding` would not do: the daemon set controller
holds it, and KAI's scheduler does not.

Subtle: an expression of a policy may cost 1,000,000, and one call of the authoriser costs 350,000 of it.  So at most
two rights can be checked in one place.

Statements: policies:right.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pykai.api import names

CREATE: Final = "CREATE"
UPDATE: Final = "UPDATE"
DELETE: Final = "DELETE"

LABELS: Final = ("metadata", "labels")
ANNOTATIONS: Final = ("metadata", "annotations")


class RequiredRight(NamedTuple):
    """A check by the authoriser."""

    verb: str
    #: `pods`, `pods/status`
    resource: str
    group: str = ""
    #: empty: the namespace of the object
    namespace: str = ""

    def __str__(self) -> str:
        where = f"namespace {self.namespace}" if self.namespace else "this namespace"
        return f"{self.verb} {self.resource} in {where}"


class GuardedField(NamedTuple):
    """A part of an object."""

    path: tuple[str, ...]
    #: of a map at the path; empty: any key
    key: str = ""
    #: the key is a prefix of the guarded keys
    prefix: bool = False
    #: only this value is guarded
    value: str = ""

    def __str__(self) -> str:
        where = ".".join(self.path)
        if not self.key:
            return where
        return f"{where}[{self.key}{'*' if self.prefix else ''}]{f'={self.value}' if self.value else ''}"


class FieldGuard(NamedTuple):
    """Fields that belong to services."""

    fields: tuple[GuardedField, ...]
    #: their writers, for the message
    writer: str
    #: one of these suffices for a new object
    creating: tuple[RequiredRight, ...]
    #: and one of these for an existing one; without any, updates are not checked
    updating: tuple[RequiredRight, ...]
    #: only on pods of this scheduler
    scheduler: str = ""
    #: a new object is refused whatever it contains
    guards_creation: bool = False

    @property
    def message(self) -> str:
        """The message for a refused writer."""
        asked = dict.fromkeys((*self.creating, *self.updating))
        rights = " or ".join(map(str, asked))
        fields = ", ".join(map(str, self.fields))
        scheduler = f" of a new pod of {self.scheduler}" if self.scheduler else ""
        return f"{fields}{scheduler}: only {self.writer} may write this (it takes the right to {rights})"


class FieldPolicy(NamedTuple):
    """The guards of one resource."""

    name: str
    group: str
    resource: str
    guards: tuple[FieldGuard, ...]


class ClosedNamespaces(NamedTuple):
    """Namespaces in which our services write none of their resources, whatever their roles say."""

    name: str
    namespaces: tuple[str, ...]
    #: group of all accounts of our services
    accounts: str
    #: API group -> resources, `pods/*` for all subresources
    resources: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def message(self) -> str:
        """The message for a refused service."""
        return (
            f"services of {self.accounts.rpartition(':')[2]} write nothing in namespaces {', '.join(self.namespaces)}:"
            " no work of theirs runs there (`kai manifests --closed-namespace` sets the list)"
        )


class GuardSettings(NamedTuple):
    """The settings of an installation."""

    scheduler_name: str = names.SCHEDULER_NAME
    services_namespace: str = names.DEFAULT_NAMESPACE
    reservation_namespace: str = names.RESERVATION_NAMESPACE
    reservation_app: str = names.RESERVATION_APP
    closed_namespaces: tuple[str, ...] = ("kube-system", "kube-public", "kube-node-lease")


DEFAULT_GUARD_SETTINGS: Final = GuardSettings()

_POD_SERVICES: Final = (RequiredRight("patch", "pods/status"),)
_GROUP_SERVICES: Final = (RequiredRight("patch", "podgroups/status", names.SCHEDULING_GROUP),)
#: of a PodGroup: state that schedulers keep there
TIMESTAMPS: Final = (
    names.STALE_TIMESTAMP_ANNOTATION,
    names.LAST_START_TIMESTAMP_ANNOTATION,
    names.LAST_EVICTION_TIMESTAMP_ANNOTATION,
)


def _pod_guards(settings: GuardSettings) -> tuple[FieldGuard, ...]:
    # The program in a reservation pod and fake-gpu-operator may patch pods there only, exporters everywhere.
    devices = RequiredRight("patch", "pods", namespace=settings.reservation_namespace)
    return (
        FieldGuard(
            (
                GuardedField(LABELS, names.GPU_GROUP_LABEL),
                GuardedField(LABELS, names.GPU_GROUP_LABEL_PREFIX, prefix=True),
            ),
            "the binder",
            _POD_SERVICES,
            _POD_SERVICES,
        ),
        FieldGuard(
            (GuardedField(LABELS, names.APP_LABEL, value=settings.reservation_app),),
            "the binder",
            _POD_SERVICES,
            _POD_SERVICES,
        ),
        FieldGuard(
            (
                GuardedField(ANNOTATIONS, names.RECEIVED_TYPE_ANNOTATION),
                GuardedField(ANNOTATIONS, names.NUMA_PREDICTED_ANNOTATION),
                GuardedField(ANNOTATIONS, names.ADMITTED_TIMESTAMP_ANNOTATION),
            ),
            "scheduler and binder",
            _POD_SERVICES,
            _POD_SERVICES,
        ),
        FieldGuard(
            (
                GuardedField(ANNOTATIONS, names.NUMA_OBSERVED_ANNOTATION),
                GuardedField(ANNOTATIONS, names.RESERVED_GPU_ANNOTATION),
            ),
            "whatever sees the devices",
            _POD_SERVICES,
            (*_POD_SERVICES, devices),
        ),
        FieldGuard(
            (GuardedField(("spec", "nodeName")),),
            "the scheduler",
            _POD_SERVICES,
            (),
            scheduler=settings.scheduler_name,
        ),
    )


def field_policies(settings: GuardSettings = DEFAULT_GUARD_SETTINGS) -> tuple[FieldPolicy, ...]:
    """The table."""
    timestamps = FieldGuard(
        tuple(GuardedField(ANNOTATIONS, each) for each in TIMESTAMPS), "the scheduler", _GROUP_SERVICES, _GROUP_SERVICES
    )
    requests = FieldGuard(
        (GuardedField(("spec",)), GuardedField(LABELS)),
        "scheduler and binder",
        _POD_SERVICES,
        _POD_SERVICES,
        guards_creation=True,
    )
    return (
        FieldPolicy("kai-pods", "", "pods", _pod_guards(settings)),
        FieldPolicy("kai-podgroups", names.SCHEDULING_GROUP, "podgroups", (timestamps,)),
        FieldPolicy("kai-bindrequests", names.SCHEDULING_GROUP, "bindrequests", (requests,)),
    )


def closed_namespaces(settings: GuardSettings = DEFAULT_GUARD_SETTINGS) -> ClosedNamespaces:
    """The namespaces closed to our services: a stolen token of theirs must not reach the cluster's own pods."""
    return ClosedNamespaces(
        "kai-closed-namespaces",
        settings.closed_namespaces,
        f"system:serviceaccounts:{settings.services_namespace}",
        (
            ("", ("pods", "pods/*", "configmaps", "persistentvolumeclaims")),
            (names.DRA_GROUP, ("resourceclaims", "resourceclaims/*")),
            (names.SCHEDULING_GROUP, ("podgroups", "podgroups/*", "bindrequests", "bindrequests/*")),
        ),
    )
