"""A server and its administrator, for each test its own.

`api` is for tests that say how an API server behaves: they run on the embedded server and, with `--cluster`, on a real
one.  `inside` is the embedded server itself, for tests of its insides, which are no business of Kubernetes: storage,
attacks on its port, the modules below it.  With `--cluster` these are left out, and not counted: they need no server
that could be another.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pykai.kube.clock import Clock
from pykai.lab.apiserver.server import ApiServer
from tests.lab.apiserver.apiclient import Api, running_server
from tests.servers import Server, api_server

#: fixtures that bring a server of either kind
_EITHER = {"api", "client", "server"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--cluster"):
        return
    insides = []
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if item.path.parent == Path(__file__).parent and ("inside" in fixtures or not fixtures & _EITHER):
            insides.append(item)
    items[:] = [item for item in items if item not in insides]
    config.hook.pytest_deselected(items=insides)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with api_server(Clock()) as server:
        yield server


@pytest.fixture
def api(server: Server) -> Api:
    return Api(server.transport())


@pytest.fixture
async def inside() -> AsyncIterator[ApiServer]:
    async with running_server() as (server, _):
        yield server
