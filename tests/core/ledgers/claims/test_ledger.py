"""The ledger of claims, asked directly: why nodes are refused, who counts as a user, what a pod takes and affects."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.core.ledgers.claims.ledger import NO_DEVICES, NO_GPUS, UNREACHABLE, ClaimLedger
from pykai.core.opencycle import Cycle
from tests.core.builders import Cluster, cluster, placement_request_of
from tests.core.deviceclusters import device_request, devices

GPU = "nvidia.com/gpu"
#: matches no device
IMPOSSIBLE: dict[str, Any] = {"selectors": [{"cel": {"expression": 'device.driver == "nobody"'}}]}


def books_of(cycle: Cycle) -> ClaimLedger:
    (books,) = (book for book in cycle.state.discrete_ledgers if isinstance(book, ClaimLedger))
    return books


def promise(cycle: Cycle, pod: str, row: int = 0) -> None:
    ask = placement_request_of(cycle, pod)
    grants = cycle.state.grants_on(ask, row, idle=False)
    assert grants is not None
    cycle.state.place(ask.gang, ask.leaf, ask.task, row, (), grants, pipelined=True)


def codes(cycle: Cycle, pod: str, **how: Any) -> list[int]:
    shape = placement_request_of(cycle, pod).shape
    found: list[int] = books_of(cycle).refusal_codes(cycle.state, shape, slice(None), **how).tolist()
    return found


def backed(nodes: int = 1, **node: Any) -> Cluster:
    return cluster(nodes=nodes, **node).device_class("gpu", extendedResourceName=GPU).queue("q")


def test_a_victim_keeps_gpus_of_its_nodes_own_until_they_are_pipelined_gpu_d14() -> None:
    cycle = backed(gpus=2).gang("old", gpu=2, on="node-0").gang("job", gpu=2).cycle()
    books, state, old = books_of(cycle), cycle.state, placement_request_of(cycle, "old-0")
    state.evict(old.gang, old.leaf, old.task)
    assert books.grant(state, old, 0, idle=True) == books.held(old.task)
    promise(cycle, "job-0")
    assert books.grant(state, old, 0, idle=True) is None


@pytest.mark.parametrize(
    ("each", "request_", "code"),
    [
        (1, device_request(2), NO_GPUS),
        (2, device_request(2, **IMPOSSIBLE), NO_DEVICES),
        (0, device_request(), NO_DEVICES),
    ],
    ids=["one of two GPUs", "enough GPUs but not these", "no GPUs at all"],
)
def test_gpus_are_the_reason_where_the_node_has_some_and_too_few_gpu_d10(
    each: int, request_: dict[str, Any], code: int
) -> None:
    assert codes(devices(each=each).queue("q").gang("a", template=[request_]).cycle(), "a-0") == [code]


def test_gpus_that_a_terminating_pod_holds_are_missing_now_and_not_later_gpu_d10() -> None:
    world = devices(each=2).queue("q").gang("old", on="node-0", template=2, given=("gpu-0", "gpu-1"), deleted=-30)
    cycle = world.gang("a", template=[device_request(2, **IMPOSSIBLE)]).cycle()
    shape = placement_request_of(cycle, "a-0").shape
    for idle, code in ((True, NO_GPUS), (False, NO_DEVICES)):
        assert codes(cycle, "a-0", idle=idle) == [code]
        assert books_of(cycle).refusal_code_at(cycle.state, shape, 0, idle=idle) == code


@pytest.mark.parametrize(("leaves", "code"), [(False, NO_GPUS), (True, NO_DEVICES)])
def test_a_pod_needs_the_reach_of_one_claim_and_devices_for_the_other_gpu_d10(leaves: bool, code: int) -> None:
    """Devices of the shared claim are not for its other claim, even if their user terminates."""
    world = devices(nodes=2, each=1).queue("q")
    world.device_claim("c", queue="q", given=("gpu-0",), on="node-0", users=("old-0",))
    world.gang("old", on="node-0", shares=("c",), deleted=-30 if leaves else None)
    assert codes(world.gang("a", shares=("c",), template=1).cycle(), "a-0") == [code, UNREACHABLE]


def test_a_claim_that_cannot_be_read_fits_no_node_gpu_d9() -> None:
    world = devices(nodes=2).queue("q").device_claim("c", of="nobody", queue="q").gang("a", shares=("c",))
    assert codes(world.cycle(), "a-0") == [NO_DEVICES, NO_DEVICES]


def test_a_claim_whose_devices_are_promised_to_another_fits_no_node() -> None:
    world = devices(each=1).queue("q").device_claim("c", queue="q", given=("gpu-0",), on="node-0", users=("old-0",))
    world.gang("old", on="node-0", shares=("c",), deleted=-30).gang("first", template=1).gang("a", shares=("c",))
    cycle = world.cycle()
    assert codes(cycle, "a-0") == [0]
    promise(cycle, "first-0")
    assert codes(cycle, "a-0") == [NO_DEVICES]


def test_where_no_claims_are_made_devices_do_not_serve_extended_resources_gpu_d2() -> None:
    cycle = backed().slice("node-0", 2).gang("a", gpu=1).cycle()
    shape = placement_request_of(cycle, "a-0").shape
    found = [
        ClaimLedger(cycle.context.snapshot, serving=serving).refusal_codes(cycle.state, shape, slice(None)).tolist()
        for serving in (True, False)
    ]
    assert found == [[0], [NO_DEVICES]]


def test_a_pipelined_pod_counts_among_the_256_users_gpu_d9() -> None:
    world = devices().queue("q")
    world.device_claim("c", queue="q", given=("gpu-0",), on="node-0", users=tuple(f"u{n}" for n in range(255)))
    cycle = world.gang("a", shares=("c",)).gang("b", shares=("c",)).cycle()
    late = placement_request_of(cycle, "b-0")
    assert books_of(cycle).overused_claim(late.shape, late.task) is None
    promise(cycle, "a-0")
    assert books_of(cycle).overused_claim(late.shape, late.task) == "default/c"


def test_a_pod_takes_at_least_the_gpus_of_its_own_claims() -> None:
    """Those of a shared claim may be paid by another pod already."""
    world = devices(each=4).queue("q").device_claim("c", count=2, queue="q")
    world.device_class("behind", extendedResourceName=GPU)
    world.gang("own", template=1).gang("both", template=1, shares=("c",)).gang("shared", shares=("c",))
    cycle = world.gang("extended", gpu=2).cycle()
    taken = {
        name: [
            amount
            for _, amount, strictly in books_of(cycle).takes_at_least(placement_request_of(cycle, f"{name}-0").shape)
            if strictly
        ]
        for name in ("own", "both", "shared", "extended")
    }
    assert taken == {"own": [1], "both": [1], "shared": [], "extended": []}


@pytest.mark.parametrize(
    ("far", "pod", "affects"),
    [
        (False, {"template": 1}, False),
        (False, {"gpu": 1}, False),
        (False, {"shares": ("c",)}, True),
        (False, {"shares": ("c",), "template": 1}, True),
        (True, {"template": 1}, True),
        (True, {"gpu": 1}, True),
    ],
    ids=["own", "extended", "shared", "both", "own, reached by all", "extended, reached by all"],
)
def test_what_affects_other_nodes_is_shared_or_reached_from_there(
    far: bool, pod: dict[str, Any], affects: bool
) -> None:
    world = backed(nodes=2).slice("node-0").slice("node-1").device_claim("c", queue="q")
    if far:
        world.slice("", [{"name": "far"}], pool="all", allNodes=True)
    cycle = world.gang("a", **pod).cycle()
    assert books_of(cycle).affects_other_nodes(placement_request_of(cycle, "a-0").shape) is affects
