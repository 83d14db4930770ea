"""numa: pods where their cores and devices lie close together (gpu:12).

Off unless a configuration names it.  A node whose Topology Manager would turn the pod away is refused; among the others
the fewer zones the pod would span the better.  Which zones it gets is kept in books (`numa/books.py`), so that the next
pod of the cycle finds what is really left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.state import State
from pykai.core.hooks import Ask, Hooks, NodeCheck, NodeScore, Rows
from pykai.core.ledgers.numa.ledger import INFEASIBLE, UNACCOUNTED, ZoneBooks
from pykai.core.model.axes import FloatArray, IntArray
from pykai.core.plugins.arguments import Reader, a_flag, a_list

#: gpu:N-13
TEXT = "node cannot NUMA-align the pod's resources under its Topology Manager policy"
#: What a placement in one zone is worth (gpu:N-14).
WEIGHT = 100.0


@dataclass(frozen=True, slots=True)
class Numa:
    """Alignment with NUMA zones (gpu:N-4)."""

    #: resources that are not aligned although zones report them
    ignored: frozenset[str] = frozenset()
    #: work out what is left from the records of the pods instead of trusting the daemon's figure (gpu:N-16)
    reconstruct: bool = True

    ARGUMENTS: ClassVar[Mapping[str, tuple[str, Reader]]] = {
        "ignoreList": ("ignored", a_list),
        "reconstructAvailable": ("reconstruct", a_flag),
    }

    def prepare(self, snapshot: Snapshot) -> Hooks:
        """A check, a score and books; nothing while no node has zones."""
        if not any(name in snapshot.nodes.rows for name in snapshot.numa):
            return Hooks()
        books = ZoneBooks(snapshot, ignored=self.ignored, reconstruct=self.reconstruct)
        check = NodeCheck("numa", (TEXT,), partial(_refused, books), applies=lambda ask: books.concerns(ask.shape))
        score = NodeScore("numa", partial(_closeness, books), applies=lambda ask: books.interests(ask.shape))
        return Hooks(node_checks=(check,), node_scores=(score,), books=books)


# A refusal makes a node set fail, and the next one is tried (topo:T-58).
def _refused(books: ZoneBooks, state: State, ask: Ask, rows: Rows) -> IntArray:
    infeasible = books.spans(ask.shape, rows, idle=False) == INFEASIBLE
    codes: IntArray = (infeasible & books.refuses[rows]).astype(np.int64)
    return codes


def _closeness(books: ZoneBooks, state: State, ask: Ask, rows: Rows, context: None) -> FloatArray:
    """[rows] more for fewer zones; where the pod would wait for its zones, less than where it could start at all."""
    now = books.spans(ask.shape, rows, idle=True)
    later = books.spans(ask.shape, rows, idle=False)
    waits = (later > 0) & books.refuses[rows]
    scores: FloatArray = np.select(
        [now == UNACCOUNTED, now > 0, waits],
        [WEIGHT / books.spread[rows], WEIGHT / np.maximum(now, 1), WEIGHT / np.maximum(later, 1) - WEIGHT],
        0.0,
    )
    return scores
