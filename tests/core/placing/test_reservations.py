"""GPUs of which there is nothing but the reservation pod: shortly after the last tenant has ended, its GPU is not
idle yet, unlike in upstream (gpu:S-2; docs/adr/0014-lone-reservations.md).
"""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api.decode import WireObject, decode_object
from pykai.core.cycle.gangs import Gang, LeafState
from pykai.core.cycle.memory import CycleMemory
from pykai.core.cycle.validate import StateMismatch, check_state
from pykai.core.model.sharedgpus import FREE_DEVICE, DeviceUse
from pykai.core.model.status import TaskStatus
from pykai.core.opencycle import Cycle, open_cycle
from pykai.core.placing.gpus import choose_devices
from pykai.core.schedule import schedule
from tests.core.builders import NOW_NS, Cluster, cluster, placement_request_of
from tests.core.model.test_sharedgpus import Books, books

APP = {"app": "kai-resource-reservation"}


def node(gpus: int, **how: Any) -> Cluster:
    """One node and a queue without bounds."""
    return cluster().node(gpus=gpus, **how).queue("q")


def reserved(of: Cluster, device: str = "g", name: str = "", gpu: int = 1, **how: Any) -> Cluster:
    """A reservation pod, as the binder makes it."""
    labels = APP | ({"runai-gpu-group": device} if device else {})
    pod = {"on": "node-0", "gpu": gpu, "cpu": 0, "memory": 0, "scheduler": "", "labels": labels, **how}
    return of.pod(name or f"held-{device}", **pod)


def lone(gpus: int = 1, *devices: str, **how: Any) -> Cluster:
    """A node of which some GPUs have only their reservation pods left; their tenants have run to the end."""
    built = node(gpus, **how)
    for device in devices or ("g",):
        built.pod(f"done-{device}", on="node-0", fraction=0.5, device=device, phase="Succeeded")
        reserved(built, device)
    return built


def decoded(of: Cluster, pod: str) -> WireObject:
    """A pod of a cluster as an object."""
    return next(decode_object(raw) for raw in of.objects if raw["metadata"]["name"] == pod)


def figures(of: Cluster) -> tuple[int, int]:
    """Whole GPUs releasing and idle."""
    return books(of).gpus()


# Accounting.


def test_the_gpu_of_a_reservation_without_tenants_is_being_released() -> None:
    assert figures(lone(2)) == (1, 1)
    assert figures(lone(2, "g", "h")) == (2, 0)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_tenant_does_not_count(phase: str) -> None:
    ended = reserved(node(1)).pod("t", on="node-0", fraction=0.5, device="g", phase=phase)
    assert figures(ended) == (1, 0)


@pytest.mark.parametrize(("deleted", "expected"), [(None, (0, 1)), (0.0, (1, 1))])
def test_beside_a_tenant_the_reservation_costs_nothing(deleted: float | None, expected: tuple[int, int]) -> None:
    shared = reserved(node(2)).pod("t", on="node-0", fraction=0.5, device="g", deleted=deleted)
    assert figures(shared) == expected
    shared.objects.reverse()
    assert figures(shared) == expected


def test_a_bind_request_makes_a_tenant() -> None:
    binding = reserved(node(2)).pod("t", fraction=0.5).bind_request("t", "node-0", devices=("g",))
    assert figures(binding) == (0, 1)


def test_a_tenant_on_another_node_does_not_count() -> None:
    apart = reserved(node(1)).node("node-1", gpus=1).pod("t", on="node-1", fraction=0.5, device="g")
    snapshot = apart.tables().snapshot(NOW_NS)
    assert [Books(snapshot, row).gpus() for row in (0, 1)] == [(1, 0), (0, 0)]


