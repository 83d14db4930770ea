"""The clusters of `bench.shapes` are what their sentences say."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.shapes import SHAPES, line, lines, main
from pykai.dev.objectsbench import ObjectsMeasurement, measure_once

_NODES = 16
#: Where a gang needs more nodes than that.
_MORE_NODES = {"gang_victims": 64, "gang_victims_refused": 64}
#: Shape -> what happens in a cycle: bound, nominated, evicted.
_HAPPENS = {
    "fill": (True, False, False),
    "gang": (True, False, False),
    "full": (False, False, False),
    "reclaim": (False, True, True),
    "reclaim_strewn": (False, True, True),
    "reclaim_shuffled": (False, True, True),
    "frag": (False, True, True),
    "frag_strewn": (False, True, True),
    "frag_shuffled": (False, True, True),
    "reclaim_gangs": (False, True, True),
    "reclaim_gangs_local": (False, True, True),
    "queues1000": (False, True, True),
    "deep6": (False, True, True),
    "shapes3000": (True, False, False),
    "shapes_half": (True, False, False),
    "shapes3000_full": (False, False, False),
    "topo_frag": (True, False, False),
    "topo_frag_fit": (True, False, False),
    "gang_victims": (False, True, True),
    "gang_victims_refused": (False, False, False),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_cycle_on_a_shape_does_what_it_is_for(shape: str, tmp_path: Path) -> None:
    nodes = _MORE_NODES.get(shape, _NODES)
    path = tmp_path / "objects"
    path.write_text("\n".join(lines(shape, nodes)), encoding="utf-8")
    found = measure_once(path)
    assert found.nodes == nodes
    assert (found.binds > 0, found.nominations > 0, found.evictions > 0) == _HAPPENS[shape]
    assert not found.ended_searches


def test_the_growth_is_the_power_of_the_number_of_nodes() -> None:
    small, large = (
        ObjectsMeasurement(nodes, nodes, cpu, cpu, 0.0, 0.0, 0.0, 0, 0, 0, 0, 50.0)
        for nodes, cpu in ((100, 0.1), (1000, 1.0))
    )
    assert line("fill", large, small).endswith("grows with n^1.00")
    assert "grows" not in line("fill", large, None)


def test_the_list_names_every_shape(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--list"])
    assert [each.split()[0] for each in capsys.readouterr().out.splitlines()] == list(SHAPES)
