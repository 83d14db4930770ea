"""Where shares of GPUs go: fractions, memory, several devices, devices still being released, pod slots.

gpu:F-0 to F-10, P-1 to P-7, G-12, and the cases gpu:T-4, T-40 to T-52 and T-55 of allocate.
"""

from typing import Any
from uuid import UUID

from pykai.core.model.status import TaskStatus
from tests.core.builders import Cluster, Raw, Result, cluster

SLICE = "nvidia.com/mig-1g.5gb"
PREDICATES = ("predicates", "proportion", "nodeavailability")


def plugins(*names: str) -> Raw:
    """A configuration with these plugins."""
    return {"tiers": [{"plugins": [{"name": name} for name in names]}]}


SPREADING = {
    "tiers": [
        {
            "plugins": [
                *[{"name": name} for name in (*PREDICATES, "gpuspread")],
                {"name": "nodeplacement", "arguments": {"cpu": "spread", "gpu": "spread"}},
            ]
        }
    ]
}
#: No plugin scores GPUs: all of them are equal.
INDIFFERENT = plugins(*PREDICATES)


def node(gpus: int, name: str = "node-0", **how: Any) -> Cluster:
    """One node and a queue without bounds."""
    return cluster().node(name, gpus=gpus, **how).queue("q")


def running(of: Cluster, device: str, fraction: float, on: str = "node-0", **how: Any) -> Cluster:
    """A pod that has a fraction of a device."""
    return of.pod(f"run-{device}-{len(of.objects)}", on=on, device=device, fraction=fraction, **how)


def leaving(of: Cluster, device: str, fraction: float, on: str = "node-0") -> Cluster:
    """A pod that has a fraction of a device and is being deleted."""
    return running(of, device, fraction, on, deleted=0)


def is_new(device: str) -> bool:
    """Whether the engine made the id: a random-looking UUID of version 4."""
    try:
        return UUID(device).version == 4
    except ValueError:
        return False


def new_devices(result: Result, pod: str) -> list[bool]:
    """For every device of a pod whether it is new."""
    return [is_new(device) for device in result.devices_of(pod)]


# Existing tenants.


def bind_request(pod: str, *devices: str, **status: Any) -> Raw:
    """A BindRequest of a pod to node-0."""
    return {
        "apiVersion": "scheduling.run.ai/v1alpha2",
        "kind": "BindRequest",
        "metadata": {"name": pod, "namespace": "default"},
        "spec": {
            "podName": pod,
            "selectedNode": "node-0",
            "receivedResourceType": "Fraction",
            "selectedGPUGroups": list(devices),
        },
        "status": status,
    }


def seated(of: Cluster, pod: str) -> tuple[tuple[str, ...], TaskStatus]:
    """Devices and state of a pod as the tables see it."""
    task = of.tables().snapshot(0).task_records[f"default/{pod}"]
    return task.gpu_groups, task.status


def test_a_bind_request_names_the_node_of_its_pod() -> None:
    """gpu:G-12, gpu:T-4"""
    bound = node(2).pod("p", fraction=0.5).add(bind_request("p", "1"))
    assert seated(bound, "p") == (("1",), TaskStatus.BINDING)
    assert bound.gang("next", fraction=0.5).schedule().devices_of("next-0") == ("1",)


def test_a_bind_request_takes_precedence_over_the_labels() -> None:
    """gpu:G-12: in the order it names the devices."""
    both = node(3).pod("p", fraction=0.5, devices=2, device=("x", "y")).add(bind_request("p", "b", "a"))
    assert seated(both, "p")[0] == ("b", "a")


def test_a_bind_request_without_devices_leaves_the_labels() -> None:
    """gpu:G-12"""
    assert seated(node(1).pod("p", fraction=0.5, device="x").add(bind_request("p")), "p")[0] == ("x",)


def test_a_plain_label_names_the_device() -> None:
    """gpu:G-12"""
    assert seated(node(1).pod("p", on="node-0", fraction=0.5, labels={"runai-gpu-group": "x"}), "p")[0] == ("x",)


