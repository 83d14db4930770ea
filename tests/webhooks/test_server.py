"""The webhook server and the callables for an API server in process: gpu:10.1."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pykai.api import names
from pykai.api.unstructured import JsonObject
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.errors import Forbidden
from pykai.kube.http import HttpTransport
from pykai.kube.resources import MUTATING_WEBHOOKS, PODS, RUNTIME_CLASSES, VALIDATING_WEBHOOKS
from pykai.kube.runtime import Runtime
from pykai.lab.apiserver.localtransport import LocalTransport
from pykai.lab.apiserver.patches import json_patch as apply_patch
from pykai.lab.apiserver.server import ApiServer
from pykai.lab.apiserver.users import User
from pykai.lab.machines.nodes import runtime_class
from pykai.operator.webhooks import Registration, webhook_configurations
from pykai.webhooks.admission import is_privileged, pod_mutator, pod_validator
from pykai.webhooks.handlers import pod_handlers
from pykai.webhooks.reviews import ReviewAnswer, ReviewRequest, json_diff
from pykai.webhooks.server import AdmissionServer
from pykai.webhooks.servingcertificates import CertificateFiles
from pykai.webhooks.table import MUTATE_PODS, VALIDATE_PODS
from tests.kube.certificates import Authority
from tests.servers import Server, api_server
from tests.webhooks.test_gpusharing import HALF, a_pod, letters, mutated

GUARDED = "guarded"
MUTATE_PATH, VALIDATE_PATH = MUTATE_PODS.path, VALIDATE_PODS.path
JANE = "system:serviceaccount:default:jane"


def write_certificate(folder: Path, name: str = "localhost") -> tuple[Path, Path]:
    """A self-signed certificate, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = folder / "tls.crt", folder / "tls.key"
    certificate_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate_file, key_file


def runtime_of_nothing() -> Runtime:
    """For what is made and not run."""
    client = Client(HttpTransport("http://127.0.0.1:1"))
    return Runtime(client, Caches(client), Clock())


def unchecked() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@asynccontextmanager
async def served(
    folder: Path, certificate: tuple[Path, Path] | None = None
) -> AsyncIterator[tuple[AdmissionServer, aiohttp.ClientSession]]:
    files = CertificateFiles(*(certificate or write_certificate(folder)))
    server = AdmissionServer(files, pod_handlers(random=letters), port=0)
    stop = asyncio.Event()
    running = asyncio.ensure_future(server.run(stop))
    await server.serving.wait()
    connector = aiohttp.TCPConnector(ssl=unchecked(), force_close=True)
    async with aiohttp.ClientSession(f"https://127.0.0.1:{server.port}", connector=connector) as session:
        yield server, session
    stop.set()
    await running


