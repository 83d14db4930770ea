"""Whatever the cluster: a whole cycle overdraws nothing, keeps gangs whole, and evicts only evictable pods.

Everything is judged from the plan and the raw objects by `Model`, which shares nothing with the engine.
"""

from __future__ import annotations

from collections import Counter
from math import inf
from random import Random
from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from pykai.core.opencycle import Cycle
from pykai.core.report.decisions import Bind, Evict, Nominate, Plan
from tests.core.builders import Cluster, cluster
from tests.property.clustermodel import Model, minimums, satisfied
from tests.property.clusters import ACTIONS, tight_clusters
from tests.property.drawnkinds import CLUSTER_KINDS, DRAWN, PLAN_KINDS, kinds_of, outcomes_of

EXAMPLES = settings(max_examples=70, deadline=None)


def _key(item: Bind | Nominate | Evict) -> str:
    return f"{item.namespace}/{item.pod}"


def _placed(plan: Plan) -> list[Bind | Nominate]:
    return [*plan.binds, *plan.nominations]


def _cycle(built: Cluster) -> tuple[Plan, Model]:
    plan, model = built.schedule().plan, Model(built.objects)
    DRAWN.update(kinds_of(model) | outcomes_of(plan))
    return plan, model


def test_clusters_and_plans_of_every_kind_are_drawn() -> None:
    """The tests below are worth no more than what they are shown."""
    seen: Counter[str] = Counter()

    @settings(max_examples=300, deadline=None, database=None, derandomize=True, phases=[Phase.generate])
    @given(tight_clusters())
    def look(built: Cluster) -> None:
        plan = built.schedule().plan
        seen.update(kinds_of(Model(built.objects)) | outcomes_of(plan))

    look()
    assert not [kind for kind in (*CLUSTER_KINDS, *PLAN_KINDS) if not seen[kind]], seen


@EXAMPLES
@given(tight_clusters())
def test_nothing_is_overdrawn_at_any_point(built: Cluster) -> None:
    """What starts now fits beside all that is still there, evicted or not; pipelined pods fit once those
    that leave are gone."""
    plan, model = _cycle(built)
    evicted = {_key(item) for item in plan.evictions}
    now = model.nodes_after(plan.binds, with_leaving=True)
    later = model.nodes_after(_placed(plan), with_leaving=False, without=evicted)
    for bind in plan.binds:
        assert now[bind.node].within_capacity(), now[bind.node]
    for item in _placed(plan):
        assert later[item.node].within_capacity(), later[item.node]


@EXAMPLES
@given(tight_clusters())
def test_every_pod_is_on_one_node(built: Cluster) -> None:
    """A pod starts, is pipelined, or stays; only one that is evicted has two nodes: the old and the
    nominated."""
    plan, model = _cycle(built)
    evicted = {_key(item): item for item in plan.evictions}
    placed = {_key(item): item for item in _placed(plan)}
    assert len(evicted) == len(plan.evictions)
    assert len(placed) == len(_placed(plan))
    for key in placed:
        assert model.pods[key].state == "pending" or key in evicted
    for key, item in evicted.items():
        assert item.node == model.pods[key].node
        promise = placed.get(key)
        assert item.moves_to == (promise.node if promise is not None else "")
        assert promise is None or isinstance(promise, Nominate), "it must leave before it can start elsewhere"


@EXAMPLES
@given(tight_clusters())
def test_limits_hold_at_every_level(built: Cluster) -> None:
    """A queue that has more than before is within its limit."""
    plan, model = _cycle(built)
    before, after = model.spent(None, committed=False), model.spent(plan, committed=False)
    for name, queue in model.queues.items():
        for had, has, bound in zip(before[name], after[name], queue.limit, strict=True):
            assert bound == -1 or has <= had or has <= bound + 1e-9, (name, had, has, bound)


