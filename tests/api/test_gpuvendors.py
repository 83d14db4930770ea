"""The table of GPU vendors has one resource that pods can share, and all that shares asks for it (ADR-37)."""

from __future__ import annotations

import pytest

from pykai.api.core import Pod
from pykai.api.gpuvendors import SHAREABLE_GPU, VENDORS, is_gpu, is_shareable, vendor_of
from pykai.binder.options import BinderOptions
from pykai.binder.reservation import reservation_pod


@pytest.mark.parametrize("resource", [each for vendor in VENDORS for each in vendor.resources])
def test_every_resource_of_the_table_is_a_gpu_of_its_vendor(resource: str) -> None:
    vendor = vendor_of(resource)
    assert is_gpu(resource)
    assert vendor is not None
    assert resource in vendor.resources


def test_one_resource_is_shared() -> None:
    every = [each for vendor in VENDORS for each in vendor.resources]
    assert [each for each in every if is_shareable(each)] == [SHAREABLE_GPU]
    assert not is_shareable("example.com/gpu")


def test_a_reservation_pod_asks_for_a_gpu_that_can_be_shared_and_for_what_else_is_configured() -> None:
    """gpu:RV-4."""
    options = BinderOptions(reservation_resources={"requests": {"cpu": "1m"}, "limits": {SHAREABLE_GPU: "7"}})
    (container,) = reservation_pod(Pod(), "n1", "group", options)["spec"]["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "1m", SHAREABLE_GPU: "1"},
        "limits": {SHAREABLE_GPU: "1"},
    }
