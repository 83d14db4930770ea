"""Are our kinds installed, in the version and with the fields that the services use?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pykai.api.crds import custom_resource_definitions
from pykai.doctor.facts import DEFINITIONS, Facts
from pykai.doctor.findings import Finding, Severity, counted, listed
from pykai.webhooks.fields import dicts_at, object_at

_INSTALL: Final = "kai manifests --crds-only | kubectl apply --server-side -f -"
_PRESERVED: Final = "x-kubernetes-preserve-unknown-fields"


def definitions(facts: Facts) -> Iterator[Finding]:
    """Each of our definitions is there, serves our version, and keeps every field that we read."""
    there = {str(object_at(each, "metadata").get("name", "")): each for each in facts.all(DEFINITIONS)}
    for ours in custom_resource_definitions():
        name = ours["metadata"]["name"]
        where = f"CustomResourceDefinition {name}"
        found = there.get(name)
        if found is None:
            what = f"The kind {ours['spec']['names']['kind']} is not installed."
            yield Finding(Severity.ERROR, "definition-missing", where, what, _INSTALL)
        else:
            yield from _compared(where, ours, found)


def _compared(where: str, ours: dict[str, Any], found: dict[str, Any]) -> Iterator[Finding]:
    (wanted,) = ours["spec"]["versions"]
    versions = dicts_at(object_at(found, "spec"), "versions")
    served = next((each for each in versions if each.get("name") == wanted["name"] and each.get("served")), None)
    conditions = {each.get("type"): each for each in dicts_at(object_at(found, "status"), "conditions")}
    refused = conditions.get("NamesAccepted", {})
    if refused.get("status") == "False":
        what = f"The API server does not accept its names: {refused.get('message', '')}."
        yield Finding(Severity.ERROR, "definition-refused", where, what, "Remove the definition that has these names.")
    if served is None:
        others = listed(str(each.get("name")) for each in versions if each.get("served")) or "none"
        what = f"Version {wanted['name']} is not served; served: {others}."
        yield Finding(Severity.ERROR, "definition-version", where, what, _INSTALL)
        return
    missing = sorted(missing_fields(_schema(wanted), _schema(served)))
    if missing:
        what = f"The API server drops fields that PyKAI writes or reads: {listed(missing)}."
        figure = counted(len(missing), "field")
        yield Finding(Severity.WARNING, "definition-fields", where, what, _INSTALL, figure)


def _schema(version: Mapping[str, Any]) -> dict[str, Any]:
    return object_at(object_at(version, "schema"), "openAPIV3Schema")


def missing_fields(ours: Mapping[str, Any], theirs: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """The fields of a schema that another one would drop; below a missing field nothing more is listed."""
    if theirs.get(_PRESERVED) is True:
        return
    if "items" in ours:
        yield from missing_fields(object_at(ours, "items"), object_at(theirs, "items"), f"{path}[]")
    if theirs.get("additionalProperties"):
        return
    kept = object_at(theirs, "properties")
    for name, schema in object_at(ours, "properties").items():
        below = f"{path}.{name}" if path else name
        if name in kept:
            yield from missing_fields(schema, object_at(kept, name), below)
        elif path or name not in ("apiVersion", "kind", "metadata"):
            yield below
