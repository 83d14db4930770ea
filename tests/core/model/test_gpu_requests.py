"""GPUs in the requests of pods: whole ones, shares and MIG slices (gpu:G-1 to G-16 without DRA)."""

from collections.abc import Mapping

import pytest

from pykai.core.model.shapes import GpuKind, GpuRequest
from tests.core.builders import cluster
from tests.core.model.podshapes import AMD, BIG_SLICE, GPU, SLICE, Requests, container, shape

# Whole GPUs.


@pytest.mark.parametrize(("text", "devices"), [("1", 1), ("8", 8), ("500m", 1), ("1500m", 2), ("2000m", 2)])
def test_part_of_a_gpu_as_a_quantity_is_a_whole_one(text: str, devices: int) -> None:
    """gpu:G-2: fractions round up."""
    ask = shape(container({GPU: text}))
    assert ask.gpu == GpuRequest(GpuKind.WHOLE, devices, 1.0)
    assert ask.gpu_hundredths == 100 * devices


def test_gpus_of_both_vendors_count_together_but_are_requested_apart() -> None:
    """gpu:G-2, gpu:G-14, cycle:R-3: fit is by name, quota counts devices."""
    ask = shape(container({GPU: 1, AMD: 2, "intel.com/gpu": 1}))
    assert (ask.gpu.kind, ask.gpu.devices, ask.gpu_hundredths) == (GpuKind.WHOLE, 4, 400)
    assert {name: count for name, count in ask.requests if name != "pods"} == {GPU: 1, AMD: 2, "intel.com/gpu": 1}


def test_a_name_that_merely_ends_in_gpu_is_not_a_gpu() -> None:
    """gpu:G-14, Do better: a name of its own, counted in thousandths."""
    ask = shape(container({"vendor.example.com/vgpu": 2}))
    assert ask.cpu_only
    assert dict(ask.requests)["vendor.example.com/vgpu"] == 2000


def test_zero_gpus_is_no_gpu() -> None:
    """gpu:G-2, gpu:G-13"""
    ask = shape(container({GPU: 0}))
    assert ask.cpu_only
    assert ask.gpu_hundredths == 0


def test_a_container_with_zero_gpus_takes_nothing_from_one_with_two() -> None:
    """gpu:G-3: requirements of unlike portions are not mixed up."""
    assert shape(container({GPU: 0}), container({GPU: 2})).gpu == GpuRequest(GpuKind.WHOLE, 2, 1.0)
    assert shape(container({GPU: 2}), init=[container({GPU: 0})]).gpu == GpuRequest(GpuKind.WHOLE, 2, 1.0)


def test_a_pod_without_gpus_is_cpu_only() -> None:
    """gpu:G-13"""
    assert shape(container({"cpu": 1})).cpu_only
    for wants in ({GPU: 1}, {SLICE: 1}):
        assert not shape(container(wants)).cpu_only
    for notes in ({"gpu-fraction": "0.5"}, {"gpu-memory": "10"}):
        assert not shape(container(), annotations=notes).cpu_only


# Shared GPUs.


def ask_of(notes: Mapping[str, str], requests: Requests | None = None) -> GpuRequest:
    """The GPU part of a pod with these annotations."""
    return shape(container(requests), annotations=notes).gpu


def cost_of(notes: Mapping[str, str], requests: Requests | None = None) -> int:
    """Hundredths of a GPU such a pod costs its queue before any node is known."""
    return shape(container(requests), annotations=notes).gpu_hundredths


def test_gpu_memory_requests_part_of_one_device() -> None:
    """gpu:G-5, gpu:T-1; gpu:G-11: the portion is not known before the node is."""
    notes = {"gpu-memory": "1024"}
    assert ask_of(notes) == GpuRequest(GpuKind.MEMORY, 1, 0.0, 1024)
    assert shape(container(), annotations=notes).shared
    assert cost_of(notes) == 0


def test_gpu_memory_of_several_devices() -> None:
    """gpu:G-7, gpu:T-2"""
    assert ask_of({"gpu-memory": "1024", "gpu-fraction-num-devices": "2"}) == GpuRequest(GpuKind.MEMORY, 2, 0.0, 1024)


