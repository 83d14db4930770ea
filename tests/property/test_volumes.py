"""Volumes in random clusters: nothing is given twice, nothing is over-filled, undo is exact, history does not matter.

Clusters are small and crowded: few volumes, little capacity, low limits, claims in every state, pods that share claims,
terminating pods.  What a cycle allocated is recomputed by code that shares nothing with the ledgers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pykai.api.decode import WireObject, decode_object
from pykai.core.cluster.tables import Tables
from pykai.core.cycle.journal import Placement
from pykai.core.cycle.state import DiscreteLedger
from pykai.core.cycle.validate import check_state
from pykai.core.ledgers.volumes.attachments import AttachmentLedger, VolumeUse
from pykai.core.ledgers.volumes.ledger import VolumeLedger, VolumeShare
from pykai.core.model.sharedgpus import holding_of
from pykai.core.model.status import TaskStatus
from pykai.core.model.tasks import Task
from pykai.core.opencycle import Cycle, open_cycle
from pykai.core.plan import build_plan
from pykai.core.plugins import DEFAULT_PLUGINS
from pykai.core.schedule import run_actions
from tests.core.builders import NOW_NS, Cluster, cluster

GI = 1 << 30
ACTIONS = ("allocate", "consolidation", "reclaim", "preempt", "stalegangeviction")
_PLUGINS = [{"name": name, "arguments": dict(arguments)} for name, arguments in DEFAULT_PLUGINS]
CONFIGURATION = {
    "actions": ", ".join(ACTIONS),
    "tiers": [{"plugins": [*_PLUGINS, {"name": "volumelimits"}]}],
}
NODES = 4


def _volume(world: Cluster, random: Random, name: str) -> None:
    on: Any = random.choice([(), (), ("node-0",), ("node-1",), ("node-1", "node-2"), ("node-9",)])
    how: dict[str, Any] = random.choice([{}, {}, {}, {"phase": "Released"}, {"deleted": True}, {"claim": "c0"}])
    world.volume(name, size=f"{random.randrange(1, 6)}Gi", on=on, of=random.choice(["fast", "fast", "made"]), **how)


def _claim(world: Cluster, random: Random, name: str) -> None:
    how: dict[str, Any] = random.choice(
        [
            *[{}] * 12,
            {"of": "slow"},
            {"deleted": True},
            {"selected_node": "node-1"},
            {"modes": ("ReadWriteOncePod",)},
            {"bound_to": "bound", "modes": ("ReadWriteOncePod",)},
            {"bound_to": "bound"},
            {"bound_to": "nowhere"},
        ]
    )
    how = {"of": random.choice(["fast", "made"]), **how}
    if name == "j0-0-tmp":
        how = random.choice([{"of": "made"}, {"of": "made", "bound_to": "bound"}, how])
        how = {**how, "owner": random.choice(["j0-0"] * 7 + ["another"])}
    world.claim(name, size=f"{random.randrange(1, 5)}Gi", **how)


def _pods(world: Cluster, random: Random, index: int, claims: list[str]) -> None:
    picked = tuple(sorted(random.sample(claims, random.randrange(3))))
    how: dict[str, Any] = {"claims": picked, "gpu": random.randrange(3), "queue": random.choice(["a", "a", "b"])}
    state = random.choice(["waiting"] * 4 + ["running"] * 4 + ["leaving"])
    if state != "waiting":
        how["on"] = f"node-{random.randrange(NODES)}"
        how["gpu"] = random.randrange(3)
        how["queue"] = "b"
    if state == "leaving":
        how["deleted"] = -30
    if index == 0 and random.randrange(2):
        how["ephemeral"] = ("tmp",)
    world.gang(f"j{index}", random.choice([1, 1, 2]), **how)
    if state == "waiting" and random.randrange(4) == 0:
        world.bind_request(f"j{index}-0", f"node-{random.randrange(NODES)}")


def a_cluster(random: Random) -> Cluster:
    """A crowded cluster."""
    world = cluster(nodes=NODES, gpus=3).queue("a", quota=10).queue("b", quota=2).storage_class()
    world.storage_class("made", provisioner="d").csi_driver("d", tells_capacity=bool(random.randrange(3)))
    world.volume("bound", driver="d", claim="somebody", on=random.choice([(), ("node-0", "node-1")]))
    for row in range(NODES):
        if random.randrange(2):
            world.csi_node(f"node-{row}", d=random.randrange(4))
    for name in ("r0", "r1", "r2"):
        where = random.choice(["", "node-0", "node-1", "node-2"])
        world.storage_capacity(name, of="made", room=f"{random.randrange(9)}Gi", on=where)
    claims = [*(f"c{n}" for n in range(random.randrange(1, 12))), "j0-0-tmp"]
    for n in range(random.randrange(8)):
        _volume(world, random, f"v{n}")
    for name in claims:
        _claim(world, random, name)
    for index in range(random.randrange(1, 14)):
        _pods(world, random, index, claims)
    return world.configured(CONFIGURATION).with_actions(*ACTIONS)


def books_of(cycle: Cycle) -> tuple[VolumeLedger | None, AttachmentLedger | None]:
    volume = (book for book in cycle.state.discrete_ledgers if isinstance(book, VolumeLedger))
    attach = (book for book in cycle.state.discrete_ledgers if isinstance(book, AttachmentLedger))
    return next(volume, None), next(attach, None)


def holders(cycle: Cycle) -> Iterator[tuple[Task, Placement]]:
    """Every task on every node it holds, with its grants: one that is moved holds two."""
    state = cycle.state
    for key, task in cycle.context.snapshot.task_records.items():
        moved, leaving = state.placements.get(key), state.evicted_from.get(key)
        if leaving is not None:
            yield task, leaving._replace(status=TaskStatus.RELEASING)
        if moved is None:
            if task.holds_node and task.node in cycle.context.snapshot.nodes.rows:
                yield task, state.placement_of(task)
        elif moved.status not in (TaskStatus.RELEASING, TaskStatus.PENDING):
            yield task, moved


def counted(cycle: Cycle, book: DiscreteLedger) -> dict[object, tuple[int, ...]]:
    """What a ledger should hold: every item by holding, from the placements."""
    counts: dict[object, list[int]] = {}
    for _, here in holders(cycle):
        for grant in here.grants:
            if grant.ledger is book:
                assert isinstance(grant.allocation, tuple)
                for item in grant.allocation:
                    counts.setdefault(item, [0, 0, 0])[holding_of(here.status)] += 1
    return {item: tuple(found) for item, found in counts.items()}


def figures(cycle: Cycle) -> list[dict[str, object]]:
    return [book.as_comparable() for book in books_of(cycle) if book is not None]


def check_books(cycle: Cycle) -> None:
    """Ledgers hold what placements hold, and nothing is given twice or beyond capacity."""
    volumes, attached = books_of(cycle)
    storage = cycle.context.snapshot.storage
    if volumes is not None:
        shares = counted(cycle, volumes)
        assert shares == volumes.as_comparable()["shares"]
        owners: dict[str, set[str]] = {}
        spent: Counter[str] = Counter()
        given_back: Counter[str] = Counter()
        for share, (live, releasing, pipelined) in shares.items():
            assert isinstance(share, VolumeShare)
            if share.volume and live + pipelined:
                owners.setdefault(share.volume, set()).add(share.owner)
            if share.pool and not share.freed_on_exit and live + pipelined:
                spent[share.pool] += share.size
            if share.freed_on_exit and releasing and not live + pipelined:
                given_back[share.pool] += share.size
        assert all(len(found) == 1 for found in owners.values()), owners
        rooms = {pool.name: pool.free_bytes for pools in storage.pools.values() for pool in pools.values()}
        assert all(amount <= rooms[pool] + given_back[pool] for pool, amount in spent.items())
        for _, here in holders(cycle):
            for grant in here.grants:
                for item in grant.allocation if grant.ledger is volumes else ():  # type: ignore[attr-defined]
                    assert item.volume or item.row == here.row
    if attached is not None:
        assert counted(cycle, attached) == attached.as_comparable()["uses"]


def attachments(cycle: Cycle) -> Counter[tuple[str, str]]:
    """Node and driver -> volumes attached, without terminating pods."""
    _, attached = books_of(cycle)
    busy: Counter[tuple[str, str]] = Counter()
    for use, (live, _, pipelined) in counted(cycle, attached).items() if attached is not None else ():
        assert isinstance(use, VolumeUse)
        if use.driver and live + pipelined:
            busy[cycle.context.snapshot.nodes.names[use.row], use.driver] += 1
        elif not use.driver:
            # Earlier attachments may exceed the limit.
            busy["claim", use.volume] = live + pipelined
    return busy


@settings(max_examples=50, deadline=None)
@given(random=st.randoms(use_true_random=True))
def test_nothing_is_given_twice_and_no_limit_is_exceeded(random: Random) -> None:
    cycle = a_cluster(random).cycle()
    check_books(cycle)
    before = attachments(cycle)
    run_actions(cycle)
    check_state(cycle.state, cycle.gangs)
    check_books(cycle)
    for (node, what), count in attachments(cycle).items():
        most = 1 if node == "claim" else cycle.context.snapshot.storage.limits.get(node, {}).get(what)
        assert most is None or count <= max(most, before[node, what])


@settings(max_examples=80, deadline=None)
@given(random=st.randoms(use_true_random=True))
def test_undo_restores_the_ledgers(random: Random) -> None:
    cycle = a_cluster(random).cycle()
    state = cycle.state
    before = figures(cycle)
    mark = state.mark()
    for gang in cycle.gangs.waiting():
        if gang.queue >= 0:
            cycle.placer.place_gang(gang)
    middle, between = state.mark(), figures(cycle)
    for task, here in list(holders(cycle)):
        entry = cycle.context.snapshot.group_entries.get(task.group_key)
        if (
            entry is None
            or entry.group is None
            or task.key in state.evicted_from
            or here.status is TaskStatus.RELEASING
        ):
            continue
        gang = cycle.gangs.gang(entry)
        state.evict(gang, gang.leaves[gang.group.leaf_index[task.subgroup]], task)
    check_books(cycle)
    state.rollback(middle)
    assert figures(cycle) == between
    check_books(cycle)
    state.rollback(mark)
    assert figures(cycle) == before
    check_books(cycle)


@settings(max_examples=45, deadline=None)
@given(random=st.randoms(use_true_random=True))
def test_tables_with_storage_kept_up_to_date_equal_tables_built_at_once(random: Random) -> None:
    """The same cluster by way of others: objects of two more clusters come, change and go again."""
    tables = Tables()
    current: dict[tuple[str, str, str], WireObject] = {}
    worlds = [a_cluster(random) for _ in range(3)]
    for world in worlds:
        mixed = list(world.objects)
        random.shuffle(mixed)
        for raw in mixed:
            meta = raw["metadata"]
            key = (raw["kind"], meta.get("namespace", ""), meta["name"])
            current[key] = decode_object(raw)
            tables.apply(current[key])
        gone = random.sample(sorted(current), len(current) // 3)
        for key in gone:
            del current[key]
            tables.remove(*key)
        tables.snapshot(NOW_NS)
    objects = list(current.values())
    random.shuffle(objects)
    fresh = Tables(objects=objects)
    assert vars(tables.storage) == vars(fresh.storage)
    assert tables._task_index.with_volumes.keys() == fresh._task_index.with_volumes.keys()
    policy = worlds[-1].policy()
    plans = []
    for each in (tables, fresh):
        snapshot = each.snapshot(NOW_NS)
        cycle = open_cycle(snapshot, policy)
        run_actions(cycle)
        asks = {key: task.shape.volumes for key, task in snapshot.task_records.items()}
        plans.append((asks, build_plan(cycle).encoded()))
    assert plans[0] == plans[1]


@settings(max_examples=40, deadline=None)
@given(random=st.randoms(use_true_random=True))
def test_the_columns_agree_with_a_check_of_every_node(random: Random) -> None:
    """Kinds of nodes and single rows must agree; the cluster is larger than what is checked row by row."""
    world = a_cluster(random)
    for n in range(80):
        world.node(f"more-{n}", gpus=1)
    cycle = world.cycle()
    books, _ = books_of(cycle)
    for gang in cycle.gangs.waiting():
        for task in (task for leaf in gang.leaves for task in leaf.tasks):
            if books is not None and books.concerns(task.shape):
                ask: Any = type("AskLike", (), {"shape": task.shape, "task": task})()
                size = len(cycle.context.snapshot.nodes)
                at_once = books.refusal_codes(cycle.state, ask, slice(None)).tolist()
                one_by_one = [int(books.refusal_codes(cycle.state, ask, slice(row, row + 1))[0]) for row in range(size)]
                assert at_once == one_by_one
        if gang.queue >= 0:
            cycle.placer.place_gang(gang)
