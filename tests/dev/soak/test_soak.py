"""Five processes of a cluster are killed under load, and the recording of it shows nothing broken.

`make soak` does the same for longer, on a real control plane.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pykai.dev.soak.controlplanes import EmbeddedControlPlane
from pykai.dev.soak.runner import Soak


@pytest.mark.slow
async def test_five_kills_break_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    plane = EmbeddedControlPlane(tmp_path, said.append)
    soak = Soak(tmp_path, plane, kills=4, restarts=1, seconds=10, seed=7, at_once=5, say=said.append)
    report = await soak.run()
    logs = "\n".join(path.read_text(encoding="utf-8")[-2000:] for path in tmp_path.glob("*.log"))
    assert report.problems == [], "\n".join([*said, logs])
    assert sum(report.kills.values()) + report.restarts == 5
    assert report.changes > 100
