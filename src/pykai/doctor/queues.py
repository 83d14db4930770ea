"""Queues: the tree, amounts that nothing can use, and what names a queue that is not there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pykai.api import names
from pykai.api.scheduling import Queue, QueueResource
from pykai.doctor.facts import NAMESPACES, NODES, POD_GROUPS, QUEUES, Facts
from pykai.doctor.findings import Finding, Severity, counted, listed
from pykai.doctor.nodes import gpus_of

_UNLIMITED: Final = names.UNLIMITED


def tree(facts: Facts) -> Iterator[Finding]:
    """Queues whose parent is missing, or that are their own ancestor: nothing runs in them."""
    queues = {each.metadata.name: each for each in facts.all(QUEUES)}
    for name, queue in sorted(queues.items()):
        parent = queue.spec.parent_queue
        if parent and parent not in queues:
            what = f"Its parent {parent} does not exist, so nothing runs in it."
            fix = f"Create {parent}, or name another."
            yield Finding(Severity.ERROR, "queue-parent-missing", f"Queue {name}", what, fix)
    on_cycles = {name for name in queues if _is_own_ancestor(name, queues)}
    if on_cycles:
        what = "These queues are their own ancestors, so nothing runs in them."
        fix = "Remove spec.parentQueue of one of them."
        figure = counted(len(on_cycles), "queue")
        yield Finding(Severity.ERROR, "queue-cycle", f"Queue {listed(on_cycles)}", what, fix, figure)


def _is_own_ancestor(name: str, queues: Mapping[str, Queue]) -> bool:
    seen: set[str] = set()
    above = queues[name].spec.parent_queue
    while above in queues and above not in seen:
        if above == name:
            return True
        seen.add(above)
        above = queues[above].spec.parent_queue
    return False


def amounts(facts: Facts) -> Iterator[Finding]:
    """Leaf queues with a limit of nothing, without a quota, and quotas beyond the GPUs that there are."""
    queues = facts.all(QUEUES)
    parents = {each.spec.parent_queue for each in queues}
    leaves = [each for each in queues if each.metadata.name not in parents]
    closed = {each.metadata.name for each in leaves if _is_closed(each)}
    free = {each.metadata.name for each in leaves if gpu(each).quota == 0} - closed
    if closed:
        what = "Queues with a limit of 0 for CPU or memory run nothing; absent amounts are 0, and -1 is unlimited."
        fix = "Set spec.resources.*.limit."
        figure = counted(len(closed), "queue")
        yield Finding(Severity.WARNING, "queue-closed", f"Queue {listed(closed)}", what, fix, figure)
    if free:
        what = "Queues without a GPU quota: others may reclaim what runs in them, and nothing non-preemptible starts."
        fix = "Set spec.resources.gpu.quota where work shall be safe."
        figure = counted(len(free), "queue")
        yield Finding(Severity.INFO, "queue-without-quota", f"Queue {listed(free)}", what, fix, figure)
    for pool, offered in _gpus_by_pool(facts).items():
        roots = [each for each in queues if not each.spec.parent_queue and _pool(each.metadata.labels, facts) == pool]
        promised = sum(max(0.0, gpu(each).quota) for each in roots)
        if promised > offered:
            what = f"The quotas of the top queues of {_described(pool)} are more than its GPUs: not all can be kept."
            fix = "Lower quotas, or add nodes."
            figure = f"{promised:g} promised, {offered} there"
            where = f"Queue {listed(each.metadata.name for each in roots if gpu(each).quota > 0)}"
            yield Finding(Severity.WARNING, "quota-over-capacity", where, what, fix, figure)


def gpu(queue: Queue) -> QueueResource:
    """The GPU amounts of a queue."""
    return queue.spec.resources.gpu if queue.spec.resources is not None else QueueResource()


def _is_closed(queue: Queue) -> bool:
    given = queue.spec.resources
    return given is None or given.cpu.limit == 0 or given.memory.limit == 0


def unusable_gpus(facts: Facts) -> Iterator[Finding]:
    """GPUs of a node pool beyond what the limits of its queues allow."""
    for pool, offered in sorted(_gpus_by_pool(facts).items()):
        own = [each for each in facts.all(QUEUES) if _pool(each.metadata.labels, facts) == pool]
        usable = _usable(own, offered)
        if usable >= offered:
            continue
        what = f"The limits of the queues of {_described(pool)} leave {offered - usable:g} GPUs to none of them."
        fix = "Raise spec.resources.gpu.limit of queues, or add a queue."
        if not own:
            label = f" with the label {facts.settings.node_pool_label}={pool}" if pool else ""
            what, fix = f"No queue belongs to {_described(pool)}, so no pod gets its GPUs.", f"Create a queue{label}."
        figure = f"{usable:g} of {offered} usable"
        yield Finding(Severity.WARNING, "gpus-without-queue", f"node pool {pool or '(none)'}", what, fix, figure)


def _usable(queues: Sequence[Queue], offered: int) -> float:
    """How many GPUs the queues of a pool may use together: at each level, what the limits of all above allow."""
    children: dict[str, list[Queue]] = {}
    for each in queues:
        children.setdefault(each.spec.parent_queue, []).append(each)
    # Parents before children; queues on a cycle have no root above them and never come.
    ordered = list(children.get("", ()))
    for each in ordered:
        ordered += children.get(each.metadata.name, ())
    reach: dict[str, float] = {}
    for each in reversed(ordered):
        limit = gpu(each).limit
        allowed = offered if limit == _UNLIMITED else min(offered, max(0.0, limit))
        below = children.get(each.metadata.name)
        reach[each.metadata.name] = min(allowed, sum(reach[one.metadata.name] for one in below)) if below else allowed
    return min(offered, sum(reach[each.metadata.name] for each in children.get("", ())))


def _gpus_by_pool(facts: Facts) -> dict[str, int]:
    found: Counter[str] = Counter()
    for node in facts.all(NODES):
        found[_pool(node.metadata.labels, facts)] += gpus_of(node)
    return {pool: gpus for pool, gpus in found.items() if gpus}


def _pool(labels: Mapping[str, str], facts: Facts) -> str:
    return labels.get(facts.settings.node_pool_label, "")


def _described(pool: str) -> str:
    return f"node pool {pool}" if pool else "the default node pool"


def homeless(facts: Facts) -> Iterator[Finding]:
    """Groups and namespaces whose queue is missing or closed to them."""
    there = {each.metadata.name for each in facts.all(QUEUES)}
    lost: Counter[tuple[str, str]] = Counter()
    denied: Counter[tuple[str, str]] = Counter()
    for group in facts.all(POD_GROUPS):
        key = (group.metadata.namespace, group.spec.queue)
        if group.spec.queue not in there:
            lost[key] += 1
        elif any(
            reason.reason == names.REASON_QUEUE_ACCESS_DENIED
            for condition in group.status.scheduling_conditions
            for reason in condition.reasons
        ):
            denied[key] += 1
    for (namespace, queue), number in sorted(lost.items()):
        what = f"Its PodGroups name the queue {queue or '(none)'}, which does not exist: they wait for good."
        fix = f"Create the queue, or label the workloads with {facts.settings.queue_label}."
        figure = counted(number, "PodGroup")
        yield Finding(Severity.ERROR, "group-queue-missing", f"Namespace {namespace}", what, fix, figure)
    for (namespace, queue), number in sorted(denied.items()):
        what = f"It may not use the queue {queue}, so its PodGroups wait."
        fix = f"Add it to {names.ALLOWED_NAMESPACES_ANNOTATION} of the queue, or use another queue."
        figure = counted(number, "PodGroup")
        yield Finding(Severity.WARNING, "queue-access", f"Namespace {namespace}", what, fix, figure)
    yield from _namespaces_without_queue(facts, there)


def _namespaces_without_queue(facts: Facts, there: set[str]) -> Iterator[Finding]:
    """Namespaces whose default queue is missing; without `default-queue` also those that name none."""
    silent = set()
    for namespace in facts.all(NAMESPACES):
        name = namespace.metadata.name
        wanted = namespace.metadata.annotations.get(names.DEFAULT_QUEUE_ANNOTATION)
        if wanted is None:
            silent.add(name)
        elif wanted not in there:
            what = f"Its default queue {wanted} does not exist: workloads without a queue wait for good."
            fix = f"Create the queue, or change the annotation {names.DEFAULT_QUEUE_ANNOTATION}."
            yield Finding(Severity.WARNING, "namespace-without-queue", f"Namespace {name}", what, fix)
    if silent and names.DEFAULT_QUEUE not in there:
        what = f"There is no {names.DEFAULT_QUEUE}: workloads that name no queue wait for good in these namespaces."
        fix = f"Create {names.DEFAULT_QUEUE}, or annotate the namespaces with {names.DEFAULT_QUEUE_ANNOTATION}."
        figure = counted(len(silent), "namespace")
        yield Finding(Severity.INFO, "namespace-without-queue", f"Namespace {listed(silent)}", what, fix, figure)
