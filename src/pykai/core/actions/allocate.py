"""Allocate: pending work on free resources, in fair order, all or nothing (cycle:12)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from typing import NamedTuple

from pykai.api import names
from pykai.core.decisions import Bind, BrokenTree, Nominate, NoQueue, NotLeafQueue, NotReady, NotSupported
from pykai.core.fairshare.ledger import Amounts
from pykai.core.gangs import BranchRun, Gang, LeafRun
from pykai.core.order.queues import QueueWalk
from pykai.core.place.gang import place_gang
from pykai.core.session import Session
from pykai.core.shapes import GpuKind, Shape
from pykai.core.state import Placement
from pykai.core.status import Status
from pykai.core.tasks import Task
from pykai.core.validate import check_state


def allocate(session: Session) -> None:
    """Serve waiting gangs in fair order until none is left."""
    state = session.state
    walk = walk_of(session, "allocate")
    while (gang := walk.pop()) is not None:
        mark = state.mark()
        if not place_gang(session, gang):
            continue
        if gang.pipelined and _minimum_waits(gang):
            # A gang never starts in parts: if some of the minimum must wait, all of it waits (cycle:ALC-5).
            state.convert_to_pipelined(gang, mark)
        _carry_out(session, gang, mark)
        if session.policy.validate:
            check_state(session)
        if gang.open:
            walk.push(gang)


def _minimum_waits(gang: Gang) -> bool:
    """Some leaf has its minimum only together with what is pipelined."""
    return any(leaf.pipelined and leaf.active_allocated - leaf.pipelined < leaf.minimum for leaf in gang.leaves)


def walk_of(session: Session, action: str) -> QueueWalk:
    """The fair order of everything that may be placed; what may not gets its refusal here."""
    rules, state = session.rules, session.state
    queue_key, queue_tie = rules.queue_key, rules.queue_tie

    def request(gang: Gang) -> Amounts:
        return session.amounts(gang, session.smallest_gpu_mib)

    return QueueWalk(
        session.snapshot.tree,
        _eligible(session),
        gang_key=session.group_order,
        request=request,
        queue_key=partial(queue_key, state) if queue_key is not None else None,
        beats=partial(queue_tie, state) if queue_tie is not None else None,
        depth=session.policy.queue_depth.get(action),
    )


def _eligible(session: Session) -> Iterator[Gang]:
    """Gangs that may be placed at all (cycle:ORD-1)."""
    tree = session.snapshot.tree
    for gang in session.waiting():
        group = gang.group
        if gang.queue < 0:
            session.refuse(gang, NoQueue(group.queue))
        elif tree.children[gang.queue]:
            session.refuse(gang, NotLeafQueue(group.queue))
        elif group.tree_error:
            session.refuse(gang, BrokenTree(group.tree_error))
        elif not session.next_tasks(gang):
            for reason in _unready(gang.root):
                session.refuse(gang, reason)
        elif gang.unsupported:
            session.refuse(gang, NotSupported(tuple(sorted(gang.unsupported))))
        else:
            yield gang


def _unready(branch: BranchRun) -> Iterator[NotReady | BrokenTree]:
    """What is missing below a subgroup."""
    if branch.needed > len(branch.children):
        where = f'subgroup "{branch.name}"' if branch.name else "the group"
        yield BrokenTree(f"{where} needs {branch.needed} subgroups and has only {len(branch.children)}")
    for child in branch.children:
        if not child.ready:
            if isinstance(child, LeafRun):
                yield NotReady(child.name, child.minimum, child.alive, child.gated)
            else:
                yield from _unready(child)


class _Received(NamedTuple):
    type: str
    devices: int
    portion: str


_CPU_ONLY = _Received(names.RECEIVED_REGULAR, 0, "0.00")
_MIG = _Received(names.RECEIVED_MIG, 0, "0.00")


@lru_cache(maxsize=64)
def _whole(devices: int) -> _Received:
    return _Received(names.RECEIVED_REGULAR, devices, "1.00")


def _received(session: Session, shape: Shape, row: int) -> _Received:
    """What the BindRequest says a pod received (cycle:OUT-1; gpu:C-8)."""
    gpu = shape.gpu
    if gpu.kind is GpuKind.NONE:
        return _CPU_ONLY
    if gpu.kind is GpuKind.WHOLE:
        return _whole(gpu.devices)
    if gpu.kind is GpuKind.MIG:
        return _MIG
    portion = session.state.amounts_on(shape, row)[2] / gpu.devices / 100.0
    return _Received(names.RECEIVED_FRACTION, gpu.devices, f"{portion:.2f}")


def _carry_out(session: Session, gang: Gang, mark: int) -> None:
    """Turn what was placed since the mark into decisions."""
    pipelined = False
    node_names = session.snapshot.nodes.names
    for task, placement in session.state.commit(mark):
        node = node_names[placement.row]
        if placement.status is Status.BINDING:
            session.binds.append(_bind(session, gang, task, placement, node))
        else:
            pipelined = True
            session.nominations.append(
                Nominate(
                    task.namespace,
                    task.name,
                    task.uid,
                    gang.key,
                    node,
                    placement.gpu_groups,
                )
            )
    if not pipelined and not gang.started_before:
        gang.started_before = True
        session.started.append(gang.key)


def _bind(session: Session, gang: Gang, task: Task, placement: Placement, node: str) -> Bind:
    received = _received(session, task.shape, placement.row)
    annotations: dict[str, str] = {}
    for mutate in session.rules.bind_annotations:
        annotations.update(mutate(task, node))
    return Bind(
        task.namespace,
        task.name,
        task.uid,
        gang.key,
        node,
        received.type,
        received.devices,
        received.portion,
        placement.gpu_groups,
        annotations,
    )
