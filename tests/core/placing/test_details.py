"""Detailed fit errors: node by node, with figures (cycle:EXP-4)."""

from __future__ import annotations

import pytest

from pykai.core.report.decisions import NoPlace
from pykai.core.report.sentences import detailed_task_text
from tests.core.builders import Cluster, Raw, cluster


def details(built: Cluster, group: str = "job") -> dict[str, str]:
    record = built.with_policy(detailed_fit_errors=True).schedule().unscheduled(group)
    assert record is not None
    (refusal,) = record.refusals
    assert isinstance(refusal, NoPlace)
    return refusal.details


def test_without_the_setting_there_are_none() -> None:
    record = cluster(nodes=1, gpus=1).queue("q").gang("busy", gpu=1, on="node-0").gang("job", gpu=1).schedule()
    found = record.unscheduled("job")
    assert found is not None
    assert isinstance(found.refusals[0], NoPlace)
    assert found.refusals[0].details == {}


def test_the_details_of_a_single_pod_name_requested_used_and_capacity() -> None:
    built = cluster(nodes=1, gpus=4, cpu=4, memory="8G").queue("q").pod("old", gpu=3, cpu=3, memory="6G", on="node-0")
    assert details(built.gang("job", gpu=2, cpu="2500m", memory="4G")) == {
        "node-0": (
            "Node didn't have enough resources: CPU cores, requested: 2.5, used: 3, capacity: 4, "
            "Node didn't have enough resources: memory, requested: 4, used: 6, capacity: 8, "
            "Node didn't have enough resources: GPUs, requested: 2, used: 3, capacity: 4"
        )
    }


def test_used_gpus_include_one_for_every_shared_one() -> None:
    built = cluster(nodes=1, gpus=2).queue("q").pod("share", fraction=0.5, on="node-0", device="g")
    assert "requested: 2, used: 1, capacity: 2" in details(built.gang("job", gpu=2))["node-0"]


def test_a_resource_no_node_offers_comes_last_with_zero_capacity() -> None:
    built = cluster(nodes=1, gpus=1).queue("q").gang("job", gpu=2, extra={"example.com/a": 3})
    assert details(built.configured({"tiers": [{"plugins": [{"name": "proportion"}]}]})) == {
        "node-0": (
            "Node didn't have enough resources: GPUs, requested: 2, used: 0, capacity: 1, "
            "Node didn't have enough resources: example.com/a, requested: 3, used: 0, capacity: 0"
        )
    }


def test_the_details_of_a_job_of_several_pods_are_shorter() -> None:
    built = cluster(nodes=1, gpus=1).queue("q").pod("old", gpu=1, on="node-0").gang("job", pods=2, gpu=1)
    assert details(built) == {
        "node-0": "Node didn't have enough resources: GPUs, taking all considerations into account"
    }


def test_a_gpu_that_is_too_small() -> None:
    built = cluster(nodes=1, gpus=1, gpu_memory=1000).queue("q").gang("job", gpu_memory=2000)
    assert details(built) == {
        "node-0": (
            "Node didn't have enough resources: Each gpu on the node has a gpu memory capacity of 1000 Mib. "
            "2000 Mib of gpu memory has been requested"
        )
    }


def test_several_devices_are_written_as_a_product() -> None:
    built = cluster(nodes=1, gpus=2).queue("q").pod("old", gpu=1, on="node-0")
    text = details(built.gang("job", fraction=0.5, devices=2))["node-0"]
    assert text == "Node didn't have enough resources: GPUs, requested: 2 X 0.5, used: 1, capacity: 2"


def test_other_refusals_are_named_as_they_are() -> None:
    taint = [{"key": "k", "value": "v", "effect": "NoSchedule"}]
    built = cluster().node("a", taints=taint).node("b", pods=1).queue("q").pod("old", on="b").gang("job")
    assert details(built) == {"a": "node(s) had untolerated taint(s)", "b": "node(s) pod number exceeded"}


def test_the_text_is_a_line_a_node_in_order() -> None:
    refusal = NoPlace("ns/p", "pod", 0, "default", 1, details={"b": "two", "a": "one"})
    assert detailed_task_text(refusal) == "\nno nodes with enough resources were found.\n<a>: one.\n<b>: two."


def test_the_text_of_the_group_has_the_lines() -> None:
    built = cluster(nodes=1, gpus=1).queue("q").pod("old", gpu=1, on="node-0").gang("job", gpu=1)
    why = built.with_policy(detailed_fit_errors=True).schedule().why("job")
    assert "\n<node-0>: Node didn't have enough resources: GPUs, requested: 1, used: 1, capacity: 1." in why


TAINT = [{"key": "k", "value": "v", "effect": "NoSchedule"}]
TAINTED = "node(s) had untolerated taint(s)"
FULL = "node(s) pod number exceeded"


def test_a_share_counts_the_gpus_that_are_shared_as_used() -> None:
    built = cluster(nodes=1, gpus=1).queue("q").pod("share", fraction=0.8, on="node-0", device="g")
    assert details(built.gang("job", fraction=0.5)) == {
        "node-0": "Node didn't have enough resources: GPUs, requested: 0.5, used: 1, capacity: 1"
    }


def test_an_amount_of_memory_may_find_every_gpu_in_use() -> None:
    built = cluster(nodes=1, gpus=1, gpu_memory=1000).queue("q").pod("old", gpu=1, on="node-0")
    assert details(built.gang("job", gpu_memory=500)) == {
        "node-0": "Node didn't have enough resources: GPUs, requested: 0.5, used: 1, capacity: 1"
    }


def test_the_details_of_a_job_of_several_shares_are_shorter() -> None:
    built = cluster(nodes=1, gpus=1).queue("q").pod("old", gpu=1, on="node-0").gang("job", pods=2, fraction=0.5)
    assert details(built) == {
        "node-0": "Node didn't have enough resources: GPUs, taking all considerations into account"
    }


@pytest.mark.parametrize(
    ("node", "old", "job", "text"),
    [
        ({"pods": 1}, {}, {}, FULL),
        ({"pods": 2}, {}, {}, TAINTED),
        ({"gpus": 1}, {"gpu": 1}, {"gpu": 1}, "Node didn't have enough resources: GPUs, "),
        ({"gpus": 1}, {}, {"fraction": 0.5}, TAINTED),
        ({"gpus": 2}, {"fraction": 0.5, "device": "g"}, {"fraction": 0.5, "devices": 2}, TAINTED),
    ],
)
def test_a_node_gives_what_it_lacks_then_slots_then_other_reasons(node: Raw, old: Raw, job: Raw, text: str) -> None:
    """cycle:EXP-2: every node is tainted, which is the reason only of one that has enough."""
    built = cluster().node("a", taints=TAINT, **node).queue("q").pod("old", on="a", **old).gang("job", **job)
    assert details(built)["a"].startswith(text)
    why = built.schedule().why("job")
    assert [reason in why for reason in (FULL, TAINTED)] == [text == FULL, text == TAINTED]
