"""Ranks that are kept and repaired, against ranks that are made for each walk (cycle:PERF-5, PERF-6)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykai.api.meta import ObjectMeta
from pykai.api.scheduling import Queue, QueueSpec
from pykai.core.cycle.queueranks import KeptRanks, QueueRanks
from pykai.core.model.queuetree import QueueAmounts, QueueTree, build_tree


def _tree(random: Random) -> QueueTree:
    queues: list[Queue] = []
    for number in range(random.randrange(2, 12)):
        parent = random.choice(["", *(queue.metadata.name for queue in queues)])
        queues.append(Queue(metadata=ObjectMeta(name=f"q{number:02}"), spec=QueueSpec(parent_queue=parent)))
    return build_tree(queues, report=lambda problem: pytest.fail(str(problem)))


class _Figures:
    """Queues with figures and amounts that come and go."""

    def __init__(self, random: Random, *, worst_first: bool) -> None:
        self.random = random
        self.worst_first = worst_first
        self.tree = _tree(random)
        self.leaves = [row for row, children in enumerate(self.tree.children) if not children]
        self.figures = [[random.randrange(3)] for _ in self.tree.names]
        self.amounts: dict[int, QueueAmounts] = {}
        self.kept = KeptRanks(self.tree, self.ranks(), self.figures)
        for leaf in self.leaves:
            self.change_amount(leaf)

    def ranks(self, kept: QueueRanks | None = None, top: int = -1) -> QueueRanks:
        return QueueRanks(self.tree, self._key, self._wins, worst_first=self.worst_first, kept=kept, top=top)

    def _key(self, row: int, amount: QueueAmounts) -> tuple[float, ...]:
        return (self.figures[row][0] + amount[0],)

    def _wins(self, row: int, other: int) -> bool:
        # No total order, like rule 7.
        return row % 3 < other % 3

    def change_amount(self, leaf: int) -> None:
        self.amounts.pop(leaf, None)
        if self.random.random() < 0.7:
            self.amounts[leaf] = (float(self.random.randrange(3)), 0.0, 0.0)
        self.kept.mark(leaf)

    def change_figures(self) -> list[tuple[int, list[int]]]:
        """Change those of one chain; returns what they were."""
        leaf = self.random.choice(self.leaves)
        before = [(row, self.figures[row]) for row in self.tree.chains[leaf]]
        for row, figures in before:
            self.figures[row] = [figures[0] + self.random.choice((-1, 1))]
        return before

    def some_queues(self) -> list[int]:
        """Queues of which none is above another."""
        found: list[int] = []
        for row in self.random.sample(range(len(self.tree.names)), self.random.randrange(1, len(self.tree.names) + 1)):
            chain = self.tree.chains[row]
            if all(row not in self.tree.chains[other] and other not in chain for other in found):
                found.append(row)
        return found

    def below(self, queues: list[int]) -> list[int]:
        return [leaf for leaf in self.leaves if any(queue in self.tree.chains[leaf] for queue in queues)]


def _drained(figures: _Figures, ranks: QueueRanks, seed: int) -> list[int]:
    """Leaves in the order they are chosen; each comes back a few times with another amount."""
    random = Random(seed)
    order = []
    while (leaf := ranks.chosen()) >= 0:
        order.append(leaf)
        ranks.rank(leaf, (float(random.randrange(3)), 0.0, 0.0) if random.random() < 0.5 else None)
    return order


@given(seed=st.integers(0, 2**32), worst_first=st.booleans())
@settings(max_examples=150)
def test_a_walk_from_kept_ranks_is_that_from_new_ones(seed: int, worst_first: bool) -> None:
    """cycle:PERF-5, PERF-6: after amounts change, figures change, and figures come back as in a rollback."""
    random = Random(seed)
    figures = _Figures(random, worst_first=worst_first)
    undo: list[list[tuple[int, list[int]]]] = []
    # As in a state: a change has a version of its own, and undoing it restores the version before.
    versions, latest = [0], 0
    for _ in range(6):
        for leaf in random.sample(figures.leaves, random.randrange(len(figures.leaves) + 1)):
            figures.change_amount(leaf)
        if random.random() < 0.6:
            undo.append(figures.change_figures())
            latest += 1
            versions.append(latest)
        elif undo:
            versions.pop()
            for row, before in undo.pop():
                figures.figures[row] = before
        figures.kept.repair(figures.amounts.get, versions[-1])
        queues = figures.some_queues()
        new = figures.ranks()
        for leaf in figures.below(queues):
            new.rank(leaf, figures.amounts.get(leaf))
        overlay = figures.ranks(figures.kept.ranks)
        overlay.start_with(queues)
        draining = random.randrange(2**32)
        assert _drained(figures, overlay, draining) == _drained(figures, new, draining)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=60)
def test_below_one_queue_some_of_its_children_are_compared(seed: int) -> None:
    """cycle:PERF-5: a trial compares the children of the lowest queue above all who take part."""
    random = Random(seed)
    figures = _Figures(random, worst_first=False)
    figures.kept.repair(figures.amounts.get, 0)
    for top, children in enumerate(figures.tree.children):
        if not children:
            continue
        some = random.sample(children, random.randrange(1, len(children) + 1))
        new, overlay = figures.ranks(top=top), figures.ranks(figures.kept.ranks, top)
        overlay.start_with(some)
        for leaf in figures.below(some):
            new.rank(leaf, figures.amounts.get(leaf))
        assert _drained(figures, overlay, seed) == _drained(figures, new, seed)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=60)
def test_the_only_ranked_leaf_below_a_queue_is_found(seed: int) -> None:
    """cycle:PERF-6."""
    figures = _Figures(Random(seed), worst_first=True)
    figures.kept.repair(figures.amounts.get, 0)
    for row in range(len(figures.tree.names)):
        ranked = [leaf for leaf in figures.below([row]) if leaf in figures.amounts]
        assert figures.kept.ranks.has(row) is bool(ranked)
        if ranked:
            assert figures.kept.ranks.only_leaf(row) == (ranked[0] if len(ranked) == 1 else -1)