def _half_evicted() -> Cluster:
    """A gang of which one pod would have to move for two of the preemptor's pods, and all go for three."""
    built = (
        cluster().with_actions(*ACTIONS).queue("q").priority_class("low", 10).node("wide", cpu=3).node("short", pods=2)
    )
    built.group("victim", minMember=3, priorityClassName="low", preemptibility="preemptible")
    for index, node in enumerate(("wide", "wide", "short")):
        built.pod(f"victim-{index}", group="victim", on=node)
    return built.gang("preemptor", 3)


@EXAMPLES
@example(_half_evicted())
@given(tight_clusters())
def test_pg13_gangs_are_whole_or_gone(built: Cluster) -> None:
    """cycle:PG-13: a group that was whole stays whole or loses everything, and a subgroup that loses something keeps
    its minimum or nothing."""
    plan, model = _cycle(built)
    evicted = {_key(item) for item in plan.evictions}
    placed = Counter((item.group, model.pods[_key(item)].leaf) for item in _placed(plan))
    for group, raw in model.groups.items():
        spec, running = raw["spec"], model.active(group)
        before = Counter(pod.leaf for pod in running)
        lost = Counter(pod.leaf for pod in running if pod.key in evicted)
        after = Counter({leaf: before[leaf] - lost[leaf] + placed[group, leaf] for leaf in minimums(spec)})
        for leaf, minimum in minimums(spec).items():
            if lost[leaf] or placed[group, leaf]:
                assert after[leaf] >= minimum or not after[leaf], (group, leaf, before, after)
        if satisfied(spec, before) or any(item.group == group for item in _placed(plan)):
            assert satisfied(spec, after) or not +after, (group, before, after)


@EXAMPLES
@given(tight_clusters())
def test_alc5_a_gang_never_starts_in_parts(built: Cluster) -> None:
    """cycle:ALC-5, also when later actions take back what allocate gave."""
    plan, model = _cycle(built)
    for group in {bind.group for bind in plan.binds}:
        started = Counter(model.pods[_key(bind)].leaf for bind in plan.binds if bind.group == group)
        before = Counter(pod.leaf for pod in model.active(group))
        assert satisfied(model.groups[group]["spec"], before + started), (group, before, started)


@EXAMPLES
@given(tight_clusters())
def test_pol2_only_evictable_pods_are_evicted(built: Cluster) -> None:
    """cycle:POL-2, STL-5; queues:Q-85, Q-285, Q-415."""
    plan, model = _cycle(built)
    for item in plan.evictions:
        pod = model.pods[_key(item)]
        assert pod.active, "only what runs can be evicted"
        if item.action == "stalegangeviction":
            counts = Counter(other.leaf for other in model.pods.values() if other.group == pod.group and other.node)
            assert not satisfied(model.groups[pod.group]["spec"], counts)
            assert not item.preemptor
            continue
        assert pod.key not in model.protected(pod.group)
        mine, theirs = model.queue(item.preemptor), model.queue(pod.group)
        assert pod.group != item.preemptor
        if item.action == "preempt":
            assert mine == theirs
            assert model.priority(pod.group) < model.priority(item.preemptor)
        elif item.action == "reclaim":
            assert mine != theirs
        else:
            assert item.action == "consolidation"
            assert model.preemptible(item.preemptor)
            assert item.moves_to, "consolidation takes nothing for good"


@EXAMPLES
@given(tight_clusters())
def test_sol16_every_eviction_serves_a_gang(built: Cluster) -> None:
    """cycle:SOL-16: a group with victims is pipelined onto a node of one of them, and is whole with it."""
    plan, model = _cycle(built)
    promised = Counter(item.group for item in plan.nominations)
    for item in plan.evictions:
        if not item.preemptor or promised[item.preemptor]:
            continue
        # A nomination can be revoked without an eviction, so every group that has one may have revoked it.
        takers = promised.keys() - {item.preemptor}
        highest = max((model.priority(taker) for taker in takers), default=-1)
        assert highest > model.priority(item.preemptor), "its nomination may only be lost to work of higher priority"


