"""Releases of the chart, rendered without Helm, that read like `helm template --set`."""

from __future__ import annotations

import json
from typing import Any

from pykai.operator.chart.configuration import config
from pykai.operator.chart.files import checks, hook_files, release_documents, rendered_documents
from pykai.operator.chart.language import TemplateScope
from pykai.operator.chart.values import default_values, merged_values
from tests.operator.installations import Objects, nested


def scope(*changes: dict[str, Any], **settings: Any) -> TemplateScope:
    """`scope({"global.tag": "v1"})`; keyword arguments are about the release."""
    given = [nested(path, value) for change in changes for path, value in change.items()]
    return TemplateScope(merged_values(default_values(), *given), version="0.1.0", **settings)


def rendered(*changes: dict[str, Any], **settings: Any) -> Objects:
    """(kind, name) -> object, of a release and its hooks; a namespaced one as well under `namespace/name`."""
    found: Objects = {}
    for documents in ({"checks": checks()} | release_documents() | hook_files()).values():
        for each in rendered_documents(scope(*changes, **settings), documents):
            name, namespace = each["metadata"]["name"], each["metadata"].get("namespace", "")
            found[each["kind"], name] = each
            found[each["kind"], f"{namespace}/{name}"] = each
    return found


def rendered_config(*changes: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """The spec of the Config."""
    (found,) = rendered_documents(scope(*changes, **settings), [config()])
    spec: dict[str, Any] = found["spec"]
    return spec


def images(document: Any) -> list[str]:
    """All references of images in a document, those of a Config included."""
    if isinstance(document, dict):
        below = [each for value in document.values() for each in images(value)]
        if {"name", "tag"} <= document.keys():
            below.append(f"{document['name']}:{document['tag']}")
        if isinstance(document.get("image"), str):
            below.append(document["image"])
        return below
    if isinstance(document, list):
        return [each for item in document for each in images(item)]
    return []


def config_in_hook(found: Objects) -> dict[str, Any]:
    """The Config that the deployer applies."""
    made: dict[str, Any] = json.loads(found["ConfigMap", "kai-config-manifest"]["data"]["kai-config.json"])
    return made
