"""Which objects a scheduler of a shard reads (cycle:SNP-3, SNP-4, SNP-6)."""

from __future__ import annotations

from pykai.api.decode import decode_object
from pykai.api.meta import ObjectMeta
from pykai.core.model.shard import Shard
from tests.core.builders import NOW_NS, Cluster, cluster

POOL = "kai.scheduler/node-pool"


def meta(**labels: str) -> ObjectMeta:
    return ObjectMeta(labels={key.replace("_", "-"): value for key, value in labels.items()})


def test_the_label_must_be_absent_must_be_equal_or_does_not_matter() -> None:
    """cycle:SNP-3"""
    without, empty, red, blue = (
        ObjectMeta(),
        ObjectMeta(labels={POOL: ""}),
        ObjectMeta(labels={POOL: "red"}),
        ObjectMeta(labels={POOL: "blue"}),
    )
    cases = (without, empty, red, blue)
    assert [Shard().covers(one) for one in cases] == [True, False, False, False]
    assert [Shard(node_pool="red").covers(one) for one in cases] == [False, False, True, False]
    assert [Shard(node_pool_key="", node_pool="red").covers(one) for one in cases] == [True] * 4
    assert Shard(node_pool_key="rack", node_pool="a").covers(meta(rack="a"))


def two_pools() -> Cluster:
    return (
        cluster()
        .node("plain", gpus=1)
        .node("red", gpus=1, labels={POOL: "red"})
        .queue("q")
        .queue("q-red", labels={POOL: "red"})
        .group("job", queue="q", minMember=1)
        .pod("job-0", group="job", gpu=1)
        .group("job-red", queue="q-red", minMember=1, labels={POOL: "red"})
        .pod("job-red-0", group="job-red", gpu=1)
    )


def test_each_shard_places_its_own_work_on_its_own_nodes() -> None:
    """cycle:SNP-3: nodes, queues and groups are filtered, pods are not."""
    plain, red = two_pools().schedule(), two_pools().sharded(node_pool="red").schedule()
    assert (plain.node_of("job-0"), plain.node_of("job-red-0")) == ("plain", "")
    assert (red.node_of("job-0"), red.node_of("job-red-0")) == ("", "red")


def test_pods_of_groups_of_another_shard_are_not_orphans() -> None:
    """cycle:SNP-3: they belong to another shard."""
    assert two_pools().schedule().plan.orphans == ()
    lost = two_pools().pod("lost", group="nowhere").schedule().plan.orphans
    assert [orphan.pod for orphan in lost] == ["lost"]


def test_a_group_that_leaves_the_shard_leaves_its_pods_to_the_other() -> None:
    tables = two_pools().tables()
    moved = next(raw for raw in two_pools().objects if raw["metadata"]["name"] == "job")
    tables.apply(decode_object({**moved, "metadata": {**moved["metadata"], "labels": {POOL: "red"}}}))
    snapshot = tables.snapshot(NOW_NS)
    assert snapshot.group_entries["default/job"].group is None
    assert list(snapshot.ungrouped_tasks()) == []
    tables.remove("PodGroup", "default", "job")
    assert [task.name for task in tables.snapshot(NOW_NS).ungrouped_tasks()] == ["job-0"]
    tables.remove("Pod", "default", "job-0")
    assert "default/job" not in tables.groups


def test_a_node_that_leaves_the_shard_takes_its_capacity_with_it() -> None:
    tables = two_pools().tables()
    plain = next(raw for raw in two_pools().objects if raw["metadata"]["name"] == "plain")
    tables.apply(decode_object({**plain, "metadata": {"name": "plain", "labels": {POOL: "red"}}}))
    assert tables.snapshot(NOW_NS).nodes.names == []
    tables.apply(decode_object(plain))
    assert tables.snapshot(NOW_NS).nodes.names == ["plain"]


def test_pods_of_another_shard_hold_their_node_where_it_is_ours() -> None:
    built = two_pools().pod("stray", group="job-red", gpu=1, on="plain")
    assert built.schedule().bound("job") == 0


def test_restricted_scheduling_drops_nodes_that_are_not_workers() -> None:
    """cycle:SNP-4"""
    built = (
        cluster()
        .node("gpu", labels={"node-role.kubernetes.io/gpu-worker": ""})
        .node("cpu", labels={"node-role.kubernetes.io/cpu-worker": "false"})
        .node("none")
    )
    assert built.tables().snapshot(NOW_NS).nodes.names == ["cpu", "gpu", "none"]
    assert built.sharded(restrict_nodes=True).tables().snapshot(NOW_NS).nodes.names == ["cpu", "gpu"]
    other_keys = built.sharded(restrict_nodes=True, cpu_worker_label="none", gpu_worker_label="none")
    assert other_keys.tables().snapshot(NOW_NS).nodes.names == []


def test_the_label_of_mig_nodes_is_a_setting() -> None:
    """cycle:NOD-5"""
    built = cluster().node("n", gpus=1, labels={"sliced": "true"})
    assert not built.tables().snapshot(NOW_NS).nodes.facts[0].mig_enabled
    assert built.sharded(mig_label="sliced").tables().snapshot(NOW_NS).nodes.facts[0].mig_enabled
