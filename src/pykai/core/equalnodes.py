"""Which nodes would have served a pod as well as the one that was chosen: nodes of equal score.

    equal_nodes(snapshot, policy, binds) -> {pod key: names of nodes}

A shadow compares its binds with those of another scheduler, and a choice between equally good nodes is no disagreement.
Scores are those at the start of the cycle, before any of its decisions: two pods of a gang that swap their nodes are
equal, too.

Statements: shadow:equal.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from contextlib import closing
from math import inf

import numpy as np

from pykai.api.keys import object_key
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.request import PlacementRequest
from pykai.core.hooks import ALL_NODES
from pykai.core.opencycle import Cycle, open_cycle
from pykai.core.placing.task import request_for_task
from pykai.core.policy import Policy
from pykai.core.report.decisions import Bind

#: nodes that are kept for one pod; on a larger set of equal nodes the names are of no use
MOST_NODES = 4096


def equal_nodes(snapshot: Snapshot, policy: Policy, binds: Iterable[Bind]) -> dict[str, frozenset[str]]:
    """The nodes with the score of the chosen one, which is among them; nothing for pods that are unknown."""
    found: dict[str, frozenset[str]] = {}
    #: pods of equal requests on equal nodes share their set
    shared: dict[Hashable, frozenset[str]] = {}
    with closing(open_cycle(snapshot, policy)) as cycle:
        for bind in binds:
            request, row = _request(cycle, bind), snapshot.nodes.rows.get(bind.node)
            if request is None or row is None:
                continue
            scores = cycle.rankings.ranking_for(cycle.state, request, ALL_NODES).scores
            key = (cycle.rankings.request_key(request), scores.item(row))
            if key not in shared:
                # A node that is free only once victims have left has no score yet.
                has_score = scores.item(row) > -inf
                rows = np.flatnonzero(scores == scores[row])[:MOST_NODES].tolist() if has_score else []
                shared[key] = frozenset(snapshot.nodes.names[each] for each in rows)
            found[object_key(bind.namespace, bind.pod)] = shared[key] | {bind.node}
    return found


def _request(cycle: Cycle, bind: Bind) -> PlacementRequest | None:
    entry = cycle.context.snapshot.group_entries.get(bind.group)
    task = entry.tasks.get(object_key(bind.namespace, bind.pod)) if entry is not None else None
    if entry is None or entry.group is None or task is None or task.subgroup not in entry.group.leaf_index:
        return None
    gang = cycle.gangs.gang(entry)
    return request_for_task(cycle.state, gang, gang.leaves[gang.group.leaf_index[task.subgroup]], task)
