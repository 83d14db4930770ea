"""Work that keeps a cluster busy while processes die: gangs of several sizes, and pods that share GPUs.

`jobs` draws them from a seed, so that a run can be repeated.  Every job can run on the machines of `machines()`, so at
the end of a soak every one of them must have completed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from pykai.simulator.scenario import JobEntry, Machines, QueueEntry, Share, job_object

QUEUES = (
    QueueEntry(name="soak", gpu=Share(quota=32)),
    QueueEntry(name="gangs", parent="soak", gpu=Share(quota=20, weight=1)),
    QueueEntry(name="shared", parent="soak", gpu=Share(quota=12, weight=1)),
)


def machines() -> list[Machines]:
    """Four nodes of eight GPUs."""
    return [Machines(name="soak", count=4, gpus=8, memory_mib=40_960)]


def jobs(seed: int, count: int) -> Iterator[dict[str, Any]]:
    """So many Jobs: two of three are gangs of whole GPUs, the third shares GPUs."""
    draw = random.Random(seed)
    for number in range(count):
        runs = f"{draw.randint(2, 6)}s..{draw.randint(7, 12)}s"
        if number % 3 == 2:
            fraction = draw.choice((0.25, 0.5, 0.6))
            pods = draw.randint(1, 4)
            entry = JobEntry(name=f"share-{number}", queue="shared", pods=pods, fraction=fraction, runs=runs)
        else:
            pods, gpus = draw.choice(((2, 4), (3, 2), (4, 1), (2, 8), (6, 1), (4, 2)))
            entry = JobEntry(name=f"gang-{number}", queue="gangs", pods=pods, gpus=gpus, runs=runs)
        yield job_object(entry)
