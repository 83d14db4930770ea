"""Registers the admission service at an API server, from the table of webhooks (`pykai.webhooks.table`).

The API server reaches the service through Services, or at an address where it cannot resolve their names.  The
authority of the service's certificate is left out, unless it is given: the service puts its own into the registrations.

A slow or dead service does not stop others: only pods that name our scheduler are sent, none of system namespaces, and
an API server waits a few seconds.  The failure policy is KAI's, Fail: a pod that shares a GPU cannot run unless it was
completed, and a PodGroup or Queue that was not checked may block others.

Statements: operations:O-29.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from pykai.api import names
from pykai.kube.resources import Resource
from pykai.webhooks import table
from pykai.webhooks.table import UPDATE, WebhookDefinition

#: pods that must start whatever happens
_EXEMPT_NAMESPACES: Final = ("kube-system", names.DEFAULT_NAMESPACE)
_APP_LABEL: Final = "app"
_PORT: Final = 443
_TARGET_PORT: Final = 9443


def admission_objects(
    address: str = "", authority: bytes = b"", scheduler_name: str = names.SCHEDULER_NAME
) -> list[dict[str, Any]]:
    """Everything that makes an API server ask the admission service.

    Without an address there are Services in front of its pods, which have the label `app: admission`; without an
    authority there is a Secret that the service fills.
    """
    objects: list[dict[str, Any]] = []
    if not address:
        objects += map(_service, table.SERVICES)
    if not authority:
        objects.append(_secret())
    return [*objects, *webhook_configurations(address, authority, scheduler_name)]


def webhook_configurations(
    address: str = "", authority: bytes = b"", scheduler_name: str = names.SCHEDULER_NAME
) -> list[dict[str, Any]]:
    """The registrations; `address` is `https://host:port`, empty for the Services; `authority` is PEM."""
    grouped: dict[tuple[Resource, str], list[WebhookDefinition]] = {}
    for webhook in table.WEBHOOKS:
        grouped.setdefault((webhook.registered_as, webhook.configuration), []).append(webhook)
    return [
        {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name, "labels": {_APP_LABEL: rows[0].service}},
            "webhooks": [_webhook(each, address, authority, scheduler_name) for each in rows],
        }
        for (kind, name), rows in grouped.items()
    ]


def _webhook(webhook: WebhookDefinition, address: str, authority: bytes, scheduler_name: str) -> dict[str, Any]:
    conditions = []
    if webhook.is_for_pods:
        expression = f"object.spec.schedulerName == '{scheduler_name}'"
        conditions.append({"name": "scheduler-name-match", "expression": expression})
    if webhook.condition:
        conditions.append({"name": "changes-what-is-checked", "expression": webhook.condition})
    return {
        "name": webhook.name,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "timeoutSeconds": webhook.timeout_s,
        "clientConfig": _client(webhook, address, authority),
        "rules": _rules(webhook),
        **({"namespaceSelector": {"matchExpressions": [_exempt()]}} if webhook.is_for_pods else {}),
        **({"matchConditions": conditions} if conditions else {}),
        **({"reinvocationPolicy": "IfNeeded"} if webhook.is_mutating else {}),
    }


def _client(webhook: WebhookDefinition, address: str, authority: bytes) -> dict[str, Any]:
    client: dict[str, Any] = {}
    if address:
        client["url"] = address.rstrip("/") + webhook.path
    else:
        service = {"name": webhook.service, "namespace": names.DEFAULT_NAMESPACE, "path": webhook.path, "port": _PORT}
        client["service"] = service
    if authority:
        client["caBundle"] = base64.b64encode(authority).decode()
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


def _exempt() -> dict[str, Any]:
    return {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": list(_EXEMPT_NAMESPACES)}


def _service(name: str) -> dict[str, Any]:
    port = {"name": "webhook", "port": _PORT, "protocol": "TCP", "targetPort": _TARGET_PORT}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": names.DEFAULT_NAMESPACE},
        "spec": {"selector": {_APP_LABEL: table.ADMISSION_SERVICE}, "ports": [port]},
    }


def _secret() -> dict[str, Any]:
    """Without content, so that applying it again leaves the certificate alone."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": table.TLS_SECRET, "namespace": names.DEFAULT_NAMESPACE},
    }
