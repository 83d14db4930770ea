"""Processor time of the first cycle of every recorded case of a file, added up.

    python tools/compare/firstcycles.py FILE

Each cycle starts from tables that are built and ends with plan and explanations, with the collector paused as in the
service.  Prints one JSON object; `tools.compare.speed` runs it with two installations in turn.
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from time import process_time

from pykai.core.cycle.memory import CycleMemory
from pykai.core.schedule import schedule
from pykai.dev.cases import read_cases
from pykai.dev.conformance import CaseRun
from pykai.scheduler.gccontrol import gc_paused


def cpu_seconds(path: Path) -> list[float]:
    """Of the first cycle of each case."""
    found = []
    for case in read_cases(path):
        run = CaseRun(case)
        gc.collect()
        with gc_paused():
            began = process_time()
            schedule(run.tables.snapshot(run.now_ns), run.policy, CycleMemory())
            found.append(process_time() - began)
    return found


if __name__ == "__main__":
    seconds = cpu_seconds(Path(sys.argv[1]))
    print(json.dumps({"cases": len(seconds), "cpu_seconds": sum(seconds)}))
