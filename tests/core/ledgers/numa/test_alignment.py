"""Which zones a pod gets (gpu:N-7 to N-13, cases T-100 to T-107)."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from pykai.core.ledgers.numa.alignment import align_zones
from pykai.core.model.zones import ZoneGrid, ZonePolicy
from tests.core.builders import Cluster
from tests.core.numaclusters import GPU, amounts_of, given, zoned

TEXT = "node cannot NUMA-align the pod's resources under its Topology Manager policy"
EIGHT = (amounts_of(gpu=4, cpu=8), amounts_of(gpu=4, cpu=8))


def restricted(*zones: dict[str, str | int], **how: Any) -> Cluster:
    return zoned(*zones, policy="restricted", **how)


def best_effort(*zones: dict[str, str | int], **how: Any) -> Cluster:
    return zoned(*zones, policy="best-effort", **how)


def test_t100_a_pod_that_fits_one_zone_gets_the_lowest() -> None:
    assert given(zoned(*EIGHT), amounts_of(gpu=2, cpu=4)) == {0: {GPU: 2, "cpu": 4000}}
    assert given(zoned(amounts_of(gpu=1, cpu=8), amounts_of(gpu=4, cpu=8)), amounts_of(gpu=2, cpu=4)) == {
        1: {GPU: 2, "cpu": 4000}
    }


def test_t100_a_pod_larger_than_a_zone_is_refused_under_a_single_zone_policy() -> None:
    """gpu:N-13."""
    assert given(zoned(*EIGHT), amounts_of(gpu=6)) is None
    assert given(zoned(amounts_of(gpu=2, cpu=4), amounts_of(gpu=2, cpu=4)), amounts_of(gpu=3, cpu=6)) is None
    refused = zoned(*EIGHT).gang("j", gpu=6, qos="Guaranteed").schedule()
    assert refused.node_reasons("j") == {TEXT: 1}


def test_t100_resources_must_lie_in_the_same_zone() -> None:
    assert given(zoned(amounts_of(gpu=4), amounts_of(cpu=8)), amounts_of(gpu=2, cpu=4)) is None


def test_t101_containers_are_aligned_one_by_one_each_from_what_is_left() -> None:
    """gpu:N-9."""
    zones = (amounts_of(cpu=4), amounts_of(cpu=4))
    assert given(zoned(*zones, scope="container"), amounts_of(cpu=3), amounts_of(cpu=3), amounts_of(cpu=2)) is None
    assert given(zoned(*zones, scope="container"), amounts_of(cpu=3), amounts_of(cpu=3)) == {
        0: {"cpu": 3000},
        1: {"cpu": 3000},
    }
    assert given(zoned(*zones), amounts_of(cpu=3), amounts_of(cpu=3)) is None


def test_t102_all_resources_of_a_restricted_pod_must_need_as_many_zones() -> None:
    """gpu:N-11."""
    zones = (amounts_of(gpu=4, cpu=16), amounts_of(gpu=4, cpu=16))
    assert given(restricted(*zones), amounts_of(gpu=6, cpu=10)) is None
    assert given(restricted(*zones), amounts_of(gpu=6, cpu=24)) == {
        0: {GPU: 4, "cpu": 16_000},
        1: {GPU: 2, "cpu": 8000},
    }
    small = (amounts_of(gpu=2, cpu=8), amounts_of(gpu=2, cpu=8))
    assert given(restricted(*small), amounts_of(gpu=4, cpu=1)) is None
    assert given(restricted(*small), amounts_of(gpu=2, cpu=8)) == {0: {GPU: 2, "cpu": 8000}}


@pytest.mark.parametrize("pod", [amounts_of(gpu=4, cpu=50), amounts_of(gpu=1, cpu=50)])
def test_t103_the_number_of_zones_follows_from_allocatable_not_from_what_is_left(
    pod: dict[str, str | int],
) -> None:
    left = amounts_of(gpu=3, cpu=45)
    offered = amounts_of(gpu=4, cpu=95)
    found = restricted(offered, offered, available=(left, left), arguments={"reconstructAvailable": "false"})
    assert given(found, pod) is None


def test_t104_the_first_zones_in_order_that_together_suffice_are_taken() -> None:
    two = amounts_of(gpu=2)
    assert given(restricted(two, two, two), amounts_of(gpu=4)) == {0: {GPU: 2}, 1: {GPU: 2}}
    four = amounts_of(gpu=4)
    found = restricted(
        four, four, four, available=(amounts_of(gpu=1), four, four), arguments={"reconstructAvailable": "false"}
    )
    assert given(found, amounts_of(gpu=6)) == {1: {GPU: 4}, 2: {GPU: 2}}


def test_n11_more_than_all_zones_may_give_is_refused() -> None:
    assert given(restricted(amounts_of(gpu=2), amounts_of(gpu=2)), amounts_of(gpu=5)) is None


def test_n11_resources_a_container_does_not_need_require_no_zones() -> None:
    zone = amounts_of(gpu=4, cpu=16)
    found = given(restricted(zone, zone, scope="container"), amounts_of(gpu=6), amounts_of(cpu=2))
    assert found == {0: {GPU: 4, "cpu": 2000}, 1: {GPU: 2}}


def test_n11_a_restricted_pod_that_needs_nothing_fits_and_holds_nothing() -> None:
    assert given(restricted(amounts_of(gpu=2), amounts_of(gpu=2)), amounts_of(memory="1Gi")) == {}


@pytest.mark.parametrize("memory", ["16Gi", "8Gi"])
def test_t105_two_containers_of_three_gpus_lie_in_one_zone_each(memory: str) -> None:
    zone = amounts_of(gpu=4, cpu=8, memory="16Gi")
    pods = (amounts_of(gpu=3, memory=memory), amounts_of(gpu=3, memory=memory))
    found = given(restricted(zone, zone, scope="container"), *pods)
    assert found is not None
    assert {number: taken[GPU] for number, taken in found.items()} == {0: 3, 1: 3}


def test_t105_the_same_pod_as_a_whole_fills_the_first_zone_and_is_refused_where_memory_needs_one_zone() -> None:
    zone = amounts_of(gpu=4, cpu=8, memory="16Gi")
    wide = given(restricted(zone, zone), amounts_of(gpu=3, memory="16Gi"), amounts_of(gpu=3, memory="16Gi"))
    assert wide is not None
    assert {number: taken[GPU] for number, taken in wide.items()} == {0: 4, 1: 2}
    assert given(restricted(zone, zone), amounts_of(gpu=3, memory="8Gi"), amounts_of(gpu=3, memory="8Gi")) is None


def test_t105_init_containers_must_fit_but_hold_nothing() -> None:
    """gpu:N-9."""
    zones = (amounts_of(gpu=4), amounts_of(gpu=4))
    assert given(restricted(*zones, scope="container"), amounts_of(gpu=4), init=(amounts_of(gpu=4),)) == {0: {GPU: 4}}
    assert given(restricted(*zones, scope="container"), amounts_of(gpu=4), init=(amounts_of(gpu=9),)) is None
    assert given(restricted(*zones), amounts_of(gpu=2), init=(amounts_of(gpu=8),)) == {0: {GPU: 4}, 1: {GPU: 4}}


def test_t105_sidecars_are_served_before_the_containers() -> None:
    zones = (amounts_of(gpu=4), amounts_of(gpu=4))
    found = given(restricted(*zones, scope="container"), amounts_of(gpu=2), sidecars=(amounts_of(gpu=3),))
    assert found == {0: {GPU: 3}, 1: {GPU: 2}}


def test_t106_cores_of_a_burstable_pod_are_not_aligned_but_its_gpus_are() -> None:
    """gpu:N-7, N-8."""
    zones = (amounts_of(gpu=4, cpu=16), amounts_of(gpu=4, cpu=16))
    assert given(restricted(*zones), amounts_of(gpu=6, cpu=10), qos="Burstable") == {0: {GPU: 4}, 1: {GPU: 2}}
    assert given(zoned(*zones), amounts_of(gpu=6), qos="Burstable") is None
    assert given(zoned(*zones), amounts_of(cpu=20), qos="Burstable") == {}


def test_t107_only_whole_cores_are_pinned_and_memory_is_summed() -> None:
    """gpu:N-5, N-6."""
    zones = (amounts_of(cpu=47, memory="100Gi"), amounts_of(cpu=48, memory="100Gi"))
    assert given(zoned(*zones), amounts_of(cpu=44, memory="1Gi"), amounts_of(cpu="4500m", memory="1Gi")) is not None
    assert given(zoned(*zones), amounts_of(cpu=44, memory="1Gi"), amounts_of(cpu=5, memory="1Gi")) is None
    assert given(zoned(*zones), amounts_of(cpu=44, memory="60Gi"), amounts_of(cpu="4500m", memory="60Gi")) is None


def test_n8_the_policies_none_and_best_effort_refuse_no_pod() -> None:
    assert given(zoned(*EIGHT, policy="none"), amounts_of(gpu=6)) == {}
    assert given(best_effort(*EIGHT), amounts_of(gpu=9)) == {}


def test_n8_a_pod_whose_devices_no_zone_reports_is_not_aligned() -> None:
    assert given(zoned(amounts_of(cpu=2), amounts_of(cpu=2)), amounts_of(gpu=6, cpu=10), qos="Burstable") == {}


def test_n4_ignored_resources_are_not_aligned() -> None:
    """gpu:N-7."""
    cores = {"ignoreList": "example.com/nic, cpu"}
    assert given(
        zoned(amounts_of(gpu=4, cpu=2), amounts_of(gpu=4, cpu=2), arguments=cores), amounts_of(gpu=2, cpu=10)
    ) == {0: {GPU: 2}}
    assert given(zoned(amounts_of(gpu=1), arguments={"ignoreList": GPU}), amounts_of(gpu=2), qos="Burstable") == {}


def test_n12_best_effort_adds_the_zone_that_meets_most_of_what_is_missing() -> None:
    assert given(best_effort(amounts_of(gpu=1), amounts_of(gpu=3), amounts_of(gpu=2)), amounts_of(gpu=5)) == {
        1: {GPU: 3},
        2: {GPU: 2},
    }
    assert given(best_effort(amounts_of(gpu=2), amounts_of(gpu=2), amounts_of(gpu=2)), amounts_of(gpu=2)) == {
        0: {GPU: 2}
    }


def test_n12_every_resource_counts_in_parts_of_its_need_so_memory_does_not_outweigh_gpus() -> None:
    """The zone with all the GPUs goes first although another has more memory; the rest comes from the first zone."""
    zones = (amounts_of(memory="2Gi"), amounts_of(gpu=4, memory="14Gi"), amounts_of(gpu=1, memory="15Gi"))
    found = given(best_effort(*zones), amounts_of(gpu=4, memory="15Gi"))
    assert found is not None
    assert list(found) == [0, 1]


GRIDS = st.lists(st.lists(st.integers(0, 6), min_size=2, max_size=2), min_size=1, max_size=4)
NEEDS = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=3)


def _grid(rows: list[list[int]]) -> ZoneGrid:
    return tuple((row[0], row[1]) for row in rows)


@drawn(st.sampled_from(list(ZonePolicy)[1:]), GRIDS, NEEDS, NEEDS, st.data())
def test_what_is_taken_is_what_is_needed_and_never_more_than_there_was(
    policy: ZonePolicy,
    offered: list[list[int]],
    concurrent: list[tuple[int, int]],
    serial: list[tuple[int, int]],
    data: st.DataObject,
) -> None:
    left = [[data.draw(st.integers(-1, most)) for most in zone] for zone in offered]
    taken = align_zones(policy, _grid(offered), left, concurrent, serial)
    if taken is None:
        return
    assert all(
        0 <= t <= max(0, there) for zone, a in zip(taken, left, strict=True) for t, there in zip(zone, a, strict=True)
    )
    for resource in (0, 1):
        assert sum(zone[resource] for zone in taken) == sum(need[resource] for need in concurrent)


def _spans(grid: list[list[int]], need: tuple[int, int]) -> list[int]:
    """Numbers of zones that can cover a need."""
    return [
        width
        for width in range(len(grid) + 1)
        if any(
            all(sum(grid[zone][r] for zone in chosen) >= need[r] for r in (0, 1))
            for chosen in combinations(range(len(grid)), width)
        )
    ]


@drawn(GRIDS, st.tuples(st.integers(0, 8), st.integers(0, 8)))
def test_one_unit_under_a_single_zone_policy_lies_in_one_zone_whenever_it_fits_one(
    grid: list[list[int]], need: tuple[int, int]
) -> None:
    taken = align_zones(ZonePolicy.SINGLE, _grid(grid), grid, [need], [])
    assert (taken is not None) == any(all(zone[r] >= need[r] for r in (0, 1)) for zone in grid)
    assert taken is None or sum(any(zone) for zone in taken) <= 1


@drawn(GRIDS, st.tuples(st.integers(0, 8), st.integers(0, 8)))
def test_a_restricted_unit_lies_in_as_few_zones_as_could_ever_hold_it(
    grid: list[list[int]], need: tuple[int, int]
) -> None:
    taken = align_zones(ZonePolicy.RESTRICTED, _grid(grid), grid, [need], [])
    if taken is not None:
        assert sum(any(zone) for zone in taken) <= min(_spans(grid, need))


@drawn(GRIDS, st.tuples(st.integers(0, 8), st.integers(0, 8)))
def test_best_effort_finds_zones_whenever_there_is_enough_altogether(
    grid: list[list[int]], need: tuple[int, int]
) -> None:
    taken = align_zones(ZonePolicy.BEST_EFFORT, _grid(grid), grid, [need], [])
    assert (taken is not None) == bool(_spans(grid, need))


def test_n11_one_device_needs_its_zone_as_much_as_eight_cores_need_eight() -> None:
    zone = amounts_of(gpu=1, cpu=1)
    assert given(restricted(*[zone] * 8), amounts_of(gpu=1, cpu=8)) is None
    assert given(restricted(*[zone] * 8), amounts_of(gpu=8, cpu=8)) is not None


def test_n15_a_zone_whose_only_device_is_held_gives_none() -> None:
    found = zoned(amounts_of(gpu=1), amounts_of(gpu=1))
    found.pod("runs", on="n", gpu=1, qos="Guaranteed", numa={"zone-0": amounts_of(gpu=1)})
    assert given(found, amounts_of(gpu=1)) == {1: {GPU: 1}}


def test_n9_the_largest_init_container_must_find_its_room() -> None:
    found = zoned(amounts_of(cpu=8), scope="container")
    assert given(found, amounts_of(cpu=2), init=(amounts_of(cpu=1), amounts_of(cpu=6))) == {0: {"cpu": 2000}}


def test_n7_devices_of_a_burstable_pod_are_aligned_whatever_else_it_requests() -> None:
    zone = amounts_of(gpu=2, cpu=8, memory="8Gi")
    assert given(zoned(zone, zone), amounts_of(gpu=3, cpu=1, memory="1Gi"), qos="Burstable") is None
