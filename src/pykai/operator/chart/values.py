"""The values of the chart: path, kind, default and meaning of each, under the names of KAI's chart (operations:10).

`values.yaml`, `values.schema.json`, docs/values.md and the defaults of `kai install` are made of this
table, so they cannot differ.  A value without a default is left out of values.yaml but for a comment: for these an
absent value has a meaning of its own.

Statements: operations:10, OD-18.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from pykai.api import names
from pykai.operator.desired.settings import IMAGE_NAME
from pykai.operator.monitoring.files import DASHBOARD_LABEL, RULE_LABELS


class Kind(Enum):
    """What a value may be."""

    TEXT = "text"
    SWITCH = "true or false"
    NUMBER = "number"
    #: from 1 to 65535
    PORT = "port"
    COUNT = "whole number of 0 or more"
    #: a number, or a text with a unit
    QUANTITY = "quantity"
    #: a map of texts
    TEXTS = "map of texts"
    #: an object that is passed on as it is
    DOCUMENT = "object"
    #: a list of such objects
    DOCUMENTS = "list of objects"
    #: a list of `{name: ...}`
    NAMES = "list of {name}"


class _Unset:
    """No default."""

    def __repr__(self) -> str:
        return "unset"


UNSET: Final = _Unset()


@dataclass(frozen=True, slots=True)
class ChartValue:
    """One value."""

    path: str
    kind: Kind
    default: Any
    meaning: str
    #: the only texts that are allowed
    choices: tuple[str, ...] = ()
    #: KAI's chart does not know it
    is_ours: bool = False
    #: the default in KAI's chart, if it is another
    differs: str = ""


def _amounts() -> dict[str, dict[str, int]]:
    """queues:2.3: no quota and no limit."""
    return {name: {"quota": 0, "limit": -1, "overQuotaWeight": 1} for name in ("cpu", "gpu", "memory")}


_ONE_IMAGE: Final = "an image for each program"


def _image(component: str, *, has_registry: bool = False, key: str = "image") -> Iterator[ChartValue]:
    path = f"{component}.{key}"
    yield ChartValue(f"{path}.name", Kind.TEXT, IMAGE_NAME, "Name of the image.", differs=_ONE_IMAGE)
    yield ChartValue(
        f"{path}.pullPolicy",
        Kind.TEXT,
        "",
        "When it is pulled; empty: global.imagePullPolicy.",
        ("", "Always", "IfNotPresent", "Never"),
        differs="`IfNotPresent`, which leaves global.imagePullPolicy without effect",
    )
    yield ChartValue(f"{path}.tag", Kind.TEXT, UNSET, "Its tag; empty: global.tag, then the version of the chart.")
    if has_registry:
        yield ChartValue(f"{path}.registry", Kind.TEXT, UNSET, "Where it is; empty: global.registry.")


def _budget(component: str, meaning: str = "") -> Iterator[ChartValue]:
    path = f"{component}.podDisruptionBudget"
    wanted = meaning or "Make a PodDisruptionBudget where there are several replicas."
    yield ChartValue(f"{path}.enabled", Kind.SWITCH, True, wanted)
    yield ChartValue(f"{path}.maxUnavailable", Kind.COUNT, 1, meaning or "Pods that may be missing.")


def _flags(name: str, title: str) -> ChartValue:
    meaning = f"Flags of {title} that no other value sets, by name."
    return ChartValue(f"{name}.args", Kind.TEXTS, {}, meaning, is_ours=True)


def _component(name: str, title: str, *, has_budget: bool = False, has_switch: bool = True) -> Iterator[ChartValue]:
    if has_switch:
        yield ChartValue(f"{name}.enabled", Kind.SWITCH, True, f"Deploy {title}.")
    yield from _image(name)
    yield ChartValue(f"{name}.resources", Kind.DOCUMENT, UNSET, "Resources of the container; the operator's otherwise.")
    yield ChartValue(f"{name}.affinity", Kind.DOCUMENT, {}, "Affinity of the pods, beside global.affinity.")
    # Those of the schedulers are for the default shard, as in KAI.
    if name != "scheduler":
        yield _flags(name, title)
    if has_budget:
        yield from _budget(name)


def _hook(name: str, switch: str, *, has_registry: bool = False) -> Iterator[ChartValue]:
    if switch:
        yield ChartValue(f"{name}.enabled", Kind.SWITCH, True, switch)
    yield from _image(name, has_registry=has_registry)
    yield ChartValue(f"{name}.resources", Kind.DOCUMENT, {}, "Resources of the container of the Job.")


_GLOBAL: Final = (
    ChartValue(
        "openshift",
        Kind.SWITCH,
        False,
        "Install for OpenShift. It is found out by a look at the cluster otherwise, which templates cannot take.",
    ),
    ChartValue(
        "global.registry",
        Kind.TEXT,
        "",
        "Where images are, as in registry.example/team.",
        differs="the registry of the project",
    ),
    ChartValue("global.tag", Kind.TEXT, "", "Tag of all images; empty: the version of the chart."),
    ChartValue(
        "global.fipsMode",
        Kind.TEXT,
        "off",
        "`on` puts -fips behind every tag; so does `only`, which says more to programs in Go.",
        ("on", "only", "off"),
    ),
    ChartValue(
        "global.imagePullPolicy",
        Kind.TEXT,
        "IfNotPresent",
        "When images are pulled.",
        ("Always", "IfNotPresent", "Never"),
    ),
    ChartValue("global.securityContext", Kind.DOCUMENT, {}, "Security context of containers, instead of a strict one."),
    ChartValue("global.podSecurityContext", Kind.DOCUMENT, {}, "Security context of the pods of operator and hooks."),
    ChartValue("global.imagePullSecrets", Kind.NAMES, [], "Pull secrets of all pods, as in [{name: secret}]."),
    ChartValue(
        "global.leaderElection", Kind.SWITCH, False, "Elect a leader among operators; several replicas always do."
    ),
    ChartValue("global.gpuSharing", Kind.SWITCH, False, "Allow pods that share GPUs."),
    ChartValue(
        "global.gpuSharingMode",
        Kind.TEXT,
        "",
        "The same as newer charts of KAI say it; empty: global.gpuSharing. `HamiCore` and `NvFractions` allow sharing"
        " and enforce nothing: binder.plugins switches `hamicore` on.",
        ("", "NonMemoryEnforced", "HamiCore", "NvFractions", "Disabled"),
    ),
    ChartValue(
        "global.nvFractions.set",
        Kind.SWITCH,
        False,
        "Accepted, without effect: NVIDIA's operator for parts of GPUs is not installed.",
    ),
    ChartValue("global.blockNvidiaVisibleDevices", Kind.SWITCH, False, "Refuse pods that set NVIDIA_VISIBLE_DEVICES."),
    ChartValue("global.clusterAutoscaling", Kind.SWITCH, False, "Deploy the node scale adjuster."),
    ChartValue("global.nodeSelector", Kind.TEXTS, {}, "Node selector of all pods."),
    ChartValue("global.affinity", Kind.DOCUMENT, {}, "Affinity of all pods."),
    ChartValue("global.requireDefaultPodAntiAffinityTerm", Kind.SWITCH, False, "Never run two replicas on one node."),
    ChartValue("global.tolerations", Kind.DOCUMENTS, [], "Tolerations of all pods."),
    ChartValue("global.daemonsetsTolerations", Kind.DOCUMENTS, [], "Tolerations of DaemonSets, before their own."),
    ChartValue("global.priorityClassName", Kind.TEXT, "", "Priority class of all pods."),
    ChartValue("global.namespaceLabelSelector", Kind.TEXTS, {}, "Handle only pods of namespaces with these labels."),
    ChartValue("global.podLabelSelector", Kind.TEXTS, {}, "Handle only pods with these labels."),
    ChartValue(
        "global.nodePoolLabelKey", Kind.TEXT, "", f"Label that names a node pool; empty: {names.NODE_POOL_LABEL}."
    ),
    ChartValue(
        "global.queueAdmissionGating.enabled",
        Kind.SWITCH,
        False,
        "Hold pods over quota behind a gate, in queues that ask for it.",
        is_ours=True,
    ),
    ChartValue(
        "global.queueAdmissionGating.reservationTimeout",
        Kind.TEXT,
        UNSET,
        "How long an admitted pod that waits for a node is charged to its queue; 10m otherwise.",
        is_ours=True,
    ),
    ChartValue("global.jsonLog", Kind.SWITCH, False, "Log as JSON."),
    ChartValue("global.vpa.enabled", Kind.SWITCH, False, "Make VerticalPodAutoscalers."),
    ChartValue(
        "global.vpa.updatePolicy",
        Kind.DOCUMENT,
        {"updateMode": "InPlaceOrRecreate", "minReplicas": 1},
        "Their update policy.",
    ),
    ChartValue(
        "global.vpa.resourcePolicy",
        Kind.DOCUMENT,
        {
            "containerPolicies": [
                {
                    "containerName": "*",
                    "minAllowed": {"cpu": "50m", "memory": "500Mi"},
                    "maxAllowed": {"cpu": 2, "memory": "5Gi"},
                }
            ]
        },
        "Their resource policy.",
    ),
    ChartValue(
        "global.resourceReservation.namespace", Kind.TEXT, names.RESERVATION_NAMESPACE, "Where pods reserve GPUs."
    ),
    ChartValue("global.resourceReservation.serviceAccount", Kind.TEXT, names.RESERVATION_APP, "Their account."),
    ChartValue("global.resourceReservation.appLabel", Kind.TEXT, names.RESERVATION_APP, "Their label app."),
    ChartValue("global.resourceReservation.namespaceLabels", Kind.TEXTS, {}, "Labels of their namespace."),
    ChartValue("global.resourceReservation.createNamespace", Kind.SWITCH, True, "Make the namespace if it is missing."),
    ChartValue(
        "global.resourceReservation.createServiceAccount", Kind.SWITCH, True, "Make the account if it is missing."
    ),
)

_OPERATOR: Final = (
    *_image("operator"),
    ChartValue("operator.resources", Kind.DOCUMENT, UNSET, "Resources of the operator's container."),
    ChartValue("operator.replicaCount", Kind.COUNT, 1, "Replicas of the operator, and of every component."),
    ChartValue("operator.metricsBindAddress", Kind.TEXT, ":8080", "Where the operator serves metrics."),
    ChartValue("operator.probeBindAddress", Kind.TEXT, ":8081", "Where the operator serves health."),
    ChartValue("operator.qps", Kind.COUNT, 50, "API client of the operator: requests a second."),
    ChartValue("operator.burst", Kind.COUNT, 300, "API client of the operator: requests at once."),
    ChartValue(
        "operator.logLevel",
        Kind.TEXT,
        "",
        "Verbosity of the operator's log; `error` and `panic` show warnings, too.",
        ("", "debug", "info", "error", "panic"),
    ),
)

_SERVICES: Final = (
    *_component("podgrouper", "the pod grouper", has_budget=True),
    ChartValue("podgrouper.queueLabelKey", Kind.TEXT, names.QUEUE_LABEL, "Label that names a queue."),
    ChartValue("podgrouper.genericKartaFallback", Kind.SWITCH, True, "Group unknown kinds by Kartas."),
    *_component("podgroupcontroller", "the pod group controller"),
    *_component("binder", "the binder"),
    *_budget("binder", "Passed on to the Config, without effect: the binder has no PodDisruptionBudget."),
    *_image("binder", key="resourceReservationImage"),
    ChartValue("binder.name", Kind.TEXT, "binder", "Accepted, without effect, as in KAI."),
    ChartValue("binder.ports.metricsPort", Kind.PORT, 8080, "Port of the binder's metrics."),
    ChartValue("binder.cdiEnabled", Kind.SWITCH, UNSET, "Devices are injected by CDI; found out otherwise."),
    ChartValue("binder.runtimeClassName", Kind.TEXT, UNSET, "Runtime class of reservation pods."),
    ChartValue("binder.resourceReservationPodResources", Kind.DOCUMENT, UNSET, "Resources of reservation pods."),
    ChartValue("binder.plugins", Kind.DOCUMENT, {}, "Plugins of the binder, over the defaults."),
    *_component("scheduler", "the schedulers of all shards", has_budget=True),
    ChartValue(
        "scheduler.placementStrategy",
        Kind.TEXT,
        "binpack",
        "How the default shard places pods.",
        ("binpack", "spread"),
    ),
    ChartValue("scheduler.ports.metricsPort", Kind.PORT, 8080, "Port of the schedulers' metrics."),
    ChartValue("scheduler.args", Kind.TEXTS, {}, "Flags of the scheduler of the default shard, by name."),
    ChartValue(
        "scheduler.suspendRole",
        Kind.SWITCH,
        False,
        "Give the schedulers the right to suspend evicted workloads that ask for it, instead of deleting their pods.",
        is_ours=True,
    ),
    ChartValue("scheduler.goMemLimitRatio", Kind.NUMBER, 0.9, "Accepted, without effect: a setting of the Go runtime."),
    ChartValue("scheduler.goMemLimit", Kind.QUANTITY, UNSET, "Accepted, without effect: a setting of the Go runtime."),
    ChartValue("scheduler.plugins", Kind.DOCUMENT, {}, "Plugins of the default shard, over the defaults."),
    ChartValue("scheduler.actions", Kind.DOCUMENT, {}, "Actions of the default shard, over the defaults."),
    ChartValue(
        "scheduler.scenarioSearchBudgets", Kind.DOCUMENT, {}, "How long the default shard searches for victims."
    ),
    ChartValue("defaultShard.enabled", Kind.SWITCH, True, "Make the SchedulingShard `default`."),
    ChartValue("numaPlacementExporter.enabled", Kind.SWITCH, UNSET, "Deploy it; when a shard uses NUMA otherwise."),
    *_image("numaPlacementExporter"),
    _flags("numaPlacementExporter", "the exporter"),
    ChartValue("numaPlacementExporter.nodeSelector", Kind.TEXTS, {}, "Nodes it runs on."),
    ChartValue("numaPlacementExporter.tolerations", Kind.DOCUMENTS, [], "Its tolerations."),
    ChartValue("numaPlacementExporter.affinity", Kind.DOCUMENT, {}, "Affinity of its pods."),
    ChartValue("numaPlacementExporter.resources", Kind.DOCUMENT, {}, "Resources of its container."),
    ChartValue("numaPlacementExporter.pollInterval", Kind.TEXT, UNSET, "How often the kubelet is asked."),
    ChartValue("numaPlacementExporter.driftResyncInterval", Kind.TEXT, UNSET, "How often annotations are compared."),
    ChartValue("numaPlacementExporter.podResourcesHostPath", Kind.TEXT, UNSET, "Folder of the kubelet's socket."),
    ChartValue("numaPlacementExporter.podResourcesSocket", Kind.TEXT, UNSET, "The kubelet's socket."),
    ChartValue("numaPlacementExporter.sysfsHostPath", Kind.TEXT, UNSET, "Where sysfs is on nodes."),
    *_component("queuecontroller", "the queue controller"),
    *_component("admission", "the admission service", has_budget=True),
    ChartValue(
        "admission.queueLabelSelector",
        Kind.SWITCH,
        False,
        "Call the webhooks only for namespaces that have the queue label.",
        is_ours=True,
    ),
    ChartValue("admission.name", Kind.TEXT, "kai-admission", "Accepted, without effect, as in KAI."),
    ChartValue("admission.cdi", Kind.SWITCH, False, "Accepted, without effect, as in KAI."),
    ChartValue("admission.ports.webhookPort", Kind.PORT, 9443, "Port of the webhooks."),
    ChartValue("admission.ports.metricsPort", Kind.PORT, 8080, "Port of metrics."),
    ChartValue("admission.ports.probePort", Kind.PORT, 8081, "Port of health."),
    ChartValue(
        "admission.gpuFractionRuntimeClassName",
        Kind.TEXT,
        names.GPU_RUNTIME_CLASS,
        "Runtime class of pods that share GPUs.",
    ),
    ChartValue(
        "admission.gpuPodRuntimeClassName", Kind.TEXT, UNSET, "Deprecated: use admission.gpuFractionRuntimeClassName."
    ),
    *_component("nodescaleadjuster", "the node scale adjuster", has_switch=False),
    *_image("nodescaleadjuster", key="scalingPodImage"),
    ChartValue(
        "nodescaleadjuster.scalingPodNamespace", Kind.TEXT, names.SCALE_ADJUST_NAMESPACE, "Where scaling pods are."
    ),
    ChartValue("nodescaleadjuster.labels", Kind.TEXTS, {}, "Labels of that namespace."),
)

_REST: Final = (
    *_hook("crdupgrader", "", has_registry=True),
    ChartValue("kaiConfig.render", Kind.SWITCH, False, "Make the Config a part of the release, for GitOps tools."),
    *_hook("kaiConfigDeployer", "Apply the Config after an installation or upgrade.", has_registry=True),
    *_hook("topologyMigration", "Copy Topologies of Kueue before an installation or upgrade."),
    *_hook("postCleanup", "Delete what the operator has made, once the release is deleted."),
    ChartValue("postCleanup.serviceAccountName", Kind.TEXT, "post-delete-cleanup", "Account of that Job."),
    ChartValue("defaultPriorityClasses.enabled", Kind.SWITCH, True, "Make the four priority classes of workloads."),
    ChartValue(
        "prometheus.enabled", Kind.SWITCH, False, "Deploy a Prometheus through its operator, for usage over time."
    ),
    ChartValue("prometheus.externalPrometheusUrl", Kind.TEXT, UNSET, "Use this Prometheus instead."),
    ChartValue(
        "prometheus.instanceName",
        Kind.TEXT,
        UNSET,
        "Its name, and that of its account; else prometheus.",
        is_ours=True,
    ),
    ChartValue("defaultQueue.createDefaultQueue", Kind.SWITCH, True, "Make two queues when the release is new."),
    ChartValue("defaultQueue.parentName", Kind.TEXT, names.DEFAULT_PARENT_QUEUE, "Name of the upper one."),
    ChartValue("defaultQueue.childName", Kind.TEXT, names.DEFAULT_QUEUE, "Name of the lower one."),
    ChartValue("defaultQueue.parentResources", Kind.DOCUMENT, _amounts(), "Resources of the upper one."),
    ChartValue("defaultQueue.childResources", Kind.DOCUMENT, _amounts(), "Resources of the lower one."),
    ChartValue(
        "admissionPolicies.enabled",
        Kind.SWITCH,
        True,
        "Let the API server refuse writes of fields that belong to services.",
        is_ours=True,
    ),
    ChartValue(
        "networkPolicies.enabled",
        Kind.SWITCH,
        False,
        "Close our pods to connections but to ports that they serve: webhooks, metrics and health.",
        is_ours=True,
    ),
    ChartValue(
        "dashboards.enabled", Kind.SWITCH, False, "Make a ConfigMap for each dashboard of Grafana.", is_ours=True
    ),
    ChartValue(
        "dashboards.labels",
        Kind.TEXTS,
        {DASHBOARD_LABEL: "1"},
        "Labels by which Grafana's sidecar finds them.",
        is_ours=True,
    ),
    ChartValue(
        "alerts.enabled",
        Kind.SWITCH,
        False,
        "Make a PrometheusRule with alerts; needs the Prometheus operator.",
        is_ours=True,
    ),
    ChartValue("alerts.labels", Kind.TEXTS, dict(RULE_LABELS), "Labels by which Prometheus selects it.", is_ours=True),
)

VALUES: Final[tuple[ChartValue, ...]] = (*_GLOBAL, *_OPERATOR, *_SERVICES, *_REST)


def default_values() -> dict[str, Any]:
    """All values that have a default, nested."""
    tree: dict[str, Any] = {}
    for each in VALUES:
        *parents, key = each.path.split(".")
        place = tree
        for parent in parents:
            place = place.setdefault(parent, {})
        if each.default is not UNSET:
            place[key] = each.default
    return tree


def merged_values(base: Mapping[str, Any], *changes: Mapping[str, Any], keeps_nulls: bool = False) -> dict[str, Any]:
    """Values over values, as Helm does it: maps are merged, a null takes a value away, all else replaces.

    `keeps_nulls` is for values that are still to be put over the defaults.
    """
    merged = dict(base)
    for change in changes:
        for key, value in change.items():
            below = merged.get(key)
            if value is None and not keeps_nulls:
                merged.pop(key, None)
            elif isinstance(value, Mapping):
                under = below if isinstance(below, Mapping) else {}
                merged[key] = merged_values(under, value, keeps_nulls=keeps_nulls)
            else:
                merged[key] = value
    return merged


def groups() -> dict[str, Sequence[ChartValue]]:
    """The values by the first word of their path, in the order of the table."""
    found: dict[str, list[ChartValue]] = {}
    for each in VALUES:
        found.setdefault(each.path.partition(".")[0], []).append(each)
    return {name: tuple(rows) for name, rows in found.items()}
