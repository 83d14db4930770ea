"""The definitions are what the specification says of them, and hold every field our types read.

What the API server prunes away would be lost; what it refuses, other writers may rely on being refused.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from pykai.api.crds import bind_request, custom_resource_definitions, network_topology, pod_group, queue
from pykai.api.fieldmeanings import MEANINGS
from pykai.api.meta import ObjectMeta, Wire
from pykai.api.scheduling import BindRequest, PodGroup, Queue
from pykai.api.topology import Topology
from tests.api.crd_facts import DEFINITIONS, FIELDS, Field

_DEFINITIONS = {each["spec"]["names"]["kind"]: each for each in custom_resource_definitions()}
#: made from the types, so that the types have nothing to be compared with; tests/operator has each of their fields
_FROM_TYPES = {"Config", "SchedulingShard"}
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


def test_the_table_has_all_custom_resources() -> None:
    assert list(DEFINITIONS) == list(FIELDS) == list(_TYPES)
    assert set(_DEFINITIONS) - _FROM_TYPES == set(DEFINITIONS)


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_the_definition_is_that_of_the_table(kind: str) -> None:
    fact = DEFINITIONS[kind]
    names: dict[str, Any] = {"kind": kind, "listKind": f"{kind}List", "plural": fact.plural, "singular": fact.singular}
    if fact.short_names:
        names["shortNames"] = list(fact.short_names)
    found = _DEFINITIONS[kind]
    assert found["metadata"] == {"name": f"{fact.plural}.{fact.group}"}
    (version,) = found["spec"]["versions"]
    rest = {key: value for key, value in found["spec"].items() if key != "versions"}
    assert rest == {"group": fact.group, "scope": fact.scope, "names": names}, fact.said
    assert (version["name"], version["served"], version["storage"]) == (fact.version, True, True)
    assert version.get("subresources", {}) == ({"status": {}} if fact.status else {}), fact.said
    columns = [(each["name"], each["jsonPath"], each["type"]) for each in version.get("additionalPrinterColumns", [])]
    assert columns[: len(fact.columns)] == [(name, path, "string") for name, path in fact.columns], fact.said


def _type(schema: dict[str, Any]) -> str:
    """The type in the words of the table."""
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return "document"
    if schema.get("additionalProperties", {}).get("x-kubernetes-int-or-string"):
        return "resources"
    form = schema.get("format")
    if schema["type"] == "array":
        return "list"
    if schema["type"] == "integer" and form == "int64":
        return "integer"
    return {"date-time": "time"}.get(form, form) if form else str(schema["type"])


def _rules(schema: dict[str, Any]) -> dict[str, Any]:
    """What a schema demands beyond the type of the value."""
    structure = ("type", "format", "properties", "items", "additionalProperties", "required")
    rules = {name: value for name, value in schema.items() if name not in structure}
    rules.pop("x-kubernetes-preserve-unknown-fields", None)
    rules.pop("description", None)
    if validations := rules.pop("x-kubernetes-validations", None):
        rules["messages"] = [each["message"] for each in validations]
    return rules


def _fields(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name, below in schema.get("properties", {}).items():
        where = f"{path}.{name}" if path else name
        required = {"required": True} if name in schema.get("required", ()) else {}
        yield where, _type(below), {**required, **_rules(below)}
        yield from _fields(below, where)
    if "items" in schema:
        yield f"{path}[]", _type(schema["items"]), _rules(schema["items"])
        yield from _fields(schema["items"], f"{path}[]")


def _agree(fact: Field, found: tuple[str, dict[str, Any]]) -> bool:
    type_, rules = found
    if fact.rules.get("pattern") is ...:
        rules = rules | ({"pattern": ...} if "pattern" in rules else {})
    return (fact.type, fact.rules) == (type_, rules)


@pytest.mark.parametrize("kind", FIELDS)
def test_every_field_is_that_of_the_table(kind: str) -> None:
    own = {path: (type_, rules) for path, type_, rules in _fields(_schema(kind))}
    for path in ("apiVersion", "kind", "metadata"):
        assert own.pop(path)[0] in ("string", "object")
    table = {each.path: each for each in FIELDS[kind]}
    assert own.keys() == table.keys()
    assert {path: found for path, found in own.items() if not _agree(table[path], found)} == {}


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


#: what they hold is not in the schema
_DOCUMENTS = ("status.conditions", "status.fairShare")


def _properties(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for name, below in schema.get("properties", {}).items():
        where = f"{path}.{name}" if path else name
        yield where, below
        yield from _properties(below, where)
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if "properties" in schema.get(key, {}) or (key == "items" and key in schema):
            yield f"{path}{mark}", schema[key]
            yield from _properties(schema[key], f"{path}{mark}")


@pytest.mark.parametrize("kind", _DEFINITIONS)
def test_every_field_says_what_it_means(kind: str) -> None:
    """`kubectl explain` prints it."""
    found = dict(_properties(_schema(kind)))
    # An API server refuses a definition that says more.
    assert found.pop("metadata") == {"type": "object"}
    silent = [path for path, schema in found.items() if "description" not in schema and not path.endswith(("[]", "{}"))]
    assert silent == []
    assert {path: found[path]["description"] for path in MEANINGS[kind] if path != "metadata"} == MEANINGS[kind]


@pytest.mark.parametrize("make", [queue, pod_group, bind_request, network_topology])
def test_each_place_of_a_schema_has_a_part_of_its_own(make: Callable[[], dict[str, Any]]) -> None:
    """The meaning of one field written into a shared part would be that of all."""
    parts = [id(each) for each in _walk(make())]
    assert len(set(parts)) == len(parts)


def test_fields_that_are_alike_say_what_each_means() -> None:
    amounts = dict(_properties(_schema("Queue")))
    assert amounts["spec.resources.gpu"]["description"].startswith("GPUs")
    assert amounts["spec.resources.cpu"]["description"].startswith("CPU")
    claims = dict(_properties(_schema("BindRequest")))
    assert "AllocationResult" in claims["spec.resourceClaimAllocations[].allocation"]["description"]


@pytest.mark.parametrize("kind", _DEFINITIONS)
def test_kubectl_get_prints_columns_of_fields_that_exist(kind: str) -> None:
    (version,) = _DEFINITIONS[kind]["spec"]["versions"]
    paths = {path.replace("[]", "") for path, _ in _properties(_schema(kind))}
    for column in version["additionalPrinterColumns"]:
        assert column["description"]
        where = re.sub(r"\[[^]]*\]", "", column["jsonPath"]).replace(r".nvidia\.com/gpu", "").lstrip(".")
        # Of what a document holds, the schema says nothing.
        outer = where.removesuffix(f".{where.rpartition('.')[2]}")
        assert where.startswith("metadata.") or where in paths or outer in _DOCUMENTS, column["name"]


def test_definitions_belong_to_the_caller() -> None:
    changed = custom_resource_definitions()
    changed[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"].clear()
    assert custom_resource_definitions() != changed
    assert custom_resource_definitions()[0] == queue()
