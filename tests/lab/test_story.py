"""Stories: the objects they create, and errors of invalid ones."""

from __future__ import annotations

import pytest

from pykai.api import names
from pykai.lab.story import (
    DEFAULT_STORY,
    ScenarioError,
    job_object,
    machine_kind,
    parse_story,
    queue_object,
    read_story,
    service_object,
    step_objects,
)

#: a story begins with its queue
Q = "queues: [{name: q}]\n"


def test_the_built_in_story_has_ten_jobs_and_twenty_services_on_a_hundred_gpus() -> None:
    story = read_story(DEFAULT_STORY)
    assert sum(len(step.jobs) for step in story.steps) == 10
    assert sum(len(step.services) for step in story.steps) == 20
    assert sum(machines.count * machines.gpus for machines in story.machines) == 100
    sizes = {job.pods for step in story.steps for job in step.jobs}
    assert len(sizes) >= 4
    assert any(job.minimum is not None and job.minimum < job.pods for step in story.steps for job in step.jobs)


def test_every_queue_the_built_in_story_uses_is_a_leaf_of_its_tree() -> None:
    story = read_story(DEFAULT_STORY)
    parents = {queue.parent for queue in story.queues}
    leaves = {queue.name for queue in story.queues} - parents
    assert {work.queue for step in story.steps for work in (*step.jobs, *step.services)} <= leaves


def test_a_job_becomes_a_gang() -> None:
    story = parse_story(
        "queues: [{name: q}]\nsteps: [{at: 1s, jobs: [{name: j, queue: q, pods: 4, gpus: 2, runs: 1m..90s}]}]"
    )
    (job,) = step_objects(story.steps[0])
    assert job["kind"] == "Job"
    assert job["metadata"]["annotations"] == {names.BATCH_MIN_MEMBER_ANNOTATION: "4"}
    assert (job["spec"]["parallelism"], job["spec"]["completions"]) == (4, 4)
    template = job["spec"]["template"]
    assert template["metadata"]["annotations"] == {names.RUN_SECONDS_ANNOTATION: "60..90"}
    assert template["spec"]["schedulerName"] == names.SCHEDULER_NAME
    assert template["spec"]["containers"][0]["resources"]["limits"] == {names.NVIDIA_GPU: 2}


def test_a_job_and_its_machine_name_the_gpus_of_a_vendor() -> None:
    story = parse_story(
        "machines: [{name: m, gpus: 8, gpuResource: amd.com/gpu, taints: [{key: amd, effect: NoSchedule}]}]\n"
        + Q
        + "steps:"
        " [{at: 1s, jobs: [{name: j, queue: q, gpus: 2, gpuResource: amd.com/gpu, tolerations: [{key: amd}]}]}]"
    )
    kind = machine_kind(story.machines[0])
    assert (kind.gpu_resource, kind.taints) == ("amd.com/gpu", [{"key": "amd", "effect": "NoSchedule"}])
    spec = job_object(story.steps[0].jobs[0])["spec"]["template"]["spec"]
    assert spec["containers"][0]["resources"]["limits"] == {"amd.com/gpu": 2}
    assert spec["tolerations"] == [{"key": "amd"}]


def test_an_elastic_job_says_its_minimum() -> None:
    story = parse_story(Q + "steps: [{at: 1s, jobs: [{name: j, queue: q, pods: 4, minimum: 1}]}]")
    assert job_object(story.steps[0].jobs[0])["metadata"]["annotations"][names.BATCH_MIN_MEMBER_ANNOTATION] == "1"


def test_a_service_becomes_a_deployment_on_part_of_a_gpu() -> None:
    story = parse_story(
        "queues: [{name: q}]\nsteps: [{at: 1s, services: [{name: s, queue: q, replicas: 2, fraction: 0.5}]}]"
    )
    deployment = service_object(story.steps[0].services[0])
    assert deployment["spec"]["replicas"] == 2
    assert deployment["spec"]["selector"]["matchLabels"] == {"app": "s"}
    template = deployment["spec"]["template"]
    assert template["metadata"]["annotations"] == {names.GPU_FRACTION_ANNOTATION: "0.5"}
    assert template["metadata"]["labels"] == {"app": "s", names.QUEUE_LABEL: "q"}
    assert "limits" not in template["spec"]["containers"][0]["resources"]


