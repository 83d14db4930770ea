"""Builders for Kartas."""

from __future__ import annotations

from typing import Any

from pykai.api.decode import decode_as
from pykai.kube.store import Change
from pykai.podgrouper.karta.compiled import compile_karta
from pykai.podgrouper.karta.definition import Karta
from pykai.podgrouper.karta.grouper import KartaGrouper
from pykai.podgrouper.karta.registry import KartaGroupers

Raw = dict[str, Any]
GROUP, VERSION, KIND = "x.io", "v1", "Trial"
ROLE = '.metadata.labels["role"]'


def component(name: str, replicas: str = "", *, below: str = "job", role: str = "", **fields: Any) -> Raw:
    """A component of pods, so many as an expression says, selected by the value of a label."""
    found: Raw = {"name": name, "ownerRef": below, "specDefinition": {"podTemplateSpecPath": f".spec.{name}"}}
    if replicas:
        found["scaleDefinition"] = {"replicasPath": replicas}
    if role:
        found["podSelector"] = {"componentTypeSelector": {"keyPath": ROLE, "value": role}}
    return found | fields


def root(**fields: Any) -> Raw:
    kind = {"group": GROUP, "version": VERSION, "kind": KIND}
    return {"name": "job", "kind": kind, "statusDefinition": {"statusMappings": {}}, **fields}


def karta_spec(*children: Raw, top: Raw | None = None, **gangs: Any) -> Raw:
    return {
        "structureDefinition": {"rootComponent": top or root(), "childComponents": list(children)},
        "optimizationInstructions": {"gangScheduling": gangs},
    }


def karta_labels(kind: str = KIND) -> dict[str, str]:
    return {"run.ai/karta-group": GROUP, "run.ai/karta-version": VERSION, "run.ai/karta-kind": kind}


def karta(*children: Raw, name: str = "trials", top: Raw | None = None, **gangs: Any) -> Karta:
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "labels": karta_labels()}
    return decode_as(Karta, {"metadata": metadata, "spec": karta_spec(*children, top=top, **gangs)})


def karta_grouper(described: Karta) -> KartaGrouper:
    compiled = compile_karta(described)
    assert compiled is not None
    return KartaGrouper(compiled)


class Registered:
    """The groupers of some Kartas, and what was said about those that cannot be used."""

    def __init__(self, *kartas: Karta) -> None:
        self.refused: list[tuple[str, str]] = []
        self.groupers = KartaGroupers(lambda karta, reason: self.refused.append((karta.metadata.name, reason)))
        self.known: dict[str, Karta] = {}
        for each in kartas:
            self.put(each)

    def put(self, new: Karta) -> set[tuple[str, str, str]]:
        old, self.known[new.metadata.name] = self.known.get(new.metadata.name), new
        return self.groupers.changed(Change(new.metadata.name, old, new))

    def remove(self, name: str) -> set[tuple[str, str, str]]:
        return self.groupers.changed(Change(name, self.known.pop(name), None))

    def used(self) -> list[str]:
        found = self.groupers.by_kind.values()
        return [each.karta.name for each in found if isinstance(each, KartaGrouper)]
