"""The model of a cluster, change by change (cycle:3, cycle:4; gpu:B-4); property tests cover combinations."""

from __future__ import annotations

import pytest

from pykai.core.cluster.tables import Tables
from pykai.core.model.status import TaskStatus
from pykai.core.model.vectors import IDLE
from pykai.core.opencycle import open_cycle
from pykai.core.schedule import run_actions
from tests.core.builders import NOW_NS, Cluster, Raw, cluster
from tests.core.cluster.tablereading import amounts, apply, seen
from tests.heldentries import entry_counts

# Nodes and the pods on them: cycle:4, NOD-1, SNP-9


@pytest.mark.parametrize(
    ("pod", "idle", "releasing", "used"),
    [
        ({}, 3, 0, 1),
        ({"phase": "Pending"}, 3, 0, 1),
        ({"deleted": 10}, 3, 1, 1),
        ({"deleted": 600}, 3, 0, 1),
        ({"phase": "Unknown"}, 3, 0, 1),
        ({"phase": "Succeeded"}, 4, 0, 0),
        ({"phase": "Failed"}, 4, 0, 0),
    ],
)
def test_what_a_pod_holds_of_its_node(pod: Raw, idle: int, releasing: int, used: int) -> None:
    """cycle:4 and SNP-9, Do better: a pod in an unknown state may still run."""
    built = cluster(nodes=1, gpus=4).pod("pod", gpu=1, on="node-0", **pod)
    expected = {"idle": idle, "releasing": releasing, "free": idle + releasing, "used": used}
    assert amounts(seen(built.tables()), "nvidia.com/gpu") == expected


def test_a_pipelined_pod_takes_what_is_being_released() -> None:
    """cycle:4"""
    built = cluster(nodes=1, gpus=4).pod("goes", gpu=2, on="node-0", deleted=10).pod("comes", gpu=1, on="node-0")
    expected = {"idle": 2, "releasing": 1, "free": 3, "used": 3}
    assert amounts(seen(built.assume("comes", TaskStatus.PIPELINED).tables()), "nvidia.com/gpu") == expected


def test_a_changed_pod_holds_its_new_request() -> None:
    """cycle:NOD-1"""
    tables = cluster(nodes=1, gpus=4).pod("pod", gpu=1, on="node-0").tables()
    apply(tables, cluster().pod("pod", gpu=3, cpu=2, on="node-0"))
    assert amounts(seen(tables), "nvidia.com/gpu")["idle"] == 1
    assert amounts(seen(tables), "cpu")["used"] == 2000
    assert amounts(seen(tables), "pods")["used"] == 1
    tables.remove("Pod", "default", "pod")
    assert amounts(seen(tables), "nvidia.com/gpu") == {"idle": 4, "releasing": 0, "free": 4, "used": 0}


def test_a_pod_may_come_before_its_node_its_group_and_its_queue() -> None:
    tables = Tables()
    apply(tables, cluster().pod("pod", group="g", gpu=1, on="node-0").pod("next", group="g", gpu=1))
    assert seen(tables).nodes.names == []
    apply(tables, cluster(nodes=1, gpus=2).queue("q").group("g"))
    assert amounts(seen(tables), "nvidia.com/gpu")["idle"] == 1
    cycle = open_cycle(seen(tables), cluster().policy())
    run_actions(cycle)
    assert list(cycle.decisions.binds) == ["default/next"]


def test_pods_of_a_node_that_goes_and_comes_back_hold_it_again() -> None:
    built = cluster(nodes=2, gpus=4).pod("pod", gpu=3, on="node-0")
    tables = built.tables()
    tables.remove("Node", "", "node-0")
    assert seen(tables).nodes.names == ["node-1"]
    apply(tables, cluster(nodes=1, gpus=4))
    assert amounts(seen(tables), "nvidia.com/gpu")["idle"] == 1


def test_a_node_that_loses_a_resource_is_not_charged_for_it() -> None:
    """gpu:S-3"""
    tables = cluster(nodes=1, gpus=4).pod("pod", gpu=3, on="node-0").tables()
    apply(tables, cluster(nodes=1))
    assert amounts(seen(tables), "nvidia.com/gpu") == {"idle": 0, "releasing": 0, "free": 0, "used": 0}
    apply(tables, cluster(nodes=1, gpus=2))
    assert amounts(seen(tables), "nvidia.com/gpu") == {"idle": -1, "releasing": 0, "free": -1, "used": 3}