def review(
    pod: JsonObject, *, old: JsonObject | None = None, user: str = "jane", groups: tuple[str, ...] = ()
) -> JsonObject:
    request = {
        "uid": "review-1",
        "operation": "CREATE" if old is None else "UPDATE",
        "namespace": "ns",
        "userInfo": {"username": user, "groups": list(groups)},
        "object": pod,
        "oldObject": old,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


async def asked(session: aiohttp.ClientSession, path: str, body: Any) -> JsonObject:
    async with session.post(path, json=body) as answer:
        assert answer.status == 200
        document: JsonObject = await answer.json()
    assert (document["apiVersion"], document["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert document["response"]["uid"] == "review-1"
    response: JsonObject = document["response"]
    return response


async def test_reviews_over_https(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, session):
        pod = a_pod(HALF)
        response = await asked(session, MUTATE_PATH, review(pod))
        assert response["allowed"]
        assert response["patchType"] == "JSONPatch"
        operations = msgspec.json.decode(base64.b64decode(response["patch"]))
        patched = apply_patch(pod, operations)
        assert patched["metadata"]["annotations"] == mutated(pod)["metadata"]["annotations"]
        assert patched["spec"]["volumes"] == mutated(pod)["spec"]["volumes"]

        assert await asked(session, MUTATE_PATH, review(a_pod())) == {"uid": "review-1", "allowed": True}
        missing = a_pod({**HALF, names.GPU_FRACTION_CONTAINER_ANNOTATION: "x"})
        assert not (await asked(session, MUTATE_PATH, review(missing)))["allowed"]

        refused = await asked(session, VALIDATE_PATH, review(a_pod({"gpu-memory": "0"})))
        assert not refused["allowed"]
        assert refused["status"]["message"] == "gpu-memory annotation value must be a positive integer greater than 0"
        forged = a_pod(labels={"runai-gpu-group": "g"})
        assert not (await asked(session, VALIDATE_PATH, review(forged)))["allowed"]
        assert (await asked(session, VALIDATE_PATH, review(forged, groups=("system:masters",))))["allowed"]
        assert not (await asked(session, VALIDATE_PATH, review(a_pod(), old=a_pod(HALF))))["allowed"]

        async with session.post(MUTATE_PATH, data=b"nonsense") as answer:
            assert answer.status == 400
        async with session.get("/healthz") as answer:
            assert answer.status == 200


async def test_a_review_that_fails_is_no_answer(tmp_path: Path) -> None:
    async def fail(_: ReviewRequest) -> ReviewAnswer:
        raise KeyError("a bug")

    class Asked:
        async def read(self) -> bytes:
            return msgspec.json.encode(review(a_pod()))

    server = AdmissionServer(CertificateFiles(*write_certificate(tmp_path)), {})
    response = await server._answer(MUTATE_PATH, fail, Asked())  # type: ignore[arg-type]
    assert response.status == 500


async def shown(server: AdmissionServer) -> bytes:
    """The certificate that a new connection gets."""
    _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=unchecked())
    found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return found


async def test_a_flood_of_valid_and_invalid_reviews_is_answered(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, session):

        async def nonsense(number: int) -> int:
            async with session.post(MUTATE_PATH, data=b"{" * number) as answer:
                return answer.status

        refused = [asyncio.create_task(nonsense(number)) for number in range(40)]
        reviews = [asked(session, MUTATE_PATH, review(a_pod(HALF))) for _ in range(40)]
        assert all(answer["allowed"] for answer in await asyncio.gather(*reviews))
        assert set(await asyncio.gather(*refused)) == {400}


async def test_a_new_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    async with served(tmp_path) as (server, _):
        before = await shown(server)
        assert isinstance(server.certificate, CertificateFiles)
        assert not server.certificate.reload_if_changed()
        write_certificate(tmp_path, "other")
        assert server.certificate.reload_if_changed()
        assert await shown(server) != before


async def test_half_a_certificate_leaves_the_last_one(tmp_path: Path) -> None:
    certificate = CertificateFiles(*write_certificate(tmp_path))
    (tmp_path / "tls.crt").write_text("half")
    assert not certificate.reload_if_changed()
    write_certificate(tmp_path)
    assert certificate.reload_if_changed()


def test_a_patch_names_what_changed() -> None:
    old = {"a": {"x/y": 1, "gone": 2}, "list": [1], "same": {}}
    new = {"a": {"x/y": 3, "~new": 4}, "list": [1, 2], "same": {}}
    assert json_diff(old, new) == [
        {"op": "remove", "path": "/a/gone"},
        {"op": "replace", "path": "/a/x~1y", "value": 3},
        {"op": "add", "path": "/a/~0new", "value": 4},
        {"op": "replace", "path": "/list", "value": [1, 2]},
    ]


@pytest.mark.parametrize(
    ("user", "groups", "may"),
    [
        ("jane", (), False),
        ("jane", ("system:masters",), True),
        ("kubernetes-admin", (), True),
        ("system:serviceaccount:kai-scheduler:binder", (), True),
        ("system:serviceaccount:kai-scheduler-fake:binder", (), False),
        ("system:serviceaccount:kube-system:job-controller", (), False),
    ],
)
def test_privileged_users(user: str, groups: tuple[str, ...], may: bool) -> None:
    assert is_privileged(user, groups, "kai-scheduler") is may


@asynccontextmanager
async def guarded(folder: Path) -> AsyncIterator[Server]:
    """An API server that calls our webhooks for the pods of one namespace."""
    authority = Authority()
    issued = authority.issue("admission")
    files = folder / "tls.crt", folder / "tls.key"
    for file, content in zip(files, (issued.certificate, issued.key), strict=True):
        file.write_bytes(content)
    async with served(folder, files) as (hooks, _), api_server(Clock(), namespaces=[GUARDED]) as server:
        admin = Client(server.transport())
        made = webhook_configurations(Registration(address=f"https://127.0.0.1:{hooks.port}", authority=authority.pem))
        for resource, each in zip((MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS), made[:2], strict=True):
            hook = each["webhooks"][0]
            hook["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": GUARDED}}
            each["webhooks"] = [hook]
            await admin.create(resource, {**each, "metadata": {"name": "guard"}})
        async with asyncio.timeout(30):
            while not await works(admin):
                # The server rereads its configurations periodically.
                pass
        yield server


async def works(admin: Client) -> bool:
    """Whether both webhooks are called."""
    try:
        made = await admin.create(PODS, a_pod(HALF), GUARDED, dry_run=True)
        await admin.create(PODS, a_pod({names.GPU_FRACTION_ANNOTATION: "2"}), GUARDED, dry_run=True)
    except Forbidden:
        return names.SHARED_GPU_CONFIGMAP_ANNOTATION in made["metadata"]["annotations"]
    return False


async def test_an_api_server_calls_the_webhook_before_it_admits_a_pod(tmp_path: Path) -> None:
    async with guarded(tmp_path) as server:
        jane, binder = Client(server.transport(JANE)), Client(server.transport("binder"))
        made = await jane.create(PODS, a_pod(HALF), GUARDED)
        assert made["metadata"]["annotations"][names.SHARED_GPU_CONFIGMAP_ANNOTATION] == "p-xxxxxxx-shared-gpu"
        assert made["spec"]["runtimeClassName"] == "nvidia"
        assert made["spec"]["volumes"][0]["configMap"]["name"] == "p-xxxxxxx-shared-gpu-0"
        text = 'admission webhook "admission.kai-scheduler.svc" denied the request: '
        with pytest.raises(Forbidden, match=f"{text}.*cannot be changed"):
            await jane.patch(PODS, "p", {"metadata": {"annotations": {names.GPU_FRACTION_ANNOTATION: "0.6"}}}, GUARDED)
        label = {"metadata": {"labels": {names.GPU_GROUP_LABEL: "g"}}}
        with pytest.raises(Forbidden, match=f"{text}.*written by the binder only"):
            await jane.patch(PODS, "p", label, GUARDED)
        await binder.patch(PODS, "p", label, GUARDED)
        with pytest.raises(Forbidden, match=f"{text}.*positive number smaller"):
            await jane.create(PODS, a_pod({names.GPU_FRACTION_ANNOTATION: "2"}, name="q"), GUARDED)
        others = a_pod({names.GPU_FRACTION_ANNOTATION: "2"}, name="others")
        others["spec"]["schedulerName"] = "default-scheduler"
        await jane.create(PODS, others, GUARDED)
        whole = await jane.create(PODS, a_pod(limits={"nvidia.com/gpu": "1"}, name="whole"), GUARDED)
        assert "runtimeClassName" not in whole["spec"]


def bound(role: str, user: str, namespace: str) -> dict[str, Any]:
    """A ClusterRole for a user in a namespace."""
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": role, "namespace": namespace},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }


@pytest.mark.embedded_only("functions within its process are what only the embedded server asks")
async def test_the_embedded_server_admits_in_process() -> None:
    server = await ApiServer.open(clock=Clock(), mutators=[pod_mutator()], validators=[pod_validator()])
    try:
        admin, jane = Client(server.transport()), Client(server.transport("system:user:jane"))
        await admin.create(RUNTIME_CLASSES, runtime_class())
        server.load([bound("edit", "system:user:jane", "default")])
        made = await jane.create(PODS, a_pod(HALF), "default")
        prefix = made["metadata"]["annotations"][names.SHARED_GPU_CONFIGMAP_ANNOTATION]
        assert made["spec"]["volumes"][0]["configMap"]["name"] == f"{prefix}-0"
        with pytest.raises(Forbidden, match="cannot be changed"):
            await jane.patch(
                PODS, "p", {"metadata": {"annotations": {names.GPU_FRACTION_ANNOTATION: "0.6"}}}, "default"
            )
        label = {"metadata": {"labels": {names.GPU_GROUP_LABEL: "g"}}}
        with pytest.raises(Forbidden, match="written by the binder only"):
            await jane.patch(PODS, "p", label, "default")
        await admin.patch(PODS, "p", label, "default")
        mary = Client(LocalTransport(server.handler, User("mary", ("system:masters",))))
        await mary.patch(PODS, "p", {"metadata": {"labels": {names.GPU_GROUP_LABEL: "h"}}}, "default")
        with pytest.raises(Forbidden, match="positive number smaller"):
            await jane.create(PODS, a_pod({names.GPU_FRACTION_ANNOTATION: "2"}, name="q"), "default")
    finally:
        await server.close()
