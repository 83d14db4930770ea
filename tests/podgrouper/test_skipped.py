"""Workloads that leave grouping to what they own (workloads:6.1)."""

from __future__ import annotations

import pytest

from pykai.dev.groupingcases import RECORDED_CLASSES, RecordedReaders
from pykai.podgrouper.metadata import KindDefaults
from tests.podgrouper.groupings import grouped, owner, pod

QUEUE = "kai.scheduler/queue"
PREEMPTIBILITY = "kai.scheduler/preemptibility"
WORKFLOW = "argoproj.io/v1alpha1"
DYNAMO = "nvidia.com/v1alpha1"
RUN_AI = "run.ai/v100"


def defaults(kind: str, **values: str) -> RecordedReaders:
    return RecordedReaders(classes=RECORDED_CLASSES | {"very-high"}, defaults={kind: KindDefaults(**values)})


def test_every_step_of_a_workflow_is_a_group() -> None:
    """workloads:T-105, ST-2: nothing is below it, so the pod makes the group."""
    top = owner("Workflow", "argo", "uid-w", api=WORKFLOW, labels={QUEUE: "test"})
    meta = grouped(pod("argo-pod", "uid-pod", by=top), top)
    assert (meta.name, meta.queue, meta.owner.kind, meta.owner.name) == (
        "pg-argo-pod-uid-pod",
        "test",
        "Pod",
        "argo-pod",
    )
    text = 'name: argo-pod\nuid: uid-pod\ngroup: ""\nversion: v1\nkind: Pod\n'
    assert meta.annotations["kai.scheduler/top-owner-metadata"] == text


def test_a_step_that_is_a_workload_is_grouped_by_its_own_grouper() -> None:
    """workloads:ST-2."""
    top = owner("Workflow", "argo", "W", api=WORKFLOW, labels={QUEUE: "test"}, annotations={"a": "workflow"})
    job = owner("Job", "step", "J", by=top, annotations={"kai.scheduler/batch-min-member": "3", "a": "job"})
    meta = grouped(pod(by=job), job, top)
    assert (meta.name, meta.min_available, meta.queue, meta.annotations["a"]) == ("pg-step-J", 3, "test", "job")


def test_skipping_goes_on_below() -> None:
    """workloads:ST-5."""
    top = owner("TrainingWorkload", "t", "T", api=RUN_AI, labels={QUEUE: "q"})
    flow = owner("Workflow", "w", "W", api=WORKFLOW, by=top)
    job = owner("Job", "j", "J", by=flow)
    assert (grouped(pod(by=job), job, flow, top).name, grouped(pod(by=job), job, flow, top).queue) == ("pg-j-J", "q")


@pytest.mark.parametrize(
    "kind",
    [
        "DistributedInferenceWorkload",
        "DistributedWorkload",
        "InferenceWorkload",
        "InteractiveWorkload",
        "TrainingWorkload",
    ],
)
def test_workloads_of_run_ai_are_skipped_in_any_version(kind: str) -> None:
    """workloads:T-108, ST-1."""
    top = owner(kind, "t", "T", api=RUN_AI)
    job = owner("Job", "j", "J", by=top)
    assert grouped(pod(by=job), job, top).name == "pg-j-J"


@pytest.mark.parametrize(
    ("kind", "api"),
    [
        ("Workflow", WORKFLOW),
        ("TrainJob", "trainer.kubeflow.org/v1alpha1"),
        ("DynamoGraphDeployment", DYNAMO),
        ("DynamoGraphDeployment", "nvidia.com/v9"),
    ],
)
def test_kinds_that_only_start_others_are_skipped(kind: str, api: str) -> None:
    """workloads:ST-1, ST-2."""
    top = owner(kind, "t", "T", api=api)
    job = owner("Job", "j", "J", by=top)
    assert grouped(pod(by=job), job, top).name == "pg-j-J"
    assert grouped(pod("p", "P", by=top), top).name == "pg-p-P"


def test_a_kind_that_is_grouped_in_any_version_is_found_below() -> None:
    """workloads:ST-5: KAI looks up the exact version alone."""
    top = owner("Workflow", "w", "W", api=WORKFLOW)
    dynamo = owner("DynamoGraphDeployment", "d", "D", api="nvidia.com/v9", by=top)
    job = owner("Job", "j", "J", by=dynamo)
    assert grouped(pod(by=job), job, dynamo, top).name == "pg-j-J"


