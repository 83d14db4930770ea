"""Which domain of a topology a gang gets, and which nodes of it (topo:4, 5, 7; TC-1 to TC-9, TC-12, TC-16 to TC-40)."""

from __future__ import annotations

import pytest

from pykai.api.decode import decode_object
from pykai.api.scheduling import TopologyConstraint
from pykai.api.topology import Topology
from pykai.core.placing.topology import ConstraintLevels, domain_tree, levels_of, topology_tree
from tests.core.builders import Cluster, cluster, scores_of
from tests.core.topologies import busy, detailed, inside, node_sets, offered, racks, topology, where

SPINES = ("rack", "spine")
TREE = ("zone", "spine", "rack")
#: one zone, two spines of two racks, two one-GPU nodes in each rack
EIGHT = [(f"z1/s{1 + index // 4}/r{1 + index // 2}", 1) for index in range(8)]


# Required levels


def test_a_required_level_takes_the_domain_that_can_hold_the_gang() -> None:
    """topo:TC-1, T-21."""
    found = busy(racks(("rack",), ("r1", 1), ("r1", 1), ("r2", 1), ("r2", 1)), n0=1)
    assert found.gang("j", 2, gpu=1, group_spec=inside("rack")).schedule().nodes_used("j") == {"n2": 1, "n3": 1}


def test_a_domain_whose_nodes_refuse_a_pod_is_left_for_the_next() -> None:
    """topo:TC-2; cycle:T-48: the rack with the smaller name comes first and fails, but not for want of a resource."""
    found = topology(cluster().queue("q"), "rack").group("j", minMember=2, **inside("rack"))
    for index, rack in enumerate(("r1", "r1", "r2", "r2")):
        found.node(f"n{index}", gpus=1, labels={"rack": rack, **({"fast": "yes"} if rack == "r2" else {})})
    found.pod("j-0", group="j", gpu=1, spec={"nodeSelector": {"fast": "yes"}}).pod("j-1", group="j", gpu=1)
    assert offered(found, "j") == [["n2", "n3"]]
    assert found.schedule().nodes_used("j") == {"n2": 1, "n3": 1}


def test_domains_of_a_level_are_distinguished_by_their_path() -> None:
    """topo:TC-3, T-16: equal values under different parents are different domains."""
    found = busy(racks(SPINES, ("r1/s1", 2), ("r1/s2", 2)), n0=1)
    assert found.gang("j", 2, gpu=1, group_spec=inside("spine")).schedule().nodes_used("j") == {"n1": 2}
    found = racks(SPINES, ("r1/s1", 2), ("r2/s1", 2)).gang("j", 3, gpu=1, group_spec=inside("spine"))
    assert found.schedule().bound("j") == 0


def test_a_required_level_spans_the_domains_below_it() -> None:
    """topo:TC-4."""
    found = busy(racks(SPINES, ("r1/s1", 2), ("r1/s2", 2), ("r2/s1", 2), ("r2/s2", 2)), n0=1)
    assert found.gang("j", 4, gpu=1, group_spec=inside("rack")).schedule().nodes_used("j") == {"n2": 2, "n3": 2}


def test_inside_a_domain_nodes_are_packed() -> None:
    """topo:TC-5."""
    found = busy(racks(SPINES, ("r1/s1", 2), ("r1/s2", 2)), n0=1)
    assert found.gang("j", 2, gpu=1, group_spec=inside("rack")).schedule().nodes_used("j") == {"n0": 1, "n1": 1}


def test_a_gang_that_fits_no_domain_waits() -> None:
    """topo:TC-6, T-21: what each domain is short of, the figures in both forms."""
    found = busy(racks(SPINES, ("r1/s1", 2), ("r1/s2", 2), ("r2/s1", 2), ("r2/s2", 2)), n0=1, n2=1)
    result = found.gang("j", 4, gpu=1, group_spec=inside("rack")).schedule()
    assert result.bound("j") == 0
    assert detailed(result, "j") == (
        "\nUnable to schedule podgroup."
        "\n<r1>: node-group r1 can allocate only 3 of 4 required pods."
        "\n<r2>: node-group r2 can allocate only 3 of 4 required pods."
        "\ntopology net, requirement rack couldn't be satisfied for job <default/j>."
    )


