"""The operators of the lab with scheduler, pod grouper and machines: gangs, suspension, failures, restarts."""

from __future__ import annotations

from typing import Any

from pykai.api import names
from pykai.kube.resources import JOBS, POD_GROUPS, PODS
from tests.lab.operators.operatedcluster import (
    KINDS,
    Document,
    OperatedCluster,
    conditions,
    example,
    holds_true,
    operated_cluster,
    status_is,
)

PYTORCH = KINDS["PyTorchJob"]


def pytorch_job(name: str, masters: int, workers: int, gpus: int, *, exit_code: int = 0, **policy: Any) -> Document:
    """A PyTorchJob whose pods run until something ends them."""
    (job,) = example("pytorchjob")
    job["metadata"]["name"] = name
    job["spec"]["runPolicy"] = policy
    for role, count in (("Master", masters), ("Worker", workers)):
        spec = job["spec"]["pytorchReplicaSpecs"][role]
        spec["replicas"] = count
        spec["restartPolicy"] = "Never"
        spec["template"]["spec"]["containers"][0]["resources"]["limits"] = {names.NVIDIA_GPU: gpus}
        seconds = "1" if exit_code else "1000000"
        annotations = {names.RUN_SECONDS_ANNOTATION: seconds, names.EXIT_CODE_ANNOTATION: str(exit_code)}
        spec["template"]["metadata"] = {"annotations": annotations}
    return job


def waits_because(pod: Document) -> str:
    """Why the scheduler has not placed a pod."""
    found = [each for each in pod["status"].get("conditions", ()) if each["type"] == "PodScheduled"]
    return str(found[0].get("message", "")) if found else ""


async def runs(cluster: OperatedCluster, count: int) -> None:
    """Wait until so many pods run, and no others exist."""
    await cluster.until_pods(lambda pods: list(pods.values()) == ["Running"] * count)


async def test_a_gang_that_does_not_fit_starts_no_pod_and_says_why() -> None:
    async with operated_cluster("kubeflow") as cluster:
        await cluster.apply(pytorch_job("huge", 1, 19, 8))

        why = "sub-group worker requires 19 pods for gang scheduling"
        await cluster.until(PODS, "huge-worker-18", lambda pod: why in waits_because(pod))
        assert len(cluster.pods()) == 20
        assert set(cluster.pods().values()) == {"Pending"}
        assert not any(pod["spec"].get("nodeName") for pod in cluster.stores[PODS].values())
        group = cluster.group_of("huge-master-0")
        assert group["spec"]["minMember"] == 20
        assert "Running" not in conditions(await cluster.until(PYTORCH, "huge", holds_true("Created")))


async def test_a_suspended_job_gives_its_gpus_back_and_a_resumed_one_runs_again() -> None:
    async with operated_cluster("kubeflow") as cluster:
        await cluster.apply(pytorch_job("j", 1, 3, 2))
        await runs(cluster, 4)
        await cluster.until(PYTORCH, "j", holds_true("Running"))
        await cluster.client.patch(PYTORCH, "j", {"spec": {"runPolicy": {"suspend": True}}}, "default")
        await cluster.until_pods(lambda pods: not pods)
        stopped = await cluster.until(PYTORCH, "j", holds_true("Suspended"))
        assert conditions(stopped) == {"Created": "True", "Running": "False", "Suspended": "True"}
        assert "startTime" not in stopped["status"]
        await cluster.client.patch(PYTORCH, "j", {"spec": {"runPolicy": {"suspend": False}}}, "default")
        await runs(cluster, 4)
        resumed = await cluster.until(PYTORCH, "j", holds_true("Running"))
        assert conditions(resumed)["Suspended"] == "False"
        assert resumed["status"]["replicaStatuses"] == {"Master": {"active": 1}, "Worker": {"active": 3}}


async def test_a_failed_pod_fails_its_job_and_an_evicted_one_is_replaced() -> None:
    async with operated_cluster("kubeflow") as cluster:
        await cluster.apply(pytorch_job("bad", 1, 1, 1, exit_code=3, cleanPodPolicy="All"))
        failed = await cluster.until(PYTORCH, "bad", holds_true("Failed"))
        # Pods that end at once may never have been seen to run.
        assert {"Created": "True", "Running": "False", "Failed": "True"}.items() >= conditions(failed).items()
        await cluster.until_pods(lambda pods: not pods)
        await cluster.apply(pytorch_job("good", 1, 1, 1))
        await runs(cluster, 2)
        before = cluster.stores[PODS].get("default/good-worker-0")
        assert before is not None
        await cluster.client.delete(PODS, "good-worker-0", "default")
        uid = before["metadata"]["uid"]
        await cluster.until(
            PODS, "good-worker-0", lambda pod: pod["metadata"]["uid"] != uid and pod["status"]["phase"] == "Running"
        )


