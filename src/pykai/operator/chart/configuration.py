"""The Config and the default SchedulingShard that follow from the values.

Tests of KAI read parts of both without looking whether they are there, so these are always written (operations:O-50).

Statements: operations:10, O-50, O-52, O-62, E-9; cases operations:OC-19.
"""

from __future__ import annotations

from typing import Final

from pykai.operator.chart.language import (
    All,
    Any_,
    Choice,
    Equals,
    Exists,
    FirstOf,
    Has,
    ImageTag,
    IsMoreThan,
    IsSet,
    NamesIn,
    Not,
    ReleaseNamespace,
    TemplateCondition,
    TemplateNode,
    Truth,
    Value,
    when_given,
    when_set,
)
from pykai.operator.desired.state import CONFIG_NAME

CONFIG_DEFINITION: Final = "kai-scheduler.config"
KEEP: Final = {"helm.sh/resource-policy": "keep", "argocd.argoproj.io/sync-options": "Prune=false"}
DEFAULT_SHARD: Final = "default"

#: a definition that only OpenShift has
OPENSHIFT_DEFINITION: Final = "clusterversions.config.openshift.io"
#: a look at the cluster, for those who do not say
IS_OPENSHIFT: Final[TemplateCondition] = Any_(
    (
        IsSet(Value("openshift")),
        Exists("apiextensions.k8s.io/v1", "CustomResourceDefinition", OPENSHIFT_DEFINITION),
    )
)


_SHARING_MODE: Final = Value("global.gpuSharingMode")
#: the mode of newer charts goes before the switch of older ones
_SHARES_GPUS: Final[TemplateCondition] = Any_(
    (
        All((Not(IsSet(_SHARING_MODE)), IsSet(Value("global.gpuSharing")))),
        All((IsSet(_SHARING_MODE), Not(Equals(_SHARING_MODE, "Disabled")))),
    )
)


def pull_policy(image: str) -> TemplateNode:
    """When an image is pulled."""
    return FirstOf((Value(f"{image}.pullPolicy"), Value("global.imagePullPolicy")))


def _image(image: str) -> dict[str, TemplateNode]:
    return {
        "name": Value(f"{image}.name"),
        "repository": Value("global.registry"),
        "tag": ImageTag(image),
        "pullPolicy": pull_policy(image),
    }


def _service(
    component: str, enabled: TemplateNode, *, has_budget: bool = False, has_args: bool = True
) -> dict[str, TemplateNode]:
    budget = {
        "podDisruptionBudget": {
            "enabled": Value(f"{component}.podDisruptionBudget.enabled"),
            "maxUnavailable": Value(f"{component}.podDisruptionBudget.maxUnavailable"),
        }
    }
    return {
        "enabled": enabled,
        "image": _image(f"{component}.image"),
        "resources": when_set(f"{component}.resources"),
        "affinity": when_set(f"{component}.affinity"),
        **(budget if has_budget else {}),
        **({"args": when_set(f"{component}.args")} if has_args else {}),
    }


def _switched(component: str, *, has_budget: bool = False, has_args: bool = True) -> dict[str, TemplateNode]:
    return _service(component, Value(f"{component}.enabled"), has_budget=has_budget, has_args=has_args)


def _everywhere() -> dict[str, TemplateNode]:
    """`spec.global`."""
    gating = "global.queueAdmissionGating"
    return {
        "replicaCount": Value("operator.replicaCount"),
        **{
            key: when_set(f"global.{key}")
            for key in (
                "namespaceLabelSelector",
                "podLabelSelector",
                "nodePoolLabelKey",
                "jsonLog",
                "affinity",
                "requireDefaultPodAntiAffinityTerm",
                "nodeSelector",
                "tolerations",
                "daemonsetsTolerations",
                "priorityClassName",
                "securityContext",
                "vpa",
            )
        },
        "additionalImagePullSecrets": when_set("global.imagePullSecrets", NamesIn("global.imagePullSecrets")),
        "queueLabelKey": when_set("podgrouper.queueLabelKey"),
        "queueAdmissionGating": Choice(
            IsSet(Value(f"{gating}.enabled")),
            {"enabled": True, "reservationTimeout": when_set(f"{gating}.reservationTimeout")},
        ),
        "networkPolicies": Choice(IsSet(Value("networkPolicies.enabled")), True),
        # operations:OD-14
        "openshift": Choice(IS_OPENSHIFT, True),
    }


def _binder() -> dict[str, TemplateNode]:
    place = "global.resourceReservation"
    return {
        "service": _switched("binder", has_budget=True),
        "metricsPort": Value("binder.ports.metricsPort"),
        "cdiEnabled": when_given("binder.cdiEnabled"),
        "plugins": when_set("binder.plugins"),
        "resourceReservation": {
            "image": _image("binder.resourceReservationImage"),
            "namespace": when_set(f"{place}.namespace"),
            "serviceAccountName": when_set(f"{place}.serviceAccount"),
            "appLabel": when_set(f"{place}.appLabel"),
            "runtimeClassName": when_set("binder.runtimeClassName"),
            "podResources": when_set("binder.resourceReservationPodResources"),
        },
    }


