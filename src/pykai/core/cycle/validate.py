"""Recomputes every sum from the tasks and compares: the honest twin of the incremental state.

Slow on purpose and independent of the journal; switched on in all tests by `Policy.validate`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np

from pykai.api import names
from pykai.core.cluster.groupindex import GroupIndex
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.cyclegangs import CycleGangs
from pykai.core.cycle.gangs import TaskKey
from pykai.core.cycle.journal import Grant
from pykai.core.cycle.state import DiscreteLedger, State
from pykai.core.model.axes import PODS, IntArray
from pykai.core.model.protected import protected_tasks
from pykai.core.model.shapes import HostPort, count_ports
from pykai.core.model.sharedgpus import (
    DeviceTenant,
    DeviceUse,
    assign_devices,
    holding_of,
    reservation_charge,
    reservation_tenant,
    tenant_mib,
)
from pykai.core.model.status import ACTIVE_ALLOCATED, ACTIVE_USED, QUEUE_ALLOCATED, TERMINATING, TaskStatus
from pykai.core.model.tasks import Task
from pykai.core.model.vectors import FREE, IDLE, PLANES, RELEASING, charge_planes


class StateMismatch(AssertionError):
    """A sum that differs from the total of its parts."""


def _expect(same: bool, what: str) -> None:
    if not same:
        raise StateMismatch(what)


def check_state(state: State, gangs: CycleGangs) -> None:
    """Raise StateMismatch if a column, device, port, counter or queue figure is not the sum of its tasks."""
    _check_group_index(state.snapshot)
    _check_nodes(state)
    _check_discrete_ledgers(state)
    _check_queues(state, gangs.task_order)
    _check_terminating(state)
    _check_gangs(state, gangs)


def _check_group_index(snapshot: Snapshot) -> None:
    groups = snapshot.group_entries
    counted = GroupIndex()
    counted.refresh({key: replace(entry) for key, entry in groups.items()}, groups)
    for part, expected in counted.as_comparable().items():
        _expect(snapshot.group_index.as_comparable()[part] == expected, f"the group index is wrong about {part}")


def _check_nodes(state: State) -> None:
    snapshot = state.snapshot
    nodes, axes = snapshot.nodes, snapshot.axes
    columns = np.zeros((PLANES, *state.allocatable.shape), dtype=np.int64)
    columns[IDLE] = state.allocatable
    columns[FREE] = state.allocatable
    devices: dict[int, dict[str, DeviceUse]] = {}
    ports: dict[int, dict[HostPort, int]] = {}
    terminating_ports: dict[int, dict[HostPort, int]] = {}
    for task, status, row, groups in _holders(state):
        vector = snapshot.vectors[task.shape]
        facts = nodes.facts[row]
        axis = axes.index[facts.shared_resource] if groups and facts.shared_resource else -1
        if task.is_reservation:
            planes, is_assigned = reservation_charge(vector, status, axis)
            tenant = reservation_tenant(status)
        else:
            holding = holding_of(status)
            planes, is_assigned = charge_planes(vector.charge, holding), axis >= 0
            tenant = DeviceTenant(tenant_mib(task.shape.gpu, facts.gpu_mib, facts.gpu_label_mib), holding)
        columns[:, :, row] += planes * (state.allocatable[:, row] > 0)
        if is_assigned:
            assign_devices(columns, axis, row, devices.setdefault(row, {}), groups, tenant, 1)
        if task.shape.host_ports:
            is_terminating = task.key in state.evicted_from and status is TaskStatus.RELEASING
            count_ports((terminating_ports if is_terminating else ports).setdefault(row, {}), task.shape.host_ports, 1)
    for row, node_devices in devices.items():
        for group in node_devices.keys() - state.reserved_before_cycle.get(row, frozenset()):
            # A device shared since this cycle also holds a slot for its reservation pod.
            columns[IDLE, PODS, row] += node_devices[group].idle_gpus
            columns[RELEASING, PODS, row] += node_devices[group].releasing_gpus
            columns[FREE, PODS, row] += node_devices[group].idle_gpus + node_devices[group].releasing_gpus
    for ledger, holders in _holders_by_ledger(state):
        if isinstance(ledger, _ChargesColumns):
            columns += ledger.column_charges(holders)
    _expect(bool((columns == state.columns).all()), "node columns differ from the sum of their tasks")
    _expect({row: d for row, d in devices.items() if d} == state.devices, "shared GPUs differ from their tenants")
    _expect(ports == state.ports, "host ports differ from those of the tasks")
    _expect(
        terminating_ports == state.terminating_ports, "host ports given up differ from those of the tasks that leave"
    )
    _expect(bool((state.free == state.columns[IDLE] + state.columns[RELEASING]).all()), "free is not idle + releasing")
    for key, placement in state.placements.items():
        if placement.status not in (TaskStatus.PIPELINED, TaskStatus.ALLOCATED, TaskStatus.BINDING):
            continue
        plane = state.free if placement.status is TaskStatus.PIPELINED else state.idle
        requested_axes = [axis for axis, _ in snapshot.vectors[snapshot.task_records[key].shape].requested]
        facts = nodes.facts[placement.row]
        _expect(bool((plane[requested_axes, placement.row] >= 0).all()), f"node {facts.name} is over-filled")
        for group in placement.gpu_groups:
            use = state.devices[placement.row][group]
            held_mib = use.allocated_mib - (use.releasing_mib if placement.status is TaskStatus.PIPELINED else 0)
            _expect(held_mib <= facts.gpu_mib, f"GPU {group} of node {facts.name} is over-filled")


def _holders(state: State) -> Iterator[tuple[Task, TaskStatus, int, tuple[str, ...]]]:
    """Every task on every node it holds: one that is moved holds two."""
    snapshot, rows = state.snapshot, state.snapshot.nodes.rows
    for key, task in snapshot.task_records.items():
        placement, evicted_from = state.placements.get(key), state.evicted_from.get(key)
        if evicted_from is not None:
            yield task, TaskStatus.RELEASING, evicted_from.row, evicted_from.gpu_groups
        if placement is None:
            if task.holds_node and task.node in rows:
                yield task, task.status, rows[task.node], task.gpu_groups
        elif placement.status not in (TaskStatus.RELEASING, TaskStatus.PENDING):
            yield task, placement.status, placement.row, placement.gpu_groups


@runtime_checkable
class _ChargesColumns(Protocol):
    """A ledger that changes node columns besides what tasks request."""

    def column_charges(self, held: Iterable[tuple[int, object, int]]) -> IntArray:
        """[plane, axis, node] what these tasks change."""


@runtime_checkable
class VerifiableLedger(Protocol):
    """A ledger that can be recomputed."""

    def agrees(self, holders: Iterable[tuple[int, object, int]]) -> bool:
        """Whether the ledger matches these allocations: (node row, allocation, holding)."""


def _holders_by_ledger(state: State) -> Iterator[tuple[DiscreteLedger, list[tuple[int, object, int]]]]:
    """What all tasks hold, by ledger: node row, allocation, holding."""
    snapshot, rows = state.snapshot, state.snapshot.nodes.rows
    held: list[tuple[Grant, int, int]] = []
    for key, task in snapshot.task_records.items():
        placement, evicted_from = state.placements.get(key), state.evicted_from.get(key)
        if evicted_from is not None:
            held.extend((grant, evicted_from.row, holding_of(TaskStatus.RELEASING)) for grant in evicted_from.grants)
        if placement is None:
            if task.holds_node and task.node in rows:
                held.extend((g, rows[task.node], holding_of(task.status)) for g in state.grants_before_cycle(task))
        elif placement.status not in (TaskStatus.RELEASING, TaskStatus.PENDING):
            held.extend((grant, placement.row, holding_of(placement.status)) for grant in placement.grants)
    for ledger in state.discrete_ledgers:
        yield ledger, [(row, grant.allocation, holding) for grant, row, holding in held if grant.ledger is ledger]


def _check_discrete_ledgers(state: State) -> None:
    for ledger, holders in _holders_by_ledger(state):
        if isinstance(ledger, VerifiableLedger):
            _expect(ledger.agrees(holders), f"{type(ledger).__name__} differ from what the tasks hold")


def _check_queues(state: State, task_order: TaskKey) -> None:
    snapshot, tree = state.snapshot, state.snapshot.tree
    allocated = [[0.0, 0.0, 0.0] for _ in tree.names]
    allocated_non_preemptible = [[0.0, 0.0, 0.0] for _ in tree.names]
    for entry in snapshot.group_entries.values():
        group = entry.group
        if group is None or group.queue not in tree.rows or not group.in_cycle:
            continue
        preemptible = snapshot.is_preemptible(group, snapshot.priority_of(group))
        semi_preemptible = group.preemptibility == names.SEMI_PREEMPTIBLE
        protected_keys = (
            {task.key for task in protected_tasks(group, entry.tasks.values(), task_order)}
            if semi_preemptible
            else set()
        )
        for key, task in entry.tasks.items():
            placement = state.placements.get(key)
            if placement is None:
                row = snapshot.nodes.rows.get(task.node, -1)
                is_charged = QUEUE_ALLOCATED[task.status]
            else:
                row, is_charged = placement.row, placement.status not in (TaskStatus.RELEASING, TaskStatus.PENDING)
            if not is_charged:
                continue
            vector = snapshot.vectors[task.shape]
            amounts = (
                state.amounts_on(task.shape, row)
                if row >= 0
                else (vector.cpu, vector.memory, task.shape.gpu_hundredths)
            )
            for queue in tree.chains[tree.rows[group.queue]]:
                for resource in range(3):
                    allocated[queue][resource] += amounts[resource]
                    if not preemptible and (
                        not semi_preemptible or key in protected_keys or key in state.protected_keys
                    ):
                        allocated_non_preemptible[queue][resource] += amounts[resource]
    for sums, recorded, what in (
        (allocated, state.ledger.allocated, "has"),
        (allocated_non_preemptible, state.ledger.allocated_non_preemptible, "has for non-preemptible work"),
    ):
        for queue, name in enumerate(tree.names):
            # Figures are whole numbers, so only sums beyond 2^53 may differ in their last bits.
            same = all(abs(a - b) <= 1e-12 * abs(a) for a, b in zip(sums[queue], recorded[queue], strict=True))
            _expect(same, f"queue {name} {what} {recorded[queue]}, its tasks add up to {sums[queue]}")


def _check_terminating(state: State) -> None:
    snapshot, terminating = state.snapshot, state.ledger.terminating
    tree = snapshot.tree
    totals = [[[0.0, 0.0, 0.0] for _ in tree.names] for _ in range(2)]
    for entry in snapshot.group_entries.values():
        if entry.group is None or entry.group.queue not in tree.rows:
            continue
        for task in entry.tasks.values():
            if not TERMINATING[task.status] or not task.node:
                continue
            amounts = snapshot.amounts_on(task.shape, snapshot.nodes.rows.get(task.node, -1))
            for queue in tree.chains[tree.rows[entry.group.queue]]:
                for resource in range(3):
                    totals[0][queue][resource] += amounts[resource]
                    totals[1][queue][resource] += amounts[resource] * task.terminates_slowly(
                        snapshot.shard.stuck_after_ns
                    )
    recorded = [terminating.for_start.amounts, terminating.for_pipelined.amounts] if terminating is not None else None
    for expected, sums in zip(totals, recorded or totals, strict=True):
        same = all(
            abs(a - b) <= 1e-12 * abs(a)
            for rows in zip(expected, sums, strict=True)
            for a, b in zip(*rows, strict=False)
        )
        _expect(same, f"pods in deletion hold {expected}, the ledger has {sums}")
    holds_nothing = not any(any(row) for row in totals[0])
    _expect(terminating is not None or holds_nothing, "pods in deletion hold something, and the ledger has nothing")


def _check_gangs(state: State, gangs: CycleGangs) -> None:
    status_of, snapshot = state.status_of, state.snapshot
    for gang in gangs.waiting():
        statuses: dict[str, list[TaskStatus]] = {leaf.name: [] for leaf in gang.leaves}
        for task in snapshot.group_entries[gang.key].tasks.values():
            if task.subgroup in statuses:
                statuses[task.subgroup].append(status_of(task))
        for leaf in gang.leaves:
            leaf_statuses = statuses[leaf.name]
            counted = (
                sum(ACTIVE_ALLOCATED[status] for status in leaf_statuses),
                sum(ACTIVE_USED[status] for status in leaf_statuses),
                leaf_statuses.count(TaskStatus.PIPELINED),
                sum(status_of(task) is TaskStatus.PENDING for task in leaf.tasks),
            )
            recorded = (leaf.active_allocated, leaf.active_used, leaf.pipelined, leaf.unplaced)
            _expect(
                counted == recorded, f"subgroup {leaf.name} of {gang.key} counts {recorded}, its tasks are {counted}"
            )
        _expect(
            gang.unplaced == sum(leaf.unplaced for leaf in gang.leaves),
            f"{gang.key} has not as many open tasks as its leaves",
        )
        _expect(
            gang.pipelined == sum(leaf.pipelined for leaf in gang.leaves),
            f"{gang.key} has not the promises of its leaves",
        )
