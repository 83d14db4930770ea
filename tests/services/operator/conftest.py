"""An empty cluster with the namespaces of an installation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pykai.kube import resources
from pykai.kube.credentials import connect
from pykai.operator.install import installation
from pykai.services.rights import DEFAULT_PLACES
from tests import servers
from tests.cluster.plane import install
from tests.servers import ensure_namespace
from tests.services.servicecluster import ServiceCluster, service_cluster


@pytest.fixture
async def place() -> AsyncIterator[ServiceCluster]:
    async with service_cluster("kai-operator") as found:
        for namespace in DEFAULT_PLACES:
            await ensure_namespace(found.client, namespace)
        yield found
        await _delete_owned_accounts(found)
    if servers.REAL is not None:
        await _install_accounts(servers.REAL.kubeconfig)


async def _delete_owned_accounts(place: ServiceCluster) -> None:
    """Those that the operator took over; the garbage collector would delete them later, at a time of its own."""
    for namespace in DEFAULT_PLACES:
        for each in await place.client.list_raw(resources.SERVICE_ACCOUNTS, namespace=namespace):
            if each["metadata"].get("ownerReferences"):
                await place.client.delete(resources.SERVICE_ACCOUNTS, each["metadata"]["name"], namespace)


async def _install_accounts(kubeconfig: Path) -> None:
    """The accounts belong to all tests of a control plane."""
    transport = connect(kubeconfig)
    try:
        await install(transport, [each for each in installation() if each["kind"] == "ServiceAccount"])
    finally:
        await transport.close()
