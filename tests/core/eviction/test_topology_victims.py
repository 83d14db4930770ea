"""Victims for gangs that must be in one domain, and victims that must (topo:11; TC-25 to TC-27, TC-41 to TC-44)."""

from __future__ import annotations

import pytest

from pykai.core.eviction.bounds import FreedCapacity
from tests.core.builders import Cluster, Raw, branch, cluster, leaf
from tests.core.topologies import busy, inside, keeping, racks, topology, where

HIGH: Raw = {"priorityClassName": "high"}


def low(found: Cluster, **nodes: int) -> Cluster:
    """A pod of low priority on each of these nodes that holds so many GPUs."""
    for node, gpus in nodes.items():
        found.gang(f"low-{node}", gpu=gpus, on=node)
    return found


def preempting(found: Cluster) -> Cluster:
    """The same with a higher priority and nothing but preempt."""
    return found.priority_class("high", 90).priority_class("build", 100).with_actions("preempt")


# Consolidation


def test_consolidation_frees_a_rack() -> None:
    """topo:TC-25, T-56."""
    found = racks(("rack",), ("r1", 2), ("r2", 2)).gang("a", gpu=1, on="n0").gang("b", gpu=1, on="n1")
    result = found.gang("j", 2, gpu=1, group_spec=inside("rack")).with_actions("consolidation").schedule()
    assert result.moved_to("b-0") == "n0"
    assert result.nodes_used("j") == {"n1": 2}


@pytest.mark.parametrize("extra", [False, True])
def test_consolidation_frees_a_zone(extra: bool) -> None:
    """topo:TC-26, TC-27: two racks of the second zone are emptied; a node without GPUs changes nothing."""
    found = racks(("zone", "rack"), *[(f"zone{1 + index // 3}/rack{1 + index % 3}", 3) for index in range(6)])
    if extra:
        found.node("cpu", labels={"zone": "zone2", "rack": "rack3"})
    for index in range(6):
        found.gang(f"run{index}", gpu=1, on=f"n{index}")
    result = found.gang("j", 2, gpu=3, group_spec=inside("zone")).with_actions("consolidation").schedule()
    assert result.nodes_used("j") == {"n4": 1, "n5": 1}
    assert {result.moved_to(pod) for pod in result.evicted_pods()} == {"n0"}


@pytest.mark.parametrize(("constraint", "moves"), [({}, True), (inside("rack"), False)])
def test_a_victim_keeps_its_own_constraint_when_it_moves(constraint: Raw, moves: bool) -> None:
    """topo:T-51: there is room for its pods, but not in one rack."""
    found = busy(racks(("rack",), ("r1", 2), ("r2", 2), ("r3", 2)), n1=1, n2=1)
    found.gang("v", 2, gpu=1, on="n0", group_spec=constraint)
    result = found.gang("j", 1, gpu=2).with_actions("consolidation").schedule()
    assert (result.evicted("v"), result.pipelined("j")) == ((2, 1) if moves else (0, 0))


@pytest.mark.parametrize(("constraint", "moved"), [({}, "n2"), (inside("rack"), "")])
def test_a_victim_is_pinned_by_its_own_pods_that_stay(constraint: Raw, moved: str) -> None:
    """topo:T-51, T-25: one pod of an elastic group would have to leave the rack of the other."""
    found = racks(("rack",), ("r1", 1), ("r1", 1), ("r2", 1))
    found.group("v", minMember=1, preemptibility="preemptible", **constraint)
    found.pod("v-0", group="v", gpu=1, on="n0").pod("v-1", group="v", gpu=1, on="n1")
    here = {"nodeSelector": {"kubernetes.io/hostname": "n1"}}
    result = found.gang("j", 1, gpu=1, spec=here).with_actions("consolidation").schedule()
    assert [result.moved_to(pod) for pod in result.evicted_pods()] == ([moved] if moved else [])