def test_prefixed_labels_name_the_devices_of_a_pod_with_several() -> None:
    """gpu:G-12, Do better: the binder writes no plain label on such pods; sorted."""
    labels = {f"runai-gpu-group/{device}": device for device in ("z", "a")}
    several = node(3).pod("p", on="node-0", fraction=0.5, devices=2, labels=labels)
    assert seated(several, "p")[0] == ("a", "z")
    assert several.gang("whole", pods=3, min=0, gpu=1).schedule().bound("whole") == 1


def test_a_plain_label_and_a_prefixed_one_of_the_same_device_count_once() -> None:
    """gpu:G-12"""
    labels = {"runai-gpu-group": "b", "runai-gpu-group/b": "b", "runai-gpu-group/a": "a"}
    assert seated(node(1).pod("p", on="node-0", fraction=0.5, labels=labels), "p")[0] == ("b", "a")


def test_device_labels_on_a_pod_without_a_shared_request_are_ignored() -> None:
    """gpu:G-13"""
    assert seated(node(1).pod("p", on="node-0", gpu=1, labels={"runai-gpu-group": "x"}), "p")[0] == ()


# One fraction.


def test_a_fraction_on_an_idle_node_gets_a_new_device() -> None:
    """gpu:F-4, gpu:F-7, gpu:T-51: one new id, bound at once."""
    result = node(1).gang("j", fraction=0.5).schedule()
    [bind] = result.plan.binds
    assert (bind.node, bind.received_type, bind.gpu_count, bind.gpu_portion) == ("node-0", "Fraction", 1, "0.50")
    assert new_devices(result, "j-0") == [True]


def test_the_same_cycle_makes_the_same_ids() -> None:
    """design: a replay gives the same bytes."""

    def plan() -> bytes:
        return node(4).gang("j", pods=4, fraction=0.6).schedule().plan.encoded()

    assert plan() == plan()


def test_every_new_device_has_its_own_id() -> None:
    """gpu:F-7"""
    result = node(8).gang("j", pods=3, fraction=0.6, devices=2).schedule()
    devices = [device for pod in range(3) for device in result.devices_of(f"j-{pod}")]
    assert len(set(devices)) == 6
    assert all(map(is_new, devices))


def test_a_fraction_joins_a_shared_gpu() -> None:
    """gpu:T-40: the same node and the same device."""
    result = running(node(2), "g", 0.5).gang("j", fraction=0.5).schedule()
    assert result.devices_of("j-0") == ("g",)
    assert result.bound("j") == 1


def test_a_fraction_joins_a_shared_gpu_although_another_node_is_empty() -> None:
    """gpu:T-40, gpu:F-9"""
    two = cluster().node("empty", gpus=2).node("used", gpus=2).queue("q")
    result = running(two, "g", 0.5, on="used").gang("j", fraction=0.5).schedule()
    assert (result.node_of("j-0"), result.devices_of("j-0")) == ("used", ("g",))


def test_a_fraction_that_does_not_fit_beside_the_tenants_gets_a_new_device() -> None:
    """gpu:T-41, gpu:F-3"""
    result = running(node(2), "g", 0.6).gang("j", fraction=0.5).schedule()
    assert result.node_of("j-0") == "node-0"
    assert new_devices(result, "j-0") == [True]


def test_fractions_fill_a_gpu_before_they_open_another() -> None:
    """gpu:F-6 gpupack"""
    result = node(4).gang("j", pods=8, fraction=0.5).schedule()
    devices = [result.devices_of(f"j-{pod}") for pod in range(8)]
    assert devices[0::2] == devices[1::2]
    assert len(set(devices)) == 4


def test_a_releasing_neighbour_is_waited_for_rather_than_a_new_gpu_opened() -> None:
    """gpu:T-42, gpu:F-3, gpu:F-7: pipelined on the fuller device although another GPU is idle."""
    result = leaving(running(node(2), "g", 0.5), "g", 0.5).gang("j", fraction=0.5).schedule()
    assert result.pipelined("j") == 1
    assert result.devices_of("j-0") == ("g",)


