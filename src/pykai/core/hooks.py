"""Extension points: what a plugin may add to a cycle (cycle:7.2).

A plugin is a frozen record of its arguments with one method, `prepare(snapshot) -> Hooks`.  `Hooks` holds optional
callables; `Rules` flattens those of all plugins, in configured order, once per cycle.  Signatures are over columns: a
check or score gets node rows (a slice or an array of row numbers) and answers for all of them at once, so the same
function serves the first pass over the cluster and the repair of one row after a placement.

What is cached, and what a hook must declare:

- Results are cached per *shape*.  A hook that reads anything else of the request (labels, nominated node) returns that
  from `cache_key`; requests with different keys are evaluated separately.
- `scope` says what can change a result: `NODES` facts of nodes only, `ROW` also what is placed on that row, `REQUEST`
  also the queue ledger.  A `REQUEST` check is evaluated for every task, and `key` returns what it depends on.
- A score that depends on values of all rows (a minimum, a maximum) declares them through `context`; when they change,
  every row is scored again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, runtime_checkable

from pykai.core import hookanswers
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.gangs import BranchState, Gang, LeafState
from pykai.core.cycle.journal import Observer
from pykai.core.cycle.request import PlacementRequest
from pykai.core.cycle.state import DiscreteLedger, State
from pykai.core.model.axes import BoolArray, FloatArray, IntArray, Rows
from pykai.core.model.queuetree import QueueAmounts, QueueTree
from pykai.core.model.sharedgpus import DeviceUse
from pykai.core.model.tasks import Task, by_age
from pykai.core.queueing.queueledger import CapacityRefusal, FallingKeys
from pykai.core.report.decisions import NoEviction
from pykai.core.report.decisions import Refusal as Refused
from pykai.deprecated import renamed

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        return renamed(__name__, name)


#: One node's idle, releasing, free and used amounts, each a list by axis.
Planes = list[list[int]]


@dataclass(frozen=True, slots=True, eq=False)
class NodeSet:
    """Nodes an attempt may use; compared by identity."""

    #: [node] True where allowed; None = every node
    mask: BoolArray | None = None
    #: shown in explanations, "" for the whole cluster
    name: str = ""
    #: [node] what being in a better part of the set is worth, added to the scores of the plugins; None = nothing
    scores: FloatArray | None = None


#: Every node; one object, so that cached results for it are found again.
ALL_NODES = NodeSet()


class NoNodeSets(NamedTuple):
    """Why a subgroup has no set of nodes at all.  Names of groups are left out, so that equal gangs share it."""

    refusals: tuple[Refused, ...]


@dataclass(frozen=True, slots=True)
class KeyOfFigures:
    """A key of a queue that depends on its figures in the ledger and the amounts alone, so that ranks can be kept."""

    key: Callable[[State, int, QueueAmounts], tuple[float, ...]]
    #: the keys for growing amounts, [position, resource], None = they are not known to fall in one place
    falling: Callable[[State, int, FloatArray], FallingKeys] | None = None

    def __call__(self, state: State, queue: int, amounts: QueueAmounts) -> tuple[float, ...]:
        """The key of a queue now."""
        return self.key(state, queue, amounts)


@dataclass(frozen=True, slots=True)
class FixedTie:
    """A tie between queues that nothing in a cycle changes, so that ranks can be kept."""

    wins: Callable[[State, int, int], bool]

    def __call__(self, state: State, queue: int, other: int) -> bool:
        """Whether the first queue goes before the second."""
        return self.wins(state, queue, other)


@dataclass(frozen=True, slots=True)
class FilterBySide:
    """A filter of leaf queues that depends only on where they part from the leaf of the gang.

    So all leaves below one queue beside the path of that leaf have the same answer.

    Statements: queues:Q-265.
    """

    tree: QueueTree
    leaf: int
    #: (ancestor of the leaf, queue beside it)
    passes: Callable[[int, int], bool]

    def __call__(self, other: int) -> bool:
        """Whether another leaf passes."""
        return self.passes(*self.tree.diverging_ancestors(self.leaf, other))


class Scope(IntEnum):
    """What a check or score depends on besides the shape."""

    NODES = 0
    ROW = 1
    REQUEST = 2


def _applies_always(request: PlacementRequest) -> bool:
    return True


def _accepts_every_gang(gang: Gang) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class NodeCheck:
    """A filter: `evaluate` gives a code per row, 0 = fits, k = refused for `texts[k - 1]`.

    Texts may contain `{node}` and `{pod}`.
    """

    name: str
    texts: tuple[str, ...]
    evaluate: Callable[[State, PlacementRequest, Rows], IntArray]
    scope: Scope = Scope.ROW
    applies: Callable[[PlacementRequest], bool] = _applies_always
    #: a text with figures instead of `texts`: (state, request, code, row)
    describe: Callable[[State, PlacementRequest, int, int], str] | None = None
    #: what a REQUEST check depends on; requests with equal keys get equal results while the state is the same
    key: Callable[[PlacementRequest], Hashable] | None = None
    #: the same as `evaluate` for one row, for speed
    at: Callable[[State, PlacementRequest, int], int] | None = None


@dataclass(frozen=True, slots=True)
class NodeScore:
    """A score: `evaluate` gives a number per row, added to those of the other plugins.

    Its last argument is the last result of the function from `context`, None without a `context`.
    """

    name: str
    evaluate: Callable[[State, PlacementRequest, Rows, Any], FloatArray]
    scope: Scope = Scope.ROW
    applies: Callable[[PlacementRequest], bool] = _applies_always
    #: returns, once per ranking, a function whose result every row's score depends on
    context: Callable[[State, PlacementRequest, NodeSet], Callable[[], Hashable]] | None = None
    #: the same for one row, for speed: (state, request, row, planes of the row as lists, context)
    at: Callable[[State, PlacementRequest, int, Planes, Any], float] | None = None


class PreFailure(NamedTuple):
    """Why a task cannot be placed anywhere, found before any node is checked (cycle:FLT-5)."""

    predicate: str
    error: str
    #: no eviction helps either (cycle:FLT-9)
    unresolvable: bool = False


class Loss(NamedTuple):
    """A task that a gang would lose."""

    leaf: LeafState
    task: Task
    #: what it costs its queue where it is
    amounts: QueueAmounts
    #: it would get another node, so its queue loses nothing
    moves: bool


class EvictionProposal(NamedTuple):
    """A sufficient set of victims, checked before anything is decided (queues:11.3)."""

    #: the gang that benefits, and what its tasks cost its queue
    gang: Gang
    required: QueueAmounts
    #: gangs that lose tasks, in the order they were chosen; tasks in task order
    losses: list[tuple[Gang, list[Loss]]]
    #: what every queue had before any eviction, [queue][resource] (cycle:RCL-1)
    allocated: list[list[float]]
    #: the same for non-preemptible work, and whether the gang is such work
    allocated_non_preemptible: list[list[float]]
    non_preemptible: bool
    #: tasks that get another node do not count as lost (cycle:RCL-3)
    moving_is_free: bool


#: (state, gang, subgroup, tasks to place in it, nodes it may use) -> node sets to try in order, or why there are none
NodeSetMaker = Callable[[State, Gang, BranchState | LeafState, Sequence[Task], NodeSet], Iterable[NodeSet] | NoNodeSets]


@dataclass(frozen=True, slots=True)
class Observers:
    """Several observers of one plugin, in order; one that plugins share is still called once (`Rules.combine`)."""

    observers: tuple[Observer, ...]

    def task_added(self, task: Task, row: int) -> None:
        """A task now holds the node."""
        for observer in self.observers:
            observer.task_added(task, row)

    def task_removed(self, task: Task, row: int) -> None:
        """A task no longer holds the node."""
        for observer in self.observers:
            observer.task_removed(task, row)


@dataclass(frozen=True, slots=True)
class Hooks:
    """What one plugin adds; every field may be left out.  `HOOK_TABLE` has a row for each."""

    #: reasons against a task before any node is checked; all failures are reported (cycle:FLT-5)
    pre_place: tuple[Callable[[State, PlacementRequest], PreFailure | None], ...] = ()
    #: whether no eviction could let a task in that the node checks keep out, even with these tasks placed beside it
    unresolvable: Callable[[PlacementRequest, Sequence[Task]], bool] | None = None
    node_checks: tuple[NodeCheck, ...] = ()
    node_scores: tuple[NodeScore, ...] = ()
    #: score of a shared GPU (None = a whole one not shared yet) for a shared request
    gpu_score: Callable[[State, PlacementRequest, int, DeviceUse | None], float] | None = None
    #: called before the tasks of a gang are chosen and placed
    before_gang: Callable[[State, Gang], None] | None = None
    #: candidate node sets for a subgroup, tried in order
    node_sets: NodeSetMaker | None = None
    #: the gangs that `node_sets` applies to; all if absent
    node_sets_for: Callable[[Gang], bool] | None = None
    #: sort key of a queue with the job it would serve next, smallest first
    queue_key: Callable[[State, int, QueueAmounts], tuple[float, ...]] | None = None
    #: whether the first queue goes before the second when keys are equal; need not be a total order
    queue_tie: Callable[[State, int, int], bool] | None = None
    #: sort keys, smallest first
    group_key: Callable[[Gang], tuple[float, ...]] | None = None
    subgroup_key: Callable[[int, int], tuple[float, ...]] | None = None
    task_key: Callable[[Task], tuple[int, ...]] | None = None
    #: whether the queues of a gang may take on this much; the first plugin that has one decides
    quota_gate: Callable[[State, Gang, QueueAmounts], CapacityRefusal | None] | None = None
    #: the same for work that starts now, not only once others have left; what it refuses can still be pipelined
    start_gate: Callable[[State, Gang, QueueAmounts], CapacityRefusal | None] | None = None
    #: sort key of a queue that would lose so much, largest first (queues:Q-239)
    victim_queue_key: Callable[[State, int, QueueAmounts], tuple[float, ...]] | None = None
    #: which rule forbids a gang to reclaim so much; the first plugin that has one decides, without one no gang reclaims
    may_reclaim: Callable[[State, Gang, QueueAmounts], NoEviction | None] | None = None
    #: returns, once per search, a function that says whether gangs of a leaf queue may lose something at all
    reclaim_from: Callable[[State, Gang, QueueAmounts], Callable[[int], bool]] | None = None
    #: the same for what they lose for good; gangs of other leaves can only be moved, which frees nothing by itself
    reclaim_losers: Callable[[State, Gang, QueueAmounts], Callable[[int], bool]] | None = None
    #: whether one gang may lose something; all plugins must agree
    reclaim_filter: Callable[[State, Gang, QueueAmounts], Callable[[Gang], bool]] | None = None
    preempt_filter: Callable[[State, Gang, QueueAmounts], Callable[[Gang], bool]] | None = None
    #: why a set of victims is not allowed, None if it is; all plugins must agree
    reclaim_gate: Callable[[State, EvictionProposal], str | None] | None = None
    preempt_gate: Callable[[State, EvictionProposal], str | None] | None = None
    #: generators of victim sets: names of `eviction.scenarios`, tried in order (cycle:13.4)
    scenarios: tuple[str, ...] = ()
    #: what the checks and scores above read besides the shape
    cache_key: Callable[[PlacementRequest], Hashable] | None = None
    #: called for every task that comes to or leaves a node, rollbacks included
    observer: Observer | None = None
    #: accounting for discrete resources: devices of claims, NUMA zones, volumes
    discrete_ledger: DiscreteLedger | None = None
    #: annotations for the BindRequest of a pod (pod, node name); later plugins win (workloads:BM-1)
    bind_annotations: Callable[[Task, str], dict[str, str]] | None = None


@runtime_checkable
class Plugin(Protocol):
    """A policy: its arguments are its fields, its rules come from `prepare` (cycle:CYC-8)."""

    def prepare(self, snapshot: Snapshot) -> Hooks:
        """The rules for one cycle."""
        ...


class HookWrapping(Enum):
    """How a hook of a third-party plugin is wrapped (`plugins/isolation.py`)."""

    #: a function with a checked answer
    ANSWER = "answer"
    #: several of them
    ANSWERS = "answers"
    #: no function but a value, checked
    VALUE = "value"
    #: a function that returns a filter; a filter that fails spares the victim
    FILTER = "filter"
    NODE_CHECKS = "node checks"
    NODE_SCORES = "node scores"
    NODE_SETS = "node sets"
    OBSERVER = "observer"
    LEDGER = "ledger"


#: Makes one rule of the hooks of all plugins: (name of the hook, hooks in plugin order).
Combine = Callable[[str, Sequence["Hooks"]], Any]


def _says_nothing(plugin: str) -> None:
    return None


class HookSpec(NamedTuple):
    """A row of the table of hooks."""

    #: attribute of `Hooks`
    name: str
    #: attribute of `Rules`
    rule: str
    combine: Combine
    wrapping: HookWrapping = HookWrapping.ANSWER
    #: the result in place of a failing hook of a third-party plugin of that name
    fallback: Callable[[str], Any] = _says_nothing
    #: returns the checked result of a third-party plugin, or raises
    read: Callable[[Any], Any] = hookanswers.any_answer


def _given(name: str, hooks: Sequence[Hooks]) -> list[Any]:
    return [value for each in hooks if (value := getattr(each, name)) is not None]


def each_plugin(name: str, hooks: Sequence[Hooks]) -> tuple[Any, ...]:
    """Those of all plugins that have one."""
    return tuple(_given(name, hooks))


def every_item(name: str, hooks: Sequence[Hooks]) -> tuple[Any, ...]:
    """All items of all plugins."""
    return tuple(item for each in hooks for item in getattr(each, name))


def distinct_items(name: str, hooks: Sequence[Hooks]) -> tuple[Any, ...]:
    """All items of all plugins, each once."""
    return tuple(dict.fromkeys(every_item(name, hooks)))


def first_plugin(name: str, hooks: Sequence[Hooks]) -> Any:
    """That of the first plugin that has one."""
    return next(iter(_given(name, hooks)), None)


def keys_in_sequence(name: str, hooks: Sequence[Hooks]) -> Callable[..., tuple[Any, ...]] | None:
    """The keys of all plugins, one after the other, as one key."""
    return _concatenated(_given(name, hooks))


def _concatenated(
    keys: Sequence[Callable[..., tuple[Any, ...]]],
) -> Callable[..., tuple[Any, ...]] | None:
    """Keys one after the other as one key."""
    if not keys:
        return None
    first, *others = keys
    rest = _concatenated(others)
    return first if rest is None else lambda *args: first(*args) + rest(*args)


def _subgroup_keys(name: str, hooks: Sequence[Hooks]) -> Callable[..., tuple[Any, ...]]:
    return keys_in_sequence(name, hooks) or (lambda count, threshold: ())


def _conditions_of_node_sets(name: str, hooks: Sequence[Hooks]) -> tuple[Any, ...]:
    """One condition for each maker of node sets."""
    return tuple(getattr(each, name) or _accepts_every_gang for each in hooks if each.node_sets is not None)


def _distinct_observers(name: str, hooks: Sequence[Hooks]) -> tuple[Observer, ...]:
    unique: dict[int, Observer] = {}
    for observer in _given(name, hooks):
        for one in observer.observers if isinstance(observer, Observers) else (observer,):
            unique[id(one)] = one
    return tuple(unique.values())


def _failed_plugin(plugin: str) -> str:
    return f"plugin {plugin} failed"


#: Everything about a hook besides its type and its call sites.
HOOK_TABLE: tuple[HookSpec, ...] = (
    HookSpec(
        "pre_place", "pre_place", every_item, wrapping=HookWrapping.ANSWERS, read=hookanswers.optional(PreFailure)
    ),
    HookSpec("unresolvable", "unresolvable", each_plugin, fallback=lambda plugin: False, read=bool),
    HookSpec("node_checks", "checks", every_item, wrapping=HookWrapping.NODE_CHECKS),
    HookSpec("node_scores", "scores", every_item, wrapping=HookWrapping.NODE_SCORES),
    HookSpec("gpu_score", "gpu_scores", each_plugin, fallback=lambda plugin: 0.0, read=hookanswers.number),
    HookSpec("before_gang", "before_gang", each_plugin, read=hookanswers.no_answer),
    HookSpec("node_sets", "node_sets", each_plugin, wrapping=HookWrapping.NODE_SETS),
    HookSpec("node_sets_for", "node_sets_for", _conditions_of_node_sets, fallback=lambda plugin: True, read=bool),
    HookSpec("queue_key", "queue_key", keys_in_sequence, fallback=lambda plugin: (), read=hookanswers.sort_key),
    HookSpec("queue_tie", "queue_tie", first_plugin, fallback=lambda plugin: False, read=bool),
    HookSpec("group_key", "group_key", keys_in_sequence, fallback=lambda plugin: (), read=hookanswers.sort_key),
    HookSpec("subgroup_key", "subgroup_key", _subgroup_keys, fallback=lambda plugin: (), read=hookanswers.sort_key),
    HookSpec("task_key", "task_key", keys_in_sequence, fallback=lambda plugin: (), read=hookanswers.sort_key),
    HookSpec("quota_gate", "quota_gate", first_plugin, read=hookanswers.optional(CapacityRefusal)),
    HookSpec("start_gate", "start_gate", first_plugin, read=hookanswers.optional(CapacityRefusal)),
    HookSpec(
        "victim_queue_key", "victim_queue_key", keys_in_sequence, fallback=lambda plugin: (), read=hookanswers.sort_key
    ),
    HookSpec(
        "may_reclaim",
        "may_reclaim",
        first_plugin,
        fallback=lambda plugin: NoEviction("reclaim", "plugin", other=plugin),
        read=hookanswers.optional(NoEviction),
    ),
    HookSpec("reclaim_from", "reclaim_from", each_plugin, wrapping=HookWrapping.FILTER),
    HookSpec("reclaim_losers", "reclaim_losers", each_plugin, wrapping=HookWrapping.FILTER),
    HookSpec("reclaim_filter", "reclaim_filters", each_plugin, wrapping=HookWrapping.FILTER),
    HookSpec("preempt_filter", "preempt_filters", each_plugin, wrapping=HookWrapping.FILTER),
    HookSpec("reclaim_gate", "reclaim_gates", each_plugin, fallback=_failed_plugin, read=hookanswers.optional(str)),
    HookSpec("preempt_gate", "preempt_gates", each_plugin, fallback=_failed_plugin, read=hookanswers.optional(str)),
    HookSpec(
        "scenarios",
        "scenarios",
        distinct_items,
        wrapping=HookWrapping.VALUE,
        fallback=lambda plugin: (),
        read=hookanswers.generator_names,
    ),
    HookSpec("cache_key", "cache_keys", each_plugin, read=hookanswers.hashable),
    HookSpec("observer", "observers", _distinct_observers, wrapping=HookWrapping.OBSERVER),
    HookSpec("discrete_ledger", "discrete_ledgers", each_plugin, wrapping=HookWrapping.LEDGER),
    HookSpec(
        "bind_annotations", "bind_annotations", each_plugin, fallback=lambda plugin: {}, read=hookanswers.texts_by_name
    ),
)


@dataclass(frozen=True, slots=True)
class Rules:
    """The hooks of all plugins, flattened."""

    pre_place: tuple[Callable[[State, PlacementRequest], PreFailure | None], ...] = ()
    unresolvable: tuple[Callable[[PlacementRequest, Sequence[Task]], bool], ...] = ()
    checks: tuple[NodeCheck, ...] = ()
    #: those of the checks that run for every task
    request_checks: tuple[NodeCheck, ...] = ()
    scores: tuple[NodeScore, ...] = ()
    gpu_scores: tuple[Callable[[State, PlacementRequest, int, DeviceUse | None], float], ...] = ()
    node_sets: tuple[NodeSetMaker, ...] = ()
    #: the gangs that each of them applies to
    node_sets_for: tuple[Callable[[Gang], bool], ...] = ()
    before_gang: tuple[Callable[[State, Gang], None], ...] = ()
    queue_key: Callable[[State, int, QueueAmounts], tuple[float, ...]] | None = None
    queue_tie: Callable[[State, int, int], bool] | None = None
    group_key: Callable[[Gang], tuple[float, ...]] | None = None
    subgroup_key: Callable[[int, int], tuple[float, ...]] = field(default=lambda count, threshold: ())
    task_key: Callable[[Task], tuple[int, ...]] | None = None
    quota_gate: Callable[[State, Gang, QueueAmounts], CapacityRefusal | None] | None = None
    start_gate: Callable[[State, Gang, QueueAmounts], CapacityRefusal | None] | None = None
    victim_queue_key: Callable[[State, int, QueueAmounts], tuple[float, ...]] | None = None
    may_reclaim: Callable[[State, Gang, QueueAmounts], NoEviction | None] | None = None
    reclaim_from: tuple[Callable[[State, Gang, QueueAmounts], Callable[[int], bool]], ...] = ()
    reclaim_losers: tuple[Callable[[State, Gang, QueueAmounts], Callable[[int], bool]], ...] = ()
    reclaim_filters: tuple[Callable[[State, Gang, QueueAmounts], Callable[[Gang], bool]], ...] = ()
    preempt_filters: tuple[Callable[[State, Gang, QueueAmounts], Callable[[Gang], bool]], ...] = ()
    reclaim_gates: tuple[Callable[[State, EvictionProposal], str | None], ...] = ()
    preempt_gates: tuple[Callable[[State, EvictionProposal], str | None], ...] = ()
    scenarios: tuple[str, ...] = ()
    cache_keys: tuple[Callable[[PlacementRequest], Hashable], ...] = ()
    observers: tuple[Observer, ...] = ()
    discrete_ledgers: tuple[DiscreteLedger, ...] = ()
    bind_annotations: tuple[Callable[[Task, str], dict[str, str]], ...] = ()

    def node_set_makers(self, gang: Gang) -> list[NodeSetMaker]:
        """The functions that offer node sets for a gang."""
        return [make for make, applies in zip(self.node_sets, self.node_sets_for, strict=True) if applies(gang)]

    @property
    def task_order(self) -> Callable[[Task], tuple[Any, ...]]:
        """Sort key of tasks: the plugins' keys, then age, then uid (cycle:8.5); it references nothing of the cycle."""
        key = self.task_key
        return by_age if key is None else lambda task: (key(task), *by_age(task))

    def queue_key_in(self, state: State) -> Callable[[int, QueueAmounts], tuple[float, ...]] | None:
        """The key of a queue with what it would serve next, right now."""
        key = self.queue_key
        return partial(key.key if isinstance(key, KeyOfFigures) else key, state) if key is not None else None

    def victim_queue_key_in(self, state: State) -> Callable[[int, QueueAmounts], tuple[float, ...]] | None:
        """The key of a queue that would lose so much, right now."""
        key = self.victim_queue_key
        return partial(key.key if isinstance(key, KeyOfFigures) else key, state) if key is not None else None

    def queue_tie_in(self, state: State) -> Callable[[int, int], bool] | None:
        """Whether the first of two queues with equal keys goes first, right now."""
        tie = self.queue_tie
        return partial(tie.wins if isinstance(tie, FixedTie) else tie, state) if tie is not None else None

    def keeps_ranks(self, key: object) -> bool:
        """Whether ranks by this key of queues change only with figures and amounts."""
        return isinstance(key, KeyOfFigures) and (self.queue_tie is None or isinstance(self.queue_tie, FixedTie))

    @classmethod
    def combine(cls, hooks: Iterable[Hooks], table: Iterable[HookSpec] = HOOK_TABLE) -> Self:
        """Combine hooks in plugin order."""
        all_hooks = list(hooks)
        rules = {spec.rule: spec.combine(spec.name, all_hooks) for spec in table}
        request_checks = tuple(check for check in rules["checks"] if check.scope is Scope.REQUEST)
        return cls(**rules, request_checks=request_checks)
