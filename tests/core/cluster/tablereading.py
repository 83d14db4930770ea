"""Changes tables, and reads what they show."""

from __future__ import annotations

from pykai.api.decode import decode_object
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cluster.tables import Tables
from pykai.core.model.status import TaskStatus
from pykai.core.model.vectors import FREE, IDLE, RELEASING, USED
from tests.core.builders import NOW_NS, Cluster


def apply(tables: Tables, built: Cluster) -> None:
    for raw in built.objects:
        tables.apply(decode_object(raw))


def seen(tables: Tables) -> Snapshot:
    return tables.snapshot(NOW_NS)


def state_in(tables: Tables, pod: str = "pod") -> TaskStatus:
    return seen(tables).task_records[f"default/{pod}"].status


def amounts(snapshot: Snapshot, resource: str, node: str = "node-0") -> dict[str, int]:
    """The four figures of one resource of one node."""
    column = snapshot.columns[:, snapshot.axes.index[resource], snapshot.nodes.rows[node]]
    return {"idle": column[IDLE], "releasing": column[RELEASING], "free": column[FREE], "used": column[USED]}