def test_a_fraction_of_several_devices() -> None:
    """gpu:G-6, gpu:G-7, gpu:T-3: three halves are one and a half."""
    notes = {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "3"}
    assert ask_of(notes) == GpuRequest(GpuKind.FRACTION, 3, 0.5)
    assert cost_of(notes) == 150


def test_a_fraction_of_one_is_still_a_shared_request() -> None:
    """gpu:G-6"""
    assert ask_of({"gpu-fraction": "1"}) == GpuRequest(GpuKind.FRACTION, 1, 1.0)
    assert cost_of({"gpu-fraction": "1"}) == 100


@pytest.mark.parametrize(
    ("text", "hundredths"), [("0.5", 50), ("0.333", 33), ("0.005", 1), ("0.004", 0), ("0.995", 100), ("5e-1", 50)]
)
def test_a_fraction_costs_hundredths_rounded_to_the_nearest(text: str, hundredths: int) -> None:
    """gpu:G-11 and gpu:1.3 GPUs(): half away from zero."""
    assert cost_of({"gpu-fraction": text}) == hundredths


def test_each_device_of_a_fraction_is_rounded_by_itself() -> None:
    """gpu:1.3 GPUs(): round first, then multiply."""
    assert cost_of({"gpu-fraction": "0.335", "gpu-fraction-num-devices": "2"}) == 68


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "NaN", "inf", "half", "", " 0.5", "0.5 ", "٠.٥", "1,0"])
def test_an_invalid_fraction_is_ignored(text: str) -> None:
    """gpu:G-6: a fraction is a number above 0 and at most 1."""
    assert ask_of({"gpu-fraction": text}) == GpuRequest()


@pytest.mark.parametrize("text", ["0", "-5", "1.5", "1Gi", "", " 10", "1_000", "٣", "9" * 30])
def test_an_invalid_amount_of_memory_is_ignored(text: str) -> None:
    """gpu:G-5: an integer above 0."""
    assert ask_of({"gpu-memory": text}) == GpuRequest()


def test_an_unreadable_share_leaves_the_whole_gpus() -> None:
    """gpu:G-5, gpu:G-6"""
    for notes in ({"gpu-memory": "x"}, {"gpu-fraction": "x"}):
        assert ask_of(notes, {GPU: 2}) == GpuRequest(GpuKind.WHOLE, 2, 1.0)


@pytest.mark.parametrize("text", ["", "two", "1.5", "0", "-3"])
def test_an_invalid_number_of_devices_means_one_device(text: str) -> None:
    """gpu:G-7"""
    assert ask_of({"gpu-fraction": "0.5", "gpu-fraction-num-devices": text}).devices == 1
    assert ask_of({"gpu-memory": "100", "gpu-fraction-num-devices": text}).devices == 1


def test_a_number_of_devices_alone_shares_nothing() -> None:
    """gpu:G-7"""
    assert ask_of({"gpu-fraction-num-devices": "2"}) == GpuRequest()
    assert ask_of({"gpu-fraction-num-devices": "2"}, {GPU: 1}) == GpuRequest(GpuKind.WHOLE, 1, 1.0)


@pytest.mark.parametrize("notes", [{"gpu-fraction": "0.5"}, {"gpu-memory": "100"}])
def test_a_share_replaces_whole_gpus(notes: Mapping[str, str]) -> None:
    """gpu:G-5, gpu:G-6: they are neither asked for nor paid for."""
    ask = shape(container({GPU: 4, AMD: 1}), annotations=notes)
    assert ask.shared
    assert ask.requests == (("pods", 1),)
    assert ask.gpu_hundredths == (50 if "gpu-fraction" in notes else 0)


def test_a_fraction_wins_over_memory() -> None:
    """gpu:G-6"""
    assert ask_of({"gpu-fraction": "0.5", "gpu-memory": "100"}) == GpuRequest(GpuKind.FRACTION, 1, 0.5)


