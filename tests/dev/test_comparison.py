"""How outcomes are held against expectations: overriding lines, names, devices, sums."""

from pykai.dev.comparison import CaseOutcome, PodOutcome, differences
from tests.dev.small_cases import Raw, case, read


def outcome(*pods: PodOutcome) -> CaseOutcome:
    return CaseOutcome(pods={pod.key: pod for pod in pods}, groups={pod.group for pod in pods})


def compared(expect: Raw, *pods: PodOutcome) -> list[str]:
    return differences(read(case(1, expect)), outcome(*pods))


def test_the_line_of_a_pod_overrides_that_of_its_group() -> None:
    pods = (PodOutcome("ns/a-0", "ns/a", "Running", "n1"), PodOutcome("ns/a-1", "ns/a", "Pending"))
    group = {"podGroups": {"a": {"status": "Running", "node": "n1"}}}
    assert compared(group, *pods) == [
        "group a: pod a-1: status Pending, expected Running",
        "group a: pod a-1: node -, expected n1",
    ]
    assert compared(group | {"pods": {"a-1": {"status": "Pending"}}}, *pods) == []
    assert compared(group | {"pods": {"a-1": {"status": "Failed"}}}, *pods) == [
        "pod a-1: status Pending, expected Failed"
    ]


def test_the_node_counts_only_where_it_is_given() -> None:
    pod = PodOutcome("ns/a-0", "ns/a", "Running", "n1")
    assert compared({"podGroups": {"a": {"status": "Running"}}}, pod) == []
    assert compared({"pods": {"a-0": {"node": "n2"}}}, pod) == ["pod a-0: node n1, expected n2"]


def test_names_that_are_missing_or_fit_several_are_differences() -> None:
    pods = (PodOutcome("x/a-0", "x/a", "Running"), PodOutcome("y/a-0", "y/a", "Pending"))
    assert compared({"pods": {"b-0": {}}, "podGroups": {"b": {}}, "runningPods": {"b": 0}}, *pods) == [
        "pod b-0: not there",
        "group b: not there",
        "group b: not there",
    ]
    assert compared({"pods": {"a-0": {"status": "Running"}}}, *pods) == [
        "pod a-0: there are 2 (x/a-0, y/a-0); the case must say which"
    ]
    clear = {"pods": {"x/a-0": {"status": "Running"}}, "podGroups": {"y/a": {"status": "Pending"}}}
    assert compared(clear | {"runningPods": {"x/a": 1, "y/a": 0}}, *pods) == []


def test_devices_are_compared_as_sets_of_pods_on_one_node() -> None:
    def pod(name: str, node: str, *devices: str) -> PodOutcome:
        return PodOutcome(f"ns/{name}-0", f"ns/{name}", "Running", node, devices)

    pods = (pod("a", "n1", "x"), pod("b", "n1", "x"), pod("c", "n2", "x"), pod("free", "n1", "x"))
    groups = {"podGroups": {name: {"status": "Running"} for name in "abc"}}
    assert compared(groups | {"podsByDevice": [["c-0"], ["b-0", "a-0"]]}, *pods) == []
    assert compared(groups | {"podsByDevice": [["a-0", "b-0", "c-0"]]}, *pods) == [
        "pods by device: [a-0, b-0] [c-0], expected [a-0, b-0, c-0]"
    ]
    assert compared(groups | {"podsByDevice": [["c-0"], ["a-0", "b-0", "free-0"]]}, *pods) == []
    assert compared({"podsByDevice": [["gone"]]}, *pods) == ["pod gone: not there"]


def test_accepted_gpus_are_summed_over_a_group() -> None:
    pods = tuple(PodOutcome(f"ns/a-{n}", "ns/a", "Binding", "n", gpus_accepted=0.5) for n in range(3))
    assert compared({"podGroups": {"a": {"gpusAccepted": 1.5}}, "pods": {"a-0": {"gpusAccepted": 0.5}}}, *pods) == []
    assert compared({"gpusAccepted": {"a": 1.5, "a-1": 0.5}}, *pods) == []
    assert compared({"podGroups": {"a": {"gpusAccepted": 1}}}, *pods) == ["group a: 1.5 GPUs accepted, expected 1"]


def test_numa_zones_are_compared_in_any_order_and_unknown_fields_are_not_passed_over() -> None:
    pod = PodOutcome("ns/a-0", "ns/a", "Running", "n", numa_zones=(1, 0))
    assert compared({"podGroups": {"a": {"numaZones": [0, 1]}}}, pod) == []
    assert compared({"pods": {"a-0": {"numaZones": [0]}}}, pod) == ["pod a-0: NUMA zones [0, 1], expected [0]"]
    assert compared({"pods": {"a-0": {"colour": "red"}}}, pod) == ["pod a-0: this runner cannot compare colour"]