def test_all_pods_of_a_victim_may_move_to_another_rack() -> None:
    """topo:T-51: nothing of it stays, so nothing pins it."""
    found = racks(("rack",), ("r1", 2), ("r2", 1), ("r2", 1)).priority_class("high", 90)
    found.gang("v", 2, gpu=1, on="n0", group_spec=inside("rack"))
    result = found.gang("j", 1, gpu=2, priority="high").with_actions("consolidation").schedule()
    assert {result.moved_to(pod) for pod in result.evicted_pods("v")} == {"n1", "n2"}
    assert result.node_of("j-0") == "n0"


# Preempt and reclaim


def test_a_domain_emptied_by_victims_is_a_candidate() -> None:
    """topo:T-50: what is being released is free; only the victims of one rack leave."""
    found = preempting(low(racks(("rack",), ("r1", 1), ("r1", 1), ("r2", 1)), n2=1, n0=1, n1=1))
    result = found.gang("j", 2, gpu=1, priority="high", group_spec=inside("rack")).schedule()
    assert sorted(result.evicted_pods()) == ["low-n0-0", "low-n1-0"]
    assert result.nodes_used("j") == {"n0": 1, "n1": 1}


def test_the_rack_with_fewer_victims_is_enough() -> None:
    """topo:T-50, T-53: half of it is free already."""
    found = preempting(low(racks(("rack",), ("r1", 2), ("r2", 1), ("r2", 1)), n0=1, n1=1, n2=1))
    result = found.gang("j", 2, gpu=1, priority="high", group_spec=inside("rack")).schedule()
    assert result.evicted_pods() == ["low-n0-0"]


def test_reclaim_keeps_to_the_domain() -> None:
    """topo:T-50: the same for a queue that takes its quota back."""
    found = topology(cluster().queue("mine", quota=2).queue("theirs", quota=0), "rack")
    for index, rack in enumerate(("r1", "r1", "r2", "r2")):
        found.node(f"n{index}", gpus=1, labels={"rack": rack})
        found.gang(f"t{index}", gpu=1, on=f"n{index}", queue="theirs")
    found.gang("j", 2, gpu=1, queue="mine", group_spec=inside("rack"))
    result = found.with_actions("reclaim").schedule()
    nodes = sorted(result.nodes_used("j"))
    assert nodes in (["n0", "n1"], ["n2", "n3"])
    assert len(result.evicted_pods()) == 2


def test_a_gang_that_grows_takes_from_its_own_domain_only() -> None:
    """topo:T-25, T-54: a pod of it runs in the second rack."""
    found = preempting(low(racks(("rack",), ("r1", 2), ("r2", 2)), n0=2, n1=1))
    found.group("j", minMember=1, **HIGH, **inside("rack"))
    found.pod("j-0", group="j", gpu=1, on="n1").pod("j-1", group="j", gpu=1)
    result = found.schedule()
    assert (result.evicted_pods(), result.node_of("j-1")) == (["low-n1-0"], "n1")


def test_a_pinned_gang_whose_domain_cannot_be_emptied_takes_nothing() -> None:
    """topo:T-25, T-54: room elsewhere is no room."""
    found = preempting(busy(low(racks(("rack",), ("r1", 2), ("r2", 2)), n0=2), n1=1))
    found.group("j", minMember=1, **HIGH, **inside("rack"))
    found.pod("j-0", group="j", gpu=1, on="n1").pod("j-1", group="j", gpu=1)
    result = found.schedule()
    assert (result.evicted_pods(), result.pipelined("j")) == ([], 0)


# What cannot suffice


def needing(found: Cluster, *parts: tuple[int, str], group_spec: Raw | None = None) -> Cluster:
    """A group of high priority with a subgroup of one pod for each (GPUs, level)."""
    leaves = [keeping(leaf(f"w{index}", 1, pending=1, gpu=gpus), level) for index, (gpus, level) in enumerate(parts)]
    return preempting(found).tree("j", *leaves, group_spec={**HIGH, **(group_spec or {})})


