"""Placing a gang: all of the chosen tasks or none (cycle:12 ALC-1 to ALC-4).

The subgroup tree is walked with a mark at every level: plugins may offer several node sets for a subgroup (topology
domains), and a set that fails is rolled back before the next is tried.

An attempt that failed is remembered under everything it depended on.  An equal attempt while the state has not
changed would fail at the same task for the same reasons, so it is not made again; its explanation is the remembered
one with its own names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from math import inf

import numpy as np

from pykai.core.axes import BoolArray
from pykai.core.decisions import NoPlace
from pykai.core.gangs import Batch, BranchRun, Gang, LeafRun, by_subgroup_order
from pykai.core.hooks import Ask, NodeSet, PreFailure, Rows
from pykai.core.place.capacity import over_capacity
from pykai.core.place.fit import fits_idle_row
from pykai.core.place.gpus import choose_devices
from pykai.core.place.ports import conflict
from pykai.core.place.reasons import node_refusals
from pykai.core.session import Failure, Session
from pykai.core.state import Grant, Placement, State
from pykai.core.tasks import Task

EVERY_NODE = NodeSet()
_ALL: Rows = slice(None)


def place_gang(session: Session, gang: Gang) -> bool:
    """Place the next tasks of a gang, or nothing; a failure is recorded as the gang's refusal."""
    for prepare in session.rules.before_gang:
        prepare(session.state, gang)
    batches = session.next_tasks(gang)
    if not batches:
        return False
    if session.rules.quota_gate is not None:
        amounts = session.amounts(gang, session.largest_gpu_mib)
        refusal = session.rules.quota_gate(session.state, gang, amounts)
        if refusal is not None:
            session.refuse(gang, over_capacity(session.snapshot.tree, refusal, amounts, gang.preemptible))
            return False
    failure = _attempt(session, gang, batches, EVERY_NODE, False)
    if failure is not None:
        session.refuse(gang, _no_place(gang, batches, failure))
    return failure is None


def try_tasks(
    session: Session, gang: Gang, batches: list[Batch], nodes: NodeSet = EVERY_NODE, *, pipeline_only: bool = True
) -> bool:
    """Place these tasks of a gang, or nothing, in a trial: all on promises, and nobody is told why it failed
    (cycle:SOL-13, ALC-8)."""
    for prepare in session.rules.before_gang:
        prepare(session.state, gang)
    if session.rules.quota_gate is not None:
        amounts = session.count(batches, session.largest_gpu_mib)
        if session.rules.quota_gate(session.state, gang, amounts) is not None:
            return False
    return _attempt(session, gang, batches, nodes, pipeline_only) is None


def _attempt(session: Session, gang: Gang, batches: list[Batch], nodes: NodeSet, pipeline_only: bool) -> Failure | None:
    """Place all or nothing, unless an equal attempt has failed and nothing has changed since."""
    state = session.state
    seen = _seen_failure(session, gang, batches, nodes, pipeline_only)
    if seen is not None:
        return seen
    mark = state.mark()
    failure = _place_batches(session, gang, batches, nodes, pipeline_only)
    if failure is None:
        return None
    state.rollback(mark)
    failure = failure._replace(version=state.version)
    session.failures[_attempt_key(session, gang, batches, nodes, pipeline_only)] = failure
    return failure


def _seen_failure(
    session: Session, gang: Gang, batches: list[Batch], nodes: NodeSet, pipeline_only: bool
) -> Failure | None:
    if not session.failures or not session.policy.skip_seen:
        return None
    seen = session.failures.get(_attempt_key(session, gang, batches, nodes, pipeline_only))
    return seen if seen is not None and seen.version == session.state.version else None


def _attempt_key(session: Session, gang: Gang, batches: list[Batch], nodes: NodeSet, pipeline_only: bool) -> Hashable:
    """Everything an attempt depends on besides the state."""
    checks = session.rules.ask_checks
    kinds = []
    for batch in batches:
        for task in batch.tasks:
            ask = _ask(session, gang, batch.leaf, task)
            own = tuple(check.key(ask) if check.key else task.key for check in checks if check.applies(ask))
            kinds.append((session.rankings.key(ask), own))
        kinds.append(((), ()))
    # Node sets look at the whole group, so an attempt under them equals only itself.
    return (tuple(kinds), nodes, pipeline_only, gang.key if session.rules.sets_for(gang) else "")


def _place_batches(
    session: Session, gang: Gang, batches: list[Batch], nodes: NodeSet, pipeline_only: bool
) -> Failure | None:
    if not session.rules.sets_for(gang):
        for index, batch in enumerate(batches):
            failure = _place_batch(session, gang, batch, index, nodes, pipeline_only)
            if failure is not None:
                return failure
        return None
    by_leaf = {id(batch.leaf): (index, batch) for index, batch in enumerate(batches)}
    return _place_subtree(session, gang, gang.root, by_leaf, nodes, pipeline_only)


