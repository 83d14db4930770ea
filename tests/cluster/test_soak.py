"""Five processes are killed under load on a real control plane, the API server is restarted, and nothing is broken.

`make soak` does the same for longer and judges memory, too.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pykai.dev.soak.runner import Soak
from tests.cluster.soak import RealControlPlane


@pytest.mark.cluster_only
@pytest.mark.slow
async def test_five_kills_and_a_restart_break_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    plane = RealControlPlane(tmp_path / "plane")
    soak = Soak(tmp_path, plane, kills=5, restarts=1, seconds=40, seed=3, at_once=6, say=said.append)
    report = await soak.run()
    print(report.text())
    logs = "\n".join(path.read_text(encoding="utf-8")[-2000:] for path in tmp_path.glob("*.log"))
    assert report.problems == [], "\n".join([*said, logs])
    assert (sum(report.kills.values()), report.restarts) == (5, 1)
    assert report.jobs > 10
