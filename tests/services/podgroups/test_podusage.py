"""What a pod counts for in its group (workloads:PC-3 to PC-6)."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api.core import Pod
from pykai.api.decode import decode_as
from pykai.core.model.shapes import ShapeRegister
from pykai.podgroups.podusage import GroupMember, gpu_memory_mib, read_member, same_member

N = 10**9
GPU, GPU_MEMORY = "nvidia.com/gpu", "run.ai/gpu.memory"
SCHEDULED = [{"type": "PodScheduled", "status": "True"}]


def member(
    *,
    phase: str = "Pending",
    requests: dict[str, Any] | None = None,
    annotations: dict[str, str] | None = None,
    conditions: list[dict[str, str]] | None = None,
    node: dict[str, str] | None = None,
    **fields: Any,
) -> GroupMember:
    """The member that a pod is; `node` are the labels of its node."""
    container = {"name": "m", "resources": {"requests": requests if requests is not None else {"cpu": "1"}}}
    raw: dict[str, Any] = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "annotations": annotations or {}},
        "spec": {"containers": [container], **fields.pop("spec", {})},
        "status": {"phase": phase, "conditions": conditions or [], **fields.pop("status", {})},
    }
    raw["metadata"].update(fields)
    if node is not None:
        raw["spec"]["nodeName"] = "n"
    return read_member(decode_as(Pod, raw), ShapeRegister(), node)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"status": {"phase": "Pending", "conditions": [{"type": "PodBound", "status": "True"}]}}, True),
        ({"metadata": {"name": "p", "resourceVersion": "2"}}, True),
        ({"status": {"phase": "Running"}}, False),
        ({"status": {"phase": "Pending", "conditions": SCHEDULED}}, False),
        ({"spec": {"nodeName": "n"}}, False),
        ({"spec": {"containers": [{"name": "m", "resources": {"requests": {"cpu": "2"}}}]}}, False),
        ({"metadata": {"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z"}}, False),
        ({"metadata": {"name": "p", "labels": {"kai.scheduler/subgroup-name": "a"}}}, False),
        ({"metadata": {"name": "p", "annotations": {"received-resource-type": "Fraction"}}}, False),
        ({"metadata": {"name": "p", "uid": "other"}}, False),
    ],
)
def test_which_changes_of_a_pod_are_processed(change: dict[str, Any], same: bool) -> None:
    plain: dict[str, Any] = {"metadata": {"name": "p"}, "spec": {}, "status": {"phase": "Pending"}}
    assert same_member(decode_as(Pod, plain), decode_as(Pod, {**plain, **change})) is same


def test_a_waiting_pod_requests_and_holds_nothing() -> None:
    """workloads:T-130."""
    found = member()
    assert (found.requested, found.allocated) == ({"cpu": N}, {})
    assert (found.is_active, found.scheduled, found.running) == (True, False, False)


def test_a_scheduled_pod_holds_its_request() -> None:
    """workloads:T-131."""
    assert member(conditions=SCHEDULED).allocated == {"cpu": N}
    assert member(phase="Running").allocated == {"cpu": N}
    not_first = [{"type": "PodScheduled", "status": "False"}, *SCHEDULED]
    assert member(conditions=not_first).allocated == {}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Unknown"])
def test_other_phases_count_for_nothing(phase: str) -> None:
    """workloads:PC-3."""
    found = member(phase=phase, conditions=SCHEDULED, requests={"cpu": "nonsense"})
    assert (found.requested, found.allocated, found.is_active, found.problem) == ({}, {}, False, "")
    assert found.finished == (phase != "Unknown")


def test_a_fraction_counts_as_that_part_of_gpus() -> None:
    """workloads:T-132."""
    sharing = {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}
    found = member(annotations=sharing, requests={})
    assert found.requested == {GPU: N}
    assert member(annotations=sharing, requests={}, phase="Running").allocated == {}
    received = {**sharing, "received-resource-type": "Fraction"}
    assert member(annotations=received, requests={}, phase="Running").allocated == {GPU: N}


def test_memory_counts_as_memory_until_it_is_received() -> None:
    """workloads:T-132, T-133."""
    asks = {"gpu-memory": "2000", "gpu-fraction-num-devices": "2"}
    assert member(annotations=asks, requests={}).requested == {GPU_MEMORY: 4000 * N}
    received = {"gpu-memory": "2500", "received-resource-type": "Fraction"}
    found = member(annotations=received, requests={}, phase="Running", node={"nvidia.com/gpu.memory": "5000"})
    assert (found.allocated, found.gpu_memory_node) == ({GPU: N // 2}, "n")
    assert found.problem == ""
    twice = {**received, "gpu-fraction-num-devices": "2"}
    found = member(annotations=twice, requests={}, phase="Running", node={"nvidia.com/gpu.memory": "5000"})
    assert found.allocated == {GPU: N}


def test_a_share_that_cannot_be_measured_is_reported_and_the_rest_counts() -> None:
    received = {"gpu-memory": "2500", "received-resource-type": "Fraction"}
    for node in (None, {}, {"nvidia.com/gpu.memory": "x"}):
        found = member(annotations=received, phase="Running", node=node)
        assert found.allocated == {"cpu": N}
        assert found.problem


@pytest.mark.parametrize(
    ("labels", "mib"),
    [
        ({"nvidia.com/gpu.memory": "5000"}, 5000),
        ({"nvidia.com/gpu.memory": str(40 << 30)}, 40 << 10),
        ({"beta.amd.com/gpu.vram.16G": "8"}, 16000),
    ],
)
def test_the_memory_of_a_gpu(labels: dict[str, str], mib: int) -> None:
    """workloads:T-134."""
    assert gpu_memory_mib(labels) == mib


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"beta.amd.com/gpu.vram.16b8": "1"},
        {"beta.amd.com/gpu.vram": "1"},
        {"beta.amd.com/gpu.vram.16G": "1", "nvidia.com/gpu.memory": "5000"},
        {"nvidia.com/gpu.memory": "0"},
        {"nvidia.com/gpu.memory": "-1"},
    ],
)
def test_labels_without_the_memory(labels: dict[str, str]) -> None:
    """workloads:T-134."""
    with pytest.raises(ValueError, match="label"):
        gpu_memory_mib(labels)


def test_everything_the_scheduler_counts_is_counted() -> None:
    """workloads:PC, Do better (c)."""
    side = {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}}
    peak = {"name": "i", "resources": {"requests": {"memory": "8Gi"}}}
    spec = {"initContainers": [side, peak], "overhead": {"cpu": "250m"}}
    found = member(requests={"cpu": "1", "memory": "1Gi", "hugepages-2Mi": "4Mi", GPU: 2}, spec=spec)
    assert found.requested == {
        "cpu": 1750 * 10**6,
        "memory": 8 * 2**30 * N,
        "hugepages-2Mi": 4 * 2**20 * N,
        GPU: 2 * N,
    }


def test_an_invalid_request_is_reported() -> None:
    """workloads:PC, Do better (e)."""
    found = member(requests={"cpu": "many"})
    assert (found.requested, found.is_active) == ({}, True)
    assert "spec.containers[0].resources.requests.cpu" in found.problem


@pytest.mark.parametrize("key", ["gpu-fraction", "gpu-memory"])
def test_an_invalid_share_is_reported(key: str) -> None:
    """workloads:PC, Do better (d)."""
    found = member(annotations={key: "some", "received-resource-type": "Fraction"}, phase="Running")
    assert found.allocated == {"cpu": N}
    assert key in found.problem


def test_claims_by_name_and_from_templates() -> None:
    """workloads:PC-6, T-136."""
    claims = [
        {"name": "a", "resourceClaimName": "mine"},
        {"name": "b", "resourceClaimTemplateName": "t"},
        {"name": "c", "resourceClaimTemplateName": "t"},
    ]
    made = [{"name": "b", "resourceClaimName": "made"}, {"name": "c", "resourceClaimName": None}]
    found = member(spec={"resourceClaims": claims}, status={"resourceClaimStatuses": made})
    assert (found.claims, found.claims_allocated) == (("ns/mine", "ns/made"), False)
    assert member(phase="Running", spec={"resourceClaims": claims}).claims_allocated
    assert member(phase="Succeeded", spec={"resourceClaims": claims}).claims == ()


def test_a_terminating_pod_is_no_longer_alive_but_holds_resources() -> None:
    found = member(phase="Running", deletionTimestamp="2026-01-01T00:00:00Z", node={})
    assert (found.is_active, found.running, found.scheduled, found.allocated) == (False, False, False, {"cpu": N})


def test_gates_and_subgroups() -> None:
    found = member(spec={"schedulingGates": [{"name": "g"}]}, labels={"kai.scheduler/subgroup-name": "s"})
    assert (found.gated, found.gates, found.subgroup) == (True, ("g",), "s")
    assert (member().gated, member().subgroup) == (False, "default")