def test_subgroups_that_fit_one_by_one_but_not_together_evict_nothing() -> None:
    """topo:TC-41: 8, 8 and 3 in racks of 10 and 9."""
    found = needing(low(racks(("rack",), ("r1", 10), ("r2", 9)), n0=10, n1=9), (8, "rack"), (8, "rack"), (3, "rack"))
    result = found.schedule()
    assert (result.evicted_pods(), result.bound("j") + result.pipelined("j")) == ([], 0)


def test_a_victim_counts_once() -> None:
    """topo:TC-42: 4 idle and a victim of 4 are 8, not 10, however often it is counted."""
    found = preempting(low(racks(("rack",), ("r1", 8)), n0=4))
    result = found.gang("j", 10, gpu=1, priority="high", group_spec=inside("rack")).schedule()
    assert result.verdicts("j") == {"preempt": "hopeless"}


def test_a_rack_that_can_be_emptied_far_enough_is_tried() -> None:
    """topo:TC-43: 12 of 16."""
    found = preempting(low(racks(("rack",), ("r1", 8), ("r1", 8), ("r2", 4)), n0=8, n1=8, n2=4))
    result = found.gang("j", 12, gpu=1, priority="high", group_spec=inside("rack")).schedule()
    assert result.pipelined("j") == 12
    assert sorted(result.evicted_pods()) == ["low-n0-0", "low-n1-0"]


def test_levels_are_checked_together() -> None:
    """topo:TC-44: 6 in a rack and 16 in the zone are 22, and the zone has 16; no pod is evicted for that."""
    found = low(racks(("zone", "rack"), ("z1/r1", 8), ("z1/r2", 8)), n0=8, n1=8)
    result = needing(found, (6, "rack"), (8, "zone"), (8, "zone")).schedule()
    assert (result.evicted_pods(), result.pipelined("j")) == ([], 0)


def test_no_rack_can_be_emptied_far_enough() -> None:
    """topo:T-54: the cluster could, no single rack can, so no set of victims is tried."""
    found = preempting(low(racks(("rack",), ("r1", 2), ("r2", 2)), n0=2, n1=2))
    result = found.gang("j", 3, gpu=1, priority="high", group_spec=inside("rack")).schedule()
    assert result.verdicts("j") == {"preempt": "hopeless"}


def test_equal_names_under_different_parents_are_different_racks() -> None:
    """topo:TD-9, T-16: the rack called r of either zone has 4, not 8."""
    found = preempting(low(racks(("zone", "rack"), ("a/r", 4), ("b/r", 4)), n0=4, n1=4))
    result = found.gang("j", 6, gpu=1, priority="high", group_spec=inside("rack")).schedule()
    assert result.verdicts("j") == {"preempt": "hopeless"}


def test_pods_that_run_already_need_nothing() -> None:
    """topo:TD-9: four run in the rack, two more need the GPUs of one victim."""
    found = preempting(low(racks(("rack",), ("r1", 6)), n0=2)).group("j", minMember=6, **HIGH, **inside("rack"))
    for index in range(6):
        found.pod(f"j-{index}", group="j", gpu=1, on="n0" if index < 4 else "")
    result = found.schedule()
    assert (result.evicted_pods(), result.pipelined("j")) == (["low-n0-0"], 2)


def test_a_parent_and_a_child_that_require_the_same_level_are_not_counted_twice() -> None:
    """topo:TD-9."""
    found = preempting(low(racks(("rack",), ("r1", 4)), n0=4))
    inner = keeping(branch("in", keeping(leaf("w", 4, pending=4), "rack")), "rack")
    assert found.tree("j", inner, gpu=1, group_spec={**HIGH, **inside("rack")}).schedule().pipelined("j") == 4