def test_the_fuller_domain_is_tried_first() -> None:
    """topo:TC-12, 5.4."""
    found = busy(racks(("rack",), ("r1", 10), ("r2", 10)), n1=1)
    assert found.gang("j", 1, gpu=1, group_spec=inside("rack")).schedule().node_of("j-0") == "n1"


def test_a_rack_with_work_of_its_own_is_filled_up() -> None:
    """topo:TC-21."""
    found = racks(("rack",), ("r1", 3), ("r2", 3)).gang("busy", gpu=1, on="n0", group_spec=inside("rack"))
    assert found.gang("j", 2, gpu=1, group_spec=inside("rack")).schedule().nodes_used("j") == {"n0": 2}


def test_how_full_a_domain_would_be_is_the_worst_of_all_resources() -> None:
    """topo:5.4: one rack has less CPU left, the other fewer GPUs; the CPU is what the pod needs most of."""
    found = topology(cluster().queue("q"), "rack")
    found.node("n0", gpus=2, cpu=100, labels={"rack": "r1"}).node("n1", gpus=8, cpu=4, labels={"rack": "r2"})
    assert found.gang("j", 1, gpu=1, cpu=3, group_spec=inside("rack")).schedule().node_of("j-0") == "n1"


def test_slots_for_pods_do_not_make_a_domain_full() -> None:
    """topo:5.4: the other rack has fewer GPUs left and is the fuller one."""
    found = topology(cluster().queue("q"), "rack")
    found.node("n0", gpus=2, labels={"rack": "r2"}).node("n1", gpus=4, pods=1, labels={"rack": "r1"})
    assert found.gang("j", 1, gpu=1, group_spec=inside("rack")).schedule().node_of("j-0") == "n0"


def test_whole_and_shared_gpus_are_one_resource() -> None:
    """topo:5.4: both kinds together make the rack with less memory for them the fuller one by its GPUs."""
    found = topology(cluster().queue("q"), "rack")
    found.node("n0", gpus=4, cpu=8, labels={"rack": "r1"}).node("n1", gpus=3, cpu=100, labels={"rack": "r2"})
    found.group("j", minMember=3, **inside("rack"))
    found.pod("j-0", group="j", gpu=1, cpu=2)
    for index in (1, 2):
        found.pod(f"j-{index}", group="j", fraction="0.5", cpu=1)
    assert found.schedule().nodes_used("j") == {"n1": 3}


def test_a_domain_with_nothing_left_of_a_resource_is_the_fullest() -> None:
    """topo:5.4: a shared GPU has free memory, no whole one is left; such a rack goes before one with a whole GPU."""
    found = racks(("rack",), ("r1", 2), ("r2", 1)).gang("half", fraction="0.5", on="n1", device="d1")
    assert found.gang("j", 1, fraction="0.5", group_spec=inside("rack")).schedule().node_of("j-0") == "n1"


def test_every_resource_of_a_domain_counts() -> None:
    """topo:TC-28."""
    found = topology(cluster().queue("q"), "rack")
    found.node("n0", gpus=2, cpu="5", labels={"rack": "r1"}).node("n1", gpus=2, cpu="1", labels={"rack": "r2"})
    assert found.gang("j", 2, gpu=1, cpu=2, group_spec=inside("rack")).schedule().nodes_used("j") == {"n0": 2}


def test_what_is_being_released_counts_as_free() -> None:
    """topo:TC-37, T-18: half of every node is about to leave."""
    found = racks(("rack",), ("r1", 0), ("r1", 0))
    for raw in found.objects[-2:]:
        raw["status"]["allocatable"]["cpu"] = "1"
    found.gang("old", 1, cpu="500m", on="n0", deleted=10).gang("older", 1, cpu="500m", on="n1", deleted=10)
    result = found.gang("j", 4, cpu="500m", group_spec=inside("rack")).schedule()
    assert result.nodes_used("j") == {"n0": 2, "n1": 2}
    assert result.pipelined("j") == 4


