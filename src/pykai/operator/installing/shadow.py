"""A scheduler that decides beside KAI Scheduler and writes nothing: what `kai install --shadow` installs.

It has a namespace and an account of its own, and the right to get, list and watch what a scheduler reads. There are no
definitions, webhooks, queues or PodGroups in it: those of the installation beside it are read.
"""

from __future__ import annotations

from typing import Any, Final

from pykai.api import names
from pykai.operator.chart.configuration import pull_policy
from pykai.operator.chart.language import ImageReference, Scope, evaluated
from pykai.operator.chart.objects import STRICT_CONTEXT
from pykai.operator.install import role_and_binding
from pykai.operator.installing.release import Object
from pykai.services.rights import RoleRule
from pykai.services.table import SERVICES

SHADOW_NAMESPACE: Final = "kai-shadow"
SHADOW: Final = "kai-shadow"
_READING: Final = frozenset(("get", "list", "watch"))


def shadow_objects(scope: Scope) -> list[Object]:
    """The objects of a shadow, with image, pull secrets and placement of the values."""
    labels = {"app": SHADOW}
    account = (SHADOW, scope.namespace)
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": scope.namespace}},
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": SHADOW, "namespace": scope.namespace},
        },
        *role_and_binding(SHADOW, "", reading_rules(), account),
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": SHADOW, "namespace": scope.namespace, "labels": labels},
            "spec": {
                "replicas": 1,
                "strategy": {"type": "Recreate"},
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": _pod(scope)},
            },
        },
    ]


def reading_rules() -> list[RoleRule]:
    """What a scheduler reads, anywhere."""
    found: dict[str, set[str]] = {}
    for rule in SERVICES["scheduler"].rules:
        if not rule.namespace and _READING & set(rule.verbs) and not any("/" in each for each in rule.resources):
            found.setdefault(rule.group, set()).update(rule.resources)
    return [RoleRule(group, tuple(sorted(resources)), tuple(sorted(_READING))) for group, resources in found.items()]


def _pod(scope: Scope) -> dict[str, Any]:
    places = ("nodeSelector", "affinity", "tolerations", "imagePullSecrets", "priorityClassName")
    given = {key: scope.values["global"][key] for key in places if scope.values["global"][key]}
    arguments = {
        "shadow": "true",
        "scheduler-name": names.SCHEDULER_NAME,
        "namespace": scope.namespace,
        "listen-address": ":8080",
        **scope.values["scheduler"]["args"],
    }
    pool = scope.values["global"]["nodePoolLabelKey"]
    if pool:
        arguments["nodepool-label-key"] = pool
    return {
        "serviceAccountName": SHADOW,
        **given,
        "containers": [
            {
                "name": "scheduler",
                "image": evaluated(ImageReference("scheduler.image"), scope),
                "imagePullPolicy": evaluated(pull_policy("scheduler.image"), scope),
                "command": ["kai", "run", "scheduler"],
                "args": [f"--{name}={value}" for name, value in arguments.items()],
                "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8080}, "periodSeconds": 5},
                "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}},
                "securityContext": scope.values["global"]["securityContext"] or STRICT_CONTEXT,
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
            }
        ],
        "volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}],
    }
