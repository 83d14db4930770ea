"""Start times of groups, recorded where a minimum run time needs them (queues:Q-300).

The start of a group protects it for a minimum run time.  Where no queue and no default has one, the annotation is never
read, and a write per group is saved: a fifth of all writes of a cluster of small jobs.  When a minimum run time is set
later, or becomes longer, groups that already run get theirs after all: the earliest time at which one of their pods was
bound, which the API server has recorded in the pod.

    Plan --(engine's thread)--> starts now, and `groups_without_start` --(event loop) `earliest_bind_ns`--> annotation
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.timestamp import TimestampError, parse_timestamp
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.model.status import ACTIVE_USED
from pykai.core.plugins.minruntime import MinRuntime
from pykai.core.policy import Policy


def longest_min_runtime_ns(policy: Policy, snapshot: Snapshot) -> int:
    """The longest minimum run time of any queue or default; 0 when there is none."""
    spans = [each.plugin.longest_ns(snapshot.tree) for each in policy.plugins if isinstance(each.plugin, MinRuntime)]
    return max(spans, default=0)


def groups_without_start(snapshot: Snapshot) -> dict[str, tuple[str, ...]]:
    """Groups that run and have no start: key -> their running pods."""
    running_pods: dict[str, tuple[str, ...]] = {}
    for key, entry in snapshot.group_entries.items():
        if entry.group is not None and entry.group.last_start_ns is None:
            pods = tuple(task.key for task in entry.tasks.values() if ACTIVE_USED[task.status])
            if pods:
                running_pods[key] = pods
    return running_pods


def earliest_bind_ns(pods: Iterable[Pod]) -> int | None:
    """When the first of some pods was bound, None if none says so."""
    bind_times: list[int] = []
    for pod in pods:
        for condition in pod.status.conditions:
            if condition.type == names.CONDITION_POD_SCHEDULED and condition.status == "True":
                with suppress(TimestampError):
                    bind_times.append(parse_timestamp(condition.last_transition_time or ""))
    return min(bind_times, default=None)
