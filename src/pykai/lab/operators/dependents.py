"""Kinds whose operators the lab does not play: an annotation of the object says what its operator would create.

    metadata:
      annotations:
        simulator.kai.scheduler/creates: |
          {apiVersion: v1, kind: Pod, metadata: {name: train-0}, spec: ...}
          ---
          ...

What is missing is created in the namespace of the object, with it as the owner, and may have the annotation, too. So
`kubectl apply` of one manifest makes the chain of owners that the pod grouper climbs. Nothing else happens to the
object.

Statements: sim:operators-creates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

from pykai.api import names
from pykai.api.unstructured import JsonObject
from pykai.kube.resources import PODS, Resource
from pykai.lab.controllers.controller import owner_reference
from pykai.lab.operators.steps import Creation, ObservedWorkload, OperatedKind, OperatedWorkload, RefusedWorkload, Step

#: A short text with aliases may stand for a document without end.
_ALIASES: Final = (yaml.AliasToken, yaml.AnchorToken)


class CreatingWorkload(OperatedWorkload):
    """An object, of which only the metadata are read."""


def creating_kind(resource: Resource, *created: Resource) -> OperatedKind[CreatingWorkload]:
    """A kind whose objects say what they create: pods, and objects of these kinds."""
    resources = {(each.api_version, each.kind): each for each in (PODS, *created)}

    def plan(workload: CreatingWorkload, seen: ObservedWorkload) -> Step:
        present = {(PODS, pod.metadata.name) for pod in seen.pods}
        present |= {(each, one.metadata.name) for each, found in seen.owned.items() for one in found}
        wanted = _wanted(workload, resource, resources)
        missing = [each for each in wanted if (each.resource, each.document["metadata"]["name"]) not in present]
        return Step(workload.status, missing)

    return OperatedKind(resource, CreatingWorkload, plan, owns=tuple((each, CreatingWorkload) for each in created))


def _wanted(
    workload: CreatingWorkload, owner: Resource, resources: Mapping[tuple[str, str], Resource]
) -> Iterator[Creation]:
    for number, document in enumerate(_documents(workload)):
        metadata = document.get("metadata")
        found = resources.get((str(document.get("apiVersion")), str(document.get("kind"))))
        if found is None or not isinstance(metadata, dict) or not metadata.get("name"):
            kinds = ", ".join(kind for _, kind in resources)
            raise RefusedWorkload(
                f"{names.CREATES_ANNOTATION}: document {number}: expected an object with a name, of one of {kinds}"
            )
        reference = owner_reference(workload, owner)
        own: JsonObject = {"namespace": workload.metadata.namespace, "ownerReferences": [reference]}
        yield Creation(found, {**document, "metadata": {**metadata, **own}})


def _documents(workload: CreatingWorkload) -> list[JsonObject]:
    text = workload.metadata.annotations.get(names.CREATES_ANNOTATION, "")
    try:
        if any(isinstance(token, _ALIASES) for token in yaml.scan(text)):
            raise RefusedWorkload(f"{names.CREATES_ANNOTATION}: anchors and aliases are not read")
        found: list[Any] = [each for each in yaml.safe_load_all(text) if each is not None]
    except yaml.YAMLError as error:
        raise RefusedWorkload(f"{names.CREATES_ANNOTATION}: not YAML: {error}") from None
    if not all(isinstance(each, dict) for each in found):
        raise RefusedWorkload(f"{names.CREATES_ANNOTATION}: expected objects")
    return found
