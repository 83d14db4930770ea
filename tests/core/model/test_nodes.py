"""What the engine reads from a Node: GPU memory, MIG, CPU-only, conditions (gpu:C-1, C-5 to C-7, cycle:NOD-5)."""

from collections.abc import Mapping
from typing import Any

import pytest

from pykai.api.core import Node
from pykai.api.decode import decode_object
from pykai.core.model.nodes import NodeFacts, read_node
from pykai.core.model.problems import Problem
from tests.core.builders import Result, cluster

MIG_LABEL = "node-role.kubernetes.io/mig-enabled"
SLICE = "nvidia.com/mig-1g.5gb"


def read(
    labels: Mapping[str, str] | None = None, allocatable: Mapping[str, str | int] | None = None
) -> tuple[NodeFacts, list[Problem]]:
    """The facts of a node with these labels, and what is wrong with it."""
    node = decode_object(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "n", "labels": dict(labels or {})},
            "status": {"allocatable": dict({"nvidia.com/gpu": 2} if allocatable is None else allocatable)},
        }
    )
    assert isinstance(node, Node)
    problems: list[Problem] = []
    return read_node(node, MIG_LABEL, problems.append), problems


def facts(labels: Mapping[str, str] | None = None, allocatable: Mapping[str, str | int] | None = None) -> NodeFacts:
    """The facts of a node with these labels."""
    return read(labels, allocatable)[0]


def memory(label: str | None) -> tuple[int, int, bool]:
    """Memory per GPU, the same as labelled, and whether it is known, for a value of the label."""
    found = facts({} if label is None else {"nvidia.com/gpu.memory": label})
    return found.gpu_mib, found.gpu_label_mib, found.has_gpu_memory_label


@pytest.mark.parametrize(
    ("label", "floored", "labelled"),
    [("15360", 15300, 15360), ("11441", 11400, 11441), ("100", 100, 100), ("80000", 80000, 80000)],
)
def test_gpu_memory_is_floored_to_hundreds(label: str, floored: int, labelled: int) -> None:
    """gpu:C-1, gpu:T-17"""
    assert memory(label) == (floored, labelled, True)


def test_a_memory_label_in_bytes_is_converted() -> None:
    """gpu:C-1, gpu:T-17: from 1 TiB in MiB upwards it must be bytes."""
    assert memory(str(15360 << 20)) == (15300, 15360, True)
    assert memory(str((1 << 20) - 1)) == (1048500, 1048575, True)
    assert memory(str(1 << 20)) == (100, 100, True)


@pytest.mark.parametrize("label", [None, "", "16Gi", "16384.0", "0", "-5", "16_384", " 16384", "9" * 40])
def test_without_a_readable_label_the_memory_is_unknown(label: str | None) -> None:
    """gpu:C-1"""
    assert memory(label) == (100, 100, False)


def test_a_gpu_memory_request_avoids_nodes_whose_memory_is_unknown() -> None:
    """gpu:C-1, gpu:P-5: even where the assumed figure would do."""
    result = cluster().node("a", gpus=1, gpu_memory=None).queue("q").gang("j", gpu_memory=50).schedule()
    assert result.bound("j") == 0
    assert "gpu memory count on the node was not synced yet, task: default/j-0, node: a" in result.why("j")
    both = cluster().node("a", gpus=1, gpu_memory=None).node("b", gpus=1).queue("q").gang("j", gpu_memory=50)
    assert both.schedule().node_of("j-0") == "b"


def test_a_fraction_may_use_nodes_whose_memory_is_unknown() -> None:
    """gpu:C-1: a portion needs no figure."""
    result = cluster().node(gpus=1, gpu_memory=None).queue("q").gang("j", pods=2, fraction=0.5).schedule()
    assert result.bound("j") == 2


def test_all_the_labelled_memory_is_a_whole_device() -> None:
    """gpu:C-1, Do better: flooring must not make the full label value unschedulable."""
    one = cluster().node(gpus=1, gpu_memory=11441).queue("q")
    result = one.gang("all", gpu_memory=11441).schedule()
    assert result.plan.binds[0].gpu_portion == "1.00"
    assert (
        cluster().node(gpus=1, gpu_memory=11441).queue("q").gang("more", gpu_memory=11442).schedule().bound("more") == 0
    )


