"""The webhooks of PodGroups and pods at the cluster of an attack: their rules about what runs already.

Rules about queues are left out: the attacks on queues show what the other services do alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pykai.api import names
from pykai.kube.caches import Caches
from pykai.kube.certificates import CertificateAuthority
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.runtime import Runtime, run_services
from pykai.lab.apiserver.server import ApiServer
from pykai.operator.webhooks import Registration, webhook_configurations
from pykai.webhooks import table
from pykai.webhooks.handlers import object_handlers, pod_handlers
from pykai.webhooks.protection import ProtectionCheck
from pykai.webhooks.server import AdmissionServer
from pykai.webhooks.servingcertificates import CertificateFiles
from pykai.webhooks.topologylookups import TopologyLookups

_HOST = "127.0.0.1"
_NAMES = tuple(each.name_in(names.DEFAULT_NAMESPACE) for each in (table.VALIDATE_PODS, table.VALIDATE_POD_GROUPS))


@asynccontextmanager
async def protecting_admission(api_server: ApiServer) -> AsyncIterator[None]:
    """The webhooks answer, and the API server asks them."""
    client = Client(api_server.transport("admission"))
    runtime = Runtime(client, Caches(client), Clock())
    protection = ProtectionCheck(runtime)
    handlers = {
        **pod_handlers(protection=protection),
        **object_handlers(TopologyLookups(runtime), protection=protection),
    }
    authority = CertificateAuthority.create("attack")
    stop = asyncio.Event()
    with TemporaryDirectory() as folder:
        files = Path(folder) / "tls.crt", Path(folder) / "tls.key"
        pair = authority.issue([_HOST])
        for file, content in zip(files, (pair.certificate, pair.key), strict=True):
            file.write_bytes(content)
        server = AdmissionServer(CertificateFiles(*files), handlers, host=_HOST, port=0)
        running = asyncio.create_task(run_services(runtime, [server], stop))
        try:
            await server.serving.wait()
            registration = Registration(address=f"https://{_HOST}:{server.port}", authority=authority.pem)
            for each in webhook_configurations(registration):
                webhooks = [webhook for webhook in each["webhooks"] if webhook["name"] in _NAMES]
                if each["kind"].startswith("Validating") and webhooks:
                    api_server.load([{**each, "webhooks": webhooks}])
            yield
        finally:
            stop.set()
            await running
