"""Recomputes every sum from the tasks and compares: the honest twin of the incremental state.

Slow on purpose and independent of the journal; switched on in all tests by `Policy.validate`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np

from pykai.api import names
from pykai.core.cluster.groupindex import Census
from pykai.core.cycle.journal import Books, Grant
from pykai.core.cycle.protected import core_of
from pykai.core.cycle.session import Session
from pykai.core.ledgers.claims.ledger import ClaimBooks
from pykai.core.model.axes import PODS
from pykai.core.model.shapes import HostPort, hold_ports
from pykai.core.model.sharedgpus import (
    DeviceUse,
    Seat,
    holding_of,
    reservation_charge,
    reservation_seat,
    seat,
    tenant_mib,
)
from pykai.core.model.status import ACTIVE_ALLOCATED, ACTIVE_USED, LEAVING, QUEUE_ALLOCATED, Status
from pykai.core.model.tasks import Task
from pykai.core.model.vectors import FREE, IDLE, PLANES, RELEASING, charge_planes


class Disagreement(AssertionError):
    """A sum that is not what its parts add up to."""


def _expect(same: bool, what: str) -> None:
    if not same:
        raise Disagreement(what)


def check_state(session: Session) -> None:
    """Raise Disagreement if a column, device, port, counter or queue figure is not the sum of its tasks."""
    _check_census(session)
    _check_nodes(session)
    _check_books(session)
    _check_queues(session)
    _check_leaving(session)
    _check_gangs(session)


def _check_census(session: Session) -> None:
    groups = session.snapshot.entries
    counted = Census()
    counted.refresh({key: replace(entry) for key, entry in groups.items()}, groups)
    for part, said in counted.said().items():
        _expect(session.snapshot.census.said()[part] == said, f"the census is wrong about {part}")


def _check_nodes(session: Session) -> None:
    state, snapshot = session.state, session.snapshot
    nodes, axes = snapshot.nodes, snapshot.axes
    columns = np.zeros((PLANES, *state.allocatable.shape), dtype=np.int64)
    columns[IDLE] = state.allocatable
    columns[FREE] = state.allocatable
    devices: dict[int, dict[str, DeviceUse]] = {}
    ports: dict[int, dict[HostPort, int]] = {}
    closing: dict[int, dict[HostPort, int]] = {}
    for task, status, row, groups in _holders(session):
        vector = snapshot.vectors[task.shape]
        facts = nodes.facts[row]
        axis = axes.index[facts.shared_resource] if groups and facts.shared_resource else -1
        if task.reservation:
            planes, seated = reservation_charge(vector, status, axis)
            tenant = reservation_seat(status)
        else:
            holding = holding_of(status)
            planes, seated = charge_planes(vector.charge, holding), axis >= 0
            tenant = Seat(tenant_mib(task.shape.gpu, facts.gpu_mib, facts.gpu_label_mib), holding)
        columns[:, :, row] += planes * (state.allocatable[:, row] > 0)
        if seated:
            seat(columns, axis, row, devices.setdefault(row, {}), groups, tenant, 1)
        if task.shape.host_ports:
            leaves = task.key in state.leaving and status is Status.RELEASING
            hold_ports((closing if leaves else ports).setdefault(row, {}), task.shape.host_ports, 1)
    for row, found in devices.items():
        for group in found.keys() - state.reserved.get(row, frozenset()):
            # A device shared since this cycle also holds a slot for its reservation pod.
            columns[IDLE, PODS, row] += found[group].idle_gpus
            columns[RELEASING, PODS, row] += found[group].releasing_gpus
            columns[FREE, PODS, row] += found[group].idle_gpus + found[group].releasing_gpus
    for book, own in _held_by_books(session):
        if isinstance(book, ClaimBooks):
            columns += book.charged(own)
    _expect(bool((columns == state.columns).all()), "node columns differ from the sum of their tasks")
    _expect({row: d for row, d in devices.items() if d} == state.devices, "shared GPUs differ from their tenants")
    _expect(ports == state.ports, "host ports differ from those of the tasks")
    _expect(closing == state.closing, "host ports given up differ from those of the tasks that leave")
    _expect(bool((state.free == state.columns[IDLE] + state.columns[RELEASING]).all()), "free is not idle + releasing")
    for key, moved in state.moved.items():
        if moved.status not in (Status.PIPELINED, Status.ALLOCATED, Status.BINDING):
            continue
        plane = state.free if moved.status is Status.PIPELINED else state.idle
        asked = [axis for axis, _ in snapshot.vectors[snapshot.records[key].shape].asked]
        facts = nodes.facts[moved.row]
        _expect(bool((plane[asked, moved.row] >= 0).all()), f"node {facts.name} is over-filled")
        for group in moved.gpu_groups:
            use = state.devices[moved.row][group]
            held = use.allocated_mib - (use.releasing_mib if moved.status is Status.PIPELINED else 0)
            _expect(held <= facts.gpu_mib, f"GPU {group} of node {facts.name} is over-filled")


def _holders(session: Session) -> Iterator[tuple[Task, Status, int, tuple[str, ...]]]:
    """Every task on every node it holds: one that is moved holds two."""
    state, rows = session.state, session.snapshot.nodes.rows
    for key, task in session.snapshot.records.items():
        moved, leaving = state.moved.get(key), state.leaving.get(key)
        if leaving is not None:
            yield task, Status.RELEASING, leaving.row, leaving.gpu_groups
        if moved is None:
            if task.holds_node and task.node in rows:
                yield task, task.status, rows[task.node], task.gpu_groups
        elif moved.status not in (Status.RELEASING, Status.PENDING):
            yield task, moved.status, moved.row, moved.gpu_groups


@runtime_checkable
class Countable(Protocol):
    """Books that can be added up."""

    def agrees(self, holders: Iterable[tuple[int, object, int]]) -> bool:
        """Whether the books are what these hold: (node row, content, how it is held)."""


def _held_by_books(session: Session) -> Iterator[tuple[Books, list[tuple[int, object, int]]]]:
    """What all tasks hold, by books: node row, content, how."""
    state, rows = session.state, session.snapshot.nodes.rows
    held: list[tuple[Grant, int, int]] = []
    for key, task in session.snapshot.records.items():
        moved, leaving = state.moved.get(key), state.leaving.get(key)
        if leaving is not None:
            held.extend((grant, leaving.row, holding_of(Status.RELEASING)) for grant in leaving.grants)
        if moved is None:
            if task.holds_node and task.node in rows:
                held.extend((g, rows[task.node], holding_of(task.status)) for g in state.held_before(task))
        elif moved.status not in (Status.RELEASING, Status.PENDING):
            held.extend((grant, moved.row, holding_of(moved.status)) for grant in moved.grants)
    for book in state.books:
        yield book, [(row, grant.content, holding) for grant, row, holding in held if grant.book is book]


def _check_books(session: Session) -> None:
    for book, own in _held_by_books(session):
        if isinstance(book, Countable):
            _expect(book.agrees(own), f"{type(book).__name__} differ from what the tasks hold")


def _check_queues(session: Session) -> None:
    state, tree = session.state, session.snapshot.tree
    allocated = [[0.0, 0.0, 0.0] for _ in tree.names]
    committed = [[0.0, 0.0, 0.0] for _ in tree.names]
    for entry in session.snapshot.entries.values():
        group = entry.group
        if group is None or group.queue not in tree.rows or not group.in_cycle:
            continue
        preemptible = session.snapshot.preemptible(group, session.snapshot.priority_of(group))
        semi = group.preemptibility == names.SEMI_PREEMPTIBLE
        core = {task.key for task in core_of(group, entry.tasks.values(), session.task_order)} if semi else set()
        for key, task in entry.tasks.items():
            moved = state.moved.get(key)
            if moved is None:
                row = session.snapshot.nodes.rows.get(task.node, -1)
                counts = QUEUE_ALLOCATED[task.status]
            else:
                row, counts = moved.row, moved.status not in (Status.RELEASING, Status.PENDING)
            if not counts:
                continue
            vector = session.snapshot.vectors[task.shape]
            amounts = (
                state.amounts_on(task.shape, row)
                if row >= 0
                else (vector.cpu, vector.memory, task.shape.gpu_hundredths)
            )
            for queue in tree.chains[tree.rows[group.queue]]:
                for resource in range(3):
                    allocated[queue][resource] += amounts[resource]
                    if not preemptible and (not semi or key in core or key in state.core):
                        committed[queue][resource] += amounts[resource]
    for sums, kept, what in (
        (allocated, state.ledger.allocated, "has"),
        (committed, state.ledger.committed, "has for non-preemptible work"),
    ):
        for queue, name in enumerate(tree.names):
            # Figures are whole numbers, so only sums beyond 2^53 may differ in their last bits.
            same = all(abs(a - b) <= 1e-12 * abs(a) for a, b in zip(sums[queue], kept[queue], strict=True))
            _expect(same, f"queue {name} {what} {kept[queue]}, its tasks add up to {sums[queue]}")


def _check_leaving(session: Session) -> None:
    snapshot, leaving = session.snapshot, session.state.ledger.leaving
    tree = snapshot.tree
    held = [[[0.0, 0.0, 0.0] for _ in tree.names] for _ in range(2)]
    for entry in snapshot.entries.values():
        if entry.group is None or entry.group.queue not in tree.rows:
            continue
        for task in entry.tasks.values():
            if not LEAVING[task.status] or not task.node:
                continue
            amounts = snapshot.amounts_on(task.shape, snapshot.nodes.rows.get(task.node, -1))
            for queue in tree.chains[tree.rows[entry.group.queue]]:
                for resource in range(3):
                    held[0][queue][resource] += amounts[resource]
                    held[1][queue][resource] += amounts[resource] * task.lasts(snapshot.shard.stuck_after_ns)
    kept = [leaving.start.amounts, leaving.promise.amounts] if leaving is not None else None
    for found, sums in zip(held, kept or held, strict=True):
        same = all(
            abs(a - b) <= 1e-12 * abs(a) for rows in zip(found, sums, strict=True) for a, b in zip(*rows, strict=False)
        )
        _expect(same, f"pods in deletion hold {found}, the ledger has {sums}")
    nothing = not any(any(row) for row in held[0])
    _expect(leaving is not None or nothing, "pods in deletion hold something, and the ledger has nothing")


def _check_gangs(session: Session) -> None:
    status_of = session.state.status_of
    for gang in session.waiting():
        statuses: dict[str, list[Status]] = {leaf.name: [] for leaf in gang.leaves}
        for task in session.snapshot.entries[gang.key].tasks.values():
            if task.subgroup in statuses:
                statuses[task.subgroup].append(status_of(task))
        for leaf in gang.leaves:
            found = statuses[leaf.name]
            counted = (
                sum(ACTIVE_ALLOCATED[status] for status in found),
                sum(ACTIVE_USED[status] for status in found),
                found.count(Status.PIPELINED),
                sum(status_of(task) is Status.PENDING for task in leaf.tasks),
            )
            kept = (leaf.active_allocated, leaf.active_used, leaf.pipelined, leaf.open)
            _expect(counted == kept, f"subgroup {leaf.name} of {gang.key} counts {kept}, its tasks are {counted}")
        _expect(
            gang.open == sum(leaf.open for leaf in gang.leaves), f"{gang.key} has not as many open tasks as its leaves"
        )
        _expect(
            gang.pipelined == sum(leaf.pipelined for leaf in gang.leaves),
            f"{gang.key} has not the promises of its leaves",
        )
