"""What several stories on the real control plane share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import servers
from tests.cluster.plane import TestPlane, running_plane


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestPlane]:
    """The plane of the run, or, where all its tests have one of their own, another."""
    if servers.REAL is not None:
        yield servers.REAL
        return
    with running_plane(tmp_path_factory.mktemp("plane")) as servers.REAL:
        yield servers.REAL
    servers.REAL = None
