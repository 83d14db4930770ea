"""The ledger of shared GPUs: what is left of a node (gpu:C-2 to C-4, C-8, C-9, S-1 to S-7, cases T-20 to T-30)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from pykai.core.cluster.snapshot import Snapshot
from pykai.core.model.shapes import GpuKind, GpuRequest
from pykai.core.model.sharedgpus import (
    FREE_DEVICE,
    LIVE,
    PIPELINED,
    RELEASING,
    DeviceTenant,
    DeviceUse,
    assign_devices,
    fits_device,
    holding_of,
    portion_hundredths,
    quota_hundredths,
    tenant_mib,
)
from pykai.core.model.status import TaskStatus
from tests.core.builders import NOW_NS, Cluster, cluster

GPU = "nvidia.com/gpu"
SLICE = "nvidia.com/mig-1g.5gb"


@dataclass(frozen=True)
class Books:
    """One node of a snapshot."""

    snapshot: Snapshot
    row: int = 0

    def plane(self, plane: int, resource: str) -> int:
        """One figure of the node."""
        axis = self.snapshot.axes.index.get(resource)
        # What no node offers has no axis.
        return 0 if axis is None else int(self.snapshot.columns[plane, axis, self.row])

    def idle(self, resource: str = GPU) -> int:
        """Idle."""
        return self.plane(0, resource)

    def releasing(self, resource: str = GPU) -> int:
        """Being given back."""
        return self.plane(1, resource)

    def free(self, resource: str = GPU) -> int:
        """Idle or being given back."""
        return self.plane(2, resource)

    def used(self, resource: str = GPU) -> int:
        """Held."""
        return self.plane(3, resource)

    def gpus(self) -> tuple[int, int]:
        """Whole GPUs that are releasing and idle, in the order of gpu:T-29."""
        assert self.free() == self.idle() + self.releasing()
        return self.releasing(), self.idle()

    def device(self, group: str) -> DeviceUse | None:
        """A shared GPU."""
        return self.snapshot.devices.get(self.row, {}).get(group)

    def memory(self, group: str) -> tuple[int, int, int]:
        """Used, allocated and releasing MiB of a shared GPU."""
        device = self.device(group)
        assert device is not None
        return device.used_mib, device.allocated_mib, device.releasing_mib

    def idle_sum(self) -> float:
        """Idle GPUs with what is left of the shared ones (gpu:C-10), rounded up to hundredths per device."""
        shared = self.snapshot.devices.get(self.row, {}).values()
        gpu_mib = self.snapshot.nodes.facts[self.row].gpu_mib
        left = [100 - -(-100 * use.allocated_mib // gpu_mib) for use in shared if use.allocated_mib > 0]
        return self.idle() + sum(left) / 100


def books(of: Cluster) -> Books:
    """The ledger of the only node of a cluster."""
    return Books(of.tables().snapshot(NOW_NS))


def node(gpus: int, gpu_memory: int | None = 100) -> Cluster:
    """A cluster of one node with GPUs of 100 MiB."""
    return cluster().node(gpus=gpus, gpu_memory=gpu_memory)


def tenant(of: Cluster, name: str, device: str, fraction: float, status: TaskStatus = TaskStatus.RUNNING) -> Cluster:
    """A pod with a fraction of a shared GPU, in some state."""
    return of.pod(name, on="node-0", fraction=fraction, device=device).assume(name, status)


# Conversions.


def fraction(portion: float, devices: int = 1, memory: int = 0) -> GpuRequest:
    """A fraction of each of some devices."""
    return GpuRequest(GpuKind.FRACTION, devices, portion, memory)


def memory(mib: int, devices: int = 1) -> GpuRequest:
    """Memory of each of some devices."""
    return GpuRequest(GpuKind.MEMORY, devices, 0.0, mib)


def test_a_fraction_is_cut_to_whole_mib() -> None:
    """gpu:C-2"""
    assert tenant_mib(fraction(0.5), 15300, 15360) == 7650
    assert tenant_mib(fraction(0.339), 1000, 1000) == 339
    assert tenant_mib(fraction(0.3399), 1000, 1000) == 339
    assert tenant_mib(fraction(1.0), 1000, 1000) == 1000


def test_memory_is_memory() -> None:
    """gpu:C-2: also beside a fraction."""
    assert tenant_mib(memory(333), 1000, 1000) == 333
    assert tenant_mib(fraction(0.5, 2, 333), 1000, 1000) == 333


def test_memory_becomes_a_portion_rounded_up() -> None:
    """gpu:C-3"""
    assert portion_hundredths(memory(333), 1000, 1000) == 34
    assert portion_hundredths(memory(330), 1000, 1000) == 33
    assert portion_hundredths(memory(1), 1000, 1000) == 1
    assert portion_hundredths(fraction(0.5, 2, 333), 1000, 1000) == 34


def test_a_fraction_is_its_own_portion() -> None:
    """gpu:C-3: to the nearest hundredth, whatever the device holds."""
    assert portion_hundredths(fraction(0.5), 15300, 15360) == 50
    assert portion_hundredths(fraction(0.333), 100, 100) == 33
    assert portion_hundredths(fraction(0.335), 100, 100) == 34


def test_one_device_must_hold_the_whole_share() -> None:
    """gpu:C-4"""
    assert fits_device(memory(1000), 1000, 1000)
    assert not fits_device(memory(1001), 1000, 1000)
    assert not fits_device(memory(2000), 1000, 1000)
    assert fits_device(fraction(1.0), 1000, 1000)


def test_the_labelled_memory_is_the_whole_device() -> None:
    """gpu:C-1, Do better: up to the label, not beyond it."""
    assert tenant_mib(memory(1099), 1000, 1099) == 1000
    assert fits_device(memory(1099), 1000, 1099)
    assert portion_hundredths(memory(1099), 1000, 1099) == 100
    assert not fits_device(memory(1100), 1000, 1099)


def test_what_a_share_costs_on_a_node_is_rounded_up() -> None:
    """gpu:C-9: for every device, from the memory it takes there."""
    assert quota_hundredths(memory(333, 3), 1000, 1000) == 3 * 34
    assert quota_hundredths(fraction(0.5, 3), 1000, 1000) == 150
    assert quota_hundredths(fraction(0.335, 2), 1000, 1000) == 2 * 34
    assert quota_hundredths(fraction(0.335, 2), 100, 100) == 2 * 33


def test_the_check_at_the_node_goes_by_what_the_share_costs_there() -> None:
    """gpu:C-9: 333 of 1000 MiB are 0.34 GPUs."""

    def bound(quota: float) -> int:
        one = cluster().node(gpus=2).queue("q", quota=quota)
        return one.gang("j", preemptible=False, gpu_memory=333).schedule().bound("j")

    assert bound(0.34) == 1
    assert bound(0.335) == 0


def test_what_a_memory_share_received_is_what_its_node_makes_of_it() -> None:
    """gpu:C-8: count, portion rounded up, and the same in the ledger of the queue."""
    result = cluster().node(gpus=2).queue("q").gang("j", gpu_memory=333, devices=2).schedule()
    [bind] = result.plan.binds
    assert (bind.received_type, bind.gpu_count, bind.gpu_portion) == ("Fraction", 2, "0.34")
    assert result.plan.queues[0].allocated[2] == 0.68


def test_what_a_running_memory_share_received_counts_for_its_queue() -> None:
    """gpu:C-8: rounded up on the node it is on, for every device."""
    running = cluster().node(gpus=2).queue("q").gang("j", on="node-0", gpu_memory=333, devices=2, device=("a", "b"))
    assert running.schedule().plan.queues[0].allocated[2] == 0.68


@pytest.mark.parametrize(
    ("ask", "received"),
    [
        ({}, ("Regular", 0)),
        ({"gpu": 2}, ("Regular", 2)),
        ({"fraction": 0.5}, ("Fraction", 1)),
        ({"fraction": 0.25, "devices": 2}, ("Fraction", 2)),
    ],
)
def test_what_other_requests_received(ask: dict[str, Any], received: tuple[str, int]) -> None:
    """gpu:C-8"""
    [bind] = cluster().node(gpus=2).queue("q").gang("j", **ask).schedule().plan.binds
    assert (bind.received_type, bind.gpu_count) == received


def test_what_a_mig_request_received() -> None:
    """gpu:C-8"""
    result = cluster().node(extra={SLICE: 2}).queue("q").gang("j", extra={SLICE: 2}).schedule()
    [bind] = result.plan.binds
    assert (bind.received_type, bind.gpu_count, bind.gpu_groups) == ("MigInstance", 0, ())
    assert result.plan.queues[0].allocated[2] == 2


# How a task holds its node.


@pytest.mark.parametrize("status", [TaskStatus.ALLOCATED, TaskStatus.BINDING, TaskStatus.BOUND, TaskStatus.RUNNING])
def test_a_live_task_holds_its_node(status: TaskStatus) -> None:
    """cycle:4"""
    assert holding_of(status) == LIVE


def test_a_stuck_task_releases_nothing() -> None:
    """gpu:C-11: it is charged, but what it holds does not count as releasing."""
    assert holding_of(TaskStatus.STUCK_IN_RELEASING) == LIVE
    stuck = books(node(1).pod("p", on="node-0", fraction=0.5, device="g", deleted=10_000))
    assert stuck.gpus() == (0, 0)
    assert stuck.memory("g") == (50, 50, 0)


def test_releasing_and_pipelined_tasks_hold_it_otherwise() -> None:
    """cycle:4"""
    assert holding_of(TaskStatus.RELEASING) == RELEASING
    assert holding_of(TaskStatus.PIPELINED) == PIPELINED


# Accounting of shared GPUs.


def test_a_shared_gpu_is_one_gpu_less_to_give_away() -> None:
    """gpu:S-1, gpu:S-4: however small the first tenant, and however many follow."""
    one = node(2).pod("a", on="node-0", fraction=0.1, device="g")
    assert books(one).gpus() == (0, 1)
    two = one.pod("b", on="node-0", fraction=0.5, device="g")
    assert books(two).gpus() == (0, 1)
    assert books(two).memory("g") == (60, 60, 0)
    assert books(two.pod("c", on="node-0", fraction=0.1, device="h")).gpus() == (0, 0)


def test_a_shared_task_is_charged_for_no_whole_gpu() -> None:
    """gpu:S-1: also when its containers name one, and not in any column."""
    shared = books(node(2).pod("a", on="node-0", gpu=1, fraction=0.5, device="g"))
    assert shared.used() == 0
    assert shared.gpus() == (0, 1)
    assert shared.idle("cpu") == 99_000


def test_the_first_tenant_of_a_device_that_leaves_last_gives_it_back() -> None:
    """gpu:S-5"""
    tables = node(2).pod("a", on="node-0", fraction=0.1, device="g").pod("b", on="node-0", fraction=0.5, device="g")
    found = tables.tables()
    found.remove("Pod", "default", "a")
    assert Books(found.snapshot(NOW_NS)).gpus() == (0, 1)
    found.remove("Pod", "default", "b")
    assert Books(found.snapshot(NOW_NS)).gpus() == (0, 2)
    assert Books(found.snapshot(NOW_NS)).device("g") is None


def test_a_tenant_that_has_left_takes_its_memory_with_it() -> None:
    """gpu:S-5: of every kind, while another stays."""
    for status in (TaskStatus.RUNNING, TaskStatus.RELEASING, TaskStatus.PIPELINED):
        tables = tenant(tenant(node(2), "stays", "g", 0.3), "goes", "g", 0.5, status).tables()
        tables.remove("Pod", "default", "goes")
        found = Books(tables.snapshot(NOW_NS))
        assert found.memory("g") == (30, 30, 0)
        assert found.gpus() == (0, 1)


def test_a_releasing_tenant_alone_is_a_releasing_gpu() -> None:
    """gpu:T-20, gpu:S-6"""
    tables = tenant(node(1), "a", "g1", 0.5, TaskStatus.RELEASING).tables()
    found = Books(tables.snapshot(NOW_NS))
    assert found.memory("g1") == (50, 50, 50)
    assert found.gpus() == (1, 0)
    tables.remove("Pod", "default", "a")
    after = Books(tables.snapshot(NOW_NS))
    assert after.gpus() == (0, 1)
    assert after.device("g1") is None


def test_a_pipelined_tenant_on_a_new_device_takes_the_releasing_gpu() -> None:
    """gpu:T-21, gpu:S-7: a device born by a pipeline has nothing allocated, and releasing memory may be negative."""
    both = tenant(tenant(node(1), "a", "g1", 0.5, TaskStatus.RELEASING), "b", "g2", 0.5, TaskStatus.PIPELINED)
    tables = both.tables()
    found = Books(tables.snapshot(NOW_NS))
    assert found.memory("g2") == (50, 0, -50)
    assert found.gpus() == (0, 0)
    tables.remove("Pod", "default", "b")
    assert Books(tables.snapshot(NOW_NS)).gpus() == (1, 0)


def test_three_kinds_of_tenants_on_one_device() -> None:
    """gpu:T-22"""
    leaving = tenant(node(1), "a", "g1", 0.5, TaskStatus.RELEASING)
    all_three = tenant(tenant(leaving, "b", "g1", 0.2), "c", "g1", 0.5, TaskStatus.PIPELINED)
    assert books(all_three).memory("g1") == (120, 70, 0)
    assert books(all_three).gpus() == (0, 0)


@pytest.mark.parametrize("second", ["g1", "g2"])
def test_idle_gpus_with_what_is_left_of_the_shared_ones(second: str) -> None:
    """gpu:T-23: 7.4 in both cases, although the whole GPUs differ."""
    found = books(tenant(tenant(node(8), "a", "g1", 0.5), "b", second, 0.1))
    assert found.idle_sum() == 7.4
    assert found.idle() == (7 if second == "g1" else 6)


@pytest.mark.parametrize(("second", "whole"), [("g1", 1), ("g2", 2)])
def test_devices_with_releasing_tenants_only_count_whole(second: str, whole: int) -> None:
    """gpu:T-24"""
    both = tenant(tenant(node(8), "a", "g1", 0.5, TaskStatus.RELEASING), "b", second, 0.1, TaskStatus.RELEASING)
    assert books(both).gpus() == (whole, 8 - whole)


def test_whole_and_shared_gpus_on_one_node() -> None:
    """gpu:T-25"""
    mixed = tenant(node(8).pod("w2", on="node-0", gpu=2), "a", "g1", 0.5)
    mixed = tenant(mixed.pod("w1", on="node-0", gpu=1), "b", "g2", 0.1)
    assert books(mixed).idle_sum() == 4.4
    assert books(mixed).used() == 3


def test_a_reservation_pod_holds_everything_but_its_gpu() -> None:
    """gpu:T-26, gpu:S-2: that is held for its tenants, and being released while there are none."""
    held = books(node(1).pod("r", on="node-0", gpu=1, device="g", labels={"app": "kai-resource-reservation"}))
    assert (held.gpus(), held.used()) == ((1, 0), 0)
    assert held.idle("cpu") == 99_000
    assert held.idle("memory") == 999 << 30
    assert held.idle("pods") == 109


def test_a_reservation_pod_beside_its_tenant_is_one_gpu() -> None:
    """gpu:S-2: in whatever order they are read."""
    tenants = tenant(node(2), "a", "g", 0.5)
    held = tenants.pod("r", on="node-0", gpu=1, device="g", labels={"app": "kai-resource-reservation"})
    assert books(held).gpus() == (0, 1)
    held.objects.reverse()
    assert books(held).gpus() == (0, 1)


def test_reservation_pods_are_not_load_of_other_schedulers() -> None:
    """gpu:S-2: pods of other schedulers shrink what queues share, reservation pods do not."""

    def share(app: str) -> float:
        alone = cluster().node(gpus=4).pod("r", on="node-0", gpu=1, scheduler="", labels={"app": app})
        return alone.queue("q").gang("j", pods=4, gpu=1).schedule().plan.queues[0].fair_share[2]

    assert share("kai-resource-reservation") == 4
    assert share("scaling-pod") == 4
    assert share("anything") == 3


def test_a_resource_the_node_does_not_have_is_not_charged() -> None:
    """gpu:S-3: here only another node has it."""
    another = node(1).node("node-1", extra={"example.com/nic": 1})
    found = books(another.pod("a", on="node-0", extra={"example.com/nic": 1}))
    assert found.idle("example.com/nic") == 0
    assert found.used("example.com/nic") == 0
    assert found.idle("cpu") == 99_000


@pytest.mark.parametrize(
    ("tenants", "expected"),
    [
        ([("g", TaskStatus.RELEASING), ("g", TaskStatus.RELEASING)], (1, 1)),
        ([("g", TaskStatus.RELEASING), ("h", TaskStatus.RELEASING)], (2, 0)),
        ([("g", TaskStatus.RELEASING), ("g", TaskStatus.RUNNING)], (0, 1)),
        ([("g", TaskStatus.RUNNING), ("g", TaskStatus.RELEASING)], (0, 1)),
        ([("g", TaskStatus.RELEASING), ("g", TaskStatus.PIPELINED)], (0, 1)),
        ([("g", TaskStatus.PIPELINED)], (-1, 2)),
        ([("g", TaskStatus.PIPELINED), ("g", TaskStatus.PIPELINED)], (-1, 2)),
        ([("g", TaskStatus.RUNNING), ("g", TaskStatus.PIPELINED)], (0, 1)),
    ],
)
def test_two_tenants_on_two_gpus(tenants: list[tuple[str, TaskStatus]], expected: tuple[int, int]) -> None:
    """gpu:T-29, gpu:S-6: releasing, idle.  One live tenant keeps the whole device."""
    pods = node(2)
    for index, (device, status) in enumerate(tenants):
        tenant(pods, f"p{index}", device, 0.5, status)
    assert books(pods).gpus() == expected


def test_a_running_tenant_that_begins_to_leave_turns_the_device_into_a_releasing_one() -> None:
    """gpu:S-5: change of state is leaving in the old and coming in the new."""
    tables = tenant(tenant(node(2), "a", "g", 0.5), "b", "g", 0.5).tables()
    assert Books(tables.snapshot(NOW_NS)).gpus() == (0, 1)
    tables.assume("default/a", TaskStatus.RELEASING)
    assert Books(tables.snapshot(NOW_NS)).gpus() == (0, 1)
    tables.assume("default/b", TaskStatus.RELEASING)
    assert Books(tables.snapshot(NOW_NS)).gpus() == (1, 1)
    tables.assume("default/a", TaskStatus.RUNNING)
    assert Books(tables.snapshot(NOW_NS)).gpus() == (0, 1)


def test_a_tenant_of_several_devices_sits_on_each() -> None:
    """gpu:S-4"""
    found = books(node(3).pod("a", on="node-0", fraction=0.5, devices=2, device=("g", "h")))
    assert found.gpus() == (0, 1)
    assert found.memory("g") == found.memory("h") == (50, 50, 0)


def test_an_unknown_pod_still_sits_on_its_device() -> None:
    """cycle:SNP-9, Do better"""
    assert books(node(1).pod("a", on="node-0", phase="Unknown", fraction=0.5, device="g")).gpus() == (0, 0)


def test_a_finished_pod_sits_on_nothing() -> None:
    assert books(node(1).pod("a", on="node-0", phase="Succeeded", fraction=0.5, device="g")).gpus() == (0, 1)


def test_tenants_of_a_node_whose_gpus_are_gone_are_harmless() -> None:
    """gpu:S-3: a device plugin that stopped leaves pods behind."""
    found = books(cluster().node(gpus=0).pod("a", on="node-0", fraction=0.5, device="g", gpu=0))
    assert found.device("g") is None
    assert found.idle("cpu") == 99_000


# MIG.


@pytest.mark.parametrize(("used", "fits"), [(1, True), (2, False)])
def test_mig_slices_are_counted_by_profile(used: int, fits: bool) -> None:
    """gpu:T-30"""
    node_with_two = cluster().node(extra={SLICE: 2, "nvidia.com/mig-2g.10gb": 2}).queue("q")
    result = (
        node_with_two.gang("old", pods=used, on="node-0", extra={SLICE: 1}).gang("new", extra={SLICE: 1}).schedule()
    )
    assert result.bound("new") == fits
    if not fits:
        assert f"node(s) didn't have enough of mig profile: {SLICE}" in result.why("new")


# One device.


def columns() -> "np.ndarray[tuple[int, int, int], np.dtype[np.int64]]":
    """Four planes, one axis, one node."""
    return np.zeros((4, 1, 1), dtype=np.int64)


def test_the_device_of_a_tenant_changes_the_whole_gpu_figures() -> None:
    """gpu:S-4, gpu:S-5: idle, releasing and their sum; nothing is ever `used` in whole GPUs."""
    planes, devices = columns(), dict[str, DeviceUse]()
    assign_devices(planes, 0, 0, devices, ["g"], DeviceTenant(50, RELEASING), 1)
    assert planes[:, 0, 0].tolist() == [-1, 1, 0, 0]
    assign_devices(planes, 0, 0, devices, ["h"], DeviceTenant(50, PIPELINED), 1)
    assert planes[:, 0, 0].tolist() == [-1, 0, -1, 0]
    assign_devices(planes, 0, 0, devices, ["h"], DeviceTenant(50, PIPELINED), -1)
    assign_devices(planes, 0, 0, devices, ["g"], DeviceTenant(50, RELEASING), -1)
    assert planes[:, 0, 0].tolist() == [0, 0, 0, 0]
    assert devices == {}


def use(live: int = 0, releasing: int = 0, pipelined: int = 0) -> DeviceUse:
    """A device with one tenant of this many MiB of each kind that is not 0."""
    device = FREE_DEVICE
    for holding, mib in ((LIVE, live), (RELEASING, releasing), (PIPELINED, pipelined)):
        if mib:
            device = device.with_tenant(holding, mib, 1)
    return device


@pytest.mark.parametrize(
    ("device", "mib", "room"),
    [
        (use(live=50), 50, True),
        (use(live=50), 51, False),
        (use(live=50, releasing=50), 50, True),
        (use(live=50, releasing=50), 51, False),
        (use(live=50, releasing=50, pipelined=30), 20, True),
        (use(live=50, releasing=50, pipelined=30), 21, False),
        (use(live=50, pipelined=30), 20, True),
        (use(live=50, pipelined=30), 21, False),
        (use(pipelined=50), 50, True),
        (use(pipelined=50), 51, False),
        (use(releasing=50), 10, False),
        (FREE_DEVICE, 10, False),
        (use(live=50), 0, True),
        (use(releasing=50), 0, False),
    ],
)
def test_free_memory_on_a_shared_gpu_counts_what_is_being_released(device: DeviceUse, mib: int, room: bool) -> None:
    """gpu:F-3: a device that is released altogether is reached as a whole GPU."""
    assert device.fits_tenant(mib, 100) is room


@pytest.mark.parametrize(
    ("device", "mib", "room"),
    [
        (use(live=50), 50, True),
        (use(live=50), 51, False),
        (use(live=50, releasing=30), 20, True),
        (use(live=50, releasing=30), 21, False),
        (use(pipelined=50), 10, False),
        (use(live=50, releasing=50), 10, False),
    ],
)
def test_idle_memory_on_a_shared_gpu_excludes_what_is_being_released(device: DeviceUse, mib: int, room: bool) -> None:
    """gpu:F-7: nor does a device opened by a pipelined tenant have any."""
    assert device.fits_tenant_now(mib, 100) is room
