"""Ungate: pods that wait behind the gate of their queue are admitted as far as its quota and limit go (queues:17.2).

The gate hides work from cluster autoscalers that the queue could not run anyway.  It is removed when the queue could
run the work, whether or not a node is free: a pod that was admitted and finds no node is what an autoscaler acts on.

What was admitted and still waits is charged to its queues for a while, or a second group would be admitted to the same
quota.  The action charges the ledger of the cycle and takes everything back at its end: nothing of this is allocated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from pykai.api import names
from pykai.core import caching
from pykai.core.actions.action import Action
from pykai.core.cluster.groupindex import GroupEntry
from pykai.core.cycle.admissiongangs import AdmissionGang
from pykai.core.cycle.cyclegangs import total_amounts
from pykai.core.cycle.gangs import Batch
from pykai.core.cycle.queuewalk import gangs_by_leaf_queue, lines_by_leaf_queue
from pykai.core.cycle.state import State
from pykai.core.model.gates import Gate
from pykai.core.model.groups import Group
from pykai.core.model.protected import protected_tasks
from pykai.core.model.queuetree import GPU, QueueAmounts
from pykai.core.model.shapes import GpuKind
from pykai.core.model.status import QUEUE_ALLOCATED, TaskStatus
from pykai.core.model.tasks import Task, by_age
from pykai.core.opencycle import Cycle
from pykai.core.placing.capacity import over_capacity
from pykai.core.queueing.queueledger import CapacityRefusal, QueueLedger
from pykai.core.report.decisions import BrokenTree, NoQueue, NotLeafQueue, NotReady, OverCapacity, Refusal, Ungate

#: How often a group is served in one cycle: its minimum, then a pod or a whole subgroup each time.  Every turn
#: evaluates the subgroup tree, so one group must not take thousands; the next cycles go on.
MAX_TURNS: Final = 100


def ungate(cycle: Cycle, action: Action) -> None:
    """Admit what the queues may take; with the feature off, open every gate (queues:Q-406, Q-407)."""
    snapshot = cycle.context.snapshot
    if not snapshot.held_by_queue:
        return
    reservation_ns = cycle.context.policy.admission_reservation_ns
    if reservation_ns is None:
        _open_all(cycle)
        return
    gangs = list(_admissible_gangs(cycle))
    if not gangs:
        return
    charges = _Charges(cycle.state.ledger)
    try:
        _charge_reservations(cycle, charges, reservation_ns)
        # What a scheduler that died left half admitted goes first, in all queues (queues:Q-408).
        partly: list[AdmissionGang] = []
        others: list[AdmissionGang] = []
        for gang in gangs:
            (partly if _was_left_half_admitted(cycle, gang, reservation_ns) else others).append(gang)
        for each in (partly, others):
            _admit(cycle, action, each, charges)
    finally:
        charges.take_back()
    cycle.gangs.reuse.admission_gangs = {gang.key: gang for gang in gangs if not gang.touched}


def _was_left_half_admitted(cycle: Cycle, gang: AdmissionGang, reservation_ns: int) -> bool:
    """Whether what was admitted of a gang holds a reservation, for which the rest is missing (queues:Q-408).

    A gang whose minimum was raised holds none once its pods are placed, so it waits in line (ADR-35).
    """
    since_ns = gang.first_admitted_ns
    if since_ns is None or not gang.is_partly_admitted(cycle.context.snapshot.now_ns):
        return False
    return not cycle.state.passed(since_ns + reservation_ns)


def _open_all(cycle: Cycle) -> None:
    """Open the gates of all pods, those without a PodGroup included; other shards open those of their groups."""
    snapshot = cycle.context.snapshot
    for _, task in sorted(snapshot.held_by_queue.items()):
        entry = snapshot.group_entries.get(task.group_key)
        if entry is None or not entry.in_other_shard:
            _record(cycle, task, "")
            _drop_not_ready(cycle, task.group_key)


def _record(cycle: Cycle, task: Task, queue: str) -> None:
    cycle.decisions.ungates[task.key] = Ungate(task.namespace, task.name, task.uid, task.group_key, queue)


def _admissible_gangs(cycle: Cycle) -> Iterator[AdmissionGang]:
    """Groups with tasks that only the gate of their queue holds, and that can be complete without it.

    Where the queue does not gate, the gate is opened at once (queues:Q-407); where it does not exist, the pods stay as
    they are (queues:Q-408).
    """
    tree = cycle.context.snapshot.tree
    for waiting in cycle.gangs.waiting():
        if not waiting.entry.held.tasks:
            continue
        group, queue = waiting.group, waiting.queue
        if queue < 0:
            _refuse_once(cycle, waiting.key, NoQueue(group.queue, tree.left_out.get(group.queue, "")))
        elif not tree.gated[queue]:
            for task in sorted(waiting.entry.tasks.values(), key=cycle.gangs.task_order):
                if task.held_by_queue:
                    _record(cycle, task, "")
            _drop_not_ready(cycle, waiting.key)
        elif tree.children[queue]:
            _refuse_once(cycle, waiting.key, NotLeafQueue(group.queue))
        elif group.tree_error:
            _refuse_once(cycle, waiting.key, BrokenTree(group.tree_error))
        else:
            gang = _admission_gang(cycle, waiting.entry, group, queue)
            if _next_tasks(cycle, gang):
                yield gang


def _admission_gang(cycle: Cycle, entry: GroupEntry, group: Group, queue: int) -> AdmissionGang:
    known = cycle.gangs.reuse.admission_gangs.get(group.key)
    if isinstance(known, AdmissionGang) and known.entry is entry and known.version == entry.version:
        return known
    snapshot = cycle.context.snapshot
    priority = snapshot.priority_of(group)
    gang = AdmissionGang(
        group, entry, queue, snapshot.tree.chains[queue], priority, snapshot.is_preemptible(group, priority)
    )
    gang.sort_tasks(cycle.gangs.task_order)
    return gang


def _next_tasks(cycle: Cycle, gang: AdmissionGang) -> list[Batch]:
    ungates = cycle.decisions.ungates
    return gang.select_tasks(lambda task: task.key not in ungates, cycle.context.rules.subgroup_key)


def _requested(cycle: Cycle, gang: AdmissionGang) -> QueueAmounts:
    """What the next tasks request, gpu-memory converted by the largest GPU: the optimistic sum (queues:Q-202)."""
    gpu_mib = cycle.context.largest_gpu_mib
    amounts = gang.requested_by_gpu_mib.get(gpu_mib)
    if amounts is None:
        amounts = total_amounts(cycle.context.snapshot.vectors, _next_tasks(cycle, gang), gpu_mib)
        if caching.enabled:
            gang.requested_by_gpu_mib[gpu_mib] = amounts
    return amounts


class _Charges:
    """What is charged to the ledger for the length of this action."""

    def __init__(self, ledger: QueueLedger) -> None:
        self._ledger = ledger
        #: [queue] before anything was charged
        self.allocated = list(ledger.allocated)
        self.allocated_non_preemptible = list(ledger.allocated_non_preemptible)
        #: names the figures of the ledger
        self.version = 0

    def add(self, chain: tuple[int, ...], amounts: QueueAmounts, *, non_preemptible: bool) -> None:
        """Charge a queue and its ancestors."""
        self._ledger.add(chain, amounts, non_preemptible)
        self.version += 1

    def take_back(self) -> None:
        """Restore the ledger."""
        self._ledger.allocated[:] = self.allocated
        self._ledger.allocated_non_preemptible[:] = self.allocated_non_preemptible

    def split(self, refusal: CapacityRefusal, record: OverCapacity) -> OverCapacity:
        """A refusal with what is reserved apart from what is allocated."""
        rows = self.allocated if refusal.rule == "limit" else self.allocated_non_preemptible
        allocated = rows[refusal.queue][refusal.resource]
        if refusal.used <= allocated:
            return record
        scale = 100.0 if refusal.resource == GPU else 1.0
        return replace(record, used=allocated / scale, reserved=(refusal.used - allocated) / scale)


def _charge_reservations(cycle: Cycle, charges: _Charges, reservation_ns: int) -> None:
    """Charge pods that no gate holds and that still wait, as long as their reservation lasts (queues:Q-406).

    A pod that was admitted has passed the check of its queues.  One that never had a gate has not: it reserves only
    what its queues could still take, or a request that can never be placed would keep out everything beside it.
    """
    snapshot, state = cycle.context.snapshot, cycle.state
    tree = snapshot.tree
    admitted: list[tuple[Task, Group, int, bool]] = []
    never_admitted: list[tuple[Task, Group, int, bool]] = []
    for entry in snapshot.group_index.waiting.values():
        group = entry.group
        if group is None or group.tree_error or (queue := tree.rows.get(group.queue)) is None or tree.children[queue]:
            continue
        leaves = group.leaf_index
        reserving = [
            task
            for task in entry.tasks.values()
            # A stray is never placed (cycle:PG-4).
            if task.subgroup in leaves and _is_reserving(state, task, reservation_ns)
        ]
        if not reserving:
            continue
        keys = _non_preemptible_keys(cycle, entry, group, reserving)
        for task in reserving:
            reservations = admitted if task.was_admitted(snapshot.now_ns) else never_admitted
            reservations.append((task, group, queue, task.key in keys))
    # In an order of their own: sums of fractions must not depend on the order in which pods arrived.
    for reservations in (admitted, never_admitted):
        reservations.sort(key=lambda item: by_age(item[0]))
    for task, _, queue, non_preemptible in admitted:
        charges.add(tree.chains[queue], _amounts_of(cycle, task), non_preemptible=non_preemptible)
    for task, group, queue, non_preemptible in never_admitted:
        chain, amounts = tree.chains[queue], _amounts_of(cycle, task)
        if state.ledger.check_capacity(chain, amounts, non_preemptible, preemptor=group.uid) is None:
            charges.add(chain, amounts, non_preemptible=non_preemptible)


def _amounts_of(cycle: Cycle, task: Task) -> QueueAmounts:
    """What a task requests, gpu-memory converted by the largest GPU (queues:Q-202)."""
    amounts, gpu = cycle.context.snapshot.vectors[task.shape].amounts, task.shape.gpu
    gpu_mib = cycle.context.largest_gpu_mib
    if gpu.kind is GpuKind.MEMORY and gpu_mib:
        return (amounts[0], amounts[1], amounts[2] + 100.0 * gpu.devices * gpu.memory_mib / gpu_mib)
    return amounts


def _is_reserving(state: State, task: Task, reservation_ns: int) -> bool:
    """Whether a pod was admitted, still waits, and its reservation lasts.

    Users can write the annotation of a pod.  A time before its creation or in the future is not true, and one that is
    missing says nothing: then the reservation begins with the pod, and ends.
    """
    if not task.for_this_scheduler or task.gate not in (Gate.NONE, Gate.OPENING):
        return False
    if state.status_of(task) not in (TaskStatus.PENDING, TaskStatus.GATED):
        return False
    since_ns = task.creation_ns
    if task.admitted_ns is not None and task.was_admitted(state.snapshot.now_ns):
        since_ns = task.admitted_ns
    return not state.passed(since_ns + reservation_ns)


def _non_preemptible_keys(cycle: Cycle, entry: GroupEntry, group: Group, reserving: list[Task]) -> set[str]:
    """Which of these tasks of a group will count as non-preemptible."""
    snapshot = cycle.context.snapshot
    keys = {task.key for task in reserving}
    if group.preemptibility == names.SEMI_PREEMPTIBLE:
        tasks = entry.tasks.values()
        protected = protected_tasks(
            group,
            tasks,
            cycle.gangs.task_order,
            lambda task: task.key in keys or QUEUE_ALLOCATED[cycle.state.status_of(task)],
        )
        return keys & {task.key for task in protected}
    return set() if snapshot.is_preemptible(group, snapshot.priority_of(group)) else keys


def _admit(cycle: Cycle, action: Action, gangs: list[AdmissionGang], charges: _Charges) -> None:
    """Admit gangs in fair order, each as far as its queues may take it (queues:Q-406, Q-407)."""
    context, state, order_key = cycle.context, cycle.state, cycle.gangs.order_key_of
    by_key = {gang.key: gang for gang in gangs}
    # Like a start, an admission is charged with what pods in deletion still hold: a pod that then may not start would
    # be taken for one that lacks a node.
    gate = context.rules.start_gate or context.rules.quota_gate

    lines = lines_by_leaf_queue(
        gangs_by_leaf_queue(gangs, order_key),
        order_key,
        lambda gang: _requested(cycle, by_key[gang.key]),
        context.policy.queue_depth.get(action.name),
    )
    walk = cycle.gangs.queue_walk(lines, version=lambda: charges.version)
    turns: Counter[str] = Counter()
    while (popped := walk.pop()) is not None:
        gang = by_key[popped.key]
        batches, amounts = _next_tasks(cycle, gang), _requested(cycle, gang)
        non_preemptible = gang.next_task_non_preemptible
        refusal = gate(state, gang, amounts) if gate is not None else None
        _drop_not_ready(cycle, gang.key)
        if refusal is not None:
            record = over_capacity(context.snapshot.tree, refusal, amounts, gang.preemptible)
            cycle.decisions.record_refusal(gang, charges.split(refusal, record))
            continue
        for task in (task for batch in batches for task in batch.tasks):
            _record(cycle, task, gang.group.queue)
        charges.add(gang.chain, amounts, non_preemptible=non_preemptible)
        gang.admit(batches)
        turns[gang.key] += 1
        if turns[gang.key] < MAX_TURNS and _next_tasks(cycle, gang):
            walk.push(gang)


def _drop_not_ready(cycle: Cycle, key: str) -> None:
    """Only the gate of its queue kept the group from being ready: the verdict on the gate replaces that reason."""
    refusals = cycle.decisions.refusals.get(key)
    if refusals is None:
        return
    kept: list[Refusal] = [refusal for refusal in refusals if not isinstance(refusal, NotReady)]
    if kept:
        cycle.decisions.refusals[key] = kept
    else:
        del cycle.decisions.refusals[key]


def _refuse_once(cycle: Cycle, key: str, refusal: Refusal) -> None:
    """Record why a group stays behind its gate, unless another action has said so."""
    refusals = cycle.decisions.refusals.setdefault(key, [])
    if refusal not in refusals:
        refusals.append(refusal)