@pytest.mark.parametrize("how", [{"deleted": 0.0}, {"deleted": 600.0}, {"phase": "Unknown"}, {"phase": "Pending"}])
def test_a_reservation_in_any_state_is_releasing(how: dict[str, Any]) -> None:
    assert figures(reserved(node(2), **how)) == (1, 1)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_reservation_holds_nothing(phase: str) -> None:
    assert figures(reserved(node(2), phase=phase)) == (0, 2)


def test_a_reservation_without_a_group_holds_its_request() -> None:
    assert figures(reserved(node(4), "")) == (1, 3)
    assert figures(reserved(node(4), "", gpu=3)) == (3, 1)


def test_gpus_beyond_those_of_the_gpu_group_are_not_reserved() -> None:
    """A second reservation pod of a group, or one that requests two: the kubelet has allocated them."""
    tenants = node(4).pod("t", on="node-0", fraction=0.5, device="g")
    assert figures(reserved(reserved(tenants, name="a"), name="b")) == (1, 2)
    assert figures(reserved(node(4).pod("t", on="node-0", fraction=0.5, device="g"), gpu=2)) == (1, 2)


def test_a_reservation_without_a_gpu_reserves_none() -> None:
    assert figures(reserved(node(2), gpu=0)) == (0, 2)
    assert figures(reserved(node(0))) == (0, 0)


def test_work_of_other_schedulers_that_is_labelled_as_a_reservation_pays_and_can_be_evicted() -> None:
    built = cluster(nodes=1, gpus=2, cpu=2).queue("poor", quota=0).queue("rich", quota=2).group("g", queue="poor")
    reserved(built, group="g", cpu=2, scheduler="default-scheduler")
    result = built.gang("job", gpu=1, cpu=2, queue="rich").with_actions("allocate", "reclaim").schedule()
    assert list(result.evictions) == ["default/held-g"]


# Which pods may use it.


def test_a_whole_gpu_request_waits_for_an_unused_reservation() -> None:
    """Found by a soak: pods were bound to GPUs the kubelet had given to reservation pods."""
    result = lone(8, "g", "h").gang("job", pods=8, min=1, gpu=1).schedule()
    assert result.bound("job") == 6
    assert lone(8, "g", "h").gang("job", pods=8, gpu=1).schedule().pipelined("job") == 8


def test_when_the_reservation_is_gone_its_gpu_is_idle() -> None:
    built = lone().gang("job", gpu=1)
    tables, policy, memory = built.tables(), built.policy(), CycleMemory()
    waiting = schedule(tables.snapshot(NOW_NS), policy, memory)
    assert [item.pod for item in waiting.nominations] == ["job-0"]
    tables.remove("Pod", "default", "held-g")
    assert [bind.pod for bind in schedule(tables.snapshot(NOW_NS), policy, memory).binds] == ["job-0"]


def test_a_share_joins_an_unused_reservation_at_once() -> None:
    """Its reservation pod is there; a GPU that is idle stays whole."""
    for gpus in (1, 2):
        result = lone(gpus).gang("job", fraction=0.5).schedule()
        assert (result.bound("job"), result.devices_of("job-0")) == (1, ("g",))


def test_pods_that_join_a_reservation_share_it() -> None:
    result = lone(1).gang("job", pods=3, min=1, fraction=0.5).schedule()
    assert [result.devices_of(pod) for pod in result.bound_pods("job")] == [("g",), ("g",)]


def test_a_share_prefers_a_gpu_in_use() -> None:
    shared = reserved(lone(3), "used").pod("t", on="node-0", fraction=0.5, device="used")
    assert shared.gang("job", fraction=0.5).schedule().devices_of("job-0") == ("used",)


def test_several_reservations_are_joined_in_the_order_of_their_ids() -> None:
    result = lone(3, "b", "c", "a").gang("job", fraction=0.5, devices=2).schedule()
    assert result.devices_of("job-0") == ("a", "b")


def test_a_terminating_reservation_is_not_joined() -> None:
    """The binder would have to wait until it is gone and make another."""
    result = reserved(node(1), deleted=0).gang("job", fraction=0.5).schedule()
    assert (result.bound("job"), result.pipelined("job")) == (0, 1)
    assert result.devices_of("job-0") != ("g",)


