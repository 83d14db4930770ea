"""Allocate: pending work on free resources, in fair order, all or nothing (cycle:12)."""

from __future__ import annotations

from collections.abc import Iterator

from pykai.core.cycle.gangs import BranchRun, Gang, Judged, LeafRun, judge
from pykai.core.cycle.recording import carry_out
from pykai.core.cycle.session import Session
from pykai.core.cycle.validate import check_state
from pykai.core.placing.gang import place_gang
from pykai.core.queueing.queuewalk import QueueWalk, in_line, lines_of
from pykai.core.report.decisions import BrokenTree, NoQueue, NotLeafQueue, NotReady, NotSupported


def allocate(session: Session) -> None:
    """Serve waiting gangs in fair order until none is left (cycle:ALC-7)."""
    state = session.state
    walk = walk_of(session, "allocate")
    while (gang := walk.pop()) is not None:
        mark = state.mark()
        if not place_gang(session, gang):
            continue
        if gang.pipelined and _minimum_waits(gang):
            # A gang never starts in parts: if some of the minimum must wait, all of it waits (cycle:ALC-5).
            state.convert_to_pipelined(gang, mark)
        carry_out(session, state.commit(mark))
        if session.policy.validate:
            check_state(session)
        if gang.open:
            walk.push(gang)


def _minimum_waits(gang: Gang) -> bool:
    """Some leaf has its minimum only together with what is pipelined."""
    return any(leaf.pipelined and leaf.active_allocated - leaf.pipelined < leaf.minimum for leaf in gang.leaves)


def walk_of(session: Session, action: str) -> QueueWalk:
    """The fair order of everything that may be placed; what may not gets its refusal here."""
    depth = session.policy.queue_depth.get(action)
    lines = lines_of(in_line(eligible(session), session.place_of), session.place_of, session.request_of, depth)
    return session.queue_walk(lines)


def eligible(session: Session) -> Iterator[Gang]:
    """Gangs that may be placed at all (cycle:ORD-1; queues:Q-65, Q-235)."""
    tree = session.snapshot.tree
    for gang in session.waiting():
        group = gang.group
        if gang.queue < 0:
            session.refuse(gang, NoQueue(group.queue, tree.left_out.get(group.queue, "")))
        elif tree.children[gang.queue]:
            session.refuse(gang, NotLeafQueue(group.queue))
        elif group.tree_error:
            session.refuse(gang, BrokenTree(group.tree_error))
        elif not session.next_tasks(gang):
            judged: dict[int, Judged] = {}
            judge(gang.root, judged)
            for reason in _unready(gang.root, judged):
                session.refuse(gang, reason)
        elif gang.unsupported:
            session.refuse(gang, NotSupported(tuple(sorted(gang.unsupported))))
        else:
            yield gang


def _unready(branch: BranchRun, judged: dict[int, Judged]) -> Iterator[NotReady | BrokenTree]:
    """What is missing below a subgroup."""
    if branch.needed > len(branch.children):
        where = f'subgroup "{branch.name}"' if branch.name else "the group"
        yield BrokenTree(f"{where} needs {branch.needed} subgroups and has only {len(branch.children)}")
    for child in branch.children:
        if not judged[id(child)].ready:
            if isinstance(child, LeafRun):
                yield NotReady(child.name, child.minimum, child.alive, child.gated)
            else:
                yield from _unready(child, judged)
