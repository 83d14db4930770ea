"""The zones of running pods, by their records (gpu:N-15, case T-110)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.builders import Cluster, numa_record
from tests.core.numaclusters import amounts_of, left_in, zoned

OBSERVED = "kai.scheduler/numa-placement-observed"
PREDICTED = "kai.scheduler/numa-placement-predicted"
FIVE = (amounts_of(cpu=5), amounts_of(cpu=5), amounts_of(cpu=5))
IN_0, IN_1, IN_2 = ({f"zone-{number}": amounts_of(cpu=2)} for number in range(3))


def left(annotations: dict[str, str], found: Cluster | None = None, **pod: str) -> list[int]:
    """Cores left in each zone beside a running pod of two cores with these annotations."""
    found = found or zoned(*FIVE)
    how: dict[str, Any] = {"on": "n", "qos": "Guaranteed", **pod}
    found.pod("p", cpu=2, annotations=annotations, **how)
    return [amount // 1000 for amount in left_in(found.cycle())]


def test_t110_the_observed_zones_beat_the_planned_ones() -> None:
    both = {OBSERVED: numa_record(IN_1), PREDICTED: numa_record(IN_0)}
    assert left(both) == [5, 3, 5]
    assert left({PREDICTED: numa_record(IN_0)}) == [3, 5, 5]
    assert left({}) == [5, 5, 5]


def test_t110_the_bind_request_beats_the_annotation_it_will_become() -> None:
    asked = zoned(*FIVE).bind_request("p", "n", numa=IN_2)
    assert left({PREDICTED: numa_record(IN_0)}, asked) == [5, 5, 3]
    asked = zoned(*FIVE).bind_request("p", "n", numa=IN_2)
    assert left({OBSERVED: numa_record(IN_1)}, asked) == [5, 3, 5]


def test_n15_a_binding_pod_holds_the_zones_of_its_bind_request() -> None:
    assert left({}, zoned(*FIVE).bind_request("p", "n", numa=IN_2), on="") == [5, 5, 3]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "not json",
        "null",
        '[{"zone":"zone-1"}]',
        '[{"zone":"zone-1","amount":{"cpu":"0"}}]',
        '[{"zone":"","amount":{"cpu":"2"}}]',
        '[{"zone":"zone-1","amount":{"cpu":"two"}}]',
        '[{"zone":"zone-1","amount":{"cpu":"-2"}}]',
        '[{"zone":"zone-1","amount":{"nonsense":"2"}}]',
    ],
)
def test_t110_a_malformed_or_empty_record_is_reported_and_the_next_one_counts(text: str) -> None:
    annotations = {OBSERVED: text, PREDICTED: numa_record(IN_0)}
    assert left(annotations) == [3, 5, 5]
    found = zoned(*FIVE).pod("p", cpu=2, qos="Guaranteed", on="n", annotations=annotations)
    (problem,) = found.tables().snapshot(0).problems
    assert (problem.subject, problem.field) == ("Pod/default/p", f"metadata.annotations[{OBSERVED}]")
    assert "the next record of the pod is used" in problem.text


def test_a_problem_with_a_record_ends_with_its_pod() -> None:
    tables = zoned(*FIVE).pod("p", cpu=2, qos="Guaranteed", on="n", annotations={OBSERVED: "?"}).tables()
    tables.remove("Pod", "default", "p")
    assert not tables.snapshot(0).problems


def test_t110_an_unknown_zone_voids_the_whole_record() -> None:
    astray = {"zone-0": amounts_of(cpu=1), "zone-7": amounts_of(cpu=1)}
    assert left({OBSERVED: numa_record(astray), PREDICTED: numa_record(IN_0)}) == [5, 5, 5]


def test_a_record_may_repeat_zones_in_any_order_and_name_unknown_resources() -> None:
    text = (
        '[{"zone":"zone-2","amount":{"cpu":"500m"}},{"zone":"zone-0","amount":{"cpu":1,"memory":"5"}},'
        '{"zone":"zone-2","amount":{"cpu":"0.5","nonsense":"x"}}]'
    )
    assert left({OBSERVED: text}) == [4, 5, 4]


@pytest.mark.parametrize("which", [OBSERVED, PREDICTED])
def test_a_record_fills_no_more_of_the_zones_than_the_pod_requests(which: str) -> None:
    """A tenant may have written it: two cores stay two cores, however many the record names."""
    everything = {f"zone-{number}": amounts_of(cpu=5) for number in range(3)}
    assert left({which: numa_record(everything)}) == [3, 5, 5]
    assert left({which: numa_record({"zone-1": amounts_of(cpu=1), **everything})}) == [5, 3, 5]


def test_n15_pods_that_the_node_does_not_align_are_not_accounted() -> None:
    text = {OBSERVED: numa_record(IN_0)}
    assert left(text, qos="Burstable") == [5, 5, 5]
    assert left(text, zoned(*FIVE, policy="best-effort")) == [3, 5, 5]
    plain = zoned(*FIVE, policy="none").node("m").zones("m", *FIVE)
    assert left(text, plain) == [5, 5, 5]
