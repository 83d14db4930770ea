"""On which nodes claims can be satisfied, for all nodes at once: gpu:D-10."""

from __future__ import annotations

import numpy as np
import pytest

from pykai.api.resource import ResourceSlice
from pykai.core.ledgers.claims.feasible import feasibility_plan, fits_at
from tests.core.deviceobjects import (
    DRIVER,
    all_devices_request,
    claim_request,
    device_request,
    distinct,
    first_of,
    fits_claims,
    gpu,
    gpus,
    offered,
    pool,
    same,
    used_column,
)

GROWING = offered(*(gpus(number, f"node-{number}") for number in range(5)), nodes=5)


def test_d10_nodes_with_enough_free_devices_fit() -> None:
    assert fits_claims(GROWING, [claim_request(device_request(2))], used_column(GROWING)).tolist() == [
        False,
        False,
        True,
        True,
        True,
    ]
    assert fits_claims(GROWING, [claim_request(device_request(2))], used_column(GROWING, "gpu-0")).tolist() == [
        False,
        False,
        False,
        True,
        True,
    ]


def test_only_the_requested_rows_are_checked() -> None:
    none = used_column(GROWING)
    assert fits_claims(GROWING, [claim_request(device_request(2))], none, np.array([4, 1])).tolist() == [True, False]
    assert fits_claims(
        GROWING, [claim_request(device_request(2))], used_column(GROWING, "gpu-0"), np.array([2, 3])
    ).tolist() == [False, True]
    assert fits_claims(GROWING, [claim_request(device_request(2))], none, slice(1, 3)).tolist() == [False, True]
    assert fits_claims(GROWING, [claim_request(device_request(2))], none, np.array([], dtype=np.int64)).tolist() == []
    many = np.array([4, 1] * 40)
    assert fits_claims(GROWING, [claim_request(device_request(2))], none, many).tolist() == [True, False] * 40
    constrained = claim_request(device_request(2), constraints=[same("x")])
    assert fits_claims(GROWING, [constrained], none, np.array([4, 1])).tolist() == [False, False]


def test_requests_for_the_same_devices_add_up_over_claims() -> None:
    two = claim_request(device_request(1), device_request(1, name="s"))
    assert fits_claims(GROWING, [two, claim_request(device_request(1))], used_column(GROWING)).tolist() == [
        False,
        False,
        False,
        True,
        True,
    ]


def test_requests_for_different_devices_do_not_compete() -> None:
    slow = f'device.attributes["{DRIVER}"].?speed.orValue("") == "slow"'
    nodes = [["fast", "slow"], ["fast", "fast"], ["slow", "slow", "fast"]]
    inventory = offered(
        *(
            pool(f"p{row}", *(gpu(f"{place}", speed=speed) for place, speed in enumerate(speeds)), node=f"node-{row}")
            for row, speeds in enumerate(nodes)
        ),
        nodes=3,
    )
    none = used_column(inventory)
    both = claim_request(device_request(1, "fast"), device_request(1, name="s", selectors=[slow]))
    assert fits_claims(inventory, [both], none).tolist() == [True, False, True]
    # These overlap: any device may serve the first request, also a fast one.
    overlapping = claim_request(device_request(1), device_request(1, "fast", "s"))
    assert fits_claims(inventory, [overlapping], none).tolist() == [True, True, True]
    assert fits_claims(
        inventory, [claim_request(device_request(2), device_request(1, "fast", "s"))], none
    ).tolist() == [False, False, True]


def test_devices_reached_from_several_nodes_count_for_each() -> None:
    inventory = offered(gpus(1), pool("all", gpu("shared"), allNodes=True), nodes=2)
    assert fits_claims(inventory, [claim_request(device_request(2))], used_column(inventory)).tolist() == [True, False]
    assert fits_claims(inventory, [claim_request(device_request(1))], used_column(inventory, "gpu-0")).tolist() == [
        True,
        True,
    ]
    assert fits_claims(inventory, [claim_request(device_request(1))], used_column(inventory, "shared")).tolist() == [
        True,
        False,
    ]


def test_administrative_access_does_not_compete() -> None:
    look, have = claim_request(device_request(2, adminAccess=True)), claim_request(device_request(2))
    used = used_column(GROWING, "gpu-0")
    assert fits_claims(GROWING, [look], used).tolist() == [False, False, True, True, True]
    assert fits_claims(GROWING, [look, have, look], used).tolist() == [False, False, False, True, True]


def test_alternatives_constraints_and_all_devices_are_decided_by_the_allocator() -> None:
    inventory = offered(
        *(
            pool(f"p{row}", *(gpu(f"{place}", numa=numa) for place, numa in enumerate(numas)), node=f"node-{row}")
            for row, numas in enumerate([[0, 0], [0, 1], [1], [0] * 33])
        ),
        nodes=4,
    )
    none = used_column(inventory)
    assert fits_claims(inventory, [claim_request(device_request(2), constraints=[same("numa")])], none).tolist() == [
        True,
        False,
        False,
        True,
    ]
    assert (
        fits_claims(inventory, [claim_request(device_request(2), constraints=[distinct("numa")])], none).tolist()
        == [False, True] + [False] * 2
    )
    either = claim_request(first_of(device_request(9, name="a"), device_request(2, name="b")))
    assert fits_claims(inventory, [either], none).tolist() == [True, True, False, True]
    either = claim_request(first_of(device_request(2, name="a"), device_request(9, name="b")))
    assert fits_claims(inventory, [either], none).tolist() == [True, True, False, True]
    assert fits_claims(inventory, [claim_request(all_devices_request())], none).tolist() == [True, True, True, False]
    assert fits_claims(inventory, [claim_request(all_devices_request())], used_column(inventory, "1")).tolist() == [
        False,
        False,
        True,
        False,
    ]


