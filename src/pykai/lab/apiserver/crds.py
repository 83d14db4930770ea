"""CustomResourceDefinitions: a stored definition is served at once.

`Definitions` follows the stored definitions and keeps the registry in step. Deleting a definition deletes its objects.
Versions are not converted: all of them show the same stored fields under another apiVersion, as with the conversion
strategy None.
"""

from __future__ import annotations

import logging
from typing import Final

from pykai.api.unstructured import JsonObject
from pykai.lab.apiserver.apierrors import StatusCause, forbidden_field, invalid_value, required_value
from pykai.lab.apiserver.calls import Call
from pykai.lab.apiserver.kinds import KindRegistry, ResourceKind, StoreKey
from pykai.lab.apiserver.schema.table import crd_schema
from pykai.lab.apiserver.serverstate import ServerState
from pykai.lab.apiserver.storage import DELETED, ObjectStorage, StorageEvent

CRDS: Final[StoreKey] = ("apiextensions.k8s.io", "customresourcedefinitions")
#: Kinds in groups of Kubernetes say whether they were approved.
_PROTECTED_GROUPS: Final = (".k8s.io", ".kubernetes.io")
_APPROVAL: Final = "api-approved.kubernetes.io"
_log = logging.getLogger(__name__)


def _with_default_names(obj: JsonObject) -> JsonObject:
    spec = obj.get("spec")
    if not isinstance(spec, dict) or not isinstance(spec.get("names"), dict):
        return obj
    names = dict(spec["names"])
    kind = str(names.get("kind", ""))
    names.setdefault("singular", kind.lower())
    names.setdefault("listKind", f"{kind}List")
    return {**obj, "spec": {**spec, "names": names, "conversion": spec.get("conversion") or {"strategy": "None"}}}


def prepare_create(state: ServerState, call: Call, obj: JsonObject) -> JsonObject:
    """A new definition is established at once."""
    return _with_status(state, _with_default_names(obj), {})


def prepare_update(state: ServerState, call: Call, before: JsonObject, obj: JsonObject) -> JsonObject:
    """The status follows the names and versions."""
    if call.subresource == "status":
        return obj
    return _with_status(state, _with_default_names(obj), before.get("status") or {})


def _with_status(state: ServerState, obj: JsonObject, status: JsonObject) -> JsonObject:
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return obj
    now = state.now()
    reasons = (
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    )
    conditions = status.get("conditions") or [
        {"type": type_, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message}
        for type_, reason, message in reasons
    ]
    versions = spec.get("versions") if isinstance(spec.get("versions"), list) else []
    stored = list(status.get("storedVersions") or ())
    for version in versions or ():
        if isinstance(version, dict) and version.get("storage") is True and version.get("name") not in stored:
            stored.append(version.get("name"))
    return {
        **obj,
        "status": {"conditions": conditions, "acceptedNames": spec.get("names") or {}, "storedVersions": stored},
    }


def _validate_version(path: str, version: object) -> list[StatusCause]:
    """Problems of one version of a definition."""
    if not isinstance(version, dict) or not version.get("name"):
        return [required_value(f"{path}.name")]
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if not isinstance(schema, dict):
        return [required_value(f"{path}.schema.openAPIV3Schema", "schemas are required")]
    try:
        crd_schema(schema)
    except Exception as error:
        # The schema is a tenant's: any shape of it that cannot be read is refused, none is an error of the server.
        return [invalid_value(f"{path}.schema.openAPIV3Schema", "", str(error))]
    return []


