"""Bad zones of nodes or pods do not stop other work."""

from __future__ import annotations

import json

import pytest

from pykai.api import names
from pykai.core.ledgers.numa.alignment import MAX_ALIGNMENT_STEPS, align_zones
from pykai.core.model.zones import MAX_ZONE_RESOURCES, MAX_ZONES, ZonePolicy
from tests.core.badinput import beside_haven, problems_of, schedules_haven
from tests.core.builders import Cluster, Raw

Amounts = dict[str, str | int]
ZONE: Amounts = {"cpu": 8, "memory": "8Gi", "nvidia.com/gpu": 1}
NODE = "NodeResourceTopology/node-0"


def zoned(*zones: Amounts, policy: str = "restricted") -> Cluster:
    """Two nodes, the first with these zones, and a gang that needs them."""
    return beside_haven().zones("node-0", *zones, policy=policy).gang("odd", gpu=1, cpu=2, qos="Guaranteed")


def record(text: str) -> Cluster:
    """A pod on a node with zones, of which the exporter wrote this."""
    notes = {names.NUMA_OBSERVED_ANNOTATION: text}
    return zoned(ZONE, ZONE).gang("old", gpu=1, on="node-0", annotations=notes)


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node", "", "nonsense"])
@pytest.mark.parametrize("amount", ["-5", "1e30", "", "x", "nan", str(10**40), "1.5"])
def test_an_absurd_amount_is_harmless(amount: str, policy: str) -> None:
    schedules_haven(zoned({"cpu": amount}, {"memory": amount}, {"nvidia.com/gpu": amount}, policy=policy))


def test_an_unreadable_amount_is_reported_and_counts_as_zero() -> None:
    result = schedules_haven(zoned({**ZONE, "nvidia.com/gpu": "many"}))
    assert result.node_of("odd-0") == "node-1"
    assert "zones[zone-0].nvidia.com/gpu.allocatable: 'many' is not a quantity" in problems_of(result, NODE)


def test_zones_with_the_same_name_are_reported_and_the_first_counts() -> None:
    built = zoned(ZONE, {"cpu": 1})
    built.objects[-3]["zones"][1]["name"] = "zone-0"
    assert "zones[zone-0]: a second zone of this name; ignored" in problems_of(schedules_haven(built), NODE)


@pytest.mark.parametrize("missing", ["name", "type", "resources"])
def test_zones_that_lack_a_field_are_harmless(missing: str) -> None:
    built = zoned(ZONE, ZONE)
    for zone in built.objects[-3]["zones"]:
        del zone[missing]
    schedules_haven(built)


@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
def test_a_node_with_the_maximum_number_of_zones_is_used(policy: str) -> None:
    result = schedules_haven(zoned(*[ZONE] * MAX_ZONES, policy=policy))
    assert not problems_of(result, NODE)
    assert result.bound("odd") == 1


def test_a_node_with_more_zones_than_any_machine_has_counts_as_one_without() -> None:
    """All nodes share columns as wide as the widest of them: one object must not make these a thousandfold."""
    result = schedules_haven(zoned(*[ZONE] * (MAX_ZONES + 1)))
    assert f"{MAX_ZONES + 1} zones, more than the {MAX_ZONES} that are looked at" in problems_of(result, NODE)
    assert not result.cycle.context.snapshot.numa
    assert result.bound("odd") == 1


def test_a_zone_with_more_resources_than_any_machine_has_is_ignored() -> None:
    many: Amounts = {f"example.com/r{number}": 1 for number in range(MAX_ZONE_RESOURCES + 1)}
    result = schedules_haven(zoned(many))
    assert f"{MAX_ZONE_RESOURCES + 1} resources, more than" in problems_of(result, NODE)
    assert not result.cycle.context.snapshot.numa


def test_a_search_among_uneven_zones_ends() -> None:
    """gpu:N-11: the ten even zones at the end would do.  Before them every choice of uneven ones looks promising and
    none is: the search is given up, where forty of them would take years."""
    even, uneven = (1000, 1000), [(1400, 500), (500, 1400)]
    for pairs in (8, 20):
        left = [*uneven * pairs, *[even] * 10]
        assert align_zones(ZonePolicy.RESTRICTED, (even,) * len(left), left, [(10_000, 10_000)], []) is None


def test_a_search_among_the_zones_of_a_large_machine_is_complete() -> None:
    """Twelve zones of which only the last six serve together: that is found, though it is the last choice of all."""
    assert MAX_ALIGNMENT_STEPS >= 2**12
    left = [(9, 8), (8, 9)] * 3 + [(9, 9)] * 6
    found = align_zones(ZonePolicy.RESTRICTED, ((9, 9),) * 12, left, [(54, 54)], [])
    assert found == ((0, 0),) * 6 + ((9, 9),) * 6


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "{}",
        "[1]",
        "[" * 10_000,
        "\x00",
        '[{"zone": ""}]',
        '[{"zone": "zone-0", "amount": {"cpu": "x"}}]',
        '[{"zone": "zone-0", "amount": {"cpu": -1}}]',
        '[{"zone": "zone-0", "amount": {"cpu": 1e400}}]',
    ],
)
def test_a_malformed_record_is_reported(text: str) -> None:
    result = schedules_haven(record(text))
    assert "no NUMA placement" in problems_of(result, "Pod/default/old-0")


def test_a_record_of_unknown_zones_counts_nowhere() -> None:
    """gpu:N-15"""
    assert schedules_haven(record('[{"zone": "zone-9", "amount": {"cpu": 1}}]')).bound("odd") == 1


def test_an_absurd_record_stays_within_the_columns() -> None:
    many = [{"zone": "zone-0", "amount": {"memory": "1e30"}}] * 3000
    schedules_haven(record(json.dumps(many)))


@pytest.mark.parametrize("scope", ["pod", "container"])
def test_thousands_of_absurd_containers_stay_within_the_columns(scope: str) -> None:
    containers: list[Raw] = [
        {"name": f"c{number}", "resources": {"requests": {"cpu": "1e30", "memory": "1e30"}}} for number in range(3000)
    ]
    built = beside_haven(0).node("node-0", cpu="1e30", memory="1e30").zones("node-0", ZONE, ZONE, scope=scope)
    assert schedules_haven(built.gang("odd", qos="Guaranteed", spec={"containers": containers})).bound("odd") == 0
