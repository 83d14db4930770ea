"""Gangs inside one domain of a topology: concrete cases of the topology document (topo:11)."""

from __future__ import annotations

import pytest

from tests.core.builders import Cluster, Raw, branch, cluster, leaf


def topology(found: Cluster, *levels: str, name: str = "net") -> Cluster:
    return found.add(
        {
            "apiVersion": "kai.scheduler/v1alpha1",
            "kind": "Topology",
            "metadata": {"name": name},
            "spec": {"levels": [{"nodeLabel": level} for level in levels]},
        }
    )


def racks(levels: tuple[str, ...], *nodes: tuple[str, int]) -> Cluster:
    """Nodes n0, n1, ... given as ("value/value", GPUs), with a queue."""
    found = topology(cluster().queue("q"), *levels)
    for index, (path, gpus) in enumerate(nodes):
        found.node(f"n{index}", gpus=gpus, labels=dict(zip(levels, path.split("/"), strict=True)))
    return found


def inside(required: str = "", preferred: str = "", name: str = "net") -> Raw:
    wanted = {"topology": name, "requiredTopologyLevel": required, "preferredTopologyLevel": preferred}
    return {"topologyConstraint": {key: value for key, value in wanted.items() if value}}


def test_tc1_a_required_level_takes_the_domain_that_can_hold_the_gang() -> None:
    """topo:TC-1."""
    found = racks(("rack",), ("r1", 1), ("r1", 1), ("r2", 1), ("r2", 1)).gang("busy", gpu=1, on="n0")
    result = found.gang("j", 2, gpu=1, group_spec=inside("rack")).schedule()
    assert result.nodes_used("j") == {"n2": 1, "n3": 1}


def test_tc3_domains_of_a_level_are_told_apart_by_their_path() -> None:
    """topo:TC-3, T-16."""
    found = racks(("rack", "spine"), ("r1/s1", 2), ("r1/s2", 2)).gang("busy", gpu=1, on="n0")
    assert found.gang("j", 2, gpu=1, group_spec=inside("spine")).schedule().nodes_used("j") == {"n1": 2}
    found = racks(("rack", "spine"), ("r1/s1", 2), ("r2/s1", 2)).gang("busy", gpu=1, on="n0")
    assert found.gang("j", 3, gpu=1, group_spec=inside("spine")).schedule().bound("j") == 0


def test_tc6_a_gang_that_fits_no_domain_waits() -> None:
    """topo:TC-6."""
    found = racks(("rack", "spine"), ("r1/s1", 2), ("r1/s2", 2), ("r2/s1", 2), ("r2/s2", 2))
    found.gang("one", gpu=1, on="n0").gang("two", gpu=1, on="n2")
    assert found.gang("j", 4, gpu=1, group_spec=inside("rack")).schedule().bound("j") == 0


def test_tc7_a_preferred_level_is_kept_where_it_can_be() -> None:
    """topo:TC-7."""
    found = racks(("rack",), ("r1", 2), ("r2", 2)).gang("busy", gpu=1, on="n0")
    assert found.gang("j", 2, gpu=1, group_spec=inside(preferred="rack")).schedule().nodes_used("j") == {"n1": 2}


def test_tc8_a_preferred_level_gives_way() -> None:
    """topo:TC-8."""
    found = racks(("rack",), ("r1", 2), ("r2", 2)).gang("a", gpu=1, on="n0").gang("b", gpu=1, on="n1")
    result = found.gang("j", 2, gpu=1, group_spec=inside(preferred="rack")).schedule()
    assert (result.node_of("j-0"), result.node_of("j-1")) == ("n1", "n0")


def test_tc9_required_and_preferred_together() -> None:
    """topo:TC-9."""
    found = racks(("rack", "spine"), ("r1/s1", 2), ("r1/s2", 2), ("r2/s1", 2), ("r2/s2", 2))
    found.gang("a", gpu=2, on="n0")
    for index in range(1, 4):
        found.gang(f"b{index}", gpu=1, on=f"n{index}")
    result = found.gang("j", 2, gpu=1, group_spec=inside("rack", "spine")).schedule()
    assert (result.node_of("j-0"), result.node_of("j-1")) == ("n3", "n2")


def test_tc10_children_are_placed_inside_the_domain_of_their_parent() -> None:
    """topo:TC-10, T-37."""
    found = racks(("zone", "rack"), ("z1/r1", 2), ("z1/r2", 2), ("z2/r3", 2), ("z2/r4", 2)).gang("a", gpu=2, on="n0")
    found.tree("j", leaf("sub-a", 1, pending=1), leaf("sub-b", 1, pending=1), gpu=2, group_spec=inside("zone"))
    for entry in found.objects[-3]["spec"]["subGroups"]:
        entry.update(inside("rack"))
    result = found.schedule()
    assert (result.node_of("j-sub-a-0"), result.node_of("j-sub-b-0")) == ("n2", "n3")


def test_tc12_the_fuller_domain_is_tried_first() -> None:
    """topo:TC-12, 5.4."""
    found = racks(("rack",), ("r1", 10), ("r2", 10)).gang("busy", gpu=1, on="n1")
    assert found.gang("j", 1, gpu=1, group_spec=inside("rack")).schedule().node_of("j-0") == "n1"


