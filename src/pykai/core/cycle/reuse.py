"""What a cycle leaves to the next besides its plan: unchanged gangs, and numbers for the requests of pods.

A gang is made from its group and tasks, the tree of queues, the priority classes and the order of tasks.  As long as
none of those has changed, and no task of it was placed or evicted, the next cycle would make the same gang again, so
the gang is reused.  A thousand gangs that wait for weeks are then made once, and not in every cycle.

`ReusableState.reuse_or_create` decides what is still valid.  It refers to nothing of the cycle that made it: the order
of tasks comes from built-in plugins, which need nothing of a snapshot, and with third-party plugins nothing is kept.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from pykai.core.caching import Cache
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.gangs import Gang
from pykai.core.policy import NamedPlugin, Policy

#: Numbers assigned before numbering starts again.
_MAX_CONSTRAINT_NUMBERS = 20_000


class SignatureNumbers:
    """Numbers for the constraints of pods and for their amounts, by shape (`eviction/signatures.py`)."""

    __slots__ = ("constraint_numbers", "count_zones", "numbers_by_constraint", "requests_by_shape")

    def __init__(self, *, count_zones: bool) -> None:
        #: whether NUMA zones count: under a restricted policy a larger request can be easier
        self.count_zones = count_zones
        #: shape, and labels where they count -> number of its constraints
        self.constraint_numbers: dict[Hashable, int] = {}
        self.numbers_by_constraint: dict[Hashable, int] = {}
        #: shape -> its request
        self.requests_by_shape: Cache[int, dict[str, int]] = Cache(_MAX_CONSTRAINT_NUMBERS)


class ReusableState:
    """What outlives a cycle."""

    __slots__ = ("_inputs", "_plugins", "admission_gangs", "gangs", "signature_numbers")

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        #: group -> its gang, valid as long as its version is that of the group
        self.gangs: Mapping[str, Gang] = {}
        #: the same for groups that wait for admission to their queue
        self.admission_gangs: Mapping[str, Gang] = {}
        self.signature_numbers = SignatureNumbers(count_zones=bool(snapshot.numa))
        self._plugins: tuple[NamedPlugin, ...] = policy.plugins
        self._inputs = _shared_inputs(snapshot)

    @classmethod
    def reuse_or_create(cls, previous: ReusableState | None, snapshot: Snapshot, policy: Policy) -> ReusableState:
        """The state after the last cycle, if it is still valid, or an empty one."""
        if (
            previous is None
            or previous._plugins != policy.plugins
            or any(named.third_party for named in policy.plugins)
        ):
            return cls(snapshot, policy)
        if any(mine is not theirs for mine, theirs in zip(previous._inputs, _shared_inputs(snapshot), strict=True)):
            return cls(snapshot, policy)
        if (
            previous.signature_numbers.count_zones != bool(snapshot.numa)
            or len(previous.signature_numbers.constraint_numbers) > _MAX_CONSTRAINT_NUMBERS
        ):
            previous.signature_numbers = SignatureNumbers(count_zones=bool(snapshot.numa))
        return previous


def _shared_inputs(snapshot: Snapshot) -> tuple[object, ...]:
    """The inputs of all gangs besides their groups; these are replaced when they change, never changed."""
    return (snapshot.shapes, snapshot.tree, snapshot.nodes, snapshot.priority_classes)
