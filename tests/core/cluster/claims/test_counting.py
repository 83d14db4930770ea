"""What a claim costs a queue in GPUs: gpu:D-3, D-4, case T-90."""

from __future__ import annotations

import pytest

from pykai.core.cluster.claims.counting import MAX_COUNT, GpuCount, claim_gpus, names_gpu
from tests.core.deviceobjects import Raw, all_devices_request, device_request, first_of, spec_of


def counted(*requests: Raw) -> int:
    return claim_gpus(spec_of(*requests)).gpus


@pytest.mark.parametrize(
    ("name", "yes"),
    [("gpu.nvidia.com", True), ("GPU", True), ("my-Gpu-class", True), ("mig.nvidia.com", False), ("", False)],
)
def test_d3_a_gpu_class_is_recognised_by_its_name_in_any_case(name: str, yes: bool) -> None:
    assert names_gpu(name) is yes


@pytest.mark.parametrize(
    ("requests", "gpus"),
    [
        ([device_request(2)], 2),
        ([device_request(0)], 1),
        ([device_request(-3)], 1),
        ([all_devices_request()], 1),
        ([device_request(2), device_request(3, "nic", "s")], 2),
        ([{"name": "r"}], 0),
        ([device_request(2, allocationMode="Some")], 0),
        ([device_request(2, allocationMode="")], 2),
        ([device_request(MAX_COUNT), all_devices_request(name="s")], MAX_COUNT),
        ([device_request(2), device_request(3, name="s"), all_devices_request(name="t")], 6),
        ([], 0),
    ],
    ids=str,
)
def test_t90_counts_of_requests_add_up_and_saturate(requests: list[Raw], gpus: int) -> None:
    """gpu:D-4"""
    assert counted(*requests) == gpus


def test_d4_a_prioritised_list_counts_as_its_most_expensive_gpu_alternative() -> None:
    assert counted(first_of(device_request(1, name="a"), device_request(4, name="b"), device_request(2, name="c"))) == 4
    assert counted(first_of(device_request(8, "nic", "a"), device_request(2, name="b"))) == 2
    assert counted(first_of(device_request(8, "nic", "a"))) == 0


def test_d4_administrative_access_takes_no_device_and_counts_nothing() -> None:
    assert counted(device_request(4, adminAccess=True)) == 0
    assert counted(device_request(4, adminAccess=True), device_request(1, name="s")) == 1


def test_d4_everything_is_reported_under_the_first_gpu_class() -> None:
    spec = spec_of(device_request(5, "nic", "n"), device_request(1, "gpu-b", "r"), device_request(2, "gpu-a", "s"))
    assert claim_gpus(spec) == GpuCount(3, "gpu-b")
    assert claim_gpus(spec_of(device_request(5, "nic"))) == GpuCount(0, "")
