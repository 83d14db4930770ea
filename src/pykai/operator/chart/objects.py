"""What the chart installs beside Config and shard: the operator, roles, namespaces, queues and priority classes.

The operator makes the Deployments of the components and their accounts; roles come from here, so that it need not be
able to hand out rights.  They are those of `services/rights.py`, with the namespaces of the values.

Namespaces, accounts and queues may be there before, or stay when the release goes.  They belong to a release that made
them, in every revision of it, so that `helm rollback` finds the same objects (operations:OD-19).

Statements: operations:O-51, O-52, O-53, OD-11, OD-19, OD-22; cases operations:OC-19.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from pykai.api import names
from pykai.api.guardedfields import GuardSettings
from pykai.operator.chart.configuration import KEEP, has_leader_election, pull_policy
from pykai.operator.chart.language import (
    All,
    Any_,
    Choice,
    Equals,
    Exists,
    ImageReference,
    ImageTag,
    IsInstall,
    IsSet,
    Not,
    Pick,
    PortOf,
    ReleaseNamespace,
    TemplateCondition,
    TemplateNode,
    Text,
    Value,
    when_set,
)
from pykai.operator.desired.objects import METRICS_NAME, OPERATOR
from pykai.operator.install import PRIORITY_CLASSES, optional_role, role_objects
from pykai.operator.policies import admission_policies
from pykai.services.rights import DEFAULT_PLACES

_RESERVATION: Final = "global.resourceReservation"
#: the namespaces in which services have rights, and who says how they are called
_NAMESPACES: Final[Mapping[str, TemplateNode]] = {
    DEFAULT_PLACES.services: ReleaseNamespace(),
    DEFAULT_PLACES.reservations: Value(f"{_RESERVATION}.namespace"),
    DEFAULT_PLACES.scaling: Value("nodescaleadjuster.scalingPodNamespace"),
}
#: the feature of a service -> the value that asks for its role
_OPTIONAL_ROLES: Final = {"suspend": "scheduler.suspendRole"}
#: stands in policies where a value belongs
_PLACES: Final[Mapping[str, TemplateNode]] = {
    "@namespace@": ReleaseNamespace(),
    "@reservation-namespace@": Value(f"{_RESERVATION}.namespace"),
    "@reservation-app@": Value(f"{_RESERVATION}.appLabel"),
}
_PLACE: Final = re.compile(r"(@[a-z-]+@)")
STRICT_CONTEXT: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "runAsUser": 10000,
    "seccompProfile": {"type": "RuntimeDefault"},
}
_OPERATOR_RESOURCES: Final = {
    "requests": {"cpu": "50m", "memory": "256Mi"},
    "limits": {"cpu": "1", "memory": "512Mi"},
}


def pod_placement() -> dict[str, TemplateNode]:
    """What holds for the pods of operator and hooks."""
    return {
        "imagePullSecrets": when_set("global.imagePullSecrets"),
        "nodeSelector": when_set("global.nodeSelector"),
        "affinity": when_set("global.affinity"),
        "tolerations": when_set("global.tolerations"),
        "priorityClassName": when_set("global.priorityClassName"),
        "securityContext": when_set("global.podSecurityContext"),
    }


def container_context() -> Choice:
    """The strict context, unless another is given (operations:OD-22)."""
    given = "global.securityContext"
    return Choice(IsSet(Value(given)), Value(given), STRICT_CONTEXT)


def operator_objects() -> list[TemplateNode]:
    """The operator's account, the Service of its metrics, and its Deployment."""
    labels = {"app": OPERATOR}
    pod = {
        "metadata": {"labels": labels},
        "spec": {
            "serviceAccountName": OPERATOR,
            **pod_placement(),
            "containers": [_operator_container()],
            "volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}],
        },
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            # `kai uninstall` knows its objects by the fields that it owns (install:uninstall).
            "metadata": {"name": OPERATOR, "namespace": ReleaseNamespace(), "labels": labels},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": OPERATOR, "namespace": ReleaseNamespace(), "labels": labels},
            "spec": {"selector": labels, "ports": [_metrics_port()]},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": OPERATOR, "namespace": ReleaseNamespace(), "labels": labels},
            "spec": {
                "replicas": Value("operator.replicaCount"),
                "selector": {"matchLabels": labels},
                # Without a lease two would write over each other, KAI Scheduler's and ours (install:handover).
                "strategy": {"type": "Recreate"},
                "template": pod,
            },
        },
    ]


