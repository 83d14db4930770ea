"""Shares of several GPUs: a gang that packing cannot place is tried again on the emptiest GPUs (gpu:F-4 to F-8)."""

from __future__ import annotations

import pytest

from tests.core.builders import cluster


@pytest.mark.parametrize(("slots", "bound"), [(110, 3), (6, 3), (5, 0)])
def test_pods_of_two_halves_fill_three_gpus(slots: int, bound: int) -> None:
    """Packing would put two pods on two GPUs and leave one GPU to the third. Each GPU needs a slot for its
    reservation pod."""
    built = cluster(nodes=1, gpus=3, pods=slots).queue("q").gang("job", pods=3, fraction=0.5, devices=2)
    assert built.schedule().bound("job") == bound


def test_a_gang_that_fails_both_ways_leaves_nothing_behind() -> None:
    built = cluster(nodes=1, gpus=3).queue("q").gang("job", pods=4, fraction=0.5, devices=2)
    result = built.gang("next", gpu=3).schedule()
    assert (result.bound("job"), result.bound("next")) == (0, 1)
