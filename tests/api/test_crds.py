"""The definitions hold every field our types read, so that the API server prunes none of them away."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from pykai.api.crds import custom_resource_definitions
from pykai.api.meta import ObjectMeta, Wire
from pykai.api.scheduling import BindRequest, PodGroup, Queue
from pykai.api.topology import Topology

_DEFINITIONS = {each["spec"]["names"]["kind"]: each for each in custom_resource_definitions()}
_TYPES: dict[str, type[Wire]] = {"Queue": Queue, "PodGroup": PodGroup, "BindRequest": BindRequest, "Topology": Topology}


def _schema(kind: str) -> dict[str, Any]:
    (version,) = _DEFINITIONS[kind]["spec"]["versions"]
    return dict(version["schema"]["openAPIV3Schema"])


def _records(annotation: Any) -> Iterator[type[Wire]]:
    """The wire types inside a type annotation."""
    if isinstance(annotation, type) and issubclass(annotation, Wire):
        yield annotation
    elif typing.get_origin(annotation) in (list, types.UnionType, typing.Union):
        for argument in typing.get_args(annotation):
            yield from _records(argument)


def _missing(wire: type[Wire], schema: dict[str, Any], path: str = "") -> Iterator[str]:
    if schema["type"] == "array":
        schema = schema["items"]
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    for field in msgspec.structs.fields(wire):
        where = f"{path}.{field.encode_name}"
        below = schema.get("properties", {}).get(field.encode_name)
        if below is None:
            yield where
            continue
        for record in _records(field.type):
            if record is not ObjectMeta:
                yield from _missing(record, below, where)


@pytest.mark.parametrize("kind", _TYPES)
def test_every_field_that_is_read_is_in_the_schema(kind: str) -> None:
    assert list(_missing(_TYPES[kind], _schema(kind))) == []


def test_all_custom_resources_are_defined() -> None:
    assert {each["metadata"]["name"]: each["spec"]["scope"] for each in _DEFINITIONS.values()} == {
        "queues.scheduling.run.ai": "Cluster",
        "podgroups.scheduling.run.ai": "Namespaced",
        "bindrequests.scheduling.run.ai": "Namespaced",
        "topologies.kai.scheduler": "Cluster",
    }


def test_only_a_topology_has_no_status_of_its_own() -> None:
    without = [
        kind
        for kind, each in _DEFINITIONS.items()
        if "status" not in each["spec"]["versions"][0].get("subresources", {})
    ]
    assert without == ["Topology"]


def _walk(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
        for below in schema.values():
            yield from _walk(below)
    elif isinstance(schema, list):
        for below in schema:
            yield from _walk(below)


@pytest.mark.parametrize("kind", _TYPES)
def test_no_schema_has_defaults(kind: str) -> None:
    """What is absent has a meaning of its own (queues:Q-13, workloads:PG-1)."""
    assert not [each for each in _walk(_schema(kind)) if "default" in each and "properties" not in each]


def test_columns_of_queues_are_those_kubectl_shows_in_kai() -> None:
    columns = _DEFINITIONS["Queue"]["spec"]["versions"][0]["additionalPrinterColumns"]
    assert [(each["name"], each["jsonPath"]) for each in columns] == [
        ("Priority", ".spec.priority"),
        ("Parent", ".spec.parentQueue"),
        ("Children", ".status.childQueues"),
        ("DisplayName", ".spec.displayName"),
    ]
