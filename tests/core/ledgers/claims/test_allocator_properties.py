"""The allocator against trying everything, and the many-node check against the allocator (gpu:D-19 to D-23)."""

from __future__ import annotations

from itertools import combinations, product
from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pykai.api.resource import ResourceSlice
from pykai.core.cluster.claims.inventory import Inventory
from pykai.core.ledgers.claims.allocator import allocate
from pykai.core.ledgers.claims.feasible import allocate_by_plan, feasibility_plan, fits_at
from pykai.core.model.axes import BoolArray
from pykai.core.model.claimrequests import ClaimRefusal, ClaimRequest
from tests.core.deviceobjects import (
    DRIVER,
    Raw,
    all_devices_request,
    claim_request,
    device_request,
    distinct,
    first_of,
    fits_claims,
    gpu,
    offered,
    pool,
    same,
)

SMALL = f'device.attributes["{DRIVER}"].?size.orValue(0) == 1'


#: alternative and devices by request of a claim
Choice = list[tuple[int, tuple[int, ...]]]


class Case(NamedTuple):
    inventory: Inventory
    claims: tuple[ClaimRequest, ...]
    taken: BoolArray


@st.composite
def devices(draw: st.DrawFn, name: str) -> Raw:
    """Mostly a plain device with its attributes, sometimes one with a defect."""
    facts: Raw = {"size": draw(st.integers(1, 2)), "numa": draw(st.integers(0, 1))}
    facts["speed"] = draw(st.sampled_from(["fast", "slow"]))
    more: Raw = {}
    flaw = draw(st.sampled_from([*[""] * 12, "no numa", "tainted", "waiting"]))
    if flaw == "no numa":
        del facts["numa"]
    elif flaw == "tainted":
        more["taints"] = [{"key": "sick", "effect": "NoSchedule"}]
    elif flaw == "waiting":
        more["bindingConditions"] = ["attached"]
    takes = draw(st.sampled_from([{}, {}, {"s": {"memory": 1}}, {"s": {"memory": 2}}, {"t": {"memory": 1}}]))
    return gpu(name, takes=takes, more=more, **facts)


@st.composite
def pools(draw: st.DrawFn, nodes: int, most: int) -> list[ResourceSlice]:
    shares = {"s": {"memory": 3}, "t": {"memory": 1}}
    slices = []
    for number in range(nodes):
        count = draw(st.sampled_from([0, 1, *[most - 1, most] * 4]))
        found = [draw(devices(f"{number}-{place}")) for place in range(count)]
        slices.append(pool(f"p{number}", *found, node=f"node-{number}", shares=shares))
    if draw(st.booleans()):
        slices.append(pool("all", draw(devices("shared")), allNodes=True, shares=shares))
    if draw(st.sampled_from([False] * 7 + [True])):
        slices.append(pool("broken", gpu("twice"), gpu("twice"), node="node-0"))
    return slices


@st.composite
def requests(draw: st.DrawFn, name: str) -> Raw:
    kind = draw(st.sampled_from(["gpu", "gpu", "fast"]))
    selectors = draw(st.sampled_from([(), (), (), (SMALL,)]))
    more: Raw = draw(st.sampled_from([{}, {}, {"tolerations": [{"operator": "Exists"}]}]))
    form = draw(st.sampled_from(["count"] * 9 + ["all", "admin", "list", "list"]))
    count = draw(st.sampled_from([1, 1, 2, 2, 3]))
    if form == "all":
        return all_devices_request(kind, name, selectors, **more)
    if form == "list":
        rest = device_request(draw(st.integers(1, 2)), draw(st.sampled_from(["gpu", "fast"])), "rest")
        return first_of(device_request(count, kind, "best", selectors, **more), rest, name=name)
    return device_request(count, kind, name, selectors, adminAccess=form == "admin", **more)


@st.composite
def claim_asks(draw: st.DrawFn) -> ClaimRequest:
    names = ["r", "s"][: draw(st.integers(1, 2))]
    named = draw(st.sampled_from([(), ("r",), tuple(names), ("r/best",)]))
    constraints = draw(
        st.sampled_from([[], [], [same("numa", *named)], [distinct("size", *named)], [same("size"), same("numa")]])
    )
    return claim_request(*(draw(requests(name)) for name in names), constraints=constraints)


@st.composite
def cases(draw: st.DrawFn, nodes: int = 1, most: int = 5) -> Case:
    inventory = offered(*draw(pools(nodes, most)), nodes=nodes)
    claims = tuple(draw(claim_asks()) for _ in range(draw(st.sampled_from([1, 1, 2]))))
    used = st.sampled_from([False] * 7 + [True])
    taken = np.array([draw(used) for _ in range(len(inventory))], dtype=np.bool_)
    return Case(inventory, claims, taken)