async def test_a_job_set_in_order_starts_workers_when_the_driver_is_ready_and_restarts_when_it_may() -> None:
    async with operated_cluster("jobset") as cluster:
        (job_set,) = example("jobset")
        job_set["spec"]["startupPolicy"] = {"startupPolicyOrder": "InOrder"}
        job_set["spec"]["failurePolicy"] = {"maxRestarts": 1}
        failing = {names.RUN_SECONDS_ANNOTATION: "20", names.EXIT_CODE_ANNOTATION: "1"}
        workers = job_set["spec"]["replicatedJobs"][1]["template"]["spec"]
        workers["backoffLimit"] = 0
        workers["template"]["metadata"] = {"annotations": failing}
        job_set["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"] = {
            "annotations": {names.RUN_SECONDS_ANNOTATION: "600"}
        }
        ready_when_created: list[int] = []

        def note(change: Any) -> None:
            if change.old is None and "workers" in change.key:
                driver = cluster.stores[JOBS].get("default/jobset-driver-0")
                ready_when_created.append(driver["status"].get("ready", 0) if driver is not None else 0)

        cluster.stores[JOBS].subscribe(note)
        await cluster.apply(job_set)
        failed = await cluster.until(KINDS["JobSet"], "jobset", holds_true("Failed"))
        assert failed["status"]["restarts"] == 1
        assert failed["status"]["terminalState"] == "Failed"
        assert ready_when_created == [1, 1, 1, 1]
        await cluster.until_pods(lambda pods: not any(name.startswith("jobset-driver") for name in pods))


async def test_a_leader_that_must_be_ready_comes_before_its_workers_and_a_lost_worker_restarts_its_group() -> None:
    async with operated_cluster("lws") as cluster:
        (workload,) = example("leaderworkerset")
        workload["spec"]["replicas"] = 1
        workload["spec"]["startupPolicy"] = "LeaderReady"
        phases: list[str] = []

        def note(change: Any) -> None:
            if change.old is None and change.key == "default/serving-0-1":
                phases.append(cluster.pods()["serving-0"])

        cluster.stores[PODS].subscribe(note)
        await cluster.apply(workload)
        await runs(cluster, 3)
        assert phases == ["Running"]
        uids = {pod["metadata"]["uid"] for pod in cluster.stores[PODS].values()}
        await cluster.client.delete(PODS, "serving-0-2", "default")
        await cluster.until_pods(
            lambda pods: (
                list(pods.values()) == ["Running"] * 3
                and uids.isdisjoint(pod["metadata"]["uid"] for pod in cluster.stores[PODS].values())
            )
        )
        worker = cluster.stores[PODS].get("default/serving-0-1")
        assert worker is not None
        (owner,) = worker["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("Pod", "serving-0")


async def test_a_suspended_ray_job_has_no_cluster_and_a_resumed_one_another() -> None:
    async with operated_cluster("ray") as cluster:
        (job,) = example("rayjob")
        annotations = job["spec"]["submitterPodTemplate"]["metadata"]["annotations"]
        annotations[names.RUN_SECONDS_ANNOTATION] = "1000000"
        await cluster.apply(job)
        resource = KINDS["RayJob"]
        running = await cluster.until(resource, "rayjob", status_is("jobStatus", "RUNNING"))
        first = running["status"]["rayClusterName"]
        await cluster.client.patch(resource, "rayjob", {"spec": {"suspend": True}}, "default")
        await cluster.until(resource, "rayjob", status_is("jobDeploymentStatus", "Suspended"))
        await cluster.until_pods(lambda pods: not pods)
        await cluster.client.patch(resource, "rayjob", {"spec": {"suspend": False}}, "default")
        again = await cluster.until(resource, "rayjob", status_is("jobStatus", "RUNNING"))
        assert again["status"]["rayClusterName"] != first
        groups = {group["metadata"]["name"] for group in cluster.stores[POD_GROUPS].values()}
        assert groups == {f"pg-rayjob-{again['metadata']['uid']}"}


async def test_executors_belong_to_their_driver_and_a_failed_driver_is_tried_again() -> None:
    async with operated_cluster("spark") as cluster:
        (app,) = example("sparkapplication")
        app["spec"]["restartPolicy"] = {"type": "OnFailure", "onFailureRetries": 1}
        app["spec"]["driver"]["annotations"][names.EXIT_CODE_ANNOTATION] = "1"
        await cluster.apply(app)
        executor = await cluster.until(PODS, "spark-exec-2", lambda pod: pod["status"]["phase"] == "Running")
        (owner,) = executor["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("Pod", "spark-driver")
        assert (
            cluster.group_of("spark-exec-2")["metadata"]["name"] == cluster.group_of("spark-driver")["metadata"]["name"]
        )
        resources = executor["spec"]["containers"][0]["resources"]
        assert resources["requests"] == {"cpu": "2", "memory": "4505Mi", names.NVIDIA_GPU: "1"}
        ended = await cluster.until(KINDS["SparkApplication"], "spark", status_is("applicationState.state", "FAILED"))
        assert ended["status"]["executionAttempts"] == 2
        await cluster.until_pods(lambda pods: pods == {"spark-driver": "Failed"})


async def test_a_template_of_an_unexpected_form_gets_an_event_and_others_run() -> None:
    """sim:operators-bounds."""
    async with operated_cluster("kubeflow") as cluster:
        bad = pytorch_job("bad", 1, 1, 1)
        bad["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["metadata"] = "none"
        await cluster.apply(bad, pytorch_job("good", 1, 1, 1))
        await runs(cluster, 2)
        await cluster.until_event("InvalidWorkload", "a template or the status has an unexpected form")
