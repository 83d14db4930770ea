"""Which devices containers may name: gpu:10.4."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api import names
from pykai.webhooks.gpusharing import SharingRules
from pykai.webhooks.pods import mutate_pod, pod_problem
from tests.webhooks.test_gpusharing import HALF, a_pod, letters

Raw = dict[str, Any]
BLOCKED = SharingRules(visible_devices_blocked=True)
VARIABLE = "NVIDIA_VISIBLE_DEVICES"
VOID = {"name": VARIABLE, "value": "void"}
GPU = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
REFERENCE = {"name": VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}


def container(name: str = "c", *env: Raw, **more: Any) -> Raw:
    return {"name": name, "image": "i", **({"env": list(env)} if env else {}), **more}


def pod_of(*containers: Raw, **spec: Any) -> Raw:
    return a_pod(containers=list(containers), **spec)


def hidden(pod: Raw, old: Raw | None = None, rules: SharingRules = BLOCKED) -> Raw | None:
    return mutate_pod(pod, old, namespace="ns", random=letters, rules=rules)


def problem(pod: Raw, old: Raw | None = None, rules: SharingRules = BLOCKED) -> str:
    return pod_problem(pod, old, privileged=False, rules=rules)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (container(), container("c", VOID)),
        (
            container("c", {"name": "A", "value": "1"}, {"name": VARIABLE, "value": "all"}),
            container("c", {"name": "A", "value": "1"}, VOID),
        ),
        (container("c", REFERENCE), container("c", VOID)),
        (container("c", VOID, {"name": VARIABLE, "value": "all"}), container("c", VOID, VOID)),
        (
            container("c", resources={"requests": {"nvidia.com/gpu": "0", "cpu": "1"}}),
            container("c", VOID, resources={"requests": {"nvidia.com/gpu": "0", "cpu": "1"}}),
        ),
    ],
)
def test_a_container_without_a_gpu_sees_no_device(before: Raw, after: Raw) -> None:
    """gpu:A-9."""
    changed = hidden(pod_of(before, initContainers=[container("i")]))
    assert changed is not None
    assert changed["spec"]["containers"] == [after]
    assert changed["spec"]["initContainers"] == [container("i", VOID)]
    assert problem(changed) == ""
    assert hidden(changed) is None


@pytest.mark.parametrize(
    "resources",
    [
        {"limits": {"nvidia.com/gpu": "1"}},
        {"requests": {"nvidia.com/gpu": 1}},
        {"requests": {"nvidia.com/mig-1g.5gb": "1"}},
        {"claims": [{"name": "gpu"}]},
        {"limits": {"nvidia.com/gpu": "an amount that only the API server can judge"}},
    ],
)
def test_a_container_with_a_gpu_is_left_alone(resources: Raw) -> None:
    """gpu:A-9, T-18."""
    assert hidden(pod_of(container("c", resources=resources))) is None


@pytest.mark.parametrize("value", ["0", "1,2", "all", "GPU-1234", 7])
def test_named_devices_are_refused(value: object) -> None:
    """gpu:A-8."""
    named = container("c", {"name": VARIABLE, "value": value}, **GPU)
    assert problem(pod_of(named)) == (
        f"container c has an environment variable NVIDIA_VISIBLE_DEVICES defined with a value of {value}. This is "
        "forbidden due to conflicts with Nvidia's device plugin. The only values that are allowed are 'void' or 'none'"
    )
    assert problem(pod_of(container(), initContainers=[{**named, "name": "i"}])).startswith("container i has")
    assert problem(pod_of(container(), ephemeralContainers=[{**named, "name": "e"}])).startswith("container e has")
    assert problem(pod_of(named), rules=SharingRules()) == ""
    assert problem(pod_of(named, schedulerName="default-scheduler")) == ""


@pytest.mark.parametrize("value", ["void", "none", "", None])
def test_no_devices_are_admitted(value: object) -> None:
    """gpu:A-8."""
    assert problem(pod_of(container("c", {"name": VARIABLE, "value": value}, **GPU))) == ""


def test_a_reference_is_refused() -> None:
    """gpu:A-8."""
    assert problem(pod_of(container("c", REFERENCE, **GPU))) == (
        "container c has an environment variable NVIDIA_VISIBLE_DEVICES defined with a valueFrom reference. "
        "This is forbidden due to possible conflicts with Nvidia's device plugin"
    )


def test_the_container_that_shares_a_gpu_keeps_its_reference() -> None:
    """gpu:A-8, A-9."""
    pod = a_pod({**HALF, names.GPU_FRACTION_CONTAINER_ANNOTATION: "b"}, containers=[container("a"), container("b")])
    changed = hidden(pod)
    assert changed is not None
    first, second = changed["spec"]["containers"]
    assert first["env"] == [VOID]
    assert second["env"][0]["valueFrom"]["configMapKeyRef"]["key"] == VARIABLE
    assert changed["spec"]["runtimeClassName"] == "nvidia"
    assert problem(changed) == ""


@pytest.mark.parametrize("path", ["/var/run/nvidia-container-devices", "/var/run/nvidia-container-devices/all"])
def test_mounts_that_ask_for_devices_are_refused(path: str) -> None:
    """gpu:A-9."""
    mounting = container("c", volumeMounts=[{"name": "v", "mountPath": "/data"}, {"name": "v", "mountPath": path}])
    assert f"container c mounts {path}" in problem(pod_of(mounting))
    near = container("c", volumeMounts=[{"name": "v", "mountPath": "/var/run/nvidia-container-devices-of-mine"}])
    assert problem(pod_of(near)) == ""


def test_only_new_ephemeral_containers_are_changed() -> None:
    """gpu:A-9."""
    old = pod_of(container("c", VOID), ephemeralContainers=[container("first")])
    new = pod_of(container("c", VOID), ephemeralContainers=[container("first"), container("second")])
    changed = hidden(new, old)
    assert changed is not None
    assert changed["spec"]["ephemeralContainers"] == [container("first"), container("second", VOID)]
    assert "runtimeClassName" not in changed["spec"]


def test_pods_from_before_stay_writable() -> None:
    named = pod_of(container("c", {"name": VARIABLE, "value": "all"}, **GPU))
    labelled = {**named, "metadata": {**named["metadata"], "labels": {"a": "b"}}}
    assert problem(labelled, named) == ""


def test_pods_of_other_schedulers_are_not_touched() -> None:
    """gpu:A-1."""
    assert hidden(pod_of(container(), schedulerName="default-scheduler")) is None
    assert hidden(pod_of(container()), rules=SharingRules()) is None
