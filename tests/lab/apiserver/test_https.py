"""The HTTPS port: authentication, bodies, and watches over a socket.

This is about the embedded server's own port, tokens and hooks, not about Kubernetes.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from pykai.lab.apiserver.admission import AdmissionRequest
from pykai.lab.apiserver.server import ApiServer, is_loopback
from tests.lab.apiserver.apiclient import APPLY, Api, config_map, deployment, pod, running_server

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def server(inside: ApiServer) -> ApiServer:
    return inside


class Socket:
    """Requests over HTTPS with one token."""

    def __init__(self, session: aiohttp.ClientSession, server: ApiServer) -> None:
        self._session = session
        self._server = server

    async def ask(
        self, method: str, path: str, body: Any = None, *, user: str = "admin", token: str | None = None, **headers: str
    ) -> tuple[int, Any]:
        async with self.open(method, path, body, user=user, token=token, **headers) as response:
            text = await response.text()
            return response.status, json.loads(text) if text.startswith("{") else text

    @asynccontextmanager
    async def open(
        self, method: str, path: str, body: Any = None, *, user: str = "admin", token: str | None = None, **headers: str
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        token = self._server.tokens.tokens.get(user, "") if token is None else token
        if token:
            sent["Authorization"] = f"Bearer {token}"
        raw = json.dumps(body).encode() if isinstance(body, dict) else body
        async with self._session.request(
            method, f"https://localhost:{self._server.port}{path}", data=raw, headers=sent
        ) as response:
            yield response


@pytest.fixture
async def socket(server: ApiServer) -> AsyncIterator[Socket]:
    await server.serve()
    context = ssl.create_default_context(cadata=server.authority.pem.decode())
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        yield Socket(session, server)


async def test_strangers_learn_health_and_version_only(socket: Socket) -> None:
    assert (await socket.ask("GET", "/version", token=""))[0] == 200
    assert (await socket.ask("GET", "/healthz", token=""))[0] == 200
    for token in ("", "wrong"):
        code, status = await socket.ask("GET", PODS, token=token)
        assert (code, status["reason"]) == (401, "Unauthorized")
    assert (await socket.ask("GET", "/version", token="wrong"))[0] == 401


async def test_a_reader_reads(socket: Socket) -> None:
    assert (await socket.ask("GET", PODS, user="viewer"))[0] == 200
    code, status = await socket.ask("POST", PODS, pod("a"), user="viewer", Content_Type="application/json")
    assert code == 403
    assert status["message"] == (
        'pods is forbidden: User "viewer" cannot create resource "pods" in API group "" in the namespace "default"'
    )
    for method, path in (("PATCH", f"{PODS}/a"), ("DELETE", f"{PODS}/a"), ("DELETE", PODS), ("PUT", f"{PODS}/a")):
        assert (await socket.ask(method, path, user="viewer"))[0] == 403
    ask = {"spec": {"resourceAttributes": {"verb": "create", "resource": "pods"}}}
    review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert (await socket.ask("POST", review, ask, user="viewer"))[1]["status"]["allowed"] is False


async def test_a_token_of_any_bytes_is_no_error(server: ApiServer) -> None:
    port = await server.serve()
    reader, writer = await asyncio.open_connection(
        "localhost", port, ssl=ssl.create_default_context(cadata=server.authority.pem.decode())
    )
    writer.write(b"GET /api HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \xff\xfe\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 401 ")


async def test_the_body_of_an_unauthorised_request_is_not_awaited(socket: Socket) -> None:
    answered = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b"a: ["
        await answered.wait()

    async with socket.open("POST", PODS, body(), user="viewer", Content_Type="application/yaml") as response:
        assert response.status == 403
        answered.set()


@pytest.mark.parametrize("name", ["jane", "simulator", "system:user:jane", "system:serviceaccount:default:jane"])
async def test_a_name_alone_is_no_administrator(server: ApiServer, name: str) -> None:
    api = Api(server.transport(name))
    assert (await api.create("pods", pod("a"))).code == 403
    assert (await api.list("secrets")).code == 403
    assert (await Api(server.transport()).create("pods", pod("a"))).code == 201


async def test_services_have_their_own_names(socket: Socket) -> None:
    _, review = await socket.ask("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, user="binder")
    assert review["status"]["userInfo"]["username"] == "system:serviceaccount:kai-scheduler:binder"


async def test_bodies_in_yaml(socket: Socket) -> None:
    text = yaml.safe_dump(pod("a", annotations={"at": "2026-01-01T00:00:00Z"})).encode().replace(b"'", b"")
    code, created = await socket.ask("POST", PODS, text, Content_Type="application/yaml")
    assert code == 201
    assert created["metadata"]["annotations"] == {"at": "2026-01-01T00:00:00Z"}


async def test_bodies_that_cannot_be_read(socket: Socket) -> None:
    protobuf = "application/vnd.kubernetes.protobuf"
    assert (await socket.ask("POST", PODS, b"\x00\x01", Content_Type=protobuf))[0] == 400
    assert (await socket.ask("POST", PODS, b"a: [", Content_Type="application/yaml"))[0] == 400
    assert (await socket.ask("POST", PODS, b"<pod/>", Content_Type="application/xml"))[0] == 415


async def test_a_body_that_is_too_large_is_refused(socket: Socket) -> None:
    code, status = await socket.ask("POST", PODS, b" " * (4 << 20), Content_Type="application/json")
    assert (code, status["reason"]) == (413, "RequestEntityTooLarge")


async def test_writes_over_https_are_noted_with_their_manager(socket: Socket) -> None:
    agent = {"Content_Type": "application/json", "User_Agent": "tool/1.0 (linux)"}
    _, created = await socket.ask("POST", PODS, pod("a"), **agent)
    (entry,) = created["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("tool", "Update")


async def test_local_writes_are_tracked_on_applied_objects(server: ApiServer) -> None:
    api = Api(server.transport())
    assert "managedFields" not in (await api.create("deployments", deployment("a"))).meta
    await api.patch("deployments", "b", deployment("b"), kind=APPLY, fieldManager="me")
    changed = await api.patch("deployments", "b", {"spec": {"replicas": 3}}, fieldManager="scaler")
    assert [entry["manager"] for entry in changed.meta["managedFields"]] == ["me", "scaler"]


async def test_a_watch_over_https(socket: Socket, server: ApiServer) -> None:
    api = Api(server.transport())
    async with socket.open("GET", f"{PODS}?watch=true") as response:
        await api.create("pods", pod("a"))
        await api.delete("pods", "a")
        events = [json.loads(await response.content.readline()) for _ in range(2)]
    assert [event["type"] for event in events] == ["ADDED", "DELETED"]


async def test_tables_in_watches(socket: Socket, server: ApiServer) -> None:
    api = Api(server.transport())
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    async with socket.open("GET", f"{PODS}?watch=true", Accept=table) as response:
        await api.create("pods", pod("a"))
        await api.create("pods", pod("b"))
        first, second = [json.loads(await response.content.readline())["object"] for _ in range(2)]
    assert first["kind"] == "Table"
    assert [column["name"] for column in first["columnDefinitions"]][:3] == ["Name", "Ready", "Status"]
    assert second["columnDefinitions"] is None
    assert second["rows"][0]["cells"][:3] == ["b", "0/1", "Pending"]
    assert second["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


async def test_tables_of_lists_and_single_objects(api: Api) -> None:
    table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    await api.create("pods", pod("a"))
    for path in (PODS, f"{PODS}/a"):
        answer = await api.request("GET", path, accept=table, includeObject="Object")
        assert answer.body["kind"] == "Table"
        assert answer.body["rows"][0]["object"]["spec"]["schedulerName"] == "default-scheduler"
        assert answer.meta["resourceVersion"]


async def test_the_kubeconfig_holds_what_a_client_needs(tmp_path: Path) -> None:
    async with running_server() as (server, _):
        with pytest.raises(ValueError, match="serve"):
            server.kubeconfig(tmp_path / "early")
        port = await server.serve()
        server.kubeconfig(tmp_path / "config", user="viewer")
        config = yaml.safe_load((tmp_path / "config").read_text())
        assert config["clusters"][0]["cluster"]["server"] == f"https://127.0.0.1:{port}"
        assert config["users"][0]["user"]["token"] == server.tokens.tokens["viewer"]
        with pytest.raises(ValueError, match="no user"):
            server.kubeconfig(tmp_path / "config", user="nobody")


def test_loopback_addresses() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.8.8.8", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "10.0.0.1", "::", "example.com", "")))


async def test_a_public_address_logs_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async with running_server() as (server, _):
        await server.serve("127.0.0.1")
        assert caplog.records == []
        await server.serve("0.0.0.0")
        assert "0.0.0.0" in caplog.text


async def test_an_internal_failure_is_a_500_and_affects_no_other_request() -> None:
    def broken(request: AdmissionRequest) -> None:
        if request.name == "x":
            raise RuntimeError("a bug")

    async with running_server(validators=[broken]) as (_, api):
        answer = await api.create("configmaps", config_map("x"))
        assert (answer.code, answer.body["reason"]) == (500, "InternalError")
        assert (await api.create("configmaps", config_map("y"))).code == 201


async def test_a_failing_listener_affects_no_other(server: ApiServer, api: Api) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    server.storage.listeners.insert(0, broken)
    server.storage.collection(("", "configmaps")).listeners.append(broken)
    assert (await api.create("configmaps", config_map("x"))).code == 201
    assert (await api.list("configmaps")).names == ["x"]


async def test_yaml_says_nothing_that_json_cannot(socket: Socket) -> None:
    text = b"metadata: {name: y, labels: {1: one}}\ndata: {when: 2026-01-01, 2: two}\n"
    code, created = await socket.ask(
        "POST",
        "/api/v1/namespaces/default/configmaps",
        text.replace(b"labels: {1: one}", b"labels: {'1': one}"),
        Content_Type="application/yaml",
    )
    assert code == 201
    assert created["data"] == {"when": "2026-01-01", "2": "two"}


async def test_large_states_are_loaded_as_they_are(server: ApiServer, api: Api) -> None:
    running_pod = pod("a") | {"status": {"phase": "Running"}}
    running_pod["metadata"]["namespace"] = "default"
    running_pod["spec"]["nodeName"] = "n1"
    server.load([running_pod])
    assert (await api.list("pods", fieldSelector="spec.nodeName=n1,status.phase=Running")).names == ["a"]
