"""numa: place pods where their cores and devices are close together (gpu:12).

Off unless a configuration names it.  A node whose Topology Manager would reject the pod is refused; among the others,
fewer zones score higher.  A ledger keeps which zones a pod gets (`ledgers/numa/ledger.py`), so that the next pod of the
cycle sees what is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.request import PlacementRequest
from pykai.core.cycle.state import State
from pykai.core.hooks import Hooks, NodeCheck, NodeScore
from pykai.core.ledgers.numa.ledger import INFEASIBLE, UNACCOUNTED, ZoneLedger
from pykai.core.model.axes import FloatArray, IntArray, Rows
from pykai.core.plugins.arguments import ArgumentReader, read_flag, read_list

#: gpu:N-13
TEXT = "node cannot NUMA-align the pod's resources under its Topology Manager policy"
#: Score of a placement in one zone (gpu:N-14).
WEIGHT = 100.0


@dataclass(frozen=True, slots=True)
class Numa:
    """Alignment with NUMA zones (gpu:N-4)."""

    #: resources that are not aligned although zones report them
    ignored: frozenset[str] = frozenset()
    #: compute what is left from the records of the pods instead of trusting the daemon's figure (gpu:N-16)
    reconstruct: bool = True

    ARGUMENTS: ClassVar[Mapping[str, tuple[str, ArgumentReader]]] = {
        "ignoreList": ("ignored", read_list),
        "reconstructAvailable": ("reconstruct", read_flag),
    }

    def prepare(self, snapshot: Snapshot) -> Hooks:
        """A check, a score and a ledger; nothing while no node has zones."""
        if not any(name in snapshot.nodes.rows for name in snapshot.numa):
            return Hooks()
        ledger = ZoneLedger(snapshot, ignored=self.ignored, reconstruct=self.reconstruct)
        check = NodeCheck(
            "numa", (TEXT,), partial(_alignment_codes, ledger), applies=lambda request: ledger.concerns(request.shape)
        )
        score = NodeScore(
            "numa", partial(_zone_scores, ledger), applies=lambda request: ledger.is_numa_relevant(request.shape)
        )
        return Hooks(node_checks=(check,), node_scores=(score,), discrete_ledger=ledger)


# A refusal makes a node set fail, and the next one is tried (topo:T-58).
def _alignment_codes(ledger: ZoneLedger, state: State, request: PlacementRequest, rows: Rows) -> IntArray:
    infeasible = ledger.spans(request.shape, rows, idle=False) == INFEASIBLE
    codes: IntArray = (infeasible & ledger.rejects_unaligned[rows]).astype(np.int64)
    return codes


def _zone_scores(ledger: ZoneLedger, state: State, request: PlacementRequest, rows: Rows, context: None) -> FloatArray:
    """[rows] more for fewer zones; where the pod would wait for its zones, less than where it could start at all."""
    zones_now = ledger.spans(request.shape, rows, idle=True)
    zones_later = ledger.spans(request.shape, rows, idle=False)
    must_wait = (zones_later > 0) & ledger.rejects_unaligned[rows]
    scores: FloatArray = np.select(
        [zones_now == UNACCOUNTED, zones_now > 0, must_wait],
        [
            WEIGHT / ledger.zone_counts[rows],
            WEIGHT / np.maximum(zones_now, 1),
            WEIGHT / np.maximum(zones_later, 1) - WEIGHT,
        ],
        0.0,
    )
    return scores
