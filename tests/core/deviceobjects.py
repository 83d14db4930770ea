"""Builders for devices and claims.

    inventory = offered(pool("a", gpu("gpu-0", model="A100"), gpu("gpu-1"), node="node-0"), nodes=2)
    assert devices_of(inventory, claim_request(device_request(2))) == ["gpu-0", "gpu-1"]

Class `gpu` selects every device, class `fast` those whose attribute `speed` is `fast` (by CEL).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from pykai.api.core import Node
from pykai.api.decode import decode_object
from pykai.api.resource import DeviceClass, ResourceClaimSpec, ResourceSlice
from pykai.core.cluster.claims.inventory import Inventory
from pykai.core.cluster.nodetable import NodeTable
from pykai.core.ledgers.claims.allocator import MAX_STEPS, ClaimAllocation, allocate
from pykai.core.ledgers.claims.feasible import feasibility_plan, fits_plan
from pykai.core.model.axes import BoolArray, IntArray
from pykai.core.model.claimrequests import ClaimRefusal, ClaimRequest
from pykai.core.model.nodes import read_node

DRIVER = "gpu.example.com"
Raw = dict[str, Any]


def node_table(count: int = 1, labels: Mapping[int, Mapping[str, str]] | None = None) -> NodeTable:
    """Nodes node-0, node-1, ...; `labels` by number."""
    facts = {}
    for number in range(count):
        metadata = {"name": f"node-{number}", "labels": dict((labels or {}).get(number, {}))}
        node = decode_object({"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        assert isinstance(node, Node)
        facts[node.metadata.name] = read_node(node, "", lambda *problem: None)
    return NodeTable.of(facts)


def _attribute(value: object) -> Raw:
    if isinstance(value, dict):
        return value
    kind = {str: "string", bool: "bool", int: "int"}[type(value)]
    return {kind: value}


def gpu(
    name: str,
    *,
    capacity: Mapping[str, str] | None = None,
    takes: Mapping[str, Mapping[str, Any]] | None = None,
    more: Mapping[str, Any] | None = None,
    **attributes: object,
) -> Raw:
    """A device; `takes` is counter set -> counter -> amount, `more` has other fields as on the wire."""
    return {
        "name": name,
        "attributes": {key: _attribute(value) for key, value in attributes.items()},
        "capacity": {key: {"value": value} for key, value in (capacity or {}).items()},
        "consumesCounters": _counters("counterSet", takes or {}),
        **(more or {}),
    }


def _counters(label: str, sets: Mapping[str, Mapping[str, Any]]) -> list[Raw]:
    return [
        {label: name, "counters": {counter: {"value": value} for counter, value in counters.items()}}
        for name, counters in sets.items()
    ]


def pool(
    name: str,
    *devices: Raw,
    node: str = "",
    driver: str = DRIVER,
    generation: int = 1,
    slices: int = 1,
    part: str = "",
    shares: Mapping[str, Mapping[str, Any]] | None = None,
    **spec: Any,
) -> ResourceSlice:
    """A slice of a pool; `part` distinguishes several slices of one pool, `shares` are counter sets."""
    return msgspec.convert(
        {
            "metadata": {"name": part or f"{name}-slice"},
            "spec": {
                "driver": driver,
                "pool": {"name": name, "generation": generation, "resourceSliceCount": slices},
                **({"nodeName": node} if node else {}),
                "devices": list(devices),
                "sharedCounters": _counters("name", shares or {}),
                **spec,
            },
        },
        ResourceSlice,
    )


def gpus(count: int, node: str = "node-0") -> ResourceSlice:
    """`count` plain devices gpu-0, gpu-1, ... of a node, in a pool called like it."""
    return pool(node, *(gpu(f"gpu-{number}") for number in range(count)), node=node)


def offered(*slices: ResourceSlice, nodes: int | NodeTable = 1) -> Inventory:
    """The inventory of some slices."""
    return Inventory.of(slices, node_table(nodes) if isinstance(nodes, int) else nodes)


def device_class(name: str, *selectors: str, created: str | None = None, **spec: Any) -> DeviceClass:
    """A class with CEL selectors."""
    return msgspec.convert(
        {
            "metadata": {"name": name, "creationTimestamp": created},
            "spec": {"selectors": [{"cel": {"expression": text}} for text in selectors], **spec},
        },
        DeviceClass,
    )


FAST = f'device.attributes["{DRIVER}"].?speed.orValue("") == "fast"'
CLASSES = {item.metadata.name: item for item in (device_class("gpu"), device_class("fast", FAST))}


def device_request(
    count: int = 1, kind: str = "gpu", name: str = "r", selectors: Iterable[str] = (), **more: Any
) -> Raw:
    """A request for some devices of a class."""
    return {"name": name, "exactly": _exact(count, kind, selectors, more)}


def all_devices_request(kind: str = "gpu", name: str = "r", selectors: Iterable[str] = (), **more: Any) -> Raw:
    """A request for all devices of a class."""
    return device_request(0, kind, name, selectors, allocationMode="All", **more)


def first_of(*alternatives: Raw, name: str = "r") -> Raw:
    """A prioritised list; its entries are made by `device_request` and `all_devices_request`."""
    return {"name": name, "firstAvailable": [{"name": way["name"], **way["exactly"]} for way in alternatives]}


def _exact(count: int, kind: str, selectors: Iterable[str], more: Mapping[str, Any]) -> Raw:
    return {
        "deviceClassName": kind,
        "allocationMode": "ExactCount",
        "count": count,
        "selectors": [{"cel": {"expression": text}} for text in selectors],
        **more,
    }


def spec_of(*requests: Raw, constraints: Iterable[Raw] = (), config: Iterable[Raw] = ()) -> ResourceClaimSpec:
    """A claim's spec."""
    raw = {"devices": {"requests": list(requests), "constraints": list(constraints), "config": list(config)}}
    return msgspec.convert(raw, ResourceClaimSpec)