def test_what_the_cycle_has_placed_is_no_longer_free() -> None:
    """topo:T-18: the second gang sees what is left after the first."""
    found = racks(("rack",), ("r1", 2), ("r2", 2))
    for name in ("a", "b"):
        found.gang(name, 2, gpu=1, group_spec=inside("rack"))
    result = found.schedule()
    assert (result.nodes_used("a"), result.nodes_used("b")) == ({"n0": 2}, {"n1": 2})


# Preferred levels


def test_a_preferred_level_is_kept_where_it_can_be() -> None:
    """topo:TC-7."""
    found = busy(racks(("rack",), ("r1", 2), ("r2", 2)), n0=1)
    assert found.gang("j", 2, gpu=1, group_spec=inside(preferred="rack")).schedule().nodes_used("j") == {"n1": 2}


def test_a_preferred_level_gives_way() -> None:
    """topo:TC-8."""
    found = busy(racks(("rack",), ("r1", 2), ("r2", 2)), n0=1, n1=1)
    result = found.gang("j", 2, gpu=1, group_spec=inside(preferred="rack")).schedule()
    assert where(result, "j", 0, 1) == ["n1", "n0"]


def test_required_and_preferred_together() -> None:
    """topo:TC-9."""
    found = racks(SPINES, ("r1/s1", 2), ("r1/s2", 2), ("r2/s1", 2), ("r2/s2", 2))
    result = busy(found, n0=2, n1=1, n2=1, n3=1).gang("j", 2, gpu=1, group_spec=inside("rack", "spine")).schedule()
    assert where(result, "j", 0, 1) == ["n3", "n2"]


def test_a_gang_that_only_prefers_a_level_keeps_to_the_topology() -> None:
    """topo:3: the last resort are all nodes that belong to the topology, not those outside."""
    found = racks(("rack",), ("r1", 1), ("r2", 1), ("-", 4))
    assert found.gang("j", 3, gpu=1, group_spec=inside(preferred="rack")).schedule().bound("j") == 0


def test_as_few_preferred_domains_as_possible() -> None:
    """topo:TC-16, T-35."""
    nodes = [(f"r1/s{index // 2}", 1) for index in range(8)]
    result = racks(SPINES, *nodes).gang("j", 3, gpu=1, group_spec=inside("rack", "spine")).schedule()
    assert where(result, "j", 0, 1, 2) == ["n6", "n7", "n4"]


def test_the_domain_with_capacity_is_found_behind_a_full_one() -> None:
    """topo:TC-20."""
    found = busy(racks(TREE, *EIGHT), n0=1, n1=1, n2=1, n4=1, n5=1, n6=1, n7=1)
    assert found.gang("j", 1, gpu=1, group_spec=inside(preferred="spine")).schedule().node_of("j-0") == "n3"


def test_packing_goes_by_the_parent_first() -> None:
    """topo:TC-22, T-24."""
    nodes = [("z1/s1/r1", 1), ("z1/s1/r2", 1), ("z1/s1/r3", 1), ("z1/s2/r4", 1), ("z1/s2/r4", 1)]
    result = racks(TREE, *nodes).gang("j", 1, gpu=1, group_spec=inside(preferred="rack")).schedule()
    assert result.node_of("j-0") == "n3"


def test_a_preferred_rack_is_the_first_set() -> None:
    """topo:TC-31: 2 pods of half a core fit the first rack alone."""
    found = topology(cluster().queue("q"), "zone", "rack")
    found.node("n0", cpu=1, labels={"zone": "z", "rack": "r1"})
    found.node("n1", cpu="400m", labels={"zone": "z", "rack": "r2"})
    assert offered(found.gang("j", 2, cpu="500m", group_spec=inside("zone", "rack")), "j")[0] == ["n0"]


