"""What is left of zones, before a cycle and while it gives them out (gpu:N-16 to N-18, cases T-109 and T-111)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from pykai.core.cycle.gangs import Gang, LeafState
from pykai.core.cycle.validate import StateMismatch, check_state
from pykai.core.model.status import TaskStatus
from pykai.core.model.tasks import Task
from pykai.core.opencycle import Cycle
from pykai.core.schedule import run_actions
from tests.core.builders import Cluster, numa_record, placement_request_of
from tests.core.numaclusters import GPU, amounts_of, built_in_and_numa, left_in, numa, only_numa, zoned, zones_in

PREDICTED = "kai.scheduler/numa-placement-predicted"
FOUR = (amounts_of(cpu=4), amounts_of(cpu=4))


def cores(cycle: Cycle, *, idle: bool = True) -> list[int]:
    return [amount // 1000 for amount in left_in(cycle, idle=idle)]


def holding(zone: int, cpu: int) -> dict[str, Any]:
    """A Guaranteed pod on node n that lies in a zone."""
    return {"on": "n", "cpu": cpu, "qos": "Guaranteed", "numa": {f"zone-{zone}": amounts_of(cpu=cpu)}}


def test_t109_what_is_left_follows_from_the_records_not_from_the_daemon() -> None:
    found = zoned(*FOUR, available=(amounts_of(cpu=99), amounts_of(cpu=99)))
    found.pod("runs", **holding(1, 2)).pod("promised", **holding(0, 2)).assume("promised", TaskStatus.PIPELINED)
    found.pod("unrecorded", on="n", cpu=2, qos="Guaranteed")
    found.pod("waits", cpu=2, qos="Guaranteed", annotations={PREDICTED: numa_record({"zone-0": amounts_of(cpu=2)})})
    assert cores(found.cycle()) == [2, 2]


def test_n16_pods_of_other_schedulers_count_too() -> None:
    assert cores(zoned(*FOUR).pod("theirs", scheduler="default-scheduler", **holding(0, 3)).cycle()) == [1, 4]


@pytest.mark.parametrize(
    "status", [TaskStatus.BOUND, TaskStatus.BINDING, TaskStatus.ALLOCATED, TaskStatus.STUCK_IN_RELEASING]
)
def test_n16_every_pod_that_goes_on_holding_its_node_counts(status: TaskStatus) -> None:
    found = zoned(*FOUR).pod("p", **holding(0, 3)).assume("p", status)
    assert cores(found.cycle()) == cores(found.cycle(), idle=False) == [1, 4]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_n16_a_pod_that_has_ended_holds_nothing(phase: str) -> None:
    assert cores(zoned(*FOUR).pod("p", phase=phase, **holding(0, 3)).cycle()) == [4, 4]


def test_n16_a_terminating_pod_holds_its_zone_until_it_is_gone() -> None:
    found = zoned(*FOUR).pod("p", **holding(0, 3)).assume("p", TaskStatus.RELEASING)
    assert cores(found.cycle()) == [1, 4]
    assert cores(found.cycle(), idle=False) == [4, 4]


def test_n16_no_pod_starts_in_a_zone_that_is_still_held_but_one_can_be_pipelined() -> None:
    """gpu:N-16, Do better."""
    found = zoned(*FOUR).pod("leaver", **holding(0, 3)).assume("leaver", TaskStatus.RELEASING)
    result = found.pod("stays", **holding(1, 3)).gang("j", cpu=3, qos="Guaranteed").schedule()
    assert (result.bound("j"), result.pipelined("j")) == (0, 1)
    assert zones_in(result.cycle.state.placements["default/j-0"]) == [0]


def test_n16_a_pod_starts_in_an_empty_zone_although_a_lower_one_will_be_free() -> None:
    found = zoned(*FOUR).pod("leaver", **holding(0, 3)).assume("leaver", TaskStatus.RELEASING)
    result = found.gang("j", cpu=3, qos="Guaranteed").schedule()
    assert result.zones_of("j-0") == ((1, {"cpu": 3000}),)
    assert result.bound("j") == 1


def test_n16_a_pipelined_zone_is_not_given_to_another_pod_although_it_is_idle() -> None:
    found = zoned(*FOUR).pod("promised", **holding(0, 3)).assume("promised", TaskStatus.PIPELINED)
    result = found.gang("j", cpu=3, qos="Guaranteed").schedule()
    assert result.zones_of("j-0") == ((1, {"cpu": 3000}),)


def test_n16_the_figures_of_the_daemon_are_used_where_configured() -> None:
    found = zoned(*FOUR, available=(amounts_of(cpu=1), amounts_of(cpu=3)), arguments={"reconstructAvailable": "false"})
    found.pod("runs", **holding(0, 3))
    assert cores(found.cycle()) == [1, 3]
    found.assume("runs", TaskStatus.RELEASING)
    assert cores(found.cycle()) == [1, 3]
    assert cores(found.cycle(), idle=False) == [4, 3]


def test_n16_a_binding_pod_is_subtracted_from_the_figures_of_the_daemon() -> None:
    found = zoned(*FOUR, available=FOUR, arguments={"reconstructAvailable": "false"})
    found.pod("p", cpu=3, qos="Guaranteed").bind_request("p", "n", numa={"zone-0": amounts_of(cpu=3)})
    assert cores(found.cycle()) == [1, 4]


def test_n17_the_next_pod_of_a_cycle_sees_what_the_last_one_left() -> None:
    result = zoned(*FOUR).gang("a", 3, min=1, cpu=3, qos="Guaranteed").schedule()
    assert [result.zones_of(f"a-{index}") for index in range(3)] == [((0, {"cpu": 3000}),), ((1, {"cpu": 3000}),), ()]
    assert cores(result.cycle) == [1, 1]


def test_n17_a_gang_that_does_not_fit_as_a_whole_leaves_no_trace() -> None:
    result = zoned(*FOUR).gang("a", 3, cpu=3, qos="Guaranteed").schedule()
    assert result.bound("a") == 0
    assert cores(result.cycle) == [4, 4]


def two_victims() -> Cluster:
    """One victim of three cores in each zone of four, and a preemptor of three."""
    found = zoned(*FOUR).gang("victim0", **holding(0, 3)).gang("victim1", **holding(1, 3))
    return found.gang("preemptor", cpu=3, qos="Guaranteed")


def member(cycle: Cycle, name: str) -> tuple[Gang, LeafState, Task]:
    task = cycle.context.snapshot.task_records[f"default/{name}-0"]
    gang = cycle.gangs.gang(cycle.context.snapshot.group_entries[task.group_key])
    return gang, gang.leaves[0], task


def evict(cycle: Cycle, *names: str) -> None:
    for name in names:
        cycle.state.evict(*member(cycle, name))


def serve(cycle: Cycle, name: str) -> bool:
    gang, _, _ = member(cycle, name)
    return cycle.placer.try_place_tasks(gang, cycle.gangs.next_tasks(gang))


def test_t111_a_victim_whose_zone_is_taken_moves_to_the_other_zone_of_its_node() -> None:
    """gpu:N-17: it is no longer where it was, so it does not simply stay."""
    cycle = two_victims().cycle()
    mark = cycle.state.mark()
    assert cores(cycle, idle=False) == [1, 1]
    evict(cycle, "victim0", "victim1")
    assert cores(cycle, idle=False) == [4, 4]
    assert serve(cycle, "preemptor")
    assert serve(cycle, "victim0")
    assert not serve(cycle, "victim1")
    state = cycle.state
    assert zones_in(state.placements["default/preemptor-0"]) == [0]
    assert zones_in(state.placements["default/victim0-0"]) == [1]
    assert state.status_of(member(cycle, "victim0")[2]) is TaskStatus.PIPELINED
    assert zones_in(state.evicted_from["default/victim0-0"]) == [0]
    assert cores(cycle, idle=False) == [1, 1]
    assert cores(cycle) == [1, 1]
    check_state(cycle.state, cycle.gangs)
    state.rollback(mark)
    assert cores(cycle, idle=False) == [1, 1]
    assert cores(cycle) == [1, 1]
    assert not state.placements
    assert not state.evicted_from
    check_state(cycle.state, cycle.gangs)


def test_t111_a_victim_whose_zone_is_still_free_stays_unchanged() -> None:
    cycle = two_victims().cycle()
    evict(cycle, "victim0", "victim1")
    assert serve(cycle, "victim1")
    assert "default/victim1-0" not in cycle.state.evicted_from
    assert "default/victim1-0" not in cycle.state.placements
    assert serve(cycle, "preemptor")
    assert zones_in(cycle.state.placements["default/preemptor-0"]) == [0]
    check_state(cycle.state, cycle.gangs)


def test_n17_a_victim_keeps_its_recorded_zones_even_if_a_new_allocation_would_differ() -> None:
    """It is in both zones by its record; a new allocation would be zone 0."""
    found = zoned(*FOUR).gang(
        "v", on="n", cpu=2, qos="Guaranteed", numa={"zone-0": amounts_of(cpu=1), "zone-1": amounts_of(cpu=1)}
    )
    cycle = found.gang("w", cpu=1, qos="Guaranteed").cycle()
    evict(cycle, "v")
    assert serve(cycle, "v")
    assert not cycle.state.evicted_from
    assert cores(cycle) == [3, 3]


def test_n15_a_victim_without_a_record_stays_unaccounted() -> None:
    cycle = zoned(*FOUR).gang("v", on="n", cpu=2, qos="Guaranteed").gang("w", cpu=1, qos="Guaranteed").cycle()
    evict(cycle, "v")
    assert serve(cycle, "v")
    assert not cycle.state.evicted_from
    assert cores(cycle) == [4, 4]


def with_preemption(found: Cluster) -> Cluster:
    """The same under the built-in configuration, with preemption and a high priority."""
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "hi"}, "value": 100}
    return found.configured(built_in_and_numa()).with_actions("preempt").add(urgent)


def test_t111_preempting_takes_the_least_victim_and_its_zone() -> None:
    found = with_preemption(zoned(*FOUR))
    for name, zone in (("old", 0), ("new", 1)):
        found.gang(name, **holding(zone, 3))
    found.gang("urgent", cpu=3, qos="Guaranteed", priority="hi", preemptible=False)
    result = found.schedule()
    assert result.evicted_pods() == ["new-0"]
    assert result.pipelined("urgent") == 1
    assert zones_in(result.cycle.state.placements["default/urgent-0"]) == [1]


def test_n17_a_larger_request_may_preempt_where_a_smaller_one_failed() -> None:
    """Restricted: six GPUs want two zones, so ten cores are refused and twenty-four are not."""
    zone = amounts_of(gpu=4, cpu=16)
    found = with_preemption(zoned(zone, zone, policy="restricted"))
    held = {"zone-0": amounts_of(gpu=4, cpu=16), "zone-1": amounts_of(gpu=4, cpu=16)}
    found.gang("victim", on="n", gpu=8, cpu=32, qos="Guaranteed", numa=held)
    found.gang("narrow", gpu=6, cpu=10, qos="Guaranteed", priority="hi", preemptible=False)
    found.gang("wide", gpu=6, cpu=24, qos="Guaranteed", priority="hi", preemptible=False)
    result = found.schedule()
    assert result.pipelined("narrow") == 0
    assert result.pipelined("wide") == 1


def test_n18_a_bind_names_zones_by_their_ids_and_amounts_as_quantities() -> None:
    zone = amounts_of(gpu=4, cpu=16, memory="8Gi", **{"example.com/nic": 2})
    found = numa().node("n", gpus=8, extra={"example.com/nic": 4}).zones("n", zone, zone, policy="restricted")
    extra = {"example.com/nic": 3}
    result = found.gang("j", gpu=6, cpu=24, memory="12Gi", extra=extra, qos="Guaranteed").schedule()
    (bind,) = result.plan.binds
    assert bind.numa_zones == (
        ("zone-0", (("cpu", "16"), ("example.com/nic", "2"), ("memory", "8589934592"), (GPU, "4"))),
        ("zone-1", (("cpu", "8"), ("example.com/nic", "1"), ("memory", "4294967296"), (GPU, "2"))),
    )


def test_n18_a_pod_without_zones_names_none() -> None:
    (bind,) = zoned(*FOUR).gang("j", cpu=3, qos="Burstable").schedule().plan.binds
    assert bind.numa_zones == ()


def test_n4_the_plugin_is_off_unless_it_is_named() -> None:
    found = zoned(*FOUR).gang("j", cpu=6, qos="Guaranteed")
    assert found.schedule().bound("j") == 0
    found.configuration = None
    assert found.schedule().bound("j") == 1
    assert not found.cycle().state.discrete_ledgers


def test_without_any_zones_the_plugin_adds_nothing() -> None:
    cycle = numa().node("n").gang("j", cpu=6, qos="Guaranteed").cycle()
    assert not cycle.state.discrete_ledgers
    assert [check.name for check in cycle.context.rules.checks].count("numa") == 0
    assert [score.name for score in cycle.context.rules.scores].count("numa") == 0


def test_n4_mistakes_in_the_arguments_are_reported_and_the_default_stays() -> None:
    found = numa().configured(only_numa(reconstructAvailable="maybe"))
    found.node("n", cpu=100).zones("n", *FOUR, available=(amounts_of(cpu=99), amounts_of(cpu=99)))
    assert cores(found.cycle()) == [4, 4]


@pytest.mark.parametrize("plane", ["idle", "free"])
def test_validation_notices_a_corrupted_zone_ledger(plane: str) -> None:
    cycle = two_victims().cycle()
    run_actions(cycle)
    check_state(cycle.state, cycle.gangs)
    (books,) = cycle.state.discrete_ledgers
    getattr(books.planes(), plane)[0, 0, 0] -= 1  # type: ignore[attr-defined]
    with pytest.raises(StateMismatch, match="ZoneLedger"):
        check_state(cycle.state, cycle.gangs)


def test_nodes_of_different_make_keep_their_own_zones() -> None:
    found = (
        numa()
        .node("a")
        .zones("a", amounts_of(cpu=2), amounts_of(cpu=2), amounts_of(cpu=2))
        .node("b")
        .zones("b", amounts_of(gpu=1, cpu=8))
    )
    found.node("c").pod("p", on="a", cpu=1, qos="Guaranteed", numa={"zone-2": amounts_of(cpu=1)})
    cycle = found.cycle()
    assert left_in(cycle, node="a") == [2000, 2000, 1000]
    assert left_in(cycle, node="b") == [8000, 0, 0]
    assert left_in(cycle, GPU, node="b") == [1, 0, 0]
    assert found.gang("j", cpu=7, qos="Guaranteed").schedule().zones_of("j-0") in ((), ((0, {"cpu": 7000}),))


CONTENTS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 9), st.integers(0, 2)), min_size=1, max_size=12
)


@drawn(CONTENTS, st.integers(0, 12))
def test_the_ledger_always_equals_capacity_minus_holders(steps: list[tuple[int, int, int, int]], kept: int) -> None:
    cycle = numa().node("a").zones("a", *FOUR).node("b").zones("b", *FOUR).gang("j", qos="Guaranteed").cycle()
    (books,) = cycle.state.discrete_ledgers
    task = placement_request_of(cycle, "j-0").task
    before = [plane.copy() for plane in books.planes()]  # type: ignore[attr-defined]
    held: list[tuple[int, object, int]] = []
    for row, zone, amount, how in steps:
        held.append((row, ((zone, (("cpu", amount),)),), how))
        books.hold(task, *held[-1], 1)
    for row, content, how in held[kept:]:
        books.hold(task, row, content, how, -1)
    assert books.agrees(held[:kept])  # type: ignore[attr-defined]
    for row, content, how in held[:kept]:
        books.hold(task, row, content, how, -1)
    assert all((was == now).all() for was, now in zip(before, books.planes(), strict=True))  # type: ignore[attr-defined]
