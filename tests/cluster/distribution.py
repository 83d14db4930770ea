"""Which worker runs which tests of a run on real control planes.

A module of tests/cluster stays on one worker: its tests share a cluster that takes long to start, and some look at what
others have left there.  All of tests/e2e stays on one, for the same reason.  All other tests go to the next worker that
has time, one by one, in the order of collection.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

_WHOLE_MODULES = "tests/cluster/"
#: these share one installation
_ONE_WORKER = "tests/e2e/"


def scheduling(config: pytest.Config, log: Any) -> Any:
    """For pytest-xdist."""
    # Sorted by their size the longest would come late.
    config.option.loadscopereorder = False
    made = LoadScopeScheduling(config, log)
    made._split_scope = work_unit
    return made


def work_unit(test: str) -> str:
    """The name of what a test goes together with to a worker, by its node id."""
    if test.startswith(_ONE_WORKER):
        return _ONE_WORKER
    return test.partition("::")[0] if test.startswith(_WHOLE_MODULES) else test
