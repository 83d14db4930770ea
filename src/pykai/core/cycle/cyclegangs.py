"""The gangs of one cycle: made once, in order, and the requests of their next tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from pykai.core import caching
from pykai.core.cluster.groupindex import GroupEntry
from pykai.core.cycle.context import CycleContext
from pykai.core.cycle.gangs import Batch, Gang, TaskKey
from pykai.core.cycle.queueranks import KeptRanks, QueueRanks
from pykai.core.cycle.queuewalk import GangLine, QueueWalk, WalkStart
from pykai.core.cycle.reuse import ReusableState
from pykai.core.cycle.state import State
from pykai.core.model.groups import Group
from pykai.core.model.protected import protected_tasks
from pykai.core.model.queuetree import QueueAmounts
from pykai.core.model.shapes import GpuKind
from pykai.core.model.vectors import Vectors
from pykai.core.queueing.allowance import GroupSelection, select_groups


class CycleGangs:
    """Groups as gangs; those that an earlier cycle has left unchanged are reused."""

    __slots__ = ("_context", "_gangs", "_selection", "_state", "_waiting", "reuse", "task_order")

    def __init__(self, context: CycleContext, state: State, reuse: ReusableState) -> None:
        self._context = context
        self._state = state
        #: reusable results of an earlier cycle
        self.reuse = reuse
        self._gangs: dict[str, Gang] = {}
        self._waiting: list[Gang] | None = None
        self._selection: GroupSelection | None = None
        #: sort key of tasks: the plugins' keys, then age, then uid (cycle:8.5)
        self.task_order: TaskKey = context.rules.task_order

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
        snapshot = self._context.snapshot
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

    def unchanged_waiting(self) -> dict[str, Gang]:
        """Gangs that wait and are unchanged since the cycle began."""
        return {gang.key: gang for gang in self._waiting or () if not gang.touched}

    def inspected(self) -> Iterable[str]:
        """Keys of the gangs made in this cycle; no other gang can have changed."""
        return self._gangs

    @property
    def selection(self) -> GroupSelection:
        """Which of the waiting groups take part."""
        if self._selection is None:
            policy = self._context.policy
            self._selection = select_groups(
                self._context.snapshot, policy.namespace_allowance, policy.resume, policy.nominated_groups
            )
        return self._selection

    def waiting(self) -> list[Gang]:
        """Gangs that had a task to place, or one held back by gates, when the cycle began; in order.

        Those that `allowance` defers are not among them.
        """
        if self._waiting is None:
            gangs = [self.gang(entry) for entry in self.selection.entries]
            self._waiting = sorted(gangs, key=self.order_key_of)
        return self._waiting

    def placed(self) -> list[Gang]:
        """Gangs with a task that the cycle has placed or evicted, in the order of their first ones."""
        running = self._context.snapshot.read_running()
        keys = dict.fromkeys(running.tasks[key].group_key for key in self._state.placements)
        return [self.gang(running.groups[key]) for key in keys]

    def compute_order_key(self, gang: Gang) -> tuple[object, ...]:
        """Sort key of gangs in a leaf queue: the plugins' keys, then age, then name (cycle:8.3; queues:Q-86)."""
        group = gang.group
        group_key = self._context.rules.group_key
        if group_key is None:
            return (group.creation_ns, group.name, group.namespace)
        return (group_key(gang), group.creation_ns, group.name, group.namespace)

    def order_key_of(self, gang: Gang) -> tuple[object, ...]:
        """`compute_order_key` of a gang now; recomputed after a task of it was placed or evicted."""
        if gang.order_key is not None:
            return gang.order_key
        order_key = self.compute_order_key(gang)
        if caching.enabled:
            gang.order_key = order_key
        return order_key

    def queue_walk(
        self,
        lines: Mapping[int, GangLine],
        start: WalkStart | None = None,
        *,
        version: Callable[[], int] | None = None,
    ) -> QueueWalk:
        """The fair order over lines of gangs; `version` names the figures of queues, if not that of the state."""
        state, rules = self._state, self._context.rules
        return QueueWalk(
            state.snapshot.tree,
            lines,
            queue_key=rules.queue_key_in(state),
            beats=rules.queue_tie_in(state),
            version=version or (lambda: state.version),
            start=start,
        )

    def kept_ranks(self) -> KeptRanks | None:
        """Ranks of queues by what they request, to be kept; None if keys depend on more than figures."""
        state, rules = self._state, self._context.rules
        if not rules.keeps_ranks(rules.queue_key):
            return None
        key = rules.queue_key_in(state)
        assert key is not None
        ranks = QueueRanks(state.snapshot.tree, key, rules.queue_tie_in(state))
        return KeptRanks(state.snapshot.tree, ranks, state.ledger.allocated)

    def next_tasks(self, gang: Gang) -> list[Batch]:
        """Which tasks of the gang to place next."""
        return gang.select_tasks(self._state.is_unplaced, self._context.rules.subgroup_key)

    def least_amounts(self, gang: Gang) -> QueueAmounts:
        """What the next tasks request of their queue, gpu-memory converted by the largest GPU: the optimistic sum."""
        return self._next_task_amounts(gang, self._context.largest_gpu_mib)

    def requested_amounts(self, gang: Gang) -> QueueAmounts:
        """What the next tasks of a gang request of their queue, gpu-memory converted pessimistically (queues:Q-230,
        Q-262).
        """
        return self._next_task_amounts(gang, self._context.smallest_gpu_mib)

    def _next_task_amounts(self, gang: Gang, gpu_mib: int) -> QueueAmounts:
        """What the next tasks of a gang request of their queue; `gpu_mib` converts gpu-memory (queues:Q-202, Q-230).

        Statements: cycle:ALC-9.
        """
        amounts = gang.requested_by_gpu_mib.get(gpu_mib)
        if amounts is None:
            vectors = self._context.snapshot.vectors
            amounts = total_amounts(vectors, self.next_tasks(gang), gpu_mib)
            if caching.enabled:
                gang.requested_by_gpu_mib[gpu_mib] = amounts
        return amounts


def total_amounts(vectors: Vectors, batches: list[Batch], gpu_mib: int) -> QueueAmounts:
    """What tasks request of their queue; `gpu_mib` converts gpu-memory."""
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
