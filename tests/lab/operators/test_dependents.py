"""Objects of kinds without an operator create what their annotation says (sim:operators-creates)."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api import names
from pykai.api.decode import decode_as
from pykai.api.workloads import MachinePod
from pykai.kube.resources import PODS, Resource
from pykai.lab.operators.dependents import CreatingWorkload, creating_kind
from pykai.lab.operators.steps import ObservedWorkload, RefusedWorkload, Step

RUN = Resource("tekton.dev", "v1", "pipelineruns", "PipelineRun", True)
TASK = Resource("tekton.dev", "v1", "taskruns", "TaskRun", True)
POD = "{apiVersion: v1, kind: Pod, metadata: {name: NAME, namespace: elsewhere}, spec: {nodeName: n}}"
TASK_RUN = "{apiVersion: tekton.dev/v1, kind: TaskRun, metadata: {name: task}}"


def plan(text: str, *, pods: tuple[str, ...] = (), tasks: tuple[str, ...] = ()) -> Step:
    """The step of a run with this annotation, of which these exist."""
    annotations = {names.CREATES_ANNOTATION: text} if text else {}
    metadata = {"name": "run", "namespace": "ns", "uid": "u", "annotations": annotations}
    workload = decode_as(CreatingWorkload, {"metadata": metadata, "status": {"phase": "x"}})
    seen_pods = [decode_as(MachinePod, {"metadata": {"name": name}}) for name in pods]
    seen_tasks = [decode_as(CreatingWorkload, {"metadata": {"name": name}}) for name in tasks]
    return creating_kind(RUN, TASK).plan(workload, ObservedWorkload("", 0.0, seen_pods, owned={TASK: seen_tasks}))


def created(step: Step) -> list[tuple[Resource, Any]]:
    return [(each.resource, each.document["metadata"]["name"]) for each in step.create]


def test_what_is_missing_is_created_with_the_object_as_its_owner() -> None:
    step = plan(f"{POD}\n---\n{TASK_RUN}\n---\n")
    assert created(step) == [(PODS, "NAME"), (TASK, "task")]
    assert step.status == {"phase": "x"}
    first = step.create[0].document
    assert first["spec"] == {"nodeName": "n"}
    assert first["metadata"]["namespace"] == "ns"
    (owner,) = first["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == ("PipelineRun", "run", "u", True)


def test_what_is_there_is_left_alone() -> None:
    text = f"{POD}\n---\n{TASK_RUN}"
    assert created(plan(text, pods=("NAME",))) == [(TASK, "task")]
    assert created(plan(text, pods=("NAME",), tasks=("task",))) == []
    assert created(plan("")) == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not YAML"),
        ("- 1", "expected objects"),
        ("&a {b: 1}", "anchors and aliases are not read"),
        (
            "{apiVersion: v1, kind: Secret, metadata: {name: x}}",
            "document 0: expected an object with a name, of one of",
        ),
        (
            "{apiVersion: v1, kind: Pod, metadata: {}}",
            "document 0: expected an object with a name, of one of Pod, TaskRun",
        ),
        ("{apiVersion: v1, kind: Pod, metadata: x}", "document 0: expected an object with a name"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, why: str) -> None:
    with pytest.raises(RefusedWorkload, match=why):
        plan(text)
