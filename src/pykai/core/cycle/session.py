"""What the actions of one cycle share: the state, the rules, the gangs, and what was decided so far."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from pykai.core.cluster.groupindex import GroupEntry
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.gangs import Batch, Gang, TaskKey
from pykai.core.cycle.reuse import ReusableState
from pykai.core.cycle.state import State
from pykai.core.hooks import ALL_NODES, Rules
from pykai.core.model.groups import Group
from pykai.core.model.problems import Problem
from pykai.core.model.protected import protected_tasks
from pykai.core.model.queuetree import QueueAmounts
from pykai.core.model.shapes import GpuKind
from pykai.core.placing.ranking import Rankings
from pykai.core.policy import Policy
from pykai.core.queueing.allowance import GroupSelection, select_groups
from pykai.core.queueing.queuewalk import GangLine, QueueWalk
from pykai.core.report.decisions import Bind, Evict, NoEviction, Nominate, OverCapacity, Refusal, StaleGang


class PlacementFailure(NamedTuple):
    """Where an attempt failed and why, without the names of the pods (see `placing/gang.py`)."""

    version: int
    batch: int
    position: int
    base: str
    nodes: dict[str, int]
    unresolvable: bool
    #: instead of all that: why no set of nodes was worth trying, without the name of the group
    refusals: tuple[Refusal, ...] = ()


class Session:
    """One cycle under way."""

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        rules: Rules,
        state: State,
        problems: list[Problem],
        reuse: ReusableState | None = None,
    ) -> None:
        self.snapshot = snapshot
        #: what went wrong in this cycle, besides what the snapshot says
        self.problems = problems
        self.policy = policy
        self.rules = rules
        self.state = state
        self.rankings = rankings = Rankings(rules)
        state.allowed_nodes = lambda state, ask: rankings.ranking_for(state, ask, ALL_NODES).allowed
        #: by task key
        self.binds: dict[str, Bind] = {}
        self.nominations: dict[str, Nominate] = {}
        #: group key -> why its next tasks may be promised a place, but not start
        self.start_refusals: dict[str, OverCapacity] = {}
        #: groups that start in this cycle
        self.started: dict[str, None] = {}
        self.evictions: dict[str, Evict] = {}
        self.stale: list[StaleGang] = []
        self.recovered: list[str] = []
        #: group key -> why it may not take anything back, or found nothing to take
        self.no_evictions: dict[str, list[NoEviction]] = {}
        #: searches that a budget ended
        self.stopped_searches: list[str] = []
        #: groups of which a task was evicted in this cycle
        self.evicted_groups: set[str] = set()
        #: what depends on the cycle alone and is made on first use, by those who use it
        self.memo: dict[Hashable, Any] = {}
        #: group key -> why its pods wait
        self.refusals: dict[str, list[Refusal]] = {}
        #: equal attempts that failed, by what they ask for
        self.failures: dict[Hashable, PlacementFailure] = {}
        #: node refusals by kind of ask, valid for one version of the state
        self.node_refusal_counts: dict[Hashable, tuple[int, dict[str, int]]] = {}
        gpu_range = snapshot.gpu_memory_range()
        #: MiB per GPU by which gpu-memory requests are converted: cautious and hopeful (gpu:C-6); 0 = no conversion
        self.smallest_gpu_mib, self.largest_gpu_mib = gpu_range or (0, 0)
        self._gangs: dict[str, Gang] = {}
        #: what an earlier cycle has left
        self.reuse = reuse or ReusableState(snapshot, policy)
        self._waiting: list[Gang] | None = None
        self._selection: GroupSelection | None = None
        #: sort key of tasks: the plugins' keys, then age, then uid (cycle:8.5)
        self.task_order: TaskKey = rules.task_order

    def close(self) -> None:
        """Let go of what refers back to the session or its snapshot, so that all of a cycle is freed when it ends.

        Otherwise every cycle would wait for the garbage collector, which seldom comes (`scheduler/gccontrol.py`).

        Statements: cycle:CYC-7.
        """
        self.memo.clear()
        self.snapshot.memo.clear()
        self.state.allowed_nodes = None

    def record_refusal(self, gang: Gang, refusal: Refusal) -> None:
        """Record why a gang waits."""
        self.refusals.setdefault(gang.key, []).append(refusal)

    def record_no_eviction(self, gang: Gang, reason: NoEviction) -> None:
        """Record why a gang takes nothing back."""
        self.no_evictions.setdefault(gang.key, []).append(reason)

    def gang(self, entry: GroupEntry) -> Gang:
        """The gang of a group, with its tasks in order; made once per cycle."""
        group = entry.group
        assert group is not None
        gang = self._gangs.get(group.key)
        if gang is None:
            gang = self.reuse.gangs.get(group.key)
            if gang is None or gang.entry is not entry or gang.version != entry.version:
                gang = self._make_gang(group, entry)
            self._gangs[group.key] = gang
        return gang

    def _make_gang(self, group: Group, entry: GroupEntry) -> Gang:
        snapshot = self.snapshot
        tree = snapshot.tree
        queue = tree.rows.get(group.queue, -1)
        priority = snapshot.priority_of(group) if queue >= 0 else 0
        preemptible = queue >= 0 and snapshot.is_preemptible(group, priority)
        gang = Gang(group, entry, queue, tree.chains[queue] if queue >= 0 else (), priority, preemptible)
        gang.sort_tasks(self.task_order)
        if gang.semi_preemptible:
            gang.protected_keys = frozenset(
                task.key for task in protected_tasks(group, entry.tasks.values(), self.task_order)
            )
        return gang

    def unchanged_waiting_gangs(self) -> dict[str, Gang]:
        """Gangs that wait and are as the cycle found them."""
        return {gang.key: gang for gang in self._waiting or () if not gang.touched}

    def inspected_gangs(self) -> Iterable[str]:
        """Keys of the gangs that somebody has looked at in this cycle; the others nobody can have changed."""
        return self._gangs

    @property
    def group_selection(self) -> GroupSelection:
        """Which of the waiting groups take part."""
        if self._selection is None:
            policy = self.policy
            self._selection = select_groups(
                self.snapshot, policy.namespace_units, policy.resume, policy.nominated_groups
            )
        return self._selection

    def waiting_gangs(self) -> list[Gang]:
        """Gangs that had a task to place, or one held back by gates, when the cycle began; in order.

        Those that `turns` puts off are not among them.
        """
        if self._waiting is None:
            gangs = [self.gang(entry) for entry in self.group_selection.entries]
            self._waiting = sorted(gangs, key=self.order_key_of)
        return self._waiting

    def compute_order_key(self, gang: Gang) -> tuple[object, ...]:
        """Sort key of gangs in a leaf queue: the plugins' keys, then age, then name (cycle:8.3; queues:Q-86)."""
        group = gang.group
        if self.rules.group_key is None:
            return (group.creation_ns, group.name, group.namespace)
        return (self.rules.group_key(gang), group.creation_ns, group.name, group.namespace)

    def order_key_of(self, gang: Gang) -> tuple[object, ...]:
        """`compute_order_key` of a gang as it stands, worked out anew after a task of it was placed or taken back."""
        if gang.order_key is None:
            gang.order_key = self.compute_order_key(gang)
        return gang.order_key

    def queue_walk(self, lines: Mapping[int, GangLine], subtree_root: int = -1) -> QueueWalk:
        """The fair order over lines of gangs."""
        key = self.rules.queue_key
        return QueueWalk(
            self.snapshot.tree,
            lines,
            queue_key=partial(key, self.state) if key is not None else None,
            beats=self.rules.queue_tie_in(self.state),
            version=lambda: self.state.version,
            subtree_root=subtree_root,
        )

    def requested_amounts(self, gang: Gang) -> QueueAmounts:
        """What the next tasks of a gang ask of their queue, gpu-memory counted cautiously (queues:Q-230, Q-262)."""
        return self.next_task_amounts(gang, self.smallest_gpu_mib)

    def next_tasks(self, gang: Gang) -> list[Batch]:
        """Which tasks of the gang to place next."""
        return gang.select_tasks(self.state.is_unplaced, self.rules.subgroup_key)

    def next_task_amounts(self, gang: Gang, gpu_mib: int) -> QueueAmounts:
        """What the next tasks of a gang ask of their queue; `gpu_mib` converts gpu-memory (queues:Q-202, Q-230).

        Statements: cycle:ALC-9.
        """
        amounts = gang.requested_by_gpu_mib.get(gpu_mib)
        if amounts is None:
            amounts = gang.requested_by_gpu_mib[gpu_mib] = self.total_amounts(self.next_tasks(gang), gpu_mib)
        return amounts

    def total_amounts(self, batches: list[Batch], gpu_mib: int) -> QueueAmounts:
        """What tasks ask of their queue."""
        vectors = self.snapshot.vectors
        if len(batches) == 1 and len(batches[0].tasks) == 1 and not batches[0].tasks[0].shape.gpu.memory_mib:
            return vectors[batches[0].tasks[0].shape].amounts
        cpu = memory = gpu = 0.0
        for batch in batches:
            for task in batch.tasks:
                shape = task.shape
                vector = vectors[shape]
                cpu += vector.cpu
                memory += vector.memory
                gpu += shape.gpu_hundredths
                if shape.gpu.kind is GpuKind.MEMORY and gpu_mib:
                    gpu += 100.0 * shape.gpu.devices * shape.gpu.memory_mib / gpu_mib
        return (cpu, memory, gpu)
