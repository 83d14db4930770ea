"""Asking a server in the test's own process, in the words of HTTP.

api = Api(server.transport())
answer = await api.create("pods", pod("web"))
assert answer.code == 201
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from pykai.kube.clock import Clock
from pykai.kube.transport import Request, Transport
from pykai.lab.apiserver.server import ApiServer

Object = dict[str, Any]

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

_GROUPS = {
    "deployments": "apps/v1",
    "replicasets": "apps/v1",
    "statefulsets": "apps/v1",
    "jobs": "batch/v1",
    "leases": "coordination.k8s.io/v1",
    "poddisruptionbudgets": "policy/v1",
    "runtimeclasses": "node.k8s.io/v1",
    "priorityclasses": "scheduling.k8s.io/v1",
    "customresourcedefinitions": "apiextensions.k8s.io/v1",
    "mutatingwebhookconfigurations": "admissionregistration.k8s.io/v1",
    "resourceclaims": "resource.k8s.io/v1",
    "validatingwebhookconfigurations": "admissionregistration.k8s.io/v1",
    "queues": "scheduling.run.ai/v2",
    "podgroups": "scheduling.run.ai/v2alpha2",
    "bindrequests": "scheduling.run.ai/v1alpha2",
    "topologies": "kai.scheduler/v1alpha1",
    "widgets": "example.com/v1",
}
_CLUSTER = frozenset(
    {
        "nodes",
        "namespaces",
        "priorityclasses",
        "runtimeclasses",
        "queues",
        "topologies",
        "customresourcedefinitions",
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
    }
)


@dataclass(frozen=True)
class Answer:
    """Code, object and headers of an answer."""

    code: int
    body: Any
    headers: Mapping[str, str]

    @property
    def meta(self) -> Object:
        """Metadata of the object."""
        found: Object = self.body["metadata"]
        return found

    @property
    def names(self) -> list[str]:
        """Names of the items of a list."""
        return [item["metadata"]["name"] for item in self.body["items"]]

    def ok(self) -> Answer:
        """This answer, unless it is a refusal."""
        assert self.code < 300, self.body
        return self


def path_of(plural: str, name: str = "", subresource: str = "", namespace: str | None = "default") -> str:
    """The path of a resource; `namespace=None` is all of them."""
    version = _GROUPS.get(plural)
    root = f"/apis/{version}" if version else "/api/v1"
    if plural not in _CLUSTER and namespace is not None:
        root += f"/namespaces/{namespace}"
    return "/".join(part for part in (f"{root}/{plural}", name, subresource) if part)


class Api:
    """Requests of one user."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        **query: str,
    ) -> Answer:
        """Any request."""
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        query = {name.rstrip("_"): value for name, value in query.items()}
        response = await self.transport.send(Request(method, path, query, raw, content_type, accept=accept))
        try:
            decoded = json.loads(response.body) if response.body else None
        except ValueError:
            decoded = response.body
        return Answer(response.status, decoded, response.headers)

    async def create(self, plural: str, obj: Object, namespace: str = "default", **query: str) -> Answer:
        """POST."""
        return await self.request("POST", path_of(plural, namespace=namespace), obj, **query)

    async def get(self, plural: str, name: str, namespace: str = "default", **query: str) -> Answer:
        """GET of one object."""
        return await self.request("GET", path_of(plural, name, namespace=namespace), **query)

    async def list(self, plural: str, namespace: str | None = "default", **query: str) -> Answer:
        """GET of many."""
        return await self.request("GET", path_of(plural, namespace=namespace), **query)

    async def put(self, plural: str, obj: Object, subresource: str = "", **query: str) -> Answer:
        """PUT of an object where it says it is."""
        meta = obj["metadata"]
        path = path_of(plural, meta["name"], subresource, meta.get("namespace", "default"))
        return await self.request("PUT", path, obj, **query)

    async def patch(
        self, plural: str, name: str, patch: Any, subresource: str = "", kind: str = MERGE, **query: str
    ) -> Answer:
        """PATCH, a merge patch unless said otherwise."""
        return await self.request("PATCH", path_of(plural, name, subresource), patch, content_type=kind, **query)

    async def delete(self, plural: str, name: str, options: Object | None = None, **query: str) -> Answer:
        """DELETE."""
        return await self.request("DELETE", path_of(plural, name), options, **query)

    async def bind(self, pod: str, node: str, **metadata: Any) -> Answer:
        """Bind a pod, and wait until the server's own cache knows: a real one deletes by what that says."""
        answer = await self.request(
            "POST", path_of("pods", pod, "binding"), {"metadata": {"name": pod, **metadata}, "target": {"name": node}}
        )
        while answer.code == 201:
            cached = await self.request("GET", path_of("pods", pod), resourceVersion="0")
            if cached.body["spec"].get("nodeName"):
                break
        return answer

    @asynccontextmanager
    async def watch(self, plural: str, namespace: str | None = "default", **query: str) -> AsyncIterator[WatchEvents]:
        """A watch, from its beginning."""
        asked = Request("GET", path_of(plural, namespace=namespace), {"watch": "true", **query})
        async with self.transport.stream(asked) as stream:
            assert stream.status == 200
            yield WatchEvents(stream.chunks())

    async def define(self, obj: Object) -> Answer:
        """Create a CustomResourceDefinition and wait until its kind is served."""
        created = (await self.create("customresourcedefinitions", obj)).ok()
        spec = obj["spec"]
        for version in spec["versions"]:
            path = f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}"
            await self.until(partial(self.request, "GET", path), lambda answer: answer.code == 200)
        return created

    async def until(self, ask: Callable[[], Awaitable[Answer]], holds: Callable[[Answer], bool]) -> Answer:
        """Repeat a request until the answer is as wanted: a server's own changes take effect with a delay."""
        async with asyncio.timeout(20):
            while not holds(answer := await ask()):
                await asyncio.sleep(0.02)
        return answer

    async def gone(self, plural: str, name: str, namespace: str = "default") -> None:
        """Wait until an object is gone."""
        query = {"watch": "true", "fieldSelector": f"metadata.name={name}", "timeoutSeconds": "10"}
        asked = Request("GET", path_of(plural, namespace=namespace), query)
        async with self.transport.stream(asked) as stream:
            if (await self.get(plural, name, namespace)).code == 404:
                return
            watched = WatchEvents(stream.chunks())
            while (await watched.next())[0] != "DELETED":
                pass


