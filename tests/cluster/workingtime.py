"""How long a takeover takes, in time in which the next leader could work.

The next leader runs beside everything else on this machine.  Time in which it wanted to run and others had the
processors does not count (`tests.patience`): on an idle machine it is none.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from pykai.api import names
from tests.patience import SchedulableTimeClock, waited_s

#: a standby sees the last renewal up to a retry late, and a request that fails is repeated after another; then comes a
#: cycle, of which one begins every second, and its first bind (operations:O-39)
TAKEOVER_S = names.LEASE_DURATION_S + 2 * names.LEASE_RETRY_S + 2.0


def takeover_clock(standbys: Collection[str]) -> SchedulableTimeClock:
    """A clock for what these pods do, if an installation runs them as processes of this machine."""
    pids = list(_processes_of(standbys))
    return SchedulableTimeClock(waited=lambda: sum(map(waited_s, pids)))


def _processes_of(pods: Collection[str]) -> Iterator[int]:
    starts = tuple(f"{names.DEFAULT_NAMESPACE}_{pod}_" for pod in pods)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            folder = os.readlink(f"/proc/{pid}/cwd")
        except OSError:
            # It has ended, or is not ours to look at.
            continue
        if Path(folder).name.startswith(starts):
            yield int(pid)
