"""Shares of GPUs and the limits and quotas of queues."""

from typing import Any

import pytest

from tests.core.builders import cluster


def test_a_gang_of_fractions_above_the_limit_waits() -> None:
    """gpu:T-46: the sum is checked before any node."""
    result = cluster().node(gpus=4).queue("q", limit=1).gang("j", pods=3, fraction=0.5).schedule()
    assert result.bound("j") == 0
    assert result.why("j").startswith("OverLimit")


@pytest.mark.parametrize("queue", [{"quota": 1}, {"limit": 1}])
def test_a_gang_of_memory_shares_above_the_bound_waits(queue: dict[str, Any]) -> None:
    """gpu:T-47: three times 0.4."""
    memory = cluster().node(gpus=4).queue("q", **queue).gang("j", pods=3, preemptible=False, gpu_memory=400)
    assert memory.schedule().bound("j") == 0


def test_a_memory_share_of_several_devices_above_the_quota_waits() -> None:
    """gpu:T-48: twice 0.6."""

    def bound(quota: float) -> int:
        nodes = cluster().node(gpus=2).queue("q", quota=quota)
        return nodes.gang("j", preemptible=False, gpu_memory=600, devices=2).schedule().bound("j")

    assert bound(1) == 0
    assert bound(1.2) == 1


def test_every_node_has_a_reason_against_a_memory_share() -> None:
    """gpu:T-49: over quota where the portion is too large, no GPU on the one where it would be small enough."""
    nodes = cluster().node("a", gpus=1, gpu_memory=400).node("b", gpus=1, gpu_memory=600)
    nodes.node("c", gpus=1, gpu_memory=2000).queue("q", quota=0.5).queue("other").pod("full", on="c", gpu=1)
    result = nodes.gang("j", preemptible=False, gpu_memory=350).schedule()
    assert result.bound("j") == 0
    why = result.why("j")
    assert "1 node(s) didn't have enough resources: GPUs" in why
    assert "Workload requested 0.88 GPUs, but q quota is 0.5 GPUs" in why
    assert "Workload requested 0.59 GPUs, but q quota is 0.5 GPUs" in why
    assert why.count("node does not have enough capacity. Reason: NonPreemptibleOverQuota") == 2
