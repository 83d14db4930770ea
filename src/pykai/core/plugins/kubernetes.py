"""Preferences that the default scheduler of Kubernetes honours and KAI Scheduler does not (cycle:FLT-4, Do better).

Three plugins, off in the built-in configuration because they change where pods go, on in the profile `kubernetes`:
`topologyspread`, `nodeaffinity` and `tainttoleration`.

Magnitudes: each gives 0 to 100 points, weighed 2, 2 and 3 as kube-scheduler weighs them, and a point is worth 100.  All
three together (70,000) stay below one step of a group's preferred topology (100,000), from which a whole gang profits;
a full preference of one pod (20,000 or more) outweighs joining a shared GPU and starting at once (11,000).  Points are
not rounded to whole ones, so smaller differences still decide between nodes that are equal otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pykai.core.cluster.nodematching import eligible_nodes, has_soft_taints, preferred_weights, soft_taint_counts
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.request import PlacementRequest
from pykai.core.cycle.state import State
from pykai.core.hooks import Hooks, NodeScore, Scope
from pykai.core.model.axes import FloatArray, Rows
from pykai.core.model.shapes import SOFT_SPREAD
from pykai.core.placing.spread import DomainLoad, spread_index
from pykai.core.plugins.arguments import ArgumentReader

#: What a point of kube-scheduler is worth here.
POINT = 100.0
SPREAD_WEIGHT, NODE_AFFINITY_WEIGHT, TAINT_WEIGHT = 2.0, 2.0, 3.0
_MAX_POINTS = 100.0


@dataclass(frozen=True, slots=True)
class TopologySpread:
    """topologyspread: `ScheduleAnyway` constraints prefer emptier domains; `predicates` has the hard ones."""

    ARGUMENTS: ClassVar[Mapping[str, tuple[str, ArgumentReader]]] = {}

    def prepare(self, snapshot: Snapshot) -> Hooks:
        """One score."""
        index = spread_index(snapshot)

        def score(state: State, request: PlacementRequest, rows: Rows, crowding: DomainLoad) -> FloatArray:
            return POINT * SPREAD_WEIGHT * index.preference(state, request, rows, crowding)

        return Hooks(
            node_scores=(
                NodeScore(
                    "topologyspread",
                    score,
                    applies=lambda request: request.shape.has_spread(SOFT_SPREAD),
                    context=index.domain_load,
                ),
            ),
            cache_key=index.preference_key,
            observer=index,
        )


def _to_points(column: FloatArray, state: State, request: PlacementRequest) -> FloatArray:
    """A column as points: 100 for the most that any candidate has."""
    most = float(column[eligible_nodes(state.snapshot.nodes, request.shape)].max(initial=0.0))
    return column * (_MAX_POINTS / most) if most > 0 else np.zeros(len(column))


def _preference_scores(state: State, request: PlacementRequest, rows: Rows, context: None) -> FloatArray:
    points = _to_points(preferred_weights(state.snapshot.nodes, request.shape), state, request)[rows]
    return POINT * NODE_AFFINITY_WEIGHT * points


@dataclass(frozen=True, slots=True)
class NodeAffinityPlugin:
    """nodeaffinity: prefer nodes that match more weight of the preferred terms."""

    ARGUMENTS: ClassVar[Mapping[str, tuple[str, ArgumentReader]]] = {}

    def prepare(self, snapshot: Snapshot) -> Hooks:
        """One score."""
        score = NodeScore(
            "nodeaffinity", _preference_scores, Scope.NODES, lambda request: bool(request.shape.preferred_nodes)
        )
        return Hooks(node_scores=(score,))


def _taint_scores(state: State, request: PlacementRequest, rows: Rows, context: None) -> FloatArray:
    points = _to_points(soft_taint_counts(state.snapshot.nodes, request.shape), state, request)[rows]
    return -POINT * TAINT_WEIGHT * points


@dataclass(frozen=True, slots=True)
class TaintToleration:
    """tainttoleration: avoid nodes with taints of effect PreferNoSchedule that the pod does not tolerate."""

    ARGUMENTS: ClassVar[Mapping[str, tuple[str, ArgumentReader]]] = {}

    def prepare(self, snapshot: Snapshot) -> Hooks:
        """One score, where any node has such a taint."""
        if not has_soft_taints(snapshot.nodes):
            return Hooks()
        return Hooks(node_scores=(NodeScore("tainttoleration", _taint_scores, Scope.NODES),))
