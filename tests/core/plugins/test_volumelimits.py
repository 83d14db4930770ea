"""The plugin volumelimits: how many volumes a node attaches, zones of volumes, claims for one pod (cycle:FLT-4)."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.core.plugins import DEFAULT_PLUGINS
from tests.core.builders import Cluster, cluster

FULL = "node(s) exceed max volume count"
ZONE = "node(s) had no available volume zone"
ONE_POD = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
ZONE_LABEL, OLD_ZONE_LABEL = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"


def limited(nodes: int = 1, **node: Any) -> Cluster:
    """A cluster whose scheduler checks volume limits."""
    plugins = [{"name": name, "arguments": dict(arguments)} for name, arguments in DEFAULT_PLUGINS]
    configuration = {"actions": "allocate", "tiers": [{"plugins": [*plugins, {"name": "volumelimits"}]}]}
    return cluster(nodes=nodes, **node).queue("q").storage_class(provisioner="d").configured(configuration)


def bound(world: Cluster, *names: str, **volume: Any) -> Cluster:
    """Claims bound to volumes that a driver attaches."""
    for name in names:
        world.volume(f"pv-{name}", claim=name, driver="d", **volume).claim(name, bound_to=f"pv-{name}")
    return world


def test_a_node_attaches_no_more_volumes_than_its_limit() -> None:
    world = bound(limited().csi_node("node-0", d=2), "a", "b", "c")
    world.gang("run", claims=("a", "b"), on="node-0").gang("job", claims=("c",))
    assert world.schedule().node_reasons("job") == {FULL: 1}


def test_the_last_volume_a_node_can_attach_is_attached() -> None:
    world = bound(limited().csi_node("node-0", d=2), "a", "b")
    assert world.gang("run", claims=("a",), on="node-0").gang("job", claims=("b",)).schedule().bound("job") == 1


def test_without_the_plugin_limits_are_not_checked() -> None:
    world = bound(cluster(nodes=1).queue("q").storage_class().csi_node("node-0", d=0), "a")
    assert world.gang("job", claims=("a",)).schedule().bound("job") == 1


def test_volumes_attached_in_this_cycle_count() -> None:
    world = bound(limited().csi_node("node-0", d=1), "a", "b")
    result = world.gang("first", claims=("a",)).gang("job", claims=("b",)).schedule()
    assert result.bound("first") == 1
    assert result.node_reasons("job") == {FULL: 1}


def test_volumes_that_are_to_be_made_count() -> None:
    world = limited().csi_node("node-0", d=1).claim("a").claim("b").gang("job", claims=("a", "b"))
    assert world.schedule().node_reasons("job") == {FULL: 1}


def test_a_limit_of_zero_admits_none() -> None:
    world = bound(limited().csi_node("node-0", d=0), "a").gang("job", claims=("a",))
    assert world.schedule().node_reasons("job") == {FULL: 1}


@pytest.mark.parametrize("most", [{"d": None}, {"other": 0}, {}])
def test_a_driver_without_a_limit_attaches_any_number(most: dict[str, int | None]) -> None:
    world = bound(limited().csi_node("node-0", **most), "a").gang("job", claims=("a",))
    assert world.schedule().bound("job") == 1


def test_a_volume_that_is_attached_already_counts_once() -> None:
    world = bound(limited().csi_node("node-0", d=1), "a").gang("run", claims=("a",), on="node-0")
    assert world.gang("job", 2, claims=("a",)).schedule().bound("job") == 2


def test_a_shared_volume_counts_on_every_node() -> None:
    world = bound(limited(2).csi_node("node-0", d=1).csi_node("node-1", d=1), "a", "b")
    world.gang("run", claims=("a",), on="node-0").gang("busy", claims=("b",), on="node-1")
    result = world.gang("job", claims=("a",), spec={"nodeSelector": {"kubernetes.io/hostname": "node-1"}}).schedule()
    assert result.node_reasons("job")[FULL] == 1


def test_the_attachment_of_a_terminating_pod_can_be_pipelined() -> None:
    world = bound(limited().csi_node("node-0", d=1), "a", "b").gang("run", claims=("a",), on="node-0", deleted=-30)
    result = world.gang("job", claims=("b",)).schedule()
    assert (result.bound("job"), result.pipelined("job")) == (0, 1)


def test_a_pipelined_attachment_is_not_given_again() -> None:
    world = bound(limited().csi_node("node-0", d=1), "a", "b", "c").gang("run", claims=("a",), on="node-0", deleted=-30)
    result = world.gang("job", claims=("b",)).gang("late", claims=("c",)).schedule()
    assert (result.pipelined("job"), result.pipelined("late")) == (1, 0)


def test_drivers_are_counted_apart() -> None:
    world = bound(limited().csi_node("node-0", d=1, e=1), "a").volume("pv-b", claim="b", driver="e")
    world.claim("b", bound_to="pv-b").gang("run", claims=("a",), on="node-0").gang("job", claims=("b",))
    assert world.schedule().bound("job") == 1


def test_volumes_that_are_not_attached_do_not_count() -> None:
    world = limited().csi_node("node-0", d=0).volume("pv", claim="a").claim("a", bound_to="pv")
    assert world.gang("job", claims=("a",)).schedule().bound("job") == 1


def test_volumes_without_a_driver_neither_count_nor_hide_the_others() -> None:
    world = bound(limited().csi_node("node-0", d=0), "a").volume("plain", claim="b").claim("b", bound_to="plain")
    world.gang("other", claims=("b",)).gang("job", claims=("a", "b"))
    result = world.schedule()
    assert result.bound("other") == 1
    assert result.node_reasons("job") == {FULL: 1}


# Zones.


def zoned(label: str, zone: str, *nodes: dict[str, str]) -> Cluster:
    world = limited(0)
    for labels in nodes:
        world.node(labels=labels)
    return bound(world, "a", labels={label: zone}).gang("job", claims=("a",))


def test_a_volume_of_a_zone_keeps_its_pod_there() -> None:
    world = zoned(ZONE_LABEL, "b", {ZONE_LABEL: "a"}, {ZONE_LABEL: "b"})
    assert world.schedule().node_of("job-0") == "node-1"


def test_nodes_of_other_zones_have_a_reason() -> None:
    assert zoned(ZONE_LABEL, "b", {ZONE_LABEL: "a"}).schedule().node_reasons("job") == {ZONE: 1}


def test_a_volume_may_lie_in_several_zones() -> None:
    assert zoned(ZONE_LABEL, "a__b", {ZONE_LABEL: "b"}).schedule().bound("job") == 1


def test_nodes_without_any_zone_are_not_checked() -> None:
    assert zoned(ZONE_LABEL, "b", {}).schedule().bound("job") == 1


def test_an_old_zone_label_of_a_volume_meets_the_new_one_of_a_node() -> None:
    world = zoned(OLD_ZONE_LABEL, "b", {ZONE_LABEL: "a"}, {ZONE_LABEL: "b"})
    assert world.schedule().node_of("job-0") == "node-1"


def test_a_node_with_zones_but_not_this_kind_is_refused() -> None:
    world = zoned("topology.kubernetes.io/region", "r", {ZONE_LABEL: "a"})
    assert world.schedule().node_reasons("job") == {ZONE: 1}


# Claims for one pod.


def once(nodes: int = 2) -> Cluster:
    return limited(nodes).volume("pv", claim="a").claim("a", bound_to="pv", modes=("ReadWriteOncePod",))


def test_a_claim_for_one_pod_has_one_pod() -> None:
    world = once().gang("run", claims=("a",), on="node-0").gang("job", claims=("a",))
    assert world.schedule().node_reasons("job") == {ONE_POD: 2}


def test_a_claim_for_one_pod_goes_to_one_pod_of_a_cycle() -> None:
    result = once().gang("first", claims=("a",)).gang("job", claims=("a",)).schedule()
    assert result.bound("first") == 1
    assert result.node_reasons("job") == {ONE_POD: 2}


def test_a_claim_for_one_pod_is_pipelined_while_its_pod_terminates() -> None:
    world = once().gang("run", claims=("a",), on="node-0", deleted=-30).gang("job", claims=("a",))
    result = world.schedule()
    assert (result.bound("job"), result.pipelined("job")) == (0, 1)


def test_a_claim_of_the_usual_kind_has_many_pods() -> None:
    world = bound(limited(), "a").gang("run", claims=("a",), on="node-0").gang("job", claims=("a",))
    assert world.schedule().bound("job") == 1


def test_a_pod_that_keeps_its_claim_for_one_pod_may_stay() -> None:
    """A trial evicts it and finds that it can be kept."""
    world = (
        once(1)
        .node("big", gpus=2)
        .queue("rich", quota=0)
        .queue("poor", quota=1)
        .gang("run", queue="rich", gpu=1, claims=("a",), on="big", age=10)
        .pod("waiting", claims=("a",))
        .gang("plain", queue="rich", gpu=1, on="big", age=100)
        .gang("job", queue="poor", gpu=1)
        .with_actions("reclaim")
    )
    assert len(world.schedule().evicted_pods()) == 1
