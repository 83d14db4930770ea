"""How many tasks hold a share live, releasing or pipelined: what both ledgers of volumes count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from pykai.core.cluster.snapshot import Snapshot
from pykai.core.model.shapes import Shape
from pykai.core.model.sharedgpus import LIVE, PIPELINED, RELEASING
from pykai.core.model.tasks import Task


def tasks_on_nodes(snapshot: Snapshot, concerns: Callable[[Shape], bool]) -> Iterator[Task]:
    """Tasks that hold a node and something of a ledger."""
    for task in snapshot.tasks_with_volumes.values():
        if task.holds_node and task.node in snapshot.nodes.rows and concerns(task.shape):
            yield task


def held_planes(counts: list[int]) -> tuple[bool, bool, bool, bool]:
    """Whether a share is held at all, of what is idle, of what is free; whether it is only being released."""
    live, releasing, pipelined = counts[LIVE], counts[RELEASING], counts[PIPELINED]
    free = live + pipelined > 0
    return live + releasing + pipelined > 0, live + releasing > 0, free, releasing > 0 and not free


def count_shares(held: Iterable[tuple[int, object, int]]) -> dict[object, list[int]]:
    """How many tasks hold each share live, releasing and pipelined; tasks are (row, allocation, holding)."""
    counts: dict[object, list[int]] = {}
    for _, allocation, holding in held:
        assert isinstance(allocation, tuple)
        for share in allocation:
            counts.setdefault(share, [0, 0, 0])[holding] += 1
    return counts
