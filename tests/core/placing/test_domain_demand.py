"""Figures of what tasks need of a domain (topo:5.2 to 5.4, T-20)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pykai.core.placing.topology import fill_ratios, min_gpu_hundredths
from tests.core.builders import cluster, leaf, placement_request_of
from tests.core.topologies import busy, inside, offered, racks


def test_a_domain_without_a_resource_counts_as_fullest() -> None:
    """topo:5.4: the last GPU is a resource like any other."""
    free = np.array([4.0, 1.0, 0.0, -1.0])
    assert fill_ratios([("/gpu", 2.0, free)], 4).tolist() == [0.5, 2.0, 1000.0, 1000.0]


@pytest.mark.parametrize(
    ("request_", "hundredths"),
    [
        ({"fraction": 0.5}, 50),
        ({"fraction": 0.995}, 99),
        ({"gpu_memory": 995}, 49),
        ({"gpu_memory": 1990}, 99),
        ({"fraction": 0.5, "devices": 3}, 150),
    ],
)
def test_a_share_takes_hundredths_of_the_largest_gpu_at_least(request_: dict[str, Any], hundredths: int) -> None:
    """gpu:C-12: cut, so that what fits never adds up to more than there is."""
    built = cluster().node("a", gpus=4, gpu_memory=1000).node("b", gpus=4, gpu_memory=2000).queue("q")
    cycle = built.gang("job", **request_).cycle()
    snapshot = cycle.context.snapshot
    assert min_gpu_hundredths(snapshot.nodes, placement_request_of(cycle, "job-0").task.shape) == hundredths


def test_a_full_node_adds_nothing_to_its_domain() -> None:
    """topo:T-20: one pod of two GPUs and one of one find a place each in r1, but not both."""
    built = busy(racks(("rack",), ("r1", 2), ("r1", 1), ("r2", 3)), n1=1)
    parts = (leaf("a", 1, pending=1, gpu=2), leaf("b", 1, pending=1, gpu=1))
    built.tree("j", *parts, group_spec=inside("rack"))
    assert offered(built, "j") == [["n2"]]
