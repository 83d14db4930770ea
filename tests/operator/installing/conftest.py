"""An embedded API server to install into."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.lab.apiserver.server import ApiServer


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    found = await ApiServer.open(clock=Clock())
    yield found
    await found.close()


@pytest.fixture
def client(server: ApiServer) -> Client:
    return Client(server.transport())
