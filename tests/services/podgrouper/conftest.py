"""A cluster for the pod grouper."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.services.podgrouper.grouped import ROLE
from tests.services.servicecluster import ServiceCluster, service_cluster


@pytest.fixture
async def place() -> AsyncIterator[ServiceCluster]:
    async with service_cluster(ROLE) as found:
        await found.classes()
        yield found
