"""Trying one set of victims in the journal (cycle:13.5).

All victims of the set are evicted; then the victims and the preemptor are served in the fair order, each once, with
pipelined placements only.  A victim that outranks the preemptor is therefore served first, so nothing happens that
allocate would undo in the next cycle.  A victim that gets its old place again is kept and never notices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pykai.core.cycle.cyclegangs import CycleGangs
from pykai.core.cycle.departures import Departures
from pykai.core.cycle.gangs import Batch, Gang
from pykai.core.cycle.queuewalk import GangLine, QueueWalk, WalkStart
from pykai.core.cycle.state import State
from pykai.core.eviction.balance import free_amounts
from pykai.core.eviction.tables import EvictionTables
from pykai.core.eviction.units import EvictableTask
from pykai.core.eviction.waitinglines import EMPTY_LINE, TrialLine, WaitingLine, WaitingLines
from pykai.core.hooks import ALL_NODES, Loss, NodeSet
from pykai.core.model.axes import BoolArray
from pykai.core.model.queuetree import QueueAmounts
from pykai.core.model.status import TaskStatus
from pykai.core.placing.gang import GangPlacer


class Victim(NamedTuple):
    """A task of a set, with its gang."""

    gang: Gang
    member: EvictableTask


class Preemptor(NamedTuple):
    """The preemptor, with the tasks to place now."""

    gang: Gang
    batches: list[Batch]
    #: what they request of their queue
    required: QueueAmounts
    #: [node] where victims that need no GPU may go; None = anywhere (cycle:SOL-4)
    feasible: BoolArray | None
    #: the waiting gangs before the trial
    waiting_lines: WaitingLines


class LookAhead(NamedTuple):
    """What the next cycle has beside the preemptor and its victims."""

    #: waiting gangs that take part, because they could settle where the victims were
    rivals: Mapping[str, Gang]
    #: gang -> how many of its tasks are lost for good; the other victims have to be placed again
    losing: Counter[str]


class _TrialLines(dict[int, GangLine]):
    """The lines of a trial by leaf, made when they are read."""

    def __init__(
        self,
        gangs: CycleGangs,
        waiting: Mapping[int, WaitingLine],
        participants: Mapping[int, dict[str, Gang]],
        requests: dict[str, QueueAmounts],
    ) -> None:
        super().__init__()
        self._gangs = gangs
        self._waiting = waiting
        self._participants = participants
        self._requests = requests

    def __missing__(self, leaf: int) -> GangLine:
        line = self[leaf] = TrialLine(
            self._gangs, self._waiting.get(leaf, EMPTY_LINE), self._participants.get(leaf, {}), self._requests
        )
        return line

    def open(self, leaf: int) -> None:
        """Make the line of a leaf."""
        self[leaf]


class TrialRunner:
    """Tries sets of victims in the journal."""

    __slots__ = ("_gangs", "_placer", "_state", "_tables")

    def __init__(self, gangs: CycleGangs, placer: GangPlacer, tables: EvictionTables) -> None:
        self._state = tables.state
        self._gangs = gangs
        self._placer = placer
        self._tables = tables

    def fits_in_next_cycle(
        self, preemptor: Preemptor, victims: list[Victim], losses: list[tuple[Gang, list[Loss]]]
    ) -> bool:
        """Whether the preemptor, and all victims that are to move, would fit again once the victims are gone.

        In a trial a victim avoids the place it is leaving, because that is not idle yet.  When it comes back the place
        is idle, and if it then prefers it, the move was useless and would be repeated forever, or another one that
        moves finds its own place taken.  Nor may a gang too large for what is free settle where the movers were before
        they come back.
        """
        rivals: dict[str, Gang] = {}
        free = free_amounts(self._state)
        if _exceeds(self._tables.waiting_lines().largest_request(), free):
            departures = self._tables.departures()
            keys = {victim.member.task.key for victim in victims}
            at_once = departures.are_exact and not departures.concern(keys)
            rivals = self._rivals(victims, free, departures if at_once else None)
            if rivals and at_once:
                self._state.depart(departures.apply)
                rivals |= departures.gangs
            elif rivals:
                rivals |= self._assume_all_gone(keys)
        return self.run(preemptor, victims, LookAhead(rivals, _losing_tasks(losses)))

    def order_if_first(
        self, preemptor: Preemptor, victims: list[Victim], losses: list[tuple[Gang, list[Loss]]]
    ) -> list[str] | None:
        """The order in which the preemptor and all that move fit in the next cycle if it serves them before all others,
        a step each; None if they do not fit (cycle:SOL-17).

        Where other decisions of this cycle wait for room, they could lose it: then no gang goes first.
        """
        if not self._tables.departures().is_empty:
            return None
        losing = _losing_tasks(losses)
        movers = {key: gang for key, gang in self._evict(victims, gone=True).items() if self._moves(gang, losing)}
        if not self._placer.try_place_tasks(preemptor.gang, preemptor.batches, pipeline_only=False):
            return None
        order, walk = [preemptor.gang.key], self._trial_walk(preemptor, movers)
        while movers and (gang := walk.pop()) is not None:
            if gang.key not in movers:
                continue
            batches = self._gangs.next_tasks(gang)
            if not batches or not self._placer.try_place_tasks(gang, batches, pipeline_only=False):
                return None
            order.append(gang.key)
            if self._moves(gang, losing):
                walk.push(gang)
            else:
                del movers[gang.key]
        return order

    def _moves(self, gang: Gang, losing: Counter[str]) -> bool:
        """Whether some task of a victim is to be placed again and is not yet."""
        return self._unplaced_victims(gang) > losing[gang.key]

    def _evict(self, victims: Iterable[Victim], *, gone: bool) -> dict[str, Gang]:
        """Evict victims, and look ahead to when they have left; returns their gangs."""
        state = self._state
        gangs: dict[str, Gang] = {}
        for victim, member in victims:
            state.work += 1
            state.evict(victim, member.leaf, member.task)
            if gone and member.task.key in state.evicted_from:
                state.assume_gone(victim, member.leaf, member.task)
            gangs[victim.key] = victim
        return gangs

    def _rivals(self, victims: list[Victim], free: QueueAmounts, departures: Departures | None) -> dict[str, Gang]:
        """Waiting gangs that request more of something than is free, but no more than will be free during the moves.

        `departures` are those of the state, None where they are not exact.
        """
        state = self._state
        later = list(free)
        for _, member in victims:
            _add(later, member.amounts)
        if departures is not None:
            _add(later, departures.pipelined)
        else:
            tasks = state.snapshot.read_running().tasks
            for key, placement in state.placements.items():
                if placement.status is TaskStatus.PIPELINED:
                    _add(later, state.amounts_on(tasks[key].shape, placement.row))
        return {
            gang.key: gang
            for line in self._tables.waiting_lines().lines.values()
            for gang, request in zip(line.gangs, line.requests, strict=True)
            if _exceeds(request, free)
            and not _exceeds(request, later)
            and not gang.unsupported
            and not gang.group.tree_error
        }

    def _assume_all_gone(self, victims: set[str]) -> dict[str, Gang]:
        """Look ahead: every evicted task is gone, and nothing is pipelined; returns the affected gangs.

        The victims of the trial itself are handled by the trial.
        """
        state, snapshot = self._state, self._state.snapshot
        gangs: dict[str, Gang] = {}
        for key, placement in list(state.placements.items()):
            if key in victims or (placement.status is not TaskStatus.PIPELINED and key not in state.evicted_from):
                continue
            running = snapshot.read_running()
            task = running.tasks[key]
            entry = running.groups[task.group_key]
            gang = self._gangs.gang(entry)
            leaf = gang.leaves[gang.group.leaf_index[task.subgroup]]
            if placement.status is TaskStatus.PIPELINED:
                state.evict(gang, leaf, task)
            if key in state.evicted_from:
                state.assume_gone(gang, leaf, task)
            gangs[gang.key] = gang
        return gangs

    def run(
        self,
        preemptor: Preemptor,
        victims: list[Victim],
        look_ahead: LookAhead | None = None,
    ) -> bool:
        """Evict, and serve victims and preemptor again; False if the preemptor does not fit.

        With `look_ahead` the next cycle is tried: victims have left and all gangs start again, rivals too, and False if
        one that moves does not fit.  It is no fault of the move if a rival that is served before it takes the place.
        The caller has set a mark and rolls back.

        Statements: topo:T-50, T-51.
        """
        next_cycle = look_ahead is not None
        rivals = {} if look_ahead is None else look_ahead.rivals
        gangs = self._evict(victims, gone=next_cycle)
        rows = {victim.member.row for victim in victims}
        if self._placer.exceeds_quota(preemptor.gang, preemptor.batches):
            # A gang that is served before it leaves it even less.
            return False
        # The next cycle will not know why they have come.
        nodes = None if next_cycle else _nodes_for_cpu_victims(preemptor, rows)

        #: leaf -> participants that are still to be served
        outstanding = Counter(gang.queue for gang in {**gangs, preemptor.gang.key: preemptor.gang}.values())
        walk = self._trial_walk(preemptor, {**rivals, **gangs})
        rival_served = False
        while outstanding and (gang := _next_gang(walk, outstanding, rivals)) is not None:
            takes_part = gang is preemptor.gang or gang.key in gangs
            if takes_part:
                outstanding[gang.queue] -= 1
                if not outstanding[gang.queue]:
                    del outstanding[gang.queue]
            if gang is preemptor.gang:
                if not self._placer.try_place_tasks(gang, preemptor.batches, pipeline_only=not next_cycle):
                    return False
                continue
            batches = self._gangs.next_tasks(gang)
            where = nodes if nodes is not None and batches and batches[0].tasks[0].shape.cpu_only else ALL_NODES
            placed = bool(batches) and self._placer.try_place_tasks(gang, batches, where, pipeline_only=not next_cycle)
            unplaced = self._unplaced_victims(gang)
            if placed and unplaced:
                # An elastic victim may get back more than one pod (cycle:SOL-14, Do better).
                walk.push(gang)
                if takes_part:
                    outstanding[gang.queue] += 1
            elif look_ahead is not None and not rival_served and unplaced > look_ahead.losing[gang.key]:
                return False
            rival_served |= placed and not takes_part
        return True

    def _unplaced_victims(self, gang: Gang) -> int:
        """How many victims of a gang are not placed yet."""
        return sum(self._state.is_unplaced(task) for leaf in gang.leaves for task in leaf.evicted)

    def _trial_walk(self, preemptor: Preemptor, victims: dict[str, Gang]) -> QueueWalk:
        """The fair order of the participants."""
        gangs, tree = self._gangs, self._state.snapshot.tree
        waiting = preemptor.waiting_lines.lines
        requests = {preemptor.gang.key: preemptor.required}
        by_leaf: dict[int, dict[str, Gang]] = {}
        for gang in {**victims, preemptor.gang.key: preemptor.gang}.values():
            by_leaf.setdefault(gang.queue, {})[gang.key] = gang
        leaves = list(by_leaf)
        if len(leaves) == 1:
            # Queues need not be compared, and gangs that do not take part are skipped.
            return gangs.queue_walk({leaf: TrialLine(gangs, EMPTY_LINE, by_leaf[leaf], requests) for leaf in leaves})
        top = _common_ancestor(tree.chains, leaves)
        lines = _TrialLines(gangs, waiting, by_leaf, requests)
        sides = {_side(tree.chains[leaf], top) for leaf in leaves}
        ranks = preemptor.waiting_lines.ranks
        if ranks is not None:
            # Only the queues of participants have other figures than before the trial.
            return gangs.queue_walk(lines, WalkStart(top, ranks, sides, leaves))
        for leaf in _relevant_leaves(tree.chains, leaves, top, sides, waiting):
            lines.open(leaf)
        return gangs.queue_walk(lines, WalkStart(top))


def _losing_tasks(losses: list[tuple[Gang, list[Loss]]]) -> Counter[str]:
    return Counter({gang.key: sum(not loss.moves for loss in found) for gang, found in losses})


def _exceeds(request: QueueAmounts, bound: Sequence[float]) -> bool:
    """Whether a request is larger than a bound in some resource."""
    return request[0] > bound[0] or request[1] > bound[1] or request[2] > bound[2]


def _add(sums: list[float], amounts: QueueAmounts) -> None:
    for resource, amount in enumerate(amounts):
        sums[resource] += amount


def _common_ancestor(chains: list[tuple[int, ...]], leaves: list[int]) -> int:
    """The lowest queue above all of these, -1 if there is none."""
    common = set(chains[leaves[0]])
    for leaf in leaves[1:]:
        common &= set(chains[leaf])
    return next((row for row in chains[leaves[0]] if row in common), -1)


def _side(chain: tuple[int, ...], top: int) -> int:
    """The child of `top` that a leaf below it belongs to."""
    return chain[-1] if top < 0 else chain[chain.index(top) - 1]


def _relevant_leaves(
    chains: list[tuple[int, ...]], leaves: list[int], top: int, sides: set[int], waiting: Iterable[int]
) -> list[int]:
    """Leaves whose lines decide who of these is served first: themselves, and others below the same sides of `top`."""
    others = [leaf for leaf in waiting if (top < 0 or top in chains[leaf]) and _side(chains[leaf], top) in sides]
    return sorted({*leaves, *others})


def _next_gang(walk: QueueWalk, outstanding: Counter[int], rivals: Mapping[str, Gang]) -> Gang | None:
    """The gang to serve next; where one leaf is left that changes anything, no other is walked."""
    if len(outstanding) == 1 and not rivals:
        return walk.pop_from(next(iter(outstanding)))
    return walk.pop()


def _nodes_for_cpu_victims(preemptor: Preemptor, rows: set[int]) -> NodeSet | None:
    if preemptor.feasible is None:
        return None
    mask = preemptor.feasible.copy()
    mask[sorted(rows)] = True
    return NodeSet(mask)


def losses_of(state: State, victims: Iterable[Victim]) -> list[tuple[Gang, list[Loss]]]:
    """What the victims lose after all gangs were served; victims that are kept lose nothing."""
    losses_by_gang: dict[str, tuple[Gang, list[Loss]]] = {}
    for gang, member in victims:
        if member.task.key not in state.evicted_from and state.status_of(member.task) is not TaskStatus.PENDING:
            continue
        moves = state.status_of(member.task) is TaskStatus.PIPELINED
        losses_by_gang.setdefault(gang.key, (gang, []))[1].append(Loss(member.leaf, member.task, member.amounts, moves))
    for gang, losses in losses_by_gang.values():
        losses.sort(key=lambda loss: gang.task_key(loss.task))
    return list(losses_by_gang.values())
