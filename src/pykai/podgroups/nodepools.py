"""Node pools that no scheduler serves.

A PodGroup names its node pool in a label, and each scheduler serves one pool.  With a typo, or a pool whose scheduler
was never started, pods wait without a reason, because the scheduler that would give it does not run.  So this service
does.

It relies on what any scheduler, ours or KAI's, writes on the objects it has processed: the pod condition
`PodScheduled`, a node, or a scheduling condition of the PodGroup (cycle:EXP-10, EXP-11).  A group that is complete and
has none of these is *silent*.  Its pool is not served if the group has been silent for `UNSERVED_AFTER_S`, and all that
time no other pod of the pool was bound, marked or evicted either.

Subtle:
- Times count from when this service saw something, so a service that has just begun reports nothing for
  `UNSERVED_AFTER_S`, and a leader change or a restart of the scheduler, which take seconds, raises no alarm.
- Leases are no help: a single scheduler takes none.
- A gang that is incomplete may be silent though it is served, and so may an elastic one that runs in part: neither is
  checked.
- The verdict of an earlier instance stays while the group is silent; it does not come and go with restarts.

Statements: pools.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.scheduling import PodGroup
from pykai.kube.clock import Clock
from pykai.podgroups.status import POOL_NOT_SERVED

#: Cluster seconds without any sign of a scheduler, and wall seconds that these are at least.
UNSERVED_AFTER_S: Final = 300.0
_MIN_WALL_S: Final = 30.0
_FINISHED: Final = ("Succeeded", "Failed")


class NodePoolMonitor:
    """Which groups are silent since when, and when each pool last showed that it is served."""

    def __init__(self, clock: Clock, label: str, scheduler_name: str, unserved_after_s: float = 0.0) -> None:
        self._clock = clock
        # In a cluster with fast time the scheduler is no faster.
        self._unserved_after_s = unserved_after_s or max(UNSERVED_AFTER_S, _MIN_WALL_S * clock.speed)
        self._label = label
        self._scheduler_name = scheduler_name
        #: pool -> when a scheduler was last seen at work in it
        self._last_activity_s: dict[str, float] = {}
        #: group -> its pool, and since when it is silent
        self._untouched_since: dict[str, tuple[str, float]] = {}
        #: pool -> groups of it that were found not to be served
        self._unserved: dict[str, set[str]] = {}

    def pool_of(self, group: PodGroup) -> str:
        """The node pool of a group, "" for the default one."""
        return group.metadata.labels.get(self._label, "") if self._label else ""

    def observe(self, old: Pod | None, new: Pod | None, group: PodGroup | None) -> list[str]:
        """A pod of a group changed; where that shows a scheduler at work, the groups that no longer lack one."""
        if old is None or group is None or not _shows_scheduler_activity(old, new):
            return []
        pool = self.pool_of(group)
        self._last_activity_s[pool] = self._clock.elapsed_s()
        return list(self._unserved.get(pool, ()))

    def forget(self, key: str) -> None:
        """A group is gone, or served."""
        pool, _ = self._untouched_since.pop(key, ("", 0.0))
        if key in self._unserved.get(pool, ()):
            self._unserved[pool].discard(key)
            if not self._unserved[pool]:
                del self._unserved[pool]

    def check(
        self, key: str, group: PodGroup, pods: Iterable[Pod], complete: Callable[[], bool]
    ) -> tuple[str, float | None]:
        """What is wrong with the pool of a group, "" for nothing, and after how many seconds to check again."""
        pool = self.pool_of(group)
        if _has_scheduling_condition(group, pool) or not _is_untouched(pods) or not complete():
            self.forget(key)
            return "", None
        now_s = self._clock.elapsed_s()
        untouched = self._untouched_since.get(key)
        if untouched is None or untouched[0] != pool:
            self.forget(key)
            untouched = (
                pool,
                now_s - self._unserved_after_s if untouched is None and _is_marked_unserved(group) else now_s,
            )
            self._untouched_since[key] = untouched
        since_s = untouched[1]
        left_s = max(since_s, self._last_activity_s.get(pool, since_s)) + self._unserved_after_s - now_s
        if left_s > 0:
            self._unserved.get(pool, set()).discard(key)
            return "", left_s
        self._unserved.setdefault(pool, set()).add(key)
        return self._text(pool), self._unserved_after_s

    def _text(self, pool: str) -> str:
        text = f"no scheduler has processed these pods for {self._unserved_after_s / 60:g} minutes; "
        if not pool:
            return text + f"see that a scheduler named {self._scheduler_name} runs for the nodes without {self._label}"
        return text + (
            f"start one for node pool {pool!r} (--partition-label-value={pool}), or correct the label {self._label}"
        )


def _shows_scheduler_activity(old: Pod, new: Pod | None) -> bool:
    """Whether a scheduler has done something to a pod: set its condition, bound it or evicted it."""
    if new is None:
        return False
    if new.metadata.deletion_timestamp is not None and old.metadata.deletion_timestamp is None:
        return bool(new.spec.node_name)
    return _scheduled_condition(old) != _scheduled_condition(new) or old.spec.node_name != new.spec.node_name


def _scheduled_condition(pod: Pod) -> tuple[str, str, str] | None:
    """What a scheduler says about a pod; the API server itself marks pods that have gates."""
    for each in pod.status.conditions:
        if each.type == names.CONDITION_POD_SCHEDULED and each.reason != names.CONDITION_REASON_GATED:
            return each.status, each.reason, each.message
    return None


def _is_untouched(pods: Iterable[Pod]) -> bool:
    """Whether some pods wait, and a scheduler has left nothing on any of them."""
    has_waiting_pod = False
    for pod in pods:
        if pod.spec.node_name or pod.metadata.deletion_timestamp is not None or _scheduled_condition(pod) is not None:
            return False
        has_waiting_pod = has_waiting_pod or pod.status.phase not in _FINISHED
    return has_waiting_pod


def _has_scheduling_condition(group: PodGroup, pool: str) -> bool:
    wanted = pool or names.DEFAULT_NODE_POOL
    return any(each.node_pool == wanted for each in group.status.scheduling_conditions)


def _is_marked_unserved(group: PodGroup) -> bool:
    listed = group.status.conditions
    return isinstance(listed, list) and any(
        isinstance(entry, dict)
        and (entry.get("type"), entry.get("status"), entry.get("reason"))
        == (names.CONDITION_VALID, "False", POOL_NOT_SERVED)
        for entry in listed
    )
