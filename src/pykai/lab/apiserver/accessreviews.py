"""Self-reviews: what the user may do, and which user it is. The authoriser answers them; they are never stored."""

from __future__ import annotations

from typing import Any, Final

from pykai.api.unstructured import JsonObject
from pykai.lab.apiserver import apierrors
from pykai.lab.apiserver.rbac import Authorizer, PolicyRule
from pykai.lab.apiserver.users import User

GROUPS: Final = frozenset({"authorization.k8s.io", "authentication.k8s.io"})
#: group, plural and kind of the served reviews
KINDS: Final = (
    ("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    ("authorization.k8s.io", "selfsubjectrulesreviews", "SelfSubjectRulesReview"),
    ("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview"),
)


def answer_review(
    group: str, version: str, plural: str, body: Any, user: User, method: str, authorizer: Authorizer
) -> JsonObject:
    """The review with its status."""
    kind = next((k for g, p, k in KINDS if (g, p) == (group, plural)), None)
    if kind is None or version != "v1":
        raise apierrors.no_such_path()
    if method != "POST":
        raise apierrors.method_not_allowed()
    review: JsonObject = dict(body) if isinstance(body, dict) else {}
    review |= {"kind": kind, "apiVersion": f"{group}/{version}"}
    review.setdefault("metadata", {})
    if kind == "SelfSubjectReview":
        review["status"] = {"userInfo": {"username": user.name, "groups": list(user.groups)}}
    elif kind == "SelfSubjectRulesReview":
        namespace = str(_map(review, "spec").get("namespace") or "default")
        rules = list(authorizer.rules(user, namespace))
        review["status"] = {
            "resourceRules": [_resource_rule(rule) for rule in rules if rule.resources],
            "nonResourceRules": [
                {"verbs": sorted(rule.verbs), "nonResourceURLs": sorted(rule.paths)} for rule in rules if rule.paths
            ],
            "incomplete": False,
        }
    else:
        review["status"] = _access_status(_map(review, "spec"), user, authorizer)
    return review


def _access_status(spec: JsonObject, user: User, authorizer: Authorizer) -> JsonObject:
    if path := _map(spec, "nonResourceAttributes"):
        return {"allowed": authorizer.allowed_path(user, str(path.get("verb", "")), str(path.get("path", "")))}
    attributes = {key: str(value) for key, value in _map(spec, "resourceAttributes").items()}
    resource = attributes.get("resource", "")
    if attributes.get("subresource"):
        resource = f"{resource}/{attributes['subresource']}"
    permission = (attributes.get("verb", ""), attributes.get("group", ""), resource)
    where = {"namespace": attributes.get("namespace", ""), "name": attributes.get("name", "")}
    if not authorizer.allowed(user, *permission, **where):
        return {"allowed": False}
    reason = authorizer.reason(user, *permission, **where)
    return {"allowed": True, "reason": reason} if reason else {"allowed": True}


def _resource_rule(rule: PolicyRule) -> JsonObject:
    made = {"verbs": sorted(rule.verbs), "apiGroups": sorted(rule.groups), "resources": sorted(rule.resources)}
    return {**made, "resourceNames": sorted(rule.names)} if rule.names else made


def _map(obj: JsonObject, field: str) -> JsonObject:
    found = obj.get(field)
    return found if isinstance(found, dict) else {}