def test_idle_memory_beside_a_releasing_neighbour_is_used_at_once() -> None:
    """gpu:F-7"""
    result = leaving(running(node(1), "g", 0.5), "g", 0.3).gang("j", fraction=0.2).schedule()
    assert result.bound("j") == 1
    assert result.devices_of("j-0") == ("g",)


def test_a_gpu_whose_tenants_all_terminate_counts_as_a_whole_one() -> None:
    """gpu:F-3, gpu:S-6: a new id, and only when the last of them has gone."""
    result = leaving(node(1), "g", 0.5).gang("j", fraction=0.5).schedule()
    assert result.pipelined("j") == 1
    assert new_devices(result, "j-0") == [True]


def test_the_fullest_gpu_first_or_the_emptiest() -> None:
    """gpu:T-43, gpu:F-6, cycle:SCO-4: no GPU is free."""

    def device(configuration: Raw | None) -> tuple[str, ...]:
        both = running(running(node(2), "g1", 0.5), "g0", 0.7).gang("j", fraction=0.2)
        if configuration is not None:
            both.configured(configuration)
        return both.schedule().devices_of("j-0")

    assert device(None) == ("g0",)
    assert device(SPREADING) == ("g1",)


def test_spreading_opens_a_new_gpu_while_there_is_one() -> None:
    """gpu:T-43, gpu:F-6"""
    result = running(running(node(3), "g1", 0.5), "g0", 0.7).gang("j", fraction=0.2).configured(SPREADING).schedule()
    assert new_devices(result, "j-0") == [True]


def test_memory_of_terminating_tenants_makes_a_gpu_fuller() -> None:
    """gpu:F-6: used memory includes what is being released."""
    both = running(leaving(running(node(2), "a", 0.3), "a", 0.4), "b", 0.5)
    assert both.gang("j", fraction=0.2).schedule().devices_of("j-0") == ("a",)


def test_memory_of_pipelined_tenants_makes_a_gpu_fuller() -> None:
    """gpu:F-6: the first share fits on b only, which then has tenants for 1.2 GPUs."""
    both = leaving(running(leaving(running(node(2), "a", 0.6), "a", 0.4), "b", 0.3), "b", 0.4)
    result = both.gang("first", fraction=0.5).gang("second", fraction=0.1).schedule()
    assert result.devices_of("first-0") == ("b",)
    assert result.devices_of("second-0") == ("b",)


def test_equal_gpus_go_by_id_and_whole_ones_come_last() -> None:
    """gpu:F-5, Do better"""
    two = running(running(node(3), "b", 0.5), "a", 0.5)
    result = two.gang("j", fraction=0.1, devices=3).configured(INDIFFERENT).schedule()
    assert result.devices_of("j-0")[:2] == ("a", "b")
    assert new_devices(result, "j-0") == [False, False, True]


def test_equally_full_gpus_go_by_id() -> None:
    """gpu:F-5, Do better"""
    assert running(running(node(2), "b", 0.5), "a", 0.5).gang("j", fraction=0.5).schedule().devices_of("j-0") == ("a",)


def test_a_pipelined_device_is_joined_by_the_next() -> None:
    """gpu:T-44, gpu:F-7: pipelined as well, for nothing of it is there yet."""
    busy = node(1).pod("old", on="node-0", gpu=1, deleted=0)
    result = busy.gang("first", fraction=0.5).gang("second", fraction=0.5).gang("third", fraction=0.5).schedule()
    assert result.pipelined("first") == result.pipelined("second") == 1
    assert new_devices(result, "first-0") == [True]
    assert result.devices_of("first-0") == result.devices_of("second-0")
    assert result.node_of("third-0") == ""


