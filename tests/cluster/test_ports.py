"""Ports for programs that tests start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: of twice as many ports as all processes together want
ASKING = """
from tests.cluster import controlplane
controlplane._PORTS = range(31_000, 31_120)
print(*(controlplane.free_port() for _ in range(20)), flush=True)
input()
"""


def test_processes_that_look_for_ports_together_get_different_ones() -> None:
    """A port is looked for long before its program listens; by chance alone two programs would get the same."""
    command = [sys.executable, "-c", ASKING]
    asking = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    found: list[str] = []
    for process in asking:
        assert process.stdout is not None
        found += process.stdout.readline().split()
    for process in asking:
        process.communicate("\n")
    assert len(found) == 60
    assert len(set(found)) == 60
