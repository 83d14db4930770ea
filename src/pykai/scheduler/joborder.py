"""The order in which waiting work would be served, for `/get-job-order` (cycle:8.6)."""

from __future__ import annotations

from typing import Any

from pykai.api import names
from pykai.core.actions.allocate import allocation_walk
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.opencycle import open_cycle
from pykai.core.policy import Policy


def job_order(snapshot: Snapshot, policy: Policy) -> dict[str, Any]:
    """All groups that allocate would try, in its order, over all queues and queue by queue."""
    cycle = open_cycle(snapshot, policy)
    walk = allocation_walk(cycle, names.ACTION_ALLOCATE)
    global_order: list[dict[str, Any]] = []
    by_queue: dict[str, list[dict[str, Any]]] = {}
    while (gang := walk.pop()) is not None:
        entry = {"id": gang.key, "priority": gang.priority}
        global_order.append(entry)
        by_queue.setdefault(gang.group.queue, []).append(entry)
    return {"global_order": global_order, "queue_order": by_queue}