def test_fractions_are_packed_in_their_order() -> None:
    """gpu:T-45"""
    pods = running(cluster().node(gpus=2).queue("q", quota=2), "g0", 0.5)
    for index, size in enumerate((0.6, 0.5, 0.5, 0.3)):
        pods.gang(f"j{index}", fraction=size)
    result = pods.schedule()
    [first] = result.devices_of("j0-0")
    assert is_new(first)
    assert result.devices_of("j1-0") == ("g0",)
    assert result.node_of("j2-0") == ""
    assert result.devices_of("j3-0") == (first,)


def test_a_fraction_of_one_takes_a_device_for_itself() -> None:
    """gpu:G-6"""
    result = node(2).gang("half", fraction=0.5).gang("full", fraction=1).gang("other", fraction=0.5).schedule()
    assert result.devices_of("half-0") == result.devices_of("other-0") != result.devices_of("full-0")


def test_whole_gpus_and_fractions_share_a_node_but_no_device() -> None:
    """gpu:S-1, gpu:F-2"""
    waiting = node(2).gang("half", fraction=0.5).gang("whole", gpu=1).gang("other", gpu=1).gang("more", fraction=0.6)
    result = waiting.schedule()
    assert [result.bound(group) for group in ("half", "whole", "other", "more")] == [1, 1, 0, 0]
    assert "node(s) didn't have enough resources: GPUs" in result.why("more")


def test_a_whole_gpu_may_not_take_a_pipelined_device() -> None:
    """gpu:S-4, gpu:S-7: the only GPU is being released and promised to a fraction."""
    busy = node(1).pod("old", on="node-0", gpu=1, deleted=0)
    result = busy.gang("half", fraction=0.5).gang("whole", gpu=1).schedule()
    assert result.pipelined("half") == 1
    assert result.node_of("whole-0") == ""


# Memory.


def test_a_memory_share_goes_where_a_device_is_large_enough() -> None:
    """gpu:C-4"""
    two = cluster().node("a", gpus=4, gpu_memory=500).node("b", gpus=1, gpu_memory=1000).queue("q")
    assert two.gang("j", gpu_memory=600).schedule().node_of("j-0") == "b"


def test_a_memory_share_larger_than_any_device_waits() -> None:
    """gpu:C-4: also when several devices together would have it, or it is a multiple of one."""
    result = node(4).gang("odd", gpu_memory=1100).gang("twice", gpu_memory=2000).schedule()
    for group in ("odd", "twice"):
        assert result.bound(group) == 0
        assert "node(s) didn't have enough resources: GPU memory" in result.why(group)


def test_memory_shares_and_fractions_share_a_device_by_memory() -> None:
    """gpu:C-2, gpu:F-3"""
    result = node(1).gang("half", fraction=0.5).gang("rest", gpu_memory=500).gang("more", gpu_memory=1).schedule()
    assert result.devices_of("half-0") == result.devices_of("rest-0")
    assert result.bound("more") == 0


def test_a_share_that_waits_for_host_memory_is_pipelined() -> None:
    """gpu:T-50, gpu:F-7: its GPU is idle, the memory of the host is not."""
    small = node(1, memory="4Gi").pod("old", on="node-0", memory="3Gi", deleted=0)
    result = small.gang("j", gpu_memory=500, memory="2Gi").schedule()
    assert result.bound("j") == 0
    assert result.pipelined("j") == 1


def test_a_share_must_fit_every_other_resource_too() -> None:
    """gpu:F-2"""
    assert node(1, cpu=1).gang("j", fraction=0.5, cpu=2).schedule().bound("j") == 0
    assert node(1).gang("j", fraction=0.5, extra={"example.com/nic": 1}).schedule().bound("j") == 0
    nic = node(1, extra={"example.com/nic": 1}).gang("j", fraction=0.5, extra={"example.com/nic": 1})
    assert nic.schedule().bound("j") == 1


def test_a_fraction_and_slices_must_both_fit() -> None:
    """gpu:G-10: the slices stay in the request of a shared pod."""
    assert node(1).gang("j", fraction=0.5, extra={SLICE: 1}).schedule().bound("j") == 0


# Several devices.