def validate(state: ServerState, call: Call, obj: JsonObject, before: JsonObject | None) -> list[StatusCause]:
    """Problems that keep a definition from being served."""
    if call.subresource == "status":
        return []
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return [required_value("spec")]
    causes: list[StatusCause] = []
    names = spec.get("names")
    if not isinstance(names, dict) or not names.get("plural") or not names.get("kind"):
        return [required_value("spec.names", "plural and kind are needed")]
    group, plural = spec.get("group"), names["plural"]
    if not group:
        causes.append(required_value("spec.group"))
    if obj["metadata"]["name"] != f"{plural}.{group}":
        causes.append(
            invalid_value("metadata.name", obj["metadata"]["name"], 'must be spec.names.plural+"."+spec.group')
        )
    annotations = obj["metadata"].get("annotations") or {}
    if str(group).endswith(_PROTECTED_GROUPS) and not annotations.get(_APPROVAL):
        text = f'protected groups must have approval annotation "{_APPROVAL}"'
        causes.append(required_value(f"metadata.annotations[{_APPROVAL}]", text))
    if spec.get("scope") not in ("Cluster", "Namespaced"):
        causes.append(
            StatusCause(
                "spec.scope", "FieldValueNotSupported", 'Unsupported value: supported values: "Cluster", "Namespaced"'
            )
        )
    versions = spec.get("versions")
    if not isinstance(versions, list) or not versions:
        return [*causes, required_value("spec.versions")]
    for at, version in enumerate(versions):
        causes += _validate_version(f"spec.versions[{at}]", version)
    named = [version for version in versions if isinstance(version, dict) and version.get("name")]
    storage_versions = sum(version.get("storage") is True for version in named)
    if storage_versions != 1:
        causes.append(
            invalid_value("spec.versions", storage_versions, "must have exactly one version marked as storage version")
        )
    if before is not None:
        old = before.get("spec") or {}
        for field in ("group", "scope"):
            if old.get(field) != spec.get(field):
                causes.append(invalid_value(f"spec.{field}", spec.get(field), "field is immutable"))
        if (old.get("names") or {}).get("plural") != plural:
            causes.append(forbidden_field("spec.names.plural", "field is immutable"))
    holder = state.registry.storage_kind((str(group), str(plural)))
    if holder is not None and not holder.is_custom:
        causes.append(invalid_value("spec.group", group, "is a group of the server's own"))
    return causes


def served_kinds(definition: JsonObject) -> list[ResourceKind]:
    """The kinds a definition serves, one per version."""
    spec = definition["spec"]
    names = spec["names"]
    versions = [version for version in spec["versions"] if isinstance(version, dict)]
    storage = next((v["name"] for v in versions if v.get("storage") is True), versions[0]["name"])
    kinds = []
    for version in versions:
        if version.get("served") is False:
            continue
        subresources = version.get("subresources") or {}
        schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        selectable = [str(f.get("jsonPath", "")).lstrip(".") for f in version.get("selectableFields") or () if f]
        kinds.append(
            ResourceKind(
                spec["group"],
                version["name"],
                names["plural"],
                names["kind"],
                spec["scope"] == "Namespaced",
                singular=names.get("singular") or names["kind"].lower(),
                list_kind=names.get("listKind") or "",
                short_names=tuple(names.get("shortNames") or ()),
                categories=tuple(names.get("categories") or ()),
                status="status" in subresources,
                scale=subresources.get("scale"),
                selectable_fields=tuple(selectable),
                schema=crd_schema(schema),
                printer_columns=tuple(version.get("additionalPrinterColumns") or ()),
                is_custom=True,
                storage_version=storage,
            )
        )
    return kinds


class Definitions:
    """Keeps the registry in step with the stored definitions."""

    def __init__(self, storage: ObjectStorage, registry: KindRegistry) -> None:
        self._storage = storage
        self._registry = registry
        self._kinds_by_crd: dict[str, list[ResourceKind]] = {}
        for record in storage.collection(CRDS).records.values():
            self._register(record.key, record.object())
        storage.collection(CRDS).listeners.append(self._on_event)

    def _on_event(self, event: StorageEvent) -> None:
        name = event.record.key
        if event.type != DELETED:
            if event.old is None or event.old.object().get("spec") != event.record.object().get("spec"):
                self._register(name, event.record.object())
            return
        kinds = self._kinds_by_crd.get(name, [])
        for store in {kind.store for kind in kinds}:
            for key in list(self._storage.collection(store).keys):
                self._storage.remove(store, key)
        self._unregister(name)

    def _register(self, name: str, definition: JsonObject) -> None:
        try:
            kinds = served_kinds(definition)
        except Exception:
            # Definitions are checked when written, so this is one that an older server stored.
            _log.exception("the CustomResourceDefinition %s cannot be served; correct its spec", name)
            return
        self._unregister(name)
        self._kinds_by_crd[name] = kinds
        for kind in kinds:
            self._registry.add(kind)

    def _unregister(self, name: str) -> None:
        for kind in self._kinds_by_crd.pop(name, []):
            self._registry.remove(kind)