@EXAMPLES
@given(tight_clusters(), st.data())
def test_the_order_of_the_objects_is_irrelevant(built: Cluster, data: st.DataObject) -> None:
    expected = built.schedule().plan.encoded()
    built.objects = data.draw(st.permutations(built.objects))
    assert built.schedule().plan.encoded() == expected


def _content(cycle: Cycle) -> tuple[Any, ...]:
    """Everything a trial changes, in a form that compares byte by byte."""
    state = cycle.state
    gangs = [
        cycle.gangs.gang(entry) for entry in cycle.context.snapshot.group_entries.values() if entry.group is not None
    ]
    counters = [
        (gang.key, gang.unplaced, gang.pipelined, leaf.name)
        + (leaf.active_allocated, leaf.active_used, leaf.pipelined, leaf.unplaced, leaf.alive)
        + tuple(sorted(task.key for task in leaf.evicted))
        for gang in gangs
        for leaf in gang.leaves
    ]
    chosen = [[task.key for batch in cycle.gangs.next_tasks(gang) for task in batch.tasks] for gang in gangs]
    return (
        state.columns.tobytes(),
        {row: dict(devices) for row, devices in state.devices.items()},
        {row: dict(ports) for row, ports in state.ports.items()},
        {row: dict(ports) for row, ports in state.terminating_ports.items()},
        [list(row) for row in state.ledger.allocated],
        [list(row) for row in state.ledger.allocated_non_preemptible],
        dict(state.placements),
        dict(state.evicted_from),
        set(state.protected_keys),
        state.version,
        counters,
        chosen,
    )


def _disturb(cycle: Cycle, dice: Random, steps: int) -> None:
    """Evict, keep, move and place at random, as trials do."""
    state = cycle.state
    gangs = [
        cycle.gangs.gang(entry) for entry in cycle.context.snapshot.group_entries.values() if entry.group is not None
    ]
    for _ in range(steps):
        gang = dice.choice(gangs)
        active = [task for tasks in gang.active_tasks(state.status_of).values() for task in tasks]
        # Non-preemptible work is never evicted.
        fixed = gang.protected_keys | state.protected_keys
        active = [task for task in active if gang.preemptible or (gang.semi_preemptible and task.key not in fixed)]
        if active and dice.random() < 0.5:
            task = dice.choice(active)
            state.evict(gang, gang.leaves[gang.group.leaf_index[task.subgroup]], task)
        elif dice.random() < 0.3 and any(leaf.evicted for leaf in gang.leaves):
            leaf = dice.choice([leaf for leaf in gang.leaves if leaf.evicted])
            back = [task for task in leaf.evicted if state.is_unplaced(task)]
            if back:
                state.cancel_eviction(gang, leaf, dice.choice(back))
        else:
            batches = cycle.gangs.next_tasks(gang)
            if batches:
                cycle.placer.try_place_tasks(gang, batches)


@EXAMPLES
@given(tight_clusters(), st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 12))
def test_stm5_undo_restores_every_byte(built: Cluster, seed: int, first: int, second: int) -> None:
    """cycle:STM-5: marks nest, and a rollback leaves nothing behind."""
    cycle, dice = built.cycle(), Random(seed)
    state = cycle.state
    outer, before = state.mark(), _content(cycle)
    _disturb(cycle, dice, first)
    inner, between = state.mark(), _content(cycle)
    _disturb(cycle, dice, second)
    state.rollback(inner)
    assert _content(cycle) == between
    state.rollback(outer)
    assert _content(cycle) == before


