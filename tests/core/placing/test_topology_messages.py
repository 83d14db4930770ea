"""The messages when no domain of a topology can hold a gang (topo:9; T-21, T-22, T-40 to T-43)."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.core.report.sentences import reason_of
from tests.core.builders import Cluster, Result, branch, cluster, leaf
from tests.core.topologies import busy, detailed, inside, keeping, racks, topology

NO_DOMAIN = "topology net, requirement rack couldn't be satisfied for job <default/j>"


def test_every_domain_that_is_too_small_is_listed() -> None:
    """topo:TC-24, T-21, T-42."""
    found = racks(("rack",), *[(f"r{index}", 2) for index in range(1, 5)])
    result = found.gang("j", 4, gpu=1, group_spec=inside("rack")).schedule()
    lines = [f"node-group r{index} can allocate only 2 of 4 required pods" for index in range(1, 5)]
    assert result.why("j") == "Unable to schedule podgroup: " + ". \n".join([*lines, NO_DOMAIN]) + "."
    assert detailed(result, "j") == (
        "\nUnable to schedule podgroup."
        + "".join(f"\n<r{index}>: {line}." for index, line in enumerate(lines, 1))
        + f"\n{NO_DOMAIN}."
    )


def test_a_level_is_named_by_its_label() -> None:
    """topo:T-11: also where the group names it by its alias."""
    found = racks(("rack",), ("r1", 1), ("r2", 1), aliases={"rack": "cupboard"})
    assert found.gang("j", 2, gpu=1, group_spec=inside("cupboard")).schedule().why("j").endswith(f"{NO_DOMAIN}.")


def test_only_the_coarsest_level_is_reported() -> None:
    """topo:5 (step 11): the reason of a gang that prefers racks names the zones it needs."""
    found = racks(("zone", "rack"), ("z1/r1", 1), ("z1/r2", 1), ("z2/r3", 2))
    why = found.gang("j", 3, gpu=1, group_spec=inside("zone", "rack")).schedule().why("j")
    assert why.count("can allocate only") == 2
    assert "node-group z1 can allocate only 2 of 3" in why
    assert "requirement zone" in why


def test_a_subgroup_is_named() -> None:
    """topo:T-42, 5 (step 12)."""
    found = racks(("rack",), ("r1", 1), ("r2", 1))
    result = found.tree("j", keeping(leaf("w", 2, pending=2), "rack"), gpu=1).schedule()
    assert result.why("j") == (
        "Unable to schedule podgroup: node-group r1 can allocate only 1 of 2 required pods. \n"
        f"node-group r2 can allocate only 1 of 2 required pods. \n{NO_DOMAIN}, subgroup w."
    )
    assert detailed(result, "j") == (
        "\nUnable to schedule podgroup."
        "\n<r1>: subgroup w: node-group r1 can allocate only 1 of 2 required pods."
        "\n<r2>: subgroup w: node-group r2 can allocate only 1 of 2 required pods."
        f"\n{NO_DOMAIN}, subgroup w."
    )


def test_too_little_in_the_whole_cluster_is_one_reason() -> None:
    """topo:TC-23, 5 (step 6): exactly one reason comes first."""
    found = racks(("rack",), ("r1", 1), ("r2", 1))
    result = found.gang("j", 3, gpu=1, group_spec=inside("rack")).schedule()
    text = f"{NO_DOMAIN}: not enough resources in the cluster to allocate the job."
    assert result.why("j") == f"PodSchedulingErrors: {text}"
    assert detailed(result, "j") == f"\nPodSchedulingErrors.\n{text}"


def test_too_little_in_the_domain_of_the_parent() -> None:
    """topo:5 (step 6): the subgroup may only be in the zone its group has, where its sibling took the large node."""
    found = racks(("zone", "rack"), ("z1/r1", 3), ("z1/r2", 1), ("z1/r2", 1))
    parts = (keeping(leaf("a", 1, pending=1, gpu=2), "rack"), keeping(leaf("b", 1, pending=1, gpu=3), "rack"))
    why = found.tree("j", *parts, group_spec=inside("zone")).schedule().why("j")
    short = "not enough resources in z1 (level zone) to allocate the job"
    assert why == f"PodSchedulingErrors: {NO_DOMAIN}, subgroup b: {short}."


HOST = "kubernetes.io/hostname"


def test_a_preferred_level_is_not_a_requirement() -> None:
    """topo:5 (step 6): all nodes are in rack r1, and there are too few; no host is to blame."""
    found = racks(("rack", HOST), ("r1/a", 1), ("r1/b", 1)).gang("j", 3, gpu=1, group_spec=inside("", HOST))
    assert found.schedule().why("j") == (
        "PodSchedulingErrors: topology net couldn't be satisfied for job <default/j>: "
        "not enough resources in r1 (level rack) to allocate the job."
    )
    found = racks(("rack", HOST), ("r1/a", 1), ("r2/b", 1)).gang("j", 3, gpu=1, group_spec=inside("", HOST))
    assert found.schedule().why("j") == (
        "PodSchedulingErrors: topology net couldn't be satisfied for job <default/j>: "
        "not enough resources in the cluster to allocate the job."
    )


def test_the_requirement_of_the_group_is_named_for_a_subgroup_that_only_prefers() -> None:
    """topo:5 (step 6), topo:T-37: the rack binds subgroup b, whose sibling took the large host; the host does not."""
    found = racks(("rack", HOST), ("r1/a", 3), ("r1/b", 1), ("r1/c", 1))
    parts = (leaf("a", 1, pending=1, gpu=2), keeping(leaf("b", 1, pending=1, gpu=3), "", HOST))
    why = found.tree("j", *parts, group_spec=inside("rack")).schedule().why("j")
    assert why == f"PodSchedulingErrors: {NO_DOMAIN}, subgroup b: not enough resources in r1 to allocate the job."


def test_a_domain_above_the_requirement_is_named_with_its_level() -> None:
    """topo:5 (step 6): one host is required, and even the rack of all hosts has too little."""
    found = racks(("rack", HOST), ("r1/a", 1), ("r1/b", 1)).gang("j", 3, gpu=1, group_spec=inside(HOST))
    assert found.schedule().why("j") == (
        f"PodSchedulingErrors: topology net, requirement {HOST} couldn't be satisfied for job <default/j>: "
        "not enough resources in r1 (level rack) to allocate the job."
    )


def mixed(found: Cluster, *pods: dict[str, Any]) -> Result:
    """A group of different pods that must be in one rack."""
    found.group("j", minMember=len(pods), **inside("rack"))
    for index, pod in enumerate(pods):
        found.pod(f"j-{index}", group="j", **pod)
    return found.schedule()


def test_a_shortage_of_different_pods_is_given_in_resources() -> None:
    """topo:T-19, T-20, T-22: short and detailed, every resource that is short in the words of its own."""
    found = topology(cluster().queue("q"), "rack")
    for index in range(3):
        found.node(f"n{index}", gpus=1, cpu="1500m", memory=10**9, labels={"rack": f"r{index}"})
    plain = {"cpu": 1, "memory": 10**9}
    result = mixed(found, {"gpu": 1, **plain}, plain, plain)
    assert result.why("j") == (
        "Unable to schedule podgroup: 3 node-group(s) didn't have enough resources: CPU cores. \n"
        f"3 node-group(s) didn't have enough resources: memory. \n{NO_DOMAIN}."
    )
    lines = [
        f"\n<r{index}>: r{index} didn't have enough resources: {short}."
        for index in range(3)
        for short in ("CPU cores, requested: 3, available: 1.5", "memory, requested: 3, available: 1")
    ]
    assert detailed(result, "j") == "\nUnable to schedule podgroup." + "".join(lines) + f"\n{NO_DOMAIN}."


def test_gpus_that_are_short_are_one_resource_whatever_their_kind() -> None:
    """topo:T-22, 5.4: a whole GPU and two halves, with what is left of a shared one."""
    found = racks(("rack",), ("r1", 2), ("r2", 2)).gang("half", fraction="0.5", on="n0", device="d")
    found.gang("whole", gpu=1, on="n1", preemptible=False)
    halves = [{"fraction": "0.5"}, {"fraction": "0.5"}]
    result = mixed(found, {"gpu": 1}, *halves, {"cpu": 1})
    assert "\n<r1>: r1 didn't have enough resource: GPUs, requested: 2, available: 1.5." in detailed(result, "j")
    assert "\n<r2>: r2 didn't have enough resource: GPUs, requested: 2, available: 1." in detailed(result, "j")
    assert "2 node-group(s) didn't have enough resources: GPUs" in result.why("j")


def test_other_resources_are_given_in_whole_numbers() -> None:
    """topo:T-19, T-22: custom resources by their name, MIG slices as profiles."""
    slices, nic = "nvidia.com/mig-1g.5gb", "example.com/nic"
    found = topology(cluster().queue("q"), "rack")
    for index in range(3):
        found.node(f"n{index}", extra={slices: 1, nic: 1}, labels={"rack": f"r{index}"})
    asks: list[dict[str, Any]] = [{slices: 1}, {slices: 1}, {slices: 1, nic: 1}, {nic: 1}]
    result = mixed(found, *[{"extra": ask} for ask in asks])
    assert result.why("j") == (
        f"Unable to schedule podgroup: 3 node-group(s) didn't have enough of mig profile: {slices}. \n"
        f"3 node-group(s) didn't have enough resources: {nic}. \n{NO_DOMAIN}."
    )
    details = detailed(result, "j")
    assert f"\n<r0>: r0 didn't have enough resources: {nic}, requested: 2, available: 1." in details
    assert f"\n<r0>: r0 didn't have enough of mig profile: {slices}, requested: 3, available: 1." in details


def test_what_is_released_as_a_whole_gpu_is_counted_once() -> None:
    """topo:TD-13, T-21: a GPU whose only tenant leaves is one GPU, not two."""
    found = racks(("rack",), ("r1", 1), ("r2", 1)).gang("old", fraction="0.5", on="n0", device="d", deleted=10)
    why = found.gang("j", 3, fraction="0.5", group_spec=inside("rack")).schedule().why("j")
    assert "node-group r1 can allocate only 2 of 3 required pods" in why


def test_every_reason_has_its_word() -> None:
    """topo:T-21, T-41: domains lack resources; that none is left is a scheduling error."""
    found = racks(("rack",), *[(f"r{index}", 1) for index in range(6)])
    record = found.gang("j", 2, gpu=1, group_spec=inside("rack")).schedule().unscheduled("j")
    assert record is not None
    words = ["Not enough resources for the workload"] * 6 + ["PodSchedulingErrors"]
    assert [reason_of(refusal) for refusal in record.refusals] == words


def test_the_reason_names_what_pods_of_two_sizes_lack_together() -> None:
    """topo:T-21, TD-5: not that the domain can allocate all of them."""
    found = racks(("rack",), ("r1", 4), ("r2", 4))
    result = mixed(found, {"gpu": 2}, {"gpu": 2}, {"gpu": 1})
    assert "\n<r1>: r1 didn't have enough resource: GPUs, requested: 5, available: 4." in detailed(result, "j")
    assert "3 of 3" not in result.why("j")


def test_the_nearest_five_domains_are_listed() -> None:
    """topo:TD-15: eight are too small; the emptiest are listed, the others counted."""
    found = racks(("rack",), *[(f"r{index}", 4) for index in range(8)])
    busy(found, n0=3, n1=1, n2=3, n3=3, n4=2)
    why = found.gang("j", 5, gpu=1, group_spec=inside("rack")).schedule().why("j")
    assert why == (
        "Unable to schedule podgroup: 3 more domains of level rack are too small. \n"
        "node-group r1 can allocate only 3 of 5 required pods. \n"
        "node-group r4 can allocate only 2 of 5 required pods. \n"
        + "".join(f"node-group r{index} can allocate only 4 of 5 required pods. \n" for index in (5, 6, 7))
        + f"{NO_DOMAIN}."
    )


def test_no_more_than_five_domains_are_listed() -> None:
    """topo:TD-15."""
    found = racks(("rack",), *[(f"r{index}", 1) for index in range(5)])
    why = found.gang("j", 2, gpu=1, group_spec=inside("rack")).schedule().why("j")
    assert why.count("can allocate only") == 5
    assert "more domains" not in why


def test_an_unknown_topology_is_named() -> None:
    """topo:TC-33."""
    found = racks(("rack",), ("r1", 2)).gang("j", 1, gpu=1, group_spec=inside("rack", name="nonexistent-topology"))
    result = found.schedule()
    assert result.bound("j") == 0
    assert result.why("j") == "PodSchedulingErrors: Requested topology nonexistent-topology does not exist."


@pytest.mark.parametrize(
    ("required", "preferred", "text"),
    [
        ("", "", "no topology constraints were found for subgroup {name}, with topology name net"),
        ("room", "", "{who} specified 'room' as the required topology constraint level, but the topology tree 'net'"),
        ("", "room", "{who} specified 'room' as the preferred topology constraint level, but the topology tree 'net'"),
        ("room", "hall", "{who} specified 'room' as the required topology constraint level, but the topology tree"),
        ("rack", "hall", "{who} specified 'hall' as the preferred topology constraint level, but the topology tree"),
    ],
)
@pytest.mark.parametrize(("name", "who"), [("", "workload"), ("w", "sub-group w")])
def test_an_invalid_constraint_is_reported(required: str, preferred: str, text: str, name: str, who: str) -> None:
    """topo:T-40, TD-7: upstream only logs it; the required level is checked first."""
    found = racks(("rack",), ("r1", 2))
    if name:
        found.tree("j", keeping(leaf(name, 1, pending=1), required, preferred), gpu=1)
    else:
        found.gang("j", 1, gpu=1, group_spec=inside(required, preferred))
    result = found.schedule()
    assert result.bound("j") == 0
    assert text.format(name=name, who=who) in result.why("j")
    assert result.why("j").startswith("PodSchedulingErrors: ")


def test_a_coarser_preferred_level_is_not_an_error() -> None:
    """topo:TD-10."""
    found = racks(("zone", "rack"), ("z/r1", 1), ("z/r2", 2))
    assert found.gang("j", 2, gpu=1, group_spec=inside("rack", "zone")).schedule().nodes_used("j") == {"n1": 2}


def test_the_reasons_of_the_nodes_of_all_sets_add_up() -> None:
    """topo:8, cycle:EXP-2: both racks are tried, and each of their nodes says why not."""
    port = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}, "ports": [{"hostPort": 80}]}]}
    found = racks(("rack",), ("r1", 1), ("r2", 1), ("r1", 1), ("r2", 1))
    for index in range(4):
        found.gang(f"holder{index}", on=f"n{index}", spec=port, preemptible=False)
    found.gang("j", 2, spec=port, group_spec=inside("rack"))
    assert list(found.schedule().no_place("j").nodes.values()) == [4]


SPENT = "The search for a combination of domains ended after"


def test_the_reason_names_a_search_that_was_given_up() -> None:
    """topo:TD-6: many subgroups, and more combinations of their racks than the search tries."""
    found = racks(("rack",), *[(f"r{index:02}", 5) for index in range(10)])
    parts = [keeping(leaf(f"w{index:02}", 1, pending=1), "rack") for index in range(11)]
    result = found.tree("j", *parts, gpu=3).schedule()
    assert f"{SPENT} 256 attempts; there may be one" in result.why("j")
    assert f"\n{SPENT} 256 attempts; there may be one." in detailed(result, "j")


def test_a_complete_search_that_fails_does_not_claim_otherwise() -> None:
    """topo:TD-6: three subgroups for two racks; all combinations are tried, so none exists."""
    found = racks(("rack",), ("r1", 3), ("r2", 3))
    parts = [keeping(leaf(name, 1, pending=1), "rack") for name in "abc"]
    why = found.tree("j", *parts, gpu=2).schedule().why("j")
    assert "subgroup c" in why
    assert SPENT not in why


def test_the_reason_names_a_search_that_cannot_be_complete() -> None:
    """topo:TD-6: two topologies overlap, so the choice of nodes inside a domain matters."""
    found = topology(racks(("rack",), ("r1", 2), ("r2", 2)), "feed", name="power")
    for raw in found.objects:
        if raw["kind"] == "Node":
            raw["metadata"]["labels"]["feed"] = "f"
    parts = (keeping(leaf("a", 2, pending=2), "rack"), keeping(leaf("b", 3, pending=3), "feed", name="power"))
    assert f"{SPENT} 1 attempt; there may be one" in found.tree("j", *parts, gpu=1).schedule().why("j")


def test_the_reason_names_a_search_that_cannot_place_the_strictest_first() -> None:
    """topo:TD-6: each branch has a leaf without a constraint, placed before the strict leaf of the other."""
    found = racks(("zone", "rack"), ("z/r1", 2), ("z/r2", 2))
    parts = [
        branch(f"up{n}", keeping(leaf(f"x{n}", 1, pending=1), "rack"), keeping(leaf(f"y{n}", n, pending=n), "zone"))
        for n in (1, 2)
    ]
    assert SPENT in found.tree("j", *parts, gpu=1).schedule().why("j")


def test_the_reason_is_that_of_the_usual_order() -> None:
    """topo:T-36, TD-6: the larger one was tried first, too, and then the smaller one failed; that is not reported."""
    found = racks(("rack",), ("r1", 2))
    parts = (keeping(leaf("a", 1, pending=1), "rack"), keeping(leaf("b", 2, pending=2), "rack"))
    why = found.tree("j", *parts, gpu=1).schedule().why("j")
    assert why == f"PodSchedulingErrors: {NO_DOMAIN}, subgroup b: not enough resources in r1 to allocate the job."


def test_a_search_inside_one_rack_is_complete() -> None:
    """topo:TD-6: what the group requires binds all its subgroups; their own coarser levels do not matter."""
    port = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}, "ports": [{"hostPort": 80}]}]}
    found = racks(("zone", "rack"), ("z/r1", 1))
    inner = branch("up", leaf("x", 1, pending=1), keeping(leaf("y", 1, pending=1), "zone"))
    parts = (inner, keeping(leaf("w", 1, pending=1), "zone"))
    why = found.tree("j", *parts, spec=port, group_spec=inside("rack")).schedule().why("j")
    assert "didn't have free ports" in why
    assert SPENT not in why
