"""Which kinds of clusters and plans property tests have drawn."""

from __future__ import annotations

from collections import Counter

from pykai.core.report.decisions import Plan
from tests.property.clustermodel import LAST_START, Model, minimums, satisfied

#: kind of cluster or of plan -> how many were drawn in this run
DRAWN: Counter[str] = Counter()
CLUSTER_KINDS = (
    "full",
    "over quota",
    "elastic",
    "fractional",
    "4 levels",
    "priorities",
    "preemptible",
    "non-preemptible",
    "semi-preemptible",
    "minSubGroup",
    "min run time",
    "preemption delay",
    "lost members",
    "host ports",
)
PLAN_KINDS = (
    "bound",
    "promised",
    "evicted",
    "moved",
    "reclaimed",
    "preempted",
    "consolidated",
    "stale",
)


def kinds_of(model: Model) -> set[str]:
    """What kind of cluster this is, in words of `CLUSTER_KINDS`."""
    rooms = [room for room in model.nodes_after((), with_leaving=True).values() if room.open]
    spent = model.spent(None, committed=False)
    found: set[str] = set()
    if any(room.gpus == 0 for room in rooms) and not any(room.gpus > 0 for room in rooms):
        found.add("full")
    if any(0 <= queue.quota[1] < spent[name][1] for name, queue in model.queues.items()):
        found.add("over quota")
    for group, raw in model.groups.items():
        spec, running = raw["spec"], model.active(group)
        counts = Counter(pod.leaf for pod in running)
        if len(model.chain(spec["queue"])) == 4:
            found.add("4 levels")
        if spec.get("preemptionDelay"):
            found.add("preemption delay")
        if not running:
            continue
        others = [other for other in model.groups if model.queue(other) == spec["queue"]]
        words = {
            "elastic": any(counts[leaf] > minimum for leaf, minimum in minimums(spec).items()),
            "fractional": any(pod.ask.shared for pod in running),
            "priorities": len({model.priority(other) for other in others}) > 1,
            "preemptible": model.preemptible(group),
            "semi-preemptible": spec.get("preemptibility") == "semi-preemptible",
            "non-preemptible": len(model.protected(group)) == len(running),
            "minSubGroup": "minSubGroup" in spec,
            "min run time": LAST_START in raw["metadata"].get("annotations", {})
            and any(model.queues[queue].timed for queue in model.chain(spec["queue"])),
            "lost members": not satisfied(spec, counts),
            "host ports": any(pod.ask.port for pod in running),
        }
        found |= {word for word, true in words.items() if true}
    return found


def outcomes_of(plan: Plan) -> set[str]:
    """What a plan does, in words of `PLAN_KINDS`."""
    actions = {item.action for item in plan.evictions}
    words = {
        "bound": bool(plan.binds),
        "promised": bool(plan.nominations),
        "evicted": bool(plan.evictions),
        "moved": any(item.moves_to for item in plan.evictions),
        "reclaimed": "reclaim" in actions,
        "preempted": "preempt" in actions,
        "consolidated": "consolidation" in actions,
        "stale": "stalegangeviction" in actions,
    }
    return {word for word, true in words.items() if true}
