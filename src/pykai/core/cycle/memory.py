"""The results of the last cycle, for the next one.

A cycle is a function of the cluster, the policy and the time, and the time matters only through rules that check
whether an instant has passed (`State.passed`).  So as long as its inputs have not changed (`changetokens.py`), the
policy is the same and none of those instants has passed, the next cycle would find the same: what did not fit still
does not fit, for the same reasons.  With a memory that plan is returned at once; without one it is computed again and
is equal to the last byte.

Plans that depend on the time itself are not kept: those that start or evict something, that make a new name for a
shared GPU, or that stamp a gang as stale.

Statements: memory.
"""

from __future__ import annotations

from msgspec.structs import replace

from pykai.core.cluster.changetokens import ChangeTokens
from pykai.core.cluster.runningsums import RunningSums
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.reuse import ReusableState
from pykai.core.policy import Policy
from pykai.core.report.decisions import Plan


class CycleMemory:
    """The last plan and how long it holds.  The owner hands the same memory to every cycle."""

    __slots__ = (
        "_change_tokens",
        "_inspected_running",
        "_plan",
        "_policy",
        "_running_sums",
        "_valid_until_ns",
        "reuse",
    )

    def __init__(self) -> None:
        self._change_tokens = ChangeTokens(None, None, None)
        #: what was read of running work, and whether the cycle inspected more of it
        self._running_sums: RunningSums | None = None
        self._inspected_running = True
        self._policy: Policy | None = None
        self._plan: Plan | None = None
        self._valid_until_ns: int | None = None
        #: what can be reused when the plan has to be computed again
        self.reuse: ReusableState | None = None

    @property
    def valid_until_ns(self) -> int | None:
        """When the plan has to be computed again though nothing changed; None = never."""
        return self._valid_until_ns

    def recall(self, snapshot: Snapshot, policy: Policy) -> Plan | None:
        """The plan for this snapshot, if it is still valid."""
        plan = self._plan
        if plan is None or self._policy != policy or not self._is_unchanged(snapshot):
            return None
        if snapshot.now_ns < plan.now_ns or (
            self._valid_until_ns is not None and snapshot.now_ns >= self._valid_until_ns
        ):
            return None
        return replace(plan, now_ns=snapshot.now_ns)

    def _is_unchanged(self, snapshot: Snapshot) -> bool:
        """Whether nothing that the cycle has read has changed."""
        if self._change_tokens.is_same(snapshot.change_tokens):
            return True
        if self._inspected_running or not self._change_tokens.same_except_running(snapshot.change_tokens):
            return False
        return self._running_sums == RunningSums(snapshot.columns, snapshot.foreign_usage, snapshot.group_index)

    def store(
        self,
        snapshot: Snapshot,
        policy: Policy,
        plan: Plan,
        valid_until_ns: int | None,
        running_sums: RunningSums | None = None,
    ) -> None:
        """Remember a plan that no rule about time contradicts before `until_ns`; `figures` are those before it."""
        if (
            plan.binds
            or plan.evictions
            or plan.ungates
            or any(item.gpu_groups for item in plan.nominations)
            or _marks_new_stale_gang(plan)
        ):
            self._plan = None
            return
        self._change_tokens, self._policy, self._plan, self._valid_until_ns = (
            snapshot.change_tokens,
            policy,
            plan,
            valid_until_ns,
        )
        self._running_sums, self._inspected_running = running_sums, snapshot.inspected_running or running_sums is None


def _marks_new_stale_gang(plan: Plan) -> bool:
    return any(stale.since_ns == plan.now_ns for stale in plan.stale)
