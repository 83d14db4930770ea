"""Fields that machines and controllers read and write exist in Kubernetes, under these names and of these types."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec import inspect

from pykai.api import workloads
from pykai.api.decode import decode_as
from pykai.api.disruption import PodDisruptionBudget
from pykai.api.meta import Wire
from pykai.lab.apiserver.schema.model import SchemaNode
from pykai.lab.apiserver.schema.table import builtin_schema
from pykai.lab.apiserver.schema.validation import prune, validate
from pykai.lab.machines import statuses
from pykai.lab.machines.nodes import MachineKind, node_objects
from tests.lab.simulatedcluster import pod

READ = [
    ("", "v1", "Pod", workloads.MachinePod),
    ("batch", "v1", "Job", workloads.Job),
    ("batch", "v1", "CronJob", workloads.CronJob),
    ("apps", "v1", "ReplicaSet", workloads.ReplicaSet),
    ("apps", "v1", "Deployment", workloads.Deployment),
    ("apps", "v1", "StatefulSet", workloads.StatefulSet),
    ("apps", "v1", "ControllerRevision", workloads.ControllerRevision),
    ("policy", "v1", "PodDisruptionBudget", PodDisruptionBudget),
    ("resource.k8s.io", "v1", "ResourceClaimTemplate", workloads.ResourceClaimTemplate),
]
NOW = "2026-01-01T00:00:00Z"


def schema(group: str, version: str, kind: str) -> SchemaNode:
    found = builtin_schema(group, version, kind)
    assert found is not None
    return found


def unknown(wire: inspect.Type, known: SchemaNode | None, path: str) -> Iterator[str]:
    if isinstance(wire, inspect.UnionType):
        for member in wire.types:
            if not isinstance(member, inspect.NoneType):
                yield from unknown(member, known, path)
    elif known is None:
        yield path
    elif isinstance(wire, inspect.StructType):
        for field in wire.fields:
            yield from unknown(field.type, known.fields.get(field.encode_name), f"{path}.{field.encode_name}")
    elif isinstance(wire, inspect.ListType):
        yield from unknown(wire.item_type, known.items, f"{path}[]")
    elif isinstance(wire, inspect.StrType):
        if known.type not in ("string", "any"):
            yield f"{path} is {known.type}"
    elif isinstance(wire, inspect.IntType):
        if known.type not in ("integer", "any"):
            yield f"{path} is {known.type}"
    elif isinstance(wire, inspect.BoolType) and known.type != "boolean":
        yield f"{path} is {known.type}"


@pytest.mark.parametrize(("group", "version", "kind", "wire_type"), READ, ids=[each[2] for each in READ])
def test_every_field_that_is_read_exists(group: str, version: str, kind: str, wire_type: type[Wire]) -> None:
    assert list(unknown(inspect.type_info(wire_type), schema(group, version, kind), kind)) == []


def all_statuses() -> dict[str, statuses.PodStatusPatch]:
    plain = decode_as(workloads.MachinePod, pod("p", init=1, sidecars=1))
    return {
        "rejected": statuses.rejected_status("OutOfcpu", "no room", NOW),
        "waiting": statuses.waiting_status(plain, "ContainerCreating", "x", NOW, NOW, "172.16.0.1"),
        "initialising": statuses.initialising_status(plain, NOW, NOW, "172.16.0.1"),
        "running": statuses.running_status(plain, NOW, NOW, "172.16.0.1", "10.0.0.1", 2, 1),
        "backing off": statuses.back_off_status(plain, NOW, NOW, 2, 1, 20.0),
        "succeeded": statuses.ended_status(plain, NOW, NOW, 0, 0),
        "failed": statuses.ended_status(plain, NOW, NOW, 0, 1, "DeadlineExceeded", "late"),
    }


@pytest.mark.parametrize("name", all_statuses())
def test_every_status_that_is_written_is_one_of_kubernetes(name: str) -> None:
    document = {**pod("p"), "status": all_statuses()[name]}
    kept, lost = prune(schema("", "v1", "Pod"), document)
    assert lost == []
    assert kept["status"].keys() == document["status"].keys()


@pytest.mark.parametrize(
    "kind", [MachineKind(gpus=2), MachineKind(gpus=2, mig={"1g.10gb": 2}), MachineKind(gpus=1, dra=True)]
)
def test_nodes_and_slices_are_objects_of_kubernetes(kind: MachineKind) -> None:
    for document in node_objects(kind, NOW):
        group, _, version = document["apiVersion"].rpartition("/")
        known = schema(group, version, document["kind"])
        assert prune(known, document)[1] == []
        assert validate(known, document) == []
