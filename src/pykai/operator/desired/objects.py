"""Objects of components: accounts, Deployments, Services, budgets, autoscalers (operations:O-4, O-16, O-18)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pykai.api import names
from pykai.api.installation import ComponentSpec, DisruptionBudgetSpec
from pykai.api.unstructured import JsonObject
from pykai.operator.desired.affinity import merged_affinity
from pykai.operator.desired.settings import Settings, default, part, requirements

MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
OPERATOR: Final = "kai-operator"
METRICS_NAME: Final = "http-metrics"
METRICS_PORT: Final = 8080
#: on the Services of all shards, whose labels `app` differ
COMPONENT_LABEL: Final = "app.kubernetes.io/component"


def make_object(api_version: str, kind: str, name: str, namespace: str = "", **fields: Any) -> JsonObject:
    """An object without a status."""
    metadata: JsonObject = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    if labels := fields.pop("labels", None):
        metadata["labels"] = dict(labels)
    if annotations := fields.pop("annotations", None):
        metadata["annotations"] = dict(annotations)
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def account(name: str, namespace: str) -> JsonObject:
    """A ServiceAccount."""
    return make_object("v1", "ServiceAccount", name, namespace)


def labels_of(app: str) -> dict[str, str]:
    """The labels of what belongs to a component."""
    return {"app": app, MANAGED_BY_LABEL: OPERATOR}


def container(
    name: str,
    settings: Settings,
    spec: ComponentSpec,
    *,
    command: Sequence[str],
    arguments: Sequence[str],
    health_port: int,
    resources: Mapping[str, Any],
) -> JsonObject:
    """The one container of a component, with checks of its health (operations:OD-4)."""
    service = settings.service_of(spec)
    context = settings.security_context()
    return {
        "name": name,
        "image": settings.image(service.image),
        "imagePullPolicy": settings.pull_policy(service.image),
        "command": list(command),
        "args": list(arguments),
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        ],
        "resources": dict(requirements(service.resources, resources)),
        "livenessProbe": _probe("/healthz", health_port, 15, 20),
        "readinessProbe": _probe("/readyz", health_port, 1, 2),
        **({"securityContext": dict(context)} if context is not None else {}),
        # The root is read-only.
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }


def _probe(path: str, port: int, delay_s: int, period_s: int) -> JsonObject:
    return {
        "httpGet": {"path": path, "port": port},
        "initialDelaySeconds": delay_s,
        "periodSeconds": period_s,
        "timeoutSeconds": 5,
    }


def deployment(
    name: str,
    account_name: str,
    settings: Settings,
    spec: ComponentSpec,
    main: JsonObject,
    *,
    is_recreated: bool,
    volumes: Sequence[JsonObject] = (),
    annotations: Mapping[str, str] | None = None,
) -> JsonObject:
    """A Deployment with one container (operations:O-4)."""
    replicas = settings.replicas_of(spec)
    everywhere = settings.everywhere
    affinity = merged_affinity(
        name,
        settings.service_of(spec).affinity,
        everywhere.affinity,
        replicas=replicas,
        apart=bool(everywhere.require_default_pod_anti_affinity_term),
    )
    pod = {
        "serviceAccountName": account_name,
        "containers": [main],
        "volumes": [{"name": "tmp", "emptyDir": {}}, *volumes],
        **pod_fields(settings, affinity),
    }
    template_metadata: JsonObject = {"labels": {"app": name}}
    if annotations:
        template_metadata["annotations"] = dict(annotations)
    return make_object(
        "apps/v1",
        "Deployment",
        name,
        settings.namespace,
        labels=labels_of(name),
        spec={
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "strategy": {"type": "Recreate" if is_recreated else "RollingUpdate"},
            "template": {"metadata": template_metadata, "spec": pod},
        },
    )


def pod_fields(settings: Settings, affinity: Mapping[str, Any] | None) -> JsonObject:
    """What all pods take from `global`."""
    everywhere = settings.everywhere
    fields = {
        "nodeSelector": everywhere.node_selector,
        "tolerations": everywhere.tolerations,
        "priorityClassName": everywhere.priority_class_name,
        "affinity": affinity,
        "imagePullSecrets": settings.pull_secrets(),
    }
    return {key: value for key, value in fields.items() if value}


def service(
    name: str, settings: Settings, ports: Sequence[JsonObject], *, selected: str = "", **fields: Any
) -> JsonObject:
    """A Service; without `selected` its endpoints are written by the operator."""
    annotations = fields.pop("annotations", None)
    labels = labels_of(name) | fields.pop("labels", {})
    spec: JsonObject = {"ports": list(ports), **fields}
    if selected:
        spec["selector"] = {"app": selected}
    return make_object("v1", "Service", name, settings.namespace, labels=labels, annotations=annotations, spec=spec)


def port(number: int, target: int, name: str = METRICS_NAME) -> JsonObject:
    """A port of a Service."""
    return {"name": name, "port": number, "protocol": "TCP", "targetPort": target}


# operations:OD-17
def metrics_service(name: str, settings: Settings) -> JsonObject:
    """A Service of ours, for metrics alone."""
    return service(name, settings, [port(METRICS_PORT, METRICS_PORT)], selected=name)


def disruption_budget(name: str, settings: Settings, spec: ComponentSpec) -> list[JsonObject]:
    """A PodDisruptionBudget where there are several replicas (operations:O-16)."""
    given = part(settings.service_of(spec).pod_disruption_budget, DisruptionBudgetSpec)
    if not given.enabled or settings.replicas_of(spec) <= 1:
        return []
    content = {"maxUnavailable": default(given.max_unavailable, 1), "selector": {"matchLabels": {"app": name}}}
    return [
        make_object(
            f"{names.POLICY_GROUP}/v1",
            "PodDisruptionBudget",
            name,
            settings.namespace,
            labels=labels_of(name),
            spec=content,
        )
    ]


def autoscaler(name: str, settings: Settings, spec: ComponentSpec, *, available: bool) -> list[JsonObject]:
    """A VerticalPodAutoscaler, where the cluster knows them (operations:O-18)."""
    given = settings.autoscaling_of(spec)
    if not given.enabled or not available:
        return []
    content: JsonObject = {
        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "updatePolicy": default(given.update_policy, {"updateMode": "InPlaceOrRecreate"}),
    }
    if given.resource_policy:
        content["resourcePolicy"] = given.resource_policy
    return [
        make_object(
            "autoscaling.k8s.io/v1",
            "VerticalPodAutoscaler",
            name,
            settings.namespace,
            labels=labels_of(name),
            spec=content,
        )
    ]


def network_policy(name: str, settings: Settings, ports: Sequence[int]) -> list[JsonObject]:
    """Only these ports of a component can be reached, where that is asked for (operations:OD-22).

    API servers and kubelets connect from addresses that are not known here, so a port is open to everyone.
    """
    if not settings.everywhere.network_policies:
        return []
    content: JsonObject = {
        "podSelector": {"matchLabels": {"app": name}},
        "policyTypes": ["Ingress"],
        "ingress": [{"ports": [{"port": each, "protocol": "TCP"} for each in sorted(set(ports))]}] if ports else [],
    }
    return [
        make_object(
            "networking.k8s.io/v1", "NetworkPolicy", name, settings.namespace, labels=labels_of(name), spec=content
        )
    ]
