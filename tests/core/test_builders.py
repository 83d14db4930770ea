"""The builders themselves, and the shortest possible cycle."""

from tests.core.builders import cluster


def test_a_gang_on_free_nodes_is_bound() -> None:
    result = cluster(nodes=2, gpus=8).queue("q").gang("train", pods=4, gpu=4).schedule()
    assert result.bound("train") == 4
    assert result.nodes_used("train") == {"node-0": 2, "node-1": 2}
    assert result.why("train") == ""