def _tasks_below(node: BranchRun | LeafRun, by_leaf: dict[int, tuple[int, Batch]]) -> list[Task]:
    if isinstance(node, LeafRun):
        found = by_leaf.get(id(node))
        return found[1].tasks if found is not None else []
    return [task for child in node.children for task in _tasks_below(child, by_leaf)]


def _place_subtree(
    session: Session,
    gang: Gang,
    node: BranchRun | LeafRun,
    by_leaf: dict[int, tuple[int, Batch]],
    nodes: NodeSet,
    pipeline_only: bool,
) -> Failure | None:
    """Try the node sets of a subgroup one after the other (cycle:ALC-2)."""
    tasks = _tasks_below(node, by_leaf)
    if not tasks:
        return None
    candidates = [nodes]
    for node_sets in session.rules.sets_for(gang):
        candidates = [found for each in candidates for found in node_sets(session.state, gang, node, tasks, each)]
    first = min(index for index, batch in by_leaf.values() if batch.tasks[0] in tasks)
    failure: Failure | None = Failure(0, first, 0, "no set of nodes can hold the subgroup", {}, False)
    counts: Counter[str] = Counter()
    state = session.state
    for candidate in candidates:
        mark = state.mark()
        if isinstance(node, LeafRun):
            index, batch = by_leaf[id(node)]
            failure = _place_batch(session, gang, batch, index, candidate, pipeline_only)
        else:
            for child in by_subgroup_order(node.children, session.rules.subgroup_key):
                failure = _place_subtree(session, gang, child, by_leaf, candidate, pipeline_only)
                if failure is not None:
                    break
        if failure is None:
            return None
        state.rollback(mark)
        # What the nodes of each set said adds up (cycle:EXP-2).
        counts.update(failure.nodes)
        failure = failure._replace(nodes=dict(sorted(counts.items())))
    return failure


def _ask(session: Session, gang: Gang, leaf: LeafRun, task: Task) -> Ask:
    return Ask(task, gang, leaf, session.snapshot.vectors[task.shape])


def _place_batch(
    session: Session, gang: Gang, batch: Batch, index: int, nodes: NodeSet, pipeline_only: bool
) -> Failure | None:
    for position, task in enumerate(batch.tasks):
        ask = _ask(session, gang, batch.leaf, task)
        failure = _place_task(session, ask, nodes, pipeline_only)
        if failure is not None:
            return failure._replace(batch=index, position=position)
    return None


def _place_task(session: Session, ask: Ask, nodes: NodeSet, pipeline_only: bool) -> Failure | None:
    """Place one task on the best node that fits (cycle:ALC-3)."""
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
            return Failure(0, 0, 0, "", {} if pipeline_only else _explain(session, ask, nodes), False)
        if leaving is not None and scores.item(leaving.row) == scores.item(row):
            # Nothing is gained by moving it elsewhere (cycle:SCO-5, Do better).
            row = leaving.row
        if _settle(state, ask, row, leaving, pipeline_only):
            return None
        # The books have less than the checks of the node said: take the next best (gpu:D-11, Do better).
        scores = scores.copy()
        scores[row] = -inf


def _settle(state: State, ask: Ask, row: int, leaving: Placement | None, pipeline_only: bool) -> bool:
    """Place a task on a node that passes the checks, or leave it where it is; False when some books refuse."""
    if ask.shape.host_ports and not pipeline_only:
        # A port stays taken until the pod that was told to leave is gone.
        pipeline_only = conflict(ask.shape.host_ports, state.closing.get(row, ()))
    if ask.shape.shared:
        seating = choose_devices(state, ask, row, pipeline_only=pipeline_only)
        assert seating is not None, "a node that fits has the devices"
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


def _no_place(gang: Gang, batches: list[Batch], failure: Failure) -> NoPlace:
    """The failure with the names of this gang (cycle:ALC-8)."""
    batch = batches[failure.batch]
    leaf = batch.leaf
    if not gang.is_gang or leaf.active_used >= leaf.minimum:
        form, found = "pod", failure.position
    elif len(gang.leaves) == 1:
        form, found = "gang", failure.position
    else:
        form, found = "subgroup", sum(len(b.tasks) for b in batches[: failure.batch]) + failure.position
    return NoPlace(
        pod=batch.tasks[failure.position].key,
        form=form,
        found=found,
        subgroup=leaf.name,
        minimum=leaf.minimum,
        base=failure.base,
        nodes=failure.nodes,
        unresolvable=failure.unresolvable,
    )
