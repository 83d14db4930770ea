"""Turns a PATCH, by its content type, into a function from the present object to the wanted one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pykai.api.unstructured import JsonObject
from pykai.kube import errors
from pykai.lab.apiserver import apierrors, managedfields
from pykai.lab.apiserver.calls import Call, check_object_type
from pykai.lab.apiserver.patches import PatchError, json_patch, merge_patch, strategic_patch
from pykai.lab.apiserver.schema.validation import prune


def patch_function(
    call: Call, media: str, patch: Any, now: Callable[[], str]
) -> Callable[[JsonObject | None], JsonObject]:
    """The function for a patch; an apply sets the call's verb and can also create the object."""
    kind = call.kind
    if media == "application/apply-patch+yaml":
        call.verb = "apply"
        return _apply(call, patch, now)
    if media == "application/json-patch+json":

        def change(obj: JsonObject) -> Any:
            return json_patch(obj, patch)

    elif media == "application/merge-patch+json":

        def change(obj: JsonObject) -> Any:
            return merge_patch(obj, patch)

    elif media == "application/strategic-merge-patch+json":
        if kind.is_custom:
            raise apierrors.unsupported_media_type(
                "the body of the request was in an unknown format - accepted media types include:"
                " application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
            )

        def change(obj: JsonObject) -> Any:
            return strategic_patch(kind.schema, obj, patch)

    else:
        raise apierrors.unsupported_media_type(
            f"the body of the request was in an unknown format ({media}) - accepted media types include:"
            " application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json,"
            " application/apply-patch+yaml"
        )

    def patched(obj: JsonObject | None) -> JsonObject:
        if obj is None:
            raise apierrors.not_found(kind.group, kind.plural, call.name)
        if kind.storage_version and kind.storage_version != kind.version:
            obj = {**obj, "apiVersion": kind.api_version}
        try:
            patched_object: JsonObject = change(obj)
            return patched_object
        except PatchError as error:
            raise _patch_error(call, error) from None
        except (TypeError, AttributeError) as error:
            raise apierrors.bad_request(f"the patch does not fit the object: {error}") from None

    return patched


def _patch_error(call: Call, error: PatchError) -> errors.ApiError:
    if error.code == 422:
        cause = apierrors.StatusCause("patch", "FieldValueInvalid", f"Invalid value: {error.message}")
        return apierrors.invalid(call.kind.group, call.kind.kind, call.name, [cause])
    reason = {400: "BadRequest", 413: "RequestEntityTooLarge", 415: "UnsupportedMediaType"}.get(error.code, "")
    return errors.ApiError(error.code, reason, error.message)


def _undeclared_fields_error(call: Call, config: JsonObject, unknown: list[str]) -> errors.ServerError:
    """The error for an apply of fields that are not in the schema."""
    texts = [f".{path}: field not declared in schema" for path in unknown]
    listed = texts[0] if len(texts) == 1 else "errors:" + "".join(f"\n  {text}" for text in texts)
    namespace = (config.get("metadata") or {}).get("namespace") or ""
    what = f"{namespace}/{call.name}; {call.kind.group}/{call.kind.version}, Kind={call.kind.kind}"
    return errors.ServerError(500, "", f"failed to create typed patch object ({what}): {listed}")


def _apply(call: Call, config: Any, now: Callable[[], str]) -> Callable[[JsonObject | None], JsonObject]:
    kind = call.kind
    if not call.query.get("fieldManager"):
        cause = apierrors.required_value("fieldManager", "is required for apply patch")
        raise apierrors.invalid_options("PatchOptions", cause)
    if not isinstance(config, dict) or not config.get("apiVersion") or not config.get("kind"):
        raise apierrors.bad_request("an apply configuration must hold apiVersion and kind")
    wanted = check_object_type(call, config)
    if wanted["metadata"].get("managedFields"):
        raise apierrors.bad_request("metadata.managedFields must be nil")
    wanted["metadata"].setdefault("name", call.name)
    if kind.namespaced:
        wanted["metadata"].setdefault("namespace", call.namespace)
    force = call.query.get("force") in ("true", "1")
    if kind.schema is not None:
        wanted, unknown = prune(kind.schema, wanted)
        if unknown:
            raise _undeclared_fields_error(call, config, unknown)
    if kind.status:
        # A request does not own fields that it may not write.
        kept = ("apiVersion", "kind", "metadata")
        in_status = call.subresource == "status"
        wanted = {name: value for name, value in wanted.items() if name in kept or (name == "status") is in_status}

    def applied(live: JsonObject | None) -> JsonObject:
        if live is not None:
            version = wanted["metadata"].get("resourceVersion")
            if version and version != live["metadata"]["resourceVersion"]:
                raise apierrors.conflict(kind.group, kind.plural, call.name)
            if kind.storage_version and kind.storage_version != kind.version:
                live = {**live, "apiVersion": kind.api_version}
        try:
            return managedfields.apply(
                kind.schema, live, wanted, call.manager, force, now(), kind.api_version, call.subresource
            )
        except PatchError as error:
            raise _patch_error(call, error) from None
        except (TypeError, AttributeError) as error:
            raise apierrors.bad_request(f"the configuration does not fit the kind: {error}") from None
        except managedfields.ApplyConflicts as error:
            raise errors.Conflict(409, "Conflict", str(error), details={"causes": error.causes}) from None

    return applied
