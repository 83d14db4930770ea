"""The kinds we speak to an API server about, and the paths under which it serves them.

A `Resource` is a plain value: a service names one from the list below, or makes its own for a kind of a third party
(`dataclasses.replace(RESOURCE_CLAIMS, version="v1beta1")` for an older server).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote

from pykai.api import names
from pykai.api.keys import object_key

_PLAIN = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)


def _quoted(text: str) -> str:
    # Nearly all names need no quoting, and finding that out is quicker than doing it.
    return text if _PLAIN.fullmatch(text) else quote(text, safe="")


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind in one version of its API group; the core group is the empty text."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """`v1`, or `group/version`: what objects say in `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path of one object, of a namespace's objects, or of all (both empty)."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root]
        if self.namespaced and namespace:
            parts += ["namespaces", _quoted(namespace)]
        elif self.namespaced and name:
            raise ValueError(f"{self.kind} {name!r} needs a namespace")
        parts.append(self.plural)
        if name:
            parts.append(_quoted(name))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)

    def key(self, namespace: str, name: str) -> str:
        """How caches and work queues call an object: `namespace/name`, or `name` where there are no namespaces."""
        return object_key(namespace, name) if self.namespaced else name


PODS = Resource("", "v1", "pods", "Pod", True)
NODES = Resource("", "v1", "nodes", "Node", False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", False)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", True)
SECRETS = Resource("", "v1", "secrets", "Secret", True)
SERVICES = Resource("", "v1", "services", "Service", True)
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", True)
PERSISTENT_VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", False)
PERSISTENT_VOLUME_CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True)
EVENTS = Resource("", "v1", "events", "Event", True)

ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", True)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", True)
RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False)
PRIORITY_CLASSES = Resource(names.PRIORITY_GROUP, "v1", "priorityclasses", "PriorityClass", False)

JOBS = Resource("batch", "v1", "jobs", "Job", True)
CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob", True)
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", True)
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet", True)
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet", True)
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet", True)
CONTROLLER_REVISIONS = Resource("apps", "v1", "controllerrevisions", "ControllerRevision", True)

RESOURCE_CLAIMS = Resource(names.DRA_GROUP, "v1", "resourceclaims", "ResourceClaim", True)
RESOURCE_CLAIM_TEMPLATES = Resource(names.DRA_GROUP, "v1", "resourceclaimtemplates", "ResourceClaimTemplate", True)
RESOURCE_SLICES = Resource(names.DRA_GROUP, "v1", "resourceslices", "ResourceSlice", False)
DEVICE_CLASSES = Resource(names.DRA_GROUP, "v1", "deviceclasses", "DeviceClass", False)

STORAGE_CLASSES = Resource(names.STORAGE_GROUP, "v1", "storageclasses", "StorageClass", False)
CSI_NODES = Resource(names.STORAGE_GROUP, "v1", "csinodes", "CSINode", False)
CSI_DRIVERS = Resource(names.STORAGE_GROUP, "v1", "csidrivers", "CSIDriver", False)
CSI_STORAGE_CAPACITIES = Resource(names.STORAGE_GROUP, "v1", "csistoragecapacities", "CSIStorageCapacity", True)

NETWORK_POLICIES = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", True)
POD_DISRUPTION_BUDGETS = Resource(names.POLICY_GROUP, "v1", "poddisruptionbudgets", "PodDisruptionBudget", True)
MUTATING_WEBHOOKS = Resource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False
)
VALIDATING_WEBHOOKS = Resource(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", False
)
CUSTOM_RESOURCE_DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False
)

QUEUES = Resource(names.SCHEDULING_GROUP, "v2", "queues", "Queue", False)
POD_GROUPS = Resource(names.SCHEDULING_GROUP, "v2alpha2", "podgroups", "PodGroup", True)
BIND_REQUESTS = Resource(names.SCHEDULING_GROUP, "v1alpha2", "bindrequests", "BindRequest", True)
KARTAS = Resource("run.ai", "v1alpha1", "kartas", "Karta", False)
TOPOLOGIES = Resource(names.KAI_GROUP, "v1alpha1", "topologies", "Topology", False)
CONFIGS = Resource(names.KAI_GROUP, "v1", "configs", "Config", False)
SCHEDULING_SHARDS = Resource(names.KAI_GROUP, "v1", "schedulingshards", "SchedulingShard", False)
#: kinds of other projects that the operator makes or reads where a cluster has them
VERTICAL_AUTOSCALERS = Resource("autoscaling.k8s.io", "v1", "verticalpodautoscalers", "VerticalPodAutoscaler", True)
PROMETHEUSES = Resource("monitoring.coreos.com", "v1", "prometheuses", "Prometheus", True)
SERVICE_MONITORS = Resource("monitoring.coreos.com", "v1", "servicemonitors", "ServiceMonitor", True)
CLUSTER_POLICIES = Resource("nvidia.com", "v1", "clusterpolicies", "ClusterPolicy", False)
NODE_RESOURCE_TOPOLOGIES = Resource(
    names.NUMA_GROUP, "v1alpha2", "noderesourcetopologies", "NodeResourceTopology", False
)
