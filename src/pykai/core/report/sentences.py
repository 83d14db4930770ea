"""Reasons as sentences: the texts of cycle:17, cycle:12 (cycle:ALC-8) and queues:Q-208.

Everything here is a pure function of a record in `decisions.py`.  Texts are sorted, so the same situation always gives
the same sentence and conditions do not flap.
"""

from __future__ import annotations

from collections import Counter
from math import inf, isinf, trunc

from pykai.api import names
from pykai.api.duration import format_go_duration
from pykai.api.gpuvendors import is_gpu
from pykai.api.timestamp import format_timestamp
from pykai.core.model.axes import amount, is_mig
from pykai.core.report.decisions import (
    BadTopology,
    BrokenTree,
    DomainSearchStopped,
    DomainShort,
    FreeRoomOnly,
    FurtherDomains,
    NoDomain,
    NoEviction,
    NoPlace,
    NoQueue,
    NotLeafQueue,
    NotReady,
    NotSupported,
    OrphanPod,
    OverBudget,
    OverCapacity,
    Postponed,
    QueueAccessDenied,
    QueueFigures,
    Refusal,
    ResourceAmounts,
    StaleGang,
    StrayPod,
    Unscheduled,
    WithinDelay,
)

NO_NODES = "no nodes with enough resources were found"
UNABLE_TO_SCHEDULE_GROUP = "Unable to schedule podgroup"
UNABLE_TO_SCHEDULE_POD = "Unable to schedule pod"
_SEPARATOR = ". \n"

#: What the resources are called: (limit text, unit, quota text), and how many ledger units make one of them.
_RESOURCE_WORDS = {
    "CPU": ("CPU cores", "cores", "CPU cores", 1000.0),
    "Memory": ("memory", "GB", "GB memory", 1e9),
    "GPU": ("GPUs", "GPUs", "GPUs", 1.0),
}


def format_number(value: float) -> str:
    """At most three decimals, cut not rounded, without trailing zeros (queues:Q-209)."""
    if isinf(value):
        return "Unlimited"
    text = f"{value:.6f}"
    text = text[: len(text) - 3]
    return text.rstrip("0").rstrip(".")


def format_go_float(value: float) -> str:
    """A number as Go prints a float: no trailing zeros."""
    return str(trunc(value)) if value == trunc(value) and abs(value) < inf else repr(value)


