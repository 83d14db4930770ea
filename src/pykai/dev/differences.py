"""Why an outcome differs from a recorded one, and whether it is as good.

For a case that records how many pods of each group run in the end: both allocations queue by queue, both dominant
shares, the reason and rule for each waiting group of ours, whether ours allocates as many GPUs, whether it is as fair,
and whether it is stable.

As fair: going through the leaf queues from the one worst served, ours is never served worse at the first place where
the two differ (max-min fairness over dominant shares, where having more than the fair share does not count); and no
queue is starved.  The first alone would not see two queues that change places: one that deserves much and gets nothing,
and one that deserves little and has more.  A queue is starved if it has less of a resource than its fair share and than
in the recorded outcome, while another has more of it than its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf

from pykai.api.keys import split_key
from pykai.core.model.queuetree import CPU, GPU, MEMORY, RESOURCES, QueueTree
from pykai.core.model.status import TaskStatus
from pykai.core.opencycle import Cycle
from pykai.core.plan import build_plan
from pykai.core.report.decisions import Unscheduled
from pykai.core.report.sentences import group_text, no_eviction_text
from pykai.dev.cases import Case
from pykai.dev.conformance import CaseRun

#: Cycles that must pass without an eviction for an outcome to count as settled.
_STABLE_CYCLES = 10

#: Rule of a refusal -> its statement.
_STATEMENTS = {
    "fair_share": "queues:Q-260",
    "quota": "queues:Q-261",
    "limit": "queues:Q-200",
    "too_little_free": "cycle:14",
    "not_preemptible": "cycle:14",
    "no_lower_priority": "queues:Q-285",
    "alike": "cycle:SIG-3",
    "hopeless": "cycle:PERF-7",
    "generators_exhausted": "queues:Q-270 and Q-272",
    "deadline_exhausted": "cycle:SOL-6",
    "not_attempted": "cycle:SOL-6",
}

OutcomeAmounts = tuple[float, float, float]

#: amounts that sums of fractions may differ by
_SLACK = 1e-6


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two outcomes of one case."""

    case: str
    lines: tuple[str, ...]
    as_fair: bool
    as_many_gpus: bool
    #: ours is stable
    stable: bool

    @property
    def as_good(self) -> bool:
        """Whether our outcome is as good as the recorded one."""
        return self.as_fair and self.as_many_gpus and self.stable


def compare_outcomes(case: Case) -> Comparison:
    """Run a case and compare its outcome with the recorded one."""
    run = CaseRun(case)
    last = case.cycles.last_cycle if case.cycles is not None else 1
    cycle = run.open()
    shares = cycle.state.ledger.fair_share
    for _ in range(last):
        cycle = run.step()
    evicted = 0
    after = cycle
    for _ in range(_STABLE_CYCLES):
        after = run.step()
        evicted += len(after.decisions.evictions)
    recorded: Mapping[str, int] = case.expect.get("runningPods") or {}
    ours = _running_pods(cycle)
    snapshot = cycle.context.snapshot
    held = _by_queue(cycle, ours), _by_queue(cycle, recorded)
    tree = snapshot.tree
    lines = [f"{case.id}:"]
    for name in sorted({*ours, *recorded}):
        if ours.get(name, 0) != recorded.get(name, 0):
            lines.append(f"  group {name}: {ours.get(name, 0)} pods run, recorded {recorded.get(name, 0)}")
    served: tuple[list[float], list[float]] = ([], [])
    for queue, name in enumerate(tree.names):
        dominant = [_dominant_share(amounts[queue], shares[queue]) for amounts in held]
        if not tree.children[queue]:
            for found, share in zip(served, dominant, strict=True):
                found.append(min(share, 1.0))
        if held[0][queue] != held[1][queue]:
            lines.append(
                f"  queue {name}: {_format_amounts(held[0][queue])}, recorded {_format_amounts(held[1][queue])}; "
                f"fair share {_format_amounts(tuple(shares[queue]))}; "
                f"dominant share {dominant[0]:.3f}, recorded {dominant[1]:.3f}"
            )
    gpus = [sum(amounts[root][2] for root in tree.roots) / 100.0 for amounts in held]
    lines.append(f"  GPUs allocated: {gpus[0]:g}, recorded {gpus[1]:g}")
    lines.extend(_waiting_reasons(cycle, ours, recorded))
    starved = list(_starved_queues(tree, shares, held))
    lines.extend(starved)
    as_fair = sorted(served[0]) >= sorted(served[1]) and not starved
    stable = evicted == 0 and _running_pods(after) == ours
    lines.append(f"  worst served first: {_format_shares(served[0])}, recorded {_format_shares(served[1])}")
    lines.append(
        f"  ours is {'as fair' if as_fair else 'LESS FAIR'}, allocates "
        f"{'no fewer' if gpus[0] >= gpus[1] else 'FEWER'} GPUs and "
        f"{'stays as it is' if stable else 'CHANGES'} for {_STABLE_CYCLES} more cycles"
    )
    return Comparison(case.id, tuple(lines), as_fair, gpus[0] >= gpus[1], stable)


