"""Which devices of a node a claim gets: gpu:D-19 to D-23."""

from __future__ import annotations

import numpy as np
import pytest

from pykai.api.resource import ResourceSlice
from pykai.core.cluster.claims.inventory import Inventory
from pykai.core.ledgers.claims.allocator import ClaimAllocation, RequestAllocation, are_available
from pykai.core.model.claimrequests import DraFeatures
from tests.core.deviceobjects import (
    DRIVER,
    all_devices_request,
    allocated,
    claim_request,
    device_request,
    devices_of,
    distinct,
    first_of,
    gpu,
    gpus,
    named,
    node_table,
    offered,
    pool,
    refusal_text,
    same,
    used_column,
)

#: two devices of each NUMA node, the second two are fast
NUMA = pool(
    "a",
    *(gpu(f"gpu-{number}", numa=number // 2, speed="fast" if number > 1 else "slow") for number in range(4)),
    node="node-0",
)


def test_d21_the_first_free_devices_are_given() -> None:
    inventory = offered(gpus(4))
    assert devices_of(inventory, claim_request(device_request(2))) == ["gpu-0", "gpu-1"]
    assert devices_of(inventory, claim_request(device_request(2)), used=["gpu-0", "gpu-2"]) == ["gpu-1", "gpu-3"]
    assert refusal_text(inventory, claim_request(device_request(5))) == ""
    assert refusal_text(inventory, claim_request(device_request(3)), used=["gpu-0", "gpu-2"]) == ""


def test_d21_a_device_is_used_once_over_all_claims_and_requests() -> None:
    inventory = offered(gpus(4))
    one, two = claim_request(device_request(1), device_request(1, name="s")), claim_request(device_request(2))
    assert devices_of(inventory, one, two) == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
    assert refusal_text(inventory, one, two, one) == ""


def test_d19_devices_of_other_nodes_are_out_of_reach() -> None:
    inventory = offered(gpus(1), gpus(2, "node-1"), nodes=2)
    assert refusal_text(inventory, claim_request(device_request(2)), row=0) == ""
    assert devices_of(inventory, claim_request(device_request(2)), row=1) == ["gpu-0", "gpu-1"]


def test_d20_only_selected_devices_are_given() -> None:
    inventory = offered(NUMA)
    assert devices_of(inventory, claim_request(device_request(2, "fast"))) == ["gpu-2", "gpu-3"]
    assert refusal_text(inventory, claim_request(device_request(3, "fast"))) == ""
    both = claim_request(device_request(1, "fast", selectors=[f'device.attributes["{DRIVER}"].numa == 1']))
    assert devices_of(inventory, both) == ["gpu-2"]
    assert (
        refusal_text(
            inventory, claim_request(device_request(1, "fast", selectors=[f'device.attributes["{DRIVER}"].numa == 0']))
        )
        == ""
    )


def test_d21_the_search_backtracks_for_a_later_request() -> None:
    inventory = offered(pool("a", gpu("0", speed="fast"), gpu("1", speed="slow"), node="node-0"))
    assert devices_of(inventory, claim_request(device_request(1), device_request(1, "fast", "s"))) == ["1", "0"]
    assert devices_of(inventory, claim_request(device_request(1)), claim_request(device_request(1, "fast"))) == [
        "1",
        "0",
    ]


def test_d21_devices_agree_in_the_attribute_of_a_constraint() -> None:
    inventory = offered(NUMA)
    assert devices_of(inventory, claim_request(device_request(2), constraints=[same("numa")])) == ["gpu-0", "gpu-1"]
    assert devices_of(inventory, claim_request(device_request(2), constraints=[same("numa")]), used=["gpu-0"]) == [
        "gpu-2",
        "gpu-3",
    ]
    assert refusal_text(inventory, claim_request(device_request(3), constraints=[same("numa")])) == ""
    two = claim_request(device_request(1), device_request(1, "fast", "s"), constraints=[same("numa")])
    assert devices_of(inventory, two) == ["gpu-2", "gpu-3"]


def test_d21_a_constraint_holds_for_the_requests_it_names() -> None:
    inventory = offered(NUMA)
    ask = claim_request(
        device_request(1),
        device_request(1, "fast", "s"),
        device_request(1, "fast", "t"),
        constraints=[same("numa", "s", "t")],
    )
    assert devices_of(inventory, ask) == ["gpu-0", "gpu-2", "gpu-3"]
    strict = claim_request(
        device_request(1), device_request(1, "fast", "s"), device_request(1, "fast", "t"), constraints=[same("numa")]
    )
    assert refusal_text(inventory, strict) == ""


def test_d21_a_constraint_holds_within_its_claim_only() -> None:
    inventory = offered(NUMA)
    ask = claim_request(device_request(2), constraints=[same("numa")])
    assert devices_of(inventory, ask, ask) == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]


@pytest.mark.parametrize("constraint", [same("numa"), distinct("numa")])
def test_d21_a_device_without_the_attribute_of_a_constraint_is_not_given(constraint: dict[str, object]) -> None:
    inventory = offered(pool("a", gpu("0"), gpu("1"), gpu("2", numa=1), node="node-0"))
    assert devices_of(inventory, claim_request(device_request(1), constraints=[constraint])) == ["2"]


def test_d21_values_of_different_type_do_not_agree() -> None:
    inventory = offered(pool("a", gpu("0", numa="1"), gpu("1", numa=1), node="node-0"))
    assert refusal_text(inventory, claim_request(device_request(2), constraints=[same("numa")])) == ""


def test_d23_devices_differ_in_the_attribute_of_a_distinct_constraint() -> None:
    inventory = offered(NUMA)
    assert devices_of(inventory, claim_request(device_request(2), constraints=[distinct("numa")])) == ["gpu-0", "gpu-2"]
    assert refusal_text(inventory, claim_request(device_request(3), constraints=[distinct("numa")])) == ""


def test_d21_all_devices_that_are_selected_are_given() -> None:
    inventory = offered(NUMA)
    assert devices_of(inventory, claim_request(all_devices_request())) == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
    assert devices_of(inventory, claim_request(all_devices_request("fast"))) == ["gpu-2", "gpu-3"]


def test_d21_all_devices_are_refused_when_one_is_taken_or_none_is_there() -> None:
    inventory = offered(NUMA, nodes=2)
    assert refusal_text(inventory, claim_request(all_devices_request()), used=["gpu-2"]) == ""
    assert devices_of(inventory, claim_request(all_devices_request("fast")), used=["gpu-1"]) == ["gpu-2", "gpu-3"]
    assert (
        refusal_text(
            inventory, claim_request(device_request(1), all_devices_request("fast", "s"), device_request(2, name="t"))
        )
        == ""
    )
    assert refusal_text(inventory, claim_request(all_devices_request()), row=1) == ""
    assert refusal_text(offered(gpus(2)), claim_request(all_devices_request("fast"))) == ""


def test_d21_a_claim_gets_at_most_32_devices() -> None:
    inventory = offered(gpus(40))
    assert refusal_text(inventory, claim_request(all_devices_request())) == ""
    assert len(devices_of(inventory, claim_request(device_request(32)))) == 32
    assert len(devices_of(inventory, claim_request(device_request(20)), claim_request(device_request(20)))) == 40
    assert refusal_text(offered(NUMA), claim_request(all_devices_request("fast"), device_request(31, name="s"))) == ""
    fitting = claim_request(
        first_of(device_request(16, name="a"), device_request(8, name="b")), device_request(20, name="s")
    )
    assert len(devices_of(inventory, fitting)) == 28
    assert len(devices_of(offered(gpus(32)), claim_request(all_devices_request()))) == 32


def test_d23_alternatives_are_tried_best_first() -> None:
    ask = claim_request(first_of(device_request(2, "fast", "best"), device_request(1, name="rest")))
    assert allocated(offered(NUMA), ask)[0].requests == (RequestAllocation(0, (2, 3)),)
    assert allocated(offered(NUMA), ask, used=["gpu-3"])[0].requests == (RequestAllocation(1, (0,)),)
    assert refusal_text(offered(NUMA), ask, used=["gpu-0", "gpu-1", "gpu-2", "gpu-3"]) == ""


def test_d23_an_alternative_gives_way_when_a_later_request_cannot_do_without_its_devices() -> None:
    ask = claim_request(
        first_of(device_request(2, "fast", "best"), device_request(2, name="rest")), device_request(1, "fast", "s")
    )
    assert devices_of(offered(NUMA), ask) == ["gpu-0", "gpu-1", "gpu-2"]


def test_d23_a_constraint_may_name_one_alternative() -> None:
    ways = first_of(device_request(2, name="a"), device_request(1, name="b"))
    apart = pool("a", gpu("0", numa=0), gpu("1", numa=1), node="node-0")
    assert devices_of(offered(apart), claim_request(ways, constraints=[same("numa", "r/a")])) == ["0"]
    assert devices_of(offered(apart), claim_request(ways, constraints=[same("numa", "r/b")])) == ["0", "1"]
    assert devices_of(offered(apart), claim_request(ways, constraints=[same("numa", "r")])) == ["0"]


def test_d23_administrative_access_takes_no_device_and_sees_those_in_use() -> None:
    inventory = offered(gpus(2))
    look = claim_request(all_devices_request(adminAccess=True))
    (found,) = allocated(inventory, look, used=["gpu-0"])
    assert found == ClaimAllocation((RequestAllocation(0, (0, 1)),), ())
    assert devices_of(inventory, look, claim_request(device_request(2)), look) == ["gpu-0", "gpu-1"] * 3
    assert devices_of(inventory, claim_request(device_request(2, adminAccess=True)), used=["gpu-0", "gpu-1"]) == [
        "gpu-0",
        "gpu-1",
    ]
    assert refusal_text(inventory, claim_request(device_request(3, adminAccess=True))) == ""


def test_devices_in_use_are_distinct_from_devices_allocated() -> None:
    inventory = offered(gpus(3))
    ask = claim_request(device_request(2, name="look", adminAccess=True), device_request(2, name="have"))
    assert allocated(inventory, ask, used=["gpu-0"]) == (
        ClaimAllocation((RequestAllocation(0, (0, 1)), RequestAllocation(0, (1, 2))), (1, 2)),
    )


def test_d20_devices_with_binding_conditions_are_not_given() -> None:
    waiting = gpu("0", more={"bindingConditions": ["attached"]})
    inventory = offered(pool("a", waiting, gpu("1"), node="node-0"))
    assert devices_of(inventory, claim_request(device_request(1))) == ["1"]
    assert refusal_text(inventory, claim_request(device_request(2))) == ""
    assert devices_of(inventory, claim_request(all_devices_request())) == ["1"]


@pytest.mark.parametrize(("effect", "first"), [("NoSchedule", "1"), ("NoExecute", "1"), ("None", "0")])
def test_d23_a_tainted_device_is_given_only_to_requests_that_tolerate_it(effect: str, first: str) -> None:
    sick = gpu("0", more={"taints": [{"key": "sick", "value": "yes", "effect": effect}]})
    inventory = offered(pool("a", sick, gpu("1"), node="node-0"))
    assert devices_of(inventory, claim_request(device_request(1))) == [first]
    brave = claim_request(device_request(1, tolerations=[{"key": "sick", "operator": "Exists"}]))
    assert devices_of(inventory, brave) == ["0"]
    assert devices_of(inventory, claim_request(device_request(1, tolerations=[{"key": "sick", "value": "no"}]))) == [
        first
    ]
    assert devices_of(inventory, claim_request(device_request(1, tolerations=[{"key": "sick", "value": "yes"}]))) == [
        "0"
    ]


def test_d23_taints_of_devices_can_be_switched_off() -> None:
    slices = [pool("a", gpu("0", more={"taints": [{"key": "sick", "effect": "NoSchedule"}]}), node="node-0")]
    assert refusal_text(Inventory.of(slices, node_table()), claim_request(device_request(1))) == ""
    ignoring = Inventory.of(slices, node_table(), DraFeatures(device_taints=False))
    assert devices_of(ignoring, claim_request(device_request(1))) == ["0"]


def test_d23_every_hard_taint_must_be_tolerated() -> None:
    taints = [{"key": key, "effect": "NoSchedule"} for key in ("a", "b")]
    inventory = offered(pool("a", gpu("0", more={"taints": taints}), node="node-0"))
    one, both = [{"key": "a", "operator": "Exists"}], [{"operator": "Exists"}]
    assert refusal_text(inventory, claim_request(device_request(1, tolerations=one))) == ""
    assert devices_of(inventory, claim_request(device_request(1, tolerations=both))) == ["0"]


def test_d23_all_devices_include_tainted_ones_so_they_must_be_tolerated() -> None:
    sick = gpu("0", more={"taints": [{"key": "sick", "effect": "NoSchedule"}]})
    inventory = offered(pool("a", sick, gpu("1"), node="node-0"))
    assert refusal_text(inventory, claim_request(all_devices_request())) == ""
    assert devices_of(
        inventory, claim_request(all_devices_request(tolerations=[{"key": "sick", "operator": "Exists"}]))
    ) == ["0", "1"]


def partitions(*sizes: int, have: int = 4) -> ResourceSlice:
    """Devices part-0, part-1, ... that take so much of one counter."""
    devices = [gpu(f"part-{number}", takes={"s": {"memory": size}}) for number, size in enumerate(sizes)]
    return pool("a", *devices, node="node-0", shares={"s": {"memory": have}})


def test_d23_partitions_never_take_more_than_there_is() -> None:
    inventory = offered(partitions(4, 2, 2, 1))
    assert devices_of(inventory, claim_request(device_request(1))) == ["part-0"]
    assert devices_of(inventory, claim_request(device_request(2))) == ["part-1", "part-2"]
    assert refusal_text(inventory, claim_request(device_request(3))) == ""
    assert devices_of(inventory, claim_request(device_request(1)), used=["part-1"]) == ["part-2"]
    assert refusal_text(inventory, claim_request(device_request(1)), used=["part-1", "part-2"]) == ""
    assert refusal_text(inventory, claim_request(device_request(1)), used=["part-0"]) == ""
    assert refusal_text(inventory, claim_request(all_devices_request())) == ""


def test_d23_every_counter_of_a_partition_must_suffice() -> None:
    shares = {"s": {"memory": 4, "cores": 1}, "t": {"links": 1}}
    devices = [
        gpu("0", takes={"s": {"memory": 1, "cores": 1}}),
        gpu("1", takes={"s": {"memory": 1, "cores": 1}}),
        gpu("2", takes={"s": {"memory": 1}, "t": {"links": 1}}),
        gpu("3", takes={"t": {"links": 1}}),
    ]
    inventory = offered(pool("a", *devices, node="node-0", shares=shares))
    assert devices_of(inventory, claim_request(device_request(2))) == ["0", "2"]
    assert refusal_text(inventory, claim_request(device_request(3))) == ""


def test_d23_counters_are_restored_when_the_search_backtracks() -> None:
    """The first request must leave the large partition's share to the second."""
    shares = {"s": {"memory": 4}}
    devices = [gpu("0", takes={"s": {"memory": 3}}), gpu("1"), gpu("2", takes={"s": {"memory": 4}}, speed="fast")]
    inventory = offered(pool("a", *devices, node="node-0", shares=shares))
    assert devices_of(inventory, claim_request(device_request(1), device_request(1, "fast", "s"))) == ["1", "2"]


def test_d23_administrative_access_to_a_partition_uses_no_counters() -> None:
    inventory = offered(partitions(4, 4))
    assert devices_of(
        inventory, claim_request(device_request(2, adminAccess=True)), claim_request(device_request(1))
    ) == ["part-0", "part-1", "part-0"]


def test_d23_partitions_that_consume_different_counters_are_not_alike() -> None:
    inventory = offered(partitions(3, 2, 2))
    assert devices_of(inventory, claim_request(device_request(2))) == ["part-1", "part-2"]


def test_devices_once_given_can_be_given_again_when_they_are_free_and_counters_suffice() -> None:
    inventory = offered(partitions(4, 2, 2, 1), gpus(2, "node-1"), nodes=2)
    pair = named(inventory, "part-1", "part-2")
    assert are_available(inventory, pair, used_column(inventory))
    assert are_available(inventory, pair, used_column(inventory, "gpu-0"))
    assert not are_available(inventory, named(inventory, "gpu-0", "gpu-1"), used_column(inventory, "gpu-1"))
    assert not are_available(inventory, pair, used_column(inventory, "part-3"))
    assert not are_available(inventory, named(inventory, "part-0", "part-1"), used_column(inventory))
    assert are_available(inventory, (), np.ones(len(inventory), dtype=np.bool_))


def test_d19_a_request_for_all_devices_fails_while_a_pool_of_the_node_is_broken() -> None:
    inventory = offered(
        gpus(1),
        pool("b", gpu("0"), node="node-0", slices=2),
        pool("c", gpu("0"), gpu("0"), node="node-1"),
        gpus(1, "node-1"),
        gpus(1, "node-2"),
        nodes=3,
    )
    assert refusal_text(inventory, claim_request(all_devices_request())) == (
        f"request r is for all devices, but pool b of {DRIVER} has 1 of 2 slices"
    )
    assert "two devices called 0" in refusal_text(inventory, claim_request(all_devices_request()), row=1)
    assert devices_of(inventory, claim_request(all_devices_request()), row=2) == ["gpu-0"]
    either = claim_request(first_of(device_request(1, name="a"), all_devices_request(name="b")))
    assert devices_of(inventory, either) == ["gpu-0"]
    assert "is for all devices" in refusal_text(inventory, either, used=["gpu-0"])


def test_d19_when_nothing_fits_an_invalid_pool_is_reported_an_incomplete_one_is_not() -> None:
    inventory = offered(
        gpus(1),
        pool("b", gpu("0"), node="node-0", slices=2),
        gpus(1, "node-1"),
        pool("c", gpu("0"), gpu("0"), node="node-1"),
        nodes=2,
    )
    assert devices_of(inventory, claim_request(device_request(1)), row=1) == ["gpu-0"]
    assert refusal_text(inventory, claim_request(device_request(2)), row=0) == ""
    assert (
        refusal_text(inventory, claim_request(device_request(2)), row=1)
        == f"pool c of {DRIVER} has two devices called 0"
    )


SIZE = f'device.attributes["{DRIVER}"].size == 1'


def test_d20_a_failing_selector_ends_the_search_when_it_reaches_the_device() -> None:
    inventory = offered(pool("a", gpu("0", size=1), gpu("1", size=1), gpu("odd"), gpu("3", size=1), node="node-0"))
    ask = claim_request(device_request(2, selectors=[SIZE]))
    assert devices_of(inventory, ask) == ["0", "1"]
    assert f"device {DRIVER}/a/odd: selector {SIZE}: " in refusal_text(inventory, ask, used=["0"])
    assert "odd" in refusal_text(inventory, claim_request(device_request(9, selectors=[SIZE])))
    assert devices_of(inventory, ask, used=["0", "odd"]) == ["1", "3"]
    assert "odd" in refusal_text(inventory, claim_request(all_devices_request(selectors=[SIZE])))


def test_d20_an_expression_that_does_not_compile_refuses_the_claim() -> None:
    text = refusal_text(offered(gpus(1)), claim_request(device_request(1, selectors=["device.driver =="])))
    assert text.startswith("selector device.driver ==: ")


def test_devices_on_which_a_selector_fails_are_not_like_those_on_which_it_does_not() -> None:
    """gpu:D-20; taking the odd device first would hide the failure from the second request."""
    devices = [gpu("0", size=1), gpu("odd"), gpu("2", size=2)]
    inventory = offered(pool("a", *devices, node="node-0"))
    ask = claim_request(device_request(1, name="any"), device_request(1, name="sized", selectors=[SIZE]))
    assert "odd" in refusal_text(inventory, ask)


def test_an_unresolvable_search_is_given_up_with_a_reason() -> None:
    """Pairs that agree in a, triples that differ in b: nothing fits, and no two devices are alike."""
    devices = [gpu(f"{number:02}", a=number % 6, b=number, c=number % 5) for number in range(30)]
    inventory = offered(pool("a", *devices, node="node-0"))
    ask = claim_request(
        device_request(5),
        device_request(5, name="s"),
        constraints=[same("a", "r"), same("c", "s"), same("b", "r", "s")],
    )
    assert refusal_text(inventory, ask) == ""
    hard = claim_request(
        device_request(4),
        device_request(4, name="s"),
        device_request(4, name="t"),
        constraints=[distinct("a", "r", "s", "t")],
    )
    assert "stopped after too many steps" in refusal_text(inventory, hard, steps=200)


def test_devices_that_are_alike_are_tried_once() -> None:
    """A quadrillion ways to choose twelve of 64 equal devices, none of which leaves one of another kind."""
    devices = [gpu(f"{number:02}", kind="a") for number in range(64)] + [gpu("z", kind="b")]
    inventory = offered(pool("a", *devices, node="node-0"))
    other = f'device.attributes["{DRIVER}"].kind == "b"'
    ask = claim_request(device_request(12), device_request(1, name="s", selectors=[other]), constraints=[same("kind")])
    assert refusal_text(inventory, ask, steps=100) == ""
