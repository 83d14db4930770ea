"""The checker finds what it is there to find: each test breaks one promise in a small recording."""

from __future__ import annotations

from typing import Any

from pykai.api import names
from pykai.api.sharing import reservation_name
from pykai.dev.soak.invariants import RecordedChange, check_recording

_GRACE_S = 10.0


def pod(name: str, **settings: Any) -> dict[str, Any]:
    """A pod as recorded; settings: node, group, phase, gpus, portion, gpu_group, devices, leaving, namespace, uid."""
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    if "group" in settings:
        annotations[names.POD_GROUP_ANNOTATION] = settings["group"]
    if "portion" in settings:
        annotations[names.GPU_FRACTION_ANNOTATION] = settings["portion"]
    if "devices" in settings:
        annotations[names.DEVICES_ANNOTATION] = settings["devices"]
    if "gpu_group" in settings:
        labels[names.GPU_GROUP_LABEL] = settings["gpu_group"]
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": settings.get("namespace", "default"),
        "uid": settings.get("uid", name),
        "annotations": annotations,
        "labels": labels,
    }
    if settings.get("leaving"):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    limits = {names.NVIDIA_GPU: str(settings["gpus"])} if "gpus" in settings else {}
    return {
        "metadata": metadata,
        "spec": {"nodeName": settings.get("node", ""), "containers": [{"resources": {"limits": limits}}]},
        "status": {"phase": settings.get("phase", "Running")},
    }


def reservation(group: str, on: str, **settings: Any) -> dict[str, Any]:
    """The pod that holds a GPU of a node for a group, unless the settings say otherwise."""
    marks = {"namespace": names.RESERVATION_NAMESPACE, "node": on, "gpu_group": group, "gpus": 1, **settings}
    made = pod(settings.get("name", reservation_name(on, group)), **marks)
    made["metadata"]["labels"][names.APP_LABEL] = names.RESERVATION_APP
    return made


def test_a_pod_that_only_says_it_reserves_a_gpu_fills_it_like_any_other() -> None:
    fake = reservation("g", "n1", namespace="default", portion="0.50")
    lines = [
        (1.0, "pods", "default/fake", fake),
        (1.0, "pods", "default/a", pod("a", node="n1", gpu_group="g", portion="0.60")),
    ]
    assert told(*lines) == ["1.00s: GPU group g on n1 is filled to 110 %"]


def told(*lines: tuple[float, str, str, dict[str, Any] | None], ended: bool = False) -> list[str]:
    return check_recording((RecordedChange(*line) for line in lines), grace_s=_GRACE_S, ended=ended)


def node(name: str, gpus: int) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"allocatable": {names.NVIDIA_GPU: str(gpus)}}}


def gang(minimum: int) -> dict[str, Any]:
    return {"spec": {"minMember": minimum}}


def test_a_pod_that_is_bound_and_runs_is_fine() -> None:
    assert not told(
        (0, "nodes", "n1", node("n1", 1)),
        (1, "pods", "default/a", pod("a", phase="Pending")),
        (2, "pods", "default/a", pod("a", node="n1", gpus=1)),
        (3, "pods", "default/a", None),
    )


def test_a_pod_that_changes_its_node_was_bound_twice() -> None:
    problems = told(
        (1, "pods", "default/a", pod("a", node="n1")),
        (2, "pods", "default/a", pod("a", node="n2")),
    )
    assert problems == ["2.00s: pod default/a was bound to n1 and then to n2"]


def test_a_new_pod_of_the_same_name_may_go_elsewhere() -> None:
    assert not told(
        (1, "pods", "default/a", pod("a", node="n1", uid="1")),
        (2, "pods", "default/a", pod("a", node="n2", uid="2")),
    )


def test_more_whole_gpus_than_the_node_has() -> None:
    problems = told(
        (0, "nodes", "n1", node("n1", 1)),
        (1, "pods", "default/a", pod("a", node="n1", gpus=1)),
        (2, "pods", "default/b", pod("b", node="n1", gpus=1)),
    )
    assert problems == ["2.00s: n1 has 1 GPUs and runs pods with 2"]


def test_what_was_learnt_at_once_is_judged_at_once() -> None:
    def of_a_list(more: bool) -> list[str]:
        lines = [
            RecordedChange(0, "nodes", "n1", node("n1", 1)),
            RecordedChange(1, "pods", "default/b", pod("b", node="n1", gpus=1)),
            RecordedChange(9, "pods", "default/a", pod("a", node="n1", gpus=1), more),
            RecordedChange(9, "pods", "default/b", None),
        ]
        return check_recording(lines, grace_s=_GRACE_S, ended=False)

    assert of_a_list(more=True) == []
    assert of_a_list(more=False) == ["9.00s: n1 has 1 GPUs and runs pods with 2"]


def test_what_has_ended_holds_nothing() -> None:
    assert not told(
        (0, "nodes", "n1", node("n1", 1)),
        (1, "pods", "default/a", pod("a", node="n1", gpus=1, phase="Succeeded")),
        (2, "pods", "default/b", pod("b", node="n1", gpus=1)),
    )


