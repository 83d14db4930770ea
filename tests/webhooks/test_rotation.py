"""Certificates are made, rotated and reloaded while pods are created."""

from __future__ import annotations

import asyncio
import base64
import logging
import ssl

import pytest

from pykai.api import names
from pykai.kube.clock import Clock
from pykai.kube.resources import SECRETS, VALIDATING_WEBHOOKS
from pykai.operator.webhooks import Registration, webhook_configurations
from pykai.webhooks.rotator import bundle_patch
from pykai.webhooks.table import TLS_SECRET
from tests import servers
from tests.servers import api_server
from tests.services.servicecluster import RecordingTransport
from tests.webhooks.admissioncluster import Admission, admitted
from tests.webhooks.rotation import rotate, rotate_under_load
from tests.webhooks.test_server import shown

QUEUE_WEBHOOK = "kai-queue-validation-v2"


async def test_no_pod_is_refused_while_certificates_rotate() -> None:
    """operations:OD-1."""
    # A real API server reads registrations in the background.
    overlap = "2s" if servers.REAL else "0s"
    async with api_server(Clock()) as server, admitted(server, certificate_overlap=overlap) as admission:
        load = await rotate_under_load(admission, 2)
        assert load.failures == []
        assert len(set(load.certificates)) == 3


async def until_served(admission: Admission, certificate: str) -> None:
    """Wait until new connections get the certificate of the Secret."""
    chain = base64.b64decode(certificate).decode()
    async with asyncio.timeout(30):
        while ssl.DER_cert_to_PEM_cert(await shown(admission.server)).strip() not in chain:
            pass


async def test_replicas_serve_the_same_certificate_and_one_rotates_it(caplog: pytest.LogCaptureFixture) -> None:
    """operations:6."""
    caplog.set_level(logging.DEBUG)
    async with api_server(Clock()) as server, admitted(server, leader_elect="true") as first:
        second = Admission(server, {"leader-elect": "true"}, server.transport("admission"))
        await second.start()
        try:
            before = (await first.secret())["data"]
            assert await shown(first.server) == await shown(second.server)
            certificate = await rotate(first, before["serving.crt"])
            for replica in (first, second):
                await until_served(replica, certificate)
            after = (await first.secret())["data"]
            assert after["ca.crt"] != before["ca.crt"]
            # The leader ends; the other one takes over.
            await first.end()
            certificate = await rotate(second, certificate)
            await until_served(second, certificate)
        finally:
            await second.end()
    for data in (before, after):
        for key in ("serving.key", "serving.crt"):
            assert data[key] not in caplog.text
            assert base64.b64decode(data[key]).decode().splitlines()[1] not in caplog.text


async def test_what_others_add_to_a_registration_stays() -> None:
    """operations:O-30."""
    async with api_server(Clock()) as server, admitted(server) as admission:
        admin = admission.admin
        found = await admin.get_raw(VALIDATING_WEBHOOKS, QUEUE_WEBHOOK)
        (hook,) = found["webhooks"]
        hook["timeoutSeconds"] = 3
        hook["objectSelector"] = {"matchExpressions": [{"key": "cloud", "operator": "DoesNotExist"}]}
        del hook["clientConfig"]["caBundle"]
        found["metadata"]["annotations"] = {"cloud": "was here"}
        await admin.update(VALIDATING_WEBHOOKS, found)
        async with asyncio.timeout(30):
            while "caBundle" not in hook["clientConfig"]:
                await asyncio.sleep(0)
                found = await admin.get_raw(VALIDATING_WEBHOOKS, QUEUE_WEBHOOK)
                (hook,) = found["webhooks"]
        assert found["metadata"]["annotations"] == {"cloud": "was here"}
        assert hook["timeoutSeconds"] == 3
        assert hook["objectSelector"]["matchExpressions"][0]["key"] == "cloud"


@pytest.mark.parametrize("namespace", ["kai-scheduler", "gpu-platform"])
def test_a_registration_that_has_the_authorities_is_left_alone(namespace: str) -> None:
    """operations:O-30; install:places: only webhooks of ours that lack them are written."""
    for registration in webhook_configurations(Registration(namespace, authority=b"old")):
        scan = {"name": "scan.example.com", "clientConfig": {"caBundle": "old"}}
        registration["webhooks"].insert(0, scan)
        count = len(registration["webhooks"])
        patches = list(bundle_patch(registration, "new", namespace))
        paths = [f"/webhooks/{index}/clientConfig/caBundle" for index in range(1, count)]
        assert patches == [{"op": "add", "path": path, "value": "new"} for path in paths]
        for webhook in registration["webhooks"]:
            webhook["clientConfig"]["caBundle"] = "new"
        assert list(bundle_patch(registration, "new", namespace)) == []


async def test_a_secret_that_is_emptied_is_filled_again() -> None:
    async with api_server(Clock()) as server, admitted(server) as admission:
        served = await shown(admission.server)
        await admission.admin.patch(SECRETS, TLS_SECRET, {"data": None}, names.DEFAULT_NAMESPACE)
        async with asyncio.timeout(30):
            while not (await admission.secret()).get("data"):
                assert await shown(admission.server)
            while await shown(admission.server) == served:
                pass


async def test_between_changes_nothing_is_read() -> None:
    """A change wakes the rotator once; otherwise it would ask the server for the Secret again and again."""
    async with api_server(Clock()) as server:
        wire = RecordingTransport(server.transport("admission"))
        async with admitted(server, wire=wire) as admission:

            def reads() -> int:
                return sum(each.endswith(f"/secrets/{TLS_SECRET}") for each in wire.reads)

            # The last event of a registration may still be on its way.
            before = reads()
            for _ in range(300):
                await admission.secret()
                # The embedded server answers without ever waiting; the rotator gets its turns.
                await asyncio.sleep(0)
            assert reads() - before < 10
