"""What a pod asks of its machine, what the machine has left, and whose its devices are."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api import names
from pykai.api.core import Node, NodeStatus
from pykai.api.decode import decode_as
from pykai.api.workloads import MachinePod
from pykai.lab.machines.devices import device_id
from pykai.lab.machines.machine import Machine
from pykai.lab.machines.nodes import MachineKind, TopologyLevelLabels, node_objects
from pykai.lab.machines.podbehaviour import BehaviourDefaults, behaviour_of
from pykai.lab.machines.requests import pod_requests
from tests.lab.simulatedcluster import pod

NOW = "2026-01-01T00:00:00Z"


def a_pod(**fields: Any) -> MachinePod:
    status = fields.pop("status", {})
    uid = fields.pop("uid", "u")
    made = pod(**fields)
    made["metadata"]["uid"] = uid
    made["status"] = status
    return decode_as(MachinePod, made)


def container(name: str, cpu: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": {"cpu": cpu}}, **more}


def a_machine(name: str = "n", **allocatable: str) -> Machine:
    made = Machine(name)
    resources: dict[str, str | int | float] = {
        key.replace("gpu", names.NVIDIA_GPU): v for key, v in allocatable.items()
    }
    made.update(Node(status=NodeStatus(allocatable=resources)))
    return made


def test_containers_add_up_and_overhead_comes_on_top() -> None:
    asked = pod_requests(a_pod(containers=2, cpu="500m", memory="1Gi", overhead={"cpu": "100m"}))
    assert asked == {"cpu": 1100, "memory": 2 << 30, "pods": 1}


@pytest.mark.parametrize(
    ("init", "expected"),
    [
        ([container("i", "3")], 3000),
        ([container("i", "3"), container("j", "2")], 3000),
        ([container("s", "1", restartPolicy="Always")], 2000),
        ([container("s", "1", restartPolicy="Always"), container("i", "3")], 4000),
        ([container("i", "3"), container("s", "1", restartPolicy="Always")], 3000),
    ],
)
def test_init_containers_count_by_their_largest_and_sidecars_beside_all(init: list[Any], expected: int) -> None:
    assert pod_requests(a_pod(cpu="1", initContainers=init))["cpu"] == expected


def test_requests_of_the_whole_pod_replace_the_sum() -> None:
    asked = pod_requests(a_pod(cpu="1", memory="1Gi", resources={"requests": {"cpu": "5"}}))
    assert (asked["cpu"], asked["memory"]) == (5000, 1 << 30)


def test_what_a_claim_serves_is_not_asked_of_the_machine() -> None:
    served = {
        "extendedResourceClaimStatus": {
            "resourceClaimName": "c",
            "requestMappings": [{"containerName": "c0", "resourceName": names.NVIDIA_GPU, "requestName": "r"}],
        }
    }
    assert names.NVIDIA_GPU not in pod_requests(a_pod(gpus=2, status=served))


def test_a_machine_is_full_to_the_last_unit_and_not_beyond() -> None:
    machine = a_machine(cpu="2")
    assert machine.admit("a", {"cpu": 1500}) is None
    refused = machine.admit("b", {"cpu": 501})
    assert refused is not None
    assert refused.reason == "OutOfcpu"
    assert machine.admit("b", {"cpu": 500}) is None
    machine.release("a")
    assert machine.admit("c", {"cpu": 1500}) is None


def test_a_refused_pod_uses_nothing() -> None:
    machine = a_machine(cpu="2", memory="1")
    assert machine.admit("a", {"cpu": 1000, "memory": 2}) is not None
    assert not any(machine.used.values())


def test_a_resource_that_the_machine_lacks_is_out_of() -> None:
    refused = a_machine(cpu="2").admit("a", {names.NVIDIA_GPU: 1})
    assert refused is not None
    assert refused.reason == "OutOfnvidia.com/gpu"


def test_of_several_resources_that_are_missing_the_one_is_named_that_a_kubelet_looks_at_first() -> None:
    machine = a_machine(cpu="1", memory="1", pods="0", gpu="0")
    missing = [names.PODS, names.CPU, names.MEMORY, names.NVIDIA_GPU]
    for index, first in enumerate(missing):
        refused = machine.admit("a", dict.fromkeys(sorted(missing[index:]), 2000))
        assert refused is not None
        assert refused.reason == f"OutOf{first}"


def test_admitting_twice_charges_once() -> None:
    machine = a_machine(cpu="2")
    assert machine.admit("a", {"cpu": 2000}) is None
    assert machine.admit("a", {"cpu": 2000}) is None
    assert machine.used["cpu"] == 2000


def test_devices_are_given_once_and_come_back() -> None:
    machine = a_machine(gpu="2")
    for uid in "ab":
        assert machine.admit(uid, {names.NVIDIA_GPU: 1}) is None
    (first,), (second,) = machine.assign_devices("a"), machine.assign_devices("b")
    assert first != second
    assert machine.assign_devices("a") == (first,)
    machine.release("a")
    assert machine.admit("c", {names.NVIDIA_GPU: 1}) is None
    assert machine.assign_devices("c") == (first,)


def test_devices_read_back_stay_with_their_pod() -> None:
    machine = a_machine(gpu="2")
    first = device_id("n", names.NVIDIA_GPU, 0)
    machine.admit_existing("old", {names.NVIDIA_GPU: 1})
    machine.devices.record_assignment("old", [first])
    machine.devices.record_assignment("liar", [first])
    assert machine.admit("new", {names.NVIDIA_GPU: 1}) is None
    assert machine.assign_devices("new") == (device_id("n", names.NVIDIA_GPU, 1),)
    machine.devices.release("liar")
    assert machine.devices.held_by("old") == (first,)


def test_devices_have_the_same_names_every_time_and_others_elsewhere() -> None:
    assert device_id("n", names.NVIDIA_GPU, 0) == "GPU-" + device_id("n", names.NVIDIA_GPU, 0)[4:]
    ids = {device_id(node, names.NVIDIA_GPU, index) for node in ("n", "m") for index in range(8)}
    assert len(ids) == 16
    assert device_id("n", "nvidia.com/mig-1g.10gb", 0).startswith("MIG-")


def test_a_machine_that_lies_about_its_gpus_does_no_harm() -> None:
    machine = a_machine(gpu="1000000000000")
    assert machine.admit("a", {names.NVIDIA_GPU: 10**11}) is None
    assert len(machine.assign_devices("a")) == 1024
    for nonsense in ("-3", "many"):
        refused = a_machine(gpu=nonsense).admit("a", {names.NVIDIA_GPU: 1})
        assert refused is not None


def test_a_pod_declares_its_course() -> None:
    declared = {
        names.RUN_SECONDS_ANNOTATION: "12.5",
        names.EXIT_CODE_ANNOTATION: "7",
        names.START_SECONDS_ANNOTATION: "3",
        names.STOP_SECONDS_ANNOTATION: "4",
    }
    course = behaviour_of(a_pod(annotations=declared), BehaviourDefaults())
    assert (course.run_s, course.exit_code, course.start_s, course.stop_s, course.problems) == (12.5, 7, 3, 4, ())


def test_a_range_is_drawn_from_the_uid() -> None:
    def drawn(uid: str) -> float:
        found = behaviour_of(
            a_pod(uid=uid, annotations={names.RUN_SECONDS_ANNOTATION: "30..90"}), BehaviourDefaults()
        ).run_s
        assert found is not None
        return found

    times = [drawn(f"uid-{number}") for number in range(200)]
    assert min(times) >= 30
    assert max(times) <= 90
    assert max(times) - min(times) > 50
    assert drawn("uid-1") == times[1]
    assert len(set(times)) == 200


@pytest.mark.parametrize("text", ["soon", "-1", "90..30", "1..", "nan", "inf", ""])
def test_an_unreadable_time_is_reported_and_ignored(text: str) -> None:
    course = behaviour_of(a_pod(annotations={names.RUN_SECONDS_ANNOTATION: text}), BehaviourDefaults(run_s=5))
    assert course.run_s == 5
    assert len(course.problems) == 1
    assert names.RUN_SECONDS_ANNOTATION in course.problems[0]


@pytest.mark.parametrize("text", ["256", "-1", "one", "99999"])
def test_an_invalid_exit_code_is_reported_and_ignored(text: str) -> None:
    course = behaviour_of(a_pod(annotations={names.EXIT_CODE_ANNOTATION: text}), BehaviourDefaults())
    assert (course.exit_code, len(course.problems)) == (0, 1)


def test_only_pods_that_never_restart_end_by_habit() -> None:
    assert behaviour_of(a_pod(restart="Always"), BehaviourDefaults(run_s=5)).run_s is None
    assert behaviour_of(a_pod(restart="OnFailure"), BehaviourDefaults(run_s=5)).run_s == 5


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["sleep", "7"], 7.0),
        (["/bin/sleep", "infinity"], None),
        (["sleep", "a while"], 5.0),
        (["python", "7"], 5.0),
        ([], 5.0),
    ],
)
def test_a_pod_that_only_sleeps_runs_as_long_as_it_says(command: list[str], expected: float | None) -> None:
    made = pod()
    made["spec"]["containers"][0]["command"] = command
    assert behaviour_of(decode_as(MachinePod, made), BehaviourDefaults(run_s=5)).run_s == expected


def test_nodes_carry_gpus_topology_and_health() -> None:
    kind = MachineKind(
        count=4,
        name="gpu-{}",
        gpus=8,
        gpu_memory_mib=81559,
        gpu_product="H100",
        labels={"team": "a"},
        levels=[TopologyLevelLabels("zone", 4, "z"), TopologyLevelLabels("rack", 2, "r")],
        taints=[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}],
    )
    nodes = node_objects(kind, NOW)
    assert [node["metadata"]["name"] for node in nodes] == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
    labels = nodes[3]["metadata"]["labels"]
    assert {key: labels[key] for key in ("zone", "rack", "team", "kubernetes.io/hostname")} == {
        "zone": "z0",
        "rack": "r1",
        "team": "a",
        "kubernetes.io/hostname": "gpu-3",
    }
    assert (labels["nvidia.com/gpu.count"], labels["nvidia.com/gpu.memory"]) == ("8", "81559")
    status = nodes[0]["status"]
    assert status["allocatable"]["nvidia.com/gpu"] == "8"
    assert status["allocatable"]["pods"] == "110"
    assert {c["type"]: c["status"] for c in status["conditions"]}["Ready"] == "True"
    assert nodes[0]["spec"]["taints"] == [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]


@pytest.mark.parametrize(
    ("resource", "labels"),
    [
        ("amd.com/gpu", {"amd.com/gpu.product-name": "MI300X", "beta.amd.com/gpu.vram.192G": "8"}),
        ("gpu.intel.com/i915", {"gpu.intel.com/product": "MI300X", "gpu.intel.com/memory.max": str(8 * 192 << 30)}),
        ("gpu.intel.com/xe", {"gpu.intel.com/product": "MI300X", "gpu.intel.com/memory.max": str(8 * 192 << 30)}),
        ("example.com/gpu", {}),
    ],
)
def test_gpus_of_other_vendors_come_with_their_labels(resource: str, labels: dict[str, str]) -> None:
    kind = MachineKind(gpus=8, gpu_resource=resource, gpu_product="MI300X", gpu_memory_mib=192 << 10)
    (node,) = node_objects(kind, NOW)
    assert node["status"]["allocatable"][resource] == "8"
    assert {key: value for key, value in node["metadata"]["labels"].items() if "gpu" in key} == labels
    assert not [name for name in node["status"]["allocatable"] if name.startswith("nvidia")]


def test_one_machine_keeps_its_name_and_several_are_numbered() -> None:
    assert [n["metadata"]["name"] for n in node_objects(MachineKind(name="solo"), NOW)] == ["solo"]
    assert [n["metadata"]["name"] for n in node_objects(MachineKind(name="duo", count=2), NOW)] == ["duo-0", "duo-1"]


def test_mig_profiles_take_the_place_of_whole_gpus() -> None:
    (node,) = node_objects(MachineKind(gpus=2, mig={"1g.10gb": 14}), NOW)
    assert node["status"]["allocatable"]["nvidia.com/mig-1g.10gb"] == "14"
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "0"
    assert node["metadata"]["labels"][names.MIG_STRATEGY_NODE_LABEL] == "mixed"


def test_gpus_under_dra_are_published_in_slices() -> None:
    node, devices, device_class = node_objects(MachineKind(gpus=2, dra=True), NOW)
    assert "nvidia.com/gpu" not in node["status"]["allocatable"]
    assert (devices["kind"], devices["spec"]["nodeName"]) == ("ResourceSlice", node["metadata"]["name"])
    assert [device["name"] for device in devices["spec"]["devices"]] == ["gpu-0", "gpu-1"]
    assert device_class["metadata"]["name"] == devices["spec"]["driver"] == "gpu.nvidia.com"
