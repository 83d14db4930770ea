"""What a pod needs of zones (gpu:N-5 to N-7)."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api.core import Pod
from pykai.api.decode import decode_object
from pykai.core.model.numarequests import NumaRequest, read_numa_request
from tests.core.numaclusters import GPU, Amounts, amounts_of, containers

GI = 2**30
MORE: dict[str, str | int] = {"hugepages-2Mi": "4Mi", "example.com/nic": 1}


def ask(spec: dict[str, Any], qos: str = "Guaranteed", *, shared: bool = False) -> NumaRequest | None:
    pod = decode_object({"apiVersion": "v1", "kind": "Pod", "spec": spec, "status": {"qosClass": qos}})
    assert isinstance(pod, Pod)
    return read_numa_request(pod, shared=shared)


def pod_of(spec: dict[str, Any], qos: str = "Guaranteed") -> dict[str, int]:
    found = ask(spec, qos)
    return dict(found.pod) if found is not None else {}


def test_n5_sidecars_come_before_the_containers_and_init_containers_stand_alone() -> None:
    found = ask(
        containers(
            amounts_of(gpu=1),
            amounts_of(gpu=2),
            init=(amounts_of(gpu=9),),
            sidecars=(amounts_of(gpu=3), amounts_of(gpu=4)),
        )
    )
    assert found is not None
    assert found.concurrent == (((GPU, 3),), ((GPU, 4),), ((GPU, 1),), ((GPU, 2),))
    assert found.serial == (((GPU, 9),),)


def test_n5_a_pod_needs_the_sum_of_its_long_runners_or_the_peak_of_its_start() -> None:
    assert pod_of(containers(amounts_of(gpu=1, cpu=2), amounts_of(gpu=2))) == {GPU: 3, "cpu": 2000}
    assert pod_of(containers(amounts_of(gpu=1, cpu=4), init=(amounts_of(gpu=5, cpu=3), amounts_of(gpu=2)))) == {
        GPU: 5,
        "cpu": 4000,
    }


def test_n5_an_init_container_runs_beside_the_sidecars_declared_before_it() -> None:
    assert pod_of(containers(amounts_of(gpu=1), init=(amounts_of(gpu=5),), sidecars=(amounts_of(gpu=2),))) == {GPU: 7}
    late = containers(amounts_of(gpu=1), init=(amounts_of(gpu=5),), sidecars=(amounts_of(gpu=2),))
    late["initContainers"].reverse()
    assert pod_of(late) == {GPU: 5}


def test_n6_only_whole_cores_of_guaranteed_pods_count() -> None:
    assert pod_of(containers(amounts_of(cpu=44), amounts_of(cpu="4500m", memory=GI))) == {"cpu": 44_000, "memory": GI}
    assert pod_of(containers(amounts_of(cpu="2000m"))) == {"cpu": 2000}
    assert pod_of(containers(amounts_of(cpu=44, gpu=1)), "Burstable") == {GPU: 1}


def test_n7_pods_that_are_not_guaranteed_need_devices_only() -> None:
    burstable = containers(amounts_of(gpu=1, cpu=2, memory=GI, **MORE))
    assert pod_of(burstable, "Burstable") == {GPU: 1, "example.com/nic": 1000}
    assert pod_of(burstable, "BestEffort") == {GPU: 1, "example.com/nic": 1000}
    assert set(pod_of(burstable)) == {GPU, "cpu", "memory", "hugepages-2Mi", "example.com/nic"}


def test_a_pod_that_is_never_aligned_has_no_request_and_a_guaranteed_one_always_has() -> None:
    assert ask(containers(amounts_of(cpu=2, memory=GI)), "Burstable") is None
    assert ask(containers(amounts_of(cpu="500m")), "Guaranteed") == NumaRequest(True, (), ((),), ())


def test_whole_gpus_of_a_pod_that_shares_one_do_not_count() -> None:
    assert ask(containers(amounts_of(gpu=1)), "Burstable", shared=True) is None


def test_names_that_no_node_counts_and_amounts_of_zero_are_left_out() -> None:
    assert pod_of(containers({"cpu": 1, "memory": 0, "nonsense": 3})) == {"cpu": 1000}


def limited(requests: Amounts, limits: Amounts) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": requests, "limits": limits}}


BOTH: Amounts = {"cpu": "2", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("spec", "guaranteed"),
    [
        ({"containers": [limited(BOTH, BOTH)]}, True),
        ({"containers": [limited(BOTH, {"cpu": "2000m", "memory": "1024Mi"})]}, True),
        ({"containers": [limited({**BOTH, "nvidia.com/gpu": "1"}, BOTH)]}, True),
        ({"containers": [limited(BOTH, {})]}, False),
        ({"containers": [limited(BOTH, {"cpu": "2"})]}, False),
        ({"containers": [limited(BOTH, {"cpu": "3", "memory": "1Gi"})]}, False),
        ({"containers": [limited(BOTH, {"cpu": "2", "memory": "0"})]}, False),
        ({"containers": [limited(BOTH, BOTH), limited({}, {})]}, False),
        ({"containers": [limited(BOTH, BOTH)], "initContainers": [limited(BOTH, {})]}, False),
        ({"containers": [limited({}, {})], "resources": {"requests": BOTH, "limits": BOTH}}, True),
        ({"containers": [limited(BOTH, {"cpu": "a lot", "memory": "1Gi"})]}, False),
        ({"containers": []}, False),
    ],
)
def test_n6_a_missing_qos_class_is_derived_as_kubernetes_does(spec: dict[str, Any], guaranteed: bool) -> None:
    found = ask(spec, "")
    assert (found is not None and found.guaranteed) is guaranteed


def test_n6_the_qos_class_in_the_status_beats_the_containers() -> None:
    written = ask({"containers": [limited(BOTH, BOTH)]}, "Burstable")
    assert written is None
