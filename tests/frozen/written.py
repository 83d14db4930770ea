"""What our services write, seen in the story of `tests/faults`: fields, reasons of events, and conditions.

Only what the story reaches is here; names that have a constant are in other lists as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any

from tests.faults.story import SERVICES, tell
from tests.frozen.paths import of_document
from tools.compare.story import Write, recorded

_RESOURCE = re.compile(
    r"^/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)(?:/namespaces/[^/]+(?=/[^/]+))?/(?P<plural>[a-z]+)"
    r"(?:/[^/]+(?:/(?P<sub>[a-z]+))?)?$"
)
#: maps whose keys are data
_MAPS = (
    "metadata.labels",
    "metadata.annotations",
    "spec.nodeSelector",
    "status.resourcesStatus.requested",
    "status.resourcesStatus.allocated",
    "status.resourcesStatus.allocatedNonPreemptible",
    "status.requested",
    "status.allocated",
    "status.allocatedNonPreemptible",
)


@cache
def _writes() -> tuple[Write, ...]:
    writes, _, told = recorded(tell)
    assert told.problems() == [], "the story failed"
    names = list(SERVICES)
    return tuple(write._replace(account=names[int(write.account.split()[1]) - 1]) for write in writes)


def _resource(path: str) -> str:
    found = _RESOURCE.match(path)
    assert found is not None, path
    return "".join(
        (
            found["plural"],
            f".{found['group']}" if found["group"] else "",
            f"/{found['sub']}" if found["sub"] else "",
        )
    )


def bodies() -> list[str]:
    """Service, verb, resource and field of every write."""
    lines = set()
    for write in _writes():
        if isinstance(write.body, dict):
            what = f"{write.account} {write.method} {_resource(write.path)}"
            lines |= {f"{what} {_shortened(line)}" for line in of_document(write.body, maps=_MAPS)}
            lines |= {f"{what} {line}" for line in _keys(write.body)}
    return sorted(lines)


def _shortened(line: str) -> str:
    # Names of resources are data wherever there are amounts.
    return re.sub(r"(Resources|requests|limits|capacity)\.[a-z].*: str$", r"\1{}: str", line)


def _keys(body: dict[str, Any]) -> Iterable[str]:
    """Labels and annotations that are written, and keys of ConfigMaps."""
    meta = body.get("metadata") or {}
    for field in ("labels", "annotations"):
        for key in meta.get(field) or {}:
            yield f"metadata.{field} {re.sub(r'runai-gpu-group/.*', 'runai-gpu-group/*', key)}"


def events() -> list[str]:
    """Reasons of events, by the component that writes them."""
    found = (write.body for write in _writes() if isinstance(write.body, dict) and write.body.get("kind") == "Event")
    return sorted({f"{body['source']['component']} {body['type']} {body['reason']}" for body in found})


def conditions() -> list[str]:
    """Conditions: resource, type, status and reason."""
    lines = set()
    for write in _writes():
        status = (write.body or {}).get("status") if isinstance(write.body, dict) else None
        if isinstance(status, dict):
            for field in ("conditions", "schedulingConditions"):
                for each in status.get(field) or ():
                    said = f"{each.get('type')}={each.get('status')} {each.get('reason')}"
                    lines.add(f"{write.account} {_resource(write.path)} {field} {said}")
                    lines |= {
                        f"{write.account} {_resource(write.path)} {field} {each.get('type')} reasons {item['reason']}"
                        for item in each.get("reasons") or ()
                    }
    return sorted(lines)
