"""Allocate: pending work on free resources, in fair order, all or nothing (cycle:12)."""

from __future__ import annotations

from collections.abc import Iterator

from pykai.core.actions.action import Action
from pykai.core.cycle.cyclegangs import CycleGangs
from pykai.core.cycle.gangs import BranchState, Gang, LeafState, SubgroupStatus, evaluate_subgroups
from pykai.core.cycle.queuewalk import QueueWalk, gangs_by_leaf_queue, lines_by_leaf_queue
from pykai.core.cycle.recording import Decisions, record_decisions
from pykai.core.cycle.validate import check_state
from pykai.core.model.queuetree import QueueTree
from pykai.core.model.status import TaskStatus
from pykai.core.opencycle import Cycle
from pykai.core.report.decisions import BrokenTree, NoQueue, NotLeafQueue, NotReady, NotSupported
from pykai.core.report.evictions import missing_subgroups_text


def allocate(cycle: Cycle, action: Action) -> None:
    """Serve waiting gangs in fair order until none is left (cycle:ALC-7)."""
    if cycle.context.policy.served_first:
        _serve_first(cycle)
    walk = allocation_walk(cycle, action.name)
    while (gang := walk.pop()) is not None:
        if _serve(cycle, gang) and gang.unplaced:
            walk.push(gang)


def _serve(cycle: Cycle, gang: Gang) -> bool:
    """Place the next tasks of a gang; whether they fit."""
    state = cycle.state
    mark = state.mark()
    if not cycle.placer.place_gang(gang):
        return False
    if gang.pipelined and _minimum_is_pipelined(gang):
        # A gang never starts in parts: if some of the minimum must wait, all of it waits (cycle:ALC-5).
        state.convert_to_pipelined(gang, mark)
    record_decisions(cycle.decisions, state, cycle.context.rules, state.commit(mark))
    if cycle.context.policy.validate:
        check_state(state, cycle.gangs)
    return True


def _serve_first(cycle: Cycle) -> None:
    """Serve the gangs of the last cycle's fair moves (cycle:SOL-17).

    They stay first while they wait for pods that leave, and no longer: what does not fit any more competes again.
    """
    gangs, decisions = cycle.gangs, cycle.decisions
    entries = cycle.context.snapshot.group_entries
    waiting = {gang.key: gang for gang in gangs.waiting()}
    for key in cycle.context.policy.served_first:
        gang = waiting.get(key)
        if gang is not None and _can_be_placed(cycle.state.snapshot.tree, gangs, gang):
            if not _serve(cycle, gang):
                # It is tried again in its turn, and says then why it waits.
                decisions.refusals.pop(key, None)
            elif gang.pipelined:
                decisions.served_first.append(key)
        elif key in entries and any(task.status is TaskStatus.RELEASING for task in entries[key].tasks.values()):
            decisions.served_first.append(key)


def _can_be_placed(tree: QueueTree, gangs: CycleGangs, gang: Gang) -> bool:
    """Whether nothing but the cluster keeps a gang from being placed."""
    if gang.queue < 0 or tree.children[gang.queue] or gang.group.tree_error or gang.unsupported:
        return False
    return bool(gangs.next_tasks(gang))


def _minimum_is_pipelined(gang: Gang) -> bool:
    """Whether some leaf has its minimum only together with pipelined tasks."""
    return any(leaf.pipelined and leaf.active_allocated - leaf.pipelined < leaf.minimum for leaf in gang.leaves)


def allocation_walk(cycle: Cycle, action: str) -> QueueWalk:
    """The fair order of all gangs that may be placed; the others get their refusal here."""
    gangs = cycle.gangs
    lines = lines_by_leaf_queue(
        gangs_by_leaf_queue(eligible_gangs(cycle.state.snapshot.tree, gangs, cycle.decisions), gangs.order_key_of),
        gangs.order_key_of,
        gangs.requested_amounts,
        cycle.context.policy.queue_depth.get(action),
    )
    return gangs.queue_walk(lines)


def eligible_gangs(tree: QueueTree, gangs: CycleGangs, decisions: Decisions) -> Iterator[Gang]:
    """Gangs that may be placed at all (cycle:ORD-1; queues:Q-65, Q-235)."""
    for gang in gangs.waiting():
        group = gang.group
        if gang.queue < 0:
            decisions.record_refusal(gang, NoQueue(group.queue, tree.left_out.get(group.queue, "")))
        elif tree.children[gang.queue]:
            decisions.record_refusal(gang, NotLeafQueue(group.queue))
        elif group.tree_error:
            decisions.record_refusal(gang, BrokenTree(group.tree_error))
        elif not gangs.next_tasks(gang):
            statuses: dict[int, SubgroupStatus] = {}
            evaluate_subgroups(gang.root, statuses)
            for reason in _missing_pods(gang.root, statuses):
                decisions.record_refusal(gang, reason)
        elif gang.unsupported:
            decisions.record_refusal(gang, NotSupported(tuple(sorted(gang.unsupported))))
        else:
            yield gang


def _missing_pods(branch: BranchState, statuses: dict[int, SubgroupStatus]) -> Iterator[NotReady | BrokenTree]:
    """The pods that are missing below a subgroup."""
    if branch.needed > len(branch.children):
        yield BrokenTree(missing_subgroups_text(branch.name, branch.needed, len(branch.children)))
    for child in branch.children:
        if not statuses[id(child)].ready:
            if isinstance(child, LeafState):
                yield NotReady(child.name, child.minimum, child.alive, child.gated)
            else:
                yield from _missing_pods(child, statuses)
