"""Subgroups with constraints of their own inside those of their parents (topo:8; TC-10 to TC-19, TC-29, TC-30)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tests.core.actions.test_allocate_nodesets import Domains, with_plugin
from tests.core.builders import Cluster, Raw, Result, SubgroupSpec, branch, cluster, leaf
from tests.core.topologies import busy, inside, keeping, node_sets, offered, racks, topology, where

ZONES = ("zone", "rack")
TREE = ("zone", "spine", "rack")
#: two zones of two spines of two racks, one two-GPU node in each rack
EIGHT_RACKS = [(f"z{1 + index // 4}/s{1 + index // 2}/r{index}", 2) for index in range(8)]
#: one zone, two spines of two racks, two one-GPU nodes in each rack
EIGHT = [(f"z1/s{1 + index // 4}/r{1 + index // 2}", 1) for index in range(8)]


def one(name: str, **pod: Any) -> SubgroupSpec:
    """A leaf of one pod."""
    return leaf(name, 1, pending=1, **pod)


def test_children_are_placed_inside_the_domain_of_their_parent() -> None:
    """topo:TC-10, T-37."""
    found = busy(racks(ZONES, ("z1/r1", 2), ("z1/r2", 2), ("z2/r3", 2), ("z2/r4", 2)), n0=2)
    parts = (keeping(one("sub-a"), "rack"), keeping(one("sub-b"), "rack"))
    result = found.tree("j", *parts, gpu=2, group_spec=inside("zone")).schedule()
    assert where(result, "j", "sub-a-0", "sub-b-0") == ["n2", "n3"]


@pytest.mark.parametrize("leaves", ["rack", ""])
def test_subgroups_of_a_nested_tree_keep_to_their_own_levels(leaves: str) -> None:
    """topo:TC-11, TC-15: replicas in spines, their leaves in racks or anywhere, all in the zone that is free."""
    found = busy(racks(TREE, *EIGHT_RACKS), n0=2)
    replicas = []
    for number in (1, 2):
        pods = [one(f"{name}{number}") for name in "ab"]
        inner = [keeping(part, leaves) for part in pods] if leaves else pods
        replicas.append(keeping(branch(f"rep{number}", *inner), "spine"))
    wanted = inside("zone") if leaves else inside(preferred="zone")
    result = found.tree("j", *replicas, gpu=2, group_spec=wanted).schedule()
    assert where(result, "j", "a1-0", "b1-0", "a2-0", "b2-0") == ["n4", "n5", "n6", "n7"]


@pytest.mark.parametrize("how", [{"preferred": "rack"}, {"required": "rack"}])
def test_replicas_take_racks_of_the_zone_their_group_prefers(how: dict[str, str]) -> None:
    """topo:TC-13, TC-14."""
    found = busy(racks(ZONES, ("z1/r1", 4), ("z1/r2", 4), ("z2/r3", 4), ("z2/r4", 4)), n0=1)
    parts = [keeping(leaf(f"rep{r}", 2, pending=2), **how) for r in (1, 2)]
    result = found.tree("j", *parts, gpu=2, group_spec=inside(preferred="zone")).schedule()
    assert where(result, "j", "rep1-0", "rep1-1", "rep2-0", "rep2-1") == ["n2", "n2", "n3", "n3"]


def test_the_preference_of_the_group_ranks_nodes_for_subgroups_without_one() -> None:
    """topo:TC-18, T-32: the scores of the nearest ancestor."""
    found = racks(TREE, *EIGHT)
    parts = [branch(f"sub-{x}", *(one(f"{x}{index}") for index in range(3))) for x in "ab"]
    result = found.tree("j", *parts, gpu=1, group_spec=inside(preferred="spine")).schedule()
    order = [f"{x}{index}-0" for x in "ab" for index in range(3)]
    assert where(result, "j", *order) == ["n4", "n5", "n6", "n7", "n0", "n1"]


def test_the_preference_of_a_subgroup_goes_before_that_of_its_group() -> None:
    """topo:TC-19, T-32: both prefer racks, so each stays inside one spine."""
    found = racks(TREE, *EIGHT)
    parts = [keeping(branch(f"sub-{x}", *(one(f"{x}{i}") for i in range(3))), preferred="rack") for x in "ab"]
    result = found.tree("j", *parts, gpu=1, group_spec=inside(preferred="spine")).schedule()
    order = [f"{x}{index}-0" for x in "ab" for index in range(3)]
    assert where(result, "j", *order) == ["n2", "n3", "n0", "n6", "n7", "n4"]


# Two topologies


def crossed(rooms: dict[str, tuple[str, str]], gpus: int = 8) -> Cluster:
    """Nodes with a rack and a zone, each the level of a topology of its own."""
    found = topology(topology(cluster().queue("q"), "rack", name="racks"), "zone", name="zones")
    for name, (rack, zone) in rooms.items():
        found.node(name, gpus=gpus, labels={"rack": rack, "zone": zone})
    return found


def values(result: Result, found: Cluster, prefix: str, label: str) -> set[str]:
    """Values of a label of the nodes to which pods of some subgroup went."""
    labels = {raw["metadata"]["name"]: raw["metadata"]["labels"] for raw in found.objects if raw["kind"] == "Node"}
    return {labels[bind.node][label] for bind in result.plan.binds if bind.pod.startswith(prefix)}


def test_subgroups_may_use_different_topologies() -> None:
    """topo:TC-29, T-37."""
    rooms = {"n0": ("a", "x"), "n1": ("a", "y"), "n2": ("b", "x"), "n3": ("b", "y"), "n4": ("c", "x"), "n5": ("c", "y")}
    found = busy(crossed(rooms), n0=4, n2=4)
    parts = (
        keeping(leaf("rack-workers", 3, pending=3), "rack", name="racks"),
        keeping(leaf("zone-workers", 3, pending=3), "zone", name="zones"),
    )
    result = found.tree("j", *parts, gpu=4, needs=2).schedule()
    pods = [[f"{name}-workers-{index}" for index in range(3)] for name in ("rack", "zone")]
    used = [Counter(where(result, "j", *names)) for names in pods]
    assert used == [{"n0": 1, "n1": 2}, {"n2": 1, "n4": 2}]


def test_a_parent_in_one_topology_and_children_in_another() -> None:
    """topo:TC-30, T-37: both children in the zone of their parent, in racks of their own."""
    rooms = {f"n{index}": ("abc"[index // 2 % 3], "xy"[index // 6]) for index in range(12)}
    found = busy(crossed(rooms), n0=4, n2=4)
    children = [keeping(leaf(f"child-{x}", 3, pending=3), "rack", name="racks") for x in "ab"]
    result = found.tree("j", *children, gpu=4, group_spec=inside("zone", name="zones")).schedule()
    assert values(result, found, "j-", "zone") == {"x"}
    racks_used = [values(result, found, f"j-child-{x}", "rack") for x in "ab"]
    assert sorted(racks_used, key=sorted) == [{"a"}, {"b"}]


def test_only_nodes_of_the_set_of_the_parent_count() -> None:
    """topo:TD-12: the first rack could hold the rest in another zone, but the parent is not there."""
    found = crossed({"n0": ("a", "x"), "n1": ("a", "y"), "n2": ("b", "x"), "n3": ("b", "x")}, gpus=2)
    found.tree("j", keeping(leaf("c", 3, pending=3), "rack", name="racks"), gpu=1)
    assert offered(found, "j", "c", only=("n0", "n2", "n3")) == [["n2", "n3"]]


def test_a_child_stays_on_the_nodes_of_its_parent() -> None:
    """topo:T-37: the rack of the child has a fuller node in another zone, which would pack better."""
    found = busy(crossed({"n0": ("a", "x"), "n1": ("a", "y")}, gpus=2), n1=1)
    child = keeping(leaf("c", 2, pending=2), "rack", name="racks")
    result = found.tree("j", child, gpu=1, group_spec=inside("zone", name="zones")).schedule()
    assert result.nodes_used("j") == {"n0": 2}


def test_only_domains_with_nodes_of_the_parent_have_scores() -> None:
    """topo:T-23, T-30: two of three racks are there, so there are two steps."""
    found = racks(("rack",), ("r1", 1), ("r2", 1), ("r3", 1)).gang("j", 1, gpu=1, group_spec=inside(preferred="rack"))
    scores = node_sets(found.cycle(), "j", only=("n0", "n2"))[0].scores
    assert scores is not None
    assert [scores[0], scores[2]] == [500_000, 1_000_000]


def test_a_subgroup_that_requires_a_level_keeps_the_preference_of_its_group() -> None:
    """topo:T-32: by itself it would fill the node that is in use."""
    found = busy(racks(ZONES, ("z/r1", 2), ("z/r2", 2)), n0=1)
    parts = (keeping(one("a"), "zone"), leaf("b", 2, pending=2))
    result = found.tree("j", *parts, gpu=1, group_spec=inside(preferred="rack")).schedule()
    assert result.node_of("j-a-0") == "n1"


def test_sets_of_two_plugins_are_chained() -> None:
    """topo:T-39: racks inside what another plugin offers; its first set has no rack that is large enough."""
    found = topology(cluster().queue("q"), "rack")
    for index, (rack, half) in enumerate((("r1", "a"), ("r1", "b"), ("r2", "b"), ("r2", "b"))):
        found.node(f"n{index}", gpus=1, labels={"rack": rack, "half": half})
    found.gang("j", 2, gpu=1, group_spec=inside("rack"))
    assert with_plugin(found, Domains({"": "half"})).schedule().nodes_used("j") == {"n2": 1, "n3": 1}


# Backtracking


def test_the_next_domain_of_the_parent_is_tried_when_a_child_fails() -> None:
    """topo:T-38: the first zone could hold six pods, but has no second rack for three."""
    found = racks(ZONES, ("z1/r1", 4), ("z1/r2", 2), ("z2/r3", 3), ("z2/r4", 3))
    parts = [keeping(leaf(x, 3, pending=3), "rack") for x in "ab"]
    result = found.tree("j", *parts, gpu=1, group_spec=inside("zone")).schedule()
    assert result.nodes_used("j") == {"n2": 3, "n3": 3}


@pytest.mark.parametrize("sizes", [(3, 3, 4), (3, 4, 3), (4, 3, 3)])
def test_siblings_try_other_domains_when_one_of_them_fails(sizes: tuple[int, ...]) -> None:
    """topo:TD-6: 3, 3 and 4 GPUs in racks of 6 and 4."""
    found = racks(("rack",), ("r1", 6), ("r2", 4))
    parts = [keeping(leaf(f"w{index}", size, pending=size), "rack") for index, size in enumerate(sizes)]
    result = found.tree("j", *parts, gpu=1).schedule()
    assert result.nodes_used("j") == {"n0": 6, "n1": 4}


@pytest.mark.parametrize("nested", [False, True])
def test_the_subgroup_with_the_wider_domain_is_placed_last(nested: bool) -> None:
    """topo:TD-6: the first has a choice of nodes and would take the only rack that holds the second."""
    found = racks(ZONES, ("z/r1", 1), ("z/r1", 1), ("z/r2", 1), ("z/r3", 1))
    strict = keeping(leaf("b", 2, pending=2), "rack")
    parts = (keeping(leaf("a", 2, pending=2), "zone"), branch("up", strict) if nested else strict)
    result = found.tree("j", *parts, gpu=1).schedule()
    assert where(result, "j", "b-0", "b-1") == ["n0", "n1"]
    assert where(result, "j", "a-0", "a-1") == ["n2", "n3"]


def test_subgroups_without_a_constraint_use_nodes_outside_the_topology() -> None:
    """topo:TD-6, T-15: the second only prefers racks, but that keeps it on nodes that have one."""
    found = racks(("rack",), ("r1", 1), ("r2", 1), ("-", 1), ("-", 1))
    parts = (leaf("a", 2, pending=2), keeping(leaf("b", 2, pending=2), preferred="rack"))
    result = found.tree("j", *parts, gpu=1).schedule()
    assert where(result, "j", "a-0", "a-1") == ["n2", "n3"]


def test_a_failed_combination_leaves_nothing_behind() -> None:
    """topo:T-38: the gang after it finds all nodes free."""
    found = racks(("rack",), ("r1", 6), ("r2", 4))
    parts = [keeping(leaf(f"w{index}", size, pending=size), "rack") for index, size in enumerate((3, 4, 4))]
    result = found.tree("j", *parts, gpu=1).gang("next", 6, gpu=1, group_spec=inside("rack")).schedule()
    assert result.bound("j") == 0
    assert result.nodes_used("next") == {"n0": 6}


def test_members_go_by_need_then_by_name() -> None:
    """topo:T-36: the one that has all its pods comes after the one that has none."""
    found = racks(("rack",), ("r1", 2), ("r2", 3))
    parts = [keeping(leaf(name, 1, pending=1), "rack") for name in ("b", "a")]
    result = found.tree("j", *parts, gpu=2).schedule()
    assert where(result, "j", "a-0", "b-0") == ["n0", "n1"]


# The tree of subgroups


def test_a_plain_group_has_its_constraint_on_the_root_only() -> None:
    """topo:T-1: its leaf called default has none."""
    found = racks(("rack",), ("r1", 1), ("r2", 1)).gang("j", 1, gpu=1, group_spec=inside("rack"))
    assert offered(found, "j") == [["n0"], ["n1"]]
    assert offered(found, "j", "default") == [["n0", "n1"]]


def test_parents_are_found_whatever_their_case() -> None:
    """topo:T-2."""
    found = racks(("rack",), ("r1", 1), ("r2", 2))
    found.tree("j", keeping(branch("up", one("a"), one("b")), "rack"), gpu=1)
    for raw in found.objects:
        for entry in raw["spec"].get("subGroups", ()) if raw["kind"] == "PodGroup" else ():
            if "parent" in entry:
                entry["parent"] = "UP"
    assert found.schedule().nodes_used("j") == {"n1": 2}


def test_a_subgroup_whose_constraint_names_no_topology_is_free() -> None:
    """topo:T-3."""
    found = racks(("rack",), ("r1", 2), ("r2", 1))
    free = replace(leaf("a", 2, pending=2), spec={"topologyConstraint": {"requiredTopologyLevel": "rack"}})
    assert found.tree("j", free, keeping(one("b"), "rack"), gpu=1).schedule().bound("j") == 3


def test_pods_without_a_subgroup_label_are_the_default_subgroup() -> None:
    """topo:T-4."""
    found = racks(("rack",), ("r1", 1), ("r1", 1), ("r2", 1))
    spec: Raw = {"subGroups": [{"name": "default", "minMember": 2, **inside("rack")}]}
    found.group("j", **spec).pod("j-0", group="j", gpu=1).pod("j-1", group="j", gpu=1)
    assert found.schedule().nodes_used("j") == {"n0": 1, "n1": 1}


def test_a_subgroup_without_pods_does_not_block_the_gang() -> None:
    """topo:T-36, 8: it succeeds without being asked for a domain, even if its constraint is wrong."""
    found = racks(("rack",), ("r1", 1))
    parts = (keeping(leaf("none", 0), "nosuch"), keeping(one("a"), "rack"))
    assert found.tree("j", *parts, gpu=1).schedule().bound("j") == 1


def test_a_subgroup_of_minimum_zero_grows_in_its_own_domain() -> None:
    """topo:T-25, 8: its pods come one by one after the others."""
    found = racks(("rack",), ("r1", 3), ("r2", 2))
    parts = (keeping(leaf("a", 2, pending=2), "rack"), keeping(leaf("more", 0, pending=3), "rack"))
    result = found.tree("j", *parts, gpu=1).schedule()
    racks_used = [{result.node_of(f"j-{name}-{index}") for index in range(3)} - {""} for name in ("a", "more")]
    assert all(len(used) == 1 for used in racks_used)


def test_every_constraint_on_the_way_up_holds() -> None:
    """topo:T-37: a leaf that prefers racks, in a branch that requires a spine, in a group that requires a zone."""
    found = busy(racks(TREE, *EIGHT_RACKS), n0=2)
    inner = keeping(branch("in", keeping(leaf("w", 2, pending=2), preferred="rack"), one("x")), "spine")
    result = found.tree("j", inner, gpu=1, group_spec=inside("zone")).schedule()
    spines = {int(node[1:]) // 2 for node in result.nodes_used("j")}
    assert (result.bound("j"), len(spines)) == (3, 1)


@pytest.mark.parametrize("free", [6, 5])
def test_jobs_that_share_a_group_start_together_or_not_at_all(free: int) -> None:
    """workloads:T-154, EX-6: a group that no pod grouper made, of two Jobs with different constraints."""
    parts = (
        keeping(leaf("rack-workers", 3, pending=3), "rack"),
        keeping(leaf("zone-workers", 3, pending=3), "zone"),
    )
    found = racks(ZONES, ("z1/r1", 3), ("z2/r2", 1), ("z2/r3", free - 4))
    found.tree("shared", *parts, needs=2, gpu=1).pod("typo", group="shared", subgroup="typo", gpu=1)
    result = found.schedule()
    assert result.bound("shared") == (6 if free == 6 else 0)
    assert 'Pod default/typo references subgroup "typo", which does not exist' in result.why("shared")
    if free == 6:
        assert set(where(result, "shared", *(f"rack-workers-{number}" for number in range(3)))) == {"n0"}
        assert set(where(result, "shared", *(f"zone-workers-{number}" for number in range(3)))) == {"n1", "n2"}
