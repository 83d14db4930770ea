"""How much of a gang a domain holds: pods of one or several sizes, shared GPUs, nodes that refuse (topo:5.1 to 5.3)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.builders import Cluster, Raw, cluster
from tests.core.topologies import inside, offered, racks, topology

# How many pods a domain holds


def room_told(found: Cluster, pods: int, **pod: Any) -> str:
    """The reported capacity of the first rack for a gang too large for it; a second one would hold it all."""
    found.gang("j", pods, group_spec=inside("rack"), **pod)
    why = found.schedule().why("j")
    return why.partition("can allocate only ")[2].partition(" required")[0]


def test_pods_without_requests_fit_everywhere() -> None:
    """topo:TC-35, 5.2: as far as domains go; the nodes decide."""
    found = topology(cluster().queue("q"), "rack").node("n0", pods=2, labels={"rack": "r1"})
    found.gang("j", 4, cpu=0, memory=0, group_spec=inside("rack"))
    assert offered(found, "j") == [["n0"]]


def test_the_unused_part_of_shared_gpus_is_capacity() -> None:
    """topo:TC-36, TD-13: two halves are in use; two pods of 0.4 fit, a third does not."""
    found = racks(("rack",), ("r1", 2), ("r2", 1))
    for index in range(2):
        found.gang(f"half{index}", fraction="0.5", on="n0", device=f"d{index}")
    assert found.gang("j", 2, fraction="0.4", group_spec=inside("rack")).schedule().nodes_used("j") == {"n0": 2}


def test_pod_slots_are_capacity() -> None:
    """topo:5.2: the pods a node may have limit the count."""
    found = topology(cluster().queue("q"), "rack")
    found.node("n0", pods=2, labels={"rack": "r1"}).node("n1", pods=2, labels={"rack": "r2"})
    assert room_told(found, 3) == "2 of 3"


def test_gpu_memory_is_measured_by_the_gpus_of_the_node() -> None:
    """topo:TD-13: three pods of 333 MiB share a GPU of 1000 MiB."""
    found = topology(cluster().queue("q"), "rack").node("n0", gpus=1, gpu_memory=1000, labels={"rack": "r1"})
    assert found.gang("j", 3, gpu_memory=333, group_spec=inside("rack")).schedule().bound("j") == 3


def test_gpu_memory_that_a_domain_lacks_is_reported() -> None:
    """topo:TD-13."""
    found = racks(("rack",), ("r1", 1), ("r2", 1))
    assert room_told(found, 4, gpu_memory=333) == "3 of 4"


@pytest.mark.parametrize(("fraction", "pods"), [("0.2", 3), ("0.1", 3), ("0.335", 1)])
def test_fractions_add_up_exactly(fraction: str, pods: int) -> None:
    """topo:TD-14: what is left of a GPU is given to the last bit."""
    taken = {"0.2": "0.4", "0.1": "0.7", "0.335": "0.665"}[fraction]
    found = racks(("rack",), ("r1", 1)).gang("busy", fraction=taken, on="n0", device="d")
    assert found.gang("j", pods, fraction=fraction, group_spec=inside("rack")).schedule().bound("j") == pods


def test_fractions_of_two_sizes_add_up_exactly() -> None:
    """topo:TD-14, TD-5: 0.335 and 0.665 are one GPU."""
    found = racks(("rack",), ("r1", 1)).group("j", minMember=2, **inside("rack"))
    found.pod("j-0", group="j", fraction="0.665").pod("j-1", group="j", fraction="0.335")
    assert found.schedule().nodes_used("j") == {"n0": 2}


def test_unused_parts_of_gpus_on_several_nodes_add_up_exactly() -> None:
    """topo:TD-13, TD-14: 0.1 and 0.7 are left, and that is what the pods ask for."""
    found = racks(("rack",), ("r1", 1), ("r1", 1)).group("j", minMember=2, **inside("rack"))
    found.gang("a", fraction="0.9", on="n0", device="d0").gang("b", fraction="0.3", on="n1", device="d1")
    found.pod("j-0", group="j", fraction="0.1").pod("j-1", group="j", fraction="0.7")
    assert found.schedule().nodes_used("j") == {"n0": 1, "n1": 1}


def test_a_large_leader_and_small_workers_are_not_nine_leaders() -> None:
    """topo:TD-5."""
    found = racks(("rack",), ("r1", 8), ("r1", 8)).group("j", minMember=9, **inside("rack"))
    found.pod("j-0", group="j", gpu=8)
    for index in range(1, 9):
        found.pod(f"j-{index}", group="j", gpu=1)
    assert found.schedule().nodes_used("j") == {"n0": 1, "n1": 8}


def test_capacity_for_many_small_pods_may_not_hold_a_large_one() -> None:
    """topo:TD-5: sixteen nodes of one GPU have as many GPUs as the gang needs, but the leader does not fit."""
    found = racks(("rack",), *[("r1", 1)] * 16, ("r2", 8), ("r2", 8)).group("j", minMember=9, **inside("rack"))
    for index in range(9):
        found.pod(f"j-{index}", group="j", gpu=1 if index else 8)
    assert offered(found, "j") == [["n16", "n17"]]


def test_pods_of_two_sizes_that_do_not_fit_together_are_not_tried() -> None:
    """topo:TD-5: either size would fit, both need a GPU more than the rack has."""
    found = racks(("rack",), ("r1", 4), ("r2", 2), ("r2", 3)).group("j", minMember=3, **inside("rack"))
    for index, gpus in enumerate((2, 2, 1)):
        found.pod(f"j-{index}", group="j", gpu=gpus)
    assert offered(found, "j") == [["n1", "n2"]]


def test_a_node_that_is_overdrawn_takes_nothing_from_its_neighbours() -> None:
    """topo:TD-5: more runs on one node than it offers; the pods of two sizes fit the other one."""
    found = topology(cluster().queue("q"), "rack")
    found.node("n0", cpu=2, labels={"rack": "r"}).node("n1", cpu=8, labels={"rack": "r"})
    found.gang("over", cpu=6, on="n0", preemptible=False).group("j", minMember=2, **inside("rack"))
    found.pod("j-0", group="j", cpu=5).pod("j-1", group="j", cpu=3)
    assert found.schedule().nodes_used("j") == {"n1": 2}


# Nodes that refuse


def refusing(kind: str) -> tuple[Raw, Raw]:
    """The nodes of the first rack, and the requests of the pods."""
    taint = {"key": "dedicated", "effect": "NoSchedule"}
    known: dict[str, tuple[Raw, Raw]] = {
        "tainted": ({"taints": [taint]}, {}),
        "cordoned": ({"unschedulable": True}, {}),
        "not selected": ({}, {"nodeSelector": {"pool": "b"}}),
    }
    return known[kind]


@pytest.mark.parametrize("kind", ["tainted", "cordoned", "not selected"])
def test_nodes_a_pod_can_never_use_make_no_domain(kind: str) -> None:
    """topo:TD-12: the first rack has more in use and would go first."""
    how, spec = refusing(kind)
    found = topology(cluster().queue("q"), "rack")
    for index, rack in enumerate(("r1", "r1", "r2", "r2")):
        labels = {"rack": rack, "pool": "a" if rack == "r1" else "b"}
        found.node(f"n{index}", gpus=2, labels=labels, **(how if rack == "r1" else {}))
    found.gang("j", 2, gpu=1, spec=spec, group_spec=inside("rack"))
    assert offered(found, "j") == [["n2", "n3"]]
    assert found.schedule().bound("j") == 2


def test_when_all_nodes_refuse_their_reasons_are_reported() -> None:
    """topo:TD-12: one domain is tried all the same."""
    found = topology(cluster().queue("q"), "rack")
    for index in range(2):
        found.node(f"n{index}", gpus=2, labels={"rack": f"r{index}"}, unschedulable=True)
    found.gang("j", 2, gpu=1, group_spec=inside("rack"))
    assert offered(found, "j") == [["n0"]]
    assert found.schedule().why("j").endswith("no nodes with enough resources were found: 1 node is unschedulable..")


def test_only_nodes_that_pass_the_filters_count() -> None:
    """topo:TD-12: half of the first rack is cordoned, so it is not chosen although its resources suffice."""
    found = topology(cluster().queue("q"), "rack")
    for index, rack in enumerate(("r1", "r1", "r2", "r2")):
        found.node(f"n{index}", gpus=2, labels={"rack": rack}, unschedulable=index == 0)
    found.gang("j", 4, gpu=1, group_spec=inside("rack"))
    assert offered(found, "j") == [["n2", "n3"]]


def claimers(rack_1: int, rack_2: int) -> Cluster:
    """Two racks of one node each, with so many GPUs in their slices."""
    found = racks(("rack",), ("r1", 0), ("r2", 0)).device_class("gpu")
    return found.slice("n0", rack_1).slice("n1", rack_2)


def test_t59_gpus_of_claims_count_in_whether_a_domain_fits() -> None:
    """topo:T-59."""
    found = claimers(2, 3).gang("j", 3, template=1, group_spec=inside("rack")).schedule()
    assert found.nodes_used("j") == {"n1": 3}
    found = claimers(2, 2).gang("j", 3, template=1, group_spec=inside("rack")).schedule()
    assert "node-group r1 can allocate only 2 of 3 required pods" in found.why("j")


def test_t59_gpus_of_claims_count_in_the_order_of_domains() -> None:
    """topo:T-59: the fuller rack first."""
    assert claimers(4, 2).gang("j", 1, template=1, group_spec=inside("rack")).schedule().nodes_used("j") == {"n1": 1}
    assert claimers(2, 4).gang("j", 1, template=1, group_spec=inside("rack")).schedule().nodes_used("j") == {"n0": 1}