def test_joining_needs_no_slot_for_another_reservation_pod() -> None:
    assert lone(1, pods=2).gang("job", fraction=0.5).schedule().bound("job") == 1


@pytest.mark.parametrize(("devices", "bound"), [(2, 1), (3, 0)])
def test_a_share_of_several_gpus_joins_a_reservation_and_takes_idle_ones(devices: int, bound: int) -> None:
    """It is counted once: as the one to join, not as a whole GPU besides."""
    result = lone(2).gang("job", fraction=0.5, devices=devices).schedule()
    assert (result.bound("job"), result.node_of("job-0") != "") == (bound, bool(bound))


def test_a_pipelined_reservation_is_not_joined() -> None:
    result = lone(1).gang("whole", gpu=1, age=100).gang("share", fraction=0.5, age=50).schedule()
    assert (result.pipelined("whole"), result.node_of("share-0")) == (1, "")
    state = result.cycle.state
    assert choose_devices(state, placement_request_of(result.cycle, "share-0"), 0, pipeline_only=False) is None


def test_a_share_that_must_wait_is_pipelined_to_the_reservation() -> None:
    tight = lone(1, cpu=1).pod("ends", on="node-0", cpu=1, deleted=0)
    result = tight.gang("job", fraction=0.5, cpu=1, age=100).gang("whole", gpu=1, cpu=0, age=50).schedule()
    assert (result.pipelined("job"), result.devices_of("job-0")) == (1, ("g",))
    assert result.node_of("whole-0") == ""


def test_beside_a_pipelined_tenant_other_shares_start() -> None:
    tight = lone(1, cpu=1).pod("ends", on="node-0", cpu=1, deleted=0)
    tight.gang("waits", fraction=0.5, cpu=1, age=100).gang("starts", fraction=0.5, cpu=0, age=50)
    result = tight.schedule()
    assert (result.pipelined("waits"), result.devices_of("waits-0")) == (1, ("g",))
    assert (result.bound("starts"), result.devices_of("starts-0")) == (1, ("g",))


def test_a_node_whose_reservation_can_be_joined_counts_as_available() -> None:
    """nodeavailability: the other node has a GPU that is being released."""
    ending = lone(1).node("node-a", gpus=1).pod("ends", on="node-a", gpu=1, deleted=0)
    assert ending.gang("job", fraction=0.5).schedule().node_of("job-0") == "node-0"


SPREADING = {
    "tiers": [{"plugins": [{"name": name} for name in ("predicates", "proportion", "nodeavailability", "gpuspread")]}]
}


def test_spreading_does_not_join_a_reservation() -> None:
    assert lone(2).configured(SPREADING).gang("job", fraction=0.5).schedule().devices_of("job-0") == ("g",)
    shared = reserved(lone(2), "used").pod("t", on="node-0", fraction=0.5, device="used").configured(SPREADING)
    result = shared.gang("job", fraction=0.5, devices=2).schedule()
    assert (result.bound("job"), result.devices_of("job-0")) == (1, ("g", "used"))


# Inside a cycle.


def member(cycle: Cycle, key: str) -> tuple[Gang, LeafState]:
    """The gang of a pod, and its leaf."""
    task = cycle.context.snapshot.task_records[key]
    gang = cycle.gangs.gang(cycle.context.snapshot.group_entries[task.group_key])
    return gang, gang.leaves[0]


def device_of(cycle: Cycle) -> DeviceUse:
    """The shared GPU g of the only node."""
    return cycle.state.devices.get(0, {}).get("g", FREE_DEVICE)