@pytest.mark.parametrize("reuse_failures", [True, False])
def test_sig2_identical_jobs_get_equal_results_with_and_without_signatures(reuse_failures: bool) -> None:
    """cycle:SIG-2."""

    @settings(max_examples=60, deadline=None)
    @given(tight_clusters(most_waiting=1), st.integers(1, 3))
    def compare(built: Cluster, copies: int) -> None:
        for raw in [raw for raw in built.objects if raw["metadata"]["name"].startswith("wait")]:
            for number in range(copies):
                twin = {**raw, "metadata": {**raw["metadata"]}}
                for field in ("name", "uid"):
                    twin["metadata"][field] = f"{raw['metadata'][field]}-twin{number}"
                if raw["kind"] == "Pod":
                    group = f"{raw['metadata']['annotations']['pod-group-name']}-twin{number}"
                    twin["metadata"]["annotations"] = {**raw["metadata"]["annotations"], "pod-group-name": group}
                built.add(twin)
        plan = built.schedule().plan
        other = built.with_policy(reuse_failures=not reuse_failures).schedule().plan
        assert (plan.binds, plan.nominations, plan.evictions) == (other.binds, other.nominations, other.evictions)

    compare()


def _diverging(model: Model, mine: str, theirs: str) -> tuple[str, str]:
    """The two queues at the first level, from the top, where the paths differ."""
    pairs = zip(reversed(model.chain(mine)), reversed(model.chain(theirs)), strict=False)
    return next(pair for pair in pairs if pair[0] != pair[1])


@settings(max_examples=120, deadline=None)
@given(tight_clusters())
def test_q270_reclaim_takes_only_from_queues_above_their_share(built: Cluster) -> None:
    """queues:11.1, 11.3: the reclaimer ends within its fair share, and every side that loses was over its share, or
    over its quota while the reclaimer stays within its own, until the last part was taken."""
    built.with_actions("reclaim")
    plan, model = _cycle(built)
    preemptors = {item.preemptor for item in plan.evictions}
    if len(preemptors) != 1:
        return
    (reclaimer,) = preemptors
    rooms, figures = model.empty_nodes(), {queue.name: queue for queue in plan.queues}
    before = model.spent(None, committed=False)
    own = model.queue(reclaimer)
    asked = [model.pods[_key(item)].ask for item in plan.nominations if item.group == reclaimer]
    if any(ask.gpu_memory for ask in asked):
        # What such a pod costs depends on where it goes.
        return
    wanted = (sum(1000 * ask.cpu for ask in asked), sum(ask.hundredths(next(iter(rooms.values()))) for ask in asked))

    def bound(name: str, kind: str) -> tuple[float, float]:
        cpu, _, gpu = getattr(figures[name], kind)
        return cpu, 100 * gpu

    for have, more, most in zip(before[own], wanted, bound(own, "fair_share"), strict=True):
        assert have + more <= most + 1e-6
    #: side -> group -> what it loses
    lost: dict[str, dict[str, list[int]]] = {}
    sides: dict[str, str] = {}
    for item in plan.evictions:
        if not item.moves_to:
            pod = model.pods[_key(item)]
            mine, theirs = _diverging(model, own, model.queue(pod.group))
            sides[theirs] = mine
            part = lost.setdefault(theirs, {}).setdefault(pod.group, [0, 0])
            part[0] += 1000 * pod.ask.cpu
            part[1] += pod.ask.hundredths(rooms[pod.node])
    for theirs, parts in lost.items():
        mine_has, quota_of_mine = before[sides[theirs]], bound(sides[theirs], "quota")
        deserved = all(mine_has[index] + wanted[index] <= quota_of_mine[index] + 1e-6 for index in range(2))
        quota, share, limit = (bound(theirs, kind) for kind in ("quota", "fair_share", "limit"))
        fair = [limit[i] if quota[i] == inf else min(max(quota[i], share[i]), limit[i]) for i in range(2)]
        left = [before[theirs][i] - sum(part[i] for part in parts.values()) for i in range(2)]
        # Some group could have been the last to lose, its side still being over then.
        assert any(
            left[i] + part[i] > fair[i] or (deserved and left[i] + part[i] > quota[i])
            for part in parts.values()
            for i in range(2)
        ), (theirs, before[theirs], quota, share, parts)