def test_memory_shares_follow_the_memory_of_their_node() -> None:
    """cycle:NOD-4, TSK-6: what a share takes is fixed by its node, so it changes when the label does."""
    built = cluster(nodes=1, gpus=1, gpu_memory=1000).group("g")
    built.pod("pod", group="g", gpu_memory=400, on="node-0", device="d")
    tables = built.tables()
    assert seen(tables).devices[0]["d"].used_mib == 400
    assert seen(tables).group_entries["default/g"].allocated[2] == 40
    apply(tables, cluster(nodes=1, gpus=1, gpu_memory=800))
    assert seen(tables).group_entries["default/g"].allocated[2] == 50
    apply(tables, cluster(nodes=1, gpus=1, gpu_memory=None))
    assert seen(tables).group_entries["default/g"].allocated[2] == 400
    half = cluster(nodes=1, gpus=1, gpu_memory=1000).pod("half", fraction=0.5, on="node-0", device="d").tables()
    apply(half, cluster(nodes=1, gpus=1, gpu_memory=300))
    assert seen(half).devices[0]["d"].used_mib == 150


@pytest.mark.parametrize("label", ["1_000", " 1000", "1000.0", "", "٤", "9" * 60])
def test_a_label_that_is_not_an_integer_counts_as_missing(label: str) -> None:
    """cycle:NOD-4; an absurd one must not stop the cycle."""
    marks = {"nvidia.com/gpu.memory": label, "nvidia.com/gpu.count": label}
    (facts,) = seen(cluster().node("n", gpus=4, gpu_memory=None, labels=marks).tables()).nodes.facts
    assert (facts.gpu_mib, facts.has_gpu_memory_label, facts.gpu_count) == (100, False, 4)


def test_a_heartbeat_of_a_node_changes_nothing() -> None:
    tables = cluster(nodes=1).tables()
    before = seen(tables).nodes
    apply(tables, cluster(nodes=1))
    assert seen(tables).nodes is before
    apply(tables, cluster(nodes=1, cpu=1))
    assert seen(tables).nodes is not before