def test_a_shared_gpu_that_is_over_filled() -> None:
    half = {"node": "n1", "portion": "0.5", "gpu_group": "g"}
    lines = [(float(at), "pods", f"default/{name}", pod(name, **half)) for at, name in enumerate("abc")]
    assert told(*lines[:2]) == []
    assert told(*lines) == ["2.00s: GPU group g on n1 is filled to 150 %"]


def test_a_device_with_two_owners() -> None:
    problems = told(
        (1, "pods", "default/a", pod("a", node="n1", devices="GPU-1,GPU-2")),
        (2, "pods", "default/b", pod("b", node="n1", devices="GPU-2")),
    )
    assert problems == ["2.00s: GPU GPU-2 of n1 belongs to default/a and to default/b"]


def test_a_gang_that_stays_half_started() -> None:
    lines = [
        (0.0, "podgroups", "default/g", gang(2)),
        (1.0, "pods", "default/a", pod("a", group="g", node="n1")),
        (2.0, "pods", "default/b", pod("b", group="g")),
    ]
    assert told(*lines, (10.0, "nodes", "n1", node("n1", 1))) == []
    assert told(*lines, (11.5, "nodes", "n1", node("n1", 1))) == [
        "11.50s: gang default/g ran with fewer than its 2 pods for 10.5 s"
    ]


def test_a_gang_that_gets_whole_in_time_or_leaves_is_fine() -> None:
    half = [(0.0, "podgroups", "default/g", gang(2)), (1.0, "pods", "default/a", pod("a", group="g", node="n1"))]
    whole = (9.0, "pods", "default/b", pod("b", group="g", node="n1"))
    gone = (9.0, "pods", "default/a", pod("a", group="g", node="n1", leaving=True))
    later = (60.0, "nodes", "n1", node("n1", 1))
    assert told(*half, whole, later) == []
    assert told(*half, gone, later) == []


def test_pods_that_succeeded_still_count_for_their_gang() -> None:
    assert not told(
        (0, "podgroups", "default/g", gang(2)),
        (1, "pods", "default/a", pod("a", group="g", node="n1", phase="Succeeded")),
        (1, "pods", "default/b", pod("b", group="g", node="n1")),
        (60, "nodes", "n1", node("n1", 1)),
    )


def test_pods_that_succeeded_and_are_gone_count_too() -> None:
    lines = [
        (0.0, "podgroups", "default/g", gang(2)),
        (1.0, "pods", "default/a", pod("a", group="g", node="n1")),
        (1.0, "pods", "default/b", pod("b", group="g", node="n1")),
        (2.0, "pods", "default/a", pod("a", group="g", node="n1", phase="Succeeded")),
        (3.0, "pods", "default/a", None),
    ]
    assert not told(*lines, (60, "nodes", "n1", node("n1", 1)))


def test_what_is_left_at_the_end() -> None:
    held = reservation("g", "n1")
    problems = told(
        (1, "pods", f"{names.RESERVATION_NAMESPACE}/{held['metadata']['name']}", held),
        (1, "pods", "default/a", pod("a", phase="Pending")),
        (1, "bindrequests", "default/a", {}),
        (1, "jobs", "default/j", {"status": {"conditions": [{"type": "Complete", "status": "False"}]}}),
        ended=True,
    )
    assert [problem.partition(": ")[2] for problem in problems] == [
        "pod default/a is left in phase Pending",
        f"reservation pod {names.RESERVATION_NAMESPACE}/{held['metadata']['name']} is left",
        "BindRequest default/a is left",
        "job default/j has not completed",
    ]


def test_pods_of_the_installation_stay() -> None:
    key = f"{names.DEFAULT_NAMESPACE}/scheduler"
    own = pod("scheduler", namespace=names.DEFAULT_NAMESPACE)
    assert told((1, "pods", key, own), (1, "pods", "default/a", pod("a")), ended=True) == [
        "1.00s: pod default/a is left in phase Running"
    ]


def test_a_job_that_goes_before_it_has_completed_is_lost() -> None:
    done = {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    assert not told((1, "jobs", "default/j", done), (2, "jobs", "default/j", None), ended=True)
    assert told((1, "jobs", "default/j", {}), (2, "jobs", "default/j", None), ended=True) == [
        "2.00s: job default/j was deleted before it had completed"
    ]


def test_a_job_that_its_user_gave_up_is_not_lost() -> None:
    lines = [RecordedChange(1, "jobs", "default/j", {}), RecordedChange(2, "jobs", "default/j", None)]
    assert not check_recording(lines, grace_s=_GRACE_S, submitted=["default/j"], given_up=["default/j"])


def test_a_job_that_was_submitted_and_never_seen_is_lost() -> None:
    done = {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    lines = [RecordedChange(1, "jobs", "default/a", done), RecordedChange(2, "jobs", "default/a", None)]
    problems = check_recording(lines, grace_s=_GRACE_S, submitted=["default/a", "default/b"])
    assert problems == ["2.00s: job default/b was submitted and never completed"]
