"""The scaling pod of a pod (gpu:SA-8)."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pykai.core.model.shapes import GpuKind, GpuRequest
from pykai.nodescale.demand import UnschedulableShare
from pykai.nodescale.options import NodeScaleOptions
from pykai.nodescale.scalingpod import back_reference, label_value, scaling_pod, scaling_pod_name

SHARE = UnschedulableShare("ns", "p", "uid", "", GpuRequest(GpuKind.FRACTION, 2, 0.5), 1500, 3 << 30)


def made(**spec: Any) -> dict[str, Any]:
    return scaling_pod(SHARE, spec, NodeScaleOptions(scaling_pod_image="image"))


def test_it_asks_for_whole_gpus_and_what_the_pod_requests() -> None:
    (container,) = made()["spec"]["containers"]
    assert container["name"] == "scaling-pod"
    assert container["resources"] == {
        "requests": {"nvidia.com/gpu": "2", "cpu": "1500m", "memory": "3Gi"},
        "limits": {"nvidia.com/gpu": "2"},
    }


def test_the_smallest_requests_count_and_none_is_left_out() -> None:
    def requests(cpu_milli: int, memory_bytes: int) -> dict[str, str]:
        share = UnschedulableShare("ns", "p", "uid", "", SHARE.request, cpu_milli, memory_bytes)
        document = scaling_pod(share, {}, NodeScaleOptions(scaling_pod_image="image"))
        found: dict[str, str] = document["spec"]["containers"][0]["resources"]["requests"]
        return found

    assert requests(1, 1) == {"nvidia.com/gpu": "2", "cpu": "1m", "memory": "1"}
    assert requests(0, 0) == {"nvidia.com/gpu": "2"}


def test_it_may_do_nothing_on_its_node() -> None:
    spec = made()["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_it_names_its_pod() -> None:
    metadata = made()["metadata"]
    assert metadata["namespace"] == "kai-scale-adjust"
    assert metadata["labels"] == {
        "app": "scaling-pod",
        "shared-gpu-pod-name": "p",
        "shared-gpu-pod-namespace": "ns",
    }


def test_only_placement_is_copied_from_the_pod() -> None:
    placement = {
        "nodeSelector": {"gpu": "h100"},
        "tolerations": [{"operator": "Exists"}],
        "topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}],
        "runtimeClassName": "nvidia",
    }
    other = {
        "priorityClassName": "system-node-critical",
        "serviceAccountName": "mighty",
        "hostNetwork": True,
        "volumes": [{"name": "v"}],
        "nodeName": "n1",
        "schedulerName": "kai-scheduler",
    }
    spec = made(**placement, **other)["spec"]
    assert {key: spec[key] for key in placement} == placement
    assert spec["serviceAccountName"] == "scaling-pod"
    assert not set(spec) & (set(other) - {"serviceAccountName"})


def test_affinity_to_pods_of_the_own_namespace_names_it() -> None:
    plain = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}
    elsewhere = {**plain, "namespaces": ["x"]}
    everywhere = {**plain, "namespaceSelector": {}}
    spec = made(
        affinity={
            "nodeAffinity": {"untouched": True},
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [plain, elsewhere, everywhere, "x"]},
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": plain}]
            },
        }
    )["spec"]
    own = {**plain, "namespaces": ["ns"]}
    assert spec["affinity"] == {
        "nodeAffinity": {"untouched": True},
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [own, elsewhere, everywhere, "x"]},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": own}]},
    }


def test_names_that_kai_would_confuse_stay_apart() -> None:
    assert scaling_pod_name("a-b", "c") != scaling_pod_name("a", "b-c")


@given(st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", fullmatch=True))
def test_long_names_become_valid_names_and_labels(name: str) -> None:
    made_name = scaling_pod_name("ns", name)
    assert len(made_name) <= 63
    assert made_name.replace("-", "").isalnum()
    assert len(label_value(name)) <= 63
    assert label_value(name)[-1].isalnum()


def test_long_names_with_one_beginning_stay_apart() -> None:
    one, other = "a" * 200 + "x", "a" * 200 + "y"
    assert scaling_pod_name("ns", one) != scaling_pod_name("ns", other)
    assert len(scaling_pod_name("ns", one)) == len(label_value(one)) == 63
    assert back_reference("ns", one) != back_reference("ns", other)
