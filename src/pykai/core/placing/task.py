"""Placing one task: on the best node that fits (cycle:ALC-3, ALC-4)."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np

from pykai.core.cycle.gangs import Batch, Gang, LeafRun
from pykai.core.cycle.journal import Grant, Placement
from pykai.core.cycle.session import Failure, Session
from pykai.core.cycle.state import State
from pykai.core.hooks import Ask, NodeSet, PreFailure, Rows
from pykai.core.model.axes import BoolArray
from pykai.core.model.tasks import Task
from pykai.core.placing.capacity import over_capacity
from pykai.core.placing.fit import fits_idle_row
from pykai.core.placing.gpus import choose_devices
from pykai.core.placing.ports import conflict
from pykai.core.placing.reasons import node_refusals

_ALL: Rows = slice(None)


class Manner(NamedTuple):
    """How tasks are placed."""

    #: on promises only: a trial
    pipeline_only: bool
    #: shared requests take the devices with most room, whatever the plugins prefer: so most pods of a kind fit a node
    roomiest: bool = False


def ask_of(session: Session, gang: Gang, leaf: LeafRun, task: Task) -> Ask:
    """A task of a gang looking for a place."""
    return Ask(task, gang, leaf, session.snapshot.vectors[task.shape])


def place_batch(
    session: Session, gang: Gang, batch: Batch, index: int, nodes: NodeSet, manner: Manner
) -> Failure | None:
    """Place the tasks of one leaf in order; the caller rolls back when one finds no place."""
    for position, task in enumerate(batch.tasks):
        ask = ask_of(session, gang, batch.leaf, task)
        failure = _place_task(session, ask, nodes, manner)
        if failure is not None:
            return failure._replace(batch=index, position=position)
    return None


def _place_task(session: Session, ask: Ask, nodes: NodeSet, manner: Manner) -> Failure | None:
    """Place one task on the best node that fits (cycle:ALC-3; gpu:F-0)."""
    state, rules = session.state, session.rules
    state.work += 1
    failures: list[PreFailure] = []
    for check in rules.pre_place:
        if (failure := check(state, ask)) is not None:
            failures.append(failure)
    if failures:
        return Failure(0, 0, 0, unmet_text(failures), {}, any(found.unresolvable for found in failures))
    if not len(session.snapshot.nodes):
        return Failure(0, 0, 0, "", {}, False)

    scores = session.rankings.of(state, ask, nodes).scores
    barred = _barred(session, ask)
    if barred is not None:
        scores = np.where(barred, -inf, scores)
    leaving = state.leaving.get(ask.task.key) if state.leaving else None
    while True:
        row = int(scores.argmax())
        if scores.item(row) == -inf:
            return Failure(0, 0, 0, "", {} if manner.pipeline_only else _explain(session, ask, nodes), False)
        if leaving is not None and scores.item(leaving.row) == scores.item(row):
            # Nothing is gained by moving it elsewhere (cycle:SCO-5, Do better).
            row = leaving.row
        held = rules.start_gate is not None and _is_held(session, ask, row, manner)
        if _settle(state, ask, row, leaving, manner, held=held):
            return None
        # The books have less than the checks of the node said: take the next best (gpu:D-11, Do better).
        scores = scores.copy()
        scores[row] = -inf


def _is_held(session: Session, ask: Ask, row: int, manner: Manner) -> bool:
    """Whether a task may be promised its place, but not start: pods in deletion hold what its queue may have."""
    gate, state = session.rules.start_gate, session.state
    if gate is None or manner.pipeline_only:
        return False
    if ask.gang.key not in session.held and not ask.shape.gpu.memory_mib:
        # All tasks of the attempt together may start, and this one costs the same everywhere.
        return False
    amounts = state.amounts_on(ask.shape, row)
    refusal = gate(state, ask.gang, amounts)
    if refusal is not None and ask.gang.key not in session.held:
        # On this node a part of a GPU is more than the gang was thought to ask for.
        record = over_capacity(session.snapshot.tree, refusal, amounts, ask.gang.preemptible)
        session.held[ask.gang.key] = record
    return refusal is not None


def _settle(state: State, ask: Ask, row: int, leaving: Placement | None, manner: Manner, *, held: bool) -> bool:
    """Place a task on a node that passes the checks, or leave it where it is; False when some books refuse."""
    pipeline_only = manner.pipeline_only or held
    if ask.shape.host_ports and not pipeline_only:
        # A port stays taken until the pod that was told to leave is gone.
        pipeline_only = conflict(ask.shape.host_ports, state.closing.get(row, ()))
    if ask.shape.shared:
        seating = choose_devices(state, ask, row, pipeline_only=pipeline_only, roomiest=manner.roomiest)
        if seating is None:
            return False
        groups, pipelined = seating.groups, seating.pipelined
    else:
        groups, pipelined = (), pipeline_only or not fits_idle_row(state, ask, row)
    grants: tuple[Grant, ...] = ()
    if state.books:
        given = None if pipelined else state.grants_at(ask, row, idle=True)
        if given is None:
            pipelined = True
            given = state.grants_at(ask, row, idle=False)
        if given is None:
            return False
        grants = given
    if (
        leaving is not None
        and leaving.row == row
        and set(groups) == set(leaving.gpu_groups)
        and grants == leaving.grants
    ):
        state.keep(ask.gang, ask.leaf, ask.task)
    else:
        state.place(ask.gang, ask.leaf, ask.task, row, groups, grants, pipelined=pipelined)
    return True


def unmet_text(failures: list[PreFailure]) -> str:
    """Why no node was even looked at; `{pod}` stays in the text (cycle:FLT-5)."""
    lines = "".join(f"{found.predicate}: {found.error}.\n" for found in failures)
    return f"Scheduling conditions were not met for pod {{pod}}:\n{lines}"


def _barred(session: Session, ask: Ask) -> BoolArray | None:
    """[node] refused by the checks that are asked for every task, None when there are none."""
    barred: BoolArray | None = None
    for check in session.rules.ask_checks:
        if check.applies(ask):
            refused = check.evaluate(session.state, ask, _ALL) != 0
            barred = refused if barred is None else barred | refused
    return barred


def _explain(session: Session, ask: Ask, nodes: NodeSet) -> dict[str, int]:
    """Why no node fits, counted; equal asks share the count while nothing changes."""
    checks = [check for check in session.rules.ask_checks if check.applies(ask)]
    if any(check.key is None for check in checks):
        return node_refusals(session.state, session.rules, ask, nodes)
    own = tuple(check.key(ask) for check in checks if check.key is not None)
    key = (nodes, session.rankings.key(ask), own)
    version = session.state.version
    seen = session.explained.get(key)
    if seen is None or seen[0] != version:
        seen = session.explained[key] = (version, node_refusals(session.state, session.rules, ask, nodes))
    return seen[1]