def test_pods_that_differ_are_measured_by_their_sum() -> None:
    """topo:TC-32, T-19, T-20: each rack could hold either pod, none both."""
    found = topology(cluster().queue("q"), "zone", "rack").group("j", minMember=2, **inside("zone", "rack"))
    for index in range(2):
        found.node(f"n{index}", cpu=2, gpus=1, labels={"zone": "z", "rack": f"r{index}"})
    found.pod("j-0", group="j", gpu=1, cpu=2).pod("j-1", group="j", cpu=2)
    assert offered(found, "j")[0] == ["n0", "n1"]
    assert found.schedule().bound("j") == 2


def _scores(domains: int) -> list[int]:
    found = racks(("rack",), *[(f"r{index:02}", 1) for index in range(domains)])
    first = node_sets(found.gang("j", 1, gpu=1, group_spec=inside(preferred="rack")).cycle(), "j")[0]
    assert first.scores is not None
    return [round(score) for score in first.scores.tolist()]


@pytest.mark.parametrize(
    ("domains", "tenths"), [(1, [10.0]), (2, [5.0, 10.0]), (4, [2.5, 5.0, 7.5, 10.0]), (5, [2.0, 4.0, 6.0, 8.0, 10.0])]
)
def test_the_emptiest_preferred_domain_is_worth_most(domains: int, tenths: list[float]) -> None:
    """topo:T-30, with the full resolution of topo:TD-11: equal steps up to a million."""
    assert _scores(domains) == [round(100_000 * value) for value in tenths]


def test_more_than_ten_preferred_domains_have_different_scores() -> None:
    """topo:TD-11: neighbours do not tie, no score is zero, and all are inside the band."""
    scores = _scores(25)
    assert len(set(scores)) == 25
    assert min(scores) > 0
    assert max(scores) == 1_000_000


def test_a_node_outside_the_topology_is_worth_nothing() -> None:
    """topo:TD-18: not below zero, which would drop it from every list."""
    found = racks(("rack",), ("r1", 1), ("-", 1)).gang("j", 1, gpu=1, group_spec=inside(preferred="rack"))
    scores = node_sets(found.cycle(), "j")[0].scores
    assert scores is not None
    assert scores.tolist() == [1_000_000, 0]


