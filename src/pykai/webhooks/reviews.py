"""AdmissionReview v1: requests of an API server as values, and answers to them; pure.

A request is read defensively: whatever it holds, there is an answer or a `ReviewError` that names the field.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from pykai.webhooks.fields import object_at
from pykai.webhooks.validationresult import ValidationResult

#: what an API server shows of warnings is no longer than that
_MOST_WARNINGS: Final = 20
_LONGEST_WARNING: Final = 256
#: longer refusals are cut
_LONGEST_REFUSAL: Final = 32 << 10
_FORBIDDEN: Final = 403
UNAVAILABLE: Final = 503
_REASONS: Final = {_FORBIDDEN: "Forbidden", UNAVAILABLE: "ServiceUnavailable"}


class ReviewError(ValueError):
    """The document is not an AdmissionReview that can be answered; the text is for the API server's log."""


@dataclass(frozen=True, slots=True)
class ReviewRequest:
    """What is about to be written, and by which user."""

    uid: str
    #: CREATE, UPDATE or DELETE
    operation: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    #: None for DELETE
    object: dict[str, Any] | None = None
    #: None for CREATE
    old_object: dict[str, Any] | None = None
    user: str = ""
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReviewAnswer:
    """Allowed, unless there is a refusal."""

    refusal: str = ""
    warnings: tuple[str, ...] = ()
    #: the object to store instead
    changed: dict[str, Any] | None = None
    #: HTTP status of the refusal
    code: int = _FORBIDDEN


ALLOWED: Final = ReviewAnswer()


def read_review(document: object) -> ReviewRequest:
    """The request of a review; raises `ReviewError`."""
    request = object_at(document, "request") if isinstance(document, dict) else {}
    uid = request.get("uid")
    if not isinstance(uid, str) or not uid:
        raise ReviewError("request.uid is missing: this is not an AdmissionReview")
    user = object_at(request, "userInfo")
    groups = user.get("groups")
    return ReviewRequest(
        uid,
        _text(request, "operation"),
        _text(request, "namespace"),
        _text(request, "name"),
        _text(request, "subResource"),
        _object_or_none(request, "object"),
        _object_or_none(request, "oldObject"),
        _text(user, "username"),
        tuple(each for each in groups if isinstance(each, str)) if isinstance(groups, list) else (),
    )


def answer_of(result: ValidationResult) -> ReviewAnswer:
    """The result of a validation as an answer (workloads:WH-5)."""
    return ReviewAnswer(result.message, result.warnings)


def review_response(request: ReviewRequest, answer: ReviewAnswer) -> dict[str, Any]:
    """The AdmissionReview to send back."""
    response: dict[str, Any] = {"uid": request.uid, "allowed": not answer.refusal}
    if answer.warnings:
        response["warnings"] = [_shortened(text, _LONGEST_WARNING) for text in answer.warnings[:_MOST_WARNINGS]]
    if answer.refusal:
        message = _shortened(answer.refusal, _LONGEST_REFUSAL)
        response["status"] = {"code": answer.code, "reason": _REASONS[answer.code], "message": message}
    elif answer.changed is not None and request.object is not None:
        patch = json_diff(request.object, answer.changed)
        if patch:
            response["patchType"] = "JSONPatch"
            response["patch"] = base64.b64encode(msgspec.json.encode(patch)).decode()
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def json_diff(old: Any, new: Any, path: str = "") -> list[dict[str, Any]]:
    """The operations that turn one document into another; a list that differs is replaced as a whole."""
    if isinstance(old, dict) and isinstance(new, dict):
        operations: list[dict[str, Any]] = []
        for key in old.keys() - new.keys():
            operations.append({"op": "remove", "path": f"{path}/{_escaped(key)}"})
        for key, value in new.items():
            below = f"{path}/{_escaped(key)}"
            if key not in old:
                operations.append({"op": "add", "path": below, "value": value})
            elif old[key] is not value:
                operations += json_diff(old[key], value, below)
        return operations
    return [] if old == new else [{"op": "replace", "path": path, "value": new}]


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _text(parent: dict[str, Any], key: str) -> str:
    value = parent.get(key)
    return value if isinstance(value, str) else ""


def _object_or_none(parent: dict[str, Any], key: str) -> dict[str, Any] | None:
    value = parent.get(key)
    return value if isinstance(value, dict) else None


def _shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
