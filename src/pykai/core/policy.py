"""How to schedule: which actions in which order, which plugins, and the settings of cycle:21 that affect decisions.

A policy is data; `pykai.scheduler.config.configuration` reads it from a configuration file and reports what is wrong
with the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pykai.api import names
from pykai.core.hooks import Plugin


@dataclass(frozen=True, slots=True)
class NamedPlugin:
    """A plugin with the name the configuration gave it."""

    name: str
    plugin: Plugin
    #: not built in: what it raises must not stop the cycle
    third_party: bool = False


#: Cost units for the waiting groups of a namespace in a cycle while others wait (`queueing/allowance.py`): some 80 ms.
NAMESPACE_ALLOWANCE = 16_000_000

#: Work units (placing or evicting a task once) per second of a search budget.
UNITS_PER_SECOND = 20_000


@dataclass(frozen=True, slots=True)
class SearchBudgets:
    """How much work the search for victims may cost (cycle:13.2), in work units; None = unlimited."""

    #: action -> units; absent = `default_action`
    actions: Mapping[str, int | None] = field(default_factory=dict)
    default_action: int | None = 300 * UNITS_PER_SECOND
    job: int | None = 240 * UNITS_PER_SECOND
    #: what every job gets, whatever the action has left
    job_minimum: int = 0
    #: way to choose victims -> units for all tries of a job; absent = `default_generator`
    generators: Mapping[str, int | None] = field(default_factory=lambda: {"NodeLocalGreedy": 30 * UNITS_PER_SECOND})
    default_generator: int | None = 120 * UNITS_PER_SECOND

    def action_units(self, action: str) -> int | None:
        """Units for one run of an action."""
        return self.actions.get(action, self.default_action)

    def generator_units(self, generator: str) -> int | None:
        """Units for one way of one job."""
        return self.generators.get(generator, self.default_generator)


class DisruptionMode(StrEnum):
    """What PodDisruptionBudgets mean for evictions."""

    #: victims within their budgets go first, among those of the same queue and priority
    PREFER = "prefer"
    #: no budget is exceeded
    STRICT = "strict"
    #: nothing
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything that shapes decisions besides the state of the cluster."""

    actions: tuple[str, ...]
    plugins: tuple[NamedPlugin, ...]
    #: action -> groups tried per leaf queue; absent = all (cycle:ORD-5)
    queue_depth: Mapping[str, int] = field(default_factory=dict)
    #: historical usage per queue name as fractions of the cluster: CPU, memory, GPU (queues:Q-335)
    usage: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    #: reuse the outcome of an equal attempt while nothing has changed; decisions are the same without
    reuse_failures: bool = True
    #: groups that consolidation may move for one job; 0 = off, -1 = any number (cycle:CON-1)
    max_consolidation_preemptees: int = 16
    #: victims that get another place do not count as reclaimed (cycle:RCL-3)
    allow_consolidating_reclaim: bool = True
    #: how long a gang may be incomplete; negative = forever (cycle:STL-3)
    staleness_grace_ns: int = names.STALENESS_GRACE_S * 1_000_000_000
    #: a priority class with preemptionPolicy Never keeps its groups from triggering evictions (cycle:POL-7)
    honour_preemption_policy: bool = False
    #: cost units that the waiting groups of one namespace get in a cycle while others wait; None = unlimited
    namespace_allowance: int | None = NAMESPACE_ALLOWANCE
    #: namespace -> the group with which its turn begins: `Plan.resume` of the last cycle
    resume: Mapping[str, str] = field(default_factory=dict)
    #: groups that were pipelined in the last cycle: they are not deferred
    nominated_groups: frozenset[str] = frozenset()
    #: groups to serve before all others, a step each, in order: `Plan.served_first` of the last cycle
    served_first: tuple[str, ...] = ()
    #: how long a pod that was admitted to its queue and waits is charged to it; None = queue admission gating is off
    #: (queues:Q-406)
    admission_reservation_ns: int | None = None
    search_budgets: SearchBudgets = field(default_factory=SearchBudgets)
    disruption_budgets: DisruptionMode = DisruptionMode.PREFER
    #: say node by node why a task does not fit (cycle:EXP-4)
    detailed_fit_errors: bool = False
    #: recompute every sum after every committed gang; for tests
    validate: bool = False

    @property
    def gates_queues(self) -> bool:
        """Whether queue admission gating is on (queues:Q-405)."""
        return self.admission_reservation_ns is not None
