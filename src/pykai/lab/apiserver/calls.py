"""A parsed request to the API: verb, object, user and options.

The layers below the wire take a `Call`. It also collects the warnings for the response.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pykai.api.keys import object_key
from pykai.lab.apiserver.apierrors import StatusCause, bad_request, invalid, invalid_options, unsupported_value
from pykai.lab.apiserver.kinds import ResourceKind
from pykai.lab.apiserver.users import ADMIN, User

#: longest name of a field manager
_MANAGER_LENGTH: Final = 128
#: metadata that is text or absent
_OPTIONS: Final = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}
_STRING_FIELDS: Final = ("name", "generateName", "namespace", "uid", "resourceVersion")


@dataclass(slots=True)
class Call:
    """One request for one kind."""

    #: get, list, watch, create, update, patch, apply, delete, deletecollection
    verb: str
    kind: ResourceKind
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    user: User = ADMIN
    #: field manager in managedFields
    manager: str = "unknown"
    #: whether plain writes are tracked in managedFields
    tracked: bool = False
    dry_run: bool = False
    #: Ignore, Warn or Strict
    field_validation: str = "Warn"
    #: texts of Warning headers
    warnings: list[str] = field(default_factory=list)

    @property
    def key(self) -> str:
        """The object's key in its collection."""
        return object_key(self.namespace, self.name) if self.kind.namespaced else self.name


def read_options(call: Call, agent: str = "") -> None:
    """Read dryRun, fieldManager and fieldValidation from the query."""
    query = call.query
    options = _OPTIONS.get(call.verb, "DeleteOptions")
    dry_run = query.get("dryRun", "")
    if dry_run not in ("", "All"):
        raise invalid_options(options, unsupported_value("dryRun", dry_run, "All"))
    call.dry_run = dry_run == "All"
    manager = query.get("fieldManager", "") or agent.partition("/")[0]
    if len(manager) > _MANAGER_LENGTH:
        text = f"Too long: may not be more than {_MANAGER_LENGTH} bytes"
        raise invalid_options(options, StatusCause("fieldManager", "FieldValueTooLong", text))
    call.manager = manager or "unknown"
    validation = query.get("fieldValidation", "")
    if validation not in ("", "Ignore", "Warn", "Strict"):
        raise invalid_options(options, unsupported_value("fieldValidation", validation, "", "Ignore", "Strict", "Warn"))
    call.field_validation = validation or "Warn"


def check_object_type(call: Call, obj: Any) -> dict[str, Any]:
    """The body as an object of the call's kind; built-in kinds may omit apiVersion and kind."""
    if not isinstance(obj, dict):
        raise bad_request(f"the body must be an object of kind {call.kind.kind}, not {type(obj).__name__}")
    api_version, kind = obj.get("apiVersion"), obj.get("kind")
    expected = call.kind.api_version
    if call.kind.is_custom and call.verb in ("create", "update") and not (api_version and kind):
        missing = "apiVersion" if kind else "Kind"
        raise bad_request(
            f"the object provided is unrecognized (must be of type {call.kind.kind}): Object '{missing}' is missing"
        )
    if api_version is not None and api_version != expected:
        raise bad_request(
            f"the API version in the data ({api_version}) does not match the expected API version ({expected})"
        )
    if kind is not None and kind != call.kind.kind:
        raise bad_request(f"{kind} in the data does not match the expected kind {call.kind.kind}")
    metadata = obj.get("metadata")
    if metadata is None:
        metadata = {}
    elif not isinstance(metadata, dict):
        raise bad_request("metadata must be an object")
    metadata = dict(metadata)
    for name in _STRING_FIELDS:
        value = metadata.get(name, "")
        if value is None:
            del metadata[name]
        elif not isinstance(value, str):
            raise bad_request(f"metadata.{name} must be a string, not {type(value).__name__}")
    return {**obj, "apiVersion": expected, "kind": call.kind.kind, "metadata": metadata}


def decode_failure_text(call: Call, error: str) -> str:
    """The message for a body that does not decode as its kind."""
    kind = call.kind
    return f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {error}'


def report_unknown_fields(call: Call, unknown: list[str]) -> None:
    """Refuse, report or ignore unknown fields, as the call's fieldValidation says."""
    texts = [f'unknown field "{path}"' for path in (sorted(unknown) if call.kind.is_custom else unknown)]
    if call.field_validation == "Strict":
        error = f"strict decoding error: {', '.join(texts)}"
        if call.verb == "patch":
            raise invalid("", "", "", [StatusCause("patch", "FieldValueInvalid", f"Invalid value: {error}")])
        raise bad_request(decode_failure_text(call, error))
    if call.field_validation == "Warn":
        call.warnings += [text for text in texts if text not in call.warnings]
