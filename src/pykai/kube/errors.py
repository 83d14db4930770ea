"""Everything that can go wrong with an API server, as one tree.

    KubeError
    ├── CredentialsError     the kubeconfig, a token or a plugin cannot be used; retrying does not help
    ├── LeaseLost            another instance leads now, or may soon; stop working
    ├── ConnectionLost       no answer in time; the request may or may not have been carried out
    └── ApiError             the server answered with a Status
        ├── BadRequest       400
        ├── Unauthorized     401: the token is wrong or has expired
        ├── Forbidden        403
        ├── NotFound         404
        ├── MethodNotAllowed 405
        ├── AlreadyExists    409, reason AlreadyExists
        ├── Conflict         409, any other reason: read again and try again
        ├── Gone             410: the resource version is too old; list again
        ├── Invalid          422: the object breaks a rule; `details` names the fields
        ├── TooManyRequests  429: come back after `retry_after_s`
        └── ServerError      500 and above; worth a retry

`from_status` makes the error that fits an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class KubeError(Exception):
    """Anything this package raises."""


class CredentialsError(KubeError):
    """Credentials cannot be used; the text says which file or plugin, and why."""


class ConnectionLost(KubeError):
    """No answer, or half of one."""


class LeaseLost(KubeError):
    """The lease is lost: it could not be renewed in time, or another instance holds it."""


class ApiError(KubeError):
    """The server's answer, a Kubernetes Status."""

    #: HTTP code of this class; 0 for the base
    code_of_class: ClassVar[int] = 0

    def __init__(
        self,
        code: int,
        reason: str = "",
        message: str = "",
        *,
        details: Mapping[str, Any] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        self.code = code
        self.reason = reason
        self.message = message
        self.details: Mapping[str, Any] = details or {}
        self.retry_after_s = retry_after_s
        super().__init__(message or reason or f"HTTP {code}")


class BadRequest(ApiError):
    code_of_class = 400


class Unauthorized(ApiError):
    code_of_class = 401


class Forbidden(ApiError):
    code_of_class = 403


class NotFound(ApiError):
    code_of_class = 404


class MethodNotAllowed(ApiError):
    code_of_class = 405


class Conflict(ApiError):
    code_of_class = 409


class AlreadyExists(ApiError):
    code_of_class = 409


class Gone(ApiError):
    code_of_class = 410


class Invalid(ApiError):
    code_of_class = 422


class TooManyRequests(ApiError):
    code_of_class = 429


class ServerError(ApiError):
    code_of_class = 500


_BY_CODE: Mapping[int, type[ApiError]] = {
    kind.code_of_class: kind
    for kind in (
        BadRequest,
        Unauthorized,
        Forbidden,
        NotFound,
        MethodNotAllowed,
        Conflict,
        Gone,
        Invalid,
        TooManyRequests,
    )
}


def from_status(code: int, status: Mapping[str, Any], retry_after_s: float | None = None) -> ApiError:
    """The error for an answer of this HTTP code with this Status body (which may be empty)."""
    reason = str(status.get("reason") or "")
    details = status.get("details")
    kind: type[ApiError]
    if code == AlreadyExists.code_of_class and reason == "AlreadyExists":
        kind = AlreadyExists
    elif code >= ServerError.code_of_class:
        kind = ServerError
    else:
        kind = _BY_CODE.get(code, ApiError)
    if retry_after_s is None and isinstance(details, Mapping):
        seconds = details.get("retryAfterSeconds")
        retry_after_s = float(seconds) if isinstance(seconds, (int, float)) and seconds > 0 else None
    return kind(
        code,
        reason,
        str(status.get("message") or ""),
        details=details if isinstance(details, Mapping) else None,
        retry_after_s=retry_after_s,
    )
