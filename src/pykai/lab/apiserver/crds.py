"""CustomResourceDefinitions: a stored definition is a served kind, at once.

`Definitions` follows the stored definitions and keeps the registry in step.  A definition that is deleted takes its
objects with it.  Versions are not converted: all of them show the same stored fields under another apiVersion, as
with the conversion strategy None.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from pykai.lab.apiserver.apierrors import Cause, forbidden_field, required, wrong
from pykai.lab.apiserver.calls import Call
from pykai.lab.apiserver.kinds import Kind, Registry, StoreKey
from pykai.lab.apiserver.schema.table import schema_of_crd
from pykai.lab.apiserver.storage import DELETED, Event, Storage

if TYPE_CHECKING:
    from pykai.lab.apiserver.writer import Writer

JsonObject = dict[str, Any]

CRDS: Final[StoreKey] = ("apiextensions.k8s.io", "customresourcedefinitions")
_log = logging.getLogger(__name__)


def _completed(obj: JsonObject) -> JsonObject:
    spec = obj.get("spec")
    if not isinstance(spec, dict) or not isinstance(spec.get("names"), dict):
        return obj
    names = dict(spec["names"])
    kind = str(names.get("kind", ""))
    names.setdefault("singular", kind.lower())
    names.setdefault("listKind", f"{kind}List")
    return {**obj, "spec": {**spec, "names": names, "conversion": spec.get("conversion") or {"strategy": "None"}}}


def prepare_create(writer: Writer, call: Call, obj: JsonObject) -> JsonObject:
    """A new definition is established from the beginning."""
    return _with_status(writer, _completed(obj), {})


def prepare_update(writer: Writer, call: Call, before: JsonObject, obj: JsonObject) -> JsonObject:
    """The status follows the names and versions."""
    if call.subresource == "status":
        return obj
    return _with_status(writer, _completed(obj), before.get("status") or {})


def _with_status(writer: Writer, obj: JsonObject, status: JsonObject) -> JsonObject:
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return obj
    now = writer.now()
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


def problems_of(writer: Writer, call: Call, obj: JsonObject, before: JsonObject | None) -> list[Cause]:
    """What a definition needs to be served."""
    if call.subresource == "status":
        return []
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return [required("spec")]
    found: list[Cause] = []
    names = spec.get("names")
    if not isinstance(names, dict) or not names.get("plural") or not names.get("kind"):
        return [required("spec.names", "plural and kind are needed")]
    group, plural = spec.get("group"), names["plural"]
    if not group:
        found.append(required("spec.group"))
    if obj["metadata"]["name"] != f"{plural}.{group}":
        found.append(wrong("metadata.name", obj["metadata"]["name"], 'must be spec.names.plural+"."+spec.group'))
    if spec.get("scope") not in ("Cluster", "Namespaced"):
        found.append(
            Cause(
                "spec.scope", "FieldValueNotSupported", 'Unsupported value: supported values: "Cluster", "Namespaced"'
            )
        )
    versions = spec.get("versions")
    if not isinstance(versions, list) or not versions:
        return [*found, required("spec.versions")]
    storing = 0
    for at, version in enumerate(versions):
        path = f"spec.versions[{at}]"
        if not isinstance(version, dict) or not version.get("name"):
            found.append(required(f"{path}.name"))
            continue
        storing += version.get("storage") is True
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if not isinstance(schema, dict):
            found.append(required(f"{path}.schema.openAPIV3Schema", "schemas are required"))
            continue
        try:
            schema_of_crd(schema)
        except Exception as error:
            found.append(wrong(f"{path}.schema.openAPIV3Schema", "", str(error)))
    if storing != 1:
        found.append(wrong("spec.versions", storing, "must have exactly one version marked as storage version"))
    if before is not None:
        old = before.get("spec") or {}
        for field in ("group", "scope"):
            if old.get(field) != spec.get(field):
                found.append(wrong(f"spec.{field}", spec.get(field), "field is immutable"))
        if (old.get("names") or {}).get("plural") != plural:
            found.append(forbidden_field("spec.names.plural", "field is immutable"))
    holder = writer.registry.stored((str(group), str(plural)))
    if holder is not None and not holder.custom:
        found.append(wrong("spec.group", group, "is a group of the server's own"))
    return found


def kinds_of(definition: JsonObject) -> list[Kind]:
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
            Kind(
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
                fields=tuple(selectable),
                schema=schema_of_crd(schema),
                columns=tuple(version.get("additionalPrinterColumns") or ()),
                custom=True,
                storage_version=storage,
            )
        )
    return kinds


class Definitions:
    """Keeps the registry in step with the stored definitions."""

    def __init__(self, storage: Storage, registry: Registry) -> None:
        self._storage = storage
        self._registry = registry
        self._served: dict[str, list[Kind]] = {}
        for record in storage.collection(CRDS).records.values():
            self._serve(record.key, record.object())
        storage.collection(CRDS).listeners.append(self._follow)

    def _follow(self, event: Event) -> None:
        name = event.record.key
        if event.type != DELETED:
            if event.old is None or event.old.object().get("spec") != event.record.object().get("spec"):
                self._serve(name, event.record.object())
            return
        kinds = self._served.get(name, [])
        for store in {kind.store for kind in kinds}:
            for key in list(self._storage.collection(store).keys):
                self._storage.remove(store, key)
        self._withdraw(name)

    def _serve(self, name: str, definition: JsonObject) -> None:
        try:
            kinds = kinds_of(definition)
        except Exception:
            # Checked when it was written; what is left is a stored definition of an older server.
            _log.exception("the CustomResourceDefinition %s cannot be served; correct its spec", name)
            return
        self._withdraw(name)
        self._served[name] = kinds
        for kind in kinds:
            self._registry.add(kind)

    def _withdraw(self, name: str) -> None:
        for kind in self._served.pop(name, []):
            self._registry.remove(kind)
