"""Five processes of a cluster are killed under load, and the recording of it shows nothing broken.

`make soak` does the same fifty times.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pykai.simulator.soak.killing import Soak


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_five_kills_break_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    soak = Soak(tmp_path, kills=5, seed=7, jobs_per_kill=1, pause_s=(0.1, 1.0), say=said.append)
    report = await soak.run()
    logs = "\n".join(path.read_text(encoding="utf-8")[-2000:] for path in tmp_path.glob("*.log"))
    assert report.problems == [], "\n".join([*said, logs])
    assert sum(report.kills.values()) == 5
    assert report.lines > 100
