"""Registers our admission service as a webhook for pods (operations:O-28, O-29).

The API server gets an address, because it rarely can resolve names of services; the service listens there with a
certificate that the given authority has signed (its own, if it is self-signed).  Only pods that name our scheduler are
sent, so that all others start when admission is down.
"""

from __future__ import annotations

import base64
from typing import Any

from pykai.api import names
from pykai.webhooks.server import MUTATE_PATH, VALIDATE_PATH

_WEBHOOK = f"admission.{names.DEFAULT_NAMESPACE}.svc"
#: pods that must start whatever happens
_EXEMPT_NAMESPACES = ("kube-system", names.DEFAULT_NAMESPACE)
_TIMEOUT_S = 10


def webhook_configurations(
    address: str, authority: bytes, scheduler_name: str = names.SCHEDULER_NAME
) -> list[dict[str, Any]]:
    """The registrations of the service at `https://host:port`; `authority` is PEM."""
    exempt = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": list(_EXEMPT_NAMESPACES)}
    match = {"name": "scheduler-name-match", "expression": f"object.spec.schedulerName == '{scheduler_name}'"}

    def hook(path: str, *operations: str) -> dict[str, Any]:
        bundle = base64.b64encode(authority).decode()
        return {
            "name": _WEBHOOK,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "timeoutSeconds": _TIMEOUT_S,
            "clientConfig": {"url": address.rstrip("/") + path, "caBundle": bundle},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": [*operations]}],
            "namespaceSelector": {"matchExpressions": [exempt]},
            "matchConditions": [match],
        }

    mutating = {**hook(MUTATE_PATH, "CREATE"), "reinvocationPolicy": "IfNeeded"}
    return [
        _configuration("MutatingWebhookConfiguration", "mutating-kai-admission", mutating),
        _configuration(
            "ValidatingWebhookConfiguration", "validating-kai-admission", hook(VALIDATE_PATH, "CREATE", "UPDATE")
        ),
    ]


def _configuration(kind: str, name: str, hook: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "webhooks": [hook],
    }