def test_many_nodes_and_resources_grow_the_columns() -> None:
    built = cluster()
    for number in range(40):
        built.node(f"n{number:02}", cpu=number + 1, extra={f"example.com/r{number % 9}": number + 1})
    tables = built.tables()
    for number in range(0, 40, 3):
        tables.remove("Node", "", f"n{number:02}")
    apply(tables, cluster().node("n99", cpu=7).node("n03", cpu=9))
    snapshot = seen(tables)
    cpus = {name: int(snapshot.columns[IDLE, 0, row]) // 1000 for name, row in snapshot.nodes.rows.items()}
    assert cpus == {f"n{n:02}": n + 1 for n in range(40) if n % 3} | {"n99": 7, "n03": 9}
    assert amounts(snapshot, "example.com/r4", "n22")["idle"] == 23_000
    assert amounts(snapshot, "example.com/r4", "n99")["idle"] == 0


def test_node_rows_are_in_name_order_however_they_came() -> None:
    """cycle:SCO-1: equal scores go to the smaller name."""
    tables = cluster().node("c").node("a").node("b").tables()
    assert seen(tables).nodes.names == ["a", "b", "c"]
    tables.remove("Node", "", "a")
    apply(tables, cluster().node("aa"))
    assert seen(tables).nodes.names == ["aa", "b", "c"]


def test_host_ports_are_given_back() -> None:
    port = {"containers": [{"name": "c", "ports": [{"hostPort": 80}, {"hostPort": 81}]}]}
    tables = cluster(nodes=1).pod("a", on="node-0", spec=port).pod("b", on="node-0", spec=port).tables()
    assert sorted(seen(tables).ports[0].values()) == [2, 2]
    tables.remove("Pod", "default", "a")
    assert sorted(seen(tables).ports[0].values()) == [1, 1]
    tables.remove("Pod", "default", "b")
    assert seen(tables).ports == {}


def test_the_load_of_other_schedulers_follows_their_pods() -> None:
    """queues:Q-102"""
    tables = cluster(nodes=1).pod("pod", cpu=3, memory=5, on="node-0", scheduler="other").tables()
    assert seen(tables).foreign_usage == {0: (3000, 5, 0)}
    apply(tables, cluster().pod("pod", cpu=3, memory=5, on="node-0"))
    assert seen(tables).foreign_usage == {}


def test_a_cycle_leaves_the_tables_as_they_were() -> None:
    port = {"containers": [{"name": "c", "ports": [{"hostPort": 80}]}]}
    busy = {"containers": [{"name": "c", "ports": [{"hostPort": 81}]}]}
    built = cluster(nodes=1, gpus=1).queue("q").pod("old", fraction=0.3, on="node-0", device="d", spec=busy)
    built.gang("new", fraction=0.3, spec=port)
    tables = built.tables()
    cycle = open_cycle(seen(tables), built.policy())
    run_actions(cycle)
    assert cycle.state.devices[0]["d"].live == 2
    assert len(cycle.state.ports[0]) == 2
    again = seen(tables)
    assert again.devices[0]["d"].live == 1
    assert len(again.ports[0]) == 1
    assert amounts(again, "pods")["used"] == 1


# groups: cycle:SNP-11, SNP-12, SNP-16, SNP-18, T-41


def backing_off(pools: list[tuple[str, str]], label: str | None = None, backoff: int | None = 1) -> bool:
    """Whether a group whose conditions (transition id, pool) are these takes part in the cycle."""
    built = cluster(nodes=1).queue("q").group("g", minMember=1, schedulingBackoff=backoff).pod("g-0", group="g")
    if label is not None:
        built.sharded(node_pool_key="other-key")
        built.objects[-2]["metadata"]["labels"] = {"other-key": label}
        built.sharded(node_pool=label)
        for raw in built.objects[:2]:
            raw["metadata"].setdefault("labels", {})["other-key"] = label
    conditions = [{"transitionID": number, "nodePool": pool} for number, pool in pools]
    built.objects[-2]["status"] = {"schedulingConditions": conditions}
    return built.schedule().bound("g") == 1


def test_t41_a_group_that_backs_off_from_its_own_pool_is_left_out() -> None:
    """cycle:SNP-11"""
    assert backing_off([])
    assert not backing_off([("1", "default")])
    assert backing_off([("1", "other")])
    assert backing_off([("1", "default")], backoff=None)
    assert backing_off([("1", "default")], backoff=-1)
    assert not backing_off([("1", "default")], backoff=2)


def test_t41_the_condition_with_the_highest_number_counts() -> None:
    """cycle:SNP-11"""
    assert backing_off([("10", "other"), ("9", "default")])
    assert not backing_off([("9", "other"), ("10", "default")])
    assert not backing_off([("x", "other"), ("1", "default")])


def test_t41_the_pool_is_that_of_the_groups_own_label() -> None:
    """cycle:SNP-11"""
    assert not backing_off([("1", "red")], label="red")
    assert backing_off([("1", "default")], label="red")


def test_a_group_that_backs_off_counts_nowhere() -> None:
    """cycle:SNP-18: usage is that of the groups in the cycle."""
    built = (
        cluster(nodes=1, gpus=2).queue("q").group("g", schedulingBackoff=1).pod("g-0", group="g", gpu=1, on="node-0")
    )
    built.objects[-2]["status"] = {"schedulingConditions": [{"transitionID": "1", "nodePool": "default"}]}
    (figures,) = built.schedule().plan.queues
    assert figures.allocated[2] == 0


def priority(class_name: str, *classes: tuple[str, int, bool]) -> int:
    built = cluster().queue("q").group("g", priorityClassName=class_name)
    for name, value, default in classes:
        built.priority_class(name, value, default=default)
    snapshot = seen(built.tables())
    group = snapshot.group_entries["default/g"].group
    assert group is not None
    return snapshot.priority_of(group)


def test_the_priority_is_that_of_the_class_else_of_the_default_class_else_fifty() -> None:
    """cycle:SNP-12"""
    high, usual, last = ("high", 125, False), ("usual", 75, True), ("zz", 80, True)
    assert priority("high", high, usual) == 125
    assert priority("gone", high, usual) == 75
    assert priority("", high, usual) == 75
    assert priority("", high, last, usual) == 75
    assert priority("gone", high) == 50
    assert priority("") == 50


@pytest.mark.parametrize(
    ("said", "value", "preemptible"),
    [
        ("", 99, True),
        ("", 100, False),
        ("preemptible", 125, True),
        ("non-preemptible", 50, False),
        ("semi-preemptible", 50, False),
        ("semi-preemptible", 100, False),
    ],
)
def test_what_is_preemptible(said: str, value: int, preemptible: bool) -> None:
    """cycle:SNP-12, queues:Q-415: the field of the group wins, else the priority decides."""
    snapshot = seen(cluster().group("g", preemptibility=said).tables())
    group = snapshot.group_entries["default/g"].group
    assert group is not None
    assert snapshot.is_preemptible(group, value) is preemptible


def test_a_priority_class_that_changes_counts_at_once() -> None:
    tables = cluster().group("g", priorityClassName="high").priority_class("high", 125).tables()
    group = seen(tables).group_entries["default/g"].group
    assert group is not None
    apply(tables, cluster().priority_class("high", 60))
    assert seen(tables).priority_of(group) == 60
    tables.remove("PriorityClass", "", "high")
    assert seen(tables).priority_of(group) == 50


def test_what_a_scheduler_recorded_on_a_group_is_read_back() -> None:
    """cycle:SNP-16"""
    stamps = {
        "kai.scheduler/stale-podgroup-timestamp": "1970-01-01T00:00:01Z",
        "kai.scheduler/last-start-timestamp": "1970-01-01T00:00:02Z",
        "kai.scheduler/last-eviction-timestamp": "in the morning",
    }
    snapshot = seen(cluster().group("g", annotations=stamps).tables())
    group = snapshot.group_entries["default/g"].group
    assert group is not None
    assert (group.stale_since_ns, group.last_start_ns, group.last_eviction_ns) == (10**9, 2 * 10**9, None)
    assert [problem.field for problem in snapshot.problems] == [
        "metadata.annotations[kai.scheduler/last-eviction-timestamp]"
    ]


def test_usage_and_requests_of_a_group_follow_its_pods() -> None:
    """cycle:SNP-18"""
    built = cluster(nodes=1, gpus=4).group("g")
    built.pod("runs", group="g", cpu=1, memory=7, gpu=1, on="node-0").pod("waits", group="g", cpu=2, memory=9, gpu=2)
    tables = built.pod("goes", group="g", cpu=4, gpu=1, on="node-0", deleted=1).tables()
    entry = seen(tables).group_entries["default/g"]
    assert (entry.allocated, entry.requested, entry.pending) == ([1000, 7, 100], [2000, 9, 200], 1)
    apply(tables, cluster().pod("waits", group="g", cpu=2, memory=9, gpu=2, on="node-0"))
    entry = seen(tables).group_entries["default/g"]
    assert (entry.allocated, entry.requested, entry.pending) == ([3000, 16, 300], [0, 0, 0], 0)
    apply(tables, cluster().pod("runs", group="other", cpu=1, memory=7, gpu=1, on="node-0"))
    assert seen(tables).group_entries["default/g"].allocated == [2000, 9, 200]
    for pod in ("runs", "waits", "goes"):
        tables.remove("Pod", "default", pod)
    assert set(seen(tables).group_entries) == {"default/g"}
    assert seen(tables).group_entries["default/g"].allocated == [0, 0, 0]


# Queues and problems: cycle:SNP-10


def test_the_forest_is_rebuilt_only_when_a_queue_changes() -> None:
    """cycle:SNP-10"""
    tables = cluster(nodes=1).queue("q").queue("child", parent="q").tables()
    tree = seen(tables).tree
    apply(tables, cluster(nodes=1, cpu=3).pod("pod"))
    tables.remove("Queue", "", "unknown")
    assert seen(tables).tree is tree
    tables.remove("Queue", "", "q")
    assert seen(tables).tree.names == []
    apply(tables, cluster().queue("q"))
    assert sorted(seen(tables).tree.names) == ["child", "q"]


def test_the_synthetic_parent_does_not_depend_on_when_the_forest_was_built() -> None:
    """cycle:SNP-10, queues:Q-62"""
    built = cluster().queue("old", parent="gone", age=10).queue("young", parent="gone", age=-10)
    early = built.sharded(full_hierarchy=False).tables().snapshot(NOW_NS)
    late = built.tables().snapshot(NOW_NS + 10**12)
    assert early.tree.names == late.tree.names
    assert sorted(early.tree.names) == ["default", "old", "young"]


def test_a_problem_is_reported_as_long_as_it_exists() -> None:
    broken = (
        cluster()
        .node("n", cpu="lots")
        .pod("p", cpu="much")
        .group("g", stalenessGracePeriod="long")
        .queue("q", parent="gone")
    )
    tables = broken.tables()
    subjects = [problem.subject for problem in seen(tables).problems]
    assert subjects == ["Node/n", "Pod/default/p", "PodGroup/default/g", "Queue/q"]
    apply(tables, cluster().node("n").pod("p").group("g").queue("q"))
    assert seen(tables).problems == ()
    apply(tables, broken)
    for kind, namespace, name in (("Node", "", "n"), ("Pod", "default", "p"), ("PodGroup", "default", "g")):
        tables.remove(kind, namespace, name)
    tables.remove("Queue", "", "q")
    assert seen(tables).problems == ()


def test_an_unknown_object_may_be_removed() -> None:
    tables = cluster(nodes=1).tables()
    for kind in (
        "Pod",
        "Node",
        "PodGroup",
        "Queue",
        "BindRequest",
        "PriorityClass",
        "ConfigMap",
        "Namespace",
        "Topology",
    ):
        tables.remove(kind, "default", "unknown")
    tables.remove("Event", "default", "unknown")
    assert seen(tables).nodes.names == ["node-0"]


def test_config_maps_and_namespaces_come_and_go() -> None:
    tables = cluster().config_map("settings", "team").namespace("team", tenant="red").tables()
    assert seen(tables).config_maps == {"team/settings"}
    assert seen(tables).namespaces == {"team": {"tenant": "red"}}
    tables.remove("ConfigMap", "team", "settings")
    tables.remove("Namespace", "", "team")
    assert (seen(tables).config_maps, seen(tables).namespaces) == (set(), {})


def test_the_cache_per_node_table_is_bounded() -> None:
    nodes = seen(cluster(nodes=1).tables()).nodes
    for number in range(10_000):
        assert nodes.remember(("selector", number), lambda number=number: [number]) == [number]  # type: ignore[misc]
    assert len(nodes.memo) <= 4096


def test_unused_cache_entries_are_dropped_and_used_ones_are_not() -> None:
    tables = cluster(nodes=1, gpus=8).gang("stays", pods=1, gpu=1).tables()
    kept = seen(tables).task_records["default/stays-0"].shape
    for number in range(6000):
        # No two of them request the same.
        apply(tables, Cluster().group("comes").pod("comes", group="comes", cpu=f"{1000 + number}m"))
        tables.remove("Pod", "default", "comes")
        tables.remove("PodGroup", "default", "comes")
        if number % 100 == 0:
            seen(tables)
    snapshot = seen(tables)
    assert len(snapshot.shapes.shapes) < 5000
    assert len(snapshot.vectors) < 5000
    assert snapshot.task_records["default/stays-0"].shape is kept
    apply(tables, cluster().gang("equal", pods=1, gpu=1))
    assert seen(tables).task_records["default/equal-0"].shape is kept


def test_groups_that_come_and_go_leave_nothing_behind_where_no_snapshot_is_taken() -> None:
    tables = cluster(nodes=1, gpus=8).gang("stays", pods=1, gpu=1).tables()
    tables.refresh_indexes()
    before = entry_counts(tables)
    for number in range(3):
        apply(tables, Cluster().gang(f"g{number}", pods=1, gpu=1))
        tables.remove("Pod", "default", f"g{number}-0")
        tables.remove("PodGroup", "default", f"g{number}")
    tables.refresh_indexes()
    assert entry_counts(tables) == before
