"""The decisions of a cycle as data.

Services carry out these records, the command line and the dashboard show them, tests compare them; `sentences.py` turns
refusals into sentences.  All are plain frozen structs: the same plan is the same bytes.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from pykai.api.resource import AllocationResult
from pykai.api.scheduling import ExtendedResourceClaimAllocation

#: cpu milli, memory bytes, GPU devices
ResourceAmounts = tuple[float, float, float]


class Bind(msgspec.Struct, frozen=True, gc=False):
    """Start a pod on a node: the content of a BindRequest (cycle:OUT-1)."""

    namespace: str
    pod: str
    uid: str
    group: str
    node: str
    received_type: str
    gpu_count: int = 0
    gpu_portion: str = "0.00"
    gpu_groups: tuple[str, ...] = ()
    annotations: dict[str, str] = {}
    #: what each claim of the pod gets, by its name there (gpu:7)
    claims: tuple[tuple[str, AllocationResult], ...] = ()
    #: the claim behind its extended resources
    extended_claim: ExtendedResourceClaimAllocation | None = None
    #: its expected use of NUMA zones: zone id, (resource, quantity) (gpu:N-18)
    numa_zones: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()


class PlannedBind(NamedTuple):
    """A pod and its planned node."""

    pod: str
    uid: str
    node: str


class Evict(msgspec.Struct, frozen=True, gc=False):
    """Evict a pod from its node (cycle:16.2)."""

    namespace: str
    pod: str
    uid: str
    group: str
    node: str
    #: the action that decided it
    action: str
    #: how many pods go together
    gang_size: int
    #: the text of the event (cycle:RCL-2)
    message: str
    #: namespace/name of the group it makes room for, "" if none
    preemptor: str = ""
    #: uid of that group
    preemptor_uid: str = ""
    #: the expected node of its successor, "" if it has to wait
    moves_to: str = ""
    #: the pod is not bound yet: withdraw its BindRequest instead of deleting it (cycle:PG-14)
    unbound: bool = False


class Ungate(msgspec.Struct, frozen=True, gc=False):
    """Remove the gate of its queue from a pod (queues:Q-406)."""

    namespace: str
    pod: str
    uid: str
    #: namespace/name of its PodGroup, "" if it has none
    group: str
    #: the queue that admits it; "" = no queue gates it any more
    queue: str = ""


class StaleGang(msgspec.Struct, frozen=True):
    """A gang of which too few pods are left (cycle:15, EXP-8)."""

    namespace: str
    group: str
    #: since when; the cycle's own time when it was found now
    since_ns: int
    #: pods that hold a node, and the sum of the minimums
    active: int
    minimum: int
    #: unsatisfied subgroups: name, minimum, active pods
    subgroups: tuple[tuple[str, int, int], ...] = ()
    evicted: bool = False
    #: all pods that hold a node are being deleted
    leaving: bool = False


class NoPlace(msgspec.Struct, frozen=True, tag=True):
    """A task that fits no node (cycle:ALC-8, EXP-1)."""

    pod: str
    #: "pod": not a gang or beyond its minimum; "gang": one plain gang; "subgroup": a gang with subgroups
    form: str
    #: tasks of the attempt that were placed
    found: int
    subgroup: str
    minimum: int
    #: why no node was even checked, "" otherwise
    base: str = ""
    #: reason -> how many nodes gave it
    nodes: dict[str, int] = {}
    #: no eviction would help (cycle:FLT-9)
    unresolvable: bool = False
    #: node -> why it refused, with figures; only if the policy enables it (cycle:EXP-4)
    details: dict[str, str] = {}


class OverCapacity(msgspec.Struct, frozen=True, tag=True):
    """The work exceeds the limit or quota of a queue (queues:Q-200, Q-206)."""

    #: "limit" or "quota"
    rule: str
    queue: str
    display_name: str
    #: "CPU", "Memory" or "GPU"
    resource: str
    bound: float
    used: float
    requested: float
    #: the request of the group
    asked: ResourceAmounts
    preemptible: bool
    #: what terminating pods still hold, where that was charged too
    leaving: float = 0.0
    #: what admitted pods that wait for a node may still take, where that was charged too (queues:Q-406)
    reserved: float | msgspec.UnsetType = msgspec.UNSET


class Nominate(msgspec.Struct, frozen=True, gc=False):
    """Nominate a node for a pod, while its resources are still being released (cycle:OUT-8)."""

    namespace: str
    pod: str
    uid: str
    group: str
    node: str
    gpu_groups: tuple[str, ...] = ()
    #: why it may not start even where there is room: terminating pods still hold what its queue may have
    held: OverCapacity | None = None


class NoQueue(msgspec.Struct, frozen=True, tag=True):
    """The queue does not exist, or its place in the tree is broken."""

    queue: str
    #: what is wrong with its place in the tree; "" = there is no such queue
    fault: str = ""


class QueueAccessDenied(msgspec.Struct, frozen=True, tag=True):
    """The namespace may not use the queue (access:engine)."""

    namespace: str
    queue: str
    #: the queue whose list does not allow it: the same, or one above it
    refused_by: str
    #: the annotation of that queue that cannot be read, and why; empty if all can
    broken_annotation: str = ""
    fault: str = ""


class NotLeafQueue(msgspec.Struct, frozen=True, tag=True):
    """Only leaf queues run workloads (queues:Q-66, Do better)."""

    queue: str


class NotReady(msgspec.Struct, frozen=True, tag=True):
    """Too few pods exist to reach the minimum (cycle:EXP-10)."""

    subgroup: str
    minimum: int
    alive: int
    gated: int


class BrokenTree(msgspec.Struct, frozen=True, tag=True):
    """The subgroups of the PodGroup do not form a tree (cycle:PG-1, Do better)."""

    text: str


class StrayPod(msgspec.Struct, frozen=True, tag=True):
    """A pod names a subgroup its group does not have (cycle:PG-4)."""

    pod: str
    subgroup: str
    group: str


class NotSupported(msgspec.Struct, frozen=True, tag=True):
    """The group requests something that the engine does not support, so it does not guess."""

    what: tuple[str, ...]


class BadTopology(msgspec.Struct, frozen=True, tag=True):
    """The topology or level that a group names does not exist (topo:T-40, TD-7)."""

    text: str


class DomainShort(msgspec.Struct, frozen=True, tag=True):
    """A domain that cannot hold the pods of a subgroup (topo:T-21, T-22)."""

    domain: str
    #: "" for the group as a whole
    subgroup: str
    #: how many of the pods would fit, of how many
    found: int
    wanted: int
    #: the shortages, where the pods differ too much to be counted: name, requested, free
    resources: tuple[tuple[str, float, float], ...] = ()


class FurtherDomains(msgspec.Struct, frozen=True, tag=True):
    """Domains that were tried and are not listed one by one (topo:TD-15)."""

    level: str
    count: int


class NoDomain(msgspec.Struct, frozen=True, tag=True):
    """No domain of a topology can hold the pods of a subgroup (topo:5, steps 6 and 12)."""

    topology: str
    #: the level that is required of the subgroup, by itself or by a group around it; "" = levels are only preferred
    level: str
    subgroup: str
    #: where there is too little, "root" for the cluster, "" where single domains are the reason
    where: str = ""
    #: the level of that domain, "" for the cluster
    where_level: str = ""
    #: namespace/name of the group
    group: str = ""


class DomainSearchStopped(msgspec.Struct, frozen=True, tag="WaysSpent"):
    """The search for a combination of domains was ended by its budget (topo:TD-6)."""

    tried: int


class WithinDelay(msgspec.Struct, frozen=True, tag=True):
    """The group may not trigger evictions yet (cycle:POL-4)."""

    delay_ns: int
    #: None = never: its priority class says so (cycle:POL-7)
    until_ns: int | None


class OverBudget(msgspec.Struct, frozen=True, tag=True):
    """A PodDisruptionBudget forbids the evictions that would make room (disruptions:strict)."""

    #: namespace/name
    budget: str
    #: evictions that it still allows
    left: int
    #: further budgets that forbid them
    others: int = 0


class FreeRoomOnly(msgspec.Struct, frozen=True, tag=True):
    """Binds of the group have failed too often: it may use free resources, and trigger no evictions (ADR 16)."""

    failures: int
    #: why the last of them failed
    cause: str


class Postponed(msgspec.Struct, frozen=True, tag=True):
    """The objects of its namespace exceed its allowance in a cycle while others wait (`queueing/allowance.py`)."""

    namespace: str
    #: the cost of all waiting groups of the namespace and its allowance in a cycle, in cost units
    units: int
    allowed: int


Refusal = (
    NoPlace
    | OverCapacity
    | NoQueue
    | QueueAccessDenied
    | NotLeafQueue
    | NotReady
    | BrokenTree
    | StrayPod
    | NotSupported
    | BadTopology
    | DomainShort
    | FurtherDomains
    | NoDomain
    | DomainSearchStopped
    | WithinDelay
    | OverBudget
    | FreeRoomOnly
    | Postponed
)


class NoEviction(msgspec.Struct, frozen=True):
    """Why an action evicted nothing for a group."""

    action: str
    #: a word for the rule that forbade it, see `sentences.no_eviction_text`
    rule: str
    queue: str = ""
    #: "CPU", "Memory" or "GPU"
    resource: str = ""
    #: what the queue would have, and what it may have
    would_have: float = 0.0
    bound: float = 0.0
    #: another group or plugin that the text names
    other: str = ""


class Unscheduled(msgspec.Struct, frozen=True):
    """A group with pods left waiting, and why."""

    namespace: str
    group: str
    queue: str
    pending: int
    refusals: tuple[Refusal, ...]
    #: why nothing was evicted for it
    verdicts: tuple[NoEviction, ...] = ()


class OrphanPod(msgspec.Struct, frozen=True):
    """A pod with this scheduler's name but without a known PodGroup."""

    namespace: str
    pod: str
    #: the PodGroup it names, "" if none
    group: str


