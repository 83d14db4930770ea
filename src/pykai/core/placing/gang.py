"""Placing a gang: all of the chosen tasks or none (cycle:12 ALC-1 to ALC-4).

A failed attempt is remembered under everything it depended on.  An equal attempt while the state has not changed would
fail at the same task for the same reasons, so it is not made again; its explanation is the remembered one with its own
names.
"""

from __future__ import annotations

from collections.abc import Hashable

from msgspec.structs import replace

from pykai.core.caching import VersionedCache
from pykai.core.cycle.context import CycleContext
from pykai.core.cycle.cyclegangs import CycleGangs, total_amounts
from pykai.core.cycle.gangs import Batch, Gang
from pykai.core.cycle.recording import Decisions
from pykai.core.hooks import ALL_NODES, NodeSet, Rules
from pykai.core.placing.capacity import over_capacity
from pykai.core.placing.failures import PlacementFailure
from pykai.core.placing.subgroups import place_subgroups
from pykai.core.placing.task import PlacementMode, TaskPlacer, request_for_task
from pykai.core.report.decisions import NoDomain, NoPlace


class GangPlacer:
    """Places the tasks of gangs, all of them or none."""

    __slots__ = ("_context", "_decisions", "_failures", "_gangs", "_rules", "_state", "_tasks")

    def __init__(self, context: CycleContext, gangs: CycleGangs, tasks: TaskPlacer, decisions: Decisions) -> None:
        self._context = context
        self._rules = context.rules
        self._state = tasks.state
        self._gangs = gangs
        self._tasks = tasks
        self._decisions = decisions
        #: equal attempts that failed, by their requests
        self._failures: VersionedCache[Hashable, PlacementFailure] = VersionedCache()

    def place_gang(self, gang: Gang) -> bool:
        """Place the next tasks of a gang, or nothing; a failure is recorded as the gang's refusal (queues:Q-203)."""
        state, rules = self._state, self._rules
        for prepare in rules.before_gang:
            prepare(state, gang)
        batches = self._gangs.next_tasks(gang)
        if not batches:
            return False
        if rules.quota_gate is not None:
            amounts = self._gangs.least_amounts(gang)
            refusal = rules.quota_gate(state, gang, amounts)
            if refusal is not None:
                record = over_capacity(state.snapshot.tree, refusal, amounts, gang.preemptible)
                self._decisions.record_refusal(gang, record)
                return False
        self._record_start_hold(gang)
        failure = self._attempt(gang, batches, ALL_NODES, pipeline_only=False)
        if failure is not None:
            self._refuse(gang, batches, failure)
        return failure is None

    def _record_start_hold(self, gang: Gang) -> None:
        """Note why the next tasks of a gang may not start yet; each of them is pipelined where it is placed."""
        may_start = self._rules.start_gate
        if may_start is None:
            return
        start_refusals = self._decisions.start_refusals
        start_refusals.pop(gang.key, None)
        amounts = self._gangs.least_amounts(gang)
        refusal = may_start(self._state, gang, amounts)
        if refusal is not None:
            tree = self._state.snapshot.tree
            start_refusals[gang.key] = over_capacity(tree, refusal, amounts, gang.preemptible)

    def try_place_tasks(
        self, gang: Gang, batches: list[Batch], nodes: NodeSet = ALL_NODES, *, pipeline_only: bool = True
    ) -> bool:
        """Place these tasks of a gang, or nothing, in a trial: all pipelined, and no refusal is recorded (cycle:SOL-13,
        ALC-8).
        """
        if self.exceeds_quota(gang, batches):
            return False
        return self._attempt(gang, batches, nodes, pipeline_only=pipeline_only) is None

    def exceeds_quota(self, gang: Gang, batches: list[Batch]) -> bool:
        """Whether the queues of a gang may not take on these tasks; then they may not once others have taken more."""
        state, rules = self._state, self._rules
        for prepare in rules.before_gang:
            prepare(state, gang)
        if rules.quota_gate is None:
            return False
        amounts = total_amounts(state.snapshot.vectors, batches, self._context.largest_gpu_mib)
        return rules.quota_gate(state, gang, amounts) is not None

    def _attempt(
        self, gang: Gang, batches: list[Batch], nodes: NodeSet, *, pipeline_only: bool
    ) -> PlacementFailure | None:
        """Place all or nothing, unless an equal attempt has failed and nothing has changed since."""
        state = self._state
        seen = self._seen_failure(gang, batches, nodes, pipeline_only)
        if seen is not None:
            return seen
        mark = state.mark()
        failure = self._place_batches(gang, batches, nodes, PlacementMode(pipeline_only))
        if failure is None:
            return None
        state.rollback(mark)
        if any(task.shape.shared and task.shape.gpu.devices > 1 for batch in batches for task in batch.tasks):
            # Packing may leave the last of several devices without a second one; taking the emptiest never does.
            if self._place_batches(gang, batches, nodes, PlacementMode(pipeline_only, most_free_first=True)) is None:
                return None
            state.rollback(mark)
        return self._failures.store(self._attempt_key(gang, batches, nodes, pipeline_only), state.version, failure)

    def _seen_failure(
        self, gang: Gang, batches: list[Batch], nodes: NodeSet, pipeline_only: bool
    ) -> PlacementFailure | None:
        if not self._failures.may_have(self._state.version) or not self._context.policy.reuse_failures:
            return None
        return self._failures.current(self._attempt_key(gang, batches, nodes, pipeline_only), self._state.version)

    def _attempt_key(self, gang: Gang, batches: list[Batch], nodes: NodeSet, pipeline_only: bool) -> Hashable:
        """Everything an attempt depends on besides the state."""
        checks, rankings = self._rules.request_checks, self._tasks.rankings
        kinds = []
        for batch in batches:
            for task in batch.tasks:
                request = request_for_task(self._state, gang, batch.leaf, task)
                check_keys = tuple(
                    check.key(request) if check.key else task.key for check in checks if check.applies(request)
                )
                kinds.append((rankings.request_key(request), check_keys))
            kinds.append(((), ()))
        return (tuple(kinds), nodes, pipeline_only, _node_set_key(self._rules, gang, batches))

    def _place_batches(
        self, gang: Gang, batches: list[Batch], nodes: NodeSet, mode: PlacementMode
    ) -> PlacementFailure | None:
        if self._rules.node_set_makers(gang):
            return place_subgroups(self._tasks, gang, batches, nodes, mode)
        for index, batch in enumerate(batches):
            failure = self._tasks.place_batch(gang, batch, index, nodes, mode)
            if failure is not None:
                return failure
        return None

    def _refuse(self, gang: Gang, batches: list[Batch], failure: PlacementFailure) -> None:
        """Record a failure with the names of this gang."""
        if not failure.refusals or failure.nodes:
            self._decisions.record_refusal(gang, _no_place(gang, batches, failure))
        for refusal in failure.refusals:
            named = replace(refusal, group=gang.key) if isinstance(refusal, NoDomain) else refusal
            self._decisions.record_refusal(gang, named)


def _node_set_key(rules: Rules, gang: Gang, batches: list[Batch]) -> Hashable:
    """What node sets depend on besides the tasks: their subgroups, and the nodes of other tasks of the gang."""
    if not rules.node_set_makers(gang):
        return ""
    if not gang.group.names_topology or any(leaf.active_allocated for leaf in gang.leaves):
        return gang.key
    return gang.tree_text, tuple(batch.leaf.name for batch in batches)


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