# operations:OD-17
def _metrics_port() -> dict[str, TemplateNode]:
    number = PortOf("operator.metricsBindAddress")
    return {"name": METRICS_NAME, "port": number, "protocol": "TCP", "targetPort": number}


def _operator_container() -> dict[str, TemplateNode]:
    def flag(name: str, value: TemplateNode) -> Text:
        return Text(f"--{name}={{}}", (value,))

    return {
        "name": "operator",
        "image": ImageReference("operator.image"),
        "imagePullPolicy": pull_policy("operator.image"),
        "command": ["kai", "run", "operator"],
        "args": [
            flag("metrics-bind-address", Value("operator.metricsBindAddress")),
            flag("health-probe-bind-address", Value("operator.probeBindAddress")),
            flag("leader-elect", has_leader_election()),
            flag("qps", Value("operator.qps")),
            flag("burst", Value("operator.burst")),
            flag("namespace", ReleaseNamespace()),
            flag("resource-reservation-namespace", Value(f"{_RESERVATION}.namespace")),
            flag("scale-adjust-namespace", Value("nodescaleadjuster.scalingPodNamespace")),
            Choice(IsSet(Value("operator.logLevel")), flag("v", _verbosity())),
            Choice(IsSet(Value("global.jsonLog")), "--log-json=true"),
        ],
        "env": [
            {"name": "WATCH_NAMESPACE", "value": ReleaseNamespace()},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "OPERATOR_NAME", "value": OPERATOR},
            {"name": "MS_REPOSITORY", "value": Value("global.registry")},
            {"name": "MS_TAG", "value": ImageTag("operator.image")},
        ],
        "ports": [
            {"name": "metrics", "containerPort": PortOf("operator.metricsBindAddress")},
            {"name": "probe", "containerPort": PortOf("operator.probeBindAddress")},
        ],
        "livenessProbe": _probe("/healthz", 15, 20),
        "readinessProbe": _probe("/readyz", 1, 2),
        "resources": Choice(IsSet(Value("operator.resources")), Value("operator.resources"), _OPERATOR_RESOURCES),
        "securityContext": container_context(),
        # The root is read-only.
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }


def _verbosity() -> TemplateNode:
    """Zap's level as our `--v`, which knows nothing less than warnings."""
    level = Value("operator.logLevel")
    return Pick(Equals(level, "debug"), "4", Pick(Equals(level, "info"), "3", "2"))


def _probe(path: str, delay_s: int, period_s: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": "probe"},
        "initialDelaySeconds": delay_s,
        "periodSeconds": period_s,
        "timeoutSeconds": 5,
    }


def roles() -> list[TemplateNode]:
    """The roles of all services and their bindings, and those for features as far as they are wanted."""
    optional = [
        Choice(IsSet(Value(value)), in_namespaces(each))
        for feature, value in _OPTIONAL_ROLES.items()
        for each in optional_role(feature)
    ]
    return [*(in_namespaces(each) for each in role_objects()), *optional]


def in_namespaces(obj: Mapping[str, Any]) -> dict[str, TemplateNode]:
    """A role or a binding with the namespaces of the values."""
    placed = dict(obj)
    placed["metadata"] = _in_namespace(obj["metadata"])
    if "subjects" in obj:
        placed["subjects"] = [_in_namespace(each) for each in obj["subjects"]]
        if obj["subjects"][0]["name"] == names.RESERVATION_APP:
            placed["subjects"][0]["name"] = Value(f"{_RESERVATION}.serviceAccount")
    return placed


