"""Admission of pods that share GPUs: gpu:10.2, 10.3, 10.5, 17, T-5 to T-15."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pykai.api import names
from pykai.api.unstructured import JsonObject
from pykai.webhooks.gpusharing import ALPHABET, AdmissionDenied, SharingRules, mutate, validate

HAMI = SharingRules(hami_core_enabled=True)


def a_pod(
    annotations: Mapping[str, str] | None = None,
    *,
    name: str = "p",
    limits: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    metadata: JsonObject | None = None,
    **spec: Any,
) -> JsonObject:
    """A pod of ours with one container."""
    container = {"name": "c", "image": "i"} | ({"resources": {"limits": dict(limits)}} if limits else {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": dict(annotations or {}), "labels": dict(labels or {})}
        | (metadata or {}),
        "spec": {"schedulerName": names.SCHEDULER_NAME, "containers": [container], **spec},
    }


HALF = {names.GPU_FRACTION_ANNOTATION: "0.5"}


def letters(count: int) -> str:
    return "x" * count


def mutated(pod: JsonObject, rules: SharingRules = HAMI) -> JsonObject:
    changed = mutate(pod, namespace="ns", random=letters, rules=rules)
    assert changed is not None
    return changed


def reference(key: str, **extra: Any) -> JsonObject:
    return {"name": key, "valueFrom": {"configMapKeyRef": {"name": "p-xxxxxxx-shared-gpu-0", "key": key, **extra}}}


def test_the_golden_pod() -> None:
    pod = a_pod({**HALF, names.GPU_NUM_DEVICES_ANNOTATION: "2"})
    changed = mutated(pod)
    assert changed["metadata"]["annotations"]["runai/shared-gpu-configmap"] == "p-xxxxxxx-shared-gpu"
    assert changed["spec"] == {
        "schedulerName": "kai-scheduler",
        "runtimeClassName": "nvidia",
        "volumes": [{"name": "p-xxxxxxx-shared-gpu-0-vol", "configMap": {"name": "p-xxxxxxx-shared-gpu-0"}}],
        "containers": [
            {
                "name": "c",
                "image": "i",
                "env": [
                    reference("NVIDIA_VISIBLE_DEVICES"),
                    reference("RUNAI_NUM_OF_GPUS"),
                    reference("GPU_PORTION"),
                    reference("CUDA_DEVICE_MEMORY_LIMIT", optional=True),
                ],
                "envFrom": [{"configMapRef": {"name": "p-xxxxxxx-shared-gpu-0-evar", "optional": False}}],
            }
        ],
    }
    assert pod == a_pod({**HALF, names.GPU_NUM_DEVICES_ANNOTATION: "2"}), "the argument is left as it was"


def test_a_second_call_changes_nothing() -> None:
    assert mutate(mutated(a_pod(HALF)), namespace="ns", random=letters, rules=HAMI) is None


@pytest.mark.parametrize("pod", [a_pod(), a_pod(HALF, schedulerName="other"), a_pod(HALF, containers=[])])
def test_other_pods_are_left_alone(pod: JsonObject) -> None:
    assert mutate(pod, namespace="ns", random=letters) is None


def test_hami_core_and_the_runtime_class_are_settings() -> None:
    changed = mutated(a_pod(HALF), SharingRules(fraction_runtime_class=""))
    assert "runtimeClassName" not in changed["spec"]
    assert "CUDA_DEVICE_MEMORY_LIMIT" not in str(changed)
    assert mutated(a_pod(HALF, runtimeClassName="mine"))["spec"]["runtimeClassName"] == "mine"


def test_variables_of_the_same_name_are_replaced_and_others_stay() -> None:
    own = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}, {"name": "A", "value": "1"}]
    pod = a_pod(HALF, containers=[{"name": "c", "env": own}], volumes=[{"name": "data"}])
    (container,) = mutated(pod)["spec"]["containers"]
    assert [entry["name"] for entry in container["env"]][:2] == ["NVIDIA_VISIBLE_DEVICES", "A"]
    assert container["env"][0] == reference("NVIDIA_VISIBLE_DEVICES")
    assert [volume["name"] for volume in mutated(pod)["spec"]["volumes"]] == ["data", "p-xxxxxxx-shared-gpu-0-vol"]


def prefix(pod: JsonObject) -> str:
    found: str = mutated(pod)["metadata"]["annotations"][names.SHARED_GPU_CONFIGMAP_ANNOTATION]
    return found


def test_t13_a_dot_stays_in_names_of_config_maps_and_goes_from_names_of_volumes() -> None:
    changed = mutated(a_pod(HALF, name="test.pod"))
    assert prefix(a_pod(HALF, name="test.pod")) == "test.pod-xxxxxxx-shared-gpu"
    assert changed["spec"]["volumes"][0]["name"] == "test-pod-xxxxxxx-shared-gpu-0-vol"
    assert changed["spec"]["volumes"][0]["configMap"]["name"] == "test.pod-xxxxxxx-shared-gpu-0"


def test_t14_names_are_cut_and_end_in_no_dot() -> None:
    assert prefix(a_pod(HALF, name="a" * 32 + ".b")) == "a" * 32 + "-xxxxxxx-shared-gpu"
    owner = {"ownerReferences": [{"name": "o" * 40}]}
    assert prefix(a_pod(HALF, metadata=owner)) == "o" * 33 + "-xxxxxxx-shared-gpu"


def test_e2_a_pod_without_a_name_yet_is_named_after_what_it_will_be_called() -> None:
    assert prefix(a_pod(HALF, name="", metadata={"generateName": "job-"})) == "job-xxxxxxx-shared-gpu"
    assert prefix(a_pod(HALF, name="")) == "pod-xxxxxxx-shared-gpu"


def test_e2_a_prefix_that_is_there_is_kept() -> None:
    assert prefix(a_pod({**HALF, names.SHARED_GPU_CONFIGMAP_ANNOTATION: "mine"})) == "mine"


@pytest.mark.parametrize(("container", "index"), [("d", "1"), ("init", "i0")])
def test_t15_the_container_may_be_chosen(container: str, index: str) -> None:
    annotations = {**HALF, names.GPU_FRACTION_CONTAINER_ANNOTATION: container}
    pod = a_pod(annotations, containers=[{"name": "c"}, {"name": "d"}], initContainers=[{"name": "init"}])
    changed = mutated(pod)["spec"]
    assert changed["volumes"][0]["configMap"]["name"] == f"p-xxxxxxx-shared-gpu-{index}"
    treated = [c["name"] for c in changed["containers"] + changed["initContainers"] if "env" in c]
    assert treated == [container]


def test_t15_a_missing_container_is_refused() -> None:
    pod = a_pod({**HALF, names.GPU_FRACTION_CONTAINER_ANNOTATION: "x"})
    with pytest.raises(AdmissionDenied, match="failed to get fraction container ref: container with name x not found"):
        mutated(pod)


def test_a1_a_foreign_namespace_is_refused() -> None:
    with pytest.raises(AdmissionDenied, match="does not match the namespace ns"):
        mutated(a_pod(HALF, metadata={"namespace": "other"}))


def test_the_alphabet_makes_no_words() -> None:
    assert not set(ALPHABET) & set("aeiouy013")


FRACTION_SMALLER = "gpu-fraction annotation value must be a positive number smaller than 1.0"
FRACTION_WRITTEN = (
    "gpu-fraction annotation value must be a float written with a decimal point or a scientific notation .given value: "
)
NO_BOTH = "cannot have both GPU fraction request and whole GPU resource request/limit"
NO_MEMORY_BOTH = "cannot request both GPU and GPU memory"
MEMORY_POSITIVE = "gpu-memory annotation value must be a positive integer greater than 0"
COUNT_POSITIVE = "fraction count annotation value must be a positive integer greater than 0"
MPS = "MPS is only supported with GPU fraction request"
ALONE = "cannot request multiple fractional devices without specifying fraction portion or gpu-memory"


@pytest.mark.parametrize(
    ("annotations", "limits", "problem"),
    [
        ({}, {"nvidia.com/gpu": "2000m"}, ""),
        ({"gpu-fraction": "0.5"}, {}, ""),
        ({"gpu-fraction": ".5"}, {}, ""),
        ({"gpu-fraction": "5e-1"}, {}, ""),
        ({"gpu-fraction": "0.01"}, {}, ""),
        ({"gpu-memory": "1024", "gpu-fraction-num-devices": "2"}, {}, ""),
        ({"gpu-fraction": "0.5", "mps": "true"}, {}, ""),
        ({"mps": "false"}, {}, ""),
        ({"gpu-fraction": "0.5"}, {"nvidia.com/gpu": "2m"}, NO_BOTH),
        ({"gpu-fraction": "0.5"}, {"nvidia.com/gpu": "0"}, NO_BOTH),
        ({"gpu-fraction": "1.5"}, {}, FRACTION_SMALLER),
        ({"gpu-fraction": "1"}, {}, FRACTION_SMALLER),
        ({"gpu-fraction": "-1"}, {}, FRACTION_SMALLER),
        ({"gpu-fraction": "0"}, {}, FRACTION_SMALLER),
        ({"gpu-fraction": "Inf"}, {}, FRACTION_SMALLER),
        ({"gpu-fraction": "half"}, {}, FRACTION_SMALLER),
        ({"gpu-fraction": "0_5"}, {}, FRACTION_SMALLER),
        ({"gpu-fraction": "٠.٥"}, {}, FRACTION_SMALLER),
        ({"gpu-fraction": "NaN"}, {}, FRACTION_WRITTEN + "NaN"),
        ({"gpu-fraction": "0x1p-1"}, {}, FRACTION_WRITTEN + "0x1p-1"),
        ({"gpu-fraction": "0x1p1"}, {}, FRACTION_SMALLER),
        ({"gpu-fraction": "0.009"}, {}, "gpu-fraction annotation value must be at least 0.01, not 0.009"),
        ({"gpu-memory": "-1"}, {}, MEMORY_POSITIVE),
        ({"gpu-memory": "0"}, {}, MEMORY_POSITIVE),
        ({"gpu-memory": "1Gi"}, {}, MEMORY_POSITIVE),
        ({"gpu-memory": "9" * 40}, {}, MEMORY_POSITIVE),
        ({"gpu-memory": "10"}, {"nvidia.com/gpu": "1"}, NO_MEMORY_BOTH),
        ({"gpu-memory": "10", "gpu-fraction": "0.5"}, {}, NO_MEMORY_BOTH),
        ({"gpu-fraction-num-devices": "1"}, {}, ALONE),
        ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "1.2"}, {}, COUNT_POSITIVE),
        ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "0"}, {}, COUNT_POSITIVE),
        ({"mps": "true"}, {"nvidia.com/gpu": "1"}, MPS),
        ({"mps": "true"}, {}, MPS),
        (
            {"gpu-fraction": "0.5"},
            {"amd.com/gpu": "1"},
            "cannot have both a GPU fraction or GPU memory request and a request for amd.com/gpu",
        ),
        (
            {"gpu-fraction": "0.5"},
            {"gpu.intel.com/i915": "1"},
            "cannot have both a GPU fraction or GPU memory request and a request for gpu.intel.com/i915",
        ),
        (
            {"gpu-memory": "10"},
            {"nvidia.com/mig-1g.5gb": "1"},
            "cannot have both a GPU fraction or GPU memory request and a request for nvidia.com/mig-1g.5gb",
        ),
        (
            {"gpu-fraction": "0.5", "gpu-fraction-container-name": "x"},
            {},
            "container with name x not found for fraction request",
        ),
    ],
)
def test_a5_what_may_be_requested(annotations: dict[str, str], limits: dict[str, str], problem: str) -> None:
    assert validate(a_pod(annotations, limits=limits)) == ([problem] if problem else [])


def test_t9_a_sidecars_limit_counts_too() -> None:
    pod = a_pod({"gpu-memory": "10"}, initContainers=[{"name": "s", "resources": {"limits": {"nvidia.com/gpu": "1"}}}])
    assert validate(pod) == [NO_MEMORY_BOTH]


def test_t12_sharing_may_be_switched_off() -> None:
    pod = a_pod(HALF, metadata={"namespace": "ns"})
    assert validate(pod, rules=SharingRules(gpu_sharing_enabled=False)) == [
        "attempting to create a pod ns/p with gpu sharing request, while GPU sharing is disabled"
    ]
    assert validate(a_pod(), rules=SharingRules(gpu_sharing_enabled=False)) == []


def test_pods_of_other_schedulers_are_not_judged() -> None:
    assert validate(a_pod({"gpu-fraction": "7"}, schedulerName="other")) == []


@pytest.mark.parametrize(
    "after",
    [
        {"gpu-fraction": "0.7"},
        {},
        {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"},
        {"gpu-fraction": "0.5", "runai/shared-gpu-configmap": "other"},
    ],
)
def test_requests_do_not_change_after_creation(after: dict[str, str]) -> None:
    (problem,) = validate(a_pod(after), a_pod(HALF))
    assert "cannot be changed after the pod was created" in problem


def test_other_changes_are_allowed() -> None:
    assert validate(a_pod({**HALF, "mine": "2"}), a_pod({**HALF, "mine": "1"})) == []


@pytest.mark.parametrize(
    ("annotations", "labels"),
    [
        ({}, {"runai-gpu-group": "g"}),
        ({}, {"runai-gpu-group/g": "g"}),
        ({"received-resource-type": "Fraction"}, {}),
        ({"kai.scheduler/numa-placement-observed": "[]"}, {}),
        ({"kai.scheduler/numa-placement-predicted": "[]"}, {}),
    ],
)
def test_keys_of_the_services_are_writable_by_the_services_only(
    annotations: dict[str, str], labels: dict[str, str]
) -> None:
    forged = a_pod(annotations, labels=labels)
    assert validate(forged, privileged=True) == []
    (problem,) = validate(forged, privileged=False)
    assert "only" in problem
    assert validate(forged, forged, privileged=False) == [], "an update that leaves it as it is"
    (problem,) = validate(a_pod(), forged, privileged=False)
    assert "only" in problem
