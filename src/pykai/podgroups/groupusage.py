"""The sums of one group, kept up to date pod by pod.

A pod that is added, changed or deleted costs the same whatever the size of its group: its old share is subtracted and
its new one added.  Amounts are ints, so nothing drifts.

Claims that several pods share count once: the sums count users of each claim, and what a claim amounts to is looked up
when the status is computed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from pykai.api.amounts import NanoAmounts, add_amounts
from pykai.podgroups.podusage import GroupMember


@dataclass(slots=True)
class SubgroupCounts:
    """Counts of the pods of one subgroup."""

    alive: int = 0
    gated: int = 0
    scheduled: int = 0
    running: int = 0
    finished: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is no pod at all."""
        return not (self.alive or self.finished or self.gated)

    def count(self, member: GroupMember, sign: int) -> None:
        """Add a pod, or remove it (-1)."""
        self.alive += sign * member.is_active
        self.gated += sign * member.gated
        self.scheduled += sign * member.scheduled
        self.running += sign * member.running
        self.finished += sign * member.finished


@dataclass(slots=True)
class GroupUsage:
    """Everything that the pods of a group add up to."""

    members: dict[str, GroupMember] = field(default_factory=dict)
    requested: NanoAmounts = field(default_factory=dict)
    allocated: NanoAmounts = field(default_factory=dict)
    subgroups: dict[str, SubgroupCounts] = field(default_factory=dict)
    #: claim -> pods that ask for it, pods that use it
    claims_requested: Counter[str] = field(default_factory=Counter)
    claims_allocated: Counter[str] = field(default_factory=Counter)
    #: scheduling gate -> pods that it holds
    gates: Counter[str] = field(default_factory=Counter)
    #: pod key -> what is wrong with it
    problems: dict[str, str] = field(default_factory=dict)

    def update(self, key: str, member: GroupMember) -> bool:
        """Set the state of a pod; whether that changes anything."""
        previous = self.members.get(key)
        if previous == member:
            return False
        if previous is not None:
            self._count(key, previous, -1)
        self.members[key] = member
        self._count(key, member, 1)
        return True

    def remove(self, key: str) -> bool:
        """Remove a pod; whether it was there."""
        previous = self.members.pop(key, None)
        if previous is None:
            return False
        self._count(key, previous, -1)
        return True

    def _count(self, key: str, member: GroupMember, sign: int) -> None:
        add_amounts(self.requested, member.requested, sign)
        add_amounts(self.allocated, member.allocated, sign)
        part = self.subgroups.setdefault(member.subgroup, SubgroupCounts())
        part.count(member, sign)
        if part.is_empty:
            del self.subgroups[member.subgroup]
        for claim in member.claims:
            _count_pod(self.claims_requested, claim, sign)
            if member.claims_allocated:
                _count_pod(self.claims_allocated, claim, sign)
        for gate in member.gates:
            _count_pod(self.gates, gate, sign)
        if sign > 0 and member.problem:
            self.problems[key] = member.problem
        else:
            self.problems.pop(key, None)


def _count_pod(pods: Counter[str], name: str, sign: int) -> None:
    pods[name] += sign
    if not pods[name]:
        del pods[name]