def test_a_combination_that_first_fit_misses_is_found() -> None:
    """topo:TD-9: 5, 5, 4, 4 and 4 in racks of 12 and 10."""
    found = low(racks(("rack",), ("r1", 12), ("r2", 10)), n0=12, n1=10)
    result = needing(found, *[(gpus, "rack") for gpus in (5, 5, 4, 4, 4)]).schedule()
    assert where(result, "j", *[f"w{index}-0" for index in range(5)]) == ["n1", "n1", "n0", "n0", "n0"]


def test_leaves_and_resources_other_than_gpus_are_checked() -> None:
    """topo:TD-9: the CPU of no rack suffices for the pods of the leaf."""
    found = topology(preempting(cluster().queue("q")), "rack")
    for index in range(2):
        found.node(f"n{index}", gpus=4, cpu=4, labels={"rack": f"r{index}"})
    low(found, n0=4, n1=4)
    result = found.tree("j", keeping(leaf("w", 3, pending=3), "rack"), gpu=1, cpu=2, group_spec=HIGH).schedule()
    assert result.verdicts("j") == {"preempt": "hopeless"}


def test_without_the_plugin_racks_do_not_matter() -> None:
    """topo:TD-9, T-54: the constraint is not enforced, so nothing is ruled out by it."""
    found = low(racks(("rack",), ("r1", 2), ("r2", 2)), n0=2, n1=2)
    found.priority_class("high", 90).gang("j", 4, gpu=1, priority="high", group_spec=inside("rack"))
    plugins = [{"name": name} for name in ("predicates", "proportion", "priority", "sg-multinodegang")]
    result = found.configured({"tiers": [{"plugins": plugins}]}).with_actions("preempt").schedule()
    assert result.nodes_used("j") == {"n0": 2, "n1": 2}


def test_kinds_of_pods_must_fit_the_same_rack() -> None:
    """topo:TD-9: one rack has the GPUs, the other the CPU."""
    found = topology(preempting(cluster().queue("q")), "rack")
    found.node("n0", gpus=2, cpu=2, labels={"rack": "r0"}).node("n1", gpus=1, cpu=50, labels={"rack": "r1"})
    low(found, n0=1, n1=1).group("j", minMember=3, **HIGH, **inside("rack"))
    found.pod("j-0", group="j", gpu=1, cpu=1).pod("j-1", group="j", gpu=1, cpu=1).pod("j-2", group="j", cpu=20)
    assert found.schedule().verdicts("j") == {"preempt": "hopeless"}


@pytest.mark.parametrize(("nodes", "enough"), [("n0 n2", False), ("n0 n1", True), ("n1 n2 n3", True), ("n1", False)])
def test_victims_must_free_enough_of_one_rack(nodes: str, enough: bool) -> None:
    """topo:T-54: half of two racks is not a rack."""
    found = low(racks(("rack",), ("r1", 1), ("r1", 1), ("r2", 1), ("r2", 1)), n0=1, n1=1, n2=1, n3=1)
    cycle = found.gang("j", 2, gpu=1, group_spec=inside("rack")).cycle()
    gang = cycle.gangs.gang(cycle.context.snapshot.group_entries["default/j"])
    freed = FreedCapacity(cycle.context.snapshot, cycle.victims.bounds_of(gang, cycle.gangs.next_tasks(gang)))
    units = [unit for line in cycle.tables.victims().units_by_leaf_queue.values() for _, _, unit in line]
    names = cycle.context.snapshot.nodes.names
    for unit in units:
        freed.add(member for member in unit.members if names[member.row] in nodes.split())
    assert freed.suffices is enough


def test_a_victim_that_blocks_the_zone_by_anti_affinity_is_evicted() -> None:
    """topo:TD-9, cycle:PERF-7: the victim keeps the pod off every node of the zone, not only off its own."""
    found = topology(preempting(cluster().queue("q")), "zone", "rack")
    found.node("n0", gpus=1, labels={"zone": "z", "rack": "r0"}).node("n1", gpus=1, labels={"zone": "z", "rack": "r1"})
    apart: Raw = {
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "loud"}}}
                ]
            }
        }
    }
    found.gang("loud", gpu=1, on="n0", labels={"app": "loud"})
    spec = {**apart, "nodeSelector": {"kubernetes.io/hostname": "n1"}}
    found.gang("j", 1, fraction="0.5", priority="high", spec=spec, group_spec=inside("zone", "rack"))
    result = found.schedule()
    assert (result.evicted_pods(), result.pipelined("j")) == (["loud-0"], 1)


