"""Where volumes are reachable: terms over labels and names of any number of nodes."""

from __future__ import annotations

import numpy as np
import pytest

from pykai.core.cluster.nodetable import NodeTable
from pykai.core.ledgers.volumes.candidates import StorageByNode, accessible_mask, accessible_rows
from pykai.core.model.volumerequests import AccessibleNodes, LabelRequirement, NodeTerm
from tests.core.builders import cluster


def nodes() -> NodeTable:
    """node-0 to node-99: even ones in zone a, odd ones in zone b, all of one rack; node names sort as text."""
    world = cluster()
    for n in range(100):
        world.node(f"node-{n:02}", labels={"zone": "ab"[n % 2], "rack": "r"})
    return world.tables().snapshot(0).nodes


def term(*expressions: tuple[str, str, tuple[str, ...]], fields: tuple[LabelRequirement, ...] = ()) -> NodeTerm:
    return NodeTerm(tuple(LabelRequirement(*each) for each in expressions), fields)


HOST = "kubernetes.io/hostname"
NAMED = (HOST, "In", ("node-03", "node-04", "elsewhere"))


@pytest.mark.parametrize(
    ("place", "rows"),
    [
        (None, list(range(100))),
        ((), []),
        ((term(NAMED),), [3, 4]),
        ((term(NAMED, ("zone", "In", ("a",))),), [4]),
        ((term(NAMED, ("zone", "NotIn", ("a",))),), [3]),
        ((term(("zone", "In", ("a",)), ("rack", "Exists", ())),), list(range(0, 100, 2))),
        ((term(NAMED), term((HOST, "In", ("node-04", "node-09")))), [3, 4, 9]),
        ((term(NAMED, ("zone", "Like", ("a",))),), []),
        ((term(NAMED, ("zone", "In", ("a", "no value of a label"))),), []),
        ((term(NAMED, fields=(LabelRequirement("metadata.name", "In", ("node-04",)),)),), [4]),
        ((term(),), []),
    ],
    ids=["everywhere", "nowhere", "named", "both", "not in", "many", "either", "unknown", "broken", "by name", "empty"],
)
def test_a_volume_is_reachable_where_one_of_its_terms_holds(place: AccessibleNodes, rows: list[int]) -> None:
    table = nodes()
    assert accessible_rows(table, place).tolist() == rows
    assert np.flatnonzero(accessible_mask(table, place)).tolist() == rows


def test_what_one_node_reaches_is_kept_apart_from_what_many_reach() -> None:
    places: dict[str, AccessibleNodes] = {
        "one": (term((HOST, "In", ("node-03",))),),
        "zone": (term(("zone", "In", ("b",))),),
        "all": None,
        "none": (),
    }
    located = StorageByNode(nodes(), places, lambda name: places[name])
    assert located.single_node == {3: ["one"]}
    assert [things for _, things in located.multi_node] == [["zone"], ["all"]]
    assert [sorted(located.at(row)) for row in (2, 3)] == [["all"], ["all", "one", "zone"]]
