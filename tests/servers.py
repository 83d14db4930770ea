"""The API server a test runs on: the embedded one, or, with `pytest --cluster`, a real kube-apiserver.

    async with api_server(clock) as server:
        client = Client(server.transport())

Tests cannot distinguish them, except those that inspect the embedded server (`embedded_only` with a reason).  The
real server is one for all tests of a worker: what a test has created is deleted when its block ends, and every test has
it to itself.  Only namespaces stay, since deleting them takes the real server seconds; `ensure_namespace` takes those
that are there.  A service uses its own account (`transport("binder")`), under its own role, and the policies of ours
are installed.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Protocol

from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.credentials import connect
from pykai.kube.errors import AlreadyExists
from pykai.kube.resources import NAMESPACES, RUNTIME_CLASSES
from pykai.kube.transport import Request, Response, Stream, Transport
from pykai.lab.apiserver.server import ApiServer
from pykai.lab.machines.nodes import runtime_class
from pykai.operator.install import installation, optional_role
from pykai.webhooks.admission import pod_mutator

if TYPE_CHECKING:
    from tests.cluster.plane import TestPlane

#: the real control plane of this process, if it has one; set by conftest.py
REAL: TestPlane | None = None
#: how many tests have opened a server
opened = 0

ACCOUNT = "system:serviceaccount:"
#: what each test makes for itself
NOT_INSTALLED = ("Queue", "PriorityClass")
_COLLECTION = re.compile(r"^(/api/v1|/apis/[^/]+/[^/]+)(/namespaces/[^/]+)?/([a-z]+)$")
#: collections that hold what all tests need: only what a test itself has created is deleted
_SHARED = frozenset(
    {
        "clusterrolebindings",
        "clusterroles",
        "customresourcedefinitions",
        "mutatingwebhookconfigurations",
        "priorityclasses",
        "rolebindings",
        "roles",
        "runtimeclasses",
        "serviceaccounts",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "validatingwebhookconfigurations",
    }
)


class Server(Protocol):
    """What tests know of a server."""

    def transport(self, user: str = "admin") -> Transport:
        """A way in, for the administrator, for one of our services, or for a service account by its full name
        (`system:serviceaccount:default:jane`), which may do everything."""
        ...

    def account(self, namespace: str, name: str) -> Transport:
        """A way in for a service account that may do what the roles of a test allow, at first next to nothing."""
        ...

    def compact(self) -> None:
        """Forget the past: watches of secrets that go on from before are answered 410, as are later pages of a list.

        On the real server this holds for secrets only: of other kinds its cache remembers what etcd has forgotten.
        """
        ...


class _Noting:
    """A transport that notes in which collections something was created."""

    def __init__(self, inner: Transport, created: set[str], lost: list[str] | None = None) -> None:
        self._inner = inner
        self._created = created
        #: what the server dropped from a write, if that is to be noted
        self._lost = lost

    async def send(self, request: Request) -> Response:
        path = request.path
        if request.method == "PATCH" and "fieldManager" in str(request.query):
            path = path.rpartition("/")[0]
        elif request.method != "POST":
            path = ""
        found = _COLLECTION.match(path)
        if found and found[3] not in _SHARED:
            self._created.add(path)
        response = await self._inner.send(request)
        # What was there before belongs to all tests, also if a test has asked for it.
        if found and found[3] in _SHARED and response.status == 201:
            self._created.add(f"{path}/{_name_in(response.body)}")
        if self._lost is not None and "unknown field" in response.headers.get("Warning", ""):
            self._lost.append(f"{request.method} {request.path}: {response.headers['Warning']}")
        return response

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        return self._inner.stream(request)

    async def close(self) -> None:
        """The connections are closed with the server: several clients of a test share them."""


def _name_in(body: bytes) -> str:
    """The name of the object that the server has answered with."""
    return str(json.loads(body)["metadata"]["name"])


class _EmbeddedServer(ApiServer):
    """The embedded server, whose users have rights as on the real one."""

    def transport(self, user: str = "admin") -> Transport:
        if user.startswith(ACCOUNT):
            self._open_account(user.removeprefix(ACCOUNT))
        return super().transport(user)

    def account(self, namespace: str, name: str) -> Transport:
        """Without rights of its own."""
        return super().transport(f"{ACCOUNT}{namespace}:{name}")

    def _open_account(self, account: str) -> None:
        namespace, _, name = account.partition(":")
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"{namespace}-{name}"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": name}],
        }
        self.load([binding])


class _RealServer:
    def __init__(self, plane: TestPlane) -> None:
        self._plane = plane
        self._created: set[str] = set()
        self._lost: list[str] = []
        self._transports: dict[str, Transport] = {}

    def transport(self, user: str = "admin") -> Transport:
        if user not in self._transports:
            self._transports[user] = connect(self._plane.kubeconfig_of_user(user))
        return _Noting(self._transports[user], self._created, None if user == "admin" else self._lost)

    def account(self, namespace: str, name: str) -> Transport:
        user = f"{ACCOUNT}{namespace}:{name} without rights"
        if user not in self._transports:
            self._transports[user] = connect(self._plane.kubeconfig_of_account(namespace, name))
        return _Noting(self._transports[user], self._created)

    def compact(self) -> None:
        self._plane.compact()

    async def close(self) -> None:
        try:
            await self._clean()
        finally:
            for transport in self._transports.values():
                await transport.close()
        assert not self._lost, f"a service wrote fields that the server drops: {self._lost}"

    async def _clean(self) -> None:
        admin = self._transports.get("admin") or connect(self._plane.kubeconfig)
        self._transports["admin"] = admin
        options = json.dumps({"gracePeriodSeconds": 0, "propagationPolicy": "Background"}).encode()
        paths = sorted(path for path in self._created if not path.endswith("/namespaces"))
        # Owners alone would leave work to the garbage collector, whose timing is its own.
        collections = [path for path in paths if _COLLECTION.match(path)]
        # A webhook that is still called may refuse the rest.
        for path in paths:
            if "webhookconfigurations/" in path:
                await _await_away(admin, path, options)
        for path in collections:
            await admin.send(Request("DELETE", path, body=options))
        for path in collections:
            await _force_away(admin, path, options)
        for path in paths:
            if path not in collections:
                await _await_away(admin, path, options)


async def _force_away(admin: Transport, path: str, options: bytes) -> None:
    """Take finalizers off what is held by them, until the collection is empty."""
    for _ in range(50):
        listed = await admin.send(Request("GET", path))
        # A kind whose definition is gone has nothing left.
        left = json.loads(listed.body).get("items") or [] if listed.status == 200 else []
        if not left:
            return
        for each in left:
            meta = each["metadata"]
            inside = f"/namespaces/{meta['namespace']}" if meta.get("namespace") and "/namespaces/" not in path else ""
            place, _, plural = path.rpartition("/")
            one = f"{place}{inside}/{plural}/{meta['name']}"
            if meta.get("finalizers"):
                patch = json.dumps({"metadata": {"finalizers": None}}).encode()
                await admin.send(Request("PATCH", one, body=patch, content_type="application/merge-patch+json"))
            await admin.send(Request("DELETE", one, body=options))
        await asyncio.sleep(0.02)
    raise AssertionError(f"{path} cannot be emptied: {[each['metadata']['name'] for each in left]}")


async def _await_away(admin: Transport, path: str, options: bytes) -> None:
    """Delete one object and wait until it is gone: a definition takes the objects of its kind with it."""
    async with asyncio.timeout(30):
        while (await admin.send(Request("DELETE", path, body=options))).status != 404:
            await asyncio.sleep(0.05)


@asynccontextmanager
async def api_server(clock: Clock, *, sharing: bool = False, namespaces: Iterable[str] = ()) -> AsyncIterator[Server]:
    """An empty server, with the definitions of our kinds, the runtime class of GPUs and these namespaces.

    With `sharing` pods of the namespace `ns` that share GPUs pass through our admission, whose letters are all x.
    """
    global opened
    opened += 1
    async with AsyncExitStack() as stack:
        server: Server
        if REAL is None:
            mutators = [pod_mutator(random=lambda count: "x" * count)] if sharing else []
            within = await _EmbeddedServer.open(clock=clock, mutators=mutators)
            left_out = (*NOT_INSTALLED, "CustomResourceDefinition")
            within.load(each for each in (*installation(), *optional_role("suspend")) if each["kind"] not in left_out)
            stack.push_async_callback(within.close)
            server = within
            await Client(within.transport()).create(RUNTIME_CLASSES, runtime_class())
        else:
            server = real = _RealServer(REAL)
            stack.push_async_callback(real.close)
        client = Client(server.transport())
        for name in namespaces:
            await ensure_namespace(client, name)
        yield server


async def ensure_namespace(client: Client, name: str) -> None:
    """A namespace that is there afterwards."""
    with suppress(AlreadyExists):
        await client.create(NAMESPACES, {"metadata": {"name": name}})


def embedded(server: Server) -> ApiServer:
    """The embedded server itself, for tests that are marked `embedded_only`."""
    assert isinstance(server, ApiServer), "mark this test embedded_only, with a reason"
    return server
