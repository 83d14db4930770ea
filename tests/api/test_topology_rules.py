"""Which Topologies are admitted: topo:2, with the texts that users see."""

from __future__ import annotations

import pytest

from pykai.api.topology import Topology, TopologyLevel, TopologySpec, alias_problems, validate_topology

HOST = "kubernetes.io/hostname"
IMMUTABLE = "nodeLabel structure is immutable; only aliases may be edited"
UNIQUE = "nodeLabel must be unique"
LOWEST = "the kubernetes.io/hostname label can only be used at the lowest level of topology"


def topology(*levels: str) -> Topology:
    """Levels as `label` or `label=alias`."""
    pairs = (level.partition("=") for level in levels)
    return Topology(
        spec=TopologySpec(levels=[TopologyLevel(node_label=label, alias=alias) for label, _, alias in pairs])
    )


def test_t9_aliases_that_distinguish_levels_are_fine() -> None:
    """topo:T-9."""
    assert alias_problems(topology("zone=z", "rack=r", HOST)) == ""
    assert alias_problems(topology("zone", "rack")) == ""
    assert alias_problems(topology()) == ""


def test_t9_duplicated_aliases_are_listed_once_and_sorted() -> None:
    """topo:T-9."""
    assert alias_problems(topology("v=b", "w=b", "x=b", "y=a", "z=a", "u=c")) == (
        "invalid topology aliases: aliases must be unique within the topology; duplicated: [a b]"
    )


def test_t9_an_alias_equal_to_a_label_conflicts_also_with_its_own() -> None:
    """topo:T-9."""
    assert alias_problems(topology("zone=rack", "rack", "host=host")) == (
        "invalid topology aliases: an alias must not equal a nodeLabel; conflicting: [host rack]"
    )


def test_t9_both_problems_are_reported_together() -> None:
    """topo:T-9: the text as KAI Scheduler writes it."""
    assert alias_problems(topology("v=b", "w=b", "x=a", "y=a", "c", "z=c")) == (
        "invalid topology aliases: aliases must be unique within the topology; duplicated: [a b]; "
        "an alias must not equal a nodeLabel; conflicting: [c]"
    )


def test_t9_an_alias_can_break_both_rules_at_once() -> None:
    """topo:T-9."""
    assert alias_problems(topology("zone=rack", "rack=rack")) == (
        "invalid topology aliases: aliases must be unique within the topology; duplicated: [rack]; "
        "an alias must not equal a nodeLabel; conflicting: [rack]"
    )


def test_t10_an_update_may_move_add_and_drop_aliases() -> None:
    """topo:T-10."""
    old = topology("zone=big", "rack=small", "host=tiny")
    for new in (topology("zone=small", "rack=big", "host=tiny"), topology("zone", "rack", "host=small")):
        assert validate_topology(new, old) == []
        assert alias_problems(new) == ""


@pytest.mark.parametrize(
    "levels",
    [("rack", "zone"), ("zone",), ("zone", "rack", "host"), ("zone", "row"), ("zone=rack",), ("zone", "Rack")],
)
def test_t10_an_update_may_not_change_the_structure(levels: tuple[str, ...]) -> None:
    """topo:2, T-10: neither the labels nor their order."""
    assert validate_topology(topology(*levels), topology("zone", "rack")) == [IMMUTABLE]
    assert validate_topology(topology(*levels)) == []


def test_t5_the_host_is_the_last_level_because_it_is_the_finest() -> None:
    """topo:T-5."""
    assert validate_topology(topology("zone", "rack", HOST)) == []
    assert validate_topology(topology(HOST)) == []
    for levels in ((HOST, "rack"), ("zone", HOST, "rack")):
        assert validate_topology(topology(*levels)) == [LOWEST]


def test_t6_the_host_need_not_be_a_level_and_is_not_added() -> None:
    """topo:T-6."""
    found = topology("zone", "rack")
    assert validate_topology(found) == []
    assert [level.node_label for level in found.spec.levels] == ["zone", "rack"]


def test_t5_labels_of_levels_are_unique() -> None:
    """topo:2, T-5: a label cannot be coarser than itself."""
    assert validate_topology(topology("zone=a", "rack", "zone=b")) == [UNIQUE]
    assert validate_topology(topology("zone", "Zone")) == []


def test_all_broken_rules_are_reported_together() -> None:
    """topo:2."""
    assert validate_topology(topology(HOST, HOST), topology("zone")) == [IMMUTABLE, UNIQUE, LOWEST]


def test_a_topology_has_one_to_sixteen_levels() -> None:
    """topo:2."""
    assert validate_topology(topology()) == ["spec.levels: expected 1 to 16 levels, got 0"]
    assert validate_topology(topology(*(f"l{number}" for number in range(16)))) == []
    many = topology(*(f"l{number}" for number in range(17)))
    assert validate_topology(many) == ["spec.levels: expected 1 to 16 levels, got 17"]


def test_a_label_has_one_to_316_characters() -> None:
    """topo:2: of the alias as of the label."""
    assert validate_topology(topology("z" * 316, f"rack={'r' * 316}")) == []
    assert validate_topology(topology("zone", "")) == ["spec.levels[1].nodeLabel: expected 1 to 316 characters, got 0"]
    assert validate_topology(topology("z" * 317, f"rack={'r' * 318}")) == [
        "spec.levels[0].nodeLabel: expected 1 to 316 characters, got 317",
        "spec.levels[1].alias: expected 1 to 316 characters, got 318",
    ]


@pytest.mark.parametrize(
    "key", ["zone", "Z", "9", "a.B_c-d", "topology.kubernetes.io/zone", "x/Y", "a-b.c-d/e", "example.com/a__b"]
)
def test_keys_of_labels_are_good_labels_and_aliases(key: str) -> None:
    """topo:2."""
    assert validate_topology(topology(key)) == []
    assert validate_topology(topology(f"other={key}")) == []


@pytest.mark.parametrize(
    "key",
    [
        "-zone",
        "zone-",
        "_a",
        "a.",
        "zo ne",
        "zone\n",
        "zöne",
        "/zone",
        "a/",
        "a/b/c",
        "Big.io/zone",
        "a..b/z",
        "-a/z",
        "a_b/z",
    ],
)
def test_other_text_is_neither_a_label_nor_an_alias(key: str) -> None:
    """topo:2."""
    (as_label,) = validate_topology(topology(key))
    (as_alias,) = validate_topology(topology(f"other={key}"))
    assert as_label.startswith("spec.levels[0].nodeLabel: expected the key of a label")
    assert as_alias.startswith("spec.levels[0].alias: expected the key of a label")
    assert as_alias.endswith(f"got {key!r}")
