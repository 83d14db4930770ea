"""The ledger of volumes: what an evicted pod may keep, what pipelining takes, and that nothing is checked twice."""

from __future__ import annotations

import numpy as np
import pytest

from pykai.core.cycle.request import PlacementRequest
from pykai.core.ledgers.volumes.ledger import NO_ROOM, VolumeLedger, VolumeShare
from pykai.core.opencycle import Cycle
from tests.core.builders import Cluster, cluster, placement_request_of

DRIVER = "csi.example.com"


def books_of(cycle: Cycle) -> VolumeLedger:
    (book,) = (book for book in cycle.state.discrete_ledgers if isinstance(book, VolumeLedger))
    return book


def with_leaver(room: str, own: str, asked: str) -> Cluster:
    """A pod with a claim of its own, and one that waits for capacity."""
    return (
        cluster(nodes=1)
        .queue("q")
        .storage_class(provisioner=DRIVER)
        .csi_driver(DRIVER)
        .storage_capacity("pool", room=room)
        .volume("pv", claim="old-0-tmp")
        .claim("old-0-tmp", bound_to="pv", owner="old-0", size=own)
        .claim("data", size=asked)
        .gang("old", ephemeral=("tmp",), on="node-0")
        .gang("job", claims=("data",))
    )


def evict(cycle: Cycle, ask: PlacementRequest) -> None:
    cycle.state.evict(ask.gang, ask.leaf, ask.task)


def promise(cycle: Cycle, ask: PlacementRequest, row: int = 0) -> None:
    grants = cycle.state.grants_on(ask, row, idle=False)
    assert grants is not None
    cycle.state.place(ask.gang, ask.leaf, ask.task, row, (), grants, pipelined=True)


def test_storage_of_an_evicted_pod_can_be_pipelined_and_not_allocated() -> None:
    """cycle:NOD-7."""
    cycle = with_leaver("1Gi", "4Gi", "5Gi").cycle()
    books, state, old, job = (
        books_of(cycle),
        cycle.state,
        placement_request_of(cycle, "old-0"),
        placement_request_of(cycle, "job-0"),
    )
    assert books.grant(state, job, 0, idle=False) is None
    evict(cycle, old)
    assert books.grant(state, job, 0, idle=True) is None
    assert books.grant(state, job, 0, idle=False) == (
        VolumeShare("default/job-0#0", "fast", pool="csi/pool", size=5 << 30, row=0),
    )


def test_an_evicted_pod_may_be_kept_until_its_storage_is_pipelined() -> None:
    cycle = with_leaver("1Gi", "4Gi", "5Gi").cycle()
    books, state, old = books_of(cycle), cycle.state, placement_request_of(cycle, "old-0")
    evict(cycle, old)
    assert books.grant(state, old, 0, idle=True) == books.held(old.task)
    promise(cycle, placement_request_of(cycle, "job-0"))
    assert books.grant(state, old, 0, idle=True) is None
    assert books.grant(state, old, 0, idle=False) is None


def test_an_evicted_pod_may_be_kept_when_storage_suffices_for_both() -> None:
    cycle = with_leaver("9Gi", "4Gi", "5Gi").cycle()
    books, state, old = books_of(cycle), cycle.state, placement_request_of(cycle, "old-0")
    evict(cycle, old)
    promise(cycle, placement_request_of(cycle, "job-0"))
    assert books.grant(state, old, 0, idle=False) == books.held(old.task)


def test_pipelined_storage_is_not_given_to_a_pod_that_starts_now() -> None:
    world = with_leaver("5Gi", "4Gi", "5Gi").claim("late", size="5Gi").gang("next", claims=("late",))
    cycle = world.cycle()
    books, state = books_of(cycle), cycle.state
    promise(cycle, placement_request_of(cycle, "job-0"))
    assert books.grant(state, placement_request_of(cycle, "next-0"), 0, idle=True) is None


def test_a_volume_chosen_for_an_evicted_pod_is_pipelined_and_not_allocated() -> None:
    """The evicted pod is being bound and its claim is still pending."""
    world = cluster(nodes=1).queue("q").storage_class().volume("pv").claim("a").claim("b")
    world.gang("first", claims=("a",)).bind_request("first-0", "node-0").gang("job", claims=("b",))
    cycle = world.cycle()
    books, state, first, job = (
        books_of(cycle),
        cycle.state,
        placement_request_of(cycle, "first-0"),
        placement_request_of(cycle, "job-0"),
    )
    assert books.held(first.task) == (VolumeShare("default/first-0#0", "fast", volume="pv"),)
    evict(cycle, first)
    assert books.grant(state, job, 0, idle=True) is None
    promise(cycle, job)
    assert books.grant(state, first, 0, idle=False) is None


def test_a_shared_volume_of_evicted_pods_goes_to_one_claim_of_a_pod() -> None:
    world = (
        cluster(nodes=1).queue("q").storage_class().volume("pv").claim("large", size="2Gi").claim("small", size="1Gi")
    )
    world.gang("old", claims=("large",)).bind_request("old-0", "node-0").gang("job", claims=("large", "small"))
    cycle = world.cycle()
    evict(cycle, placement_request_of(cycle, "old-0"))
    assert books_of(cycle).grant(cycle.state, placement_request_of(cycle, "job-0"), 0, idle=False) is None


def test_an_evicted_pod_may_keep_its_chosen_volume() -> None:
    world = cluster(nodes=1).queue("q").storage_class().volume("a").volume("b").claim("x")
    world.gang("first", claims=("x",)).bind_request("first-0", "node-0")
    cycle = world.cycle()
    first = placement_request_of(cycle, "first-0")
    evict(cycle, first)
    assert books_of(cycle).grant(cycle.state, first, 0, idle=True) == books_of(cycle).held(first.task)