def test_several_devices_are_several_gpus() -> None:
    """gpu:F-2, gpu:F-8: never two shares of one."""
    assert node(1).gang("j", fraction=0.25, devices=2).schedule().bound("j") == 0
    result = node(2).gang("j", fraction=0.25, devices=2).schedule()
    assert result.bound("j") == 1
    assert len(set(result.devices_of("j-0"))) == 2


def test_shared_gpus_and_whole_ones_add_up_to_the_devices() -> None:
    """gpu:F-2, gpu:F-7: the fullest first, then new ones; two more than are left is too many."""
    start = running(running(node(4), "a", 0.2), "b", 0.6)
    result = start.gang("j", fraction=0.3, devices=4).schedule()
    assert result.devices_of("j-0")[:2] == ("b", "a")
    assert new_devices(result, "j-0") == [False, False, True, True]
    again = running(running(node(4), "a", 0.2), "b", 0.6).gang("j", fraction=0.3, devices=5).schedule()
    assert again.bound("j") == 0


def test_a_device_without_idle_memory_makes_the_whole_pod_wait() -> None:
    """gpu:T-51, gpu:F-7: groups ["0", new], pipelined."""
    result = leaving(running(node(3), "0", 0.5), "0", 0.5).gang("j", fraction=0.5, devices=2).schedule()
    assert result.pipelined("j") == 1
    assert result.devices_of("j-0")[0] == "0"
    assert new_devices(result, "j-0") == [False, True]


def test_new_devices_beyond_the_idle_gpus_wait_for_those_being_released() -> None:
    """gpu:F-4, gpu:F-7"""
    result = node(2).pod("old", on="node-0", gpu=1, deleted=0).gang("j", fraction=0.5, devices=2).schedule()
    assert result.pipelined("j") == 1
    assert new_devices(result, "j-0") == [True, True]


def test_an_idle_gpu_is_never_given_twice() -> None:
    """gpu:F-7: one idle, one being released, one shared; spreading takes the two whole ones, so the pod must wait."""
    mixed = running(node(3).pod("old", on="node-0", gpu=1, deleted=0), "g", 0.1)
    result = mixed.gang("j", fraction=0.5, devices=2).configured(SPREADING).schedule()
    assert new_devices(result, "j-0") == [True, True]
    assert result.pipelined("j") == 1


def test_a_gang_of_shares_is_all_or_nothing() -> None:
    """gpu:F-7, cycle:ALC-4: what was tried leaves no trace."""
    result = node(2).gang("big", pods=3, fraction=0.6).gang("small", pods=2, fraction=0.5).schedule()
    assert result.bound("big") == 0
    assert result.devices_of("small-0") == result.devices_of("small-1")


def test_a_gang_that_must_wait_in_part_waits_with_all_its_shares() -> None:
    """cycle:ALC-5: the share that could start keeps its device."""
    busy = node(2).pod("old", on="node-0", gpu=1, deleted=0)
    result = busy.gang("j", pods=2, fraction=0.6).gang("late", fraction=0.4).gang("whole", gpu=1).schedule()
    assert result.pipelined("j") == 2
    assert len({result.devices_of("j-0"), result.devices_of("j-1")}) == 2
    assert result.pipelined("late") == 1
    assert result.node_of("whole-0") == ""


# Whole GPUs and MIG.


def test_a_whole_gpu_that_is_idle_is_bound_and_one_being_released_is_waited_for() -> None:
    """gpu:F-0, gpu:F-1"""
    result = node(2).pod("old", on="node-0", gpu=1, deleted=0).gang("j", pods=2, min=0, gpu=1).schedule()
    assert (result.bound("j"), result.pipelined("j")) == (1, 1)
    assert node(2).pod("old", on="node-0", gpu=1).gang("j", gpu=2).schedule().node_of("j-0") == ""


