"""GPUs of ResourceSlices as a column of their node (gpu:D-6, T-94, cycle:SNP-5): counted again with every change."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from pykai.api.decode import decode_object
from pykai.core.cluster.tables import Tables
from tests.core.builders import NOW_NS, Cluster, Raw, cluster
from tests.core.deviceclusters import device_request, devices

GPUS = "resource.k8s.io/gpu"


def gpus_of(tables: Tables) -> dict[str, int]:
    """Node -> GPUs of its slices, as in the columns, the facts and the totals, which must agree."""
    snapshot = tables.snapshot(NOW_NS)
    axis = snapshot.axes.index.get(GPUS)
    counted = {}
    for row, facts in enumerate(snapshot.nodes.facts):
        offered = int(snapshot.allocatable[axis, row]) if axis is not None else 0
        assert offered == facts.dra_gpus == dict(facts.allocatable).get(GPUS, 0)
        assert facts.cpu_only == (offered == 0)
        assert facts.gpu_count == offered
        if axis is not None:
            assert snapshot.columns[:, axis, row].tolist() == [offered, 0, offered, 0]
        counted[facts.name] = offered
    assert snapshot.cluster_totals()[2] == 100 * sum(counted.values())
    return counted


def test_devices_of_gpu_drivers_are_gpus_of_their_node_gpu_t94() -> None:
    world = cluster(nodes=2).slice("node-1", 4).slice("node-1", 3, driver="nic.example.com")
    assert gpus_of(world.tables()) == {"node-0": 0, "node-1": 4}


def test_other_drivers_alone_make_no_gpu_node_gpu_t94() -> None:
    assert gpus_of(cluster(nodes=1).slice("node-0", 4, driver="nic.example.com").tables()) == {"node-0": 0}


@pytest.mark.parametrize("where", [{"allNodes": True}, {"nodeSelector": {"nodeSelectorTerms": [{"matchFields": []}]}}])
def test_devices_reached_from_several_nodes_are_not_gpus_of_one_node_gpu_d6(where: Raw) -> None:
    assert gpus_of(cluster(nodes=1).slice("", 4, pool="net", **where).tables()) == {"node-0": 0}


def test_only_the_newest_complete_generation_of_a_pool_counts_gpu_d6() -> None:
    old = cluster(nodes=1).slice("node-0", 4, name="a").slice("node-0", 3, name="b", generation=2)
    assert gpus_of(old.tables()) == {"node-0": 3}
    half = cluster(nodes=1).slice("node-0", 4, name="a").slice("node-0", 3, name="b", generation=2, of=2)
    assert gpus_of(half.tables()) == {"node-0": 0}


def test_partitions_are_not_gpus_and_use_none_gpu_d6() -> None:
    kinds = [{"name": name, "attributes": {"type": {"string": kind}}} for name, kind in (("g", "gpu"), ("m", "mig"))]
    world = cluster(nodes=1).slice("node-0", kinds).device_class("gpu").queue("q")
    world.device_class("mig", 'device.attributes["gpu.example.com"].type == "mig"')
    assert gpus_of(world.tables()) == {"node-0": 1}
    result = world.gang("a", template=[device_request(1, "mig")]).schedule()
    assert result.allocated_devices("a-0") == {"devices": ["node-0/m"]}
    axis = result.cycle.context.snapshot.axes.index[GPUS]
    assert result.cycle.state.idle[axis, 0] == 1


def test_gpus_of_both_kinds_add_up_gpu_d6() -> None:
    snapshot = cluster(nodes=1, gpus=2).slice("node-0", 3).tables().snapshot(NOW_NS)
    assert snapshot.cluster_totals()[2] == 500
    assert snapshot.nodes.facts[0].gpu_count == 5
    assert snapshot.nodes.facts[0].dra_gpus == 3


def raw_of(world: Cluster, kind: str) -> Raw:
    return next(raw for raw in world.objects if raw["kind"] == kind)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_nodes_and_slices_may_come_in_any_order_gpu_d6(order: tuple[int, ...]) -> None:
    """With a snapshot after each."""
    objects = cluster(nodes=2).slice("node-0", 3).objects
    tables = Tables()
    for number in order:
        tables.apply(decode_object(objects[number]))
        gpus_of(tables)
    assert gpus_of(tables) == {"node-0": 3, "node-1": 0}


def test_deleted_slices_are_no_longer_counted_gpu_d6() -> None:
    world = cluster(nodes=1).slice("node-0", 3)
    tables = world.tables()
    assert gpus_of(tables) == {"node-0": 3}
    tables.remove("ResourceSlice", "", "node-0-gpu.example.com")
    assert gpus_of(tables) == {"node-0": 0}
    tables.apply(decode_object(raw_of(world, "ResourceSlice")))
    tables.remove("Node", "", "node-0")
    assert gpus_of(tables) == {}
    tables.apply(decode_object(raw_of(world, "Node")))
    assert gpus_of(tables) == {"node-0": 3}


def test_slices_that_come_or_change_later_are_counted_gpu_d6() -> None:
    tables = cluster(nodes=2).slice("node-0", 3).tables()
    assert gpus_of(tables) == {"node-0": 3, "node-1": 0}
    tables.apply(decode_object(Cluster().slice("node-1", 2).objects[0]))
    assert gpus_of(tables) == {"node-0": 3, "node-1": 2}
    tables.apply(decode_object(Cluster().slice("node-1", 1).objects[0]))
    assert gpus_of(tables) == {"node-0": 3, "node-1": 1}


def test_a_node_that_changes_keeps_its_gpus_gpu_d6() -> None:
    world = cluster(nodes=1).slice("node-0", 3)
    tables = world.tables()
    assert gpus_of(tables) == {"node-0": 3}
    changed = raw_of(world, "Node")
    changed["status"]["allocatable"]["cpu"] = "7"
    tables.apply(decode_object(changed))
    assert gpus_of(tables) == {"node-0": 3}


def test_a_changed_node_label_changes_the_devices_it_reaches() -> None:
    term = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r0"]}]}
    world = cluster(nodes=1).device_class("gpu").queue("q").gang("a", template=1)
    world.slice("", 1, pool="near", nodeSelector={"nodeSelectorTerms": [term]})
    assert world.schedule().bound("a") == 0
    tables = world.tables()
    tables.snapshot(NOW_NS)
    raw_of(world, "Node")["metadata"]["labels"]["rack"] = "r0"
    tables.apply(decode_object(raw_of(world, "Node")))
    assert len(tables.claims.inventory(tables.snapshot(NOW_NS).nodes).devices_at(0)) == 1
    assert world.schedule().bound("a") == 1


def problems_of(tables: Tables) -> list[str]:
    return [problem.text for problem in tables.snapshot(NOW_NS).problems if problem.subject == "ResourceSlice"]


def test_unusable_pools_are_reported_as_long_as_they_exist_gpu_d19() -> None:
    tables = cluster(nodes=1).slice("node-0", 3, of=2).tables()
    assert problems_of(tables) == ["pool node-0 of gpu.example.com has 1 of 2 slices"]
    tables.remove("ResourceSlice", "", "node-0-gpu.example.com")
    assert problems_of(tables) == []


def test_shared_gpus_are_not_for_nodes_with_gpus_in_slices_gpu_p3() -> None:
    world = cluster(nodes=1, gpus=2).slice("node-0", 1).queue("q").gang("a", fraction=0.5)
    assert world.schedule().node_reasons("a") == {
        "fractional/shared GPU pods are not yet supported on DRA-only nodes": 1
    }


def test_pods_with_gpu_claims_are_not_cpu_pods() -> None:
    tables = devices().queue("q").gang("a", template=1).gang("b").tables()
    tasks = tables.snapshot(NOW_NS).task_records
    shapes: dict[str, Any] = {key: task.shape for key, task in tasks.items()}
    assert not shapes["default/a-0"].cpu_only
    assert shapes["default/b-0"].cpu_only
    assert shapes["default/a-0"].gpu_hundredths == 100


def test_a_terminating_pod_stays_stuck_when_the_slices_of_its_node_change() -> None:
    """Nodes are read before the clock is."""
    world = devices().queue("q").gang("a", on="node-0", template=1, given=("gpu-0",), deleted=100_000)
    assert world.tables().snapshot(NOW_NS).task_records["default/a-0"].status.name == "STUCK_IN_RELEASING"


def test_pods_from_one_template_share_one_shape_whether_they_run_or_wait() -> None:
    world = devices().queue("q").gang("a", on="node-0", template=1, given=("gpu-0",)).gang("b", 2, template=1)
    shapes = {task.shape.id for task in world.tables().snapshot(NOW_NS).task_records.values()}
    assert len(shapes) == 1


def test_a_class_that_changes_changes_what_claims_mean() -> None:
    world = devices(each=1).queue("q").gang("a", template=1)
    tables = world.tables()
    before = tables.snapshot(NOW_NS).task_records["default/a-0"].shape
    other = Cluster().device_class("gpu", 'device.driver == "none"').objects[0]
    tables.apply(decode_object(other))
    after = tables.snapshot(NOW_NS).task_records["default/a-0"].shape
    assert before.claims[0].request != after.claims[0].request
    tables.remove("DeviceClass", "", "gpu")
    assert (
        tables.snapshot(NOW_NS)
        .task_records["default/a-0"]
        .shape.claims[0]
        .problem.startswith("device class gpu does not")
    )


# Objects in any order


def shape_after(objects: list[Raw], order: tuple[int, ...]) -> Any:
    """The pod a-0 in the last snapshot when objects arrive in this order, with a snapshot after each."""
    tables = Tables()
    for number in order:
        tables.apply(decode_object(objects[number]))
        tables.snapshot(NOW_NS)
    task = tables.snapshot(NOW_NS).task_records["default/a-0"]
    return task.shape.claims, task.claim_keys, task.shape.dra_backed, task.extended_key


def test_a_claim_found_by_its_owner_may_come_before_or_after_the_pod_and_its_class_gpu_d5() -> None:
    entry = {"name": "devices", "resourceClaimTemplateName": "t"}
    world = Cluster().device_class("gpu").pod("a-0", spec={"resourceClaims": [entry]})
    world.device_claim("x", owner="a-0", annotations={"resource.kubernetes.io/pod-claim-name": "devices"})
    said = [shape_after(world.objects, order) for order in permutations(range(3))]
    assert said[0][1] == ("default/x",)
    assert all(each == said[0] for each in said)


def test_a_claim_with_a_class_among_its_alternatives_follows_that_class_gpu_d5() -> None:
    way = {"name": "r", "firstAvailable": [{"name": "f", "deviceClassName": "gpu", "count": 1}]}
    world = Cluster().pod("a-0", template=[way]).device_class("gpu")
    said = [shape_after(world.objects, order) for order in permutations(range(3))]
    assert said[0][0][0].request is not None
    assert all(each == said[0] for each in said)


def test_a_class_behind_a_resource_and_the_claim_made_for_it_may_come_late_gpu_d13() -> None:
    notes = {"resource.kubernetes.io/extended-resource-claim": "true"}
    world = Cluster().device_class("gpu", extendedResourceName="nvidia.com/gpu").pod("a-0", gpu=1)
    world.device_claim("x", owner="a-0", annotations=notes)
    world.device_claim("other", owner="a-0", annotations=dict.fromkeys(notes, "false"))
    said = [shape_after(world.objects, order) for order in permutations(range(4))]
    assert said[0][2:] == ((("nvidia.com/gpu", 1),), "default/x")
    assert all(each == said[0] for each in said)


def test_removed_objects_leave_no_trace() -> None:
    world = devices().pod("a-0", template=1, gpu=1, shares=("c",)).device_claim("c")
    tables = world.tables()
    tables.snapshot(NOW_NS)
    for raw in world.objects:
        meta = raw["metadata"]
        tables.remove(raw["kind"], meta.get("namespace", ""), meta["name"])
    tables.snapshot(NOW_NS)
    index = {name: value for name, value in vars(tables.claims).items() if name not in ("_inventory", "_nodes")}
    assert index == {name: vars(Tables().claims)[name] for name in index}


def test_a_claim_that_the_pod_names_may_come_late_and_change_gpu_d5() -> None:
    world = Cluster().device_class("gpu").pod("a-0", shares=("c",)).device_claim("c").device_claim("c", count=2)
    orders = [order for order in permutations(range(4)) if order.index(2) < order.index(3)]
    said = [shape_after(world.objects, order) for order in orders]
    assert said[0][0][0].gpus == 2
    assert all(each == said[0] for each in said)