def claim_request(
    *requests: Raw,
    constraints: Iterable[Raw] = (),
    config: Iterable[Raw] = (),
    classes: Mapping[str, DeviceClass] = CLASSES,
) -> ClaimRequest:
    """A valid claim request."""
    request = ClaimRequest.of(spec_of(*requests, constraints=constraints, config=config), classes, "team/claim")
    assert isinstance(request, ClaimRequest), request
    return request


def same(attribute: str, *requests: str) -> Raw:
    """Devices agree in an attribute."""
    return {"matchAttribute": f"{DRIVER}/{attribute}", "requests": list(requests)}


def distinct(attribute: str, *requests: str) -> Raw:
    """Devices differ in an attribute."""
    return {"distinctAttribute": f"{DRIVER}/{attribute}", "requests": list(requests)}


def used_column(inventory: Inventory, *names: str) -> BoolArray:
    """The column of devices in use."""
    return np.array([identity.device in names for identity in inventory.ids], dtype=np.bool_)


def allocated(
    inventory: Inventory, *claims: ClaimRequest, row: int = 0, used: Iterable[str] = (), steps: int = MAX_STEPS
) -> tuple[ClaimAllocation, ...]:
    """What claims get on a node where they fit."""
    allocations = allocate(inventory, row, claims, used_column(inventory, *used), steps=steps)
    assert not isinstance(allocations, ClaimRefusal), allocations
    return allocations


def devices_of(inventory: Inventory, *claims: ClaimRequest, row: int = 0, used: Iterable[str] = ()) -> list[str]:
    """Names of the devices that claims get, request by request."""
    return [
        inventory.ids[number].device
        for allocation in allocated(inventory, *claims, row=row, used=used)
        for given in allocation.requests
        for number in given.devices
    ]


def refusal_text(
    inventory: Inventory, *claims: ClaimRequest, row: int = 0, used: Iterable[str] = (), steps: int = MAX_STEPS
) -> str:
    """Why claims get nothing on a node; "" when its devices do not suffice."""
    result = allocate(inventory, row, claims, used_column(inventory, *used), steps=steps)
    assert isinstance(result, ClaimRefusal), result
    return result.text


def named(inventory: Inventory, *names: str) -> tuple[int, ...]:
    """Numbers of devices by name."""
    return tuple(number for number, identity in enumerate(inventory.ids) if identity.device in names)


def fits_claims(
    inventory: Inventory, claims: Sequence[ClaimRequest], taken: BoolArray, rows: slice | IntArray = slice(None)
) -> BoolArray:
    """[row] whether claims can be satisfied on a node."""
    return fits_plan(inventory, feasibility_plan(inventory, claims), taken, rows)