class QueueFigures(msgspec.Struct, frozen=True):
    """A queue at the end of the cycle; fair share and request are those of its beginning."""

    name: str
    display_name: str
    parent: str
    priority: int
    fair_share: ResourceAmounts
    quota: ResourceAmounts
    limit: ResourceAmounts
    request: ResourceAmounts
    allocated: ResourceAmounts
    allocated_non_preemptible: ResourceAmounts


class StoppedSearch:
    """A search for victims that a budget ended.

    Not a Struct: the JSON of a plan has its text, which `str` gives.
    """

    __slots__ = ("action", "group", "outcome", "work")

    def __init__(self, action: str, group: str, outcome: str, work: int) -> None:
        self.action = action
        #: namespace/name of the group for which victims were searched
        self.group = group
        self.outcome = outcome
        #: units of work done in the cycle until then
        self.work = work

    def __str__(self) -> str:
        return f"{self.action} stopped at {self.group}: {self.outcome}, {self.work} units of work done"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoppedSearch) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


def encode_as_text(value: object) -> str:
    """What the JSON of a plan has for a value that msgspec does not know; the `enc_hook` of msgspec."""
    if isinstance(value, StoppedSearch):
        return str(value)
    raise NotImplementedError(f"a plan has no {type(value).__name__}")