def test_gpus_are_given_by_the_requested_resource_name() -> None:
    """gpu:F-1, gpu:G-14, cycle:R-3"""
    amd = cluster().node(extra={"amd.com/gpu": 4}).queue("q")
    result = amd.gang("nvidia", gpu=1).gang("amd", extra={"amd.com/gpu": 1}).schedule()
    assert (result.bound("nvidia"), result.bound("amd")) == (0, 1)


def test_a_whole_gpu_job_keeps_off_a_node_with_mixed_mig() -> None:
    """gpu:T-52, gpu:P-4"""
    mixed = node(1, labels={"nvidia.com/mig.strategy": "mixed"}, extra={SLICE: 1})
    result = mixed.gang("whole", gpu=1).gang("share", fraction=0.5).gang("slice", extra={SLICE: 1}).schedule()
    for group in ("whole", "share"):
        assert "non MIG jobs cant run on a node with MigStrategy='mixed'" in result.why(group)
    assert result.bound("slice") == 1


def test_only_whole_gpu_jobs_run_on_a_node_with_single_mig() -> None:
    """gpu:T-52, gpu:P-4"""
    single = node(2, labels={"nvidia.com/mig.strategy": "single", "node-role.kubernetes.io/mig-enabled": "true"})
    result = single.gang("share", fraction=0.5).gang("memory", gpu_memory=500).gang("whole", gpu=1).schedule()
    for group in ("share", "memory"):
        assert "only whole gpu jobs can run on a node with MigStrategy='single'" in result.why(group)
    assert result.bound("whole") == 1


def test_a_mig_job_keeps_off_a_node_without_mig() -> None:
    """gpu:T-52, gpu:P-4"""
    plain = node(1, labels={"node-role.kubernetes.io/mig-enabled": "false"}, extra={SLICE: 1})
    result = plain.gang("slice", extra={SLICE: 1}).schedule()
    assert "MIG job cannot be scheduled on non-MIG node" in result.why("slice")


def test_a_legacy_mig_job_runs_nowhere() -> None:
    """gpu:T-52, gpu:P-1"""
    result = node(1, extra={SLICE: 1}).gang("old", annotations={SLICE: "1"}).schedule()
    assert result.bound("old") == 0
    assert "Legacy MIG jobs cannot be scheduled on node node-0" in result.why("old")


def test_a_mig_job_keeps_off_a_node_with_legacy_mig_jobs() -> None:
    """gpu:P-4"""
    occupied = node(1, extra={SLICE: 3}).pod("old", on="node-0", annotations={SLICE: "1"})
    result = occupied.gang("slice", extra={SLICE: 1}).schedule()
    assert "MIG job cannot be scheduled on node with legacy MIG jobs: <[default/old]>" in result.why("slice")


def test_cpu_jobs_run_on_any_mig_node() -> None:
    """gpu:P-2"""
    single = node(2, labels={"nvidia.com/mig.strategy": "single"}, extra={SLICE: 1})
    assert single.gang("cpu").schedule().bound("cpu") == 1


# Pod slots for reservation pods.


def slots(free: int, **how: Any) -> Cluster:
    """A node of three GPUs with a pod that shares device g, and so many pod slots left."""
    return running(node(3, pods=free + 1, **how), "g", 0.5)


def test_a_new_device_needs_a_slot_for_its_reservation_pod() -> None:
    """gpu:T-55, gpu:P-7"""
    one_slot = node(1, pods=1).gang("j", fraction=0.5).schedule()
    assert one_slot.bound("j") == 0
    assert "node(s) pod number exceeded" in one_slot.why("j")
    assert node(1, pods=2).gang("j", fraction=0.5).schedule().bound("j") == 1


def test_a_share_on_a_device_in_use_needs_one_slot() -> None:
    """gpu:P-7, cycle:FLT-10, Do better: its reservation pod exists."""
    assert slots(1).gang("j", fraction=0.5).schedule().devices_of("j-0") == ("g",)
    assert slots(1).gang("j", fraction=0.6).schedule().node_of("j-0") == ""
    assert slots(2).gang("j", fraction=0.6).schedule().bound("j") == 1


