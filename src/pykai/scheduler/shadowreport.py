"""How far a shadow agrees with the scheduler beside it: one outcome for each of that scheduler's decisions; pure.

    judge_bind, judge_eviction --> Outcome --> ShadowReport --> /get-shadow-report --> kai shadow report

A bind is compared by pod, node and shared devices with what the shadow had decided on the cluster before it.  Binds
that come before the shadow has decided are counted apart: they say nothing about either scheduler.

Statements: shadow:compare.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

#: differences that are kept, the newest
MOST_DIFFERENCES: Final = 1000

BIND: Final = "bind"
EVICT: Final = "evict"


class Outcome(StrEnum):
    """What a decision of the other scheduler is, next to ours."""

    AGREED = "agreed"
    #: another node, which has the same score
    EQUAL_NODE = "node of equal score"
    OTHER_NODE = "other node"
    #: the node, but another shared GPU of it
    OTHER_DEVICE = "other device"
    #: we gave the room to other pods, which still wait there
    OTHER_POD_FIRST = "other pod first"
    WOULD_WAIT = "we would wait"
    #: we would evict, but others
    OTHER_VICTIM = "other victim"
    WOULD_KEEP = "we would keep it"
    #: it came before our decision
    UNDECIDED = "undecided"
    #: a pod was deleted, and its group got no mark of an eviction: a user did it, or a controller
    NO_EVICTION = "no eviction"
    #: ours, which the other scheduler did not take within a minute
    NOT_TAKEN = "not taken"


#: outcomes in which both have decided, for either kind
_COMPARED: Final = frozenset(Outcome) - {Outcome.UNDECIDED, Outcome.NO_EVICTION, Outcome.NOT_TAKEN}
_SAME: Final = frozenset({Outcome.AGREED, Outcome.EQUAL_NODE})
#: outcomes of which only the number is kept
_COUNTED_ONLY: Final = frozenset({Outcome.AGREED, Outcome.UNDECIDED, Outcome.NO_EVICTION})


class ShadowBind(NamedTuple):
    """Where we would bind a pod."""

    node: str
    #: GPU groups that it would join; groups that we would open are left out, as their names are new
    joined_groups: frozenset[str] = frozenset()
    #: nodes of the same score, which is known only for a new decision
    equal_nodes: frozenset[str] = frozenset()


def judge_bind(
    choice: ShadowBind | None, node: str, joined_groups: Collection[str], *, why_waits: str, assumes_others: bool
) -> Outcome:
    """The outcome of a bind by the other scheduler.

    `why_waits` is why we found no place, `assumes_others` whether decisions of ours hold room that was not taken.
    """
    if choice is None:
        if not why_waits:
            return Outcome.UNDECIDED
        return Outcome.OTHER_POD_FIRST if assumes_others else Outcome.WOULD_WAIT
    if choice.node == node:
        return Outcome.AGREED if choice.joined_groups == frozenset(joined_groups) else Outcome.OTHER_DEVICE
    return Outcome.EQUAL_NODE if node in choice.equal_nodes else Outcome.OTHER_NODE


def judge_eviction(*, is_ours: bool, has_other_victims: bool, has_decided: bool) -> Outcome:
    """The outcome of an eviction by the other scheduler; `has_decided` since the last change that could lead to one."""
    if is_ours:
        return Outcome.AGREED
    if has_other_victims:
        return Outcome.OTHER_VICTIM
    return Outcome.WOULD_KEEP if has_decided else Outcome.UNDECIDED


@dataclass(frozen=True, slots=True)
class Difference:
    """A decision in which the two differ; empty texts: none."""

    #: RFC 3339
    at: str
    kind: str
    outcome: Outcome
    pod: str
    queue: str
    #: node of the other scheduler, and of the shadow
    theirs: str
    ours: str
    why: str = ""

    def as_document(self) -> dict[str, str]:
        """For JSON."""
        return {
            "at": self.at,
            "kind": self.kind,
            "outcome": str(self.outcome),
            "pod": self.pod,
            "queue": self.queue,
            "theirs": self.theirs,
            "ours": self.ours,
            "why": self.why,
        }


@dataclass(slots=True)
class ShadowReport:
    """What was compared since the shadow has started."""

    since: str = ""
    counts: Counter[tuple[str, Outcome]] = field(default_factory=Counter)
    differences: deque[Difference] = field(default_factory=lambda: deque(maxlen=MOST_DIFFERENCES))
    #: differences that made room for newer ones: a shadow that runs for weeks must not grow
    dropped: int = 0

    def add(self, found: Difference) -> None:
        """Count an outcome, and keep what differs."""
        self.counts[found.kind, found.outcome] += 1
        if found.outcome not in _COUNTED_ONLY:
            self.dropped += len(self.differences) == MOST_DIFFERENCES
            self.differences.append(found)

    def compared(self, kind: str) -> int:
        """Decisions of the other scheduler about which the shadow had one, too."""
        return sum(number for (each, outcome), number in self.counts.items() if each == kind and outcome in _COMPARED)

    def same(self, kind: str) -> int:
        """Those that are the same, or as good."""
        return sum(number for (each, outcome), number in self.counts.items() if each == kind and outcome in _SAME)

    def as_document(self) -> dict[str, Any]:
        """The report for programs; keys stay as they are."""
        return {
            "version": 1,
            "since": self.since,
            "binds": self._kind_document(BIND),
            "evictions": self._kind_document(EVICT),
            "differences": [each.as_document() for each in self.differences],
            "keptAtMost": MOST_DIFFERENCES,
            "dropped": self.dropped,
        }

    def _kind_document(self, kind: str) -> Mapping[str, Any]:
        outcomes = {str(outcome): number for (each, outcome), number in sorted(self.counts.items()) if each == kind}
        return {"compared": self.compared(kind), "agreed": self.same(kind), "outcomes": outcomes}
