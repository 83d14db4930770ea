"""Questions about oneself: may I do this, what may I do, who am I.  Answered, never stored."""

from __future__ import annotations

from typing import Any, Final

from pykai.apiserver import failures
from pykai.apiserver.users import READ_VERBS, User

JsonObject = dict[str, Any]

GROUPS: Final = frozenset({"authorization.k8s.io", "authentication.k8s.io"})
#: group, plural and kind of what is served
KINDS: Final = (
    ("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    ("authorization.k8s.io", "selfsubjectrulesreviews", "SelfSubjectRulesReview"),
    ("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview"),
)


def reviewed(group: str, version: str, plural: str, body: Any, user: User, method: str) -> JsonObject:
    """The review with its status."""
    kind = next((k for g, p, k in KINDS if (g, p) == (group, plural)), None)
    if kind is None or version != "v1":
        raise failures.no_such_path()
    if method != "POST":
        raise failures.method_not_allowed()
    review: JsonObject = dict(body) if isinstance(body, dict) else {}
    review |= {"kind": kind, "apiVersion": f"{group}/{version}"}
    review.setdefault("metadata", {})
    if kind == "SelfSubjectReview":
        review["status"] = {"userInfo": {"username": user.name, "groups": list(user.groups)}}
    elif kind == "SelfSubjectRulesReview":
        verbs = ["*"] if user.writes else sorted(READ_VERBS)
        review["status"] = {
            "resourceRules": [{"verbs": verbs, "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"] if user.writes else ["get"], "nonResourceURLs": ["*"]}],
            "incomplete": False,
        }
    else:
        spec = review.get("spec") or {}
        asked = spec.get("resourceAttributes") or spec.get("nonResourceAttributes") or {}
        allowed = user.writes or asked.get("verb") in READ_VERBS
        review["status"] = {"allowed": allowed}
        if allowed and user.writes:
            review["status"]["reason"] = "every user of this server who may write may do everything"
        elif not allowed:
            review["status"]["reason"] = f'User "{user.name}" may only read'
    return review
