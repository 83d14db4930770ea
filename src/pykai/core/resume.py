"""Binds that a scheduler had decided and did not write, checked against the cluster as it is now.

    resume(snapshot, policy, unfinished) -> Resumed

A scheduler that takes over finds which pods its predecessor was about to bind to which nodes
(`scheduler/dispatch/records.py`). Between that decision and now anything may have happened, and the text itself may be
wrong.  So nothing of it is trusted: each pod is placed again by the engine, by every rule of a cycle (quota and limits
of the queue, selectors, taints, room on the node, on each shared GPU, devices of claims, volumes, topology), except
that it may go to no other node than the one named.  What the bind says besides the node (GPU groups, devices, volumes)
is decided again.

A gang is tried as a whole first.  If that fails its pods are tried one by one, and those that fail are `refused` with
the reason; the caller decides whether the rest is worth having.  A place that other pods are still leaving does not
count: the pods would have to wait for it, and the cycles take care of waiting pods.

Statements: security:plans.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import NamedTuple

import numpy as np

from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.gangs import Batch, Gang
from pykai.core.cycle.recording import carry_out
from pykai.core.cycle.session import Session
from pykai.core.cycle.state import State
from pykai.core.cycle.validate import check_state
from pykai.core.hooks import Ask, NodeCheck, NodeSet, Rows, Scope
from pykai.core.model.axes import IntArray
from pykai.core.model.status import Status
from pykai.core.model.tasks import Task
from pykai.core.placing.capacity import over_capacity
from pykai.core.placing.gang import try_tasks
from pykai.core.placing.reasons import node_refusals
from pykai.core.placing.task import ask_of, unmet_text
from pykai.core.policy import Policy
from pykai.core.report.decisions import Bind
from pykai.core.report.sentences import refusal_text
from pykai.core.schedule import open_session


class Place(NamedTuple):
    """A pod and the node it was to be bound to."""

    pod: str
    uid: str
    node: str


class Unfinished(NamedTuple):
    """The binds of one group that were decided and may not have been written."""

    #: namespace/name of the PodGroup, its uid, and the queue it was in
    group: str
    uid: str
    queue: str
    places: tuple[Place, ...]


class Resumed(NamedTuple):
    """What holds of them."""

    binds: tuple[Bind, ...]
    #: pod key -> why it is not bound there
    refused: dict[str, str]


def resume(snapshot: Snapshot, policy: Policy, unfinished: Iterable[Unfinished]) -> Resumed:
    """Place the pods on the nodes they were to go to, as far as every rule allows that now."""
    refused: dict[str, str] = {}
    #: task key -> node row
    pins: dict[str, int] = {}
    with closing(open_session(snapshot, policy)) as session:
        pinned = _pinned(pins)
        session.rules.checks = (*session.rules.checks, pinned)
        session.rules.ask_checks = (*session.rules.ask_checks, pinned)
        for each in sorted(unfinished):
            gang, why = _gang(session, each)
            if gang is None:
                namespace = each.group.partition("/")[0]
                refused |= {f"{namespace}/{place.pod}": why for place in each.places}
                continue
            tasks = list(_tasks(session, gang, each, pins, refused))
            if not _place(session, gang, tasks):
                for task in tasks:
                    if not _place(session, gang, [task]):
                        refused[task.key] = _why(session, gang, task, pins[task.key])
        return Resumed(tuple(session.binds.values()), refused)


def _pinned(pins: Mapping[str, int]) -> NodeCheck:
    def evaluate(state: State, ask: Ask, rows: Rows) -> IntArray:
        elsewhere = np.ones(len(state.snapshot.nodes), dtype=np.int64)
        elsewhere[pins[ask.task.key]] = 0
        return elsewhere[rows]

    return NodeCheck(
        "planned node",
        ("node(s) were not planned for the pod",),
        evaluate,
        Scope.ASK,
        applies=lambda ask: ask.task.key in pins,
        key=lambda ask: pins[ask.task.key],
    )


def _gang(session: Session, wanted: Unfinished) -> tuple[Gang | None, str]:
    """The gang, or why nothing of it may be bound."""
    entry = session.snapshot.entries.get(wanted.group)
    if entry is None or entry.group is None:
        return None, f"PodGroup {wanted.group} does not exist"
    gang = session.gang(entry)
    group, tree = gang.group, session.snapshot.tree
    if group.uid != wanted.uid:
        return None, f"PodGroup {wanted.group} is another one of the name: its uid is {group.uid}, not {wanted.uid}"
    if group.queue != wanted.queue:
        return None, f"PodGroup {wanted.group} is in queue '{group.queue}', not in '{wanted.queue}' any more"
    if gang.queue < 0 or tree.children[gang.queue]:
        return None, f"'{group.queue}' is no leaf queue of the cluster"
    if group.tree_error or gang.unsupported:
        return None, group.tree_error or f"its pods ask for {' and '.join(sorted(gang.unsupported))}"
    return gang, ""


def _tasks(
    session: Session, gang: Gang, wanted: Unfinished, pins: dict[str, int], refused: dict[str, str]
) -> Iterator[Task]:
    """Those of the pods that wait, are of the group and have their node."""
    snapshot = session.snapshot
    for place in wanted.places:
        key = f"{gang.group.namespace}/{place.pod}"
        task = gang.entry.tasks.get(key)
        row = snapshot.nodes.rows.get(place.node)
        if task is None or task.uid != place.uid:
            refused[key] = f"there is no such pod in PodGroup {gang.key}"
        elif not task.ours or task.status is not Status.PENDING or task.subgroup not in gang.group.leaf_index:
            refused[key] = "the pod does not wait for a node of this scheduler"
        elif row is None:
            refused[key] = f"node {place.node} is gone"
        else:
            pins[key] = row
            yield task


def _place(session: Session, gang: Gang, tasks: list[Task]) -> bool:
    """Place these tasks on what is idle now, all or none."""
    state = session.state
    mark = state.mark()
    if not tasks or not try_tasks(session, gang, _batches(gang, tasks), pipeline_only=False):
        return False
    if any(state.moved[task.key].status is Status.PIPELINED for task in tasks):
        state.rollback(mark)
        return False
    carry_out(session, state.commit(mark))
    if session.policy.validate:
        check_state(session)
    return True


def _batches(gang: Gang, tasks: list[Task]) -> list[Batch]:
    found: dict[str, list[Task]] = {}
    for task in tasks:
        found.setdefault(task.subgroup, []).append(task)
    return [Batch(gang.leaves[gang.group.leaf_index[name]], each) for name, each in found.items()]


def _why(session: Session, gang: Gang, task: Task, row: int) -> str:
    """What keeps one task from its node."""
    state, rules, snapshot = session.state, session.rules, session.snapshot
    ask = ask_of(session, gang, gang.leaves[gang.group.leaf_index[task.subgroup]], task)
    if rules.quota_gate is not None:
        amounts = session.count(_batches(gang, [task]), session.largest_gpu_mib)
        refusal = rules.quota_gate(state, gang, amounts)
        if refusal is not None:
            return refusal_text(over_capacity(snapshot.tree, refusal, amounts, gang.preemptible))
    failures = [found for check in rules.pre_place if (found := check(state, ask)) is not None]
    if failures:
        return unmet_text(failures).replace("{pod}", task.key)
    only = np.zeros(len(snapshot.nodes), dtype=np.bool_)
    only[row] = True
    reasons = node_refusals(state, rules, ask, NodeSet(only))
    node = snapshot.nodes.names[row]
    if reasons:
        return f"node {node}: {', '.join(reasons)}".replace("{pod}", task.key)
    return f"node {node} does not have everything the pod needs free now"
