"""integrations/third_party (operations:17): workloads of other projects, whose operators the lab plays."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pykai.api import names
from pykai.kube.resources import POD_GROUPS, PODS
from tests.cluster.controlplane import die_with_parent
from tests.e2e.endtoend import NAMESPACE, Document, EndToEnd, created_s, is_ready, limited, template
from tests.e2e.test_allocate_min_subgroups import not_ready
from tests.lab.operators.operatedcluster import KINDS
from tests.lab.operators.test_families import create_when_served

ROLE = "training.kubeflow.org/job-role"


@pytest.fixture(scope="module", autouse=True)
def _operators(installed: Path) -> Iterator[None]:
    """The operators, and the definitions of their kinds where there are none."""
    program = Path(sys.executable).with_name("kai")
    process = subprocess.Popen(
        [str(program), "run", "operators", f"--kubeconfig={installed}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=die_with_parent,
    )
    yield
    process.terminate()
    process.wait(60)


@pytest.fixture
async def queue(e2e: EndToEnd) -> str:
    (made,) = await e2e.family("kinds")
    return made


async def submit(e2e: EndToEnd, kind: str, queue: str, spec: Mapping[str, Any], name: str = "workload") -> str:
    """A workload; its uid."""
    resource = KINDS[kind]
    made: Document = {
        "apiVersion": resource.api_version,
        "kind": kind,
        "metadata": {"name": name, "labels": {names.QUEUE_LABEL: queue, "app": "engine-e2e"}},
        "spec": dict(spec),
    }
    await create_when_served(e2e.client, resource, made, NAMESPACE)
    e2e.keep_in_mind(resource, name)
    return str((await e2e.client.get_raw(resource, name, NAMESPACE))["metadata"]["uid"])


async def all_ready(e2e: EndToEnd, count: int) -> list[Document]:
    """Wait for so many ready pods, and no others."""

    def holds() -> bool:
        return len(e2e.pods_here()) == count and all(map(is_ready, e2e.pods_here()))

    await e2e.until(holds, f"{count} pods are ready")
    return e2e.pods_here()


def minimums(e2e: EndToEnd) -> dict[str, int]:
    """Group -> how many of its pods must run, 0 where its subgroups say so."""
    return {each["metadata"]["name"]: each["spec"].get("minMember") or 0 for each in e2e.stores[POD_GROUPS].values()}


# jobset


def replicated(queue: str, name: str, **spec: Any) -> Document:
    """An entry of `replicatedJobs`."""
    gpus = spec.pop("gpus", 0)
    return {
        "name": name,
        "template": {"spec": {**spec, "template": template(queue, gpus=gpus, restartPolicy="Never")}},
    }


@pytest.mark.cluster_only
async def test_pods_of_a_job_set_that_end_in_turn_are_not_stale(e2e: EndToEnd, queue: str) -> None:
    """The shard calls a gang stale after a second; fewer pods than it needs run for longer than that, in the end."""
    grace_s, alone_s = 1, 4

    def in_phase(phase: str) -> list[str]:
        return sorted(pod["metadata"]["name"] for pod in e2e.pods_here() if pod["status"]["phase"] == phase)

    async def end(pod: str, after_s: float = 0) -> None:
        """End a pod when it has run so long."""
        annotations = {names.RUN_SECONDS_ANNOTATION: f"{after_s:g}"}
        await e2e.client.patch(PODS, pod, {"metadata": {"annotations": annotations}}, NAMESPACE)

    async def ended(count: int, running: int) -> None:
        await e2e.until(
            lambda: (len(in_phase("Succeeded")), len(in_phase("Running"))) == (count, running),
            f"{count} pods have ended, and {running} run",
        )

    async with e2e.sharded(args={"default-staleness-grace-period": f"{grace_s}s"}):
        await submit(e2e, "JobSet", queue, {"replicatedJobs": [replicated(queue, "job", parallelism=2, completions=3)]})
        await ended(0, running=2)
        await end(in_phase("Running")[0])
        await ended(1, running=2)
        await end(in_phase("Running")[0])
        await ended(2, running=1)
        began_s, (last,) = time.time(), in_phase("Running")
        found = e2e.get(last)
        assert found is not None
        await end(last, began_s - created_s(found) + alone_s)
        await ended(3, running=0)
        assert time.time() - began_s > 2 * grace_s
    assert len(e2e.pods_here()) == 3
    assert not e2e.left_s


@pytest.mark.parametrize(("order", "at_once"), [("InOrder", 1), ("AnyOrder", 2)])
async def test_a_job_set_needs_all_its_jobs_unless_they_start_in_order(
    e2e: EndToEnd, queue: str, order: str, at_once: int
) -> None:
    """workloads:WK-JS."""
    jobs = [replicated(queue, name) for name in ("job1", "job2")]
    spec = {"replicatedJobs": jobs, "startupPolicy": {"startupPolicyOrder": order}}
    uid = await submit(e2e, "JobSet", queue, spec)
    await all_ready(e2e, 2)
    assert set(minimums(e2e)) == {f"pg-workload-{uid}"}
    group = await e2e.client.get_raw(POD_GROUPS, f"pg-workload-{uid}", NAMESPACE)
    assert group["spec"]["minSubGroup"] == at_once


@pytest.mark.parametrize(
    ("jobs", "pods"),
    [
        ({"workers": {"parallelism": 8, "completions": 8, "gpus": 1}}, 8),
        (
            {
                "coordinator": {"parallelism": 2, "completions": 2},
                "worker": {"parallelism": 2, "completions": 2, "gpus": 1},
            },
            4,
        ),
        ({"single": {}}, 1),
    ],
)
async def test_a_job_set_needs_all_its_pods(e2e: EndToEnd, queue: str, jobs: dict[str, Any], pods: int) -> None:
    spec = {
        "replicatedJobs": [replicated(queue, name, **fields) for name, fields in jobs.items()],
        "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
    }
    uid = await submit(e2e, "JobSet", queue, spec)
    await all_ready(e2e, pods)
    group = await e2e.client.get_raw(POD_GROUPS, f"pg-workload-{uid}", NAMESPACE)
    needed = group["spec"].get("minMember") or sum(each.get("minMember", 0) for each in group["spec"]["subGroups"])
    assert needed == pods


# kubeflow


def replicas(queue: str, container: str, count: int, **fields: Any) -> Document:
    """Pods of one role."""
    made = template(queue, **fields)
    made["spec"]["containers"][0]["name"] = container
    return {"replicas": count, "template": made}


def pytorch(queue: str, workers: int, master: bool = True, cpu: str = "", **spec: Any) -> Document:
    roles = {"Master": replicas(queue, "pytorch", 1, cpu=cpu)} if master else {}
    return {"pytorchReplicaSpecs": {**roles, "Worker": replicas(queue, "pytorch", workers, cpu=cpu)}, **spec}


async def test_a_pytorch_job_runs(e2e: EndToEnd, queue: str) -> None:
    await submit(e2e, "PyTorchJob", queue, pytorch(queue, 1))
    await all_ready(e2e, 2)


@pytest.mark.parametrize("policy", [{}, {"runPolicy": {"schedulingPolicy": {"minAvailable": 2}}}])
async def test_an_elastic_pytorch_job_needs_its_minimum(e2e: EndToEnd, queue: str, policy: dict[str, Any]) -> None:
    elastic: dict[str, Any] = {"elasticPolicy": {"rdzvBackend": "c10d", "minReplicas": 2}}
    await submit(e2e, "PyTorchJob", queue, pytorch(queue, 1, master=False, **elastic, **policy))

    await e2e.until(lambda: len(minimums(e2e)) == 1, "the job has a group", POD_GROUPS)
    (group,) = minimums(e2e)
    await not_ready(e2e, group)


async def test_the_master_of_an_elastic_pytorch_job_goes_first(e2e: EndToEnd) -> None:
    (queue,) = await e2e.family("kinds", of={"limited": {"cpu": limited(2000)}})
    policy: dict[str, Any] = {"runPolicy": {"schedulingPolicy": {"minAvailable": 1}}}
    await submit(e2e, "PyTorchJob", queue, pytorch(queue, 1, cpu="2", **policy))
    await e2e.until(lambda: len(e2e.pods_here()) == 2, "both pods are there")
    by_role = {pod["metadata"]["labels"].get(ROLE, "worker"): pod["metadata"]["name"] for pod in e2e.pods_here()}
    await e2e.scheduled(by_role["master"])
    await e2e.unschedulable(by_role["worker"])


@pytest.mark.parametrize(
    ("kind", "field", "container", "roles"),
    [
        ("TFJob", "tfReplicaSpecs", "tensorflow", {"PS": 1, "Worker": 2}),
        ("XGBoostJob", "xgbReplicaSpecs", "xgboost", {"Master": 1, "Worker": 2}),
        ("JAXJob", "jaxReplicaSpecs", "jax", {"Worker": 3}),
    ],
)
async def test_a_training_job_runs(
    e2e: EndToEnd, queue: str, kind: str, field: str, container: str, roles: dict[str, int]
) -> None:
    specs = {role: replicas(queue, container, count, gpus=1) for role, count in roles.items()}
    await submit(e2e, kind, queue, {field: specs})
    await all_ready(e2e, sum(roles.values()))


@pytest.mark.parametrize("launcher", ["AtStartup", "WaitForWorkersReady"])
async def test_an_mpi_job_runs(e2e: EndToEnd, queue: str, launcher: str) -> None:
    specs = {"Launcher": replicas(queue, "mpi", 1), "Worker": replicas(queue, "mpi", 2)}
    await submit(e2e, "MPIJob", queue, {"launcherCreationPolicy": launcher, "mpiReplicaSpecs": specs})
    await all_ready(e2e, 3)


# leader_worker_set


@pytest.mark.parametrize("start", ["LeaderCreated", "LeaderReady"])
async def test_each_group_of_a_leader_with_workers_is_a_gang(e2e: EndToEnd, queue: str, start: str) -> None:
    one = template(queue, gpus=1)
    workers = {"size": 3, "leaderTemplate": one, "workerTemplate": one}
    spec = {"replicas": 2, "startupPolicy": start, "leaderWorkerTemplate": workers}
    await submit(e2e, "LeaderWorkerSet", queue, spec)
    await all_ready(e2e, 6)
    await e2e.until(lambda: sorted(minimums(e2e).values()) == [3, 3], "two gangs of three", POD_GROUPS)


# spark: pods as spark-submit makes them


async def driver(e2e: EndToEnd, queue: str) -> tuple[str, Document]:
    """A running driver, and how its executors name it."""
    name = await e2e.pod(queue, name="driver", labels=spark_labels("driver"))
    await e2e.ready(name)
    made = await e2e.client.get_raw(PODS, name, NAMESPACE)
    return name, {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": made["metadata"]["uid"]}


def spark_labels(role: str) -> dict[str, str]:
    return {"spark-app-name": "spark-app", "spark-app-selector": "spark-e2e", "spark-role": role}


async def executor(e2e: EndToEnd, queue: str, number: int, by: Document) -> str:
    made = template(queue, labels=spark_labels("executor"))
    name = f"spark-e2e-exec-{number}"
    metadata = {**made["metadata"], "name": name, "ownerReferences": [by]}
    await e2e.client.create(PODS, {**made, "metadata": metadata}, NAMESPACE)
    return name


async def test_a_spark_driver_and_its_executors_are_a_group(e2e: EndToEnd, queue: str) -> None:
    name, by = await driver(e2e, queue)
    pods = [name, *[await executor(e2e, queue, number, by) for number in range(1, 5)]]
    await e2e.ready(*pods)
    assert len(set(map(e2e.group_of, pods))) == 1


async def test_a_new_spark_executor_comes_to_the_group(e2e: EndToEnd, queue: str) -> None:
    name, by = await driver(e2e, queue)
    pods = [name, *[await executor(e2e, queue, number, by) for number in (1, 2)]]
    await e2e.ready(*pods)
    group = e2e.group_of(pods[-1])
    await e2e.remove(pods[-1])
    added = await executor(e2e, queue, 3, by)
    await e2e.ready(added)
    assert e2e.group_of(added) == group


# ray


def ray_cluster(queue: str, workers: int, cpu: str = "") -> Document:
    """A head and workers of one group."""
    group = {
        "groupName": "worker-group-1",
        "replicas": workers,
        "minReplicas": 1,
        "maxReplicas": 5,
        "rayStartParams": {},
    }
    return {
        "rayVersion": "2.4.0",
        "headGroupSpec": {"rayStartParams": {}, "template": template(queue)},
        "workerGroupSpecs": [{**group, "template": template(queue, cpu=cpu)}],
    }


def ray_spec(kind: str, cluster: Document) -> Document:
    return {"entrypoint": "sleep infinity", "rayClusterSpec": cluster} if kind == "RayJob" else cluster


def ray_pods(e2e: EndToEnd) -> list[str]:
    """Pods of the cluster, without what submits the job."""
    return [pod["metadata"]["name"] for pod in e2e.pods_here() if "ray.io/cluster" in pod["metadata"]["labels"]]


@pytest.mark.parametrize("kind", ["RayCluster", "RayJob"])
async def test_pods_of_a_ray_cluster_run(e2e: EndToEnd, queue: str, kind: str) -> None:
    await submit(e2e, kind, queue, ray_spec(kind, ray_cluster(queue, 1)))
    await e2e.until(lambda: len(ray_pods(e2e)) == 2, "a head and a worker are there")
    await e2e.scheduled(*ray_pods(e2e))


@pytest.mark.parametrize("kind", ["RayCluster", "RayJob"])
async def test_a_ray_cluster_starts_with_fewer_workers_where_there_is_no_room(e2e: EndToEnd, kind: str) -> None:
    (queue,) = await e2e.family("kinds", of={"limited": {"cpu": limited(2000)}})
    await submit(e2e, kind, queue, ray_spec(kind, ray_cluster(queue, 3, cpu="1")))
    await e2e.until(lambda: len(ray_pods(e2e)) == 4, "a head and three workers are there")
    await e2e.settled(ray_pods(e2e), scheduled=3)
