"""The kinds that the server serves: a table of built-in kinds, and those of CustomResourceDefinitions.

A `ResourceKind` is one resource in one version, as a path names it. Versions of one resource share their stored
objects: `ResourceKind.store` (group and plural) is the key, and every object is stored in its storage version.

Subtle: `selectable_fields` are the paths a field selector may name besides metadata.name and metadata.namespace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pykai.lab.apiserver.schema.model import SchemaNode
from pykai.lab.apiserver.schema.table import builtin_schema

#: group and plural: where the objects of a resource are kept, whatever the version
StoreKey = tuple[str, str]

METADATA_FIELDS: Final = ("metadata.name", "metadata.namespace")


@dataclass(frozen=True, slots=True, eq=False)
class ResourceKind:
    """One resource in one version."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    singular: str = ""
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    #: has a status subresource
    status: bool = False
    #: has a scale subresource; for custom kinds the paths of spec, status and selector
    scale: Mapping[str, str] | None = None
    #: other subresources: binding, eviction, log, ...
    subresources: tuple[str, ...] = ()
    selectable_fields: tuple[str, ...] = ()
    #: counts metadata.generation on changes outside of metadata and status
    generation: bool = True
    schema: SchemaNode | None = None
    #: additionalPrinterColumns of a custom kind
    printer_columns: tuple[Mapping[str, Any], ...] = ()
    #: comes from a CustomResourceDefinition
    is_custom: bool = False
    storage_version: str = ""

    @property
    def api_version(self) -> str:
        """`v1`, or `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def store(self) -> StoreKey:
        """Where its objects are kept."""
        return self.group, self.plural

    @property
    def storage_api_version(self) -> str:
        """apiVersion of what is stored."""
        version = self.storage_version or self.version
        return f"{self.group}/{version}" if self.group else version


_SCALE: Final = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".spec.selector",
}
_POD_FIELDS: Final = (
    "spec.nodeName",
    "spec.schedulerName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)
_EVENT_FIELDS: Final = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
)
_POD_SUBRESOURCES: Final = (
    "binding",
    "eviction",
    "log",
    "exec",
    "attach",
    "portforward",
    "ephemeralcontainers",
    "resize",
)


def _kind(group: str, plural: str, kind: str, namespaced: bool = True, **more: Any) -> ResourceKind:
    return ResourceKind(group, "v1", plural, kind, namespaced, **more)


#: without their schemas, which are read when the first registry is made
_BUILTIN_KINDS: Final = (
    _kind(
        "",
        "pods",
        "Pod",
        short_names=("po",),
        categories=("all",),
        status=True,
        selectable_fields=_POD_FIELDS,
        subresources=_POD_SUBRESOURCES,
    ),
    _kind(
        "",
        "nodes",
        "Node",
        False,
        short_names=("no",),
        status=True,
        selectable_fields=("spec.unschedulable",),
        generation=False,
    ),
    _kind(
        "",
        "namespaces",
        "Namespace",
        False,
        short_names=("ns",),
        status=True,
        selectable_fields=("status.phase",),
        generation=False,
        subresources=("finalize",),
    ),
    _kind("", "configmaps", "ConfigMap", short_names=("cm",), generation=False),
    _kind("", "secrets", "Secret", selectable_fields=("type",), generation=False),
    _kind(
        "",
        "services",
        "Service",
        short_names=("svc",),
        categories=("all",),
        status=True,
        selectable_fields=("spec.clusterIP", "spec.type"),
        generation=False,
    ),
    _kind("", "serviceaccounts", "ServiceAccount", short_names=("sa",), generation=False),
    _kind("", "persistentvolumes", "PersistentVolume", False, short_names=("pv",), status=True, generation=False),
    _kind("", "persistentvolumeclaims", "PersistentVolumeClaim", short_names=("pvc",), status=True, generation=False),
    _kind("", "events", "Event", short_names=("ev",), selectable_fields=_EVENT_FIELDS, generation=False),
    _kind("apps", "deployments", "Deployment", short_names=("deploy",), categories=("all",), status=True, scale=_SCALE),
    _kind(
        "apps",
        "replicasets",
        "ReplicaSet",
        short_names=("rs",),
        categories=("all",),
        status=True,
        scale=_SCALE,
        selectable_fields=("status.replicas",),
    ),
    _kind("apps", "statefulsets", "StatefulSet", short_names=("sts",), categories=("all",), status=True, scale=_SCALE),
    _kind("apps", "daemonsets", "DaemonSet", short_names=("ds",), categories=("all",), status=True),
    _kind("discovery.k8s.io", "endpointslices", "EndpointSlice"),
    _kind("apps", "controllerrevisions", "ControllerRevision", generation=False),
    _kind("batch", "jobs", "Job", categories=("all",), status=True, selectable_fields=("status.successful",)),
    _kind("batch", "cronjobs", "CronJob", short_names=("cj",), categories=("all",), status=True),
    _kind("coordination.k8s.io", "leases", "Lease", generation=False),
    _kind("node.k8s.io", "runtimeclasses", "RuntimeClass", False, generation=False),
    _kind("scheduling.k8s.io", "priorityclasses", "PriorityClass", False, short_names=("pc",)),
    _kind("networking.k8s.io", "networkpolicies", "NetworkPolicy", short_names=("netpol",)),
    _kind("policy", "poddisruptionbudgets", "PodDisruptionBudget", short_names=("pdb",), status=True),
    _kind("resource.k8s.io", "resourceclaims", "ResourceClaim", status=True, generation=False),
    _kind("resource.k8s.io", "resourceclaimtemplates", "ResourceClaimTemplate", generation=False),
    _kind(
        "resource.k8s.io", "resourceslices", "ResourceSlice", False, selectable_fields=("spec.nodeName", "spec.driver")
    ),
    _kind("resource.k8s.io", "deviceclasses", "DeviceClass", False),
    _kind("storage.k8s.io", "storageclasses", "StorageClass", False, short_names=("sc",), generation=False),
    _kind("storage.k8s.io", "csinodes", "CSINode", False, generation=False),
    _kind("storage.k8s.io", "csidrivers", "CSIDriver", False, generation=False),
    _kind("storage.k8s.io", "csistoragecapacities", "CSIStorageCapacity", generation=False),
    _kind("rbac.authorization.k8s.io", "roles", "Role", generation=False),
    _kind("rbac.authorization.k8s.io", "rolebindings", "RoleBinding", generation=False),
    _kind("rbac.authorization.k8s.io", "clusterroles", "ClusterRole", False, generation=False),
    _kind("rbac.authorization.k8s.io", "clusterrolebindings", "ClusterRoleBinding", False, generation=False),
    _kind(
        "admissionregistration.k8s.io",
        "mutatingwebhookconfigurations",
        "MutatingWebhookConfiguration",
        False,
        categories=("api-extensions",),
    ),
    _kind(
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
        False,
        categories=("api-extensions",),
    ),
    _kind(
        "admissionregistration.k8s.io",
        "validatingadmissionpolicies",
        "ValidatingAdmissionPolicy",
        False,
        categories=("api-extensions",),
        status=True,
    ),
    _kind(
        "admissionregistration.k8s.io",
        "validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
        False,
        categories=("api-extensions",),
    ),
    _kind(
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        False,
        short_names=("crd", "crds"),
        categories=("api-extensions",),
        status=True,
    ),
)


class KindRegistry:
    """The kinds that are served now."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str, str], ResourceKind] = {}
        self._by_kind: dict[tuple[str, str, str], ResourceKind] = {}
        #: grows whenever a kind is added, changed or removed: invalidates discovery documents
        self.generation = 0
        for kind in _BUILTIN_KINDS:
            self.add(replace(kind, schema=builtin_schema(kind.group, kind.version, kind.kind)))

    def add(self, kind: ResourceKind) -> None:
        """Serve this kind, replacing one with the same path."""
        self._kinds[kind.group, kind.version, kind.plural] = kind
        self._by_kind[kind.group, kind.version, kind.kind] = kind
        self.generation += 1

    def remove(self, kind: ResourceKind) -> None:
        """Stop serving a kind."""
        if self._kinds.pop((kind.group, kind.version, kind.plural), None) is not None:
            self._by_kind.pop((kind.group, kind.version, kind.kind), None)
            self.generation += 1

    def find(self, group: str, version: str, plural: str) -> ResourceKind | None:
        """The kind at this path."""
        return self._kinds.get((group, version, plural))

    def by_kind(self, api_version: str, kind: str) -> ResourceKind | None:
        """The kind that an object's apiVersion and kind name."""
        group, _, version = api_version.rpartition("/")
        return self._by_kind.get((group, version, kind))

    def storage_kind(self, store: StoreKey) -> ResourceKind | None:
        """The kind of stored objects, in the storage version if that is served, else in any."""
        any_version = None
        for kind in self._kinds.values():
            if kind.store == store:
                if not kind.storage_version or kind.version == kind.storage_version:
                    return kind
                any_version = kind
        return any_version

    def __iter__(self) -> Iterator[ResourceKind]:
        return iter(list(self._kinds.values()))
