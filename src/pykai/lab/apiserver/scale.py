"""The scale subresource: replicas in one form for every kind that has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pykai.api.unstructured import JsonObject
from pykai.lab.apiserver import apierrors
from pykai.lab.apiserver.calls import Call
from pykai.lab.apiserver.patches import PatchError, json_patch, merge_patch


def _value_at(obj: JsonObject, path: str) -> Any:
    value: Any = obj
    for step in path.strip(".").split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _with_value(obj: JsonObject, steps: list[str], value: Any) -> JsonObject:
    if len(steps) == 1:
        return {**obj, steps[0]: value}
    below = obj.get(steps[0])
    return {**obj, steps[0]: _with_value(below if isinstance(below, dict) else {}, steps[1:], value)}


def format_scale_selector(selector: Any) -> str:
    """A LabelSelector as one string."""
    if isinstance(selector, str):
        return selector
    if not isinstance(selector, dict):
        return ""
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for term in selector.get("matchExpressions") or ():
        operator, values = term.get("operator"), ",".join(term.get("values") or ())
        key = term.get("key", "")
        shown = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key}
        parts.append(shown.get(operator, f"!{key}"))
    return ",".join(parts)


def read_scale(call: Call, obj: JsonObject) -> JsonObject:
    """The Scale of an object."""
    paths, meta = call.kind.scale or {}, obj["metadata"]
    shown = {f: meta[f] for f in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp") if f in meta}
    status = {"replicas": _value_at(obj, paths.get("statusReplicasPath", "")) or 0}
    selector = format_scale_selector(_value_at(obj, paths.get("labelSelectorPath", "") or "-"))
    if selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": shown,
        "spec": {"replicas": _value_at(obj, paths.get("specReplicasPath", "")) or 0},
        "status": status,
    }


def scale_change(call: Call, body: Any, content_type: str) -> Callable[[JsonObject], JsonObject]:
    """The change of the object for a written or patched Scale."""
    path = (call.kind.scale or {}).get("specReplicasPath", ".spec.replicas").strip(".").split(".")
    media = content_type.partition(";")[0].strip()
    patch = call.verb == "patch"

    def change(obj: JsonObject) -> JsonObject:
        scale = read_scale(call, obj)
        try:
            if not patch:
                wanted = body
            elif media == "application/json-patch+json":
                wanted = json_patch(scale, body)
            else:
                wanted = merge_patch(scale, body)
        except PatchError as error:
            raise apierrors.bad_request(error.message) from None
        except (TypeError, AttributeError) as error:
            raise apierrors.bad_request(f"the patch does not fit a Scale: {error}") from None
        if not isinstance(wanted, dict):
            raise apierrors.bad_request("the body must be a Scale")
        spec, meta = wanted.get("spec") or {}, wanted.get("metadata") or {}
        if not isinstance(spec, dict) or not isinstance(meta, dict):
            raise apierrors.bad_request("spec and metadata of a Scale must be objects")
        replicas = spec.get("replicas", 0)
        if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
            cause = apierrors.invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
            raise apierrors.invalid("autoscaling", "Scale", call.name, [cause])
        version = meta.get("resourceVersion")
        if version and version != obj["metadata"]["resourceVersion"]:
            raise apierrors.conflict(call.kind.group, call.kind.plural, call.name)
        return _with_value(obj, path, replicas)

    return change