def test_with_many_preferred_domains_the_job_is_not_scattered() -> None:
    """topo:TD-11: twenty racks of two GPUs each, all alike; eight pods take four of them."""
    found = racks(("rack",), *[(f"r{index // 2:02}", 1) for index in range(40)])
    result = found.gang("j", 8, gpu=1, group_spec=inside(preferred="rack")).schedule()
    assert len({int(node[1:]) // 2 for node in result.nodes_used("j")}) == 4


def test_a_preferred_level_outweighs_how_nodes_are_packed() -> None:
    """topo:T-34: with one GPU in use the node packs better, but its rack has less left."""
    found = busy(racks(("rack",), ("r1", 4), ("r2", 2), ("r2", 3)), n0=3)
    result = found.gang("j", 6, gpu=1, group_spec=inside(preferred="rack")).schedule()
    assert where(result, "j", 0) == ["n1"]
    assert result.nodes_used("j") == {"n0": 1, "n1": 2, "n2": 3}


def test_without_a_preferred_level_nothing_is_added_to_the_scores() -> None:
    """topo:T-32."""
    plain = racks(("rack",), ("r1", 2), ("r2", 2)).gang("j", 1, gpu=1)
    bound = racks(("rack",), ("r1", 2), ("r2", 2)).gang("j", 1, gpu=1, group_spec=inside("rack"))
    assert scores_of(plain.cycle(), "j-0") == scores_of(bound.cycle(), "j-0")


@pytest.mark.parametrize(
    ("required", "preferred", "sets"),
    [
        ("", "rack", ["n0", "n1", "n2", "n3", "n0 n1", "n2", "n3", "n0 n1 n2 n3"]),
        ("", "zone", ["n0 n1", "n2", "n3", "n0 n1 n2 n3"]),
        ("zone", "", ["n0 n1", "n2", "n3"]),
        ("zone", "rack", ["n0", "n1", "n2", "n3", "n0 n1", "n2", "n3"]),
        ("rack", "", ["n0", "n1", "n2", "n3"]),
        ("rack", "rack", ["n0", "n1", "n2", "n3"]),
        ("rack", "zone", ["n0", "n1", "n2", "n3"]),
    ],
)
def test_levels_are_tried_from_the_finest_up(required: str, preferred: str, sets: list[str]) -> None:
    """topo:TC-39, TC-40, TD-10: all domains of a level, then those of the next, the whole topology last; a preferred
    level no finer than the required one adds nothing."""
    found = racks(("zone", "rack"), ("2/5", 1), ("2/6", 1), ("3/x", 2), ("4/7", 2))
    asked = found.gang("j", 1, gpu=1, group_spec=inside(required, preferred))
    assert [" ".join(names) for names in offered(asked, "j")] == sets


@pytest.mark.parametrize(
    ("required", "preferred", "levels"),
    [
        ("zone", "rack", (2, 3)),
        ("zone", "", (2, 0)),
        ("", "rack", (0, 3)),
        ("", "zone", (0, 2)),
        ("rack", "zone", (3, 0)),
    ],
)
def test_the_levels_of_a_constraint(required: str, preferred: str, levels: tuple[int, int]) -> None:
    """topo:TC-39, TD-10."""
    found = racks(("dc", "zone", "rack"), ("d/z/r", 1))
    snapshot = found.tables().snapshot(0)
    tree = domain_tree(snapshot.nodes, snapshot.topologies["net"])
    wanted = TopologyConstraint(topology="net", required_topology_level=required, preferred_topology_level=preferred)
    assert levels_of(tree, wanted, "") == ConstraintLevels(*levels)


# The tree


def test_a_node_without_all_labels_is_outside() -> None:
    """topo:T-15: also where the missing level is deeper than the required one."""
    found = racks(("zone", "rack"), ("z1/-", 2)).gang("j", 1, gpu=1, group_spec=inside("zone"))
    assert found.schedule().bound("j") == 0


def test_an_empty_value_is_a_value() -> None:
    """topo:T-15: the label is there."""
    found = racks(("zone", "rack"), ("/r1", 1), ("/r1", 1), ("z/r1", 1))
    assert found.gang("j", 2, gpu=1, group_spec=inside("rack")).schedule().nodes_used("j") == {"n0": 1, "n1": 1}


def test_nodes_outside_a_topology_serve_gangs_without_a_constraint() -> None:
    """topo:T-15."""
    found = racks(("rack",), ("-", 2)).gang("free", 2, gpu=1)
    assert found.gang("j", 1, gpu=1, group_spec=inside("rack")).schedule().bound("free") == 2


def test_labels_with_dots_do_not_make_domains_one() -> None:
    """topo:TD-2: a.b under c, and a under b.c."""
    found = racks(("zone", "rack"), ("a.b/c", 1), ("a/b.c", 1)).gang("j", 2, gpu=1, group_spec=inside("rack"))
    assert found.schedule().bound("j") == 0


def test_a_level_called_root_is_a_level() -> None:
    """topo:TD-2."""
    found = racks(("root", "rack"), ("x/r", 1), ("y/r", 1)).gang("j", 2, gpu=1, group_spec=inside("root"))
    assert found.schedule().bound("j") == 0


def test_a_level_may_be_named_by_its_alias() -> None:
    """topo:T-8, T-11."""
    found = racks(("rack",), ("r1", 1), ("r1", 1), ("r2", 1), aliases={"rack": "cupboard"})
    assert found.gang("j", 2, gpu=1, group_spec=inside("cupboard")).schedule().nodes_used("j") == {"n0": 1, "n1": 1}


def test_an_alias_is_not_valid_in_another_topology() -> None:
    """topo:T-11."""
    found = topology(racks(("rack",), ("r1", 1), aliases={"rack": "cupboard"}), "rack", name="other")
    assert found.gang("j", 1, gpu=1, group_spec=inside("cupboard", name="other")).schedule().bound("j") == 0


def test_a_label_goes_before_an_alias_of_another_level() -> None:
    """topo:T-9: such a topology should have been refused; if it is there, labels are what they say."""
    found = racks(("zone", "rack"), ("z/r1", 1), ("z/r2", 1), aliases={"rack": "zone"})
    assert found.gang("j", 2, gpu=1, group_spec=inside("zone")).schedule().bound("j") == 2


def test_the_domains_of_a_tree() -> None:
    """topo:T-16, T-17: ordered by parent, then by value; paths with dots are their names."""
    found = racks(("zone", "rack"), ("b/1", 1), ("a/2", 1), ("a/1", 1), ("-/1", 1), ("b/1", 1))
    snapshot = found.tables().snapshot(0)
    tree = domain_tree(snapshot.nodes, snapshot.topologies["net"])
    assert tree.ids == ["root", "a", "b", "a.1", "a.2", "b.1"]
    assert tree.parents.tolist() == [0, 0, 0, 1, 1, 2]
    assert tree.member.tolist() == [True, True, True, False, True]
    assert tree.codes[2].tolist() == [5, 4, 3, -1, 5]


def test_a_topology_that_changes_makes_a_new_tree() -> None:
    """topo:T-10, T-18: an alias that points elsewhere means another level from the next cycle on."""
    found = racks(("zone", "rack"), ("z/r1", 1), ("z/r2", 1), aliases={"zone": "near"})
    tables = found.tables()
    before, same = (topology_tree(tables.snapshot(0), "net") for _ in range(2))
    assert before is same
    tables.apply(decode_object(topology(cluster(), "zone", "rack", aliases={"rack": "near"}).objects[0]))
    after = topology_tree(tables.snapshot(0), "net")
    assert before is not None
    assert after is not None
    assert (before.levels["near"], after.levels["near"]) == (1, 2)


# The working domain


@pytest.mark.parametrize(
    ("nodes", "required", "preferred", "place"),
    [
        (["z1/r1", "z1/r1"], "rack", "", "z1.r1"),
        (["z1/r1", "z1/r1"], "zone", "", "z1"),
        (["z1/r1", "z1/r1"], "", "zone", "z1 (level zone)"),
        (["z1/r1", "z1/r1"], "zone", "rack", "z1"),
        (["z1/r1", "z1/r2"], "rack", "", "z1 (level zone)"),
        (["z1/r1", "z2/r1"], "rack", "", "the cluster"),
        (["z1/r1", "z2/-"], "rack", "", "z1.r1"),
        (["z1/-"], "rack", "", "the cluster"),
        (["/r1", "/r1"], "rack", "", "the cluster"),
        (["z1/", "z1/"], "rack", "", "z1 (level zone)"),
    ],
)
def test_what_all_nodes_share_is_named_when_it_is_too_small(
    nodes: list[str], required: str, preferred: str, place: str
) -> None:
    """topo:TC-38, TD-1, 5 (steps 2 and 6): no deeper than the coarser of both levels, no further than an empty
    value."""
    found = racks(("zone", "rack"), *[(path, 1) for path in nodes])
    why = found.gang("j", 9, gpu=1, group_spec=inside(required, preferred)).schedule().why("j")
    assert why.endswith(f"for job <default/j>: not enough resources in {place} to allocate the job.")


def test_one_node_is_enough_for_a_required_zone() -> None:
    """topo:TD-1: the only node shares its rack and its host with itself, which hides no zone."""
    found = racks(("zone", "rack", "kubernetes.io/hostname"), ("z/r/n0", 2))
    assert found.gang("j", 2, gpu=1, group_spec=inside("zone")).schedule().bound("j") == 2


def test_a_gang_too_large_for_the_cluster() -> None:
    """topo:TC-23: only one pod of two GPUs fits anywhere."""
    found = racks(("rack",), ("r1", 1), ("r1", 1), ("r2", 2)).gang("j", 2, gpu=2, group_spec=inside("rack"))
    assert found.schedule().why("j") == (
        "PodSchedulingErrors: topology net, requirement rack couldn't be satisfied for job <default/j>: "
        "not enough resources in the cluster to allocate the job."
    )


# The plugin


def with_arguments(found: Cluster, **arguments: str) -> Cluster:
    """The built-in plugins with arguments for topology."""
    plugins = [{"name": name} for name in ("predicates", "proportion", "priority", "nodeplacement")]
    return found.configured({"tiers": [{"plugins": [*plugins, {"name": "topology", "arguments": arguments}]}]})


@pytest.mark.parametrize(("order", "node"), [("binpack", "n1"), ("spread", "n0")])
def test_the_emptiest_domain_first_on_request(order: str, node: str) -> None:
    """topo:TD-17."""
    found = busy(racks(("rack",), ("r1", 4), ("r2", 4)), n1=1).gang("j", 1, gpu=1, group_spec=inside("rack"))
    assert with_arguments(found, order=order).schedule().node_of("j-0") == node


def test_spreading_nodes_does_not_spread_domains() -> None:
    """topo:13: placementStrategy ranks the nodes of a set, not the sets."""
    found = busy(racks(("rack",), ("r1", 4), ("r2", 4), ("r2", 4)), n1=1).gang("j", 1, gpu=1, group_spec=inside("rack"))
    placement = {"name": "nodeplacement", "arguments": {"gpu": "spread", "cpu": "spread"}}
    plugins = [{"name": name} for name in ("predicates", "proportion", "topology")]
    result = found.configured({"tiers": [{"plugins": [*plugins, placement]}]}).schedule()
    assert result.node_of("j-0") == "n0"


def test_without_the_plugin_a_constraint_is_ignored_and_reported() -> None:
    """topo:TD-22."""
    plain = racks(("rack",), ("r1", 1), ("r2", 1)).gang("j", 2, gpu=1, group_spec=inside("rack")).gang("free", 1)
    result = plain.configured({"tiers": [{"plugins": [{"name": "predicates"}, {"name": "proportion"}]}]}).schedule()
    assert result.nodes_used("j") == {"n0": 1, "n1": 1}
    told = [line for line in result.plan.problems if "topology" in line]
    assert told == [
        "PodGroup/default/j: spec.topologyConstraint: not kept, because the plugin topology is switched off"
    ]


def test_with_the_plugin_no_ignored_constraint_is_reported() -> None:
    """topo:TD-22."""
    found = racks(("rack",), ("r1", 1)).gang("j", 1, gpu=1, group_spec=inside("rack"))
    assert not any("topology" in line for line in found.schedule().plan.problems)


def test_a_constraint_without_a_topology_is_none() -> None:
    """topo:T-3."""
    found = racks(("rack",), ("r1", 1), ("r2", 1))
    wanted = {"topologyConstraint": {"requiredTopologyLevel": "rack"}}
    assert found.gang("j", 2, gpu=1, group_spec=wanted).schedule().bound("j") == 2


def test_levels_are_read_from_the_topology() -> None:
    """topo:T-5, T-6: the first is the coarsest, and hosts are no level unless listed."""
    found = racks(("zone", "rack"), ("z/r", 1), ("z/r", 1))
    assert found.gang("j", 1, gpu=1, group_spec=inside("kubernetes.io/hostname")).schedule().bound("j") == 0
    snapshot = found.tables().snapshot(0)
    wanted: Topology = snapshot.topologies["net"]
    assert domain_tree(snapshot.nodes, wanted).levels == {"zone": 1, "rack": 2}


def test_equal_nodes_with_other_scores_are_another_set() -> None:
    """topo:T-30: a placement makes another rack the emptiest, and the same zone is offered with other scores."""
    built = racks(("zone", "rack"), ("z/r1", 4), ("z/r2", 3)).gang("j", 5, gpu=1, group_spec=inside("zone", "rack"))
    cycle = built.gang("filler", 3, gpu=1).cycle()
    state = cycle.state
    (before,) = node_sets(cycle, "j")
    filler = cycle.gangs.gang(cycle.context.snapshot.group_entries["default/filler"])
    mark = state.mark()
    for task in filler.leaves[0].tasks[:2]:
        state.place(filler, filler.leaves[0], task, 0, (), pipelined=False)
    (after,) = node_sets(cycle, "j")
    state.rollback(mark)
    (again,) = node_sets(cycle, "j")
    assert before.scores is not None
    assert after.scores is not None
    assert before.scores.tolist() == after.scores.tolist()[::-1] != after.scores.tolist()
    assert again is before
