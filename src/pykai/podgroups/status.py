"""The desired status of a PodGroup, and the patch that sets it (workloads:PC-7, PR-2, PR-3).

`resourcesStatus` holds the sums of the group, plus the GPUs of its claims; what non-preemptible groups hold is listed a
second time, for queues.  `conditions` say how far the group has come:

- `Ready`: as many pods exist as must start together, and no gate holds them;
- `Scheduled`: that many have a node;
- `Running`: that many run;
- `Valid`: False when the group cannot work or cannot be counted, with the reason; absent while nothing was ever wrong.

The tree of subgroups decides how many pods that is, as in the scheduler.

`state` and `pods` are the same in a word and two numbers, for `kubectl get` (status:group).  They change with the sums
and conditions only, so they cost no writes; how many pods run would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from pykai.api import names
from pykai.api.amounts import NanoAmounts, add_amounts, amounts_patch
from pykai.api.conditions import DesiredCondition, merge_conditions
from pykai.api.duration import DurationError, parse_duration
from pykai.api.scheduling import PodGroup
from pykai.api.unstructured import JsonObject
from pykai.core.cluster.claims.counting import GpuCount
from pykai.core.model.groups import Branch, Leaf, build_subgroup_tree
from pykai.podgroups.groupusage import GroupUsage, SubgroupCounts

#: What a claim counts for, None if there is no such claim.
ClaimGpus = Callable[[str], GpuCount | None]
_NANO = 10**9
_NO_PODS = SubgroupCounts()
_FINISHED = "Finished"
_MAX_LISTED = 3
#: scheduling gate -> what a pod behind it waits for
_AWAITED_BY_GATE: Final = {
    names.KUEUE_ADMISSION_GATE: "Kueue's quota",
    names.KUEUE_TOPOLOGY_GATE: "Kueue's choice of a topology domain",
}
#: reason of `Valid` for a group whose node pool has no scheduler
POOL_NOT_SERVED = "NodePoolNotServed"


@dataclass(frozen=True, slots=True)
class StatusInputs:
    """What other objects say about a group."""

    #: value of its priority class, or of the default one
    priority: int
    queue_exists: bool
    claim_gpus: ClaimGpus
    #: RFC 3339
    now: str
    #: why no scheduler serves the group, "" when one does or still may
    unserved: str = ""


def is_preemptible(group: PodGroup, priority: int) -> bool:
    """workloads:PR-3."""
    said = group.spec.preemptibility
    if said in (names.PREEMPTIBLE, names.NON_PREEMPTIBLE):
        return said == names.PREEMPTIBLE
    return priority < names.NON_PREEMPTIBLE_PRIORITY


def status_patch(group: PodGroup, tally: GroupUsage, inputs: StatusInputs) -> JsonObject | None:
    """A merge patch of the status subresource, None when nothing changes."""
    problems: list[str] = []
    requested = _with_claims(tally.requested, tally.claims_requested, inputs.claim_gpus, problems)
    allocated = _with_claims(tally.allocated, tally.claims_allocated, inputs.claim_gpus, [])
    non_preemptible = {} if is_preemptible(group, inputs.priority) else allocated
    existing = group.status.resources_status
    existing = existing if isinstance(existing, dict) else {}
    lists: JsonObject = {}
    for name, wanted in (
        ("requested", requested),
        ("allocated", allocated),
        ("allocatedNonPreemptible", non_preemptible),
    ):
        patch: JsonObject | None = amounts_patch(existing.get(name), wanted)
        if name in existing and not wanted and existing[name]:
            patch = None  # the whole list goes
        if patch or patch is None:
            lists[name] = patch
    desired = list(_conditions(group, tally, inputs, problems))
    conditions = merge_conditions(group.status.conditions, desired, inputs.now, with_transition_ids=True)
    status: JsonObject = {}
    if lists:
        status["resourcesStatus"] = lists
    if conditions is not None:
        status["conditions"] = conditions
    pods = {
        "total": sum(part.alive for part in tally.subgroups.values()),
        "placed": sum(part.scheduled for part in tally.subgroups.values()),
    }
    if pods != group.status.pods:
        status["pods"] = pods
    state = _state(desired, tally)
    if state != group.status.state:
        status["state"] = state
    return {"status": status} if status else None


def _state(conditions: list[DesiredCondition], tally: GroupUsage) -> str:
    """How far the group has come, in a word; a group without a minimum has come as far as its first pod."""
    holds = {each.type: each.is_true for each in conditions}
    parts = tally.subgroups.values()
    if not holds.get(names.CONDITION_VALID, True):
        return "Invalid"
    if not any(part.alive for part in parts):
        return _FINISHED if any(part.finished for part in parts) else "Incomplete"
    if holds[names.CONDITION_GROUP_RUNNING] and any(part.running for part in parts):
        return "Running"
    if holds[names.CONDITION_GROUP_SCHEDULED] and any(part.scheduled for part in parts):
        return "Starting"
    return "Waiting" if holds[names.CONDITION_GROUP_READY] else "Incomplete"


def _with_claims(amounts: NanoAmounts, users: dict[str, int], gpus_of: ClaimGpus, problems: list[str]) -> NanoAmounts:
    total = dict(amounts)
    for claim in users:
        count = gpus_of(claim)
        if count is None:
            problems.append(f"ResourceClaim {claim} does not exist")
        elif count.gpus:
            add_amounts(total, {count.device_class: count.gpus * _NANO})
    return total


def _conditions(
    group: PodGroup, tally: GroupUsage, inputs: StatusInputs, problems: list[str]
) -> Iterator[DesiredCondition]:
    root, tree_error = build_subgroup_tree(group)
    parts = tally.subgroups.values()
    ended = 0 if any(part.alive for part in parts) else sum(part.finished for part in parts)
    steps: tuple[tuple[str, str, str, str, Callable[[SubgroupCounts], int]], ...] = (
        (names.CONDITION_GROUP_READY, "EnoughPods", "NotEnoughPods", "exist ungated", lambda p: p.alive - p.gated),
        (names.CONDITION_GROUP_SCHEDULED, "EnoughBound", "NotEnoughBound", "have a node", lambda p: p.scheduled),
        (names.CONDITION_GROUP_RUNNING, "EnoughRunning", "NotEnoughRunning", "run", lambda p: p.running),
    )
    for type_, good, bad, verb, count in steps:
        missing: list[str] = []
        holds = _has_minimum(root, tally.subgroups, count, verb, missing)
        if ended and not holds:
            yield DesiredCondition(type_, False, _FINISHED, f"{ended} pods have ended")
        else:
            held = _held_by_gates(tally) if type_ == names.CONDITION_GROUP_READY else []
            message = "" if holds else "; ".join(_listed(texts) for texts in (missing, held) if texts)
            yield DesiredCondition(type_, holds, good if holds else bad, message)
    yield from _valid_condition(group, root, tree_error, tally, inputs, problems)


def _held_by_gates(tally: GroupUsage) -> list[str]:
    """How many pods each scheduling gate holds, most first, with what they wait for where it is known (kueue:gates)."""
    return [
        f"{pods} held by {gate}" + (f": waiting for {_AWAITED_BY_GATE[gate]}" if gate in _AWAITED_BY_GATE else "")
        for gate, pods in sorted(tally.gates.items(), key=lambda item: (-item[1], item[0]))
    ]


def is_complete(group: PodGroup, tally: GroupUsage) -> bool:
    """Whether as many pods exist ungated as must start together."""
    root, error = build_subgroup_tree(group)
    return not error and _has_minimum(root, tally.subgroups, lambda part: part.alive - part.gated, "", [])


def _has_minimum(
    node: Branch | Leaf,
    parts: dict[str, SubgroupCounts],
    count: Callable[[SubgroupCounts], int],
    verb: str,
    missing: list[str],
) -> bool:
    """Whether a subtree has its minimum; each leaf that lacks pods is reported."""
    if isinstance(node, Leaf):
        pod_count = count(parts.get(node.name, _NO_PODS))
        if pod_count >= node.minimum:
            return True
        where = "" if node.name == names.DEFAULT_SUBGROUP else f" of subgroup {node.name}"
        missing.append(f"{pod_count} of {node.minimum} pods{where} {verb}")
        return False
    return sum([_has_minimum(child, parts, count, verb, missing) for child in node.children]) >= node.min_children


def _valid_condition(
    group: PodGroup, root: Branch, tree_error: str, tally: GroupUsage, inputs: StatusInputs, problems: list[str]
) -> Iterator[DesiredCondition]:
    reason, message = _invalid(group, root, tree_error, tally, inputs, problems)
    if reason:
        yield DesiredCondition(names.CONDITION_VALID, False, reason, message)
        return
    listed = group.status.conditions
    if isinstance(listed, list) and any(
        isinstance(entry, dict) and entry.get("type") == names.CONDITION_VALID for entry in listed
    ):
        yield DesiredCondition(names.CONDITION_VALID, True, "Mended")


def _invalid(
    group: PodGroup, root: Branch, tree_error: str, tally: GroupUsage, inputs: StatusInputs, problems: list[str]
) -> tuple[str, str]:
    """Why the group cannot work as it is, and what to do; empty when it can."""
    spec = group.spec
    if not spec.queue:
        return names.REASON_QUEUE_DOES_NOT_EXIST, "spec.queue is empty; name the queue to run in"
    if not inputs.queue_exists:
        text = f"there is no queue {spec.queue!r}; create it, or name another in spec.queue"
        return names.REASON_QUEUE_DOES_NOT_EXIST, text
    if tree_error:
        return "InvalidSubGroups", f"spec.subGroups: {tree_error}"
    if inputs.unserved:
        return POOL_NOT_SERVED, inputs.unserved
    for field, duration in (
        ("preemptionDelay", spec.preemption_delay),
        ("stalenessGracePeriod", spec.staleness_grace_period),
    ):
        try:
            parse_duration(duration or "0")
        except DurationError as error:
            return "InvalidDuration", f"spec.{field}: {error}"
    messages = problems + [f"pod {key.partition('/')[2]}: {text}" for key, text in sorted(tally.problems.items())]
    if messages:
        return "UnreadablePods", _listed(messages)
    leaves = set(_leaf_names(root))
    unknown_subgroups = sorted(tally.subgroups.keys() - leaves)
    if unknown_subgroups:
        return "UnknownSubGroup", f"pods name subgroups that the group has not: {_listed(unknown_subgroups)}"
    return "", ""


def _leaf_names(node: Branch | Leaf) -> Iterator[str]:
    if isinstance(node, Leaf):
        yield node.name
    else:
        for child in node.children:
            yield from _leaf_names(child)


def _listed(texts: list[str]) -> str:
    more = len(texts) - _MAX_LISTED
    return "; ".join(texts[:_MAX_LISTED]) + (f"; and {more} more" if more > 0 else "")