def test_memory_beside_a_fraction_survives_with_a_number_of_devices() -> None:
    """gpu:G-7, cycle:TSK-2: each device then gives the memory."""
    notes = {"gpu-fraction": "0.5", "gpu-memory": "100", "gpu-fraction-num-devices": "2"}
    assert ask_of(notes) == GpuRequest(GpuKind.FRACTION, 2, 0.5, 100)
    assert cost_of(notes) == 100


# MIG.


def test_mig_slices_cost_by_their_profile() -> None:
    """gpu:G-10, gpu:G-16, cycle:R-6"""
    ask = shape(container({BIG_SLICE: 2, SLICE: 1}))
    assert ask.gpu == GpuRequest(GpuKind.MIG)
    assert not ask.shared
    assert ask.gpu_hundredths == 700
    assert dict(ask.requests)[BIG_SLICE] == 2


def test_whole_gpus_beside_slices_are_paid_for_too() -> None:
    """gpu:G-10, gpu:G-11"""
    ask = shape(container({BIG_SLICE: 1, GPU: 2}))
    assert ask.gpu.kind is GpuKind.MIG
    assert ask.gpu_hundredths == 500


@pytest.mark.parametrize(
    ("profile", "gpus"),
    [
        ("1g.5gb", 1),
        ("7g.80gb", 7),
        ("1g.10gb.me", 1),
        ("2g.20gb.me.all", 2),
        ("1c.3g.20gb", 3),
        ("small", 0),
        ("3g", 0),
        ("g.20gb", 0),
        ("9999g.5gb", 0),
    ],
)
def test_the_leading_number_of_a_profile_is_its_cost(profile: str, gpus: int) -> None:
    """gpu:G-16, Do better: suffixes and compute slices count as well; what is no profile costs nothing."""
    assert shape(container({f"nvidia.com/mig-{profile}": 1})).gpu_hundredths == 100 * gpus


def test_a_profile_with_an_absurd_number_does_not_stop_the_cycle() -> None:
    """gpu:G-16"""
    absurd = {"nvidia.com/mig-99999999999999999999g.5gb": 1}
    result = cluster(nodes=1, gpus=1).queue("q").gang("odd", extra=absurd).gang("plain", gpu=1).schedule()
    assert result.bound("plain") == 1
    assert result.bound("odd") == 0


@pytest.mark.parametrize("notes", [{"gpu-fraction": "0.5"}, {"gpu-memory": "100"}])
def test_a_share_drops_the_slices_from_the_cost_but_not_from_the_fit(notes: Mapping[str, str]) -> None:
    """gpu:G-10"""
    ask = shape(container({BIG_SLICE: 1}), annotations=notes)
    assert ask.shared
    assert dict(ask.requests)[BIG_SLICE] == 1
    assert ask.gpu_hundredths == (50 if "gpu-fraction" in notes else 0)


@pytest.mark.parametrize("notes", [{}, {"gpu-fraction": "0.5"}, {"gpu-memory": "100"}])
def test_a_legacy_mig_annotation_replaces_everything(notes: Mapping[str, str]) -> None:
    """gpu:G-9, gpu:G-10: it wins over a share, whole GPUs and slices."""
    ask = shape(container({GPU: 2, SLICE: 1}), annotations={**notes, BIG_SLICE: "2"})
    assert ask.gpu == GpuRequest(GpuKind.MIG, legacy_mig=True)
    assert ask.gpu_hundredths == 600
    assert {name: count for name, count in ask.requests if name != "pods"} == {BIG_SLICE: 2}


def test_a_legacy_mig_annotation_that_is_not_a_number_is_ignored() -> None:
    """gpu:G-9"""
    assert shape(container({GPU: 2}), annotations={BIG_SLICE: "two"}).gpu == GpuRequest(GpuKind.WHOLE, 2, 1.0)


def test_a_negative_legacy_mig_annotation_counts_as_zero() -> None:
    """gpu:G-9: otherwise a pod could lower what its queue is charged for."""
    running = cluster(nodes=1, gpus=8).queue("q").gang("run", on="node-0", gpu=2)
    cheat = running.gang("cheat", on="node-0", annotations={SLICE: "-100"})
    [queue] = cheat.schedule().plan.queues
    assert queue.allocated[2] == 2
    assert queue.request[2] == 2
