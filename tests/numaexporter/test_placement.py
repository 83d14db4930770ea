"""From the kubelet's answer and the kernel's lists to the annotation (gpu:X-2, X-3, T-112)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pykai.api.core import Pod
from pykai.api.meta import ObjectMeta
from pykai.core.model.numarecords import read_zone_record
from pykai.numaexporter.placement import observed_placements
from pykai.numaexporter.podresources import NumaAmount, PodResources, decode_pods
from pykai.numaexporter.sysfs import cores_of_nodes, parse_cpulist
from tests.numaexporter.kubeletanswers import cores, devices, entry, memory, pod, sysfs

NODE_OF_CORE = {0: 0, 1: 0, 2: 1, 3: 1}
GIB = 1 << 30


def observed(*pods: bytes) -> dict[str, Any]:
    """Pod -> zone -> amounts."""
    placements = observed_placements(decode_pods(b"".join(pods)), NODE_OF_CORE)
    return {
        name: {each["zone"]: each["amount"] for each in json.loads(annotation)}
        for (_, name), annotation in placements.items()
    }


def test_what_the_kubelet_answers_is_read() -> None:
    answer = pod("p", [devices("nvidia.com/gpu", "GPU-a", "GPU-b", nodes=[1]), cores(0, 300)], namespace="team")
    amounts = (NumaAmount("nvidia.com/gpu", 2, (1,)),)
    assert decode_pods(answer) == [PodResources("team", "p", amounts, (0, 300))]


def test_cores_that_are_not_packed_and_fields_of_newer_kubelets_are_read() -> None:
    container = b"\x18\x02" + b"\x18\x03" + entry(5, "a claim of DRA") + entry(9, "news")
    assert decode_pods(pod("p", [container])) == [PodResources("default", "p", (), (2, 3))]


@pytest.mark.parametrize("damaged", [b"\x0a\x05\x0a", b"\x0a\x03\x0a\x01\xff", b"\x0b"])
def test_a_damaged_answer_is_an_error(damaged: bytes) -> None:
    with pytest.raises(ValueError, match="protobuf"):
        decode_pods(damaged)


def test_t112_amounts_of_all_containers_are_summed_by_zone() -> None:
    """gpu:T-112"""
    first = [devices("nvidia.com/gpu", "GPU-a", nodes=[0]), cores(0, 2, 3), memory(4 * GIB, nodes=[1])]
    second = [devices("nvidia.com/gpu", "GPU-b", "GPU-c", nodes=[0]), memory(4 * GIB, nodes=[1])]
    assert observed(pod("p", first, second)) == {
        "p": {"node-0": {"cpu": "1", "nvidia.com/gpu": "3"}, "node-1": {"cpu": "2", "memory": "8589934592"}}
    }


def test_t112_huge_pages_are_separate_from_memory() -> None:
    """gpu:T-112"""
    blocks = [memory(GIB, kind="hugepages-2Mi"), memory(2 * GIB, kind="hugepages-1Gi"), memory(3 * GIB)]
    assert observed(pod("p", blocks)) == {
        "p": {"node-0": {"hugepages-2Mi": "1073741824", "hugepages-1Gi": "2147483648", "memory": "3221225472"}}
    }


@pytest.mark.parametrize("nodes", [(), (0, 1)])
def test_t112_what_is_near_no_node_or_several_does_not_count(nodes: tuple[int, ...]) -> None:
    """gpu:T-112"""
    spread = [devices("nvidia.com/gpu", "GPU-a", nodes=nodes), memory(GIB, nodes=nodes), cores(99)]
    assert observed(pod("none", spread), pod("some", [*spread, cores(1)])) == {"some": {"node-0": {"cpu": "1"}}}


def test_a_pod_without_devices_and_exclusive_cores_is_left_alone() -> None:
    assert observed(pod("burstable", [b""]), pod("empty")) == {}


def test_the_annotation_is_sorted_and_what_the_scheduler_reads() -> None:
    """gpu:X-3"""
    given = [devices("nvidia.com/gpu", "a", nodes=[10]), devices("example.com/nic", "b", nodes=[10]), cores(2, 3)]
    ((_, annotation),) = observed_placements(decode_pods(pod("p", given)), NODE_OF_CORE).items()
    assert annotation == (
        '[{"zone":"node-1","amount":{"cpu":"2"}},'
        '{"zone":"node-10","amount":{"example.com/nic":"1","nvidia.com/gpu":"1"}}]'
    )
    read = Pod(metadata=ObjectMeta(name="p", annotations={"kai.scheduler/numa-placement-observed": annotation}))
    wanted = (("cpu", 2000), ("nvidia.com/gpu", 100))
    zones = dict(read_zone_record(read, None, wanted, lambda problem: pytest.fail(str(problem))))
    assert list(zones) == ["node-1", "node-10"]
    assert dict(zones["node-1"]) == {"cpu": 2000}


def test_t112_lists_of_cores() -> None:
    """gpu:T-112"""
    assert list(parse_cpulist("0-3,8,12-13\n")) == [0, 1, 2, 3, 8, 12, 13]
    assert list(parse_cpulist("\n")) == []


@pytest.mark.parametrize("text", ["3-1", "a", "1,,2", "0-70000", "-1", "1-"])
def test_a_list_that_is_none_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="is no core and no range of cores"):
        list(parse_cpulist(text))


def test_the_kernel_tells_which_node_a_core_belongs_to(tmp_path: Path) -> None:
    assert cores_of_nodes(tmp_path) == {}
    sysfs(tmp_path, {0: "0-1", 1: "2", 2: ""})
    (tmp_path / "devices/system/node/node_list").mkdir()
    assert cores_of_nodes(tmp_path) == {0: 0, 1: 0, 2: 1}
    sysfs(tmp_path, {1: "nonsense"})
    with pytest.raises(ValueError, match="node1/cpulist: 'nonsense'"):
        cores_of_nodes(tmp_path)
