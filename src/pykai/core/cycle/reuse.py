"""What a cycle leaves to the next besides its plan: gangs that are as they were, and numbers for what pods ask for.

A gang is made from its group and tasks, the tree of queues, the priority classes and the order of tasks.  As long as
none of those has changed, and no task of it was placed or taken back, the next cycle would make the same gang again; so
it takes the one there is.  A thousand gangs that wait for weeks are then made once, and not in every cycle.

`Known.of` decides what is still good.  It holds on to nothing of the cycle that made it: the order of tasks comes from
plugins of our own, which need nothing of a snapshot, and with plugins of others nothing is kept.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.gangs import Gang
from pykai.core.policy import NamedPlugin, Policy

#: Numbers given out before they are begun anew.
_MOST_MARKS = 20_000


class Marks:
    """Numbers for what pods ask for besides how much, and how much, by shape (`victims/signatures.py`)."""

    __slots__ = ("constraints", "numbers", "requests", "zones")

    def __init__(self, *, zones: bool) -> None:
        #: whether NUMA zones count: under a restricted policy asking for more of them can be easier
        self.zones = zones
        #: shape, and labels where they count -> number of its constraints
        self.constraints: dict[Hashable, int] = {}
        self.numbers: dict[Hashable, int] = {}
        #: shape -> what it asks for
        self.requests: dict[int, dict[str, int]] = {}


class Known:
    """What holds beyond a cycle."""

    __slots__ = ("_basis", "_plugins", "gangs", "marks")

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        #: group -> its gang, good as long as its version is that of the group
        self.gangs: Mapping[str, Gang] = {}
        self.marks = Marks(zones=bool(snapshot.numa))
        self._plugins: tuple[NamedPlugin, ...] = policy.plugins
        self._basis = _basis(snapshot)

    @classmethod
    def of(cls, last: Known | None, snapshot: Snapshot, policy: Policy) -> Known:
        """What was known after the last cycle, if it still holds, or nothing."""
        if last is None or last._plugins != policy.plugins or any(named.foreign for named in policy.plugins):
            return cls(snapshot, policy)
        if any(mine is not theirs for mine, theirs in zip(last._basis, _basis(snapshot), strict=True)):
            return cls(snapshot, policy)
        if last.marks.zones != bool(snapshot.numa) or len(last.marks.constraints) > _MOST_MARKS:
            last.marks = Marks(zones=bool(snapshot.numa))
        return last


def _basis(snapshot: Snapshot) -> tuple[object, ...]:
    """What all gangs are made from besides their groups; these are replaced when they change, never changed."""
    return (snapshot.shapes, snapshot.tree, snapshot.nodes, snapshot.priority_classes)
