"""The control plane that the tests of a run share: definitions, accounts and roles installed, admission at work.

Only the garbage collector, the namespace controller and the one that fills the roles `admin`, `edit` and `view` run
beside it, as in the embedded server: the tests of single services play the other controllers themselves.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from pykai.api import names
from pykai.kube.client import Client
from pykai.kube.credentials import connect
from pykai.kube.errors import AlreadyExists, Forbidden, NotFound
from pykai.kube.resources import MUTATING_WEBHOOKS, PODS, Resource
from pykai.kube.transport import Request, Transport
from pykai.lab.machines.nodes import runtime_class
from pykai.operator.install import installation, optional_role
from pykai.operator.webhooks import Registration, webhook_configurations
from pykai.services.table import account_rules
from pykai.webhooks.admission import random_letters
from pykai.webhooks.handlers import pod_handlers
from pykai.webhooks.server import AdmissionServer
from pykai.webhooks.servingcertificates import CertificateFiles
from tests.cluster.controlplane import API_SERVER, ControlPlane
from tests.kube.certificates import Authority
from tests.servers import ACCOUNT, NOT_INSTALLED

#: where pods pass through our admission
ADMITTED_NAMESPACE = "ns"


class TestPlane(ControlPlane):
    """A control plane, and its users."""

    __test__ = False

    def __init__(self, folder: Path) -> None:
        # Without a cache in front of etcd its compaction shows: a watch of secrets can be too old (`compact`).
        # Devices in the place of extended resources are new in this version, and off by default.
        # So are gangs (tests/services/podgrouper/test_gangs.py).
        options = {
            API_SERVER: [
                "--watch-cache-sizes=secrets#0",
                "--feature-gates=DRAExtendedResource=true,GenericWorkload=true",
                "--runtime-config=scheduling.k8s.io/v1alpha1=true",
            ]
        }
        controllers = (
            "garbage-collector-controller",
            "namespace-controller",
            "clusterrole-aggregation-controller",
        )
        # Tests of the operator delete the accounts of services and make them again.
        services = [(names.DEFAULT_NAMESPACE, account) for account in account_rules()]
        super().__init__(folder, controllers=controllers, audit=True, options=options, lasting_accounts=services)
        self._kubeconfigs: dict[str, Path] = {}

    def kubeconfig_of_user(self, user: str) -> Path:
        """That of the administrator, of one of our services under its own role, or of a service account by its full
        name, which may do everything."""
        if user == "admin":
            return self.kubeconfig
        if user not in self._kubeconfigs:
            namespace, name = names.DEFAULT_NAMESPACE, user
            if user.startswith(ACCOUNT):
                namespace, name = user.removeprefix(ACCOUNT).split(":")
                self._open_account(namespace, name)
            else:
                assert user in account_rules(), (
                    f"{user} is none of {sorted(account_rules())}, and does not begin with {ACCOUNT}"
                )
            self._kubeconfigs[user] = self.kubeconfig_of(namespace, name)
        return self._kubeconfigs[user]

    def kubeconfig_of_account(self, namespace: str, name: str) -> Path:
        """That of a service account without rights."""
        user = f"{namespace}/{name}"
        if user not in self._kubeconfigs:
            with suppress(HTTPError):
                # It may exist from the test before.
                self._ask(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})
            self._kubeconfigs[user] = self.kubeconfig_of(namespace, name)
        return self._kubeconfigs[user]

    def _open_account(self, namespace: str, name: str) -> None:
        subject = {"kind": "ServiceAccount", "namespace": namespace, "name": name}
        binding = {
            "metadata": {"name": f"{namespace}-{name}"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [subject],
        }
        self._ask(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})
        self._ask("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)


@contextmanager
def running_plane(folder: Path) -> Iterator[TestPlane]:
    """Start everything."""
    selected = {"matchLabels": {"kubernetes.io/metadata.name": ADMITTED_NAMESPACE}}
    with TestPlane(folder) as plane, admission(plane, selected, lambda count: "x" * count) as webhook:
        objects = [each for each in (*installation(), *optional_role("suspend")) if each["kind"] not in NOT_INSTALLED]
        asyncio.run(_install(plane, [*objects, runtime_class()], webhook))
        plane.start_controllers()
        yield plane


async def _install(plane: TestPlane, objects: list[dict[str, Any]], webhook: Mapping[str, Any]) -> None:
    transport = connect(plane.kubeconfig)
    try:
        await install(transport, objects)
        client = Client(transport)
        await _settled(client)
        await client.create(MUTATING_WEBHOOKS, webhook)
    finally:
        await transport.close()


async def _settled(client: Client) -> None:
    """Wait until the admission of the API server has seen the runtime class: it answers before it has."""
    spec = {"runtimeClassName": names.GPU_RUNTIME_CLASS, "containers": [{"name": "main", "image": "example"}]}
    async with asyncio.timeout(60):
        while True:
            try:
                await client.create(PODS, {"metadata": {"name": "probe"}, "spec": spec}, "default", dry_run=True)
                return
            except (NotFound, Forbidden):
                await asyncio.sleep(0.05)


async def install(transport: Transport, objects: list[dict[str, Any]]) -> None:
    """Create objects of any kind that do not exist yet; kinds whose definition was just created are awaited."""
    client = Client(transport)
    for each in objects:
        resource = await _resource(transport, each["apiVersion"], each["kind"])
        with suppress(AlreadyExists):
            await client.create(resource, each, each["metadata"].get("namespace", ""))
    for each in objects:
        if each["kind"] == "CustomResourceDefinition":
            spec = each["spec"]
            for version in spec["versions"]:
                await _resource(transport, f"{spec['group']}/{version['name']}", spec["names"]["kind"])


async def _resource(transport: Transport, api_version: str, kind: str) -> Resource:
    group, _, version = api_version.rpartition("/")
    root = f"/apis/{api_version}" if group else f"/api/{api_version}"
    async with asyncio.timeout(30):
        while True:
            answer = await transport.send(Request("GET", root))
            # A group of which nothing is served yet is not found.
            listed = json.loads(answer.body).get("resources") if answer.status == 200 else None
            for each in listed or ():
                if each["kind"] == kind and "/" not in each["name"]:
                    return Resource(group, version, each["name"], kind, each["namespaced"])
            await asyncio.sleep(0.1)


@contextmanager
def admission(
    plane: ControlPlane, namespaces: Mapping[str, Any], random: Callable[[int], str] = random_letters
) -> Iterator[dict[str, Any]]:
    """Our webhook server in a thread of its own; yields what registers it for the namespaces of a selector."""
    authority = Authority()
    issued = authority.issue("admission")
    certificate, key = plane.folder / "admission.crt", plane.folder / "admission.key"
    certificate.write_bytes(issued.certificate)
    key.touch(0o600)
    key.write_bytes(issued.key)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = AdmissionServer(CertificateFiles(certificate, key), pod_handlers(random=random), port=0)
    stop = asyncio.Event()
    working = asyncio.run_coroutine_threadsafe(server.run(stop), loop)
    try:
        asyncio.run_coroutine_threadsafe(server.serving.wait(), loop).result(10)
        yield registration(f"https://127.0.0.1:{server.port}", authority.pem, namespaces)
    finally:
        loop.call_soon_threadsafe(stop.set)
        working.result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def registration(address: str, authority: bytes, namespaces: Mapping[str, Any]) -> dict[str, Any]:
    """What makes the API server call our webhook for new pods in the namespaces of a selector."""
    mutating, *_ = webhook_configurations(Registration(address=address, authority=authority))
    (hook,) = mutating["webhooks"]
    hook["namespaceSelector"] = namespaces
    # Tests of admission register theirs under KAI's name.
    return {**mutating, "metadata": {"name": "sharing-in-tests"}}
