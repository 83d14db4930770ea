"""minruntime: work that has just started is protected for a while (queues:12)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from pykai.core.caching import Cache
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.gangs import Gang
from pykai.core.cycle.state import State
from pykai.core.hooks import EvictionProposal, Hooks
from pykai.core.model.queuetree import QueueAmounts, QueueTree
from pykai.core.plugins.arguments import ArgumentReader, read_duration_ns, read_one_of

LCA, QUEUE = "lca", "queue"


@dataclass(frozen=True, slots=True)
class MinRuntime:
    """How long work runs before it may be preempted or reclaimed, nanoseconds (cycle:RCL-4)."""

    default_preempt_ns: int = 0
    default_reclaim_ns: int = 0
    #: which reclaim time counts: `lca` that of the queue below the common ancestor, `queue` that of the victim's own
    resolve: str = LCA

    ARGUMENTS: ClassVar[Mapping[str, tuple[str, ArgumentReader]]] = {
        "defaultPreemptMinRuntime": ("default_preempt_ns", read_duration_ns),
        "defaultReclaimMinRuntime": ("default_reclaim_ns", read_duration_ns),
        "reclaimResolveMethod": ("resolve", read_one_of(LCA, QUEUE)),
    }

    def longest_ns(self, tree: QueueTree) -> int:
        """The longest protected time; 0 when nothing is protected, and start times are not needed."""
        spans = (*tree.preempt_min_runtime_ns, *tree.reclaim_min_runtime_ns)
        return max(self.default_preempt_ns, self.default_reclaim_ns, *(span for span in spans if span is not None))

    def prepare(self, snapshot: Snapshot) -> Hooks:
        """Filters and gates with the times resolved once per queue, or pair of queues (queues:Q-310)."""
        tree = snapshot.tree
        if not self.longest_ns(tree):
            return Hooks()
        preempt: Cache[int, int] = Cache()
        reclaim: Cache[tuple[int, int], int] = Cache()

        def preempt_ns(gang: Gang, victim: Gang) -> int:
            span = preempt.get(victim.queue)
            if span is None:
                span = preempt.store(victim.queue, preempt_runtime(tree, victim.queue, self.default_preempt_ns))
            return span

        def reclaim_ns(gang: Gang, victim: Gang) -> int:
            pair = (gang.queue, victim.queue) if self.resolve == LCA else (-1, victim.queue)
            span = reclaim.get(pair)
            if span is None:
                span = reclaim.store(pair, reclaim_runtime(tree, *pair, self.resolve, self.default_reclaim_ns))
            return span

        return Hooks(
            preempt_filter=partial(_filter, preempt_ns),
            reclaim_filter=partial(_filter, reclaim_ns),
            preempt_gate=partial(_gate, preempt_ns),
            reclaim_gate=partial(_gate, reclaim_ns),
        )


# 0 is a value, not absent (queues:Q-305).
def _nearest(spans: list[int | None], chain: tuple[int, ...], default_ns: int) -> int:
    return next((span for queue in chain if (span := spans[queue]) is not None), default_ns)


def preempt_runtime(tree: QueueTree, victim: int, default_ns: int) -> int:
    """The value of the nearest queue that has one, from the victim's upward (queues:Q-302)."""
    return _nearest(tree.preempt_min_runtime_ns, tree.chains[victim], default_ns)


def reclaim_runtime(tree: QueueTree, reclaimer: int, victim: int, method: str, default_ns: int) -> int:
    """The same for reclaim, by either method (queues:Q-303, Q-304)."""
    spans, chain = tree.reclaim_min_runtime_ns, tree.chains[victim]
    if method == QUEUE:
        return _nearest(spans, chain, default_ns)
    reclaimer_chain = tree.chains[reclaimer]
    if reclaimer_chain[-1] != chain[-1]:
        top = spans[chain[-1]]
        return default_ns if top is None else top
    common = next(position for position, queue in enumerate(chain) if queue in reclaimer_chain)
    return _nearest(spans, chain[max(0, common - 1) :], default_ns)


MinRuntimeOf = Callable[[Gang, Gang], int]


def _is_within_min_runtime(span: MinRuntimeOf, state: State, gang: Gang, victim: Gang) -> bool:
    """Whether a victim has not run long enough (queues:Q-301)."""
    start = victim.group.last_start_ns
    if start is None:
        return False
    length = span(gang, victim)
    return length > 0 and not state.passed(start + length)


def _filter(span: MinRuntimeOf, state: State, gang: Gang, required: QueueAmounts) -> Callable[[Gang], bool]:
    """Elastic victims pass, because they may shrink (queues:Q-306)."""
    return lambda victim: not _is_within_min_runtime(span, state, gang, victim) or victim.elastic


def _gate(span: MinRuntimeOf, state: State, proposal: EvictionProposal) -> str | None:
    """A protected elastic victim keeps its minimum (queues:Q-307)."""
    for victim, losses in proposal.losses:
        if not _is_within_min_runtime(span, state, proposal.gang, victim):
            continue
        for leaf in victim.leaves:
            lost = sum(loss.leaf is leaf for loss in losses)
            if lost and leaf.active_used - lost < leaf.minimum:
                return f"{victim.key} has not run for its minimum time yet"
    return None