def test_the_number_of_gpus_is_the_label_else_what_is_allocatable() -> None:
    """gpu:C-5"""
    assert facts().gpu_count == 2
    assert facts({"nvidia.com/gpu.count": "8"}).gpu_count == 8
    assert facts({"nvidia.com/gpu.count": "many"}).gpu_count == 2
    assert facts({"nvidia.com/gpu.count": "9" * 40}).gpu_count == 2


@pytest.mark.parametrize("count", ["1", "2", "8"])
def test_a_count_label_that_disagrees_never_over_commits(count: str) -> None:
    """gpu:C-5, Do better: a shared GPU is always taken out of the idle ones."""
    node = cluster().node(gpus=2, labels={"nvidia.com/gpu.count": count}).queue("q")
    result = node.gang("run", on="node-0", fraction=0.5, device="g").gang("whole", pods=2, min=0, gpu=1).schedule()
    assert result.bound("whole") == 1


def test_memory_requests_are_valued_by_the_smallest_gpu_for_fairness() -> None:
    """gpu:C-6: what is pending counts devices x memory / smallest."""
    nodes = cluster().node(gpus=1, gpu_memory=1000).node(gpus=1, gpu_memory=4000).node(cpu=1)
    [queue] = nodes.queue("q").gang("j", gpu_memory=500, devices=2).schedule().plan.queues
    assert queue.request[2] == 1.0


def test_memory_requests_are_valued_by_the_largest_gpu_for_the_gate_of_the_queue() -> None:
    """gpu:C-6, cycle:ALC-9: optimistic before a node is known; the node's own value decides there."""

    def run(limit: float) -> Result:
        nodes = cluster().node("small", gpus=1, gpu_memory=1000).node("large", gpus=1, gpu_memory=4000)
        return nodes.queue("q", limit=limit).gang("j", gpu_memory=1000).schedule()

    assert run(1).node_of("j-0") == "large"
    assert run(0.25).node_of("j-0") == "large"
    assert run(0.24).unscheduled("j") is not None
    assert "OverLimit" in run(0.24).why("j")


def test_gpus_of_unknown_memory_value_nothing() -> None:
    """gpu:C-6: only nodes above the assumed 100 MiB count; without any there is no conversion."""
    nodes = cluster().node("known", gpus=1, gpu_memory=2000).node("unknown", gpus=1, gpu_memory=None)
    [queue] = nodes.queue("q").gang("j", gpu_memory=1000).schedule().plan.queues
    assert queue.request[2] == 0.5
    [queue] = cluster().node(gpus=1, gpu_memory=None).queue("q").gang("j", gpu_memory=1000).schedule().plan.queues
    assert queue.request[2] == 0.0


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_the_mig_label_is_true(text: str) -> None:
    """gpu:C-7: whatever the node offers."""
    assert facts({MIG_LABEL: text}).mig_enabled


@pytest.mark.parametrize("text", ["0", "f", "false", "False", "", "yes", "tRuE"])
def test_the_mig_label_is_false(text: str) -> None:
    """gpu:C-7: a value that is no boolean counts as false."""
    assert not facts({MIG_LABEL: text}, {SLICE: 1}).mig_enabled


def test_without_the_label_mig_slices_make_a_mig_node() -> None:
    """gpu:C-7"""
    assert facts({}, {SLICE: 1}).mig_enabled
    assert not facts({}, {SLICE: 0, "nvidia.com/gpu": 1}).mig_enabled
    assert not facts().mig_enabled


@pytest.mark.parametrize(
    ("label", "strategy"), [("single", "single"), ("mixed", "mixed"), ("none", ""), ("other", ""), (None, "")]
)
def test_the_mig_strategy_of_a_mig_node(label: str | None, strategy: str) -> None:
    """gpu:C-7"""
    labels = {} if label is None else {"nvidia.com/mig.strategy": label}
    assert facts(labels, {SLICE: 1}).mig_strategy == strategy


def test_a_node_without_mig_has_no_mig_strategy() -> None:
    """gpu:C-7"""
    assert facts({"nvidia.com/mig.strategy": "mixed"}).mig_strategy == ""
    assert facts({"nvidia.com/mig.strategy": "mixed", MIG_LABEL: "false"}, {SLICE: 1}).mig_strategy == ""


