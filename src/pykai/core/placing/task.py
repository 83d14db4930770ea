"""Placing one task: on the best node that fits (cycle:ALC-3, ALC-4)."""

from __future__ import annotations

from collections.abc import Hashable
from math import inf
from typing import NamedTuple

import numpy as np

from pykai.core.caching import VersionedCache
from pykai.core.cycle.gangs import Batch, Gang, LeafState
from pykai.core.cycle.journal import Grant, Placement
from pykai.core.cycle.recording import Decisions
from pykai.core.cycle.request import PlacementRequest
from pykai.core.cycle.state import State
from pykai.core.hooks import NodeSet, PreFailure, Rules
from pykai.core.model.axes import BoolArray, Rows
from pykai.core.model.tasks import Task
from pykai.core.placing.capacity import over_capacity
from pykai.core.placing.failures import PlacementFailure
from pykai.core.placing.fit import fits_idle_row
from pykai.core.placing.gpus import choose_devices
from pykai.core.placing.ports import ports_conflict
from pykai.core.placing.ranking import Rankings
from pykai.core.placing.reasons import count_refusals

_ALL: Rows = slice(None)


class PlacementMode(NamedTuple):
    """How tasks are placed."""

    #: pipelined only: a trial
    pipeline_only: bool
    #: shared requests take the devices with most room, whatever the plugins prefer: so most pods of a kind fit a node
    most_free_first: bool = False


def request_for_task(state: State, gang: Gang, leaf: LeafState, task: Task) -> PlacementRequest:
    """The request for a task of a gang."""
    return PlacementRequest(task, gang, leaf, state.snapshot.vectors[task.shape])


class TaskPlacer:
    """Places tasks one by one, each on the best node that fits."""

    __slots__ = ("_decisions", "_node_refusal_counts", "rankings", "rules", "state")

    def __init__(self, state: State, rules: Rules, rankings: Rankings, decisions: Decisions) -> None:
        self.state = state
        self.rules = rules
        self.rankings = rankings
        self._decisions = decisions
        #: node refusals by kind of request
        self._node_refusal_counts: VersionedCache[Hashable, dict[str, int]] = VersionedCache()

    def place_batch(
        self, gang: Gang, batch: Batch, index: int, nodes: NodeSet, mode: PlacementMode
    ) -> PlacementFailure | None:
        """Place the tasks of one leaf in order; the caller rolls back if one does not fit."""
        for position, task in enumerate(batch.tasks):
            request = request_for_task(self.state, gang, batch.leaf, task)
            failure = self._place_task(request, nodes, mode)
            if failure is not None:
                return failure._replace(batch=index, position=position)
        return None

    def _place_task(self, request: PlacementRequest, nodes: NodeSet, mode: PlacementMode) -> PlacementFailure | None:
        """Place one task on the best node that fits (cycle:ALC-3; gpu:F-0)."""
        state, rules = self.state, self.rules
        state.work += 1
        failures: list[PreFailure] = []
        for check in rules.pre_place:
            if (failure := check(state, request)) is not None:
                failures.append(failure)
        if failures:
            return PlacementFailure(0, 0, unmet_text(failures), {}, any(found.unresolvable for found in failures))
        if not len(state.snapshot.nodes):
            return PlacementFailure(0, 0, "", {}, False)

        scores = self.rankings.ranking_for(state, request, nodes).scores
        barred_nodes = self._barred_nodes(request)
        if barred_nodes is not None:
            scores = np.where(barred_nodes, -inf, scores)
        evicted_from = state.evicted_from.get(request.task.key) if state.evicted_from else None
        while True:
            row = int(scores.argmax())
            if scores.item(row) == -inf:
                return PlacementFailure(
                    0, 0, "", {} if mode.pipeline_only else self._cached_refusals(request, nodes), False
                )
            if evicted_from is not None and scores.item(evicted_from.row) == scores.item(row):
                # Nothing is gained by moving it elsewhere (cycle:SCO-5, Do better).
                row = evicted_from.row
            is_start_held = rules.start_gate is not None and self._is_start_held(request, row, mode)
            if _place_on_node(state, request, row, evicted_from, mode, is_start_held=is_start_held):
                return None
            # The ledgers have less than the checks of the node said: take the next best (gpu:D-11, Do better).
            scores = scores.copy()
            scores[row] = -inf

    def _is_start_held(self, request: PlacementRequest, row: int, mode: PlacementMode) -> bool:
        """Whether a task may be pipelined, but not start: terminating pods hold what its queue may have."""
        gate, state, start_refusals = self.rules.start_gate, self.state, self._decisions.start_refusals
        if gate is None or mode.pipeline_only:
            return False
        if request.gang.key not in start_refusals and not request.shape.gpu.memory_mib:
            # All tasks of the attempt together may start, and this one costs the same everywhere.
            return False
        amounts = state.amounts_on(request.shape, row)
        refusal = gate(state, request.gang, amounts)
        if refusal is not None and request.gang.key not in start_refusals:
            # On this node a part of a GPU is more than was assumed for the gang.
            record = over_capacity(state.snapshot.tree, refusal, amounts, request.gang.preemptible)
            start_refusals[request.gang.key] = record
        return refusal is not None

    def _barred_nodes(self, request: PlacementRequest) -> BoolArray | None:
        """[node] refused by the checks that run for every task, None if there are none."""
        barred_nodes: BoolArray | None = None
        for check in self.rules.request_checks:
            if check.applies(request):
                codes = check.evaluate(self.state, request, _ALL)
                if codes.any():
                    refused = codes != 0
                    barred_nodes = refused if barred_nodes is None else barred_nodes | refused
        return barred_nodes

    def _cached_refusals(self, request: PlacementRequest, nodes: NodeSet) -> dict[str, int]:
        """Why no node fits, counted; equal requests share the count while nothing changes."""
        checks = [check for check in self.rules.request_checks if check.applies(request)]
        if any(check.key is None for check in checks):
            return count_refusals(self.state, self.rules, request, nodes)
        check_keys = tuple(check.key(request) for check in checks if check.key is not None)
        key = (nodes, self.rankings.request_key(request), check_keys)
        version = self.state.version
        cached = self._node_refusal_counts.current(key, version)
        if cached is None:
            counts = count_refusals(self.state, self.rules, request, nodes)
            cached = self._node_refusal_counts.store(key, version, counts)
        return cached


