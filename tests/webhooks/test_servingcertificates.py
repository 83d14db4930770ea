"""Which certificate of a Secret is served."""

from __future__ import annotations

import asyncio
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from pykai.api import names
from pykai.kube.resources import SECRETS
from pykai.webhooks.metrics import AdmissionMetrics
from pykai.webhooks.server import AdmissionServer
from pykai.webhooks.servingcertificates import CertificateFiles, SecretCertificate
from pykai.webhooks.tlssecret import CertificateStep, changed_secret, expiry
from tests.webhooks.test_server import runtime_of_nothing, write_certificate

NAMESPACE, NAME = "ns", "s"
METADATA = {"name": NAME, "namespace": NAMESPACE}
EXPIRY = f"{names.METRICS_NAMESPACE}_admission_certificate_expiry_timestamp_seconds"


def a_secret() -> dict[str, Any]:
    return changed_secret({"metadata": METADATA}, CertificateStep.FILL, ("a.svc",), datetime.now(UTC))


async def test_the_newest_pair_of_the_secret_is_served() -> None:
    """operations:O-43."""
    runtime, registry = runtime_of_nothing(), CollectorRegistry()
    certificate = SecretCertificate(runtime, namespace=NAMESPACE, name=NAME, metrics=AdmissionMetrics(registry))
    store = runtime.caches.store(SECRETS, dict, namespace=NAMESPACE, field_selector=f"metadata.name={NAME}")
    store.subscribe(certificate._on_change)
    assert not certificate.loaded.is_set()
    store.assume(a_secret())
    first = certificate.served
    assert first is not None
    assert certificate.loaded.is_set()
    assert registry.get_sample_value(EXPIRY) == expiry(first).timestamp()
    store.assume({"metadata": METADATA, "data": {}})
    assert certificate.served == first
    store.assume(a_secret())
    assert certificate.served not in (first, None)


def test_metrics_may_be_left_to_the_certificate() -> None:
    assert (
        SecretCertificate(runtime_of_nothing(), namespace=NAMESPACE, name=NAME)._metrics.certificate_expiry is not None
    )


async def test_files_are_checked_while_the_server_runs(tmp_path: Path) -> None:
    files = CertificateFiles(*write_certificate(tmp_path))
    write_certificate(tmp_path, "elsewhere")
    stop = asyncio.Event()
    following = asyncio.create_task(files.follow(stop))
    await asyncio.sleep(0)
    assert not files.reload_if_changed(), "the new pair is loaded already"
    stop.set()
    await following


async def test_nothing_goes_on_behind_a_server_that_cannot_listen(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = AdmissionServer(CertificateFiles(*write_certificate(tmp_path)), {}, host="127.0.0.1", port=port)
        with pytest.raises(OSError, match="address already in use"):
            await server.run(asyncio.Event())
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