def test_which_nodes_are_cpu_only() -> None:
    """cycle:NOD-5"""
    assert facts({}, {"cpu": 8}).cpu_only
    assert facts({}, {"cpu": 8, "nvidia.com/gpu": 0}).cpu_only
    assert facts({"nvidia.com/gpu.count": "8"}, {"cpu": 8}).cpu_only
    assert not facts().cpu_only
    assert not facts({}, {"amd.com/gpu": 1}).cpu_only
    assert not facts({}, {SLICE: 1}).cpu_only
    assert not facts({MIG_LABEL: "true"}, {"cpu": 8}).cpu_only


def test_which_gpus_of_a_node_are_shared() -> None:
    assert facts({}, {"amd.com/gpu": 1, "nvidia.com/gpu": 1, "a.example/gpu": 1}).shared_resource == "nvidia.com/gpu"
    assert facts({}, {"amd.com/gpu": 1, "a.example/gpu": 1}).shared_resource == ""
    assert facts({}, {SLICE: 1}).shared_resource == ""


@pytest.mark.parametrize("share", [{"fraction": 0.5}, {"gpu_memory": 500}])
@pytest.mark.parametrize("resource", ["amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "example.com/gpu"])
def test_gpus_of_other_vendors_are_not_shared_and_the_reason_says_so(resource: str, share: dict[str, Any]) -> None:
    """ADR-37"""
    built = cluster().node("other", extra={resource: 1}, labels={"nvidia.com/gpu.memory": "1000"})
    built.node("cpu").queue("q")
    result = built.gang("j", **share).schedule()
    assert result.bound("j") == 0
    why = result.why("j")
    assert "1 node(s) have GPUs that pods cannot share, only those of nvidia.com/gpu can be shared" in why
    assert "1 node(s) didn't have enough resources: GPUs" in why
    built.node("nvidia", gpus=1, labels={"nvidia.com/gpu.memory": "1000"})
    assert built.schedule().node_of("j-0") == "nvidia"


def test_what_a_node_offers_in_its_units() -> None:
    """cycle:R-2: nothing of a resource is the same as not offering it."""
    offered = facts({}, {"cpu": "1500m", "memory": "1Ki", "nvidia.com/gpu": 2, "example.com/nic": 1, "pods": 0, "x": 1})
    assert dict(offered.allocatable) == {"cpu": 1500, "memory": 1024, "nvidia.com/gpu": 2, "example.com/nic": 1000}


def test_an_unreadable_amount_is_reported_and_counts_as_absent() -> None:
    found, [problem] = read({}, {"cpu": "lots", "memory": "1Ki"})
    assert dict(found.allocatable) == {"memory": 1024}
    assert problem.subject == "Node/n"
    assert problem.field == "status.allocatable[cpu]"


@pytest.mark.parametrize(
    ("conditions", "reason"),
    [
        ({"Ready": "False"}, "node has NotReady condition"),
        ({"Ready": "Unknown"}, "node has NotReady condition"),
        ({"MemoryPressure": "True"}, "node has MemoryPressure condition"),
        ({"DiskPressure": "Unknown"}, "node has DiskPressure condition"),
        ({"PIDPressure": "True"}, "node has PIDPressure condition"),
        ({"NetworkUnavailable": "True"}, "node has NetworkUnavailable condition"),
        ({"MemoryPressure": "True", "Ready": "False"}, "node has NotReady condition"),
        ({"NetworkUnavailable": "True", "DiskPressure": "True"}, "node has DiskPressure condition"),
    ],
)
def test_a_node_in_a_bad_condition_takes_no_pods(conditions: Mapping[str, str], reason: str) -> None:
    """cycle:9.1 step 10"""
    result = cluster().node(conditions=conditions).queue("q").gang("j").schedule()
    assert result.bound("j") == 0
    assert reason in result.why("j")


def test_a_cordoned_node_takes_no_pods_whatever_its_conditions() -> None:
    """cycle:9.1 step 10"""
    node = cluster().node(unschedulable=True, conditions={"Ready": "False"}).queue("q").gang("j")
    assert "node is unschedulable" in node.schedule().why("j")


@pytest.mark.parametrize("conditions", [{}, {"MemoryPressure": "False", "DiskPressure": "False"}, {"Custom": "True"}])
def test_a_node_in_good_condition_takes_pods(conditions: Mapping[str, str]) -> None:
    """cycle:9.1 step 10: conditions it does not know mean nothing."""
    assert cluster().node(conditions=conditions).queue("q").gang("j").schedule().bound("j") == 1


def test_a_node_without_conditions_is_ready() -> None:
    assert facts().unschedulable_reason == ""
