"""The roles every cluster has from the start: cluster-admin, admin, edit, view, and discovery for every user.

Rules and names are those of Kubernetes, without removed kinds. `admin`, `edit` and `view` hold no rules themselves:
they aggregate labelled ClusterRoles, so custom kinds can join. The one addition is `viewer`, for the user of that name,
who may read everything.

Statements: apiserver:users.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pykai.api.unstructured import JsonObject

_GROUP: Final = "rbac.authorization.k8s.io"
_API_VERSION: Final = f"{_GROUP}/v1"
_READ: Final = ("get", "list", "watch")
_WRITE: Final = ("create", "delete", "deletecollection", "patch", "update")
_AUTHENTICATED: Final = "system:authenticated"

_WORKLOADS: Final = ("daemonsets", "deployments", "deployments/scale", "replicasets", "replicasets/scale")
_SETS: Final = ("statefulsets", "statefulsets/scale")


def _rule(verbs: tuple[str, ...], group: str, *resources: str) -> JsonObject:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


_VIEW: Final = [
    _rule(
        _READ,
        "",
        "configmaps",
        "events",
        "namespaces",
        "namespaces/status",
        "persistentvolumeclaims",
        "persistentvolumeclaims/status",
        "pods",
        "pods/log",
        "pods/status",
        "serviceaccounts",
        "services",
        "services/status",
    ),
    _rule(
        _READ,
        "apps",
        "controllerrevisions",
        *_WORKLOADS,
        *_SETS,
        "daemonsets/status",
        "deployments/status",
        "replicasets/status",
        "statefulsets/status",
    ),
    _rule(_READ, "batch", "cronjobs", "cronjobs/status", "jobs", "jobs/status"),
    _rule(_READ, "networking.k8s.io", "networkpolicies"),
    _rule(_READ, "policy", "poddisruptionbudgets", "poddisruptionbudgets/status"),
    _rule(_READ, "resource.k8s.io", "resourceclaims", "resourceclaims/status", "resourceclaimtemplates"),
]
_EDIT: Final = [
    _rule(_READ, "", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "secrets", "services/proxy"),
    _rule(("impersonate",), "", "serviceaccounts"),
    _rule(_WRITE, "", "pods", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy"),
    _rule(("create",), "", "pods/eviction"),
    _rule(
        _WRITE,
        "",
        "configmaps",
        "events",
        "persistentvolumeclaims",
        "secrets",
        "serviceaccounts",
        "services",
        "services/proxy",
    ),
    _rule(("create",), "", "serviceaccounts/token"),
    _rule(_WRITE, "apps", *_WORKLOADS, *_SETS, "deployments/rollback"),
    _rule(_WRITE, "batch", "cronjobs", "jobs"),
    _rule(_WRITE, "networking.k8s.io", "networkpolicies"),
    _rule(_WRITE, "policy", "poddisruptionbudgets"),
    _rule((*_WRITE, *_READ), "coordination.k8s.io", "leases"),
    _rule(_WRITE, "resource.k8s.io", "resourceclaims", "resourceclaimtemplates"),
]
_ADMIN: Final = [
    _rule(("create",), "authorization.k8s.io", "localsubjectaccessreviews"),
    _rule((*_WRITE, *_READ), _GROUP, "rolebindings", "roles"),
]
_EVERYTHING: Final = [
    {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
    {"nonResourceURLs": ["*"], "verbs": ["*"]},
]
_PUBLIC: Final = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
_DISCOVERY: Final = ["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", *_PUBLIC]

#: ClusterRole -> rules
_RULES: Final[dict[str, list[JsonObject]]] = {
    "cluster-admin": _EVERYTHING,
    "system:basic-user": [
        _rule(("create",), "authorization.k8s.io", "selfsubjectaccessreviews", "selfsubjectrulesreviews"),
        _rule(("create",), "authentication.k8s.io", "selfsubjectreviews"),
    ],
    "system:discovery": [{"nonResourceURLs": _DISCOVERY, "verbs": ["get"]}],
    "system:public-info-viewer": [{"nonResourceURLs": _PUBLIC, "verbs": ["get"]}],
    "viewer": [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": list(_READ)},
        {"nonResourceURLs": ["*"], "verbs": ["get"]},
    ],
}
#: ClusterRole -> subjects of its binding
_BOUND: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "cluster-admin": (("Group", "system:masters"),),
    "system:basic-user": (("Group", _AUTHENTICATED),),
    "system:discovery": (("Group", _AUTHENTICATED),),
    "system:public-info-viewer": (("Group", _AUTHENTICATED), ("Group", "system:unauthenticated")),
    "viewer": (("User", "viewer"),),
}


def default_roles() -> Iterator[JsonObject]:
    """All of them, with their bindings."""
    for name, rules in _RULES.items():
        yield _role(name, rules=rules)
    for role, rules in (("view", _VIEW), ("edit", _EDIT), ("admin", _ADMIN)):
        yield _role(f"system:aggregate-to-{role}", {_label(role): "true"}, rules=rules)
    # A user who may edit may view, and an administrator may do both.
    for role, larger in (("view", "edit"), ("edit", "admin"), ("admin", "")):
        gathered = {"clusterRoleSelectors": [{"matchLabels": {_label(role): "true"}}]}
        yield _role(role, {_label(larger): "true"} if larger else {}, aggregationRule=gathered)
    for name, subjects in _BOUND.items():
        yield {
            "apiVersion": _API_VERSION,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": _GROUP, "kind": kind, "name": subject} for kind, subject in subjects],
        }


def _label(role: str) -> str:
    return f"{_GROUP}/aggregate-to-{role}"


def _role(name: str, labels: dict[str, str] | None = None, **fields: Any) -> JsonObject:
    metadata: JsonObject = {"name": name, "labels": labels} if labels else {"name": name}
    return {"apiVersion": _API_VERSION, "kind": "ClusterRole", "metadata": metadata, **fields}
