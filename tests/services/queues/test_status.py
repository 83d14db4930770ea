"""The desired status of a queue, and its gauges (queues:2.2, 15.1)."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from pykai.api.decode import decode_as
from pykai.api.scheduling import Queue
from pykai.queues.forest import QueueForest, QueueUsage
from pykai.queues.gauges import ExtraLabels, QueueGauges
from pykai.queues.status import gpus_of, status_patch

N = 10**9
UNLIMITED = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
PLAIN = {"resources": {"gpu": UNLIMITED, "cpu": UNLIMITED, "memory": UNLIMITED}}


def queue(status: Any = None, labels: dict[str, str] | None = None, **spec: Any) -> Queue:
    raw = {"metadata": {"name": "q", "labels": labels or {}}, "spec": {**PLAIN, **spec}, "status": status}
    return decode_as(Queue, raw)


def quotas(**resources: float) -> dict[str, Any]:
    return {name: {**UNLIMITED, "quota": quota} for name, quota in resources.items()} | {
        name: UNLIMITED for name in ("gpu", "cpu", "memory") if name not in resources
    }


def with_sums(allocated: dict[str, int], parent: str = "") -> QueueForest:
    forest = QueueForest()
    forest.put_queue("q", parent)
    forest.put_group("g", "q", QueueUsage(dict(allocated), dict(allocated), {}))
    return forest


def conditions(patch: dict[str, Any] | None) -> dict[str, tuple[str, str]]:
    assert patch is not None
    return {entry["type"]: (entry["status"], entry["reason"]) for entry in patch["status"]["conditions"]}


def test_sums_children_and_conditions() -> None:
    forest = with_sums({"cpu": 2500 * 10**6, "memory": 4 * 2**30 * N, "nvidia.com/gpu": 3 * N // 2})
    forest.put_queue("b", "q")
    forest.put_queue("a", "q")
    patch = status_patch(queue(), forest, "now")
    assert patch is not None
    listed = {"cpu": "2500m", "memory": "4Gi", "nvidia.com/gpu": "1500m"}
    assert (patch["status"]["allocated"], patch["status"]["requested"]) == (listed, listed)
    assert "allocatedNonPreemptible" not in patch["status"]
    assert patch["status"]["childQueues"] == ["a", "b"]
    assert conditions(patch) == {
        "Orphan": ("False", "TopLevel"),
        "Cyclic": ("False", "NoCycle"),
        "OverQuota": ("False", "WithinQuota"),
    }


def test_nothing_is_written_twice() -> None:
    """queues:4.2, Do better."""
    forest = with_sums({"cpu": N})
    first = status_patch(queue(), forest, "now")
    assert first is not None
    assert status_patch(queue(first["status"]), forest, "later") is None
    forest.put_group("g", "", None)
    patch = status_patch(queue(first["status"]), forest, "later")
    assert patch == {"status": {"allocated": None, "requested": None}}


@pytest.mark.parametrize("garbage", ["x", 7, [1], {"allocated": "x", "childQueues": 7, "conditions": {}}])
def test_a_malformed_status_is_replaced(garbage: Any) -> None:
    patch = status_patch(queue(garbage), with_sums({"cpu": N}), "now")
    assert patch is not None
    assert patch["status"]["allocated"] == {"cpu": "1"}
    assert conditions(patch)["Orphan"] == ("False", "TopLevel")


def test_a_queue_below_nothing_and_one_below_itself() -> None:
    assert conditions(status_patch(queue(parentQueue="x"), with_sums({}, "x"), "now"))["Orphan"] == (
        "True",
        "ParentNotFound",
    )
    assert conditions(status_patch(queue(parentQueue="q"), with_sums({}, "q"), "now"))["Cyclic"] == (
        "True",
        "ParentCycle",
    )


@pytest.mark.parametrize(
    ("quota", "allocated", "over"),
    [
        ({"gpu": 2}, {"nvidia.com/gpu": 2 * N}, False),
        ({"gpu": 2}, {"nvidia.com/gpu": 2 * N + 1}, True),
        ({"gpu": 2}, {"nvidia.com/gpu": 2 * N, "amd.com/gpu": N}, True),
        ({"cpu": 500}, {"cpu": N // 2}, False),
        ({"cpu": 500}, {"cpu": N}, True),
        ({"memory": 1000}, {"memory": 10**9 * N}, False),
        ({"memory": 1000}, {"memory": 2**30 * N}, True),
        ({"memory": -5}, {"memory": 2**30 * N}, False),
        ({"gpu": -1}, {"nvidia.com/gpu": 99 * N}, False),
        ({"gpu": -5}, {}, False),
        ({"gpu": -5}, {"nvidia.com/gpu": 1}, True),
        ({"gpu": 1e300}, {"nvidia.com/gpu": 99 * N}, False),
    ],
)
def test_which_queues_are_over_quota(quota: dict[str, float], allocated: dict[str, int], over: bool) -> None:
    patch = status_patch(queue(resources=quotas(**quota)), with_sums(allocated), "now")
    assert conditions(patch)["OverQuota"][0] == str(over)


def test_gpus_are_those_of_all_kinds() -> None:
    """queues:Q-361, Do better."""
    amounts = {
        "nvidia.com/gpu": N,
        "amd.com/gpu": N,
        "gpu.intel.com/i915": N,
        "gpu.intel.com/xe": N,
        "nvidia.com/mig-3g.20gb": 2 * N,
        "gpu.example.com": N,
        "run.ai/gpu.memory": 5000 * N,
        "cpu": N,
    }
    assert gpus_of(amounts) == 11 * N


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"resources": None}, "NoResources"),
        ({"resources": quotas(gpu=-5)}, "NegativeNumber"),
        ({"resources": {**quotas(), "cpu": {**UNLIMITED, "limit": -2}}}, "NegativeNumber"),
        ({"resources": {**quotas(), "cpu": {**UNLIMITED, "overQuotaWeight": -1}}}, "NegativeNumber"),
        ({"preemptMinRuntime": "ten"}, "InvalidDuration"),
        ({"reclaimMinRuntime": "ten"}, "InvalidDuration"),
    ],
)
def test_what_is_wrong_with_a_queue(spec: dict[str, Any], reason: str) -> None:
    patch = status_patch(queue(**spec), with_sums({}), "now")
    assert conditions(patch)["Valid"] == ("False", reason)
    assert patch is not None
    assert conditions(status_patch(queue(patch["status"]), with_sums({}), "now"))["Valid"] == ("True", "Mended")


def test_gauges() -> None:
    """queues:K1."""
    registry = CollectorRegistry()
    gauges = QueueGauges(registry, "kai", ExtraLabels({}, {}))
    found = queue(resources=quotas(gpu=2, cpu=500, memory=4), displayName="Team")
    gauges.set(found, {"nvidia.com/gpu": 3 * N // 2, "cpu": N // 4, "memory": 2 * 2**30 * N})
    labels = {"queue_name": "q", "queue_metadata_name": "q", "queue_display_name": "Team"}

    def value(name: str) -> float | None:
        return registry.get_sample_value(f"kai_queue_{name}", labels)

    assert [value(name) for name in ("info", "deserved_gpus", "quota_cpu_cores", "quota_memory_bytes")] == [
        1,
        2,
        0.5,
        4000000,
    ]
    assert [value(f"allocated_{name}") for name in ("gpus", "cpu_cores", "memory_bytes")] == [1.5, 0.25, 2147483648]
    gauges.set(found, dict.fromkeys(("nvidia.com/gpu", "cpu", "memory"), 123_456_789))
    assert {value(f"allocated_{name}") for name in ("gpus", "cpu_cores", "memory_bytes")} == {0.1235}
    gauges.set(queue(displayName="Team"), {})
    assert [value(name) for name in ("deserved_gpus", "quota_cpu_cores", "quota_memory_bytes")] == [-1, -1, -1]
    gauges.set(queue(displayName="Other", resources=None), {})
    assert value("info") is None
    labels["queue_display_name"] = "Other"
    assert (value("info"), value("deserved_gpus")) == (1, 0)
    gauges.drop("q")
    gauges.drop("q")
    assert value("info") is None


def test_labels_of_queues_become_labels_of_metrics() -> None:
    """queues:K2."""
    registry = CollectorRegistry()
    extra = ExtraLabels({"z": "zone", "a": "area", "n": "none"}, {"z": "unknown"})
    gauges = QueueGauges(registry, "m", extra)
    gauges.set(queue(labels={"a": "north"}), {})
    labels = {"queue_name": "q", "queue_metadata_name": "q", "queue_display_name": ""}
    assert registry.get_sample_value("m_queue_info", labels | {"zone": "unknown", "area": "north", "none": ""}) == 1
