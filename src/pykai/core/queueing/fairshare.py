"""Fair shares of a whole forest of queues.

`roll_up` turns amounts per leaf into amounts per subtree in one pass. `fair_shares` divides the cluster top-down: a
queue divides its own fair share among its children (`waterfill`). A child may get more than its parent, because quotas
are guaranteed level by level (queues:Q-130).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pykai.core.model.queuetree import RESOURCES, QueueTree
from pykai.core.queueing.waterfill import SiblingColumns, divide_siblings


class FairShareSettings(NamedTuple):
    """How surplus is divided; a plugin sets it by an attribute `fair_share_settings`."""

    #: how strongly historical usage shapes the surplus
    k_value: float = 1.0
    #: no share above request or limit, leftovers stay in their priority bucket (queues:8, Do better)
    strict_remainders: bool = False


def roll_up(tree: QueueTree, leaf_values: list[list[float]]) -> None:
    """Add to every queue the amounts of the queues below it, in place; columns are [resource][row].

    A queue with children keeps its own amounts: workloads in it hold resources too (queues:Q-66).
    """
    climbs = [(row, tree.parents[row]) for row in reversed(tree.top_down) if tree.parents[row] >= 0]
    for column in leaf_values:
        for row, parent in climbs:
            column[parent] += column[row]


def fair_shares(
    tree: QueueTree,
    total: Sequence[float],
    request: Sequence[Sequence[float]],
    *,
    usage: Sequence[Sequence[float]] | None = None,
    k: float = 1.0,
    strict_remainders: bool = False,
) -> list[list[float]]:
    """The fair share of every queue, [resource][row].

    `total` is the cluster per resource; `request` (rolled up) and `usage` (fractions of it) are [resource][row].
    """
    groups = [tree.roots, *(tree.children[row] for row in tree.top_down if tree.children[row])]
    pools = [-1, *(row for row in tree.top_down if tree.children[row])]
    priorities = [[tree.priorities[row] for row in group] for group in groups]
    shares: list[list[float]] = []
    for resource in range(RESOURCES):
        quota, limit, weight = tree.quota[resource], tree.limit[resource], tree.weight[resource]
        # Columns may be arrays, whose elements are slow in scalar arithmetic.
        requests = [float(value) for value in request[resource]]
        usages = [0.0] * len(tree.names) if usage is None else [float(value) for value in usage[resource]]
        column = [0.0] * len(tree.names)
        for pool_row, group, group_priorities in zip(pools, groups, priorities, strict=True):
            siblings = SiblingColumns(
                priorities=group_priorities,
                quotas=[quota[row] for row in group],
                limits=[limit[row] for row in group],
                weights=[weight[row] for row in group],
                requests=[requests[row] for row in group],
                usages=[usages[row] for row in group],
            )
            pool = column[pool_row] if pool_row >= 0 else float(total[resource])
            divided = divide_siblings(pool, siblings, k=k, strict_remainders=strict_remainders)
            for row, share in zip(group, divided, strict=True):
                column[row] = share
        shares.append(column)
    return shares
