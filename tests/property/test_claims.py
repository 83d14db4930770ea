"""Claims of devices in random clusters over cycles: nothing is given twice, undo is exact, history does not matter."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pykai.api.decode import WireObject, decode_object
from pykai.api.meta import ObjectMeta
from pykai.api.scheduling import BindRequest, BindRequestSpec, ResourceClaimAllocation
from pykai.api.timestamp import format_timestamp
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cluster.tables import Tables
from pykai.core.cycle import validate
from pykai.core.cycle.validate import check_state
from pykai.core.ledgers.claims.ledger import ClaimLedger
from pykai.core.model.status import TaskStatus
from pykai.core.opencycle import Cycle, open_cycle
from pykai.core.plan import build_plan
from pykai.core.report.decisions import Bind, Plan
from pykai.core.schedule import run_actions
from pykai.dev.cases import Case
from pykai.dev.claimlifecycle import allocate_claims
from pykai.dev.conformance import CaseRun
from tests.core.builders import NOW_NS, Cluster, timestamp_before
from tests.property.claimed import ACTIONS, a_cluster, claim_faults, job, slices

RANDOM = st.randoms(use_true_random=True)


def a_run(world: Cluster) -> CaseRun:
    """A cluster over several cycles, every step validated."""
    case = Case("claims", format_timestamp(NOW_NS), world.objects, {}, actions=list(ACTIONS), settings={})
    return CaseRun(case, validate=True)


def later(running: CaseRun, random: Random, cycle: int) -> None:
    """What else happens between two cycles: work comes, pods end or are deleted."""
    world = Cluster()
    for number in range(random.randrange(3)):
        job(world, random, f"later-{cycle}-{number}")
    for raw in world.objects:
        if raw["kind"] == "Pod":
            running.pods[f"default/{raw['metadata']['name']}"] = raw
        running.tables.apply(decode_object(raw))
    for key, raw in list(running.pods.items()):
        if raw["spec"].get("nodeName") and random.randrange(5) == 0:
            told = {**raw, "metadata": {**raw["metadata"], "deletionTimestamp": timestamp_before(-30)}}
            running._replace(key, told)


@settings(max_examples=30, deadline=None)
@given(random=RANDOM)
def test_no_device_is_given_twice_and_every_claim_gets_what_it_requests(random: Random) -> None:
    """Selectors, constraints, counters and the reach of devices hold for all that is written (gpu:D-19 to D-22)."""
    running = a_run(a_cluster(random))
    for number in range(4):
        cycle = running.cycle()
        check_state(cycle.state, cycle.gangs)
        running.apply_decisions(cycle)
        assert not claim_faults(running.tables)
        later(running, random, number)


def books_of(cycle: Cycle) -> ClaimLedger | None:
    return next((book for book in cycle.state.discrete_ledgers if isinstance(book, ClaimLedger)), None)


def figures(cycle: Cycle) -> object:
    """All figures of the ledgers and the columns."""
    books = books_of(cycle)
    if books is None:
        return None
    claims = {key: (claim.hold_state, claim.allocation, claim.result) for key, claim in books._claims.items()}
    kept = {key: said[:2] for key, said in claims.items() if said[1] is not None}
    holdings = books._holdings
    flags = [holdings.busy.tolist(), holdings.promised.tolist(), holdings._live, holdings._releasing]
    return kept, [list(flag) for flag in flags], cycle.state.columns.tolist()


def check_books(cycle: Cycle) -> None:
    """Columns and ledgers are what the tasks hold; the counters of gangs are right only outside a trial."""
    validate._check_nodes(cycle.state)
    validate._check_discrete_ledgers(cycle.state)


@settings(max_examples=40, deadline=None)
@given(random=RANDOM)
def test_undo_restores_the_ledgers(random: Random) -> None:
    """Place, evict, try, place again: every step is undone exactly (gpu:D-11, T-93)."""
    running = a_run(a_cluster(random))
    running.step()
    later(running, random, 0)
    cycle = running.open()
    state = cycle.state
    marks = [(state.mark(), figures(cycle))]

    def place_all() -> None:
        for gang in cycle.gangs.waiting():
            if gang.queue >= 0:
                cycle.placer.place_gang(gang)
        marks.append((state.mark(), figures(cycle)))
        check_books(cycle)

    place_all()
    for key, task in cycle.context.snapshot.task_records.items():
        here = state.placements.get(key)
        status = task.status if here is None else here.status
        if status not in (TaskStatus.RUNNING, TaskStatus.PIPELINED) or not task.group_key:
            continue
        gang = cycle.gangs.gang(cycle.context.snapshot.group_entries[task.group_key])
        leaf = gang.leaves[0]
        state.evict(gang, leaf, task)
        if key in state.evicted_from and random.randrange(2):
            state.assume_gone(gang, leaf, task)
        if random.randrange(3) == 0:
            marks.append((state.mark(), figures(cycle)))
            check_books(cycle)
    place_all()
    for mark, said in reversed(marks):
        state.rollback(mark)
        assert figures(cycle) == said
        check_books(cycle)


def decided(snapshot: Snapshot, world: Cluster) -> tuple[Plan, object]:
    cycle = open_cycle(snapshot, replace(world.policy(), reuse_failures=bool(world.policy_changes)))
    run_actions(cycle)
    asks = {key: (task.shape.claims, task.claim_keys, task.extended_key) for key, task in snapshot.task_records.items()}
    return build_plan(cycle), asks


def a_moved_on_cluster(random: Random) -> tuple[Cluster, list[WireObject]]:
    """A cluster some cycles on, with its objects."""
    world = a_cluster(random)
    running = a_run(world)
    for number in range(random.randrange(3)):
        running.step()
        later(running, random, number)
    tables = running.tables
    kinds = ("ResourceClaim", "Pod")
    static = [decode_object(raw) for raw in world.objects if raw["kind"] not in kinds]
    live: list[WireObject] = [*tables.claims.claims.values(), *tables._pods.values()]
    return world, [*static, *live]


def _key(item: WireObject) -> tuple[str, str, str]:
    return (type(item).__name__, getattr(item.metadata, "namespace", ""), item.metadata.name)


@settings(max_examples=25, deadline=None)
@given(random=RANDOM)
def test_the_order_of_objects_does_not_matter(random: Random) -> None:
    world, objects = a_moved_on_cluster(random)
    plans = []
    for _ in range(2):
        random.shuffle(objects)
        plan, asks = decided(Tables(objects=objects).snapshot(NOW_NS), world)
        plans.append((plan.encoded(), asks))
    assert plans[0] == plans[1]


@settings(max_examples=20, deadline=None)
@given(random=RANDOM)
def test_tables_kept_up_to_date_equal_tables_built_at_once(random: Random) -> None:
    """The same cluster by way of others: claims, slices, classes and pods of three clusters come, change and go."""
    tables = Tables()
    current: dict[tuple[str, str, str], WireObject] = {}
    for number in range(3):
        world, objects = a_moved_on_cluster(random)
        if random.randrange(2):
            newer = Cluster()
            slices(newer, random, generation=2)
            objects += [decode_object(raw) for raw in newer.objects]
        random.shuffle(objects)
        for item in objects:
            current[_key(item)] = item
            tables.apply(item)
            if random.randrange(20) == 0:
                tables.snapshot(NOW_NS)
        for key in random.sample(sorted(current), len(current) // (2 + number)):
            del current[key]
            tables.remove(*key)
        tables.snapshot(NOW_NS)
    fresh = Tables(objects=list(current.values()))
    said = []
    for each in (tables, fresh):
        snapshot = each.snapshot(NOW_NS)
        axes = [
            snapshot.axes.index[name]
            for name in sorted(snapshot.axes.index)
            if snapshot.columns[:, snapshot.axes.index[name]].any()
        ]
        columns = snapshot.columns[:, axes].tolist()
        plan, asks = decided(snapshot, world)
        index = {name: value for name, value in vars(each.claims).items() if name not in ("_inventory", "_nodes")}
        said.append((plan.encoded(), asks, columns, snapshot.problems, snapshot.cluster_totals(), index))
    assert said[0] == said[1]


@settings(max_examples=40, deadline=None)
@given(random=RANDOM)
def test_the_check_of_many_nodes_agrees_with_the_allocation_on_each(random: Random) -> None:
    """The check of a node passes exactly where the ledgers would grant something, for rows at once or one by one."""
    running = a_run(a_cluster(random))
    running.step()
    later(running, random, 0)
    cycle = running.open()
    books = books_of(cycle)
    if books is None:
        return
    size = len(cycle.context.snapshot.nodes)
    for gang in cycle.gangs.waiting():
        for leaf in gang.leaves:
            for task in leaf.tasks:
                if not books.concerns(task.shape) or any(claim.problem for claim in task.shape.claims):
                    continue
                ask = type("AskLike", (), {"shape": task.shape, "task": task})()
                for idle in (False, True):
                    at_once = books.refusal_codes(cycle.state, task.shape, slice(None), idle=idle)
                    alone = [
                        int(books.refusal_codes(cycle.state, task.shape, np.array([row]), idle=idle)[0])
                        for row in range(size)
                    ]
                    given = [books.grant(cycle.state, ask, row, idle=idle) is not None for row in range(size)]
                    assert at_once.tolist() == alone
                    assert (at_once == 0).tolist() == given
        if gang.queue >= 0:
            cycle.placer.place_gang(gang)


def request_of(bind: Bind) -> BindRequest:
    """What the scheduler writes for a pod it binds."""
    given = [ResourceClaimAllocation(name=name, allocation=allocation) for name, allocation in bind.claims]
    spec = BindRequestSpec(
        pod_name=bind.pod,
        selected_node=bind.node,
        resource_claim_allocations=given,
        extended_resource_claim_allocation=bind.extended_claim,
    )
    return BindRequest(metadata=ObjectMeta(name=bind.pod, namespace=bind.namespace), spec=spec)


@settings(max_examples=25, deadline=None)
@given(random=RANDOM)
def test_a_device_being_bound_is_not_given_again(random: Random) -> None:
    """While binders are at work: some have written the claims, some have started pods, some nothing (gpu:D-8)."""
    running = a_run(a_cluster(random))
    tables = running.tables
    promised: dict[tuple[str, str, str], str] = {}
    for number in range(3):
        cycle = running.cycle()
        for bind in cycle.decisions.binds.values():
            task = cycle.context.snapshot.task_records[f"{bind.namespace}/{bind.pod}"]
            keys = dict(zip((claim.name for claim in task.shape.claims), task.claim_keys, strict=True))
            written = [(keys[name], allocation) for name, allocation in bind.claims]
            if bind.extended_claim is not None and bind.extended_claim.allocation is not None:
                written.append((f"extended of {task.key}", bind.extended_claim.allocation))
            for key, allocation in written:
                for result in allocation.devices.results:
                    device = (result.driver, result.pool, result.device)
                    assert result.admin_access or promised.setdefault(device, key) == key
        if cycle.decisions.evictions:
            return
        for bind in list(cycle.decisions.binds.values()):
            task = cycle.context.snapshot.task_records[f"{bind.namespace}/{bind.pod}"]
            tables.apply(request_of(bind))
            if random.randrange(2):
                allocate_claims(tables, task, bind)
        check_state((opened := running.open()).state, opened.gangs)
        world = Cluster()
        job(world, random, f"later-{number}")
        for raw in world.objects:
            tables.apply(decode_object(raw))
            running.pods.update({f"default/{raw['metadata']['name']}": raw} if raw["kind"] == "Pod" else {})