def test_results_are_cached_by_the_devices_in_use() -> None:
    inventory = offered(pool("a", gpu("0", numa=0), gpu("1", numa=0), gpu("2", numa=1), node="node-0"))
    ask = claim_request(device_request(2), constraints=[same("numa")])
    for used, fitting in [((), True), (("1",), False), (("2",), True), ((), True)]:
        assert fits_claims(inventory, [ask], used_column(inventory, *used)).tolist() == [fitting]


def test_a_broken_pool_keeps_requests_for_all_devices_away_from_its_node_only() -> None:
    inventory = offered(gpus(1), pool("b", gpu("0"), node="node-0", slices=2), gpus(1, "node-1"), nodes=2)
    assert fits_claims(inventory, [claim_request(all_devices_request())], used_column(inventory)).tolist() == [
        False,
        True,
    ]
    assert fits_claims(inventory, [claim_request(device_request(1))], used_column(inventory)).tolist() == [True, True]


def test_partitions_are_decided_by_their_counters() -> None:
    inventory = offered(
        *(
            pool(
                f"p{row}",
                *(gpu(f"part-{place}", takes={"s": {"memory": size}}) for place, size in enumerate(sizes)),
                node=f"node-{row}",
                shares={"s": {"memory": have}},
            )
            for row, (sizes, have) in enumerate([((2, 2), 4), ((3, 2), 4), ((2, 2), 3), ((2, 2), 4)])
        ),
        nodes=4,
    )
    two = claim_request(device_request(2))
    assert fits_claims(inventory, [two], used_column(inventory)).tolist() == [True, False, False, True]
    used = used_column(inventory)
    used[0] = True
    assert fits_claims(inventory, [claim_request(device_request(1))], used).tolist() == [True, True, True, True]
    assert fits_claims(inventory, [two], used).tolist() == [False, False, False, True]


def test_partitions_of_two_pools_do_not_share_counters() -> None:
    def split(row: int, *pools: int) -> list[ResourceSlice]:
        """Pools with so many devices of size 1; the counters of each pool suffice for one."""
        return [
            pool(
                f"n{row}p{number}",
                *(gpu(f"{row}-{number}-{place}", takes={"s": {"memory": 1}}) for place in range(count)),
                node=f"node-{row}",
                shares={"s": {"memory": 1}},
            )
            for number, count in enumerate(pools)
        ]

    inventory = offered(*split(0, 1, 1), *split(1, 2), nodes=2)
    assert fits_claims(inventory, [claim_request(device_request(2))], used_column(inventory)).tolist() == [True, False]


def test_a_counter_spent_on_another_node_counts() -> None:
    devices = [gpu(str(row), takes={"s": {"links": 1}}, more={"nodeName": f"node-{row}"}) for row in range(2)]
    inventory = offered(pool("fabric", *devices, perDeviceNodeSelection=True, shares={"s": {"links": 1}}), nodes=2)
    assert fits_claims(inventory, [claim_request(device_request(1))], used_column(inventory)).tolist() == [True, True]
    assert fits_claims(inventory, [claim_request(device_request(1))], used_column(inventory, "0")).tolist() == [
        False,
        False,
    ]


def test_a_selector_that_fails_on_a_node_rules_out_that_node() -> None:
    size = f'device.attributes["{DRIVER}"].size == 1'
    inventory = offered(pool("a", gpu("0", size=1), node="node-0"), pool("b", gpu("odd"), node="node-1"), nodes=2)
    assert fits_claims(
        inventory, [claim_request(device_request(1, selectors=[size]))], used_column(inventory)
    ).tolist() == [True, False]


@pytest.mark.parametrize("constraints", [[], [same("x")]])
def test_no_devices_and_no_nodes_are_handled(constraints: list[dict[str, object]]) -> None:
    ask = claim_request(device_request(1), constraints=constraints)
    empty = offered(nodes=2)
    assert fits_claims(empty, [ask], used_column(empty)).tolist() == [False, False]
    assert fits_claims(empty, [], used_column(empty)).tolist() == [True, True]
    nowhere = offered(gpus(1), nodes=0)
    assert fits_claims(nowhere, [ask], used_column(nowhere)).tolist() == []


def test_one_node_alone_gives_the_result_of_all_nodes_at_once() -> None:
    """Counted (kinds that do not overlap, all devices) and searched (a constraint)."""
    slow = f'device.attributes["{DRIVER}"].?speed.orValue("") == "slow"'
    inventory = offered(
        *(
            pool(f"p{row}", *(gpu(f"{place}", speed=speed) for place, speed in enumerate(speeds)), node=f"node-{row}")
            for row, speeds in enumerate([["fast", "slow"], ["fast", "fast"], ["slow"], []])
        ),
        nodes=4,
    )
    none = used_column(inventory)
    for ask, fitting in (
        (claim_request(device_request(1, "fast"), device_request(1, name="s", selectors=[slow])), [1, 0, 0, 0]),
        (claim_request(device_request(2), constraints=[same("speed")]), [0, 1, 0, 0]),
        (claim_request(all_devices_request()), [1, 1, 1, 0]),
    ):
        plan = feasibility_plan(inventory, [ask])
        assert [fits_at(inventory, plan, none, row) for row in range(4)] == fitting
        assert fits_claims(inventory, [ask], none, np.arange(4)).tolist() == fitting
        assert fits_claims(inventory, [ask], none).tolist() == fitting