class WatchEvents:
    """Events of a watch, one by one."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._lines: list[bytes] = []

    async def next(self) -> tuple[str, Object]:
        """The next event: type and object."""
        async with asyncio.timeout(10):
            while not self._lines:
                self._lines = (await anext(self._chunks)).splitlines()
        event = json.loads(self._lines.pop(0))
        return event["type"], event["object"]

    async def take(self, count: int) -> list[tuple[str, str]]:
        """So many events, as type and name."""
        found = [await self.next() for _ in range(count)]
        return [(type_, obj["metadata"].get("name", "")) for type_, obj in found]

    async def rest(self) -> list[tuple[str, Object]]:
        """Everything up to the end of the watch."""
        found = []
        while True:
            try:
                found.append(await self.next())
            except StopAsyncIteration:
                return found


@asynccontextmanager
async def running_server(**options: Any) -> AsyncIterator[tuple[ApiServer, Api]]:
    """A server and its administrator."""
    options.setdefault("clock", Clock())
    server = await ApiServer.open(**options)
    try:
        yield server, Api(server.transport())
    finally:
        await server.close()


def pod(name: str = "", **fields: Any) -> Object:
    """A pod; `spec` fields by name, `labels`, `annotations`, `owners` and `generate_name` of its metadata."""
    metadata: Object = {"name": name} if name else {}
    for field, key in (
        ("labels", "labels"),
        ("annotations", "annotations"),
        ("owners", "ownerReferences"),
        ("generate_name", "generateName"),
        ("finalizers", "finalizers"),
    ):
        if field in fields:
            metadata[key] = fields.pop(field)
    spec = {"containers": [{"name": "main", "image": "registry.example/web:1"}], **fields}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def config_map(name: str, **metadata: Any) -> Object:
    """A config map without data."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}


def deployment(name: str, replicas: int = 1, labels: Mapping[str, str] | None = None) -> Object:
    """A deployment of one container."""
    chosen = dict(labels or {"app": name})
    template = {"metadata": {"labels": chosen}, "spec": pod()["spec"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": chosen}, "template": template},
    }


def owned_by(owner: Object, **more: Any) -> list[Object]:
    """References to one owner."""
    meta = owner["metadata"]
    return [
        {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"], **more}
    ]


def definition(kind: str = "Widget", *, properties: Object | None = None, **version: Any) -> Object:
    """A CustomResourceDefinition in example.com with one version."""
    spec_schema = {"type": "object", "properties": properties or {"size": {"type": "integer", "minimum": 0}}}
    schema = {
        "type": "object",
        "properties": {
            "spec": spec_schema,
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    plural = kind.lower() + "s"
    served = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "shortNames": ["wd"]},
            "versions": [served],
        },
    }


def widget(name: str, **spec: Any) -> Object:
    """An object of that definition."""
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec}
