"""Registers the admission service at an API server, from the table of webhooks (`pykai.webhooks.table`).

The API server reaches the service through its Service, or at an address where it cannot resolve the name.  The
authority of the service's certificate is left out, unless it is given: the service puts its own into the registrations.

A slow or dead service does not stop others: only pods that name our scheduler are sent, none of system namespaces, and
an API server waits a few seconds.  The failure policy is KAI's, Fail: a pod that shares a GPU cannot run unless it was
completed, and a PodGroup or Queue that was not checked may block others.

Statements: operations:O-29.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pykai.api import names
from pykai.kube.resources import Resource
from pykai.webhooks import table
from pykai.webhooks.table import UPDATE, WebhookDefinition

_APP_LABEL: Final = "app"
PORT: Final = 443
TARGET_PORT: Final = 9443


@dataclass(frozen=True, slots=True)
class Registration:
    """How webhooks are registered."""

    namespace: str = names.DEFAULT_NAMESPACE
    scheduler_name: str = names.SCHEDULER_NAME
    #: `https://host:port`, empty for the Service
    address: str = ""
    #: as PEM; empty: the service fills it in
    authority: bytes = b""
    port: int = PORT
    #: pods of namespaces without this label are not sent; empty: of all
    queue_label: str = ""
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    #: names of registrations that are not made
    left_out: tuple[str, ...] = ()


def admission_objects(registration: Registration) -> list[dict[str, Any]]:
    """Everything that makes an API server ask the admission service.

    Without an address there is a Service in front of its pods, which have the label `app: admission`; without an
    authority there is a Secret that the service fills.
    """
    objects: list[dict[str, Any]] = []
    if not registration.address:
        objects.append(_service(registration.namespace))
    if not registration.authority:
        objects.append(tls_secret(registration.namespace))
    return [*objects, *webhook_configurations(registration)]


def webhook_configurations(registration: Registration) -> list[dict[str, Any]]:
    """The registrations."""
    grouped: dict[tuple[Resource, str], list[WebhookDefinition]] = {}
    for webhook in table.WEBHOOKS:
        name = webhook.configuration
        if name not in registration.left_out:
            grouped.setdefault((webhook.registered_as, name), []).append(webhook)
    return [
        {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name, "labels": {_APP_LABEL: table.ADMISSION_SERVICE}},
            "webhooks": [_webhook(each, registration) for each in rows],
        }
        for (kind, name), rows in grouped.items()
    ]


def _webhook(webhook: WebhookDefinition, registration: Registration) -> dict[str, Any]:
    conditions = []
    if webhook.is_for_pods:
        expression = f"object.spec.schedulerName == '{registration.scheduler_name}'"
        conditions.append({"name": "scheduler-name-match", "expression": expression})
    if webhook.condition:
        conditions.append({"name": "changes-what-is-checked", "expression": webhook.condition})
    return {
        "name": webhook.name_in(registration.namespace),
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "timeoutSeconds": webhook.timeout_s,
        "clientConfig": _client(webhook, registration),
        "rules": _rules(webhook),
        **(_selectors(registration) if webhook.is_for_pods else {}),
        **({"matchConditions": conditions} if conditions else {}),
        **({"reinvocationPolicy": "IfNeeded"} if webhook.is_mutating else {}),
    }


def _client(webhook: WebhookDefinition, registration: Registration) -> dict[str, Any]:
    client: dict[str, Any] = {}
    if registration.address:
        client["url"] = registration.address.rstrip("/") + webhook.path
    else:
        client["service"] = {
            "name": table.ADMISSION_SERVICE,
            "namespace": registration.namespace,
            "path": webhook.path,
            "port": registration.port,
        }
    if registration.authority:
        client["caBundle"] = base64.b64encode(registration.authority).decode()
    return client


def _rules(webhook: WebhookDefinition) -> list[dict[str, Any]]:
    kind = webhook.resource
    common: Mapping[str, Any] = {
        "apiGroups": [kind.group],
        "apiVersions": [kind.version],
        "scope": "Namespaced" if kind.namespaced else "Cluster",
    }
    rules = [{**common, "resources": [kind.plural], "operations": list(webhook.operations)}]
    if webhook.subresource:
        rules.append({**common, "resources": [f"{kind.plural}/{webhook.subresource}"], "operations": [UPDATE]})
    return rules


def _selectors(registration: Registration) -> dict[str, Any]:
    """Which pods are sent; those of system namespaces must start whatever happens."""
    exempt = ["kube-system", registration.namespace]
    expressions: list[dict[str, Any]] = [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": exempt}]
    if registration.queue_label:
        expressions.append({"key": registration.queue_label, "operator": "Exists"})
    selector: dict[str, Any] = {"matchExpressions": expressions}
    if registration.namespace_labels:
        selector["matchLabels"] = dict(registration.namespace_labels)
    selectors = {"namespaceSelector": selector}
    if registration.pod_labels:
        selectors["objectSelector"] = {"matchLabels": dict(registration.pod_labels)}
    return selectors


def _service(namespace: str) -> dict[str, Any]:
    port = {"name": "webhook", "port": PORT, "protocol": "TCP", "targetPort": TARGET_PORT}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": table.ADMISSION_SERVICE, "namespace": namespace},
        "spec": {"selector": {_APP_LABEL: table.ADMISSION_SERVICE}, "ports": [port]},
    }


def tls_secret(namespace: str) -> dict[str, Any]:
    """Without content, so that applying it again leaves the certificate alone."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": table.TLS_SECRET, "namespace": namespace},
    }