def problems(case: Case, row: int, chosen: list[Choice]) -> list[str]:
    """What is wrong with giving these devices to the claims."""
    inventory, claims, taken = case
    found: list[str] = []
    used: list[int] = []
    for claim, parts in zip(claims, chosen, strict=True):
        by_name: list[tuple[str, int]] = []
        for request, (number, got) in zip(claim.requests, parts, strict=True):
            way = request.alternatives[number]
            selected = [
                device for device in inventory.devices_at(row).tolist() if meant(inventory, device, way.selectors)
            ]
            if way.device_count == 0 and (list(got) != selected or not got or inventory.broken_pools_at(row)):
                found.append("not all devices")
            if way.device_count and len(set(got)) != way.device_count:
                found.append("wrong count")
            if not set(got) <= set(selected):
                found.append("not selected")
            if not way.tolerations and any(inventory.devices[device].taints for device in got):
                found.append("tainted")
            if not way.admin_access:
                used += got
            by_name += [(way.name, device) for device in got]
        for constraint in claim.constraints:
            codes = [
                int(inventory.attribute(constraint.attribute)[device])
                for name, device in by_name
                if constraint.covers(name)
            ]
            if 0 in codes or len(set(codes)) != (len(codes) if constraint.distinct else min(len(codes), 1)):
                found.append("constraint")
    if len(set(used)) != len(used) or any(taken[device] for device in used):
        found.append("device twice")
    spent: dict[int, int] = {}
    for device in [*used, *np.flatnonzero(taken).tolist()]:
        for counter, amount in inventory.counter_use.get(device, ()):
            spent[counter] = spent.get(counter, 0) + amount
    touched = {counter for device in used for counter, _ in inventory.counter_use.get(device, ())}
    if any(spent[counter] > inventory.counter_limits[counter] for counter in touched):
        found.append("counter")
    return found


def meant(inventory: Inventory, device: int, selectors: tuple[str, ...]) -> bool:
    raw = inventory.devices[device]
    wanted = {"fast": ("speed", "fast"), "size": ("size", 1)}
    for text in selectors:
        name, value = wanted["size" if text == SMALL else "fast"]
        attribute = raw.attributes.get(name)
        if attribute is None or value not in (attribute.string_value, attribute.int_value):
            return False
    return not raw.binding_conditions


def first(case: Case, row: int) -> list[Choice] | None:
    """The first choice that is right, by trying all of them in order."""
    inventory, claims, _ = case
    reach = inventory.devices_at(row).tolist()

    def ways(claim: ClaimRequest) -> list[Choice]:
        options = [
            [
                (number, got)
                for number, way in enumerate(request.alternatives)
                for got in (
                    combinations(reach, way.device_count)
                    if way.device_count
                    else [tuple(device for device in reach if meant(inventory, device, way.selectors))]
                )
                if all(meant(inventory, device, way.selectors) for device in got)
            ]
            for request in claim.requests
        ]
        alone = case._replace(claims=(claim,))
        return [list(parts) for parts in product(*options) if not problems(alone, row, [list(parts)])]

    right = (list(parts) for parts in product(*(ways(claim) for claim in claims)))
    return next((parts for parts in right if not problems(case, row, parts)), None)


@settings(max_examples=160, deadline=None)
@given(cases(most=5))
def test_d21_the_first_devices_that_satisfy_all_claims_are_given_and_none_only_when_there_are_none(case: Case) -> None:
    found = allocate(case.inventory, 0, case.claims, case.taken)
    chosen = None if isinstance(found, ClaimRefusal) else [[tuple(part) for part in item.requests] for item in found]
    assert chosen == first(case, 0)


@settings(max_examples=130, deadline=None)
@given(cases(nodes=4, most=3), st.lists(st.integers(0, 3), max_size=4))
def test_d10_many_nodes_at_once_give_the_same_result_as_each_alone(case: Case, some: list[int]) -> None:
    inventory, claims, taken = case
    alone = [not isinstance(allocate(inventory, row, claims, taken), ClaimRefusal) for row in range(4)]
    assert fits_claims(inventory, claims, taken).tolist() == alone
    assert fits_claims(inventory, claims, taken, np.array(some, dtype=np.int64)).tolist() == [
        alone[row] for row in some
    ]
    plan = feasibility_plan(inventory, claims)
    assert [fits_at(inventory, plan, taken, row) for row in range(4)] == alone
    # The cache must not answer for other devices in use.
    none = np.zeros(len(inventory), dtype=np.bool_)
    free = [not isinstance(allocate(inventory, row, claims, none), ClaimRefusal) for row in range(4)]
    assert fits_claims(inventory, claims, none).tolist() == free


@settings(max_examples=100, deadline=None)
@given(cases(nodes=2, most=4))
def test_d21_what_is_given_without_a_search_is_what_a_search_finds(case: Case) -> None:
    plan = feasibility_plan(case.inventory, case.claims)
    for row in range(2):
        searched = allocate(case.inventory, row, case.claims, case.taken)
        assert allocate_by_plan(case.inventory, plan, row, case.taken) == searched
