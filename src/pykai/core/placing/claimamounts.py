"""What claims of devices take of the columns of nodes, for bounds: GPUs of slices, resources that device classes back.

They are no part of a shape's request (`Vector.requested`), because the node decides what serves them: a node that does
not offer a resource itself may serve it by a claim, and counts as unlimited.  A task needs at least the devices that
can be nothing but GPUs of its node, and a victim frees at most the devices its claims hold; those of a shared claim are
counted for each of its users.  Both are generous, so no sufficient set of victims is excluded.
"""

from __future__ import annotations

from typing import NamedTuple

from pykai.core.cycle.state import State
from pykai.core.ledgers.claims.ledger import ClaimLedger
from pykai.core.model.axes import BoolArray
from pykai.core.model.shapes import Shape
from pykai.core.model.tasks import Task


class ClaimedAmount(NamedTuple):
    """What every task of a kind takes of a column."""

    axis: int
    amount: int
    #: [node] where that applies
    offered: BoolArray


def claimed_amounts(state: State, shape: Shape) -> list[ClaimedAmount]:
    """What a task of this shape takes at least."""
    return [
        ClaimedAmount(axis, amount, (state.allocatable[axis] > 0) | strictly)
        for book in state.discrete_ledgers
        if isinstance(book, ClaimLedger) and book.concerns(shape)
        for axis, amount, strictly in book.takes_at_least(shape)
    ]


def freed_amounts(state: State, task: Task) -> tuple[tuple[int, int], ...]:
    """What an evicted task frees at most: axis and amount."""
    if not task.shape.claims and not task.shape.dra_backed:
        return ()
    grants = state.placement_of(task).grants
    return tuple(
        freed for book, content in grants if isinstance(book, ClaimLedger) for freed in book.frees_at_most(content)
    )