def test_every_new_device_needs_a_slot() -> None:
    """gpu:P-7, Do better: one and one for each, those in use not counted."""
    for free, fits in ((2, False), (3, True)):
        assert slots(free).gang("j", fraction=0.5, devices=3).schedule().bound("j") == fits
    for free, fits in ((2, False), (3, True)):
        assert slots(free).gang("j", fraction=0.6, devices=2).schedule().bound("j") == fits


def test_a_slot_that_is_being_released_will_do_for_a_pipelined_share() -> None:
    """gpu:P-7: idle and releasing slots together; the pod starts only when that of its reservation pod is idle too."""
    for leaving_pods, bound in ((0, 1), (1, 0), (2, 0)):
        tight = node(1, pods=2)
        for index in range(leaving_pods):
            tight.pod(f"old-{index}", on="node-0", deleted=0)
        result = tight.gang("j", fraction=0.5).schedule()
        assert (result.bound("j"), result.pipelined("j")) == (bound, 1 - bound)


def test_reservation_pods_of_new_devices_hold_their_slots_for_the_rest_of_the_cycle() -> None:
    """gpu:P-7, Do better: otherwise two shares would be started where there are slots for three of their four pods."""
    result = node(3, pods=3).gang("first", fraction=0.6).gang("second", fraction=0.6).gang("third", gpu=1).schedule()
    assert [result.bound(group) for group in ("first", "second", "third")] == [1, 0, 1]
    roomy = node(3, pods=4).gang("first", fraction=0.6).gang("second", fraction=0.6).gang("third", gpu=1).schedule()
    assert [roomy.bound(group) for group in ("first", "second", "third")] == [1, 1, 0]


def test_a_device_opened_in_this_cycle_needs_its_slot_once() -> None:
    """gpu:P-7: three shares of one new device are four pods."""
    result = node(1, pods=4).gang("j", pods=3, fraction=0.3).gang("more").schedule()
    assert (result.bound("j"), result.bound("more")) == (3, 0)


def test_other_pods_need_one_slot() -> None:
    """gpu:P-7"""
    assert node(1, pods=1).gang("j", gpu=1).schedule().bound("j") == 1
    assert node(1, pods=1).gang("j").schedule().bound("j") == 1
    full = node(1, pods=1).pod("old", on="node-0").gang("j", gpu=1).schedule()
    assert "node(s) pod number exceeded" in full.why("j")


# Configuration.


def test_the_built_in_configuration_packs() -> None:
    """gpu:F-9, gpu:F-10: gpupack and gpusharingorder, not gpuspread."""
    names = [named.name for named in cluster().policy().plugins]
    assert "gpupack" in names
    assert "gpusharingorder" in names
    assert "gpuspread" not in names


def test_a_reservation_pod_takes_a_slot_within_the_cycle_too() -> None:
    """gpu:P-7: two pods that open a device each need four slots, three are there."""
    result = cluster(nodes=1, gpus=2, pods=3).queue("q").gang("job", pods=2, min=1, fraction=0.9).schedule()
    assert result.bound("job") == 1


def test_joining_a_device_opened_in_this_cycle_needs_one_slot() -> None:
    result = cluster(nodes=1, gpus=2, pods=3).queue("q").gang("job", pods=2, min=1, fraction=0.5).schedule()
    assert result.bound("job") == 2


def test_a_slot_still_being_released_makes_the_first_tenant_wait() -> None:
    base = cluster(nodes=1, gpus=2, pods=2).queue("q").gang("gone", pods=1, on="node-0", deleted=0)
    result = base.gang("job", pods=1, fraction=0.5).schedule()
    assert result.bound("job") == 0
    assert result.pipelined("job") == 1


def test_a_rolled_back_gang_gives_its_reservation_slots_back() -> None:
    base = cluster(nodes=1, gpus=2, pods=4).queue("q").gang("big", pods=3, fraction=0.9, age=100)
    result = base.gang("small", pods=2, fraction=0.9, age=50).schedule()
    assert result.bound("big") == 0
    assert result.bound("small") == 2
