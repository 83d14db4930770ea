"""Placing a gang: all of the chosen tasks or none (cycle:12 ALC-1 to ALC-4).

An attempt that failed is remembered under everything it depended on.  An equal attempt while the state has not
changed would fail at the same task for the same reasons, so it is not made again; its explanation is the remembered
one with its own names.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from msgspec.structs import replace

from pykai.core.cycle.gangs import Batch, Gang
from pykai.core.cycle.session import PlacementFailure, Session
from pykai.core.cycle.state import State
from pykai.core.hooks import ALL_NODES, NodeSet
from pykai.core.model.queuetree import QueueAmounts
from pykai.core.placing.capacity import over_capacity
from pykai.core.placing.subgroups import place_subgroups
from pykai.core.placing.task import PlacementMode, place_batch, request_for_task
from pykai.core.queueing.queueledger import CapacityRefusal as Over
from pykai.core.report.decisions import NoDomain, NoPlace


def place_gang(session: Session, gang: Gang) -> bool:
    """Place the next tasks of a gang, or nothing; a failure is recorded as the gang's refusal (queues:Q-203)."""
    for prepare in session.rules.before_gang:
        prepare(session.state, gang)
    batches = session.next_tasks(gang)
    if not batches:
        return False
    if session.rules.quota_gate is not None:
        amounts = session.next_task_amounts(gang, session.largest_gpu_mib)
        refusal = session.rules.quota_gate(session.state, gang, amounts)
        if refusal is not None:
            session.record_refusal(gang, over_capacity(session.snapshot.tree, refusal, amounts, gang.preemptible))
            return False
    if session.rules.start_gate is not None:
        _record_start_hold(session, gang, session.rules.start_gate)
    failure = _attempt(session, gang, batches, ALL_NODES, False)
    if failure is not None:
        _refuse(session, gang, batches, failure)
    return failure is None


def _record_start_hold(
    session: Session, gang: Gang, may_start: Callable[[State, Gang, QueueAmounts], Over | None]
) -> None:
    """Note why the next tasks of a gang may not start yet; each of them is held back where it is placed."""
    session.start_refusals.pop(gang.key, None)
    amounts = session.next_task_amounts(gang, session.largest_gpu_mib)
    refusal = may_start(session.state, gang, amounts)
    if refusal is not None:
        session.start_refusals[gang.key] = over_capacity(session.snapshot.tree, refusal, amounts, gang.preemptible)


def try_place_tasks(
    session: Session, gang: Gang, batches: list[Batch], nodes: NodeSet = ALL_NODES, *, pipeline_only: bool = True
) -> bool:
    """Place these tasks of a gang, or nothing, in a trial: all on promises, and nobody is told why it failed
    (cycle:SOL-13, ALC-8)."""
    for prepare in session.rules.before_gang:
        prepare(session.state, gang)
    if session.rules.quota_gate is not None:
        amounts = session.total_amounts(batches, session.largest_gpu_mib)
        if session.rules.quota_gate(session.state, gang, amounts) is not None:
            return False
    return _attempt(session, gang, batches, nodes, pipeline_only) is None


def _attempt(
    session: Session, gang: Gang, batches: list[Batch], nodes: NodeSet, pipeline_only: bool
) -> PlacementFailure | None:
    """Place all or nothing, unless an equal attempt has failed and nothing has changed since."""
    state = session.state
    seen = _seen_failure(session, gang, batches, nodes, pipeline_only)
    if seen is not None:
        return seen
    mark = state.mark()
    failure = _place_batches(session, gang, batches, nodes, PlacementMode(pipeline_only))
    if failure is None:
        return None
    state.rollback(mark)
    if any(task.shape.shared and task.shape.gpu.devices > 1 for batch in batches for task in batch.tasks):
        # Packing may leave the last of several devices without a second; taking the emptiest never does.
        if _place_batches(session, gang, batches, nodes, PlacementMode(pipeline_only, most_free_first=True)) is None:
            return None
        state.rollback(mark)
    failure = failure._replace(version=state.version)
    session.failures[_attempt_key(session, gang, batches, nodes, pipeline_only)] = failure
    return failure


def _seen_failure(
    session: Session, gang: Gang, batches: list[Batch], nodes: NodeSet, pipeline_only: bool
) -> PlacementFailure | None:
    if not session.failures or not session.policy.reuse_failures:
        return None
    seen = session.failures.get(_attempt_key(session, gang, batches, nodes, pipeline_only))
    return seen if seen is not None and seen.version == session.state.version else None


def _attempt_key(session: Session, gang: Gang, batches: list[Batch], nodes: NodeSet, pipeline_only: bool) -> Hashable:
    """Everything an attempt depends on besides the state."""
    checks = session.rules.request_checks
    kinds = []
    for batch in batches:
        for task in batch.tasks:
            request = request_for_task(session, gang, batch.leaf, task)
            check_keys = tuple(
                check.key(request) if check.key else task.key for check in checks if check.applies(request)
            )
            kinds.append((session.rankings.request_key(request), check_keys))
        kinds.append(((), ()))
    return (tuple(kinds), nodes, pipeline_only, _node_set_key(session, gang, batches))


def _node_set_key(session: Session, gang: Gang, batches: list[Batch]) -> Hashable:
    """What node sets depend on besides the tasks: their subgroups, and where others of the gang are."""
    if not session.rules.node_set_makers(gang):
        return ""
    if not gang.group.names_topology or any(leaf.active_allocated for leaf in gang.leaves):
        return gang.key
    return gang.tree_text, tuple(batch.leaf.name for batch in batches)


def _place_batches(
    session: Session, gang: Gang, batches: list[Batch], nodes: NodeSet, mode: PlacementMode
) -> PlacementFailure | None:
    if session.rules.node_set_makers(gang):
        return place_subgroups(session, gang, batches, nodes, mode)
    for index, batch in enumerate(batches):
        failure = place_batch(session, gang, batch, index, nodes, mode)
        if failure is not None:
            return failure
    return None


def _refuse(session: Session, gang: Gang, batches: list[Batch], failure: PlacementFailure) -> None:
    """Record a failure with the names of this gang."""
    if not failure.refusals or failure.nodes:
        session.record_refusal(gang, _no_place(gang, batches, failure))
    for refusal in failure.refusals:
        session.record_refusal(gang, replace(refusal, group=gang.key) if isinstance(refusal, NoDomain) else refusal)


def _no_place(gang: Gang, batches: list[Batch], failure: PlacementFailure) -> NoPlace:
    """The failure with the names of this gang (cycle:ALC-8)."""
    batch = batches[failure.batch]
    leaf = batch.leaf
    if not gang.is_gang or leaf.active_used >= leaf.minimum:
        form, placed_count = "pod", failure.position
    elif len(gang.leaves) == 1:
        form, placed_count = "gang", failure.position
    else:
        form, placed_count = "subgroup", sum(len(b.tasks) for b in batches[: failure.batch]) + failure.position
    return NoPlace(
        pod=batch.tasks[failure.position].key,
        form=form,
        found=placed_count,
        subgroup=leaf.name,
        minimum=leaf.minimum,
        base=failure.base,
        nodes=failure.nodes,
        unresolvable=failure.unresolvable,
    )
