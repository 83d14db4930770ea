"""A cluster for the pod grouper."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.services.podgrouper.grouped import ROLE
from tests.services.servicecluster import Workplace, workplace


@pytest.fixture
async def place() -> AsyncIterator[Workplace]:
    async with workplace(ROLE) as found:
        await found.classes()
        yield found