def test_a_pod_whose_claim_is_being_deleted_may_stay_and_not_move() -> None:
    """cycle:FLT-9: it runs nevertheless, and a trial that evicts it may keep it."""
    world = cluster(nodes=3).queue("q").volume("pv", claim="a").claim("a", bound_to="pv", deleted=True)
    cycle = world.gang("old", claims=("a",), on="node-1", cpu=60).cycle()
    old = placement_request_of(cycle, "old-0")
    evict(cycle, old)
    assert cycle.placer.try_place_tasks(old.gang, cycle.gangs.next_tasks(old.gang))
    assert not cycle.state.evicted_from
    cycle = world.gang("big", cpu=60).cycle()
    old, big = placement_request_of(cycle, "old-0"), placement_request_of(cycle, "big-0")
    evict(cycle, old)
    cycle.state.place(big.gang, big.leaf, big.task, 1, (), pipelined=True)
    assert not cycle.placer.try_place_tasks(old.gang, cycle.gangs.next_tasks(old.gang))


def test_the_check_of_all_nodes_follows_allocations_and_their_undo() -> None:
    world = cluster(nodes=100).queue("q").storage_class().volume("pv", on="node-7").claim("a").claim("b")
    cycle = world.gang("first", claims=("a",)).gang("job", claims=("b",)).cycle()
    books, state, job = books_of(cycle), cycle.state, placement_request_of(cycle, "job-0")
    row = cycle.context.snapshot.nodes.rows["node-7"]

    def open_rows() -> list[int]:
        return np.flatnonzero(books.refusal_codes(state, job, slice(None)) == 0).tolist()

    assert open_rows() == [row]
    mark = state.mark()
    promise(cycle, placement_request_of(cycle, "first-0"), row)
    assert open_rows() == []
    state.rollback(mark)
    assert open_rows() == [row]


def test_clusters_without_pending_claims_keep_no_ledger() -> None:
    world = cluster(nodes=1).queue("q").volume("pv", claim="a").claim("a", bound_to="pv").gang("job", claims=("a",))
    assert not [book for book in world.cycle().state.discrete_ledgers if isinstance(book, VolumeLedger)]


def provisioned(*pools: str) -> Cluster:
    """A node, a driver that provisions volumes, and capacity pools a, b, ... of these sizes."""
    world = cluster(nodes=1).queue("q").storage_class(provisioner=DRIVER).csi_driver(DRIVER)
    for name, room in zip("abc", pools, strict=False):
        world.storage_capacity(name, room=room)
    return world


@pytest.mark.parametrize(
    ("pools", "sizes", "bound"),
    [
        (("5Gi",), ("5Gi",), 1),
        (("9Gi",), ("5Gi", "4Gi"), 1),
        (("9Gi",), ("5Gi", "5Gi"), 0),
        (("5Gi", "5Gi"), ("5Gi", "5Gi"), 1),
    ],
)
def test_capacity_is_given_to_the_last_byte_and_no_further(
    pools: tuple[str, ...], sizes: tuple[str, ...], bound: int
) -> None:
    world = provisioned(*pools)
    for number, size in enumerate(sizes):
        world.claim(f"c{number}", size=size)
    assert (
        world.gang("job", claims=tuple(f"c{number}" for number in range(len(sizes)))).schedule().bound("job") == bound
    )


@pytest.mark.parametrize(
    ("pools", "bound"), [(("13Gi",), 1), (("12Gi",), 0), (("10Gi", "3Gi"), 0), (("10Gi", "5Gi"), 1)]
)
def test_what_is_being_provisioned_is_taken_from_the_first_pool(pools: tuple[str, ...], bound: int) -> None:
    world = provisioned(*pools).claim("early", size="8Gi", selected_node="node-0").claim("data", size="5Gi")
    assert world.gang("job", claims=("data",)).schedule().bound("job") == bound


def test_an_evicted_pod_may_be_kept_when_what_is_left_is_exactly_its_own() -> None:
    cycle = with_leaver("5Gi", "4Gi", "5Gi").cycle()
    books, state, old = books_of(cycle), cycle.state, placement_request_of(cycle, "old-0")
    evict(cycle, old)
    promise(cycle, placement_request_of(cycle, "job-0"))
    assert books.grant(state, old, 0, idle=False) == books.held(old.task)


def test_the_check_of_all_nodes_knows_the_capacity_of_each_zone() -> None:
    world = cluster().queue("q").storage_class(provisioner=DRIVER).csi_driver(DRIVER)
    for number in range(100):
        world.node(f"node-{number:02}", labels={"zone": "ab"[number % 2]})
    world.storage_capacity("big", room="10Gi", zone="a").storage_capacity("small", room="1Gi", zone="b").claim("data")
    cycle = world.gang("job", claims=("data",)).cycle()
    found = books_of(cycle).refusal_codes(cycle.state, placement_request_of(cycle, "job-0"), slice(None))
    assert found.tolist() == [0, NO_ROOM] * 50


def test_a_volume_must_have_every_label_that_a_claim_selects() -> None:
    for labels, bound in (({"a": "1"}, 0), ({"a": "1", "b": "2"}, 1)):
        world = cluster(nodes=1).queue("q").storage_class().volume("pv", labels=labels)
        world.claim("data", selector={"matchLabels": {"a": "1", "b": "2"}}).gang("job", claims=("data",))
        assert world.schedule().bound("job") == bound
