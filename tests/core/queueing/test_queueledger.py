"""The ledger when a cycle begins (queues:7), which queues it has (queues:5), and the derived values of 19.3."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from pykai.core.model.status import TaskStatus
from pykai.core.queueing.queueledger import QueueLedger
from pykai.core.report.decisions import NoQueue, NotLeafQueue, QueueFigures
from tests.core.builders import Cluster, Raw, Result, cluster

GB = 10**9


def total(built: Cluster) -> tuple[float, float, float]:
    """CPU milli, memory bytes, GPUs the cycle has to divide."""
    cpu, memory, hundredths = built.cycle().state.ledger.total
    return cpu, memory, hundredths / 100


def books(result: Result, queue: str = "q") -> QueueFigures:
    (found,) = (figures for figures in result.plan.queues if figures.name == queue)
    return found


def opened(built: Cluster, queue: str = "q") -> QueueFigures:
    """The figures of a queue before anything was placed."""
    return books(built.with_policy(actions=()).schedule(), queue)


def small_node(built: Cluster, **how: Any) -> Cluster:
    return built.node(cpu=8, memory="10G", **how)


# The cases of section 19.3


# queues:T1 to T8


def test_t1_the_load_of_other_schedulers_is_taken_off() -> None:
    built = small_node(cluster()).pod("foreign", cpu=1, memory="1G", on="node-0", scheduler="default-scheduler")
    built.queue("q").group("own").pod("own", group="own", cpu=2, memory=0, on="node-0")
    assert total(built) == (7000, 9 * GB, 0)


@pytest.mark.parametrize("app", ["kai-resource-reservation", "kai-scale-adjust"])
def test_t2_reservation_and_scaling_pods_are_not_foreign_load(app: str) -> None:
    built = small_node(cluster()).pod("foreign", cpu=1, memory="1G", on="node-0", scheduler="default-scheduler")
    built.pod("helper", cpu=1, memory=0, on="node-0", scheduler="default-scheduler", labels={"app": app})
    assert total(built) == (7000, 9 * GB, 0)


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
def test_t3_foreign_pods_that_hold_nothing_are_not_taken_off(phase: str) -> None:
    node = "" if phase == "Pending" else "node-0"
    built = small_node(cluster()).pod("foreign", cpu=1, on=node, phase=phase, scheduler="default-scheduler")
    assert total(built)[0] == 8000


def test_t3_a_foreign_pod_that_was_deleted_is_not_taken_off() -> None:
    built = small_node(cluster()).pod("foreign", cpu=1, on="node-0", scheduler="default-scheduler")
    assert total(built.assume("foreign", TaskStatus.DELETED))[0] == 8000


def test_t4_a_slice_counts_as_many_gpus_as_its_profile() -> None:
    assert total(cluster().node(extra={"nvidia.com/mig-1g.5gb": 1}))[2] == 1
    assert total(cluster().node(extra={"nvidia.com/mig-3g.20gb": 2}))[2] == 6


def test_t5_with_restricted_scheduling_gpus_count_on_gpu_workers_only() -> None:
    built = cluster().sharded(restrict_nodes=True)
    built.node("a", gpus=4, labels={"node-role.kubernetes.io/cpu-worker": ""})
    assert total(built)[2] == 0
    assert total(built.node("b", gpus=2, labels={"node-role.kubernetes.io/gpu-worker": ""}))[2] == 2


@pytest.mark.parametrize(
    ("quota", "share", "limit", "expected"),
    [(2000, 1000, 3000, 2000), (1000, 1500, 600, 600), (-1, 0, 1000, 1000), (-1, 0, -1, inf), (500, 1500, -1, 1500)],
)
def test_t6_allocatable_is_the_larger_of_quota_and_share_below_the_limit(
    quota: float, share: float, limit: float, expected: float
) -> None:
    assert ledger_of(cpu=(quota, limit, 1), share=share).allocatable[0][0] == expected


def ledger_of(
    *,
    cpu: tuple[float, float, float] = (0, -1, 1),
    gpu: tuple[float, float, float] = (0, -1, 1),
    share: float = 0,
    allocated: tuple[float, float, float] = (0, 0, 0),
    whole: tuple[float, float, float] = (0, 0, 0),
) -> QueueLedger:
    """The ledger of one queue in ledger units (GPU hundredths), with a CPU share and memory of no concern."""
    built = cluster().queue("q", cpu=cpu, quota=gpu[0], limit=gpu[1], weight=gpu[2])
    tree = built.tables().snapshot(0).tree
    return QueueLedger(tree, list(whole), [list(allocated)], [[0.0] * 3], [[0.0] * 3], [[share, 0.0, 0.0]])


def dominant_share(books: QueueLedger) -> float:
    key: tuple[Any, ...] = books.queue_order_key(0, (0, 0, 0))
    return float(key[-1])


def test_t7_a_queue_without_a_share_ranks_by_a_thousandfold() -> None:
    assert dominant_share(ledger_of(cpu=(0, 0, 1), allocated=(500, 0, 0))) == 500_000


def test_t8_an_unlimited_quota_is_measured_against_the_cluster() -> None:
    books = ledger_of(
        cpu=(10_000, -1, 1), gpu=(-1, -1, 1), allocated=(500, 0, 70_000), whole=(10_000, 0, 200_000), share=10_000
    )
    assert dominant_share(books) == 0.35


@pytest.mark.parametrize(("has", "share"), [((500, 0, 0), 0.05), ((0, 500, 0), 0.025), ((0, 0, 500), 0.5)])
def test_t8_every_unlimited_resource_is_measured_against_the_cluster(
    has: tuple[float, float, float], share: float
) -> None:
    """queues:1.3, 10.1: and a queue that may have some of everything breaks rule 4 with nothing."""
    books = QueueLedger(
        cluster().queue("q", cpu=(-1, -1, 1), memory=(-1, -1, 1), quota=-1, limit=-1).tables().snapshot(0).tree,
        [10_000, 20_000, 1000],
        [list(has)],
        [[0.0] * 3],
        [[0.0] * 3],
        [[0.0] * 3],
    )
    assert dominant_share(books) == share
    assert books.queue_order_key(0, (0, 0, 0))[3] is False


# queues: totals


def test_q100_the_total_is_the_sum_of_the_nodes() -> None:
    assert total(cluster(nodes=3, cpu=2, memory="1G", gpus=4)) == (6000, 3 * GB, 12)


@pytest.mark.parametrize(
    "how",
    [
        {"unschedulable": True},
        {"conditions": {"Ready": "False"}},
        {"conditions": {"Ready": "Unknown"}},
        {"conditions": {"MemoryPressure": "True"}},
        {"conditions": {"DiskPressure": "True"}},
        {"conditions": {"PIDPressure": "Unknown"}},
        {"conditions": {"NetworkUnavailable": "True"}},
    ],
    ids=lambda how: str(how),
)
def test_q100_a_node_that_is_not_ready_contributes_nothing(how: Raw) -> None:
    assert total(cluster(nodes=1, gpus=2).node(gpus=4, **how))[2] == 2


def test_q100_conditions_that_are_missing_or_fine_do_not_disqualify() -> None:
    fine = dict.fromkeys(("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"), "False")
    built = cluster().node(gpus=1, conditions=fine)
    bare = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "bare"}}
    assert total(built.add(bare | {"status": {"allocatable": {"nvidia.com/gpu": "2"}}}))[2] == 3


def test_q101_gpus_of_all_vendors_and_slices_are_one_dimension() -> None:
    built = cluster().node(gpus=1).node(extra={"amd.com/gpu": 2}).node(extra={"intel.com/gpu": 3})
    assert total(built.node(extra={"nvidia.com/mig-2g.10gb": 2}))[2] == 1 + 2 + 3 + 4


def test_q101_slices_of_an_unknown_profile_count_nothing() -> None:
    assert total(cluster().node(extra={"nvidia.com/mig-whatever": 7}))[2] == 0


def test_q101_with_restricted_scheduling_a_node_of_neither_kind_is_not_there() -> None:
    built = cluster(nodes=1, gpus=4, cpu=4).sharded(restrict_nodes=True)
    assert total(built) == (0, 0, 0)


def test_q102_foreign_gpus_are_taken_off() -> None:
    built = cluster(nodes=1, gpus=4).pod("foreign", gpu=3, on="node-0", scheduler="default-scheduler")
    assert total(built)[2] == 1


@pytest.mark.parametrize("gone_s", [1, 500])
def test_q102_foreign_pods_that_terminate_still_count(gone_s: float) -> None:
    built = cluster(nodes=1, gpus=4).pod("f", gpu=3, on="node-0", deleted=gone_s, scheduler="default-scheduler")
    assert total(built)[2] == 1


def test_q102_load_on_a_node_that_is_not_ready_takes_nothing_off_the_others() -> None:
    built = cluster(nodes=1, gpus=4).node(gpus=4, unschedulable=True)
    assert total(built.pod("foreign", gpu=3, on="node-1", scheduler="default-scheduler"))[2] == 4


def test_q102_an_overloaded_node_takes_nothing_off_the_others() -> None:
    """queues:7, Do better: contributions do not go below zero."""
    built = cluster(nodes=2, gpus=2, cpu=4)
    built.pod("foreign", gpu=5, cpu=10, on="node-0", scheduler="default-scheduler")
    assert total(built)[0] == 4000
    assert total(built)[2] == 2


# queues: what queues have and want


@pytest.mark.parametrize(
    "status",
    [TaskStatus.ALLOCATED, TaskStatus.BINDING, TaskStatus.BOUND, TaskStatus.RUNNING],
    ids=lambda status: status.name,
)
def test_q103_pods_that_hold_resources_count_as_allocated(status: TaskStatus) -> None:
    built = cluster(nodes=1, gpus=8).queue("top").queue("q", parent="top").group("job", preemptibility="preemptible")
    built.pod("p", group="job", gpu=2, cpu=3, memory="1G", on="node-0").assume("p", status)
    for queue in ("q", "top"):
        figures = opened(built, queue)
        assert figures.allocated == (3000, GB, 2)
        assert figures.request == (3000, GB, 2)
        assert figures.allocated_non_preemptible == (0, 0, 0)


def test_q103_what_is_not_preemptible_is_counted_apart_too() -> None:
    built = cluster(nodes=1, gpus=8).queue("top").queue("q", parent="top")
    built.group("a", preemptibility="non-preemptible").pod("a", group="a", gpu=2, memory=0, on="node-0")
    built.group("b", preemptibility="preemptible").pod("b", group="b", gpu=3, memory=0, on="node-0")
    for queue in ("q", "top"):
        figures = opened(built, queue)
        assert figures.allocated == (2000, 0, 5)
        assert figures.allocated_non_preemptible == (1000, 0, 2)


def test_q103_queues_have_what_all_queues_below_them_have() -> None:
    built = cluster(nodes=1, gpus=8).queue("top").queue("a", parent="top").queue("b", parent="top").queue("alone")
    for number, queue in enumerate(("a", "b", "alone"), start=1):
        built.group(queue, queue=queue).pod(queue, group=queue, gpu=number, on="node-0")
    result = built.with_policy(actions=()).schedule()
    assert [books(result, queue).allocated[2] for queue in ("a", "b", "top", "alone")] == [1, 2, 3, 3]


def test_q104_every_pending_pod_is_requested_not_only_the_minimum() -> None:
    built = cluster(nodes=1, gpus=8).queue("top").queue("q", parent="top")
    built.gang("job", 5, min=2, gpu=2, cpu=1, memory="1G")
    for queue in ("q", "top"):
        figures = opened(built, queue)
        assert figures.request == (5000, 5 * GB, 10)
        assert figures.allocated == (0, 0, 0)


def test_q104_a_request_is_allocated_plus_pending() -> None:
    built = cluster(nodes=1, gpus=8).queue("q").group("job", minMember=1)
    built.pod("runs", group="job", gpu=2, on="node-0").pod("waits", group="job", gpu=3)
    assert opened(built).request[2] == 5


@pytest.mark.parametrize(
    "status",
    [
        TaskStatus.GATED,
        TaskStatus.RELEASING,
        TaskStatus.STUCK_IN_RELEASING,
        TaskStatus.PIPELINED,
        TaskStatus.SUCCEEDED,
        TaskStatus.FAILED,
        TaskStatus.DELETED,
        TaskStatus.UNKNOWN,
    ],
    ids=lambda status: status.name,
)
def test_q105_other_pods_count_nowhere(status: TaskStatus) -> None:
    built = cluster(nodes=1, gpus=8).queue("q").group("job")
    built.pod("p", group="job", gpu=2, on="" if status is TaskStatus.GATED else "node-0").assume("p", status)
    figures = opened(built)
    assert figures.allocated == (0, 0, 0)
    assert figures.request == (0, 0, 0)


@pytest.mark.parametrize(
    ("pod", "gpus"),
    [
        ({"gpu": 3}, 3.0),
        ({"fraction": 0.5, "device": "d"}, 0.5),
        ({"fraction": "0.333", "device": "d"}, 0.33),
        ({"fraction": 0.25, "devices": 3, "device": ("d", "e", "f")}, 0.75),
        ({"gpu_memory": 333, "device": "d"}, 0.34),
        ({"gpu_memory": 250, "devices": 2, "device": ("d", "e")}, 0.5),
        ({"extra": {"nvidia.com/mig-3g.20gb": 2}}, 6.0),
    ],
    ids=lambda value: str(value),
)
def test_q106_accepted_gpus_are_what_the_pod_has_on_its_node(pod: Raw, gpus: float) -> None:
    built = cluster().node(gpus=8, gpu_memory=1000, extra={"nvidia.com/mig-3g.20gb": 4}).queue("q").group("job")
    assert opened(built.pod("p", group="job", on="node-0", **pod)).allocated[2] == gpus


def test_q106_the_memory_of_the_actual_node_counts() -> None:
    built = cluster().node(gpus=1, gpu_memory=1000).node(gpus=1, gpu_memory=4000).queue("q").group("job")
    assert opened(built.pod("p", group="job", gpu_memory=1000, on="node-1", device="d")).allocated[2] == 0.25


def test_q107_gpu_memory_that_waits_is_measured_by_the_smallest_gpu() -> None:
    built = cluster().node(gpus=1, gpu_memory=4000).node(gpus=1, gpu_memory=2050).queue("top").queue("q", parent="top")
    built.gang("job", 2, gpu_memory=500, devices=3)
    for queue in ("q", "top"):
        assert opened(built, queue).request[2] == 2 * 3 * 500 / 2000


def test_q107_a_gpu_of_unknown_memory_is_not_the_smallest() -> None:
    built = cluster().node(gpus=1, gpu_memory=None).node(gpus=1, gpu_memory=1000).queue("q").gang("job", gpu_memory=500)
    assert opened(built).request[2] == 0.5


def test_q107_without_a_gpu_of_known_memory_nothing_is_requested() -> None:
    assert opened(cluster(nodes=1, gpus=1, gpu_memory=None).queue("q").gang("job", gpu_memory=500)).request[2] == 0


# queues:Q-108: during the cycle


def test_q108_placements_count_along_the_chain_and_nothing_else_moves() -> None:
    built = cluster(nodes=1, gpus=8).queue("top").queue("q", parent="top")
    built.gang("job", 2, gpu=2, preemptible=False).gang("free", gpu=1)
    for queue in ("q", "top"):
        before, after = opened(built, queue), books(built.with_policy(actions=("allocate",)).schedule(), queue)
        assert after.allocated[2] == 5
        assert after.allocated_non_preemptible[2] == 4
        assert (after.request, after.fair_share) == (before.request, before.fair_share)


def test_q108_pipelined_pods_count_as_allocated() -> None:
    built = cluster(nodes=1, gpus=2).queue("q").group("leaving")
    built.pod("leaving", group="leaving", gpu=2, on="node-0", deleted=1)
    result = built.gang("job", gpu=2).schedule()
    assert result.pipelined("job") == 1
    assert books(result).allocated[2] == 2


def test_q108_a_shared_request_counts_what_it_costs_on_its_node() -> None:
    built = cluster().node(gpus=1, gpu_memory=1000).queue("q").gang("job", gpu_memory=335)
    assert books(built.schedule()).allocated[2] == 0.34


# queues:5: which queues there are

POOL = "kai.scheduler/node-pool"


def pools() -> Cluster:
    built = cluster().node("mine", gpus=1).node("theirs", gpus=2, labels={POOL: "b"})
    return built.queue("q").queue("q-b", labels={POOL: "b"}).gang("job", gpu=1).gang("job-b", gpu=1, queue="q-b")


def names_of(built: Cluster) -> list[str]:
    return [queue.name for queue in built.schedule().plan.queues]


def test_q60_without_a_pool_only_objects_without_the_label_are_seen() -> None:
    assert names_of(pools()) == ["q"]
    assert total(pools())[2] == 1


def test_q60_with_a_pool_only_objects_of_that_pool_are_seen() -> None:
    assert names_of(pools().sharded(node_pool="b")) == ["q-b"]
    assert total(pools().sharded(node_pool="b"))[2] == 2


def test_q60_an_empty_key_switches_the_filter_off() -> None:
    assert names_of(pools().sharded(node_pool_key="")) == ["q", "q-b"]


def departments() -> Cluster:
    """A department that may run nothing, and its queue that may."""
    built = cluster(nodes=1, gpus=4).queue("department", limit=0).queue("q", parent="department").queue("alone")
    return built.gang("job", gpu=1).gang("lonely", queue="alone", gpu=1)


def test_q61_by_default_the_whole_forest_counts() -> None:
    result = departments().schedule()
    assert result.bound("job") == 0
    assert books(result, "q").parent == "department"
    assert books(result, "alone").parent == ""


def test_q62_without_the_hierarchy_only_queues_with_a_parent_count_below_a_synthetic_one() -> None:
    """queues:S3."""
    result = departments().sharded(full_hierarchy=False).schedule()
    assert result.bound("job") == 1, "the limit of the department is ignored"
    assert sorted(queue.name for queue in result.plan.queues) == ["default", "q"]
    assert books(result, "q").parent == "default"
    assert books(result, "default").quota == (inf, inf, inf)
    assert books(result, "default").limit == (inf, inf, inf)


def test_q62_workloads_of_queues_without_a_parent_find_no_queue_then() -> None:
    record = departments().sharded(full_hierarchy=False).schedule().unscheduled("lonely")
    assert record is not None
    (refusal,) = record.refusals
    assert isinstance(refusal, NoQueue)
    assert (refusal.queue, refusal.fault.partition(",")[0]) == ("alone", "it has no parent")


def test_q63_a_child_of_a_missing_parent_goes_with_everything_below_it() -> None:
    """queues:S2."""
    built = cluster(nodes=1, gpus=4).queue("q").queue("orphan", parent="gone").queue("grandchild", parent="orphan")
    assert names_of(built) == ["q"]


def test_q64_a_queue_whose_children_are_all_gone_is_a_leaf() -> None:
    """The child is of another pool."""
    built = cluster(nodes=1, gpus=1).queue("q").queue("child", parent="q", labels={POOL: "b"}).gang("job", gpu=1)
    assert built.schedule().bound("job") == 1


def test_q65_a_group_whose_queue_does_not_exist_has_a_reason() -> None:
    result = cluster(nodes=1, gpus=1).queue("q").gang("job", gpu=1, queue="gone").schedule()
    assert result.bound("job") == 0
    assert result.why("job") == "QueueDoesNotExist: Queue 'gone' does not exist."


def test_q65_its_priority_is_unset_and_it_counts_as_non_preemptible() -> None:
    built = cluster().queue("q").priority_class("p", 75).gang("job", queue="gone", priority="p", preemptible=None)
    (gang,) = built.cycle().gangs.waiting()
    assert (gang.priority, gang.preemptible) == (0, False)


def test_q66_a_group_in_an_inner_queue_is_skipped_with_a_reason() -> None:
    """queues:5, Do better."""
    result = cluster(nodes=1, gpus=1).queue("top").queue("q", parent="top").gang("job", gpu=1, queue="top").schedule()
    assert result.bound("job") == 0
    record = result.unscheduled("job")
    assert record is not None
    assert record.refusals == (NotLeafQueue("top"),)
    assert result.why("job") == (
        "QueueDoesNotExist: Queue 'top' is not a leaf queue; workloads run in leaf queues only."
    )


def test_q66_pending_work_of_an_inner_queue_is_not_requested_but_running_work_counts() -> None:
    """queues:5, Do better: demand that can never be served earns no share."""
    built = cluster(nodes=1, gpus=4).queue("top").queue("q", parent="top").group("job", queue="top")
    built.pod("runs", group="job", gpu=1, on="node-0").pod("waits", group="job", gpu=2)
    figures = opened(built, "top")
    assert (figures.allocated[2], figures.request[2]) == (1, 1)
