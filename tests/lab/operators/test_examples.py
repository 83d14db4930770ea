"""Every example of examples/kinds in the lab: those that an operator runs end, and all get the right PodGroup."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import NamedTuple

import pytest
import pytest_asyncio

from pykai.api import names
from pykai.kube.resources import POD_GROUPS
from pykai.kube.store import Change
from pykai.lab.operators.families import ALL
from pykai.podgrouper.kinds.table import WORKLOAD_KINDS
from tests.lab.operators.operatedcluster import (
    EXAMPLES,
    KINDS,
    Document,
    OperatedCluster,
    example,
    holds_true,
    operated_cluster,
    status_is,
)


class Expected(NamedTuple):
    """What becomes of an example."""

    #: the group's field with its minimum, and the value
    minimum: tuple[str, int]
    #: whether it has reached the state in which it stays
    done: Callable[[Document], bool]


def pods(count: int) -> tuple[str, int]:
    return "minMember", count


def jobs(count: int) -> tuple[str, int]:
    return "minSubGroup", count


EXPECTED: dict[str, Expected] = {
    "pytorchjob": Expected(pods(4), holds_true("Succeeded")),
    "tfjob": Expected(pods(4), holds_true("Succeeded")),
    "xgboostjob": Expected(pods(3), holds_true("Succeeded")),
    "jaxjob": Expected(pods(2), holds_true("Succeeded")),
    "mpijob": Expected(pods(4), holds_true("Succeeded")),
    "mpijobv1": Expected(pods(3), holds_true("Succeeded")),
    "trainjob": Expected(jobs(1), holds_true("Complete")),
    "jobset": Expected(jobs(2), holds_true("Completed")),
    "leaderworkerset": Expected(pods(3), holds_true("Available")),
    "raycluster": Expected(pods(3), holds_true("RayClusterProvisioned")),
    "rayjob": Expected(pods(3), status_is("jobDeploymentStatus", "Complete")),
    "rayservice": Expected(pods(3), status_is("serviceStatus", "Running")),
    "sparkapplication": Expected(pods(1), status_is("applicationState.state", "COMPLETED")),
}


class Grouped(NamedTuple):
    """The PodGroup of an example whose operator the lab does not play."""

    #: one of its pods, or how its name begins
    pod: str
    #: kind and name of the object that makes the group
    owner: str
    minimum: int = 1
    sub_groups: tuple[str, ...] = ()
    priority: str = names.PRIORITY_CLASS_TRAIN


GROUPED: dict[str, Grouped] = {
    "amljob": Grouped("aml-0", "AmlJob/aml", 2),
    "devworkspace": Grouped("workspace-", "DevWorkspace/workspace"),
    "distributedinferenceworkload": Grouped("large-0-1", "LeaderWorkerSet/large", 3, ("leader", "workers")),
    "distributedworkload": Grouped("distributed-worker-1", "PyTorchJob/distributed", 3, ("master", "worker")),
    "dynamographdeployment": Grouped(
        "dynamo-0-worker-1", "PodGang/dynamo-0", 3, ("dynamo-0-leader", "dynamo-0-worker")
    ),
    "inferenceworkload": Grouped("inference-00001-", "Revision/inference-00001", 2, priority="inference"),
    "interactiveworkload": Grouped("interactive-0-0", "RunaiJob/interactive"),
    "knativeservice": Grouped("hello-00001-", "Revision/hello-00001", 2, priority="inference"),
    "notebook": Grouped("notebook-0", "Notebook/notebook", priority="build"),
    "pipelinerun": Grouped("tekton-train-pod", "PipelineRun/tekton"),
    "podcliqueset": Grouped("grove-0-worker-1", "PodGang/grove-0", 3, ("grove-0-leader", "grove-0-worker")),
    "podgangset": Grouped("gangset-0-leader-0", "PodGang/gangset-0", 3, ("gangset-0-leader", "gangset-0-worker")),
    "runaijob": Grouped("runai-0-0", "RunaiJob/runai"),
    "scheduledworkflow": Grouped("pipeline-run-main", "ScheduledWorkflow/pipeline"),
    "seldondeployment": Grouped("seldon-default-0-", "SeldonDeployment/seldon"),
    "spotrequest": Grouped("spot-0", "SPOTRequest/spot", priority="inference"),
    "taskrun": Grouped("task-pod", "TaskRun/task"),
    "trainingworkload": Grouped("training-0-0", "RunaiJob/training"),
    "virtualmachineinstance": Grouped("virt-launcher-vm", "VirtualMachineInstance/vm"),
    "workflow": Grouped("argo-second", "Pod/argo-second"),
}


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.yaml")} == {*EXPECTED, *GROUPED}


def test_every_kind_that_has_a_grouper_has_an_example() -> None:
    """Kubernetes' own kinds are those that the pod grouper watches."""
    foreign = {
        (row.resource.group, row.resource.kind)
        for row in WORKLOAD_KINDS.values()
        if row.grouper is not None and row.cached_as is None and row.verbs
    }
    shown = {
        (document["apiVersion"].rpartition("/")[0], document["kind"])
        for name in (*EXPECTED, *GROUPED)
        for document in example(name)
    }
    assert foreign <= shown
    assert {each["apiVersion"] for name in ("mpijob", "mpijobv1") for each in example(name)} == {
        "kubeflow.org/v1",
        "kubeflow.org/v2beta1",
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def grouped() -> AsyncIterator[OperatedCluster]:
    """A lab with every example whose operator it does not play."""
    async with operated_cluster(ALL) as cluster:
        for name in GROUPED:
            await cluster.apply(*example(name))
        yield cluster


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", GROUPED)
async def test_an_example_gets_the_group_of_its_kind(grouped: OperatedCluster, name: str) -> None:
    """sim:operators-creates"""
    expected = GROUPED[name]
    await grouped.until_pods(
        lambda pods: any(pod.startswith(expected.pod) and phase == "Running" for pod, phase in pods.items())
    )
    group = grouped.group_of(next(pod for pod in grouped.pods() if pod.startswith(expected.pod)))
    (owner,) = group["metadata"]["ownerReferences"]
    assert f"{owner['kind']}/{owner['name']}" == expected.owner
    assert owner["uid"] in group["metadata"]["name"]
    spec = group["spec"]
    assert spec["minMember"] == expected.minimum
    assert tuple(each["name"] for each in spec.get("subGroups", ())) == expected.sub_groups
    assert spec["priorityClassName"] == expected.priority
    assert spec["queue"] == "default-queue"


def groups_of(workload: Document, groups: Iterable[str]) -> list[str]:
    """The names of a workload's groups; those of a TrainJob are its JobSet's."""
    meta = workload["metadata"]
    uid = "" if workload["kind"] == "TrainJob" else meta["uid"]
    prefix = workload["status"].get("sparkApplicationId", f"pg-{meta['name']}-{uid}")
    return [group for group in groups if group.startswith(prefix)]


async def test_every_example_runs_as_a_gang_and_ends() -> None:
    async with operated_cluster(ALL) as cluster:
        minimums: dict[str, set[tuple[str, int]]] = {}

        def note(change: Change[Document]) -> None:
            if change.new is not None:
                spec = change.new["spec"]
                field = "minSubGroup" if "minSubGroup" in spec else "minMember"
                minimums.setdefault(change.new["metadata"]["name"], set()).add((field, spec[field]))

        cluster.stores[POD_GROUPS].subscribe(note)
        workloads = {name: list(example(name)) for name in EXPECTED}
        for documents in workloads.values():
            await cluster.apply(*documents)
        for name, expected in EXPECTED.items():
            top = workloads[name][-1]
            found = await cluster.until(KINDS[top["kind"]], top["metadata"]["name"], expected.done)
            # An MPIJob waits for its launcher, too, once that exists.
            assert expected.minimum in set().union(*(minimums[group] for group in groups_of(found, minimums))), name
        # What runs on is what never ends; the pods of jobs that are over have been deleted.
        await cluster.until_pods(lambda pods: sum(phase == "Running" for phase in pods.values()) == 12)
        running = {name.split("-")[0] for name, phase in cluster.pods().items() if phase == "Running"}
        assert running == {"serving", "ray", "rayservice"}
