"""What a real API server refuses in ResourceClaims, beyond the types of their fields.

What a claim asks for is settled when it is created.  An allocation speaks of requests that the claim has, stays as it
is until it is taken back as a whole, and only what is allocated can be reserved for somebody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pykai.api import names
from pykai.lab.apiserver.apierrors import Cause, forbidden_field, wrong
from pykai.lab.apiserver.calls import Call

if TYPE_CHECKING:
    from pykai.lab.apiserver.writer import Writer

JsonObject = dict[str, Any]

_NO_REQUEST: Final = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)


def problems_of(writer: Writer, call: Call, obj: JsonObject, before: JsonObject | None) -> list[Cause]:
    """What is wrong with a claim that is written."""
    if before is None:
        return []
    if call.subresource != "status":
        changed = (obj.get("spec") or {}) != (before.get("spec") or {})
        return [wrong("spec", "", "field is immutable")] if changed else []
    status, old = obj.get("status") or {}, before.get("status") or {}
    found = []
    allocation, given = status.get("allocation"), old.get("allocation")
    if given and allocation and allocation != given:
        found.append(wrong("status.allocation", "", "field is immutable"))
    elif allocation and not given:
        found += _unknown_requests(allocation, _requests(obj))
    consumers = status.get("reservedFor") or []
    if consumers and not allocation:
        found.append(forbidden_field("status.reservedFor", "may not be specified when `allocated` is not set"))
    if len(consumers) > names.CLAIM_MAX_CONSUMERS:
        text = f"Too many: {len(consumers)}: must have at most {names.CLAIM_MAX_CONSUMERS} items"
        found.append(Cause("status.reservedFor", "FieldValueTooMany", text))
    return found


def _requests(claim: Mapping[str, Any]) -> set[str]:
    """The names by which an allocation may speak of what the claim asks for."""
    found = set()
    for request in ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ():
        found.add(request["name"])
        found.update(f"{request['name']}/{each['name']}" for each in request.get("firstAvailable") or ())
    return found


def _unknown_requests(allocation: Mapping[str, Any], known: set[str]) -> Iterator[Cause]:
    for index, result in enumerate((allocation.get("devices") or {}).get("results") or ()):
        if result.get("request") not in known:
            yield wrong(f"status.allocation.devices.results[{index}].request", result.get("request"), _NO_REQUEST)