def _starved_queues(
    tree: QueueTree, shares: list[list[float]], held: tuple[list[OutcomeAmounts], list[OutcomeAmounts]]
) -> Iterator[str]:
    """Leaf queues that lack what they deserve and have where it was recorded, while others have more than they deserve.

    As in a reclaim, those two queues are compared, too, in which the paths to both leaves part (queues:Q-270).
    """
    ours, recorded = held
    leaves = [queue for queue in range(len(tree.names)) if not tree.children[queue]]
    for resource, scale, unit in ((GPU, 100.0, "GPUs"), (CPU, 1000.0, "cores"), (MEMORY, 1e9, "GB")):
        above = {queue for queue, have in enumerate(ours) if have[resource] > shares[queue][resource] + _SLACK}
        for queue in leaves:
            have, share = ours[queue][resource], shares[queue][resource]
            if have + _SLACK >= min(share, recorded[queue][resource]):
                continue
            others = [leaf for leaf in leaves if leaf in above and tree.diverging_ancestors(queue, leaf)[1] in above]
            if others:
                yield (
                    f"  queue {tree.names[queue]} is BELOW its fair share of {share / scale:g} {unit} with "
                    f"{have / scale:g}, recorded {recorded[queue][resource] / scale:g}; above theirs: "
                    f"{', '.join(tree.names[other] for other in others)}"
                )


def _format_shares(shares: list[float]) -> str:
    return " ".join(f"{share:.3f}" for share in sorted(shares))


def _format_amounts(amounts: tuple[float, ...]) -> str:
    cpu, memory, gpu = amounts
    return f"{gpu / 100:g} GPUs, {cpu / 1000:g} cores, {memory / 1e9:g} GB"


def _running_pods(cycle: Cycle) -> dict[str, int]:
    """Running pods by group once the decisions of the cycle are carried out."""
    counts: dict[str, int] = {}
    for key, entry in cycle.context.snapshot.group_entries.items():
        _, name = split_key(key)
        counts.setdefault(name, 0)
        for task in entry.tasks.values():
            counts[name] += cycle.state.status_of(task) in (TaskStatus.RUNNING, TaskStatus.BOUND, TaskStatus.BINDING)
    return counts


def _by_queue(cycle: Cycle, running: Mapping[str, int]) -> list[OutcomeAmounts]:
    """Allocation by queue for these numbers of running pods; pods of a group count in task order."""
    tree = cycle.context.snapshot.tree
    sums = [[0.0] * RESOURCES for _ in tree.names]
    for key, entry in cycle.context.snapshot.group_entries.items():
        group = entry.group
        if group is None or group.queue not in tree.rows:
            continue
        tasks = sorted(entry.tasks.values(), key=cycle.gangs.task_order)
        for task in tasks[: running.get(split_key(key)[1], 0)]:
            row = cycle.context.snapshot.nodes.rows.get(task.node, 0)
            amounts = cycle.context.snapshot.amounts_on(task.shape, row)
            for queue in tree.chains[tree.rows[group.queue]]:
                for resource in range(RESOURCES):
                    sums[queue][resource] += amounts[resource]
    return [(row[0], row[1], row[2]) for row in sums]


def _dominant_share(amounts: OutcomeAmounts, share: list[float]) -> float:
    """The largest used fraction of a fair share; any use of a zero share is infinite."""
    share_used = 0.0
    for have, fair in zip(amounts, share, strict=True):
        if fair == inf:
            continue
        share_used = max(share_used, have / fair if fair > 0 else (1.0 if have > 0 else 0.0))
    return share_used


def _waiting_reasons(cycle: Cycle, ours: Mapping[str, int], recorded: Mapping[str, int]) -> Iterator[str]:
    """Reasons of the groups that run more pods in the recorded outcome."""
    if all(count <= ours.get(name, 0) for name, count in recorded.items()):
        yield (
            "  no group runs more pods in the recorded outcome: it was taken in the middle of evictions "
            "that help no group (cycle:SOL-12, SOL-15)"
        )
    waiting: dict[str, Unscheduled] = {item.group: item for item in build_plan(cycle).unscheduled}
    for name in sorted(recorded):
        if ours.get(name, 0) >= recorded[name] or name not in waiting:
            continue
        record = waiting[name]
        yield f"  group {name} waits: {group_text(record).splitlines()[0]}"
        for verdict in record.verdicts:
            yield f"    {_STATEMENTS.get(verdict.rule, '')} {no_eviction_text(verdict)}"