class Plan(msgspec.Struct, frozen=True):
    """All decisions of a cycle, in order."""

    now_ns: int
    binds: tuple[Bind, ...]
    nominations: tuple[Nominate, ...]
    evictions: tuple[Evict, ...]
    #: incomplete gangs
    stale: tuple[StaleGang, ...]
    #: groups that are no longer stale: their timestamp is removed
    recovered: tuple[str, ...]
    #: groups that run from now on: their last-start timestamp is `now_ns`
    started: tuple[str, ...]
    unscheduled: tuple[Unscheduled, ...]
    orphans: tuple[OrphanPod, ...]
    queues: tuple[QueueFigures, ...]
    #: what could not be read, one line each
    problems: tuple[str, ...]
    #: work units done
    work: int
    #: searches that a budget ended
    stopped: tuple[StoppedSearch, ...] = ()
    #: namespaces whose groups were postponed, and the group that starts the next cycle; absent in most plans
    resume: tuple[tuple[str, str], ...] | msgspec.UnsetType = msgspec.UNSET
    #: groups that the next cycle serves before all others, a step each, in order (cycle:SOL-17); absent in most plans
    served_first: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    #: gates of queues to remove, in order; absent in most plans
    ungates: tuple[Ungate, ...] | msgspec.UnsetType = msgspec.UNSET

    def encoded(self) -> bytes:
        """The plan as JSON, the same bytes for the same decisions."""
        return msgspec.json.encode(self, order="deterministic", enc_hook=encode_as_text)
