"""Queues ranked among their siblings, at every level of the tree.

Every leaf has an amount: what its best gang requests, or what its next victim costs.  The amount of a queue above is
that of the leaf that would be chosen below it, and queues of one parent are compared by a key of queue and amount.

A walk or search changes few chains of queues, but its ranks start with all of them.  `KeptRanks` stay from one to the
next and are repaired where figures or amounts have changed; a walk reads them and keeps its own changes apart.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from itertools import compress, islice
from operator import is_not
from typing import Any

from pykai.core.model.queuetree import QueueAmounts, QueueTree

OrderKey = tuple[Any, ...]
QueueKey = Callable[[int, QueueAmounts], OrderKey]
Beats = Callable[[int, int], bool]


class RankedSiblings:
    """Queues of one parent, best first.

    Keys order siblings completely except for ties, which are settled pairwise (rule 7 is not a total order): siblings
    are walked from the oldest, and a later one takes the lead only if it beats the leader.  Rows of the tree are in
    order of (creation, name), so the walk is in order of rows.
    """

    __slots__ = ("_beats", "_keys", "order")

    def __init__(self, beats: Beats | None) -> None:
        self._beats = beats
        self._keys: dict[int, OrderKey] = {}
        #: (key, row), ascending
        self.order: list[tuple[OrderKey, int]] = []

    def __contains__(self, row: int) -> bool:
        return row in self._keys

    def copy(self) -> RankedSiblings:
        """A copy to change."""
        copied = RankedSiblings(self._beats)
        copied._keys = self._keys.copy()
        copied.order = self.order.copy()
        return copied

    def of(self, rows: Iterable[int]) -> RankedSiblings:
        """Some of them; rows that are not ranked here are left out."""
        some = RankedSiblings(self._beats)
        keys = self._keys
        some._keys = {row: keys[row] for row in rows if row in keys}
        some.order = sorted((key, row) for row, key in some._keys.items())
        return some

    def update(self, row: int, key: OrderKey) -> None:
        """Set the present key of a queue."""
        before = self._keys.get(row)
        if before == key:
            return
        order = self.order
        if before is not None:
            del order[bisect_left(order, (before, row))]
        self._keys[row] = key
        insort(order, (key, row))

    def discard(self, row: int) -> None:
        """Remove a queue."""
        key = self._keys.pop(row, None)
        if key is not None:
            del self.order[bisect_left(self.order, (key, row))]

    def best(self) -> int:
        """The queue to serve next."""
        order = self.order
        key, leader = order[0]
        if len(order) > 1 and order[1][0] == key and self._beats is not None:
            for other, row in islice(order, 1, None):
                if other != key:
                    break
                if self._beats(row, leader):
                    leader = row
        return leader

    def worst(self) -> int:
        """The queue to take from first: the last in the same order (queues:Q-239)."""
        order = self.order
        key, leader = order[-1]
        if len(order) > 1 and order[-2][0] == key and self._beats is not None:
            for other, row in islice(reversed(order), 1, None):
                if other != key:
                    break
                if self._beats(leader, row):
                    leader = row
        return leader


class QueueRanks:
    """The ranks of queues below one, -1 = of all; their own, or changes to kept ones."""

    __slots__ = ("_amounts", "_beats", "_choose", "_kept", "_key", "_siblings", "_top", "_tree")

    def __init__(
        self,
        tree: QueueTree,
        key: QueueKey,
        beats: Beats | None,
        *,
        worst_first: bool = False,
        top: int = -1,
        kept: QueueRanks | None = None,
    ) -> None:
        """`worst_first` chooses the worst queue, not the best; of `kept` nothing counts before `start_with`."""
        self._tree = tree
        self._key = key
        self._beats = beats
        self._choose: Callable[[RankedSiblings], int] = RankedSiblings.worst if worst_first else RankedSiblings.best
        self._top = top
        self._kept = kept
        #: queue -> its ranked children
        self._siblings: dict[int, RankedSiblings] = {top: RankedSiblings(beats)}
        #: queue -> the amount of the leaf that would be chosen below it
        self._amounts: dict[int, QueueAmounts] = {}

    def start_with(self, rows: Iterable[int]) -> None:
        """Rank these queues as they are kept, with all that is below them, and nothing else.

        None of them is above another.
        """
        kept, parents, chains = self._kept, self._tree.parents, self._tree.chains
        assert kept is not None
        by_parent: dict[int, list[int]] = {}
        for row in rows:
            by_parent.setdefault(parents[row], []).append(row)
        above: set[int] = set()
        for parent, together in by_parent.items():
            if (known := kept._siblings.get(parent)) is not None:
                self._siblings[parent] = known.of(together)
            if parent != self._top and parent not in above:
                chain = chains[parent]
                above.update(chain if self._top < 0 else chain[: chain.index(self._top)])
        for row in above:
            self._siblings.setdefault(row, RankedSiblings(self._beats))
        for row in sorted(above, key=lambda row: len(chains[row]), reverse=True):
            self.rank_one(row, self.chosen_amount(row))

    def amount(self, row: int) -> QueueAmounts | None:
        """The amount of the leaf that would be chosen below a queue, None if there is none."""
        amount = self._amounts.get(row)
        return amount if amount is not None or self._kept is None else self._kept.amount(row)

    def has(self, row: int) -> bool:
        """Whether a queue is ranked among its siblings."""
        siblings = self._siblings.get(self._tree.parents[row])
        return siblings is not None and row in siblings

    def only_leaf(self, row: int) -> int:
        """The leaf that alone is ranked below a queue, or is the queue; -1 if there are several."""
        while (children := self._siblings.get(row)) is not None:
            if len(children.order) != 1:
                return -1
            row = children.order[0][1]
        return row

    def chosen(self) -> int:
        """The leaf to choose, -1 if there is none."""
        siblings, choose, kept = self._siblings, self._choose, self._kept
        row = self._top
        if not siblings[row].order:
            return -1
        while True:
            children = siblings.get(row)
            if children is None:
                children = kept._siblings.get(row) if kept is not None else None
                if children is None:
                    return row
            row = choose(children)

    def rank(self, leaf: int, amount: QueueAmounts | None) -> None:
        """Rank a leaf and its ancestors; without an amount it leaves."""
        for row in self._tree.chains[leaf]:
            if row == self._top:
                return
            self.rank_one(row, amount if row == leaf else self.chosen_amount(row))

    def rank_one(self, row: int, amount: QueueAmounts | None) -> None:
        """Rank one queue among its siblings."""
        parent = self._tree.parents[row]
        siblings = self._siblings.get(parent)
        if siblings is None:
            known = self._kept._siblings.get(parent) if self._kept is not None else None
            siblings = self._siblings[parent] = known.copy() if known is not None else RankedSiblings(self._beats)
        if amount is None:
            siblings.discard(row)
        else:
            self._amounts[row] = amount
            siblings.update(row, self._key(row, amount))

    def chosen_amount(self, row: int) -> QueueAmounts | None:
        """The amount of the leaf that would be chosen below a queue, by the ranks of its children."""
        children = self._siblings.get(row)
        if children is None or not children.order:
            return None
        return self.amount(self._choose(children))


class KeptRanks:
    """Ranks that are repaired, not made again.

    Keys and ties may depend on the figures of a queue and its amount alone, and figures are replaced, never changed.
    """

    __slots__ = ("_changed", "_figures", "_ranked", "_ranked_by", "_tree", "_version", "ranks")

    def __init__(self, tree: QueueTree, ranks: QueueRanks, figures: Sequence[object]) -> None:
        """`figures` are those of all queues now."""
        self.ranks = ranks
        self._tree = tree
        self._figures = figures
        #: the version of the state at the last repair, -1 = none
        self._version = -1
        #: the figures at the last repair
        self._ranked_by = list(figures)
        #: leaves that were ever ranked, and their ancestors
        self._ranked: set[int] = set()
        #: leaves whose amounts may have changed
        self._changed: set[int] = set()

    def mark(self, leaf: int) -> None:
        """The amount of a leaf may have changed."""
        self._changed.add(leaf)

    def repair(self, amount_of: Callable[[int], QueueAmounts | None], version: int) -> None:
        """Rank again what has changed; `amount_of` tells the amount of a leaf now, `version` names the figures."""
        if version == self._version and not self._changed:
            return
        self._version = version
        figures, known = self._figures, self._ranked_by
        replaced = list(compress(range(len(known)), map(is_not, figures, known)))
        if not replaced and not self._changed:
            return
        chains, ranked = self._tree.chains, self._ranked
        rows = {row for leaf in self._changed for row in chains[leaf]}
        ranked |= rows
        self._changed.clear()
        for queue in replaced:
            known[queue] = figures[queue]
            if queue in ranked:
                rows.update(chains[queue])
        ranks = self.ranks
        for row in sorted(rows, key=lambda row: len(chains[row]), reverse=True):
            ranks.rank_one(row, ranks.chosen_amount(row) if self._tree.children[row] else amount_of(row))
