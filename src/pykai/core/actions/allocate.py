"""Allocate: pending work on free resources, in fair order, all or nothing (cycle:12)."""

from __future__ import annotations

from collections.abc import Iterator

from pykai.core.cycle.gangs import BranchState, Gang, LeafState, SubgroupStatus, evaluate_subgroups
from pykai.core.cycle.recording import record_decisions
from pykai.core.cycle.session import Session
from pykai.core.cycle.validate import check_state
from pykai.core.placing.gang import place_gang
from pykai.core.queueing.queuewalk import QueueWalk, gangs_by_leaf_queue, lines_by_leaf_queue
from pykai.core.report.decisions import BrokenTree, NoQueue, NotLeafQueue, NotReady, NotSupported


def allocate(session: Session) -> None:
    """Serve waiting gangs in fair order until none is left (cycle:ALC-7)."""
    state = session.state
    walk = allocation_walk(session, "allocate")
    while (gang := walk.pop()) is not None:
        mark = state.mark()
        if not place_gang(session, gang):
            continue
        if gang.pipelined and _minimum_is_pipelined(gang):
            # A gang never starts in parts: if some of the minimum must wait, all of it waits (cycle:ALC-5).
            state.convert_to_pipelined(gang, mark)
        record_decisions(session, state.commit(mark))
        if session.policy.validate:
            check_state(session)
        if gang.unplaced:
            walk.push(gang)


def _minimum_is_pipelined(gang: Gang) -> bool:
    """Some leaf has its minimum only together with what is pipelined."""
    return any(leaf.pipelined and leaf.active_allocated - leaf.pipelined < leaf.minimum for leaf in gang.leaves)


def allocation_walk(session: Session, action: str) -> QueueWalk:
    """The fair order of everything that may be placed; what may not gets its refusal here."""
    depth = session.policy.queue_depth.get(action)
    lines = lines_by_leaf_queue(
        gangs_by_leaf_queue(eligible_gangs(session), session.order_key_of),
        session.order_key_of,
        session.requested_amounts,
        depth,
    )
    return session.queue_walk(lines)


def eligible_gangs(session: Session) -> Iterator[Gang]:
    """Gangs that may be placed at all (cycle:ORD-1; queues:Q-65, Q-235)."""
    tree = session.snapshot.tree
    for gang in session.waiting_gangs():
        group = gang.group
        if gang.queue < 0:
            session.record_refusal(gang, NoQueue(group.queue, tree.left_out.get(group.queue, "")))
        elif tree.children[gang.queue]:
            session.record_refusal(gang, NotLeafQueue(group.queue))
        elif group.tree_error:
            session.record_refusal(gang, BrokenTree(group.tree_error))
        elif not session.next_tasks(gang):
            statuses: dict[int, SubgroupStatus] = {}
            evaluate_subgroups(gang.root, statuses)
            for reason in _missing_pods(gang.root, statuses):
                session.record_refusal(gang, reason)
        elif gang.unsupported:
            session.record_refusal(gang, NotSupported(tuple(sorted(gang.unsupported))))
        else:
            yield gang


def _missing_pods(branch: BranchState, statuses: dict[int, SubgroupStatus]) -> Iterator[NotReady | BrokenTree]:
    """What is missing below a subgroup."""
    if branch.needed > len(branch.children):
        where = f'subgroup "{branch.name}"' if branch.name else "the group"
        yield BrokenTree(f"{where} needs {branch.needed} subgroups and has only {len(branch.children)}")
    for child in branch.children:
        if not statuses[id(child)].ready:
            if isinstance(child, LeafState):
                yield NotReady(child.name, child.minimum, child.alive, child.gated)
            else:
                yield from _missing_pods(child, statuses)
