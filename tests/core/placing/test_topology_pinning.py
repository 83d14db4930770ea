"""Pods that run keep their siblings in their domain (topo:6; TC-17, TC-34, TD-3, TD-4)."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.core.model.status import TaskStatus
from tests.core.builders import Cluster, Raw, branch, leaf
from tests.core.placing.test_topology_domains import with_arguments
from tests.core.topologies import busy, inside, keeping, offered, racks, where


def grown(found: Cluster, constraint: Raw, *, on: str, pods: int = 1, **pod: Any) -> Cluster:
    """A group of which one pod runs on a node, and the others wait."""
    found.group("j", minMember=1, preemptibility="preemptible", **constraint)
    found.pod("j-0", group="j", gpu=1, on=on, **pod)
    for index in range(1, 1 + pods):
        found.pod(f"j-{index}", group="j", gpu=1)
    return found


def test_running_pods_pin_the_domain() -> None:
    """topo:TC-34, T-25: the other zone is fuller and would go first."""
    found = busy(racks(("zone",), ("z1", 2), ("z2", 2)), n0=1)
    assert grown(found, inside("zone"), on="n1").schedule().node_of("j-1") == "n1"


def test_a_full_domain_keeps_the_rest_waiting() -> None:
    """topo:T-25: free resources elsewhere do not help."""
    found = busy(racks(("zone",), ("z1", 4), ("z2", 2)), n1=1)
    result = grown(found, inside("zone"), on="n1").schedule()
    assert result.bound("j") == 0
    assert "node-group z2 can allocate only 0 of 1 required pods" in result.why("j")
    assert "z1" not in result.why("j")


def test_a_pinned_domain_is_searched_below() -> None:
    """topo:T-25: the preferred racks of the pinned zone, then the zone, and no others."""
    found = racks(("zone", "rack"), ("z1/a", 1), ("z2/b", 2), ("z2/c", 2))
    grown(found, inside("zone", "rack"), on="n1")
    assert offered(found, "j") == [["n1"], ["n2"], ["n1", "n2"]]


@pytest.mark.parametrize("status", [TaskStatus.BINDING, TaskStatus.BOUND, TaskStatus.RUNNING])
def test_pods_that_are_about_to_run_pin_as_well(status: TaskStatus) -> None:
    """topo:T-25."""
    found = busy(racks(("zone",), ("z1", 2), ("z2", 2)), n0=1)
    assert grown(found, inside("zone"), on="n1").assume("j-0", status).schedule().node_of("j-1") == "n1"


def test_terminating_pods_do_not_pin() -> None:
    """topo:T-25: the group starts again where it fits."""
    found = racks(("zone",), ("z1", 3), ("z2", 1)).group("j", minMember=3, **inside("zone"))
    found.pod("j-old", group="j", gpu=1, on="n1", deleted=10)
    for index in range(3):
        found.pod(f"j-{index}", group="j", gpu=1)
    assert found.schedule().nodes_used("j") == {"n0": 3}


def test_pods_in_two_domains_keep_both() -> None:
    """topo:T-26: the labels were changed later; the domain of the older pod is full."""
    found = busy(racks(("zone",), ("z1", 3), ("z2", 2), ("z3", 3)), n1=1)
    grown(found, inside("zone"), on="n1", pods=2).pod("j-9", group="j", gpu=1, on="n0")
    assert found.schedule().nodes_used("j") == {"n0": 2}


def test_pods_outside_the_topology_leave_no_domain() -> None:
    """topo:T-27."""
    found = racks(("zone",), ("z1", 2), ("-", 2))
    result = grown(found, inside("zone"), on="n1").schedule()
    assert result.bound("j") == 0
    assert result.why("j") == (
        "PodSchedulingErrors: topology net, requirement zone couldn't be satisfied for job <default/j>."
    )


def test_pods_on_a_node_that_is_gone_leave_no_domain() -> None:
    """topo:T-27: their domain is unknown."""
    found = racks(("zone",), ("z1", 2))
    assert grown(found, inside("zone"), on="elsewhere").schedule().bound("j") == 0


def test_a_preferred_level_does_not_pin() -> None:
    """topo:T-28: the fuller zone is taken, wherever the first pod is."""
    found = busy(racks(("zone",), ("z1", 3), ("z2", 3)), n0=1)
    assert grown(found, inside(preferred="zone"), on="n1").schedule().node_of("j-1") == "n0"


@pytest.mark.parametrize(("sticky", "node"), [("false", "n0"), ("true", "n1")])
def test_a_preferred_level_is_sticky_on_request(sticky: str, node: str) -> None:
    """topo:TD-4: recorded decisions differ, so it is off by default."""
    found = busy(racks(("zone",), ("z1", 4), ("z2", 4)), n0=2)
    found = with_arguments(grown(found, inside(preferred="zone"), on="n1"), sticky=sticky)
    assert found.schedule().node_of("j-1") == node


def test_stickiness_gives_way_when_the_domain_is_full() -> None:
    """topo:TD-4: only a preference."""
    found = racks(("zone",), ("z1", 1), ("z2", 1))
    assert with_arguments(grown(found, inside(preferred="zone"), on="n1"), sticky="true").schedule().bound("j") == 1


def test_sticky_pods_go_next_to_their_siblings_when_all_are_needed() -> None:
    """topo:TD-4: no zone holds both, so all nodes are used, the one of the sibling first."""
    found = racks(("zone",), ("z1", 2), ("z2", 1)).group("j", minMember=3, **inside(preferred="zone"))
    found.pod("j-0", group="j", gpu=1, on="n0")
    for index in (1, 2):
        found.pod(f"j-{index}", group="j", gpu=1)
    assert where(found.schedule(), "j", 1, 2) == ["n1", "n0"]
    assert where(with_arguments(found, sticky="true").schedule(), "j", 1, 2) == ["n0", "n1"]


def test_elastic_pods_without_a_required_level_are_packed() -> None:
    """topo:TC-17: leaves a and b prefer racks, and one pod of each starts at a time."""
    found = racks(("rack",), ("r1", 2), ("r2", 2))
    parts = [keeping(leaf(name, 1, pending=2), preferred="rack") for name in "ab"]
    result = found.tree("j", *parts, gpu=1).schedule()
    assert where(result, "j", "a-0", "b-0", "a-1", "b-1") == ["n0", "n0", "n1", "n1"]


def test_a_restarted_subgroup_stays_in_the_domain_of_its_siblings() -> None:
    """topo:TD-3, T-29: all pods below the subgroup with the constraint pin it, whichever is placed now."""
    found = busy(racks(("zone",), ("z1", 3), ("z2", 3)), n0=1)
    found.tree("j", leaf("a", 1, running=1), leaf("b", 1, pending=1), on="n1", gpu=1, group_spec=inside("zone"))
    assert found.schedule().node_of("j-b-0") == "n1"


def test_siblings_in_another_part_of_the_tree_pin_as_well() -> None:
    """topo:TD-3: three levels up."""
    found = busy(racks(("zone",), ("z1", 3), ("z2", 3)), n0=1)
    parts = (branch("x", leaf("a", 1, running=1)), branch("y", leaf("b", 1, pending=1), leaf("c", 1, pending=1)))
    found.tree("j", *parts, on="n1", gpu=1, group_spec=inside("zone"))
    assert found.schedule().nodes_used("j") == {"n1": 2}


def test_a_subgroup_is_not_pinned_by_another() -> None:
    """topo:T-25: each has its own rack."""
    found = busy(racks(("rack",), ("r1", 3), ("r2", 3)), n0=1)
    parts = (keeping(leaf("a", 1, running=1), "rack"), keeping(leaf("b", 1, pending=1), "rack"))
    assert found.tree("j", *parts, on="n1", gpu=1).schedule().node_of("j-b-0") == "n0"


def test_an_elastic_gang_grows_inside_its_domain_in_one_cycle() -> None:
    """topo:T-25: pod after pod, each pinned by those before it."""
    found = racks(("rack",), ("r1", 2), ("r2", 3))
    result = found.gang("j", 4, min=1, gpu=1, group_spec=inside("rack")).schedule()
    assert result.nodes_used("j") == {"n0": 2}


def test_a_gang_whose_pods_left_may_go_elsewhere() -> None:
    """topo:T-25: nothing runs any more, so nothing pins."""
    found = busy(racks(("rack",), ("r1", 2), ("r2", 2)), n0=2)
    found.group("j", minMember=2, **inside("rack")).pod("j-old", group="j", gpu=1, on="n0", phase="Succeeded")
    for index in range(2):
        found.pod(f"j-{index}", group="j", gpu=1)
    assert found.schedule().nodes_used("j") == {"n1": 2}
