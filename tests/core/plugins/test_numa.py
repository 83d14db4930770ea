"""The fewer zones a pod would span, the better the node (gpu:N-14, case T-108)."""

from __future__ import annotations

from typing import Any

from pykai.core.model.status import TaskStatus
from tests.core.builders import Cluster, scores_of
from tests.core.numaclusters import GPU, amounts_of, numa, zoned

EIGHT = (amounts_of(gpu=4, cpu=8), amounts_of(gpu=4, cpu=8))


def score(found: Cluster, node: str = "n", qos: str = "Guaranteed", **pod: Any) -> float:
    """What a pod is worth on a node."""
    return scores_of(found.gang("j", qos=qos, **pod).cycle(), "j-0")[node]


def test_t108_one_zone_is_worth_100_and_two_are_worth_50() -> None:
    assert score(zoned(*EIGHT), gpu=2) == 100
    assert score(zoned(*EIGHT, policy="restricted"), gpu=6, cpu=16) == 50
    assert score(zoned(*EIGHT, policy="best-effort"), gpu=6) == 50


def test_t108_a_pod_that_needs_nothing_of_the_zones_spans_one() -> None:
    assert score(zoned(*EIGHT), cpu="500m") == 100


def test_t108_a_best_effort_node_that_cannot_align_the_pod_is_worth_nothing() -> None:
    assert score(zoned(*EIGHT, policy="best-effort"), gpu=9) == 0


def test_t108_without_a_policy_the_pod_may_lie_anywhere_in_the_node() -> None:
    zones = (*EIGHT, *EIGHT)
    assert score(zoned(*zones, policy="none"), gpu=1) == 25


def test_t108_a_node_that_reports_no_zones_counts_like_the_most_divided_one() -> None:
    assert score(zoned(*EIGHT, amounts_of(gpu=4)).node("plain", gpus=8).node("other"), "plain", gpu=1) == 100 / 3


def test_t108_pods_without_devices_that_are_not_guaranteed_are_not_scored() -> None:
    for qos in ("BestEffort", "Burstable"):
        assert score(zoned(*EIGHT).node("plain"), qos=qos) == 0
        assert score(zoned(*EIGHT).node("plain", gpus=1), "plain", qos=qos) == 0
    assert score(zoned(*EIGHT), gpu=1, qos="Burstable") == 100


def test_n14_devices_count_only_where_a_policy_aligns_them() -> None:
    assert score(zoned(*EIGHT, policy="none"), gpu=1, qos="Burstable") == 0
    assert score(zoned(*EIGHT, arguments={"ignoreList": GPU}), gpu=1, qos="Burstable") == 0


def test_n14_a_pod_not_accounted_on_a_node_may_lie_anywhere_in_it() -> None:
    found = zoned(amounts_of(cpu=8), amounts_of(cpu=8), amounts_of(cpu=8), amounts_of(cpu=8))
    found.node("m", gpus=8).zones("m", *EIGHT)
    assert score(found, gpu=1, qos="Burstable") == 25


def test_the_node_with_the_fewest_zones_wins() -> None:
    found = numa().node("a", gpus=8).zones("a", amounts_of(gpu=2), amounts_of(gpu=2), policy="best-effort")
    found.node("b", gpus=8).zones("b", amounts_of(gpu=4), amounts_of(gpu=4), policy="best-effort")
    assert found.gang("j", gpu=4, qos="Burstable").schedule().node_of("j-0") == "b"


def test_n16_a_node_whose_zones_are_still_held_comes_after_any_where_the_pod_could_start() -> None:
    leaving: dict[str, Any] = {"on": "a", "gpu": 3, "qos": "Burstable", "numa": {"zone-0": amounts_of(gpu=3)}}
    found = numa().node("a", gpus=8).zones("a", amounts_of(gpu=4), amounts_of(gpu=4)).node("b", gpus=8)
    found.zones("b", amounts_of(gpu=4), amounts_of(gpu=2), amounts_of(gpu=2))
    found.pod("old", **leaving).assume("old", TaskStatus.RELEASING)
    found.pod("stays", on="a", gpu=1, qos="Burstable", numa={"zone-1": amounts_of(gpu=1)})
    assert found.gang("j", gpu=4, qos="Burstable").schedule().node_of("j-0") == "b"
    scores = scores_of(found.cycle(), "j-0")
    assert scores == {"a": 0, "b": 100}


def test_n14_nodes_where_the_pod_must_wait_are_ranked_among_themselves() -> None:
    found = numa()
    for node, policy in (("a", "restricted"), ("b", "single-numa-node")):
        offered = (amounts_of(gpu=2), amounts_of(gpu=2)) if node == "a" else (amounts_of(gpu=4), amounts_of(gpu=4))
        found.node(node, gpus=8).zones(node, *offered, policy=policy)
        for zone in (0, 1):
            held = {f"zone-{zone}": offered[zone]}
            found.pod(f"{node}-{zone}", on=node, gpu=1, qos="Burstable", numa=held)
            found.assume(f"{node}-{zone}", TaskStatus.RELEASING)
    assert scores_of(found.gang("j", gpu=4, qos="Burstable").cycle(), "j-0") == {"a": -50, "b": 0}
