"""Plans of operators as pure functions: what follows from a workload and what exists of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykai.api.decode import decode_as
from pykai.api.workloads import Job, MachinePod
from pykai.kube.resources import JOBS, PODS
from pykai.lab.operators.families import ALL, read_families
from pykai.lab.operators.jobset import JOB_SETS, JobSetWorkload
from pykai.lab.operators.ray import RAY_CLUSTERS, RayClusterWorkload
from pykai.lab.operators.steps import MOST_PODS, ObservedWorkload, RefusedWorkload, Step, merge_difference
from tests.lab.operators.operatedcluster import Document, conditions, example

OPERATED = {kind.resource.kind: kind for family in read_families(ALL) for kind in family.operated}
NOW = ObservedWorkload("2026-01-01T00:01:00Z", 1_767_225_660.0)


def submitted(name: str, *, status: Document | None = None) -> Document:
    """An example as the server has it."""
    document = list(example(name))[-1]
    document["metadata"] |= {"namespace": "default", "uid": f"{name}-uid", "generation": 1}
    return {**document, "status": status or {}}


def plan(document: Document, pods: Iterable[Document] = (), **more: Any) -> Step:
    """The next step of a workload with these pods."""
    kind = OPERATED[document["kind"]]
    seen = replace(NOW, pods=[decode_as(MachinePod, pod) for pod in pods], **more)
    return kind.plan(decode_as(kind.into, document), seen)


def created(step: Step, resource: Any = PODS) -> list[Document]:
    """The documents that a step creates."""
    return [each.document for each in step.create if each.resource == resource]


def in_phase(phase: str, pods: Iterable[Document], *, deleted: bool = False, ready: bool = True) -> list[Document]:
    """Created pods as machines run them."""
    found = []
    for number, pod in enumerate(pods):
        metadata = {**pod["metadata"], "uid": f"{pod['metadata']['name']}-{number}"}
        if deleted:
            metadata["deletionTimestamp"] = NOW.now
        holds = "True" if ready and phase == "Running" else "False"
        status = {"phase": phase, "conditions": [{"type": "Ready", "status": holds}]}
        found.append({**pod, "metadata": metadata, "status": status})
    return found


def names_of(documents: Sequence[Document]) -> list[str]:
    return [each["metadata"]["name"] for each in documents]


def deleted_names(step: Step) -> list[str]:
    return [msgspec.to_builtins(each.obj)["metadata"]["name"] for each in step.delete]


def test_a_job_creates_the_pods_of_its_roles_and_no_pod_twice() -> None:
    """sim:operators."""
    job = submitted("pytorchjob")
    first = plan(job)
    wanted = ["pytorch-master-0", "pytorch-worker-0", "pytorch-worker-1", "pytorch-worker-2"]
    assert names_of(created(first)) == wanted
    assert conditions({"status": first.status}) == {"Created": "True"}
    pods = in_phase("Running", created(first))
    second = plan(job, pods)
    assert not second.create
    assert conditions({"status": second.status}) == {"Created": "True", "Running": "True"}
    going = in_phase("Running", created(first)[:1], deleted=True)
    assert names_of(created(plan(job, going))) == wanted[1:]


def test_a_pod_beyond_the_replicas_is_deleted() -> None:
    job = submitted("pytorchjob")
    pods = in_phase("Running", created(plan(job)))
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 1
    assert deleted_names(plan(job, pods)) == ["pytorch-worker-1", "pytorch-worker-2"]


def test_the_decisive_pod_ends_a_job_and_what_still_runs_is_deleted() -> None:
    """sim:operators."""
    job = submitted("pytorchjob")
    master, *workers = created(plan(job))
    done, running = in_phase("Succeeded", [master]), in_phase("Running", workers)
    step = plan(job, [*done, *running])
    assert conditions({"status": step.status}) == {"Created": "True", "Succeeded": "True"}
    over = {**job, "status": dict(step.status)}
    assert deleted_names(plan(over, [*done, *running])) == names_of(workers)
    assert plan(over, done).status["replicaStatuses"] == {"Master": {"succeeded": 1}, "Worker": {}}
    for policy, left in (("None", []), ("All", names_of([master, *workers]))):
        job["spec"]["runPolicy"] = {"cleanPodPolicy": policy}
        assert deleted_names(plan({**over, "spec": job["spec"]}, [*done, *running])) == left
    assert not conditions({"status": plan(job, in_phase("Succeeded", workers)).status}).get("Succeeded")


def test_a_failed_pod_fails_a_job_and_an_evicted_one_does_not() -> None:
    """sim:operators."""
    job = submitted("pytorchjob")
    pods = created(plan(job))
    failed = plan(job, in_phase("Failed", pods))
    assert conditions({"status": failed.status})["Failed"] == "True"
    evicted = plan(job, in_phase("Failed", pods, deleted=True))
    assert "Failed" not in conditions({"status": evicted.status})


def test_a_retryable_exit_code_gets_another_attempt() -> None:
    job = submitted("pytorchjob")
    for role in job["spec"]["pytorchReplicaSpecs"].values():
        role["restartPolicy"] = "ExitCode"
    pods = in_phase("Failed", created(plan(job))[:1])
    for code, again in ((137, True), (1, False)):
        pods[0]["status"]["containerStatuses"] = [{"name": "c", "state": {"terminated": {"exitCode": code}}}]
        step = plan(job, pods)
        assert (deleted_names(step) == ["pytorch-master-0"]) is again
        assert ("Failed" in conditions({"status": step.status})) is not again


def test_a_deadline_and_a_time_to_live_hold() -> None:
    job = submitted("pytorchjob", status={"startTime": "2026-01-01T00:00:00Z"})
    job["spec"]["runPolicy"] = {"activeDeadlineSeconds": 100}
    assert plan(job).wait_s == 40
    job["spec"]["runPolicy"] = {"activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": 10}
    step = plan(job)
    assert conditions({"status": step.status})["Failed"] == "True"
    over = {**job, "status": dict(step.status)}
    assert plan(over).wait_s == 10
    job["spec"]["runPolicy"]["ttlSecondsAfterFinished"] = 0
    assert deleted_names(plan({**over, "spec": job["spec"]})) == ["pytorch"]


@pytest.mark.parametrize("count", [-1, MOST_PODS + 1, 2**40])
def test_a_number_of_pods_that_cannot_be_is_refused(count: int) -> None:
    """sim:operators-bounds."""
    job = submitted("pytorchjob")
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = count
    with pytest.raises(RefusedWorkload, match=f"replicas of Worker: {count} is not a number from 0 to {MOST_PODS}"):
        plan(job)


def test_a_job_without_the_role_that_decides_is_refused() -> None:
    job = submitted("xgboostjob")
    del job["spec"]["xgbReplicaSpecs"]["Master"]
    with pytest.raises(RefusedWorkload, match="a XGBoostJob needs the role Master"):
        plan(job)


def test_a_launcher_waits_for_its_workers() -> None:
    """sim:operators-order."""
    job = submitted("mpijob")
    first = plan(job)
    assert created(first, JOBS) == []
    pods = created(first)
    assert created(plan(job, in_phase("Pending", pods)), JOBS) == []
    assert names_of(created(plan(job, in_phase("Running", pods)), JOBS)) == ["mpi-launcher"]
    job["spec"]["launcherCreationPolicy"] = "AtStartup"
    assert names_of(created(plan(job), JOBS)) == ["mpi-launcher"]


def as_job(document: Document, **status: Any) -> Job:
    metadata = {**document["metadata"], "uid": document["metadata"]["name"]}
    return decode_as(Job, {**document, "metadata": metadata, "status": status})


def test_replicated_jobs_start_in_order() -> None:
    """sim:operators-order."""
    job_set = submitted("jobset")
    assert len(created(plan(job_set), JOBS)) == 3
    job_set["spec"]["startupPolicy"] = {"startupPolicyOrder": "InOrder"}
    (driver,) = created(plan(job_set), JOBS)
    assert driver["metadata"]["name"] == "jobset-driver-0"
    assert created(plan(job_set, owned={JOBS: [as_job(driver, active=1)]}), JOBS) == []
    after = created(plan(job_set, owned={JOBS: [as_job(driver, active=1, ready=1)]}), JOBS)
    assert names_of(after) == ["jobset-workers-0", "jobset-workers-1"]
    assert [each["metadata"]["labels"]["jobset.sigs.k8s.io/job-global-index"] for each in after] == ["1", "2"]


def test_a_job_set_may_succeed_with_one_of_its_jobs() -> None:
    job_set = submitted("jobset")
    jobs = created(plan(job_set), JOBS)
    complete = [{"type": "Complete", "status": "True"}]
    seen = {JOBS: [as_job(jobs[0], conditions=complete), *(as_job(job) for job in jobs[1:])]}
    assert "Completed" not in conditions({"status": plan(job_set, owned=seen).status})
    job_set["spec"]["successPolicy"] = {"operator": "All", "targetReplicatedJobs": ["driver"]}
    step = plan(job_set, owned=seen)
    assert conditions({"status": step.status})["Completed"] == "True"
    over = {**job_set, "status": dict(step.status)}
    assert deleted_names(plan(over, owned=seen)) == names_of(jobs[1:])


def test_workers_wait_for_a_leader_that_must_be_ready() -> None:
    """sim:operators-order."""
    workload = submitted("leaderworkerset")
    leaders = created(plan(workload))
    assert names_of(leaders) == ["serving-0", "serving-1"]
    assert len(created(plan(workload, in_phase("Pending", leaders)))) == 4
    workload["spec"]["startupPolicy"] = "LeaderReady"
    assert created(plan(workload, in_phase("Running", leaders, ready=False))) == []
    assert len(created(plan(workload, in_phase("Running", leaders)))) == 4


def test_executors_wait_for_their_driver() -> None:
    """sim:operators-order."""
    app = submitted("sparkapplication")
    driver = created(plan(app))
    assert names_of(driver) == ["spark-driver"]
    assert created(plan(app, in_phase("Pending", driver))) == []
    assert names_of(created(plan(app, in_phase("Running", driver)))) == ["spark-exec-1", "spark-exec-2"]


def test_a_ray_job_is_submitted_when_its_cluster_is_ready() -> None:
    """sim:operators-order."""
    job = submitted("rayjob")
    named = plan(job)
    assert not named.create
    job["status"] = dict(named.status)
    (cluster,) = created(plan(job), RAY_CLUSTERS)
    assert cluster["metadata"]["name"] == job["status"]["rayClusterName"]
    for state, submitters in (("", []), ("ready", ["rayjob"])):
        seen = decode_as(RayClusterWorkload, {**cluster, "status": {"state": state}})
        assert names_of(created(plan(job, owned={RAY_CLUSTERS: [seen]}), JOBS)) == submitters


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"shutdownAfterJobFinishes": False}, "a RayJob with shutdownAfterJobFinishes set to false is not allowed to"),
        ({"clusterSelector": {"ray.io/cluster": "mine"}}, "the ClusterSelector mode doesn't support the suspend"),
    ],
)
def test_a_ray_job_that_may_not_be_suspended_fails_for_good(spec: Document, why: str) -> None:
    job = submitted("rayjob")
    job["spec"].update(spec)
    assert plan(job).status["jobDeploymentStatus"] == "Initializing"
    job["spec"]["suspend"] = True
    failed = plan(job).status
    assert failed["jobDeploymentStatus"] == "ValidationFailed"
    assert why in failed["message"]
    job["spec"]["suspend"] = False
    job["status"] = dict(failed)
    assert plan(job).status == failed


def test_memory_that_spark_cannot_read_is_refused() -> None:
    app = submitted("sparkapplication")
    app["spec"]["driver"]["memory"] = "lots"
    with pytest.raises(RefusedWorkload, match=r"driver\.memory: 'lots' is not a number with k, m, g or t, such as 4g"):
        plan(app)


json_values = st.recursive(
    st.booleans() | st.integers(0, 3) | st.text("ab", max_size=1),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("abc", max_size=1), inner, max_size=3),
    max_leaves=6,
)
json_objects = st.dictionaries(st.text("abc", max_size=1), json_values, max_size=3)


@given(json_objects, json_objects)
def test_the_difference_makes_the_new_document_of_the_old_one(old: Document, new: Document) -> None:
    assert merged(old, merge_difference(old, new)) == new
    assert merge_difference(new, new) == {}


def merged(old: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def test_a_train_job_without_a_runtime_gets_that_of_the_lab() -> None:
    job = submitted("trainjob")
    (job_set,) = created(plan(job), JOB_SETS)
    (node,) = job_set["spec"]["replicatedJobs"]
    assert node["name"] == "node"
    assert (node["template"]["spec"]["parallelism"], node["template"]["spec"]["completions"]) == (3, 3)
    pod = node["template"]["spec"]["template"]["spec"]
    assert pod["schedulerName"] == "kai-scheduler"
    assert pod["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": 2}}


def test_a_suspended_train_job_suspends_its_job_set() -> None:
    job = submitted("trainjob")
    (document,) = created(plan(job), JOB_SETS)
    job["spec"]["suspend"] = True
    step = plan(job, owned={JOB_SETS: [decode_as(JobSetWorkload, document)]})
    assert [each.patch for each in step.patch] == [{"spec": {"suspend": True}}]
    assert conditions({"status": step.status}) == {"Suspended": "True"}


def test_a_suspended_group_of_ray_workers_has_no_pods() -> None:
    cluster = submitted("raycluster")
    workers = cluster["spec"]["workerGroupSpecs"][0]
    workers["numOfHosts"] = 2
    assert len(created(plan(cluster))) == 1 + 2 * 2
    workers["suspend"] = True
    assert names_of(created(plan(cluster))) == ["ray-head"]


def test_the_cluster_of_a_ray_service_is_pending_until_it_is_ready() -> None:
    service = submitted("rayservice")
    service["status"] = dict(plan(service).status)
    name = service["status"]["pendingServiceStatus"]["rayClusterName"]
    (cluster,) = created(plan(service), RAY_CLUSTERS)
    assert cluster["metadata"]["name"] == name
    waiting, ready = (decode_as(RayClusterWorkload, {**cluster, "status": {"state": state}}) for state in ("", "ready"))
    assert plan(service, owned={RAY_CLUSTERS: [waiting]}).status == service["status"]
    done = plan(service, owned={RAY_CLUSTERS: [ready]}).status
    assert done == {"activeServiceStatus": {"rayClusterName": name}, "serviceStatus": "Running"}


def test_a_group_of_leader_and_workers_restarts_as_a_whole_unless_it_must_not() -> None:
    workload = submitted("leaderworkerset")
    workload["spec"]["replicas"] = 1
    leader = in_phase("Running", created(plan(workload)))
    workers = in_phase("Running", created(plan(workload, leader)))
    gone = [decode_as(MachinePod, workers[1])]
    assert deleted_names(plan(workload, [*leader, workers[0]], vanished=gone)) == ["serving-0", "serving-0-1"]
    workers[0]["status"]["phase"] = "Failed"
    assert deleted_names(plan(workload, [*leader, *workers])) == ["serving-0", "serving-0-1", "serving-0-2"]
    workload["spec"]["leaderWorkerTemplate"]["restartPolicy"] = "None"
    assert deleted_names(plan(workload, [*leader, *workers])) == ["serving-0-1"]