def _place_on_node(
    state: State,
    request: PlacementRequest,
    row: int,
    evicted_from: Placement | None,
    mode: PlacementMode,
    *,
    is_start_held: bool,
) -> bool:
    """Place a task on a node that passes the checks, or leave it where it is; False if a discrete ledger refuses."""
    pipeline_only = mode.pipeline_only or is_start_held
    if request.shape.host_ports and not pipeline_only:
        # A port stays taken until the evicted pod is gone.
        pipeline_only = ports_conflict(request.shape.host_ports, state.terminating_ports.get(row, ()))
    if request.shape.shared:
        assignment = choose_devices(
            state, request, row, pipeline_only=pipeline_only, most_free_first=mode.most_free_first
        )
        if assignment is None:
            return False
        groups, pipelined = assignment.groups, assignment.pipelined
    else:
        groups, pipelined = (), pipeline_only or not fits_idle_row(state, request, row)
    grants: tuple[Grant, ...] = ()
    if state.discrete_ledgers:
        granted = None if pipelined else state.grants_on(request, row, idle=True)
        if granted is None:
            pipelined = True
            granted = state.grants_on(request, row, idle=False)
        if granted is None:
            return False
        grants = granted
    if (
        evicted_from is not None
        and evicted_from.row == row
        and set(groups) == set(evicted_from.gpu_groups)
        and grants == evicted_from.grants
    ):
        state.cancel_eviction(request.gang, request.leaf, request.task)
    else:
        state.place(request.gang, request.leaf, request.task, row, groups, grants, pipelined=pipelined)
    return True


def unmet_text(failures: list[PreFailure]) -> str:
    """Why no node was even checked; `{pod}` stays in the text (cycle:FLT-5)."""
    lines = "".join(f"{found.predicate}: {found.error}.\n" for found in failures)
    return f"Scheduling conditions were not met for pod {{pod}}:\n{lines}"
