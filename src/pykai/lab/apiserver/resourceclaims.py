"""Validation of ResourceClaims beyond the types of their fields.

The spec of a claim is immutable. An allocation names requests of the claim and is immutable until it is removed as a
whole; only an allocated claim can be reserved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pykai.api import names
from pykai.api.unstructured import JsonObject
from pykai.lab.apiserver.apierrors import StatusCause, forbidden_field, invalid_value
from pykai.lab.apiserver.calls import Call
from pykai.lab.apiserver.serverstate import ServerState

_NO_REQUEST: Final = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)


def validate(state: ServerState, call: Call, obj: JsonObject, before: JsonObject | None) -> list[StatusCause]:
    """Problems of a claim that is written."""
    if before is None:
        return []
    if call.subresource != "status":
        changed = (obj.get("spec") or {}) != (before.get("spec") or {})
        return [invalid_value("spec", "", "field is immutable")] if changed else []
    status, old = obj.get("status") or {}, before.get("status") or {}
    causes = []
    allocation, given = status.get("allocation"), old.get("allocation")
    if given and allocation and allocation != given:
        causes.append(invalid_value("status.allocation", "", "field is immutable"))
    elif allocation and not given:
        causes += _unknown_requests(allocation, _request_names(obj))
    consumers = status.get("reservedFor") or []
    if consumers and not allocation:
        causes.append(forbidden_field("status.reservedFor", "may not be specified when `allocated` is not set"))
    if len(consumers) > names.CLAIM_MAX_CONSUMERS:
        text = f"Too many: {len(consumers)}: must have at most {names.CLAIM_MAX_CONSUMERS} items"
        causes.append(StatusCause("status.reservedFor", "FieldValueTooMany", text))
    return causes


def _request_names(claim: Mapping[str, Any]) -> set[str]:
    """The request names that an allocation may use."""
    request_names = set()
    for request in ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ():
        request_names.add(request["name"])
        request_names.update(f"{request['name']}/{each['name']}" for each in request.get("firstAvailable") or ())
    return request_names


def _unknown_requests(allocation: Mapping[str, Any], request_names: set[str]) -> Iterator[StatusCause]:
    for index, result in enumerate((allocation.get("devices") or {}).get("results") or ()):
        if result.get("request") not in request_names:
            yield invalid_value(
                f"status.allocation.devices.results[{index}].request", result.get("request"), _NO_REQUEST
            )
