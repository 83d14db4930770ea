"""Objects whose fields are anything but what they should be: refused with a reason, never a failure of the server.

This is about the embedded server's own insides, not about Kubernetes: these tests open one themselves.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from pykai.lab.apiserver.server import ApiServer
from tests.lab.apiserver.apiclient import (
    APPLY,
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    Api,
    config_map,
    definition,
    deployment,
    path_of,
    pod,
    running_server,
)

JUNK: tuple[Any, ...] = (None, -1, True, "x", [], {}, [None], ["a"], {"a": None}, 10**30)
Path = tuple[Any, ...]

OBJECTS: dict[str, dict[str, Any]] = {
    "pods": pod(
        "a",
        labels={"a": "b"},
        annotations={"c": "d"},
        owners=[{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}],
        finalizers=["example.com/hold"],
        tolerations=[{"key": "a", "operator": "Exists"}],
        schedulingGates=[{"name": "example.com/gate"}],
        containers=[{"name": "c", "image": "x", "resources": {"limits": {"cpu": "1"}, "requests": {"memory": "1"}}}],
    ),
    "deployments": deployment("a"),
    "jobs": {
        "metadata": {"name": "a"},
        "spec": {
            "completions": 1,
            "template": {"metadata": {"labels": {}}, "spec": pod(restartPolicy="Never")["spec"]},
        },
    },
    "customresourcedefinitions": definition(
        subresources={"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
        additionalPrinterColumns=[{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
        selectableFields=[{"jsonPath": ".spec.size"}],
    ),
    "namespaces": {"metadata": {"name": "a"}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}},
    "queues": {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": "a"},
        "spec": {"priority": 1, "resources": {"gpu": {"quota": 1}}},
    },
}


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every place in an object."""
    yield path
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from places(inner, (*path, name))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from places(inner, (*path, at))


def with_junk(obj: Any, path: Path, junk: Any) -> Any:
    """The object with junk in one place."""
    if not path:
        return junk
    changed = copy.deepcopy(obj)
    inner = changed
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = junk
    return changed


@pytest.mark.parametrize("plural", OBJECTS)
async def test_junk_in_any_field(plural: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    async with running_server() as (_, api):
        obj = OBJECTS[plural]
        live = (await api.create(plural, obj)).ok().body
        name = obj["metadata"]["name"]
        turn = 0
        for path in places(obj):
            for junk in JUNK:
                broken = with_junk(obj, path, junk)
                turn += 1
                answers = [await api.create(plural, broken, dryRun="All")]
                # One way of writing after the other, so that each meets every kind of junk somewhere.
                kind = (MERGE, STRATEGIC, APPLY, "put")[turn % 4]
                if kind == "put":
                    changed = with_junk(live, path, junk) if path in set(places(live)) else live
                    answers.append(await api.request("PUT", path_of(plural, name), changed, dryRun="All"))
                else:
                    answers.append(await api.patch(plural, name, broken, kind=kind, dryRun="All", fieldManager="m"))
                for answer in answers:
                    assert answer.code < 500 or "not declared in schema" in answer.body["message"], (path, junk)
    assert [record.getMessage() for record in caplog.records] == []


async def test_junk_in_subresources(inside: ApiServer) -> None:
    api = Api(inside.transport())
    await api.create("pods", pod("a"))
    await api.create("deployments", deployment("a"))
    binding = {"metadata": {"name": "a", "annotations": {"a": "b"}}, "target": {"kind": "Node", "name": "n"}}
    for junk in JUNK:
        for path in places(binding):
            body = with_junk(binding, path, junk)
            answer = await api.request("POST", path_of("pods", "a", "binding"), body, dryRun="All")
            assert answer.code < 500 or answer.body["message"].startswith("target."), body
        eviction = await api.request("POST", path_of("pods", "a", "eviction"), {"deleteOptions": junk}, dryRun="All")
        assert eviction.code < 500
        for path in ((), ("spec",), ("spec", "replicas"), ("metadata",)):
            body = with_junk({"metadata": {}, "spec": {"replicas": 1}}, path, junk)
            assert (await api.patch("deployments", "a", body, "scale", dryRun="All")).code < 500, body
            assert (await api.request("PUT", path_of("deployments", "a", "scale"), body, dryRun="All")).code < 500, body
        assert (await api.patch("pods", "a", {"status": junk}, "status")).code < 500
        for field in ("preconditions", "gracePeriodSeconds", "propagationPolicy", "orphanDependents"):
            await api.create("configmaps", config_map("a"))
            assert (await api.delete("configmaps", "a", {field: junk})).code < 500, (field, junk)
        for operation in ({"op": junk, "path": "/x"}, {"op": "add", "path": junk, "value": 1}, junk):
            assert (await api.patch("pods", "a", [operation], kind=JSON_PATCH)).code < 500, operation


async def test_a_malformed_stored_object_affects_no_other_request() -> None:
    """An older server was less strict: stored objects are read as far as possible."""
    async with running_server() as (server, api):
        odd = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "odd", "namespace": "default"}, "spec": 5}
        server.load([odd])
        await api.create("pods", pod("good"))
        table = "application/json;as=Table;v=v1;g=meta.k8s.io"
        assert (await api.list("pods", fieldSelector="spec.nodeName=")).names == ["good", "odd"]
        assert len((await api.request("GET", "/api/v1/pods", accept=table)).body["rows"]) == 2
        assert (await api.delete("pods", "odd")).code < 500