# Jobs that are alike


@pytest.mark.parametrize("other", [{}, inside("zone"), inside("", "rack")])
@pytest.mark.parametrize("action", ["allocate", "preempt"])
def test_gangs_that_differ_in_their_constraint_are_not_alike(action: str, other: Raw) -> None:
    """topo:T-55: the first finds no rack, the second needs none."""
    found = racks(("zone", "rack"), ("z/r1", 1), ("z/r2", 1))
    if action == "preempt":
        low(found, n0=1, n1=1)
    found.priority_class("high", 90)
    found.gang("a", 2, gpu=1, priority="high", group_spec=inside("rack"), age=30)
    found.gang("b", 2, gpu=1, priority="high", group_spec=other, age=20)
    result = found.with_actions(action).schedule()
    assert result.nodes_used("a") == {}
    assert result.nodes_used("b") == {"n0": 1, "n1": 1}


@pytest.mark.parametrize("where_it_is", ["group", "subgroup"])
def test_subgroups_that_differ_in_their_constraint_are_not_alike(where_it_is: str) -> None:
    """topo:T-55: of the leaf and of every ancestor."""
    found = racks(("rack",), ("r1", 1), ("r2", 1))
    strict, free = leaf("w", 2, pending=2), leaf("w", 2, pending=2)
    if where_it_is == "group":
        found.tree("a", strict, gpu=1, group_spec=inside("rack"), age=30)
    else:
        found.tree("a", keeping(strict, "rack"), gpu=1, age=30)
    result = found.tree("b", free, gpu=1, age=20).schedule()
    assert (result.bound("a"), result.bound("b")) == (0, 2)


def test_gangs_alike_share_the_reason_under_their_own_names() -> None:
    """topo:T-41, T-55: the second is not tried again, and hears what the first heard, with its own name."""
    found = racks(("rack",), ("r1", 1), ("r2", 1))
    for name in ("a", "b"):
        found.gang(name, 2, gpu=1, group_spec=inside("rack"))
    result = found.schedule()
    assert result.why("a").replace("default/a", "default/b") == result.why("b")
    assert "for job <default/b>" in result.why("b")


def test_gangs_alike_with_pods_in_different_domains_are_not_alike() -> None:
    """topo:T-25, T-55: each is pinned elsewhere, and only one of the domains has room."""
    found = busy(racks(("rack",), ("r1", 2), ("r2", 3)), n0=1, n1=1)
    for name, node in (("a", "n0"), ("b", "n1")):
        found.group(name, minMember=1, age=30 if name == "a" else 20, **inside("rack"))
        found.pod(f"{name}-0", group=name, gpu=1, on=node).pod(f"{name}-1", group=name, gpu=1)
    result = found.schedule()
    assert (result.node_of("a-1"), result.node_of("b-1")) == ("", "n1")


def test_gangs_alike_that_start_with_different_subgroups_are_not_alike() -> None:
    """topo:T-55: one has the pods that need a rack, the other those that need only the zone."""
    found = racks(("zone", "rack"), ("z/r1", 1), ("z/r2", 1))
    for name, chosen in (("x", "a"), ("y", "b")):
        parts = [(part, level, 2 * (part == chosen)) for part, level in (("a", "rack"), ("b", "zone"))]
        found.tree(name, *[keeping(leaf(part, 2, pending=pods), level) for part, level, pods in parts], needs=1, gpu=1)
    result = found.schedule()
    assert (result.bound("x"), result.bound("y")) == (0, 2)
