"""Bad slices, classes, claims and bind requests do not stop other work, and are reported.

Tests marked as failing show known defects.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.badinput import beside_haven, problems_of, schedules_haven
from tests.core.builders import Cluster, Raw, Result, allocation_of
from tests.core.deviceclusters import device_request

BIG = 2**63 - 1
DRIVER = "gpu.example.com"


def offering(*selectors: str, devices: int | list[Raw] = 2, **spec: Any) -> Cluster:
    """A class with these selectors, and devices on node-0."""
    return beside_haven().device_class("gpu", *selectors).slice("node-0", devices, **spec)


def claims(built: Cluster) -> list[Raw]:
    """The ResourceClaims so far."""
    return [item for item in built.objects if item["kind"] == "ResourceClaim"]


def waits(result: Result) -> str:
    """Why the odd gang waits; it must wait."""
    assert result.bound("odd") == 0
    return result.why("odd")


# Requests of containers


@pytest.mark.parametrize("resource", ["memory", "nvidia.com/gpu", "example.com/link"])
def test_an_amount_that_cannot_be_read_waits_where_there_are_classes(resource: str) -> None:
    built = offering().device_class("link", extendedResourceName="example.com/link")
    assert "cannot be read" in waits(schedules_haven(built.gang("odd", extra={resource: "x"})))


@pytest.mark.parametrize("amount", ["1e30", str(10**40)])
def test_an_absurd_amount_of_an_extended_resource_waits(amount: str) -> None:
    built = offering().device_class("link", extendedResourceName="example.com/link")
    assert waits(schedules_haven(built.gang("odd", extra={"example.com/link": amount})))


@pytest.mark.parametrize("name", ["", "cpu", "nvidia.com/gpu", "é"])
def test_a_class_behind_an_odd_resource_is_harmless(name: str) -> None:
    schedules_haven(offering().device_class("odd", extendedResourceName=name).gang("odd", gpu=1))


# Claims


@pytest.mark.parametrize("count", [33, 10**9, BIG])
def test_a_claim_for_more_devices_than_one_may_have_waits(count: int) -> None:
    assert "requests more than 32 devices" in waits(schedules_haven(offering().gang("odd", template=count)))


@pytest.mark.parametrize("count", [0, -1, -BIG - 1])
def test_a_claim_for_less_than_one_device_is_for_one(count: int) -> None:
    assert len(schedules_haven(offering().gang("odd", template=count)).allocated_devices("odd-0")["devices"]) == 1


@pytest.mark.parametrize(
    "requests",
    [
        [{"name": "r"}],
        [{}],
        [device_request(BIG), device_request(BIG, name="s")],
        [device_request(of="gone")],
        [device_request(allocationMode="Odd")],
    ],
    ids=str,
)
def test_a_claim_that_no_node_can_satisfy_waits(requests: list[Raw]) -> None:
    assert "DynamicResources" in waits(schedules_haven(offering().gang("odd", template=requests)))


@pytest.mark.parametrize("requests", [[], [device_request(), device_request()]], ids=["none", "one name twice"])
def test_an_odd_list_of_requests_is_harmless(requests: list[Raw]) -> None:
    schedules_haven(offering().gang("odd", template=requests))


@pytest.mark.parametrize(
    "constraints",
    [[{}], [{"matchAttribute": ""}], [{"matchAttribute": "/", "requests": ["gone"]}], [{"distinctAttribute": "a/b/c"}]],
    ids=str,
)
def test_an_odd_constraint_is_harmless(constraints: list[Raw]) -> None:
    built = offering().device_claim("c", count=2, queue="q", constraints=constraints)
    schedules_haven(built.gang("odd", shares=("c",)))


@pytest.mark.parametrize(
    "entries",
    [[{}], [{"name": "", "resourceClaimName": ""}], [{"name": "a", "resourceClaimTemplateName": "t"}]],
    ids=str,
)
def test_a_pod_that_names_no_claim_waits(entries: list[Raw]) -> None:
    assert "no resource claim name found" in waits(
        schedules_haven(offering().gang("odd", spec={"resourceClaims": entries}))
    )


def test_claims_made_for_each_others_pods_are_not_used() -> None:
    built = offering().gang("odd", template=1).gang("other", template=1)
    one, other = claims(built)
    one["metadata"]["ownerReferences"], other["metadata"]["ownerReferences"] = (
        other["metadata"]["ownerReferences"],
        one["metadata"]["ownerReferences"],
    )
    result = schedules_haven(built)
    assert "was not created for pod" in waits(result)
    assert "was not created for pod" in result.why("other")


@pytest.mark.parametrize("owners", [[{}], [{"kind": "Pod"}], [{"kind": "Pod", "uid": ""}] * 100], ids=len)
def test_owners_without_a_uid_are_harmless(owners: list[Raw]) -> None:
    built = offering().gang("odd", template=1)
    claims(built)[0]["metadata"]["ownerReferences"] = owners
    schedules_haven(built)


@pytest.mark.parametrize("users", [[{}], [{"resource": "odd", "uid": ""}] * 300], ids=len)
def test_reservations_for_no_consumer_are_harmless(users: list[Raw]) -> None:
    built = offering().device_claim("c", queue="q").gang("odd", shares=("c",))
    claims(built)[0]["status"]["reservedFor"] = users
    schedules_haven(built)


def test_a_claim_reserved_for_too_many_waits() -> None:
    built = offering().device_claim("c", queue="q", users=tuple(f"u{n}" for n in range(300)), given=("gpu-0",))
    assert "maximum number of consumers" in waits(schedules_haven(built.gang("odd", shares=("c",))))


# What claims have


@pytest.mark.parametrize(
    "given", [("gone",), ("gpu-0",) * 100, ("gone/gpu-0", "gpu-0"), ("",)], ids=["unknown", "often", "pool", "nameless"]
)
def test_a_claim_with_malformed_devices_is_harmless(given: tuple[str, ...]) -> None:
    built = offering().device_claim("c", queue="q", given=given, on="node-0").gang("old", shares=("c",), on="node-0")
    schedules_haven(built.gang("odd", shares=("c",)).gang("other", template=1))


def test_two_claims_that_have_one_device_keep_it_from_others() -> None:
    built = offering(devices=1)
    for name in ("c", "d"):
        built.device_claim(name, queue="q", given=("gpu-0",), on="node-0").gang(
            f"old-{name}", shares=(name,), on="node-0"
        )
    assert waits(schedules_haven(built.gang("odd", template=1, preemptible=False)))


def test_a_claim_with_an_unreadable_node_selector_is_used_nowhere() -> None:
    for selector in ({}, {"nodeSelectorTerms": [{"matchExpressions": [{"key": "", "operator": "?"}]}]}):
        built = offering().device_claim("c", queue="q", given=("gpu-0",)).gang("odd", shares=("c",))
        claims(built)[0]["status"]["allocation"]["nodeSelector"] = selector
        assert "node selector does not match node" in waits(schedules_haven(built))


@pytest.mark.parametrize(
    "written",
    [
        {"gone": allocation_of("node-0", "gpu-0")},
        {"": {}},
        {"devices": allocation_of("node-1", "gpu-0", "gpu-0", "gone")},
        {"devices": {"nodeSelector": {}}},
    ],
    ids=["no such claim", "empty", "elsewhere", "nowhere"],
)
def test_a_bind_request_may_name_devices_that_do_not_exist(written: dict[str, Raw]) -> None:
    built = offering().gang("odd", template=1).bind_request("odd-0", "node-0", claims=written)
    schedules_haven(built.bind_request("ghost", "node-0", claims=written).gang("other", template=1))


# Slices


@pytest.mark.parametrize(
    ("devices", "spec", "said"),
    [
        ([{"name": "d"}, {"name": "d"}], {}, "has two devices called d"),
        (2, {"of": -1}, "has 1 of -1 slices"),
        (2, {"of": BIG, "generation": BIG}, f"has 1 of {BIG} slices"),
        (
            [{"name": "d", "consumesCounters": [{"counterSet": "s", "counters": {"m": {"value": "1"}}}]}],
            {},
            "takes from s/m, which is not there",
        ),
        (2, {"sharedCounters": [{"name": "s", "counters": {"m": {"value": "x"}}}]}, "'x' is not a quantity"),
    ],
    ids=["names", "count", "generation", "counter", "amount"],
)
def test_a_malformed_pool_is_reported(devices: int | list[Raw], spec: Raw, said: str) -> None:
    result = schedules_haven(offering(devices=devices, **spec).gang("odd", template=1))
    assert said in problems_of(result, "ResourceSlice")
    assert waits(result)


@pytest.mark.parametrize("amount", ["-5", "1e30", "0"])
def test_absurd_counters_are_harmless(amount: str) -> None:
    takes = [{"counterSet": "s", "counters": {"m": {"value": amount}}}]
    counters = [{"name": "s", "counters": {"m": {"value": amount}}}]
    devices: list[Raw] = [{"name": name, "consumesCounters": takes} for name in "ab"]
    schedules_haven(offering(devices=devices, sharedCounters=counters).gang("odd", 2, template=1))


def test_ten_thousand_devices_in_one_slice_are_devices() -> None:
    result = schedules_haven(offering(devices=10_000).gang("odd", template=32))
    assert len(result.allocated_devices("odd-0")["devices"]) == 32


def test_an_unresolvable_search_among_thousands_of_devices_ends() -> None:
    devices: list[Raw] = [{"name": f"d{n}", "attributes": {"a": {"int": n}, "b": {"int": n % 31}}} for n in range(1000)]
    differ = [{"distinctAttribute": f"{DRIVER}/{name}"} for name in "ab"]
    built = offering(devices=devices).device_claim("c", count=32, queue="q", constraints=differ)
    assert waits(schedules_haven(built.gang("odd", shares=("c",))))


def test_forty_claims_of_thirty_two_devices_are_not_too_deep() -> None:
    built = offering(devices=1300)
    for number in range(40):
        built.device_claim(f"c{number}", count=32, queue="q")
    assert schedules_haven(built.gang("odd", shares=tuple(f"c{number}" for number in range(40)))).bound("odd") == 1


@pytest.mark.parametrize(
    "device",
    [
        {"attributes": {"": {"int": 1}, "/": {"bool": True}, "x/y/z": {"string": "a", "int": 5}}},
        {"attributes": {"v": {"version": "no version"}, "w": {}}},
        {"capacity": {"": {"value": "x"}}},
        {"taints": [{}, {"key": "", "effect": "NoExecute"}]},
    ],
    ids=str,
)
def test_a_device_with_odd_attributes_is_harmless(device: Raw) -> None:
    schedules_haven(offering("true", devices=[{"name": "d", **device}]).gang("odd", template=1))


# Selectors


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "device.",
        "1",
        "dyn(1)",
        "optional.none()",
        "device",
        "1/0 == 1",
        "device.nope",
        "device.attributes['a'].b.c",
        "quantity('x') == quantity('1')",
        "semver('x') == semver('1.0.0')",
        "quantity('1e30').asInteger() > 0",
        "int('99999999999999999999') == 1",
        "device.driver.matches('[')",
        "\x00",
        "r'''",
        "(" * 1000 + "true" + ")" * 1000,
    ],
)
def test_an_invalid_selector_is_reported_to_the_pods_that_need_it(expression: str) -> None:
    result = schedules_haven(offering(expression).gang("odd", template=1))
    assert "cannot allocate DRA claims on node node-0" in waits(result)


@pytest.mark.parametrize("expression", ["!" * 5000 + "true", " && ".join(["true"] * 1200), f"'{'a' * 9000}' != 'b'"])
def test_a_long_selector_works(expression: str) -> None:
    assert schedules_haven(offering(expression).gang("odd", template=1)).bound("odd") == 1


def test_an_endless_selector_is_stopped() -> None:
    endless = "true"
    for variable in "abcdef":
        endless = f"[0,1,2,3,4,5,6,7,8,9].all({variable}, {endless})"
    assert "cannot allocate DRA claims" in waits(schedules_haven(offering(endless).gang("odd", template=1)))


def test_a_selector_longer_than_kubernetes_allows_is_rejected() -> None:
    """The API server rejects more than 10 KiB; parsing a megabyte of open brackets would take minutes."""
    result = schedules_haven(offering("true" + " " * 10_240).gang("odd", template=1))
    assert "cannot allocate DRA claims" in waits(result)
