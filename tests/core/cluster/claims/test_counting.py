"""What a claim costs a queue in GPUs: gpu:D-3, D-4, case T-90."""

from __future__ import annotations

import pytest

from pykai.core.cluster.claims.counting import MAX_COUNT, GpuCount, claim_gpus
from pykai.core.cluster.claims.inventory import names_gpu
from tests.core.deviceobjects import Raw, every, first_of, spec_of, wants


def counted(*requests: Raw) -> int:
    return claim_gpus(spec_of(*requests)).gpus


@pytest.mark.parametrize(
    ("name", "yes"),
    [("gpu.nvidia.com", True), ("GPU", True), ("my-Gpu-class", True), ("mig.nvidia.com", False), ("", False)],
)
def test_d3_a_gpu_class_is_one_whose_name_says_so_in_any_case(name: str, yes: bool) -> None:
    assert names_gpu(name) is yes


@pytest.mark.parametrize(
    ("requests", "gpus"),
    [
        ([wants(2)], 2),
        ([wants(0)], 1),
        ([wants(-3)], 1),
        ([every()], 1),
        ([wants(2), wants(3, "nic", "s")], 2),
        ([{"name": "r"}], 0),
        ([wants(2, allocationMode="Some")], 0),
        ([wants(2, allocationMode="")], 2),
        ([wants(MAX_COUNT), every(name="s")], MAX_COUNT),
        ([wants(2), wants(3, name="s"), every(name="t")], 6),
        ([], 0),
    ],
    ids=str,
)
def test_t90_counts_of_requests_add_up_and_saturate(requests: list[Raw], gpus: int) -> None:
    """gpu:D-4"""
    assert counted(*requests) == gpus


def test_d4_a_prioritised_list_counts_as_its_most_expensive_gpu_alternative() -> None:
    assert counted(first_of(wants(1, name="a"), wants(4, name="b"), wants(2, name="c"))) == 4
    assert counted(first_of(wants(8, "nic", "a"), wants(2, name="b"))) == 2
    assert counted(first_of(wants(8, "nic", "a"))) == 0


def test_d4_administrative_access_takes_no_device_and_counts_nothing() -> None:
    assert counted(wants(4, adminAccess=True)) == 0
    assert counted(wants(4, adminAccess=True), wants(1, name="s")) == 1


def test_d4_everything_is_reported_under_the_first_gpu_class() -> None:
    spec = spec_of(wants(5, "nic", "n"), wants(1, "gpu-b", "r"), wants(2, "gpu-a", "s"))
    assert claim_gpus(spec) == GpuCount(3, "gpu-b")
    assert claim_gpus(spec_of(wants(5, "nic"))) == GpuCount(0, "")
