"""Benchmark of one cycle on a file of Kubernetes objects, one JSON object a line.

Measured is what the scheduler service does in a cycle, from tables built to plan and explanations finished, with the
collector paused; then the next cycle, with nothing changed.  A process that has run a cycle has warm caches and a grown
heap, so every measurement takes a fresh process, and the median of several counts.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, Final

import msgspec

from pykai.api.decode import DecodeError, decode_object
from pykai.core.cluster.tables import Tables
from pykai.core.cycle.memory import CycleMemory
from pykai.core.schedule import schedule
from pykai.dev.bench import peak_mib
from pykai.dev.cases import CaseError, read_lines
from pykai.scheduler.config.configuration import default_configuration
from pykai.scheduler.gccontrol import gc_paused

#: The clock of the cycle: later than any pod of the shapes was created.
_NOW_NS: Final = 1_767_225_600_000_000_000
_DECODER = msgspec.json.Decoder(dict[str, Any])


@dataclass(frozen=True, slots=True)
class ObjectsMeasurement:
    """One cycle on the objects of a file, and the next one."""

    nodes: int
    pods: int
    #: of the first cycle: processor time, and time that passed
    cpu_seconds: float
    seconds: float
    #: of a second cycle with nothing changed
    second_cpu_seconds: float
    second_seconds: float
    #: from objects in memory to tables; not part of the cycle
    tables_seconds: float
    binds: int
    nominations: int
    evictions: int
    #: searches for victims that a budget of work ended
    ended_searches: int
    peak_mib: float


def measure_once(path: Path) -> ObjectsMeasurement:
    """One measurement in this process; raises CaseError where a line is no object."""
    objects = list(_read(path))
    began = perf_counter()
    tables = Tables(None, objects)
    tables_seconds = perf_counter() - began
    policy = replace(default_configuration().policy, max_consolidation_preemptees=-1)
    memory = CycleMemory()
    gc.collect()
    with gc_paused():
        began, began_cpu = perf_counter(), process_time()
        snapshot = tables.snapshot(_NOW_NS)
        plan = schedule(snapshot, policy, memory)
        seconds, cpu_seconds = perf_counter() - began, process_time() - began_cpu
        began, began_cpu = perf_counter(), process_time()
        schedule(tables.snapshot(_NOW_NS), policy, memory)
        second_seconds, second_cpu_seconds = perf_counter() - began, process_time() - began_cpu
    return ObjectsMeasurement(
        len(snapshot.nodes.names),
        len(snapshot.task_records),
        round(cpu_seconds, 4),
        round(seconds, 4),
        round(second_cpu_seconds, 4),
        round(second_seconds, 4),
        round(tables_seconds, 4),
        len(plan.binds),
        len(plan.nominations),
        len(plan.evictions),
        len(plan.stopped),
        peak_mib(),
    )


def _read(path: Path) -> list[Any]:
    found = []
    for number, raw in enumerate(read_lines(path, _DECODER), 1):
        try:
            found.append(decode_object(raw))
        except DecodeError as error:
            raise CaseError(f"{path}, object {number}: {error}") from error
    if not found:
        raise CaseError(f"{path}: no objects there")
    return found


def measure_objects(path: Path, runs: int) -> ObjectsMeasurement:
    """Medians of fresh processes; raises CaseError where the file cannot be measured."""
    command = [sys.executable, "-m", "pykai", "bench", "objects", str(path), "--once", "--json"]
    found = []
    for _ in range(runs):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CaseError(done.stderr.strip() or f"{path}: the measurement ended with {done.returncode}")
        found.append(ObjectsMeasurement(**json.loads(done.stdout)))
    records = [asdict(each) for each in found]
    # Decisions are the same in every run, and so are their medians.
    return ObjectsMeasurement(
        **{each.name: median_of([record[each.name] for record in records]) for each in fields(ObjectsMeasurement)}
    )


def median_of(values: list[Any]) -> Any:
    """The median, a whole number for whole numbers."""
    middle = median(values)
    return int(middle) if all(isinstance(value, int) for value in values) else middle
