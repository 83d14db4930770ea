"""Whether a live object is what is wanted, and what of it is kept (operations:O-30, O-32, OD-7, E-23).

An object carries the digest of what was applied: a field that is not wanted any more shows as another digest.  Fields
that others changed show as differences; fields that others added, and defaults of the API server, are none.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pykai.api.quantity import QuantityError, canonical_quantity
from pykai.api.unstructured import JsonObject

DIGEST_ANNOTATION: Final = "kai.scheduler/applied-digest"
#: by which fields elements of lists are the same
_KEYS: Final = ("name", "mountPath", "key", "uid", "ip")


def prepared(wanted: JsonObject, live: Mapping[str, Any] | None) -> JsonObject:
    """The object as it is to be applied over the live one, with its digest."""
    made = copy.deepcopy(wanted)
    if live is not None and "webhooks" in made:
        _keep_injected(made, live)
    # Of what is wanted, not of what is kept: others do not make it another object.
    digest = hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:16]
    made["metadata"].setdefault("annotations", {})[DIGEST_ANNOTATION] = digest
    return made


def is_applied(made: Mapping[str, Any], live: Mapping[str, Any]) -> bool:
    """Whether a live object has everything that was prepared for it, and nothing that was prepared for it before."""
    # Objects in a list do not say what they are.
    return _has(live, {key: value for key, value in made.items() if key not in ("apiVersion", "kind")})


def is_made_by_us(live: Mapping[str, Any]) -> bool:
    """Whether this operator made an object; KAI Scheduler's objects of the same name were not."""
    return DIGEST_ANNOTATION in (live.get("metadata", {}).get("annotations") or {})


# operations:O-30, OC-18
def _keep_injected(made: JsonObject, live: Mapping[str, Any]) -> None:
    """Clouds add expressions to selectors and change time limits, and would do so again and again."""
    found = {each.get("name"): each for each in live.get("webhooks") or ()}
    for webhook in made["webhooks"]:
        theirs = found.get(webhook["name"])
        if theirs is None or not is_made_by_us(live):
            continue
        for field in ("timeoutSeconds", "matchPolicy"):
            if field in theirs:
                webhook[field] = theirs[field]
        listed = (theirs.get("namespaceSelector") or {}).get("matchExpressions") or ()
        own = (webhook.get("namespaceSelector") or {}).get("matchExpressions") or []
        keys = {each.get("key") for each in own}
        extra = [each for each in listed if each.get("key") not in keys]
        if extra:
            webhook.setdefault("namespaceSelector", {})["matchExpressions"] = [*own, *extra]


def _has(live: Any, wanted: Any) -> bool:
    if wanted in ([], {}):
        # The API server leaves out what is empty.
        return not live
    if isinstance(wanted, Mapping):
        return isinstance(live, Mapping) and all(_has(live.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(live, Sequence) and not isinstance(live, str) and _has_all(live, wanted)
    return live == wanted or _is_same_quantity(live, wanted) or (live is None and wanted in ("", False, 0))


def _has_all(live: Sequence[Any], wanted: list[Any]) -> bool:
    key = next(
        (key for key in _KEYS if wanted and all(isinstance(each, Mapping) and key in each for each in wanted)), ""
    )
    if key and len({str(each[key]) for each in wanted}) == len(wanted):
        found = {str(each.get(key)): each for each in live if isinstance(each, Mapping)}
        return all(_has(found.get(str(each[key])), each) for each in wanted)
    return len(live) == len(wanted) and all(_has(ours, each) for ours, each in zip(live, wanted, strict=True))


def _is_same_quantity(live: Any, wanted: Any) -> bool:
    if not isinstance(live, str) or not isinstance(wanted, (str, int)):
        return False
    try:
        return canonical_quantity(live) == canonical_quantity(wanted)
    except QuantityError:
        return False