def milli_text(milli: int) -> str:
    """A number of thousandths as Kubernetes writes it: `2` or `2500m`."""
    return f"{milli}m" if milli % 1000 else str(milli // 1000)


def amount_text(name: str, value: int) -> str:
    """An amount in the unit of its axis as a Kubernetes quantity."""
    return milli_text(value) if amount(name, "1") == 1000 else str(value)


def counted_reasons(counts: dict[str, int]) -> str:
    """Reasons with their counts, sorted as strings."""
    return _SEPARATOR.join(sorted(f"{count} {reason}" for reason, count in counts.items()))


def _base_text(refusal: NoPlace) -> str:
    return (refusal.base or NO_NODES).replace("{pod}", refusal.pod)


def task_text(refusal: NoPlace) -> str:
    """Why no node was found for a task (cycle:EXP-1)."""
    base = _base_text(refusal)
    if not refusal.nodes:
        return base
    return f"{base}: {counted_reasons(refusal.nodes)}.".replace("{pod}", refusal.pod)


def detailed_task_text(refusal: NoPlace) -> str:
    """The same node by node, if details were requested (cycle:EXP-4)."""
    base = _base_text(refusal)
    return f"\n{base}." + "".join(sorted(f"\n<{node}>: {text}." for node, text in refusal.details.items()))


def _no_place_text(refusal: NoPlace) -> str:
    why = detailed_task_text(refusal) if refusal.details else task_text(refusal)
    if refusal.form == "pod":
        return f"Resources were not found for pod {refusal.pod} due to: {why}"
    if refusal.form == "gang":
        return (
            f"Resources were found for {refusal.found} pods while {refusal.minimum} are required for gang scheduling. "
            f"Additional pods cannot be scheduled due to: {why}"
        )
    return (
        f"Resources were found for {refusal.found} pods from all sub-groups while sub-group {refusal.subgroup} "
        f"requires {refusal.minimum} pods for gang scheduling. "
        f"Additional pods cannot be scheduled in this sub-group due to: {why}"
    )


def _over_capacity_text(refusal: OverCapacity) -> str:
    _, unit, _, scale = _RESOURCE_WORDS[refusal.resource]
    text = _over_bound_text(refusal)
    for held, what in (
        (refusal.leaving, "still held by pods being deleted"),
        (refusal.reserved or 0.0, "reserved for pods that were admitted and wait for a node"),
    ):
        if held > 0:
            text = f"{text.removesuffix('.')}. {format_number(held / scale)} {unit} are {what}"
    return text


def _over_bound_text(refusal: OverCapacity) -> str:
    what, unit, quota_what, scale = _RESOURCE_WORDS[refusal.resource]
    bound, used = format_number(refusal.bound / scale), format_number(refusal.used / scale)
    requested = refusal.requested / scale
    if refusal.rule == "limit":
        return (
            f"{refusal.display_name} quota has reached the allowable limit of {what}. Limit is {bound} {unit}, "
            f"currently {used} {unit} allocated and workload requested {format_number(requested)} {unit}"
        )
    requested_text = format_go_float(requested) if refusal.resource == "GPU" else format_number(requested)
    return (
        f"Non-preemptible workload is over quota. "
        f"Workload requested {requested_text} {quota_what}, but {refusal.display_name} "
        f"quota is {bound} {unit}, while {used} {unit} are already allocated for non-preemptible pods. "
        "Use a preemptible workload to go over quota."
    )


def not_ready_text(refusals: tuple[NotReady, ...]) -> str:
    """What a group still waits for (cycle:EXP-10; workloads:PS-6; operations:E-25)."""
    text = "Job is not ready for scheduling."
    for missing in refusals:
        if missing.subgroup == names.DEFAULT_SUBGROUP:
            text += f" Waiting for {missing.minimum} pods, currently {missing.alive} exist, {missing.gated} are gated"
        else:
            text += (
                f" Waiting for {missing.minimum} pods for SubGroup {missing.subgroup}, "
                f"currently {missing.alive} exist, {missing.gated} are gated."
            )
    return text


def reason_of(refusal: Refusal) -> str:
    """The reason word of a refusal (cycle:EXP-6)."""
    match refusal:
        case OverCapacity(rule="limit"):
            return names.REASON_OVER_LIMIT
        case OverCapacity():
            return names.REASON_NON_PREEMPTIBLE_OVER_QUOTA
        case QueueAccessDenied():
            return names.REASON_QUEUE_ACCESS_DENIED
        case NoQueue() | NotLeafQueue():
            return names.REASON_QUEUE_DOES_NOT_EXIST
        case NotReady():
            return "NotReady"
        case WithinDelay():
            return names.REASON_PREEMPTION_DELAY
        case FreeRoomOnly():
            return names.REASON_BINDS_FAILED
        case OverBudget():
            return names.REASON_NOT_ENOUGH_RESOURCES
        case DomainShort() | FurtherDomains():
            return names.REASON_NOT_ENOUGH_RESOURCES
        case _:
            return names.REASON_POD_SCHEDULING_ERRORS


def refusal_text(refusal: Refusal) -> str:
    """One refusal as a sentence."""
    match refusal:
        case NoPlace():
            return _no_place_text(refusal)
        case OverCapacity():
            return _over_capacity_text(refusal)
        case NoQueue(queue=queue, fault=""):
            return f"Queue '{queue}' does not exist"
        case NoQueue(queue=queue, fault=fault):
            return f"Queue '{queue}' cannot be used: {fault}"
        case QueueAccessDenied():
            return access_denied_text(refusal)
        case NotLeafQueue(queue=queue):
            return f"Queue '{queue}' is not a leaf queue; workloads run in leaf queues only"
        case NotReady():
            return not_ready_text((refusal,))
        case BrokenTree(text=text):
            return f"The subgroups of the PodGroup are invalid: {text}"
        case StrayPod(pod=pod, subgroup=subgroup, group=group):
            return f'Pod {pod} references subgroup "{subgroup}", which does not exist in PodGroup {group}'
        case WithinDelay(until_ns=None):
            return "The priority class of the workload says preemptionPolicy Never; it may not trigger evictions"
        case WithinDelay(delay_ns=delay_ns, until_ns=until_ns):
            return (
                # KAI's sentence (queues:Q-323).
                f"Workload is within its preemption delay window ({format_go_duration(delay_ns)}) and may not trigger "
                f"evictions before {format_timestamp(until_ns or 0)}"
            )
        case OverBudget():
            return f"Workload may not evict others: {over_budget_text(refusal)}"
        case FreeRoomOnly(failures=failures, cause=cause):
            return (
                f"{failures} binds of the workload failed ({cause}), so it is placed on free resources only and may "
                f"not trigger evictions; a bind that succeeds, or a change of the PodGroup or the pod, ends this"
            )
        case BadTopology(text=text):
            return text
        case DomainShort():
            return _SEPARATOR.join(_shortage_lines(refusal, detailed=False))
        case FurtherDomains(level=level, count=count):
            return f"{count} more domains of level {level} are too small"
        case NoDomain():
            return _no_domain_text(refusal)
        case DomainSearchStopped(tried=tried):
            times = "1 attempt" if tried == 1 else f"{tried} attempts"
            return f"The search for a combination of domains ended after {times}; there may be one"
        case Postponed(namespace=namespace, units=units, allowed=allowed):
            return (
                f"Waits for its turn in one of the next cycles: the waiting pod groups of namespace {namespace} need "
                f"{units} units of work (terms of affinity, subgroups, names of resources, parts of GPUs), and while "
                f"other namespaces wait a cycle spends at most {allowed} on each"
            )
        case NotSupported(what=what):
            return f"This scheduler cannot place pods with {' and '.join(what)}"


def access_denied_text(denied: QueueAccessDenied) -> str:
    """Which namespace may not use which queue, why, and what to do."""
    lists = f"Queue '{denied.refused_by}'"
    if denied.refused_by != denied.queue:
        lists += f", which is above '{denied.queue}',"
    if denied.fault:
        why = f"{lists} is closed, because its annotation {denied.broken_annotation} cannot be read: {denied.fault}"
        return f"Namespace '{denied.namespace}' may not use queue '{denied.queue}'. {why}"
    return (
        f"Namespace '{denied.namespace}' may not use queue '{denied.queue}'. {lists} is open to other namespaces only "
        f"(annotations {names.ALLOWED_NAMESPACES_ANNOTATION}, {names.ALLOWED_NAMESPACE_SELECTOR_ANNOTATION}). "
        "Use another queue, or ask an administrator to allow the namespace there"
    )


def _subgroup_to_name(name: str) -> str:
    """A subgroup whose name belongs in the sentence; the group itself and its default subgroup need none."""
    return "" if name in ("", names.DEFAULT_SUBGROUP) else name


# KAI's sentences about domains (cycle:EXP-7; topo:T-41).
def _no_domain_text(refusal: NoDomain) -> str:
    required = f", requirement {refusal.level}" if refusal.level else ""
    text = f"topology {refusal.topology}{required} couldn't be satisfied for job <{refusal.group}>"
    if _subgroup_to_name(refusal.subgroup):
        text += f", subgroup {refusal.subgroup}"
    if refusal.where:
        where = "the cluster" if refusal.where == "root" else refusal.where
        if refusal.where_level != refusal.level and refusal.where_level:
            where += f" (level {refusal.where_level})"
        text += f": not enough resources in {where} to allocate the job"
    return text


def _shortage_words(name: str) -> tuple[str, float, str, str]:
    """What a short resource is called, how many axis units make one, and what there is not enough of: in short, and
    with figures (topo:T-22)."""
    if is_mig(name):
        return name, 1.0, "of mig profile", "of mig profile"
    if is_gpu(name):
        return "GPUs", 1.0, "resources", "resource"
    word, scale = {"cpu": ("CPU cores", 1000.0), "memory": ("memory", 1e9)}.get(name, (name, float(amount(name, "1"))))
    return word, scale, "resources", "resources"


def _shortage_lines(refusal: DomainShort, *, detailed: bool) -> list[str]:
    if not refusal.resources:
        return [f"node-group {refusal.domain} can allocate only {refusal.found} of {refusal.wanted} required pods"]
    lines = []
    for name, requested, free in refusal.resources:
        word, scale, short, long = _shortage_words(name)
        if detailed:
            figures = f"requested: {format_number(requested / scale)}, available: {format_number(free / scale)}"
            lines.append(f"{refusal.domain} didn't have enough {long}: {word}, {figures}")
        else:
            lines.append(f"node-group(s) didn't have enough {short}: {word}")
    return lines


def _plain_lines(refusal: Refusal) -> list[str]:
    return _shortage_lines(refusal, detailed=False) if isinstance(refusal, DomainShort) else [refusal_text(refusal)]


def _detailed_lines(refusal: Refusal) -> list[str]:
    """A refusal in the detailed form (topo:T-42)."""
    if not isinstance(refusal, DomainShort):
        return [refusal_text(refusal)]
    inside = f"subgroup {refusal.subgroup}: " if _subgroup_to_name(refusal.subgroup) else ""
    return [f"<{refusal.domain}>: {inside}{line}" for line in _shortage_lines(refusal, detailed=True)]


_NO_EVICTION_TEXTS = {
    "alike": "a workload like it, {other}, was tried and found nothing",
    "not_preemptible": "only preemptible workloads move others",
    "no_lower_priority": "nobody in queue {queue} has a lower priority",
    "hopeless": "even without everyone who may be evicted there would be too little room",
    "no_generator": "no plugin says how to choose victims",
    "generators_exhausted": "no fair set of victims makes enough room",
    "deadline_exhausted": "the search was ended by its budget",
    "not_attempted": "the budget of the action was used up before its turn",
    "plugin": "plugin {other} failed",
}


def over_budget_text(refusal: OverBudget) -> str:
    """Which disruption budget forbids evictions."""
    evictions = "1 more eviction" if refusal.left == 1 else f"{refusal.left} more evictions"
    more = f", and {refusal.others} more forbid it as well" if refusal.others else ""
    return f"PodDisruptionBudget {refusal.budget} allows only {evictions} of its pods{more}"


def no_eviction_text(reason: NoEviction) -> str:
    """Why an action evicted nothing for a workload."""
    if reason.rule in ("fair_share", "quota", "limit", "too_little_free") and reason.resource in _RESOURCE_WORDS:
        _, unit, _, scale = _RESOURCE_WORDS[reason.resource]
        would_have, bound = format_number(reason.would_have / scale), format_number(reason.bound / scale)
        if reason.rule == "fair_share":
            text = f"queue {reason.queue} would have {would_have} {unit}, more than its fair share of {bound} {unit}"
        elif reason.rule == "limit":
            text = f"queue {reason.queue} would have {would_have} {unit}, more than its limit of {bound} {unit}"
        elif reason.rule == "quota":
            text = (
                f"queue {reason.queue} would have {would_have} {unit} for workloads that cannot be taken back, "
                f"more than its quota of {bound} {unit}"
            )
        else:
            text = f"it asks for {would_have} {unit}, and only {bound} {unit} are free in the cluster"
    else:
        # A third-party plugin may have its own rules.
        text = _NO_EVICTION_TEXTS.get(reason.rule, reason.rule).format(other=reason.other, queue=reason.queue)
        if reason.other and reason.rule in ("generators_exhausted", "hopeless"):
            text = f"{text}: {reason.other}"
    return f"{reason.action}: {text}"


def stale_text(stale: StaleGang) -> str:
    """The event text of an incomplete gang (cycle:EXP-8, STL-6)."""
    text = f"Job is stale. {stale.active} pods are active, minMember is {stale.minimum}"
    for name, minimum, active in stale.subgroups:
        text += f", subGroup {name} minMember is {minimum} and {active} pods are active"
    return text


def queue_line(figures: QueueFigures) -> str:
    """What a queue has and may have, for the owners of victims (cycle:RCL-2; queues:Q-277)."""
    return (
        f"{figures.display_name} uses <{_amounts_text(figures.allocated)}> "
        f"with a quota of <{_amounts_text(figures.quota)}>, "
        f"fair-share of <{_amounts_text(figures.fair_share)}> and queue priority of <{figures.priority}>."
    )


def _amounts_text(figures: ResourceAmounts) -> str:
    cpu, memory, gpu = figures
    cores, gigabytes = format_number(cpu / 1000), format_number(memory / 1e9)
    return f"GPU: {format_number(gpu)}, CPU: {cores} (cores), memory: {gigabytes} (GB)"


def group_text(group: Unscheduled) -> str:
    """Why a group waits, in one text (cycle:EXP-5; topo:T-43)."""
    if not group.refusals:
        return UNABLE_TO_SCHEDULE_GROUP
    waiting = tuple(refusal for refusal in group.refusals if isinstance(refusal, NotReady))
    if waiting:
        return not_ready_text(waiting)
    head = reason_of(group.refusals[0]) if len(group.refusals) == 1 else UNABLE_TO_SCHEDULE_GROUP
    counts = Counter(line for refusal in group.refusals for line in _plain_lines(refusal))
    lines = sorted(f"{count} {text}" if count > 1 else text for text, count in counts.items())
    return f"{head}: {_SEPARATOR.join(lines)}."


def _resource_list(figures: ResourceAmounts) -> dict[str, str]:
    """Figures as quantities; unlimited ones are left out, GPUs keep their fractions (queues:9, Do better)."""
    cpu, memory, gpu = figures
    amounts = ((names.CPU, cpu, 1.0), (names.MEMORY, memory, 1000.0), (names.NVIDIA_GPU, gpu, 1000.0))
    return {name: milli_text(round(value * scale)) for name, value, scale in amounts if not isinf(value)}


def queue_details(refusal: OverCapacity, queue: QueueFigures) -> dict[str, object]:
    """The `details.queueDetails` of a refusal, given the figures of the queue that refused (queues:Q-207)."""
    non_preemptible_request: ResourceAmounts = (0.0, 0.0, 0.0) if refusal.preemptible else refusal.asked
    return {
        "name": refusal.queue,
        "queueRequestedResources": _resource_list(queue.request),
        "queueDeservedResources": _resource_list(queue.quota),
        "queueAllocatedResources": _resource_list(queue.allocated),
        "queueAllocatedNonPreemptibleResources": _resource_list(queue.allocated_non_preemptible),
        "queueResourceLimits": _resource_list(queue.limit),
        "podGroupRequestedResources": _resource_list(refusal.asked),
        "podGroupRequestedNonPreemptibleResources": _resource_list(non_preemptible_request),
    }


def detailed_group_text(group: Unscheduled) -> str:
    """The same in the detailed form (cycle:EXP-5): the reason, then one line per refusal."""
    reasons = {reason_of(refusal) for refusal in group.refusals}
    head = reasons.pop() if len(group.refusals) == 1 else UNABLE_TO_SCHEDULE_GROUP
    lines = sorted({line for refusal in group.refusals for line in _detailed_lines(refusal)})
    return f"\n{head}." + "".join(f"\n{line}." for line in lines)


def orphan_text(orphan: OrphanPod) -> str:
    """Why a pod without a group waits."""
    if orphan.group:
        return f"Pod {orphan.namespace}/{orphan.pod} belongs to PodGroup {orphan.group}, which does not exist (yet)"
    return (
        f"Pod {orphan.namespace}/{orphan.pod} has no annotation {names.POD_GROUP_ANNOTATION}; "
        "the pod grouper has not put it into a PodGroup (yet)"
    )