def test_a_train_job_is_grouped_as_its_job_set() -> None:
    """workloads:T-109."""
    top = owner("TrainJob", "t", "T", api="trainer.kubeflow.org/v1alpha1", labels={QUEUE: "q"})
    jobs = [{"name": "node", "replicas": 1, "template": {"spec": {"parallelism": 4, "completions": 4}}}]
    job_set = owner("JobSet", "t", "S", api="jobset.x-k8s.io/v1alpha2", by=top, spec={"replicatedJobs": jobs})
    job = owner("Job", "t-node-0", "J", by=job_set)
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "node", "jobset.sigs.k8s.io/job-index": "0"}
    meta = grouped(pod(by=job, labels=labels), job, job_set, top)
    assert (meta.name, meta.owner.kind, meta.queue, meta.min_sub_group) == ("pg-t-S", "JobSet", "q", 1)
    assert [(each.name, each.min_member) for each in meta.sub_groups] == [("node", None), ("node-replica-0", 4)]
    assert meta.pod_sub_group == "node-replica-0"


def test_the_chain_below_counts_for_kinds_without_a_grouper() -> None:
    top = owner("Workflow", "w", "W", api=WORKFLOW, labels={PREEMPTIBILITY: "preemptible"})
    odd = owner("Odd", "o", "O", api="x.io/v1", by=top)
    near = owner("ReplicaSet", "r", "R", api="apps/v1", by=odd, labels={"priorityClassName": "build"})
    meta = grouped(pod(by=near), near, odd, top)
    assert (meta.name, meta.priority_class, meta.preemptibility) == ("pg-o-O", "build", "preemptible")


def test_the_default_class_of_a_skipped_kind_is_used() -> None:
    """workloads:T-106."""
    top = owner("DynamoGraphDeployment", "d", "D", api=DYNAMO)
    readers = defaults("DynamoGraphDeployment", priority_class="very-high", preemptibility="Non-Preemptible")
    meta = grouped(pod(by=top), top, readers=readers)
    assert (meta.priority_class, meta.preemptibility) == ("very-high", "non-preemptible")
    ghost = defaults("DynamoGraphDeployment", priority_class="ghost", preemptibility="maybe")
    meta = grouped(pod(by=top), top, readers=ghost)
    assert (meta.priority_class, meta.preemptibility, meta.problems) == ("train", "", ())


def test_what_the_skipped_object_says_wins_over_the_defaults_of_its_kind() -> None:
    """workloads:ST-3: KAI does the opposite."""
    readers = defaults("Workflow.argoproj.io", priority_class="very-high", preemptibility="preemptible")
    said = {"priorityClassName": "build", PREEMPTIBILITY: "non-preemptible"}
    top = owner("Workflow", "w", "W", api=WORKFLOW, labels=said)
    meta = grouped(pod(by=top), top, readers=readers)
    assert (meta.priority_class, meta.preemptibility) == ("build", "non-preemptible")
    silent = owner("Workflow", "w", "W", api=WORKFLOW)
    assert grouped(pod(by=silent, priority_class="build"), silent, readers=readers).priority_class == "build"
    assert grouped(pod(by=silent, priority_class="ghost"), silent, readers=readers).priority_class == "very-high"
    own = pod(by=silent, labels={PREEMPTIBILITY: "non-preemptible"})
    assert grouped(own, silent, readers=readers).preemptibility == "non-preemptible"


def test_nothing_of_the_child_is_overwritten() -> None:
    """workloads:T-107."""
    top = owner("Workflow", "w", "W", api=WORKFLOW, labels={"k": "v2", "l": "x"})
    child = owner("Job", "j", "J", by=top, labels={"k": "v1"})
    meta = grouped(pod(by=child), child, top)
    assert (meta.labels["k"], meta.labels["l"]) == ("v1", "x")
    assert child.metadata.labels == {"k": "v1"}


def test_the_group_of_an_owned_pod_names_itself() -> None:
    """As recorded: KAI copies the annotation that it wrote on the pod before."""
    top = owner("Workflow", "w", "W", api=WORKFLOW)
    for before in ({}, {"pod-group-name": "forged"}):
        assert grouped(pod("s", "S", by=top, annotations=before), top).annotations["pod-group-name"] == "pg-s-S"
    assert "pod-group-name" not in grouped(pod("s", "S")).annotations