def test_a_queue_is_unlimited_in_what_is_not_said() -> None:
    story = parse_story("queues: [{name: p}, {name: a, parent: p, gpu: {quota: 2, weight: 3}}]")
    queue = queue_object(story.queues[1])
    assert queue["spec"]["parentQueue"] == "p"
    assert queue["spec"]["resources"]["gpu"] == {"quota": 2.0, "limit": -1.0, "overQuotaWeight": 3.0}
    assert queue["spec"]["resources"]["cpu"]["limit"] == -1.0


def test_machines_stand_in_racks_and_zones() -> None:
    story = parse_story("machines: [{name: m, count: 8, gpus: 8, perRack: 2, racksPerZone: 2}]")
    kind = machine_kind(story.machines[0])
    assert [(level.label, level.machines) for level in kind.levels] == [(names.ZONE_LABEL, 4), ("example.com/rack", 2)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x: 1", "unknown field `x`"),
        ("- 1", "Expected `object`"),
        ("a: [", "not YAML"),
        ("steps: [{at: soon}]", "steps[0].at: 'soon' is not a duration"),
        ("steps: [{at: 1s, jobs: [{name: j, queue: q, pods: 0}]}]", "steps[0].jobs[0].pods: expected at least 1"),
        ("steps: [{at: 1s, jobs: [{name: j, queue: q, minimum: 2}]}]", "steps[0].jobs[0].minimum: expected 0 to 1"),
        ("steps: [{at: 1s, jobs: [{name: j, queue: q, runs: x..2s}]}]", "steps[0].jobs[0].runs"),
        ("steps: [{at: 1s, jobs: [{name: j, queue: q, gpus: 1, fraction: 0.5}]}]", "name one of gpus, fraction"),
        ("steps: [{at: 1s, services: [{name: j, queue: q, fraction: 1.5}]}]", "services[0].fraction"),
        ("machines: [{name: m, count: 0}]", "machines[0]"),
        (
            "machines: [{name: m, gpuResource: amd.com/gpus}]",
            "machines[0].gpuResource: expected a resource of GPUs, such as amd.com/gpu, not 'amd.com/gpus'",
        ),
        (
            Q + "steps: [{at: 1s, jobs: [{name: j, queue: q, fraction: 0.5, gpuResource: amd.com/gpu}]}]",
            "steps[0].jobs[0]: amd.com/gpu cannot be shared, only nvidia.com/gpu",
        ),
        ("nodeGroups: [{name: g, machines: []}]", "nodeGroups[0].machines: expected kinds of machines without count"),
        ("nodeGroups: [{name: g, machines: [{name: m, count: 2}]}]", "nodeGroups[0].machines: expected kinds"),
        (
            "nodeGroups: [{name: g, machines: [{name: a}, {name: b}]}]",
            "nodeGroups[0].machines: a group of cluster-autoscaler has one kind of machine, not 2; make several groups",
        ),
        ("nodeGroups: [{name: g, min: 2, max: 1, machines: [{name: m}]}]", "nodeGroups[0]: expected 0 <= min <= max"),
        ("nodeGroups: [{name: g, provisioner: x, machines: [{name: m}]}]", "expected cluster-autoscaler or karpenter"),
        ("nodeGroups: [{name: g, boot: soon, machines: [{name: m}]}]", "nodeGroups[0].boot: 'soon' is not a duration"),
        (
            "nodeGroups: [{name: g, machines: [{name: m}]}, {name: g, machines: [{name: m}]}]",
            "nodeGroups[1].name: there are two groups 'g'",
        ),
        (
            "nodeGroups: [{name: g, machines: [{name: m, gpuResource: amd}]}]",
            "nodeGroups[0].machines[0].gpuResource: expected a resource of GPUs",
        ),
        ("x: " + "[" * 100_000, "not YAML"),
        (
            "queues: [{name: a, parent: b}]",
            "queues[0].parent: there is no queue 'b'; known are a, default-parent-queue",
        ),
        (
            "queues: [{name: vision}]\nsteps: [{at: 1s}, {at: 2s, services: [{name: s, queue: vison}]}]",
            "steps[1].services[0].queue: there is no queue 'vison'; known are default-parent-queue, default-queue, "
            "vision; did you mean vision?",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_story(text, "story.yaml")
    assert str(caught.value).startswith("story.yaml: ")
    assert problem in str(caught.value)


def test_queues_may_come_with_the_installation_or_as_objects() -> None:
    assert parse_story("steps: [{at: 1s, jobs: [{name: j, queue: default-queue}]}]")
    assert parse_story("objects: [{kind: Queue, metadata: {name: q}}]\nsteps: [{at: 1s, jobs: [{name: j, queue: q}]}]")