def _in_namespace(part: Mapping[str, Any]) -> dict[str, TemplateNode]:
    if "namespace" not in part:
        return dict(part)
    return {**part, "namespace": _NAMESPACES[part["namespace"]]}


def policies() -> list[TemplateNode]:
    """The admission policies, as far as they are wanted."""
    namespace, reservation, app = _PLACES
    settings = GuardSettings(services_namespace=namespace, reservation_namespace=reservation, reservation_app=app)
    return [Choice(IsSet(Value("admissionPolicies.enabled")), _placed(each)) for each in admission_policies(settings)]


def _placed(node: Any) -> TemplateNode:
    """A document with values where places are."""
    if isinstance(node, dict):
        return {key: _placed(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_placed(each) for each in node]
    if isinstance(node, str) and len(parts := _PLACE.split(node)) > 1:
        form = "{}".join(each.replace("{", "{{").replace("}", "}}") for each in parts[::2])
        return Text(form, tuple(_PLACES[place] for place in parts[1::2]))
    return node


def _is_ours_or_missing(
    api_version: str, kind: str, name: TemplateNode, namespace: TemplateNode = ""
) -> TemplateCondition:
    there = Exists(api_version, kind, name, namespace)
    return Any_((Not(there), Exists(api_version, kind, name, namespace, is_ours=True)))


def kept_objects() -> list[TemplateNode]:
    """What stays when the release goes: namespaces with work in them, the account of reservation pods, queues."""
    reservation, account = Value(f"{_RESERVATION}.namespace"), Value(f"{_RESERVATION}.serviceAccount")
    scaling = Value("nodescaleadjuster.scalingPodNamespace")
    return [
        Choice(
            All(
                (
                    IsSet(Value(f"{_RESERVATION}.createNamespace")),
                    _is_ours_or_missing("v1", "Namespace", reservation),
                )
            ),
            _namespace(reservation, f"{_RESERVATION}.namespaceLabels"),
        ),
        Choice(
            All(
                (
                    IsSet(Value(f"{_RESERVATION}.createServiceAccount")),
                    _is_ours_or_missing("v1", "ServiceAccount", account, reservation),
                )
            ),
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": account, "namespace": reservation, "annotations": dict(KEEP)},
                "imagePullSecrets": when_set("global.imagePullSecrets"),
            },
        ),
        # Also without autoscaling: the operator watches it, and would wait for the right to do so.
        Choice(_is_ours_or_missing("v1", "Namespace", scaling), _namespace(scaling, "nodescaleadjuster.labels")),
        _queue("parent"),
        _queue("child"),
    ]


def _namespace(name: TemplateNode, labels: str) -> dict[str, TemplateNode]:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": when_set(labels), "annotations": dict(KEEP)},
    }


def _queue(place: str) -> Choice:
    """A default queue: made with a new release; later it is as users left it, or gone."""
    name = Value(f"defaultQueue.{place}Name")
    api_version = f"{names.SCHEDULING_GROUP}/v2"
    there = Exists(api_version, "Queue", name)
    belongs = Any_((All((IsInstall(), Not(there))), Exists(api_version, "Queue", name, is_ours=True)))
    parent = {"parentQueue": Value("defaultQueue.parentName")} if place == "child" else {}
    return Choice(
        All((IsSet(Value("defaultQueue.createDefaultQueue")), belongs)),
        {
            "apiVersion": api_version,
            "kind": "Queue",
            "metadata": {"name": name, "annotations": dict(KEEP)},
            "spec": {**parent, "resources": Value(f"defaultQueue.{place}Resources")},
        },
    )


def priority_classes() -> list[TemplateNode]:
    """workloads:PR-1."""
    return [
        Choice(
            IsSet(Value("defaultPriorityClasses.enabled")),
            {
                "apiVersion": f"{names.PRIORITY_GROUP}/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
            },
        )
        for name, value in PRIORITY_CLASSES.items()
    ]
