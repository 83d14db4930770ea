"""One look at a cluster: everything that the checks know.

A `Source` is a kind of objects and where they are looked for.  What could not be read is noted with its reason, so that
a check that needs it is reported as not done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Generic, TypeVar

from pykai.api import names
from pykai.api.core import Namespace, Node
from pykai.api.installation import Config, SchedulingShard
from pykai.api.meta import ObjectMeta
from pykai.api.scheduling import PodGroup, Queue
from pykai.doctor import documents
from pykai.kube import resources
from pykai.kube.resources import Resource
from pykai.operator.desired.settings import Settings
from pykai.operator.desired.state import is_ours
from pykai.webhooks.table import TLS_SECRET

T = TypeVar("T")

RBAC: Final = "rbac.authorization.k8s.io"
_ROLES: Final = Resource(RBAC, "v1", "roles", "Role", True)
_CLUSTER_ROLES: Final = Resource(RBAC, "v1", "clusterroles", "ClusterRole", False)
_ROLE_BINDINGS: Final = Resource(RBAC, "v1", "rolebindings", "RoleBinding", True)
_CLUSTER_ROLE_BINDINGS: Final = Resource(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", False)
_ENDPOINT_SLICES: Final = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", True)


@dataclass(frozen=True)
class Source(Generic[T]):
    """Objects of one kind; in namespaces of ours, or wherever they are."""

    resource: Resource
    into: type[T]
    #: only in the namespaces of the installation
    is_ours: bool = False
    #: only the object of this name
    name: str = ""

    @property
    def label(self) -> str:
        """As `kubectl` calls it."""
        plural = self.resource.plural
        return f"{plural}.{self.resource.group}" if self.resource.group else plural


# Definitions are compared field by field, so they are not decoded into a type.
DEFINITIONS: Final[Source[dict[str, Any]]] = Source(resources.CUSTOM_RESOURCE_DEFINITIONS, dict)
CONFIGS: Final = Source(resources.CONFIGS, Config)
SHARDS: Final = Source(resources.SCHEDULING_SHARDS, SchedulingShard)
NODES: Final = Source(resources.NODES, Node)
DEVICE_SLICES: Final = Source(resources.RESOURCE_SLICES, documents.DeviceSlice)
NAMESPACES: Final = Source(resources.NAMESPACES, Namespace)
QUEUES: Final = Source(resources.QUEUES, Queue)
POD_GROUPS: Final = Source(resources.POD_GROUPS, PodGroup)
DEPLOYMENTS: Final = Source(resources.DEPLOYMENTS, documents.ComponentDeployment)
DAEMON_SETS: Final = Source(resources.DAEMON_SETS, documents.DaemonSet)
#: what `Facts.workloads` needs
WORKLOADS: Final[tuple[Source[Any], ...]] = (DEPLOYMENTS, DAEMON_SETS)
PODS: Final = Source(resources.PODS, documents.StartingPod, is_ours=True)
LEASES: Final = Source(resources.LEASES, documents.Lease, is_ours=True)
ACCOUNTS: Final = Source(resources.SERVICE_ACCOUNTS, documents.Named, is_ours=True)
RUNTIME_CLASSES: Final = Source(resources.RUNTIME_CLASSES, documents.Named)
MUTATING: Final = Source(resources.MUTATING_WEBHOOKS, documents.WebhookRegistration)
VALIDATING: Final = Source(resources.VALIDATING_WEBHOOKS, documents.WebhookRegistration)
CERTIFICATE: Final = Source(resources.SECRETS, documents.CertificateSecret, is_ours=True, name=TLS_SECRET)
SERVICES: Final = Source(resources.SERVICES, documents.KubernetesService)
ENDPOINTS: Final = Source(_ENDPOINT_SLICES, documents.EndpointSlice)
ROLES: Final = Source(_ROLES, documents.Role)
CLUSTER_ROLES: Final = Source(_CLUSTER_ROLES, documents.Role)
ROLE_BINDINGS: Final = Source(_ROLE_BINDINGS, documents.RoleBinding)
CLUSTER_ROLE_BINDINGS: Final = Source(_CLUSTER_ROLE_BINDINGS, documents.RoleBinding)


@dataclass(frozen=True, slots=True)
class Workload:
    """A Deployment or a DaemonSet: what its pods run, and how many of them there are."""

    kind: str
    metadata: ObjectMeta
    pod: documents.TemplateSpec
    #: pods
    wanted: int
    available: int

    @property
    def where(self) -> str:
        """How findings name it."""
        return f"{self.kind} {self.metadata.namespace}/{self.metadata.name}"


@dataclass(frozen=True, slots=True)
class Unread:
    """Why objects could not be read, and what would help."""

    reason: str
    fix: str


@dataclass(frozen=True, slots=True)
class Facts:
    """One look at a cluster."""

    namespace: str
    #: of the machine on which the doctor runs
    now: datetime
    #: how far the clock of the API server is ahead of it; None where it does not say
    server_ahead: timedelta | None = None
    server_version: str = ""
    #: resource -> its objects
    objects: Mapping[Resource, tuple[Any, ...]] = field(default_factory=dict)
    unread: Mapping[Resource, Unread] = field(default_factory=dict)
    #: kinds that the API server does not know: there are no objects of them
    unserved: frozenset[Resource] = frozenset()

    def all(self, source: Source[T]) -> tuple[T, ...]:
        """The objects of a source that was read."""
        return self.objects.get(source.resource, ())

    def serves(self, source: Source[T]) -> bool:
        """Whether the API server knows the kind."""
        return source.resource not in self.unserved

    def manifests(self, *flags: str) -> str:
        """The command that installs what this installation needs."""
        place = () if self.namespace == names.DEFAULT_NAMESPACE else ("--namespace", self.namespace)
        return " ".join(("kai manifests", *flags, *place, "| kubectl apply -f -"))

    @property
    def cluster_time(self) -> datetime:
        """The time of the API server, with which timestamps are compared."""
        return self.now + (self.server_ahead or timedelta())

    @property
    def config(self) -> Config | None:
        """The Config that counts."""
        return next((each for each in self.all(CONFIGS) if is_ours(each)), None)

    @property
    def settings(self) -> Settings:
        """The Config with its defaults; all defaults where there is none."""
        return Settings((self.config or Config()).spec)

    @property
    def workloads(self) -> tuple[Workload, ...]:
        """The Deployments and DaemonSets that shall run."""
        deployments = (
            Workload(
                DEPLOYMENTS.resource.kind,
                each.metadata,
                each.spec.template.spec,
                each.spec.replicas,
                each.status.available_replicas,
            )
            for each in self.all(DEPLOYMENTS)
            if each.spec.replicas
        )
        daemon_sets = (
            Workload(
                DAEMON_SETS.resource.kind,
                each.metadata,
                each.spec.template.spec,
                each.status.desired_number_scheduled,
                each.status.number_available,
            )
            for each in self.all(DAEMON_SETS)
        )
        return (*deployments, *daemon_sets)
