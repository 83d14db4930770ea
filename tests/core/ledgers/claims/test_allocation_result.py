"""An allocation as the claim's status has it: gpu:D-22."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pykai.api.resource import AllocationResult, ResourceSlice
from pykai.core.cluster.claims.inventory import Inventory
from pykai.core.ledgers.claims.allocator import allocation_result
from pykai.core.model.claimrequests import ClaimRequest
from tests.core.deviceobjects import (
    DRIVER,
    Raw,
    all_devices_request,
    allocated,
    claim_request,
    device_class,
    device_request,
    first_of,
    gpu,
    gpus,
    node_table,
    offered,
    pool,
)


def wire(inventory: Inventory, ask: ClaimRequest, row: int = 0) -> Raw:
    (allocation,) = allocated(inventory, ask, row=row)
    result = allocation_result(inventory, row, ask, allocation)
    assert isinstance(result, AllocationResult)
    found: Raw = msgspec.json.decode(msgspec.json.encode(result))
    return found


def parameters(name: str, *requests: str, driver: str = DRIVER) -> Raw:
    return {"requests": list(requests), "opaque": {"driver": driver, "parameters": {"name": name, "null": None}}}


def test_d22_each_device_is_named_with_request_driver_and_pool() -> None:
    ask = claim_request(device_request(2), device_request(1, name="s"))
    assert wire(offered(gpus(3)), ask)["devices"]["results"] == [
        {"request": request, "driver": DRIVER, "pool": "node-0", "device": f"gpu-{number}"}
        for number, request in enumerate(["r", "r", "s"])
    ]


def test_d23_results_of_an_alternative_carry_its_name() -> None:
    ask = claim_request(first_of(device_request(9, name="best"), device_request(1, name="rest")))
    (result,) = wire(offered(gpus(1)), ask)["devices"]["results"]
    assert result["request"] == "r/rest"


def test_d23_administrative_access_and_tolerations_are_in_the_result() -> None:
    toleration = {"key": "sick", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    (result,) = wire(offered(gpus(1)), claim_request(device_request(1, adminAccess=True, tolerations=[toleration])))[
        "devices"
    ]["results"]
    assert result["adminAccess"] is True
    assert result["tolerations"] == [toleration]


def test_d22_parameters_of_classes_come_once_each_then_those_of_the_claim() -> None:
    classes = {
        "a": device_class("a", config=[parameters("a1"), parameters("a2")]),
        "b": device_class("b", config=[parameters("b")]),
    }
    ask = claim_request(
        device_request(1, "b", "x"),
        device_request(1, "a", "y"),
        device_request(1, "b", "z"),
        config=[parameters("all"), parameters("some", "y", "z")],
        classes=classes,
    )
    config = wire(offered(gpus(3)), ask)["devices"]["config"]
    assert [(item["source"], item.get("requests", []), item["opaque"]["parameters"]["name"]) for item in config] == [
        ("FromClass", ["x", "z"], "b"),
        ("FromClass", ["y"], "a1"),
        ("FromClass", ["y"], "a2"),
        ("FromClaim", [], "all"),
        ("FromClaim", ["y", "z"], "some"),
    ]
    assert config[0]["opaque"] == {"driver": DRIVER, "parameters": {"name": "b", "null": None}}


def test_d22_only_parameters_of_what_was_chosen_apply() -> None:
    classes = {name: device_class(name, config=[parameters(name)]) for name in ("big", "small")}
    ask = claim_request(
        first_of(device_request(2, "big", "big"), device_request(1, "small", "small")),
        config=[parameters("either", "r"), parameters("one", "r/small"), parameters("other", "r/big")],
        classes=classes,
    )

    def applied(count: int) -> list[tuple[str, str]]:
        config = wire(offered(gpus(count)), ask)["devices"]["config"]
        return [(item["requests"][0], item["opaque"]["parameters"]["name"]) for item in config]

    assert applied(2) == [("r/big", "big"), ("r", "either"), ("r/big", "other")]
    assert applied(1) == [("r/small", "small"), ("r", "either"), ("r/small", "one")]


def expression(key: str, *values: str) -> Raw:
    return {"key": key, "operator": "In", "values": list(values)}


def selecting(*terms: Raw) -> Raw:
    return {"nodeSelector": {"nodeSelectorTerms": list(terms)}}


PINNED = [{"matchFields": [expression("metadata.name", "node-1")]}]
ZONE = expression("zone", "a")
RACK = expression("rack", "1")
EVERYWHERE = pool("all", gpu("0"), allNodes=True)
IN_ZONE = pool("zone", gpu("1"), **selecting({"matchExpressions": [ZONE]}))
IN_RACK = pool("rack", gpu("2"), **selecting({"matchExpressions": [RACK, ZONE]}))
NAMED = pool("named", gpu("3"), **selecting({"matchFields": [expression("metadata.name", "node-1")]}))
EITHER = pool("either", gpu("4"), **selecting({"matchExpressions": [ZONE]}, {"matchExpressions": [RACK]}))
ALONE = pool("own", gpu("5", more={"nodeName": "node-1"}), perDeviceNodeSelection=True)


@pytest.mark.parametrize(
    ("slices", "terms"),
    [
        ([EVERYWHERE], None),
        ([EVERYWHERE, gpus(1, "node-1")], PINNED),
        ([gpus(1, "node-1")], PINNED),
        ([ALONE, IN_ZONE], PINNED),
        ([EVERYWHERE, IN_ZONE], [{"matchExpressions": [ZONE]}]),
        ([IN_ZONE, IN_RACK], [{"matchExpressions": [RACK, ZONE]}]),
        ([IN_ZONE, NAMED], [{"matchExpressions": [ZONE], "matchFields": [expression("metadata.name", "node-1")]}]),
        ([EITHER], PINNED),
    ],
)
def test_d22_a_claim_can_be_used_from_the_nodes_that_reach_all_its_devices(
    slices: list[ResourceSlice], terms: list[Raw] | None
) -> None:
    labels = {1: {"zone": "a", "rack": "1"}, 2: {"zone": "a"}}
    inventory = offered(*slices, nodes=node_table(3, labels))
    found: Any = wire(inventory, claim_request(all_devices_request()), row=1)
    assert found.get("nodeSelector") == (None if terms is None else {"nodeSelectorTerms": terms})
