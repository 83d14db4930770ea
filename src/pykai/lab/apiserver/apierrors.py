"""Errors of the API, in Kubernetes' words.

Inside the server a refusal is an `ApiError` of `kube.errors`, raised where the rule is; the handler turns it into a
Status object. Clients of Kubernetes read code, reason and details, people read the message, so all of them match a real
API server.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pykai.api.unstructured import JsonObject
from pykai.kube import errors


@dataclass(frozen=True, slots=True)
class StatusCause:
    """One field that breaks a rule."""

    field: str
    #: FieldValueRequired, FieldValueInvalid, ...
    reason: str
    #: what follows the field's name in the message
    text: str


def required_value(field: str, text: str = "") -> StatusCause:
    """A field that must be there."""
    return StatusCause(field, "FieldValueRequired", f"Required value{': ' + text if text else ''}")


def invalid_value(field: str, value: object, text: str) -> StatusCause:
    """A field whose value breaks a rule."""
    shown = f'"{value}"' if isinstance(value, str) else str(value)
    return StatusCause(field, "FieldValueInvalid", f"Invalid value: {shown}: {text}")


def unsupported_value(field: str, value: object, *supported: str) -> StatusCause:
    """A field whose value is not one of the supported ones."""
    listed = ", ".join(f'"{each}"' for each in supported)
    shown = f'"{value}"' if isinstance(value, str) else str(value)
    return StatusCause(field, "FieldValueNotSupported", f"Unsupported value: {shown}: supported values: {listed}")


def forbidden_field(field: str, text: str) -> StatusCause:
    """A field that must not be there, or not be changed."""
    return StatusCause(field, "FieldValueForbidden", f"Forbidden: {text}")


def qualified_resource(group: str, plural: str) -> str:
    """`pods`, or `jobs.batch`."""
    return f"{plural}.{group}" if group else plural


def _details(group: str, plural: str, name: str, **more: Any) -> JsonObject:
    details: JsonObject = {"name": name, "kind": plural, **more} if name else {"kind": plural, **more}
    if group:
        details["group"] = group
    return details


def not_found(group: str, plural: str, name: str) -> errors.NotFound:
    """No object of this name."""
    text = f'{qualified_resource(group, plural)} "{name}" not found'
    return errors.NotFound(404, "NotFound", text, details=_details(group, plural, name))


def no_such_path() -> errors.NotFound:
    """The path does not exist."""
    return errors.NotFound(404, "NotFound", "the server could not find the requested resource", details={})


def already_exists(group: str, plural: str, name: str) -> errors.AlreadyExists:
    """The name is taken."""
    text = f'{qualified_resource(group, plural)} "{name}" already exists'
    return errors.AlreadyExists(409, "AlreadyExists", text, details=_details(group, plural, name))


def conflict(group: str, plural: str, name: str, text: str = "") -> errors.Conflict:
    """The object has changed since the writer read it."""
    text = text or "the object has been modified; please apply your changes to the latest version and try again"
    message = f'Operation cannot be fulfilled on {qualified_resource(group, plural)} "{name}": {text}'
    return errors.Conflict(409, "Conflict", message, details=_details(group, plural, name))


def forbidden(
    group: str, plural: str, name: str, text: str, causes: list[JsonObject] | None = None
) -> errors.Forbidden:
    """The request is not allowed."""
    more = {"causes": causes} if causes else {}
    quoted = f' "{name}"' if name else ""
    return errors.Forbidden(
        403,
        "Forbidden",
        f"{qualified_resource(group, plural)}{quoted} is forbidden: {text}",
        details=_details(group, plural, name, **more),
    )


def invalid(group: str, kind: str, name: str, causes: Iterable[StatusCause]) -> errors.Invalid:
    """Fields break rules; the message names all of them."""
    causes = list(causes)
    texts = [f"{cause.field}: {cause.text}" for cause in causes]
    shown = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    listed = [{"reason": c.reason, "message": c.text, "field": c.field} for c in causes]
    return errors.Invalid(
        422,
        "Invalid",
        f'{kind}{"." + group if group else ""} "{name}" is invalid: {shown}',
        details=_details(group, kind, name, causes=listed),
    )


def invalid_options(kind: str, cause: StatusCause) -> errors.Invalid:
    """Invalid options in the query of the request: ListOptions, CreateOptions, ..."""
    return invalid("meta.k8s.io", kind, "", [cause])


def bad_request(text: str) -> errors.BadRequest:
    """The request is malformed."""
    return errors.BadRequest(400, "BadRequest", text)


def expired(text: str = "The resourceVersion for the provided watch is too old.") -> errors.Gone:
    """The requested revision has left the history."""
    return errors.Gone(410, "Expired", text)


def too_large_revision(requested: int, current: int) -> errors.ServerError:
    """The requested revision is in the future."""
    return errors.ServerError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {requested}, current: {current}",
        details={
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
    )


def method_not_allowed(
    text: str = "the server does not allow this method on the requested resource",
) -> errors.ApiError:
    """The path does not support the verb."""
    return errors.MethodNotAllowed(405, "MethodNotAllowed", text, details={})


def unsupported_media_type(text: str) -> errors.ApiError:
    """The server does not read this content type."""
    return errors.ApiError(415, "UnsupportedMediaType", text, details={})


def too_large(text: str) -> errors.ApiError:
    """The body is too large: 413."""
    return errors.ApiError(413, "RequestEntityTooLarge", text)


def not_acceptable(text: str) -> errors.ApiError:
    """The client accepts no content type that the server writes."""
    return errors.ApiError(406, "NotAcceptable", text, details={})


def status_object(error: errors.ApiError) -> JsonObject:
    """The error as a Status object."""
    status: JsonObject = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": error.message,
        "reason": error.reason,
        "code": error.code,
    }
    if not error.reason:
        del status["reason"]
    if error.details:
        status["details"] = dict(error.details)
    if error.retry_after_s is not None:
        status.setdefault("details", {})["retryAfterSeconds"] = int(error.retry_after_s)
    return status