def test_the_last_tenant_is_evicted_and_its_gpu_pipelined() -> None:
    built = cluster(nodes=1, gpus=1).queue("poor", quota=0).queue("rich", quota=1)
    reserved(built).gang("old", pods=1, fraction=0.5, queue="poor", on="node-0", device="g")
    result = built.gang("job", gpu=1, queue="rich").with_actions("allocate", "reclaim").schedule()
    assert (result.evicted("old"), result.pipelined("job")) == (1, 1)


def test_in_a_trial_the_reservation_ends_with_the_last_tenant() -> None:
    built = reserved(node(1)).gang("old", pods=2, fraction=0.5, on="node-0", device="g").gang("job", gpu=1)
    cycle = open_cycle(built.tables().snapshot(NOW_NS), built.policy())
    state = cycle.state
    before, whole = state.columns.copy(), device_of(cycle)
    gpu = cycle.context.snapshot.axes.index["nvidia.com/gpu"]
    for pod, idle in (("default/old-0", 0), ("default/old-1", 1)):
        task = cycle.context.snapshot.task_records[pod]
        gang, leaf = member(cycle, pod)
        state.evict(gang, leaf, task)
        state.assume_gone(gang, leaf, task)
        assert state.idle[gpu, 0] == idle
    assert device_of(cycle) == FREE_DEVICE
    state.rollback(0)
    assert (state.columns == before).all()
    assert device_of(cycle) == whole
    check_state(cycle.state, cycle.gangs)


def test_joining_is_undone_exactly() -> None:
    built = lone(1).gang("job", fraction=0.5)
    cycle = open_cycle(built.tables().snapshot(NOW_NS), built.policy())
    state, task = cycle.state, cycle.context.snapshot.task_records["default/job-0"]
    before, vacant = state.columns.copy(), device_of(cycle)
    for pipelined in (False, True):
        state.place(*member(cycle, "default/job-0"), task, 0, ("g",), pipelined=pipelined)
        check_state(cycle.state, cycle.gangs)
        assert state.free[cycle.context.snapshot.axes.index["nvidia.com/gpu"], 0] == 0
        state.rollback(0)
        assert (state.columns == before).all()
        assert device_of(cycle) == vacant


def test_a_reservation_that_is_left_out_is_noticed() -> None:
    cycle = open_cycle(lone(1).tables().snapshot(NOW_NS), lone(1).policy())
    cycle.state.devices.clear()
    with pytest.raises(StateMismatch):
        check_state(cycle.state, cycle.gangs)


def test_a_reservation_comes_and_goes_without_a_trace() -> None:
    built = node(2).pod("t", on="node-0", fraction=0.5, device="g")
    tables = built.tables()
    empty = tables.snapshot(NOW_NS)
    with_one = reserved(built).tables().snapshot(NOW_NS)
    for status in (TaskStatus.RUNNING, TaskStatus.RELEASING, None):
        tables.apply(decoded(built, "held-g"))
        tables.assume("default/held-g", status)
        snapshot = tables.snapshot(NOW_NS)
        assert (snapshot.columns[:, 3] == with_one.columns[:, 3]).all()
        assert snapshot.devices[0]["g"].reservations_terminating == (status is TaskStatus.RELEASING)
        tables.remove("Pod", "default", "held-g")
        assert (tables.snapshot(NOW_NS).columns == empty.columns).all()
        assert tables.snapshot(NOW_NS).devices == empty.devices


def test_plan_reuse_notices_a_reservation_that_may_be_joined() -> None:
    """No sum changes when a reservation pod takes the place of a GPU that is being released otherwise."""
    built = node(1).pod("ends", on="node-0", gpu=1, cpu=0, memory=0, deleted=0).gang("job", fraction=0.5)
    tables, policy, memory = built.tables(), built.policy(), CycleMemory()
    assert not schedule(tables.snapshot(NOW_NS), policy, memory).binds
    tables.remove("Pod", "default", "ends")
    tables.apply(decoded(reserved(built), "held-g"))
    assert len(schedule(tables.snapshot(NOW_NS), policy, memory).binds) == 1