def _admission() -> dict[str, TemplateNode]:
    newer, older = "admission.gpuFractionRuntimeClassName", "admission.gpuPodRuntimeClassName"
    return {
        "service": _switched("admission", has_budget=True),
        "gpuSharing": Truth(_SHARES_GPUS),
        "blockNvidiaVisibleDevices": Value("global.blockNvidiaVisibleDevices"),
        "queueLabelSelector": Value("admission.queueLabelSelector"),
        "webhook": {
            "port": 443,
            "targetPort": Value("admission.ports.webhookPort"),
            "probePort": Value("admission.ports.probePort"),
            "metricsPort": Value("admission.ports.metricsPort"),
        },
        "gpuFractionRuntimeClassName": when_given(newer),
        "gpuPodRuntimeClassName": Choice(All((Not(Has(newer)), Has(older))), Value(older)),
    }


def _numa_exporter() -> dict[str, TemplateNode]:
    name = "numaPlacementExporter"
    rest = (
        "nodeSelector",
        "tolerations",
        "pollInterval",
        "driftResyncInterval",
        "podResourcesHostPath",
        "podResourcesSocket",
        "sysfsHostPath",
    )
    return {
        "service": _service(name, when_given(f"{name}.enabled")),
        **{key: when_set(f"{name}.{key}") for key in rest},
    }


def config() -> TemplateNode:
    """The Config; `kai.scheduler/v1`, named as the only one that counts."""
    return {
        "apiVersion": "kai.scheduler/v1",
        "kind": "Config",
        "metadata": {
            "name": CONFIG_NAME,
            # Argo CD would look for the definition before a hook installs it, and would not take over fields.
            "annotations": Choice(
                IsSet(Value("kaiConfig.render")),
                {"argocd.argoproj.io/sync-options": "SkipDryRunOnMissingResource=true,ServerSideApply=true"},
            ),
        },
        "spec": {
            "namespace": ReleaseNamespace(),
            "global": _everywhere(),
            "podGrouper": {
                "service": _switched("podgrouper", has_budget=True),
                "args": {"genericKartaFallback": Value("podgrouper.genericKartaFallback")},
            },
            "podGroupController": {"service": _switched("podgroupcontroller")},
            "binder": _binder(),
            "scheduler": {
                # scheduler.args are those of the default shard.
                "service": _switched("scheduler", has_budget=True, has_args=False),
                "schedulerService": {"port": Value("scheduler.ports.metricsPort")},
            },
            "queueController": {"service": _switched("queuecontroller")},
            "admission": _admission(),
            "nodeScaleAdjuster": {
                "service": _service("nodescaleadjuster", Value("global.clusterAutoscaling")),
                "args": {
                    "nodeScaleNamespace": Value("nodescaleadjuster.scalingPodNamespace"),
                    "scalingPodImage": _image("nodescaleadjuster.scalingPodImage"),
                },
            },
            "prometheus": Choice(
                IsSet(Value("prometheus.enabled")),
                {
                    "enabled": True,
                    "externalPrometheusUrl": when_set("prometheus.externalPrometheusUrl"),
                    "instanceName": when_set("prometheus.instanceName"),
                },
            ),
            "numaPlacementExporter": _numa_exporter(),
        },
    }


def default_shard() -> TemplateNode:
    """The shard of nodes without a pool; it stays when the release goes."""
    strategy = Value("scheduler.placementStrategy")
    return Choice(
        IsSet(Value("defaultShard.enabled")),
        {
            "apiVersion": "kai.scheduler/v1",
            "kind": "SchedulingShard",
            "metadata": {"name": DEFAULT_SHARD, "annotations": dict(KEEP)},
            "spec": {
                "partitionLabelValue": "",
                "placementStrategy": {"gpu": strategy, "cpu": strategy},
                "args": when_set("scheduler.args"),
                "goMemLimitRatio": when_set("scheduler.goMemLimitRatio"),
                "goMemLimit": when_set("scheduler.goMemLimit"),
                "plugins": when_set("scheduler.plugins"),
                "actions": when_set("scheduler.actions"),
                "scenarioSearchBudgets": when_set("scheduler.scenarioSearchBudgets"),
            },
        },
    )


def has_leader_election() -> TemplateNode:
    """Whether operators elect a leader; several replicas always do (operations:OC-19)."""
    return Truth(Any_((IsSet(Value("global.leaderElection")), IsMoreThan(Value("operator.replicaCount"), 1))))