def test_tc16_as_few_preferred_domains_as_possible() -> None:
    """topo:TC-16, T-35."""
    nodes = [(f"r1/s{index // 2}", 1) for index in range(8)]
    result = racks(("rack", "spine"), *nodes).gang("j", 3, gpu=1, group_spec=inside("rack", "spine")).schedule()
    assert [result.node_of(f"j-{index}") for index in range(3)] == ["n6", "n7", "n4"]


def test_tc22_packing_goes_by_the_parent_first() -> None:
    """topo:TC-22, T-24."""
    levels = ("zone", "spine", "rack")
    nodes = [("z1/s1/r1", 1), ("z1/s1/r2", 1), ("z1/s1/r3", 1), ("z1/s2/r4", 1), ("z1/s2/r4", 1)]
    result = racks(levels, *nodes).gang("j", 1, gpu=1, group_spec=inside(preferred="rack")).schedule()
    assert result.node_of("j-0") == "n3"


def test_tc25_consolidation_makes_room_in_a_rack() -> None:
    """topo:TC-25."""
    found = racks(("rack",), ("r1", 2), ("r2", 2)).gang("a", gpu=1, on="n0").gang("b", gpu=1, on="n1")
    result = found.gang("j", 2, gpu=1, group_spec=inside("rack")).taking("consolidation").schedule()
    assert result.moved_to("b-0") == "n0"
    assert result.nodes_used("j") == {"n1": 2}


def test_tc28_every_resource_of_a_domain_counts() -> None:
    """topo:TC-28."""
    found = topology(cluster().queue("q"), "rack")
    found.node("n0", gpus=2, cpu="5", labels={"rack": "r1"}).node("n1", gpus=2, cpu="1", labels={"rack": "r2"})
    assert found.gang("j", 2, gpu=1, cpu=2, group_spec=inside("rack")).schedule().nodes_used("j") == {"n0": 2}


def test_tc33_an_unknown_topology_keeps_the_gang_waiting() -> None:
    """topo:TC-33."""
    found = racks(("rack",), ("r1", 2)).gang("j", 1, gpu=1, group_spec=inside("rack", name="other"))
    assert found.schedule().bound("j") == 0


def test_tc34_running_pods_pin_the_domain() -> None:
    """topo:TC-34, T-25."""
    found = racks(("zone",), ("z1", 2), ("z2", 2)).group("j", minMember=1, **inside("zone"))
    found.pod("j-0", group="j", gpu=1, on="n1").pod("j-1", group="j", gpu=1)
    found.gang("fuller", gpu=1, on="n0")
    assert found.schedule().node_of("j-1") == "n1"


@pytest.mark.parametrize("level", ["", "room"])
def test_t40_a_level_that_does_not_exist_keeps_the_gang_waiting(level: str) -> None:
    """topo:T-40."""
    found = racks(("rack",), ("r1", 2)).gang("j", 1, gpu=1, group_spec=inside(level))
    assert found.schedule().bound("j") == 0


def test_t15_a_node_without_all_labels_is_outside() -> None:
    """topo:T-15."""
    found = topology(cluster().queue("q"), "zone", "rack").node("n0", gpus=2, labels={"zone": "z1"})
    assert found.gang("j", 1, gpu=1, group_spec=inside("zone")).schedule().bound("j") == 0


def test_t8_a_level_may_be_named_by_its_alias() -> None:
    """topo:T-8."""
    found = racks(("rack",), ("r1", 1), ("r1", 1), ("r2", 1))
    found.objects[1]["spec"]["levels"][0]["alias"] = "cupboard"
    assert found.gang("j", 2, gpu=1, group_spec=inside("cupboard")).schedule().nodes_used("j") == {"n0": 1, "n1": 1}


def test_td22_without_the_plugin_a_constraint_is_not_kept_and_the_plan_says_so() -> None:
    """topo:TD-22."""
    plain = racks(("rack",), ("r1", 1), ("r2", 1)).gang("j", 2, gpu=1, group_spec=inside("rack"))
    plain.gang("free", 1)
    result = plain.configured({"tiers": [{"plugins": [{"name": "predicates"}, {"name": "proportion"}]}]}).schedule()
    assert result.nodes_used("j") == {"n0": 1, "n1": 1}
    told = [line for line in result.plan.problems if "topology" in line]
    assert told == [
        "PodGroup/default/j: spec.topologyConstraint: not kept, because the plugin topology is switched off"
    ]


def test_subgroups_of_a_nested_tree_keep_to_their_own_levels() -> None:
    """topo:TC-11: replicas in spines, their leaves in racks, all in the zone that is free."""
    levels = ("zone", "spine", "rack")
    nodes = [(f"z{index // 4}/s{index // 2}/r{index}", 2) for index in range(8)]
    found = racks(levels, *nodes).gang("busy", gpu=2, on="n0")
    replicas = [branch(f"rep{r}", leaf(f"a{r}", 1, pending=1), leaf(f"b{r}", 1, pending=1)) for r in (1, 2)]
    before = len(found.objects)
    found.tree("j", *replicas, gpu=2, group_spec=inside("zone"))
    for entry in found.objects[before]["spec"]["subGroups"]:
        entry.update(inside("rack" if "parent" in entry else "spine"))
    assert found.schedule().nodes_used("j") == {"n4": 1, "n5": 1, "n6": 1, "n7": 1}
