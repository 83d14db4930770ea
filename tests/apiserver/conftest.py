"""A server in memory and its administrator, for each test its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from pykai.apiserver.server import ApiServer
from tests.apiserver.asking import Api, running


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with running() as (server, _):
        yield server


@pytest.fixture
def api(server: ApiServer) -> Api:
    return Api(server.transport())
