"""Our own kinds on an API server: nothing that belongs to them is lost, and what breaks their rules is refused by name.

The objects are made from the table of the specification's facts (tests/api/crd_facts.py), with every field that it has.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.api.crd_facts import DEFINITIONS, FIELDS, Field
from tests.lab.apiserver.apiclient import JSON_PATCH, Answer, Api, Object, path_of

EXAMPLES = Path(__file__).parents[3] / "examples"
#: how examples of other kinds than ours are called in paths
_PLURALS = {"Pod": "pods", "Job": "jobs", "Deployment": "deployments"}
_VALUES: dict[str, Any] = {
    "string": "a",
    "integer": 2,
    "int32": 1,
    "number": 0.5,
    "boolean": True,
    "time": "2026-01-01T00:00:00Z",
    "resources": {"cpu": "500m", "nvidia.com/gpu": 2},
    "document": {"anything": {"at": ["all", 1, None]}},
}


def filled(kind: str) -> Object:
    """An object with all fields its kind has."""
    fact = DEFINITIONS[kind]
    head = {"apiVersion": f"{fact.group}/{fact.version}", "kind": kind, "metadata": {"name": "filled"}}
    return {**head, **_below("", FIELDS[kind])}


def _below(path: str, fields: list[Field]) -> Object:
    found: Object = {}
    for field in fields:
        parent, _, name = field.path.rpartition(".")
        if parent == path and not name.endswith("[]"):
            found[name] = _value(field, fields)
    return found


def _value(field: Field, fields: list[Field]) -> Any:
    if field.type == "object":
        return _below(field.path, fields)
    if field.type == "list":
        (element,) = [each for each in fields if each.path == f"{field.path}[]"]
        return [_value(element, fields)]
    return copy.deepcopy(field.rules.get("enum", [_VALUES[field.type]])[0])


def _at(obj: Object, path: str) -> tuple[Any, str | int]:
    """The container and the key of a place such as `spec.subGroups[0].name`."""
    steps: list[str | int] = []
    for name in path.split("."):
        name, _, index = name.partition("[")
        steps.append(name)
        if index:
            steps.append(int(index.rstrip("]")))
    inner: Any = obj
    for step in steps[:-1]:
        inner = inner[step]
    return inner, steps[-1]


def test_a_filled_object_has_every_field() -> None:
    group = filled("PodGroup")
    assert group["spec"]["subGroups"][0]["topologyConstraint"]["topology"] == "a"
    assert filled("BindRequest")["spec"]["predictedNUMAZones"] == [{"zone": "a", "amount": _VALUES["resources"]}]


@pytest.mark.parametrize("kind", DEFINITIONS)
async def test_no_field_is_lost(api: Api, kind: str) -> None:
    plural, sent = DEFINITIONS[kind].plural, filled(kind)
    created = (await api.create(plural, sent, fieldValidation="Strict")).ok()
    assert created.body["spec"] == sent["spec"]
    if DEFINITIONS[kind].status:
        assert "status" not in created.body
        told = (
            await api.put(plural, created.body | {"status": sent["status"]}, "status", fieldValidation="Strict")
        ).ok()
        assert told.body["status"] == sent["status"]
    found = (await api.get(plural, "filled")).body
    assert {key: value for key, value in found.items() if key != "metadata"} == {
        key: value for key, value in sent.items() if key != "metadata"
    }


def _examples() -> Iterator[Object]:
    for path in sorted(EXAMPLES.glob("*.yaml")):
        yield from yaml.safe_load_all(path.read_text(encoding="utf-8"))


async def test_the_examples_are_taken_as_they_are(api: Api) -> None:
    for each in _examples():
        ours = DEFINITIONS.get(each["kind"])
        plural = ours.plural if ours else _PLURALS[each["kind"]]
        created = (await api.create(plural, each, fieldValidation="Strict")).ok()
        if ours:
            assert created.body["spec"] == each["spec"]


@pytest.mark.parametrize(
    ("kind", "place", "value"),
    [
        ("Queue", "spec.priority", "high"),
        ("Queue", "spec.priority", 1.5),
        ("Queue", "spec.resources.gpu.quota", "4"),
        ("Queue", "spec.resources", []),
        ("Queue", "spec.displayName", 7),
        ("PodGroup", "spec.minMember", -1),
        ("PodGroup", "spec.minSubGroup", -1),
        ("PodGroup", "spec.minMember", "2"),
        ("PodGroup", "spec.preemptibility", "semi-preemptible"),
        ("PodGroup", "spec.preemptibility", ""),
        ("PodGroup", "spec.markUnschedulable", "yes"),
        ("PodGroup", "spec.subGroups[0].name", ""),
        ("PodGroup", "spec.subGroups[0].name", "Upper"),
        ("PodGroup", "spec.subGroups[0].parent", "-a"),
        ("PodGroup", "spec.subGroups[0].minMember", -1),
        ("PodGroup", "spec.subGroups[0].minSubGroup", -1),
        ("BindRequest", "spec.backoffLimit", "3"),
        ("BindRequest", "spec.receivedGPU.count", "one"),
        ("BindRequest", "spec.selectedGPUGroups[0]", 5),
        ("BindRequest", "spec.predictedNUMAZones[0].amount.cpu", "much"),
        ("Topology", "spec.levels", []),
        ("Topology", "spec.levels[0].nodeLabel", ""),
        ("Topology", "spec.levels[0].nodeLabel", "Example.com/rack"),
        ("Topology", "spec.levels[0].nodeLabel", "rack/"),
        ("Topology", "spec.levels[0].nodeLabel", "a" * 317),
        ("Topology", "spec.levels[0].alias", "not a label"),
    ],
)
async def test_what_breaks_the_schema_is_refused_by_name(api: Api, kind: str, place: str, value: Any) -> None:
    wrong = filled(kind)
    container, key = _at(wrong, place)
    container[key] = value
    assert place in _fields_refused(await api.create(DEFINITIONS[kind].plural, wrong, dryRun="All"))


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("PodGroup", "spec.subGroups[0].name"),
        ("BindRequest", "spec.predictedNUMAZones[0].zone"),
        ("BindRequest", "spec.predictedNUMAZones[0].amount"),
        ("Topology", "spec"),
        ("Topology", "spec.levels"),
        ("Topology", "spec.levels[0].nodeLabel"),
    ],
)
async def test_what_is_required_is_missed_by_name(api: Api, kind: str, place: str) -> None:
    wrong = filled(kind)
    container, key = _at(wrong, place)
    del container[key]
    refused = await api.create(DEFINITIONS[kind].plural, wrong, dryRun="All")
    assert place in _fields_refused(refused)
    assert "Required value" in refused.body["message"]


async def test_a_condition_of_a_queue_says_what_and_whether(api: Api) -> None:
    (await api.create("queues", filled("Queue"))).ok()
    for missing in ("type", "status"):
        condition = {key: value for key, value in (("type", "Orphan"), ("status", "True")) if key != missing}
        refused = await api.patch("queues", "filled", {"status": {"conditions": [condition]}}, "status")
        assert _fields_refused(refused) == [f"status.conditions[0].{missing}"]


def _fields_refused(answer: Answer) -> list[str]:
    assert (answer.code, answer.body["reason"]) == (422, "Invalid"), answer.body
    return [cause["field"] for cause in answer.body["details"]["causes"]]


def topology(*levels: str) -> Object:
    """Levels as `label` or `label=alias`."""
    pairs = [level.partition("=") for level in levels]
    spec = {"levels": [{"nodeLabel": label, **({"alias": alias} if alias else {})} for label, _, alias in pairs]}
    return {"apiVersion": "kai.scheduler/v1alpha1", "kind": "Topology", "metadata": {"name": "net"}, "spec": spec}


needs_cel = pytest.mark.skipif(
    find_spec("cel_expr_python") is None, reason="the extra dra (CEL) is not installed: rules are not checked"
)


@needs_cel
@pytest.mark.parametrize(
    ("levels", "message"),
    [
        (("zone", "rack", "zone"), "nodeLabel must be unique"),
        (
            ("kubernetes.io/hostname", "rack"),
            "the kubernetes.io/hostname label can only be used at the lowest level of topology",
        ),
    ],
)
async def test_levels_that_make_no_topology(api: Api, levels: tuple[str, ...], message: str) -> None:
    """topo:2."""
    refused = await api.create("topologies", topology(*levels), dryRun="All")
    assert _fields_refused(refused) == ["spec.levels"]
    assert message in refused.body["message"]
    assert (
        await api.create("topologies", topology("zone", "rack", "kubernetes.io/hostname"), dryRun="All")
    ).code == 201


@needs_cel
@pytest.mark.parametrize("levels", [("rack", "zone"), ("zone",), ("zone", "rack", "host"), ("zone", "block")])
async def test_the_levels_of_a_topology_stay(api: Api, levels: tuple[str, ...]) -> None:
    """topo:2, the transition rule: order and labels."""
    created = (await api.create("topologies", topology("zone=z", "rack"))).ok()
    changed = {**topology(*levels), "metadata": created.meta}
    refused = await api.put("topologies", changed)
    assert _fields_refused(refused) == ["spec.levels"]
    assert "nodeLabel structure is immutable; only aliases may be edited" in refused.body["message"]


@needs_cel
async def test_the_aliases_of_a_topology_change(api: Api) -> None:
    """topo:T-8."""
    await api.create("topologies", topology("zone=z", "rack"))
    operations = [
        {"op": "remove", "path": "/spec/levels/0/alias"},
        {"op": "add", "path": "/spec/levels/1/alias", "value": "z"},
    ]
    moved = (await api.patch("topologies", "net", operations, kind=JSON_PATCH)).ok()
    assert moved.body["spec"]["levels"] == [{"nodeLabel": "zone"}, {"nodeLabel": "rack", "alias": "z"}]


async def test_all_definitions_are_established(api: Api) -> None:
    for fact in DEFINITIONS.values():
        found = await api.request("GET", path_of("customresourcedefinitions", f"{fact.plural}.{fact.group}"))
        conditions = {each["type"]: each["status"] for each in found.body["status"]["conditions"]}
        assert conditions == {"NamesAccepted": "True", "Established": "True"}
