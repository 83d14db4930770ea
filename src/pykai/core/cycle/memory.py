"""What the last cycle found, for the next one.

A cycle is a function of the cluster, the policy and the time, and the time matters only through rules that ask whether
an instant has come (`State.passed`).  So as long as nothing has changed that it read (`changetokens.py`), the policy is
the same and none of those instants has come, the next cycle would find the same: what did not fit still does not fit,
for the same reasons.  With a memory that plan is given at once; without one it is worked out again and is equal to the
last byte.

Plans that depend on the time itself are not kept: those that start or evict something, that make a new name for a
shared GPU, or that stamp a gang as stale.

Statements: memory.
"""

from __future__ import annotations

from msgspec.structs import replace

from pykai.core.cluster.changetokens import Content, Figures
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.reuse import Known
from pykai.core.policy import Policy
from pykai.core.report.decisions import Plan


class Memory:
    """The last plan and how long it holds.  The owner hands the same memory to every cycle."""

    __slots__ = ("_content", "_figures", "_looked", "_plan", "_policy", "_until_ns", "known")

    def __init__(self) -> None:
        self._content = Content(None, None, None)
        #: what running work came to, and whether the cycle looked at more of it
        self._figures: Figures | None = None
        self._looked = True
        self._policy: Policy | None = None
        self._plan: Plan | None = None
        self._until_ns: int | None = None
        #: what need not be made anew when the plan has to be
        self.known: Known | None = None

    @property
    def until_ns(self) -> int | None:
        """When the plan has to be made anew though nothing changed; None = never."""
        return self._until_ns

    def recall(self, snapshot: Snapshot, policy: Policy) -> Plan | None:
        """The plan for this snapshot, if it is known without working it out."""
        plan = self._plan
        if plan is None or self._policy != policy or not self._holds(snapshot):
            return None
        if snapshot.now_ns < plan.now_ns or (self._until_ns is not None and snapshot.now_ns >= self._until_ns):
            return None
        return replace(plan, now_ns=snapshot.now_ns)

    def _holds(self, snapshot: Snapshot) -> bool:
        """Whether everything that the cycle has read is as it was."""
        if self._content.same(snapshot.content):
            return True
        if self._looked or not self._content.same_but_running(snapshot.content):
            return False
        return self._figures == Figures(snapshot.columns, snapshot.foreign, snapshot.census)

    def keep(
        self, snapshot: Snapshot, policy: Policy, plan: Plan, until_ns: int | None, figures: Figures | None = None
    ) -> None:
        """Remember a plan that no rule about time contradicts before `until_ns`; `figures` are those before it."""
        if plan.binds or plan.evictions or any(item.gpu_groups for item in plan.nominations) or _stamps(plan):
            self._plan = None
            return
        self._content, self._policy, self._plan, self._until_ns = snapshot.content, policy, plan, until_ns
        self._figures, self._looked = figures, snapshot.looked or figures is None


def _stamps(plan: Plan) -> bool:
    return any(stale.since_ns == plan.now_ns for stale in plan.stale)
