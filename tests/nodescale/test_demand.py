"""Which pods need a GPU that no autoscaler sees, and how many (gpu:SA-5, SA-6, T-126 to T-128)."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api.core import Pod
from pykai.api.decode import decode_as
from pykai.core.model.shapes import ShapeRegister
from pykai.nodescale.demand import UnschedulableShare, needed_gpus, unschedulable_share

UNSCHEDULABLE = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}


def waiting(
    name: str = "p",
    *,
    fraction: str = "",
    memory: str = "",
    devices: str = "",
    status: dict[str, Any] | None = None,
    **spec: Any,
) -> Pod:
    """A pod of ours that shares GPUs and fits nowhere, unless the rest says otherwise."""
    asked = {"gpu-fraction": fraction, "gpu-memory": memory, "gpu-fraction-num-devices": devices}
    container = {"name": "c", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "annotations": {key: value for key, value in asked.items() if value},
        },
        "spec": {"schedulerName": "kai-scheduler", "containers": [container], **spec},
        "status": UNSCHEDULABLE if status is None else status,
    }
    return decode_as(Pod, document)


def share(pod: Pod) -> UnschedulableShare | None:
    return unschedulable_share(pod, "kai-scheduler", ShapeRegister())


def shares(*pods: Pod) -> list[UnschedulableShare]:
    found = [share(pod) for pod in pods]
    assert all(found)
    return [each for each in found if each is not None]


@pytest.mark.parametrize(
    ("pods", "needed"),
    [
        ([("0.7", ""), ("0.1", "")], 1),
        ([("0.7", ""), ("0.7", "")], 2),
        ([("0.7", ""), ("0.7", ""), ("0.1", "")], 2),
        ([("0.2", "2")], 1),
        ([("0.9", "2")], 2),
        ([("0.5", "2"), ("0.8", "2")], 3),
        ([("1", "")], 1),
        ([], 0),
    ],
)
def test_shares_are_added_up_in_hundredths(pods: list[tuple[str, str]], needed: int) -> None:
    found = shares(*(waiting(fraction=fraction, devices=devices) for fraction, devices in pods))
    assert needed_gpus(found, [], 0.1) == needed


@pytest.mark.parametrize(
    ("sizes", "needed"),
    [
        ([], 1),  # 0.3 by the ratio
        ([40_000], 3),  # all of each
        ([80_000, 40_000], 3),  # the smallest that holds it
        ([80_000, 20_000], 2),  # 20,000 is too small
    ],
)
def test_memory_counts_by_the_smallest_gpu_that_holds_it(sizes: list[int], needed: int) -> None:
    found = shares(*(waiting(str(number), memory="40000") for number in range(3)))
    assert needed_gpus(found, sizes, 0.1) == needed


def test_t126_a_request_for_memory_needs_a_gpu() -> None:
    assert needed_gpus(shares(waiting(memory="1024")), [], 0.1) == 1


def test_what_the_whole_pod_requests_is_asked_for() -> None:
    init = {"name": "i", "resources": {"requests": {"cpu": "2"}}}
    found = share(waiting(fraction="0.5", initContainers=[init]))
    assert found is not None
    assert (found.cpu_milli, found.memory_bytes) == (2000, 1 << 30)


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(waiting(fraction="0.5", status={}), id="no scheduler has looked at it"),
        pytest.param(
            waiting(fraction="0.5", status={"conditions": [{"type": "PodScheduled", "status": "False"}]}),
            id="waits for something else",
        ),
        pytest.param(waiting(fraction="0.5", schedulerName="default-scheduler"), id="other scheduler"),
        pytest.param(waiting(fraction="0.5", nodeName="n1"), id="bound"),
        pytest.param(waiting(fraction="0.5", status={**UNSCHEDULABLE, "phase": "Succeeded"}), id="finished"),
        pytest.param(waiting(), id="no share"),
    ],
)
def test_t128_pods_that_wait_for_no_gpu_are_ignored(pod: Pod) -> None:
    assert share(pod) is None


@pytest.mark.parametrize(
    "pod",
    [
        waiting(fraction="0.5", devices="a3"),
        waiting(fraction="half"),
        waiting(fraction="0.5", devices="129"),
        waiting(memory="-5"),
    ],
)
def test_t127_pods_that_cannot_be_read_are_skipped(pod: Pod) -> None:
    assert share(pod) is None
