"""The admission service under its own account, registered at the API server of a test.

    async with admitted(server) as admission:
        await admission.admin.create(QUEUES, ...)

The API server reaches it on loopback, with a certificate that the service has made.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from pykai.api import names
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.errors import Forbidden, ServerError
from pykai.kube.resources import (
    MUTATING_WEBHOOKS,
    POD_GROUPS,
    PODS,
    QUEUES,
    SECRETS,
    TOPOLOGIES,
    VALIDATING_WEBHOOKS,
    Resource,
)
from pykai.kube.runtime import Runtime, run_services
from pykai.kube.transport import Transport
from pykai.operator.webhooks import Registration, admission_objects
from pykai.webhooks.options import make_admission, read_options
from pykai.webhooks.rotator import CertificateRotator
from pykai.webhooks.server import AdmissionServer
from pykai.webhooks.table import TLS_SECRET
from tests.servers import Server, ensure_namespace

Document = dict[str, Any]
#: objects that are refused, one for each webhook that validates
REFUSED: tuple[tuple[Resource, Document, str], ...] = (
    (QUEUES, {"metadata": {"name": "probe"}, "spec": {}}, ""),
    (POD_GROUPS, {"metadata": {"name": "probe"}, "spec": {"minMember": 1, "minSubGroup": 1}}, "default"),
    (
        TOPOLOGIES,
        {"metadata": {"name": "probe"}, "spec": {"levels": [{"nodeLabel": "a", "alias": "a"}]}},
        "",
    ),
    (
        PODS,
        {
            "metadata": {"name": "probe", "annotations": {names.GPU_FRACTION_ANNOTATION: "2"}},
            "spec": {"schedulerName": names.SCHEDULER_NAME, "containers": [{"name": "c", "image": "i"}]},
        },
        "default",
    ),
)
_DENIED = "denied the request"
_FLAGS: Mapping[str, str] = {
    "webhook-addr": "0",
    "certificate-hosts": "127.0.0.1",
    "certificate-overlap": "0s",
    "gpu-sharing-enabled": "true",
}


class Admission:
    """The service, and the API server that asks it."""

    def __init__(self, server: Server, flags: Mapping[str, str], wire: Transport) -> None:
        self.api_server = server
        self.namespace = flags.get("namespace", names.DEFAULT_NAMESPACE)
        self.admin = Client(server.transport())
        client = Client(wire)
        self.runtime = Runtime(client, Caches(client), Clock())
        self.services = make_admission(self.runtime, read_options({**_FLAGS, **flags}))
        (self.server,) = (each for each in self.services if isinstance(each, AdmissionServer))
        self._stop = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Run until it serves."""
        self._running = asyncio.create_task(run_services(self.runtime, self.services, self._stop))
        serving = asyncio.create_task(self.server.serving.wait())
        await asyncio.wait((self._running, serving), return_when=asyncio.FIRST_COMPLETED)
        serving.cancel()
        if self._running.done():
            self._running.result()

    async def end(self) -> None:
        """Stop serving; the registrations stay."""
        self._stop.set()
        if self._running is not None:
            await self._running

    @property
    def rotator(self) -> CertificateRotator:
        """What keeps the certificate valid."""
        (found,) = (each for each in self.services if isinstance(each, CertificateRotator))
        return found

    async def secret(self) -> Document:
        """The Secret with the certificate."""
        return await self.admin.get_raw(SECRETS, TLS_SECRET, self.namespace)

    async def another_certificate(self, served: str) -> str:
        """Wait until the Secret has a certificate that is not this one."""
        field = f"metadata.name={TLS_SECRET}"
        store = self.runtime.caches.store(SECRETS, dict, namespace=self.namespace, field_selector=field)

        def certificates() -> list[str]:
            found = [(each.get("data") or {}).get("serving.crt", "") for each in store.values()]
            return [each for each in found if each not in ("", served)]

        await store.wait_until(lambda _: bool(certificates()), 120)
        return certificates()[0]

    async def register(self, objects: Iterable[Document]) -> None:
        """Register the webhooks of these objects, and wait until the API server asks all of them."""
        for each in objects:
            if "webhooks" in each:
                kind = MUTATING_WEBHOOKS if each["kind"].startswith("Mutating") else VALIDATING_WEBHOOKS
                await self.admin.create(kind, {**each, "webhooks": [self._reachable(one) for one in each["webhooks"]]})
        for resource, document, namespace in REFUSED:
            await self._until_refused(resource, document, namespace)

    def _reachable(self, webhook: Document) -> Document:
        """On loopback: no pods are behind its Service."""
        path = webhook["clientConfig"]["service"]["path"]
        return {**webhook, "clientConfig": {"url": f"https://127.0.0.1:{self.server.port}{path}"}}

    async def _until_refused(self, resource: Resource, document: Mapping[str, Any], namespace: str) -> None:
        answer = ""
        try:
            async with asyncio.timeout(60):
                while _DENIED not in answer:
                    answer = await self._answer_to(resource, document, namespace)
        except TimeoutError as error:
            raise AssertionError(f"no webhook refuses a wrong {resource.kind}, the server says: {answer}") from error

    async def _answer_to(self, resource: Resource, document: Mapping[str, Any], namespace: str) -> str:
        """What the API server says to an object that is not stored."""
        try:
            await self.admin.create(resource, document, namespace, dry_run=True)
        except (Forbidden, ServerError) as error:
            # A server error: the registration has no authority yet.
            return str(error)
        return "created"


@asynccontextmanager
async def admitted(
    server: Server, *, wire: Transport | None = None, registered: Sequence[Document] | None = None, **flags: str
) -> AsyncIterator[Admission]:
    """The service with these flags (`-` is written `_`), asked by the API server; `wire` is how it talks to it, and
    `registered` has the Secret and the registrations, which are those of `kai manifests` otherwise."""
    given = {name.replace("_", "-"): value for name, value in flags.items()}
    admission = Admission(server, given, wire or server.transport("admission"))
    objects = admission_objects(Registration(admission.namespace)) if registered is None else registered
    await ensure_namespace(admission.admin, admission.namespace)
    for each in objects:
        if each["kind"] == "Secret":
            await admission.admin.create(SECRETS, each, admission.namespace)
    await admission.start()
    try:
        await admission.register(objects)
        yield admission
    finally:
        await admission.end()
