"""Workloads of the real kube-controller-manager, scheduled by us, on kubelets of the simulator."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from pykai.api import names
from pykai.kube.resources import (
    BIND_REQUESTS,
    CONFIG_MAPS,
    CRON_JOBS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    POD_GROUPS,
    PODS,
    REPLICA_SETS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    STATEFUL_SETS,
)
from pykai.lab.machines.nodes import MachineKind
from tests.cluster.realcluster import Document, RealCluster, has_condition, job, real_cluster, template

pytestmark = [pytest.mark.cluster_only, pytest.mark.asyncio(loop_scope="module")]

#: the real Job controller's, on each pod it has not counted yet
TRACKING = "batch.kubernetes.io/job-tracking"
MACHINES = (
    MachineKind(count=2, name="gpu-{}", gpus=8, cpu="32"),
    MachineKind(count=1, name="dra-{}", gpus=2, dra=True, labels={"pool": "dra"}),
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RealCluster]:
    async with real_cluster(tmp_path_factory.mktemp("controllers"), MACHINES, audit=True) as made:
        yield made


def apps(kind_of: str, name: str, replicas: int, **of_pods: Any) -> Document:
    """A Deployment, ReplicaSet or StatefulSet."""
    labels = {"app": name}
    more = {"serviceName": name} if kind_of == "StatefulSet" else {}
    made = template(**{"gpus": 1, "labels": labels, **of_pods})
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": made, **more}
    return {"metadata": {"name": name}, "spec": spec}


def settled(replicas: int) -> Any:
    """Whether a controller has carried out its newest generation."""

    def holds(found: Document) -> bool:
        status = found.get("status", {})
        return bool(
            status.get("observedGeneration") == found["metadata"]["generation"]
            and status.get("replicas", 0) == replicas
            and status.get("readyReplicas", 0) == replicas
            and status.get("availableReplicas", 0) == replicas
            and status.get("updatedReplicas", replicas) == replicas
        )

    return holds


def group_of(pod: Document) -> str:
    return str(pod["metadata"]["annotations"][names.POD_GROUP_ANNOTATION])


async def test_a_deployment_grows_shrinks_and_rolls_out(cluster: RealCluster) -> None:
    space = await cluster.namespace("deployments")
    await cluster.create(DEPLOYMENTS, apps("Deployment", "web", 3), space)
    await cluster.until(DEPLOYMENTS, "web", space, settled(3))
    for replicas in (5, 2):
        await cluster.change(DEPLOYMENTS, "web", space, {"spec": {"replicas": replicas}}, subresource="scale")
        await cluster.until(DEPLOYMENTS, "web", space, settled(replicas))
        await cluster.wait_for(PODS, lambda wanted=replicas: len(cluster.pods(space)) == wanted)  # type: ignore[misc]
    # Each pod is a group of its own, and those of pods that are gone go too.
    await cluster.wait_for(POD_GROUPS, lambda: len(cluster.all(POD_GROUPS, space)) == 2)
    assert {group_of(pod) for pod in cluster.pods(space)} == {
        each["metadata"]["name"] for each in cluster.all(POD_GROUPS, space)
    }
    before = {pod["metadata"]["uid"] for pod in cluster.pods(space)}
    change = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
    await cluster.change(DEPLOYMENTS, "web", space, change)
    await cluster.until(DEPLOYMENTS, "web", space, settled(2))
    await cluster.wait_for(PODS, lambda: len(cluster.pods(space)) == 2)
    assert before.isdisjoint(pod["metadata"]["uid"] for pod in cluster.pods(space))
    assert has_condition("Progressing")(await cluster.until(DEPLOYMENTS, "web", space, has_condition("Available")))
    await cluster.client.delete(DEPLOYMENTS, "web", space, propagation="Foreground")
    for resource in (DEPLOYMENTS, REPLICA_SETS, PODS, POD_GROUPS):
        await cluster.gone(resource, space)


async def test_a_replica_set_replaces_what_is_deleted_and_takes_all_with_it(cluster: RealCluster) -> None:
    space = await cluster.namespace("replicasets")
    await cluster.create(REPLICA_SETS, apps("ReplicaSet", "set", 3), space)
    await cluster.until(REPLICA_SETS, "set", space, settled(3))
    first = cluster.pods(space)[0]
    await cluster.client.delete(PODS, first["metadata"]["name"], space)
    await cluster.wait_for(PODS, lambda: f"{space}/{first['metadata']['name']}" not in cluster.stores[PODS])
    await cluster.running(space, 3)
    assert len({group_of(pod) for pod in cluster.pods(space)}) == 1
    await cluster.client.delete(REPLICA_SETS, "set", space, propagation="Background")
    for resource in (REPLICA_SETS, PODS, POD_GROUPS, BIND_REQUESTS):
        await cluster.gone(resource, space)


async def test_a_stateful_set_starts_in_order_as_one_elastic_group(cluster: RealCluster) -> None:
    space = await cluster.namespace("statefulsets")
    await cluster.create(STATEFUL_SETS, apps("StatefulSet", "db", 3), space)
    await cluster.until(STATEFUL_SETS, "db", space, settled(3))
    pods = cluster.pods(space)
    assert [pod["metadata"]["name"] for pod in pods] == ["db-0", "db-1", "db-2"]
    started = [pod["status"]["startTime"] for pod in pods]
    assert started == sorted(started)
    (group,) = cluster.all(POD_GROUPS, space)
    assert {group_of(pod) for pod in pods} == {group["metadata"]["name"]}
    assert group["spec"]["minMember"] == 1
    await cluster.change(STATEFUL_SETS, "db", space, {"spec": {"replicas": 1}})
    await cluster.until(STATEFUL_SETS, "db", space, settled(1))
    await cluster.wait_for(PODS, lambda: [p["metadata"]["name"] for p in cluster.pods(space)] == ["db-0"])
    await cluster.client.delete(STATEFUL_SETS, "db", space, propagation="Background")
    for resource in (PODS, POD_GROUPS):
        await cluster.gone(resource, space)


async def test_a_job_is_a_gang_and_is_counted_to_its_end(cluster: RealCluster) -> None:
    space = await cluster.namespace("jobs")
    await cluster.create(JOBS, job("train", pods=4, gpus=2, minimum=4), space)
    await cluster.running(space, 4)
    (group,) = cluster.all(POD_GROUPS, space)
    assert group["spec"]["minMember"] == 4
    assert all(TRACKING in pod["metadata"]["finalizers"] for pod in cluster.pods(space, "Running"))
    done = await cluster.until(JOBS, "train", space, has_condition("Complete"))
    assert has_condition("SuccessCriteriaMet")(done)
    assert done["status"]["succeeded"] == 4
    assert not done["status"].get("failed")
    assert not done["status"].get("uncountedTerminatedPods")
    await cluster.wait_for(PODS, lambda: not any(p["metadata"].get("finalizers") for p in cluster.pods(space)))
    await cluster.client.delete(JOBS, "train", space, propagation="Background")
    for resource in (PODS, POD_GROUPS):
        await cluster.gone(resource, space)


async def test_a_gang_waits_as_a_whole_until_it_fits(cluster: RealCluster) -> None:
    space = await cluster.namespace("gangs")
    await cluster.create(REPLICA_SETS, apps("ReplicaSet", "holder", 1, gpus=8), space)
    await cluster.running(space, 1)
    await cluster.create(JOBS, job("wide", pods=2, gpus=8, minimum=2), space)
    await cluster.wait_for(
        POD_GROUPS,
        lambda: any(
            each["metadata"]["name"].startswith("pg-wide-") and each.get("status", {}).get("schedulingConditions")
            for each in cluster.all(POD_GROUPS, space)
        ),
    )
    assert not any(p["spec"].get("nodeName") for p in cluster.pods(space) if p["metadata"]["name"].startswith("wide"))
    await cluster.client.delete(REPLICA_SETS, "holder", space, propagation="Background")
    done = await cluster.until(JOBS, "wide", space, has_condition("Complete"))
    assert done["status"]["succeeded"] == 2


async def test_a_job_replaces_what_fails_and_gives_up_at_its_limit(cluster: RealCluster) -> None:
    space = await cluster.namespace("failing")
    limits = {"backoffLimit": 0}
    fails = {names.EXIT_CODE_ANNOTATION: "3"}
    await cluster.create(JOBS, job("bad", runs_s=0.1, spec=limits, annotations=fails), space)
    done = await cluster.until(JOBS, "bad", space, has_condition("Failed"))
    assert done["status"]["failed"] == 1
    (pod,) = cluster.pods(space)
    (container,) = pod["status"]["containerStatuses"]
    assert container["state"]["terminated"]["exitCode"] == 3
    indexed = {"completionMode": "Indexed", "completions": 3, "parallelism": 2}
    await cluster.create(JOBS, job("indexed", runs_s=0.1, spec=indexed), space)
    done = await cluster.until(JOBS, "indexed", space, has_condition("Complete"))
    assert done["status"]["completedIndexes"] == "0-2"


async def test_a_job_that_is_suspended_gives_its_nodes_back_and_comes_again(cluster: RealCluster) -> None:
    space = await cluster.namespace("suspended")
    await cluster.create(JOBS, job("pause", pods=2, gpus=1, minimum=2, runs_s=1.0), space)
    await cluster.running(space, 2)
    await cluster.change(JOBS, "pause", space, {"spec": {"suspend": True}})
    await cluster.until(JOBS, "pause", space, has_condition("Suspended"))
    await cluster.gone(PODS, space)
    await cluster.change(JOBS, "pause", space, {"spec": {"suspend": False}})
    done = await cluster.until(JOBS, "pause", space, has_condition("Complete"))
    assert done["status"]["succeeded"] == 2


async def test_a_cron_job_is_one_group_for_each_of_its_jobs(cluster: RealCluster) -> None:
    space = await cluster.namespace("cronjobs")
    runs = {"spec": job("unused", pods=2)["spec"]}
    cron = await cluster.create(
        CRON_JOBS, {"metadata": {"name": "nightly"}, "spec": {"schedule": "0 0 1 1 *", "jobTemplate": runs}}, space
    )
    owner = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "name": "nightly",
        "uid": cron["metadata"]["uid"],
        "controller": True,
    }
    for name in ("now", "again"):
        by_hand = {
            "name": name,
            "ownerReferences": [owner],
            "annotations": {"cronjob.kubernetes.io/instantiate": "manual"},
        }
        await cluster.create(JOBS, {"metadata": by_hand, **runs}, space)
    for name in ("now", "again"):
        await cluster.until(JOBS, name, space, has_condition("Complete"))
    assert len({group_of(pod) for pod in cluster.pods(space)}) == 2
    await cluster.client.delete(CRON_JOBS, "nightly", space, propagation="Background")
    for resource in (JOBS, PODS, POD_GROUPS):
        await cluster.gone(resource, space)


async def test_a_template_claim_is_created_for_its_pod_and_deleted_with_it(cluster: RealCluster) -> None:
    space = await cluster.namespace("claims")
    wish = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": names.GPU_DEVICE_CLASS, "count": 1}}]}
    await cluster.create(
        RESOURCE_CLAIM_TEMPLATES, {"metadata": {"name": "one"}, "spec": {"spec": {"devices": wish}}}, space
    )
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    made = job("claiming", pods=2, gpus=0, minimum=2, runs_s=0.5, resourceClaims=claims)
    made["spec"]["template"]["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    await cluster.create(JOBS, made, space)
    await cluster.running(space, 2)
    held = cluster.all(RESOURCE_CLAIMS, space)
    results = [claim["status"]["allocation"]["devices"]["results"][0] for claim in held]
    assert sorted(result["device"] for result in results) == ["gpu-0", "gpu-1"]
    assert {claim["status"]["reservedFor"][0]["uid"] for claim in held} == {
        pod["metadata"]["uid"] for pod in cluster.pods(space)
    }
    await cluster.until(JOBS, "claiming", space, has_condition("Complete"))
    await cluster.gone(RESOURCE_CLAIMS, space)


async def test_a_namespace_is_deleted_with_all_that_runs_in_it(cluster: RealCluster) -> None:
    space = await cluster.namespace("leaving", admitted=True)
    # The namespace controller looks again after half of the longest grace period of the pods.
    soon: dict[str, Any] = {"terminationGracePeriodSeconds": 1}
    await cluster.create(JOBS, job("gang", pods=3, gpus=2, minimum=3, runs_s=600, **soon), space)
    half = {names.GPU_FRACTION_ANNOTATION: "0.5"}
    await cluster.create(DEPLOYMENTS, apps("Deployment", "shared", 3, gpus=0, annotations=half, **soon), space)
    await cluster.create(JOBS, job("hopeless", pods=9, gpus=8, minimum=9, **soon), space)
    await cluster.running(space, 6)
    reserved = cluster.pods(names.RESERVATION_NAMESPACE)
    assert len(reserved) == 2
    await cluster.client.delete(NAMESPACES, space)
    await cluster.wait_for(NAMESPACES, lambda: space not in cluster.stores[NAMESPACES])
    await cluster.gone(PODS, names.RESERVATION_NAMESPACE)
    for resource in (PODS, POD_GROUPS, BIND_REQUESTS):
        assert cluster.all(resource, space) == []
    assert await cluster.client.list_raw(CONFIG_MAPS, namespace=space) == []


async def test_nothing_that_we_wrote_was_invalid(cluster: RealCluster) -> None:
    """Neither by our services nor by the kubelets; inspects what the tests above have done."""
    ours = [each for each in cluster.plane.requests() if not each["userAgent"].startswith("kube-")]
    invalid = [each for each in ours if each.get("responseStatus", {}).get("code") in (400, 415, 422)]
    assert {each["user"]["username"].rpartition(":")[2] for each in ours} >= {"scheduler", "binder", "pod-grouper"}
    assert invalid == []
