"""A group whose binds keep failing uses what is free, and no pod is evicted or moved for it."""

from __future__ import annotations

import pytest

from pykai.core.cluster.tables import Tables
from pykai.core.cycle.memory import CycleMemory
from pykai.core.report.decisions import FreeRoomOnly, Plan
from pykai.core.report.sentences import reason_of
from pykai.core.schedule import schedule
from tests.core.builders import NOW_NS, Cluster, cluster

WHY = FreeRoomOnly(3, "no such device")


def contended(action: str) -> Cluster:
    """Work that `action` would serve by evicting others."""
    built = cluster(nodes=1, gpus=2).queue("rich", quota=0).queue("poor", quota=2)
    built.priority_class("low", 10).priority_class("high", 90)
    if action == "reclaim":
        built.gang("old", 1, gpu=2, queue="rich", on="node-0").gang("new", 1, gpu=2, queue="poor")
    elif action == "preempt":
        built.gang("old", 1, gpu=2, queue="poor", priority="low", on="node-0")
        built.gang("new", 1, gpu=2, queue="poor", priority="high")
    else:
        built.nodes(1, gpus=2)
        built.gang("old", 1, gpu=1, queue="poor", on="node-0").gang("older", 1, gpu=1, queue="poor", on="node-1")
        built.gang("new", 1, gpu=2, queue="poor")
    return built.with_actions(action)


def planned(built: Cluster, tables: Tables, memory: CycleMemory | None = None) -> Plan:
    return schedule(tables.snapshot(NOW_NS), built.policy(), memory)


@pytest.mark.parametrize("action", ["reclaim", "preempt", "consolidation"])
def test_no_action_evicts_pods_for_it(action: str) -> None:
    built = contended(action)
    tables = built.tables()
    assert len(planned(built, tables).evictions) == 1
    tables.set_free_room_only("default/new", WHY)
    plan = planned(built, tables)
    assert plan.evictions == ()
    assert [record.refusals for record in plan.unscheduled if record.group == "new"] == [(WHY,)]
    tables.set_free_room_only("default/new", None)
    assert len(planned(built, tables).evictions) == 1


def test_it_still_gets_what_is_free() -> None:
    built = cluster(nodes=1, gpus=2).queue("q").gang("new", 2, gpu=1)
    tables = built.tables()
    tables.set_free_room_only("default/new", WHY)
    assert len(planned(built, tables).binds) == 2


def test_its_refusal_has_the_reason() -> None:
    built = contended("reclaim").with_actions("allocate", "reclaim")
    result = built.free_room_only("new", WHY).schedule()
    assert "3 binds of the workload failed (no such device)" in result.why("new")
    assert "free resources only" in result.why("new")
    assert reason_of(WHY) == "BindsFailed"


def test_the_reuse_of_the_last_plan_notices() -> None:
    built = contended("reclaim")
    tables, memory = built.tables(), CycleMemory()
    tables.set_free_room_only("default/new", WHY)
    again = FreeRoomOnly(4, WHY.cause)
    assert planned(built, tables, memory).evictions == ()
    assert planned(built, tables, memory).evictions == ()
    tables.set_free_room_only("default/new", again)
    assert planned(built, tables, memory).unscheduled[0].refusals == (again,)
    tables.set_free_room_only("default/new", None)
    assert len(planned(built, tables, memory).evictions) == 1
