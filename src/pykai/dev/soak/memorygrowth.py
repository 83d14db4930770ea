"""Memory of each process of a soak over time, and whether it grows.

`MemorySampler` reads /proc every few seconds and writes one line per process to a file; `memory_by_process` reads the
file:

    {"at": 12.3, "part": "binder", "pid": 4711, "mib": 61.4}

A killed process starts from scratch, so each part is judged by its last process, from the end of its warm-up (a tenth
of the run after its start) to the end of the run. It is flat if it has grown by at most a tenth, or by 5 MiB where that
is more: the median of the last quarter of its samples against that of the first quarter, so that a short peak counts as
little as it costs. Processes that ran for less than `MIN_DURATION_S` are reported and not judged.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression, median

#: seconds between two samples
_SAMPLE_INTERVAL_S = 3.0
#: growth that is tolerated
_SHARE, _MIB = 0.10, 5.0
#: minimum duration to be judged, without warm-up
MIN_DURATION_S = 300.0


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """The last process of a part, after its warm-up."""

    part: str
    seconds: float
    first_mib: float
    last_mib: float
    #: slope of the straight line through all samples
    mib_per_hour: float

    @property
    def is_long_enough(self) -> bool:
        """Whether it ran long enough to be judged."""
        return self.seconds >= MIN_DURATION_S

    @property
    def is_flat(self) -> bool:
        """Whether it has not grown."""
        return self.last_mib - self.first_mib <= max(_MIB, _SHARE * self.first_mib)

    def __str__(self) -> str:
        verdict = ("flat" if self.is_flat else "GROWS") if self.is_long_enough else "too short to judge"
        return (
            f"{self.part:<12} {self.first_mib:6.1f} MiB -> {self.last_mib:6.1f} MiB in {self.seconds / 60:4.1f} min, "
            f"{self.mib_per_hour:+6.1f} MiB/h: {verdict}"
        )


class MemorySampler:
    """Records the memory of the processes that `pids` names."""

    def __init__(self, path: Path, pids: Callable[[], Mapping[str, int]]) -> None:
        self._path = path
        self._pids = pids

    async def run(self) -> None:
        """Sample every few seconds until cancelled."""
        began_s = time.monotonic()
        with self._path.open("a", encoding="utf-8") as out:
            while True:
                at_s = time.monotonic() - began_s
                for part, pid in self._pids().items():
                    mib = _resident_mib(pid)
                    if mib is not None:
                        line = {"at": round(at_s, 1), "part": part, "pid": pid, "mib": round(mib, 2)}
                        out.write(json.dumps(line) + "\n")
                out.flush()
                await asyncio.sleep(_SAMPLE_INTERVAL_S)


def memory_by_process(path: Path) -> list[ProcessMemory]:
    """The last process of each part, by name; parts with fewer than two samples are left out."""
    samples: dict[str, list[tuple[float, int, float]]] = defaultdict(list)
    for line in path.read_text(encoding="utf-8").splitlines():
        each = json.loads(line)
        samples[each["part"]].append((each["at"], each["pid"], each["mib"]))
    end_s = max((seen[-1][0] for seen in samples.values()), default=0.0)
    results = []
    for part, process_samples in sorted(samples.items()):
        last = [(at_s, mib) for at_s, pid, mib in process_samples if pid == process_samples[-1][1]]
        warm = [(at_s, mib) for at_s, mib in last if at_s >= last[0][0] + end_s / 10]
        if len(warm) < 2:
            continue
        times, sizes = [at_s for at_s, _ in warm], [mib for _, mib in warm]
        quarter = max(1, len(sizes) // 4)
        slope = linear_regression(times, sizes).slope * 3600
        results.append(
            ProcessMemory(part, times[-1] - times[0], median(sizes[:quarter]), median(sizes[-quarter:]), slope)
        )
    return results


def _resident_mib(pid: int) -> float | None:
    """Resident memory; None if the process is gone or the system does not provide it."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    except OSError:
        return None
    return None
