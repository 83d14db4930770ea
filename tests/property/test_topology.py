"""Whatever the topologies: a required level is kept, a placement that exists is found, undo leaves no trace."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from random import Random

import msgspec
import numpy as np
from hypothesis import given, note, settings
from hypothesis import strategies as st

from pykai.api.decode import decode_object
from pykai.core.cycle.cyclegangs import total_amounts
from pykai.core.eviction.bounds import FreedCapacity
from pykai.core.eviction.freegpus import feasible_nodes
from pykai.core.eviction.trial import Preemptor, Victim
from pykai.core.hooks import ALL_NODES, NoNodeSets
from pykai.core.placing.topology import topology_tree
from pykai.core.plan import build_plan
from pykai.core.report.decisions import Bind, DomainSearchStopped, Nominate, Plan
from pykai.dev.cases import Case, Cycles
from pykai.dev.conformance import CaseRun
from tests.core.builders import Cluster, Raw, timestamp_before
from tests.core.cycle.test_state import content
from tests.property.drawnkinds import DRAWN
from tests.property.topologies import (
    Constraint,
    GangProblem,
    add_job,
    busy_clusters,
    gang_problems,
    mixed_gang,
    required_constraints,
)


@settings(max_examples=150, deadline=None)
@given(gang_problems())
def test_a_placement_that_exists_is_found_or_a_budget_is_named(problem: GangProblem) -> None:
    """topo:TD-5, TD-6, TD-13, T-37, T-38: compared with every way to spread the pods over the nodes."""
    result = problem.built.schedule()
    placed = result.bound("job") + result.pipelined("job")
    solvable = problem.solvable()
    DRAWN.update(problem.kinds)
    record = result.unscheduled("job")
    spent = record is not None and any(isinstance(refusal, DomainSearchStopped) for refusal in record.refusals)
    DRAWN["budget spent" if spent else "placed" if placed else "no placement"] += 1
    note(f"{result.why('job')}")
    assert placed in (0, sum(problem.sizes.values()))
    assert solvable or not placed
    assert placed or spent or not solvable


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**63 - 1))
def test_a_rack_that_would_hold_a_gang_of_different_pods_is_never_ruled_out(seed: int) -> None:
    """topo:TD-5, TD-13, TD-14: if its pods find places in a rack they select, they find places in some rack."""

    def placed(built: Cluster) -> bool:
        result = built.schedule()
        return result.bound("job") + result.pipelined("job") > 0

    possible = any(placed(mixed_gang(seed, {}, rack)) for rack in ("r0", "r1", "r2"))
    assert placed(mixed_gang(seed, Constraint("net", "rack").spec())) == possible


# Required levels over many cycles


def _is_there(raw: Raw) -> bool:
    return "nodeName" in raw["spec"] and "deletionTimestamp" not in raw["metadata"]


def _group_of(raw: Raw) -> str:
    return f"default/{raw['metadata']['annotations']['pod-group-name']}"


def _check_levels(run: CaseRun, built: Cluster, plan: Plan, before: dict[str, Raw]) -> None:
    """After a cycle every required level is kept, by running and by pipelined pods."""
    labels = {raw["metadata"]["name"]: raw["metadata"]["labels"] for raw in built.objects if raw["kind"] == "Node"}
    gone = {f"{item.namespace}/{item.pod}" for item in plan.evictions}
    nodes = {key: raw["spec"]["nodeName"] for key, raw in before.items() if _is_there(raw) and key not in gone}
    placed: list[Bind | Nominate] = [*plan.binds, *plan.nominations]
    nodes |= {f"{item.namespace}/{item.pod}": item.node for item in placed}
    for kept in required_constraints(built.objects):
        used = [
            labels[node]
            for key, node in nodes.items()
            if _group_of(run.pods[key]) == kept.group
            and run.pods[key]["metadata"]["labels"].get("kai.scheduler/subgroup-name", "") in kept.leaves
        ]
        assert kept.wish.holds(used), (kept, nodes)


def _restart(run: CaseRun, dice: Random) -> bool:
    """A few running pods end, and their owners recreate them."""
    running = sorted(key for key, raw in run.pods.items() if _is_there(raw))
    for key in running:
        if dice.randrange(3) == 0:
            raw = run.pods[key]
            spec = {name: value for name, value in raw["spec"].items() if name != "nodeName"}
            labels = {k: v for k, v in raw["metadata"]["labels"].items() if not k.startswith("runai-gpu-group")}
            meta = {**raw["metadata"], "labels": labels}
            run.pods[key] = {**raw, "metadata": meta, "spec": spec, "status": {"phase": "Pending"}}
            run.tables.apply(decode_object(run.pods[key]))
    return bool(running)


def _arrive(run: CaseRun, built: Cluster, dice: Random, name: str) -> None:
    """One more group."""
    known = len(built.objects)
    add_job(dice, built, name, ["q0", "q1"])
    for raw in built.objects[known:]:
        if raw["kind"] == "Pod":
            run.pods[f"default/{raw['metadata']['name']}"] = raw
        run.tables.apply(decode_object(raw))


@settings(max_examples=45, deadline=None)
@given(busy_clusters(), st.integers(0, 2**32), st.integers(2, 6))
def test_a_required_level_is_never_broken(built: Cluster, seed: int, steps: int) -> None:
    """topo:T-25, T-37, T-51, TD-3: gangs grow, lose pods, are evicted and moved, and others come."""
    run = CaseRun(
        Case(id="drawn", now=timestamp_before(0), objects=built.objects, expect={}, cycles=Cycles()), validate=True
    )
    for step in range(steps):
        dice = Random(f"{seed} {step}")
        before = dict(run.pods)
        plan = build_plan(run.step())
        _check_levels(run, built, plan, before)
        there = {_group_of(raw) for raw in before.values() if _is_there(raw)}
        keeping = {kept.group for kept in required_constraints(built.objects)}
        words = {
            "grown": any(bind.group in there & keeping for bind in plan.binds),
            "domain emptied for": any(item.preemptor in keeping for item in plan.evictions),
            "keeper evicted": any(item.group in keeping for item in plan.evictions),
            "keeper moved": any(item.group in keeping and item.moves_to for item in plan.evictions),
        }
        DRAWN.update(word for word, true in words.items() if true)
        if dice.randrange(3) == 0:
            DRAWN["restarted"] += _restart(run, dice)
        if dice.randrange(2) == 0:
            _arrive(run, built, dice, f"late{step}")


@settings(max_examples=18, deadline=None)
@given(busy_clusters(), st.integers(0, 2**32))
def test_every_cluster_with_topologies_converges(built: Cluster, seed: int) -> None:
    """cycle:23, SOL-12: evictions and moves because of domains come to an end."""
    run = CaseRun(
        Case(id="drawn", now=timestamp_before(0), objects=built.objects, expect={}, cycles=Cycles()), validate=True
    )
    run.step()
    _arrive(run, built, Random(seed), "late")
    plans = [build_plan(run.step()) for _ in range(12)]
    assert not any(plan.evictions or plan.binds for plan in plans[-2:])


# Undo, order, memory


@settings(max_examples=80, deadline=None)
@given(busy_clusters(), st.data())
def test_undo_restores_every_byte(built: Cluster, data: st.DataObject) -> None:
    """cycle:STM-5 with node sets: attempts in any order, some kept, some undone."""
    cycle = built.cycle()
    state = cycle.state
    for gang in data.draw(st.permutations(list(cycle.gangs.waiting()))):
        before, version, mark = content(cycle), state.version, state.mark()
        if data.draw(st.booleans()):
            batches = cycle.gangs.next_tasks(gang)
            held = bool(batches) and cycle.placer.try_place_tasks(gang, batches)
        else:
            held = cycle.placer.place_gang(gang)
        if not held:
            assert content(cycle) == before, "a failed attempt leaves nothing behind"
        elif data.draw(st.booleans()):
            state.commit(mark)
            continue
        state.rollback(mark)
        assert content(cycle) == before
        assert state.version == version


@settings(max_examples=30, deadline=None)
@given(busy_clusters(), st.data())
def test_the_order_of_the_objects_is_irrelevant(built: Cluster, data: st.DataObject) -> None:
    """cycle:23: nodes, topologies and groups in any order."""
    expected = built.schedule().plan.encoded()
    built.objects = data.draw(st.permutations(built.objects))
    assert built.schedule().plan.encoded() == expected


@settings(max_examples=30, deadline=None)
@given(busy_clusters(most_jobs=8))
def test_signatures_change_nothing_but_the_work(built: Cluster) -> None:
    """topo:T-55: gangs with other constraints are other gangs."""
    built.with_actions("allocate")
    quick = built.schedule().plan
    slow = built.with_policy(reuse_failures=False).schedule().plan
    assert quick.work <= slow.work
    assert msgspec.structs.replace(quick, work=slow.work).encoded() == slow.encoded()


# Sums and sets


@settings(max_examples=40, deadline=None)
@given(busy_clusters(), st.data())
def test_sums_by_domain_are_those_of_its_nodes(built: Cluster, data: st.DataObject) -> None:
    """topo:TD-8: with the matrix of a small tree, and level by level as in a large one."""
    snapshot = built.cycle().context.snapshot
    size = len(snapshot.nodes)
    column = np.array(data.draw(st.lists(st.integers(-9, 2**40), min_size=size, max_size=size)), dtype=np.int64)
    for name in snapshot.topologies:
        tree = topology_tree(snapshot, name)
        assert tree is not None
        rows = np.array([row for row in range(size) if tree.member[row] and data.draw(st.booleans())], dtype=np.int64)
        expected = [
            sum(int(column[row]) for row in rows if domain in tree.codes[:, row]) for domain in range(len(tree))
        ]
        assert tree.inside is not None
        assert tree.sums_by_domain(column, rows).tolist() == expected
        assert replace(tree, inside=None).sums_by_domain(column, rows).tolist() == expected


@settings(max_examples=30, deadline=None)
@given(busy_clusters())
def test_equal_searches_offer_the_same_sets(built: Cluster) -> None:
    """topo:T-34: so that what is cached for a set of nodes is found again."""
    cycle = built.cycle()
    for gang in cycle.gangs.waiting():
        tasks = [task for batch in cycle.gangs.next_tasks(gang) for task in batch.tasks]
        for make in cycle.context.rules.node_set_makers(gang) if tasks else ():
            first, again = (make(cycle.state, gang, gang.root, tasks, ALL_NODES) for _ in range(2))
            if not isinstance(first, NoNodeSets) and not isinstance(again, NoNodeSets):
                assert [id(found) for found in list(first)] == [id(found) for found in list(again)]


# Bounds


@settings(max_examples=12, deadline=None)
@given(busy_clusters(), st.integers(0, 2**32))
def test_no_sufficient_set_of_victims_is_pruned(built: Cluster, seed: int) -> None:
    """topo:T-54, TD-9: whatever set lets a gang in, its bounds say that it may suffice."""
    run = CaseRun(Case(id="drawn", now=timestamp_before(0), objects=built.objects, expect={}, cycles=Cycles()))
    for step in range(2):
        run.step()
        _restart(run, Random(f"{seed} {step}"))
        _arrive(run, built, Random(f"{seed} late {step}"), f"late{step}")
    cycle = run.open()
    state = cycle.state
    victims = cycle.tables.victims()
    units = [unit for line in victims.units_by_leaf_queue.values() for _, _, unit in line]
    for gang in cycle.gangs.waiting():
        batches = cycle.gangs.next_tasks(gang)
        if not batches:
            continue
        required = total_amounts(cycle.context.snapshot.vectors, batches, cycle.context.smallest_gpu_mib)
        preemptor = Preemptor(
            gang, batches, required, feasible_nodes(cycle.state, batches), cycle.tables.waiting_lines()
        )
        bounds = cycle.victims.bounds_of(gang, batches)
        others = [unit for unit in units if unit.gang is not gang]
        for count in (1, 2, 3, len(others)):
            for chosen in combinations(others, count):
                mark = state.mark()
                members = [Victim(unit.gang, member) for unit in chosen for member in unit.members]
                found = cycle.victims.trials.run(preemptor, members)
                state.rollback(mark)
                if not found:
                    continue
                DRAWN["victims suffice"] += 1
                freed = FreedCapacity(cycle.context.snapshot, bounds)
                freed.add(member for _, member in members)
                assert freed.suffices, (gang.key, [member.task.key for _, member in members])
                assert not bounds.is_unsatisfiable(victims.evictable), gang.key
