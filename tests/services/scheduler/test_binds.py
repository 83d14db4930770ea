"""Binds: both ways to bind, what a bind carries, and what happens when the API server refuses or does not answer."""

from __future__ import annotations

import json

import pytest

from pykai.api import names
from pykai.kube import resources
from pykai.kube.errors import ConnectionLost
from tests.services.scheduler.schedulercluster import refusal, scheduler_cluster

BINDING = r"/pods/[^/]+/binding$"


async def test_a_pod_that_needs_nothing_prepared_is_bound_directly() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=2)
        await lab.gang("job", pods=1, gpu=1)
        async with lab.scheduler():
            await lab.until_bound("job", 1)
            assert lab.placed("job") == {"job-0": "a"}
            text = await lab.wait_for_event("Scheduled", "job-0")
        pod = lab.pods.get("default/job-0")
        assert pod is not None
        assert pod.metadata.annotations[names.RECEIVED_TYPE_ANNOTATION] == "Regular"
        assert text == "Successfully assigned pod default/job-0 to node a at node-pool default"
        assert not lab.faults.written("POST", "bindrequests")


async def test_a_shared_gpu_goes_through_a_bind_request() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=2, memory_mib=40000)
        await lab.gang("job", pods=1, annotations={"gpu-fraction": "0.5"})
        async with lab.scheduler():
            await lab.requests.wait_until(lambda store: len(store) == 1, 10)
        made = await lab.client.get_raw(resources.BIND_REQUESTS, "job-0", "default")
        pod = lab.pods.get("default/job-0")
        assert pod is not None
        assert made["metadata"]["labels"] == {"selected-node": "a"}
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "job-0", "uid": pod.metadata.uid}
        assert made["metadata"]["ownerReferences"] == [owner]
        spec = made["spec"]
        assert len(spec.pop("selectedGPUGroups")) == 1
        assert spec == {
            "podName": "job-0",
            "selectedNode": "a",
            "receivedResourceType": "Fraction",
            "receivedGPU": {"count": 1, "portion": "0.50"},
        }
        assert not lab.faults.written("POST", BINDING)


async def test_without_the_fast_path_every_pod_has_a_bind_request() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=2)
        await lab.gang("job", pods=1, gpu=1)
        async with lab.scheduler(fast_bind=False):
            await lab.requests.wait_until(lambda store: len(store) == 1, 10)
        request = lab.requests.get("default/job-0")
        assert request is not None
        assert request.spec.received_gpu is not None
        assert (request.spec.received_gpu.count, request.spec.received_gpu.portion) == (1, "1.00")
        assert not lab.faults.written("POST", BINDING)


async def test_a_pod_with_a_volume_claim_is_left_to_the_binder() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a")
        await lab.create(
            resources.PERSISTENT_VOLUMES,
            {
                "metadata": {"name": "disk"},
                "spec": {
                    "capacity": {"storage": "1Gi"},
                    "accessModes": ["ReadWriteOnce"],
                    "hostPath": {"path": "/disk"},
                    "claimRef": {"namespace": "default", "name": "data", "kind": "PersistentVolumeClaim"},
                },
            },
            status={"phase": "Bound"},
        )
        await lab.create(
            resources.PERSISTENT_VOLUME_CLAIMS,
            {
                "metadata": {"name": "data", "annotations": {names.BIND_COMPLETED_ANNOTATION: "yes"}},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                    "volumeName": "disk",
                },
            },
            status={"phase": "Bound"},
        )
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
        await lab.gang("job", pods=1, volumes=[volume])
        async with lab.scheduler():
            await lab.requests.wait_until(lambda store: len(store) == 1, 10)
        assert not lab.faults.written("POST", BINDING)


async def test_the_pool_is_a_label_of_the_binding() -> None:
    async with scheduler_cluster(queue="") as lab:
        pool = {names.NODE_POOL_LABEL: "blue"}
        await lab.node("a", labels=pool)
        for name, spec in (("department", {}), ("team", {"parentQueue": "department"})):
            content = {**spec, "resources": {"cpu": {"quota": -1, "limit": -1}, "memory": {"quota": -1, "limit": -1}}}
            await lab.create(resources.QUEUES, {"metadata": {"name": name, "labels": pool}, "spec": content})
        await lab.create(
            resources.POD_GROUPS,
            {"metadata": {"name": "job", "labels": pool}, "spec": {"minMember": 1, "queue": "team"}},
        )
        await lab.pod("job-0", "job")
        async with lab.scheduler(partition_label_value="blue"):
            await lab.until_bound("job", 1)
            assert "at node-pool blue" in await lab.wait_for_event("Scheduled", "job-0")
        pod = lab.pods.get("default/job-0")
        assert pod is not None
        assert pod.metadata.labels == pool
        assert not lab.faults.written("PATCH", "/pods/")


async def test_a_refused_bind_is_reported_and_retried_after_a_pause() -> None:
    async with scheduler_cluster(speed=50) as lab:
        await lab.node("a")
        lab.faults.refuse("POST", BINDING, refusal(403, "Forbidden", "not here"), times=2)
        await lab.gang("job", pods=1)
        async with lab.scheduler() as scheduler:
            text = await lab.wait_for_event("FailedBinding", "job-0")
            assert text == "Failed to bind pod default/job-0 to node a. not here"
            await lab.until_bound("job", 1)
            assert len(lab.faults.written("POST", BINDING)) == 3
            assert scheduler.loop.cycles < 60


async def test_a_pod_that_pauses_after_a_refusal_has_a_reason() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a")
        lab.faults.refuse("POST", r"/job-0/binding$", refusal(403, "Forbidden", "not here"))
        await lab.gang("job", pods=1)
        async with lab.scheduler():
            await lab.pods.wait_until(lambda _: lab.condition("job-0")[1] == "BindingError", 10)
            assert lab.condition("job-0")[0] == "False"
            # A cycle that saw the refusal binds the next one.
            await lab.gang("next", pods=1)
            await lab.until_bound("next", 1)
            assert len(lab.faults.written("POST", r"/job-0/binding$")) == 1


async def test_a_pod_that_the_binder_gave_up_pauses_before_it_is_decided_again() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a")
        await lab.gang("job", pods=1)
        async with lab.scheduler(fast_bind=False) as scheduler:
            await lab.requests.wait_until(lambda store: len(store) == 1, 10)
            failed = {"status": {"phase": "Failed", "reason": "no device", "failedAttempts": 3}}
            await lab.client.patch(resources.BIND_REQUESTS, "job-0", failed, "default", subresource="status")
            await lab.requests.wait_until(lambda store: len(store) == 0, 10)
            assert scheduler.dispatcher.groups_backing_off() == {"default/job"}
            # A cycle that saw the failure decides the next one.
            await lab.gang("next", pods=1)
            await lab.requests.wait_until(lambda store: "default/next-0" in store, 10)
            made = [json.loads(each.body or b"") for each in lab.faults.written("POST", r"/bindrequests$")]
            assert [each["spec"]["podName"] for each in made] == ["job-0", "next-0"]
            await lab.requests.wait_until(lambda store: "default/job-0" in store, 10)


@pytest.mark.parametrize("carried_out", [True, False])
async def test_a_bind_without_an_answer_is_looked_up(carried_out: bool) -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a")
        lab.faults.lose("POST", BINDING, ConnectionLost("no answer"), carried_out=carried_out)
        await lab.gang("job", pods=1)
        async with lab.scheduler():
            await lab.until_bound("job", 1)
            await lab.wait_for_event("Scheduled", "job-0")
        assert len(lab.faults.written("POST", BINDING)) == (1 if carried_out else 2)
        assert not lab.event_messages("FailedBinding")


@pytest.mark.parametrize("fast_bind", [True, False])
async def test_without_read_permission_an_unanswered_bind_keeps_its_node(fast_bind: bool) -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1)
        written, seen = (BINDING, r"/pods/job-0$") if fast_bind else (r"/bindrequests$", r"/bindrequests/job-0$")
        lab.faults.lose("POST", written, ConnectionLost("no answer"), carried_out=True)
        # As a server that has just started answers: its roles are loaded a moment later.
        lab.faults.refuse("GET", seen, refusal(403, "Forbidden", "not yet"), times=3)
        await lab.gang("job", pods=1, gpu=1)
        async with lab.scheduler(fast_bind=fast_bind):
            await lab.wait_for_event("Scheduled", "job-0") if fast_bind else await lab.requests.wait_until(
                lambda r: len(r) == 1
            )
            await lab.gang("next", pods=1, gpu=1)
            await lab.pods.wait_until(lambda _: lab.condition("next-0")[1] == "Unschedulable", 10)
        assert len(lab.faults.written("POST", written)) == 1
        assert not lab.event_messages("FailedBinding")


async def test_a_brief_server_failure_loses_nothing() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a")
        lab.faults.refuse("POST", BINDING, refusal(500, "InternalError"), times=2)
        await lab.gang("job", pods=1)
        async with lab.scheduler():
            await lab.until_bound("job", 1)
        assert not lab.event_messages("FailedBinding")


async def test_a_pod_that_another_scheduler_took_stays_there() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a")
        await lab.node("b")
        await lab.gang("job", pods=1)
        pod = lab.pods

        async def steal(request: object) -> None:
            if getattr(request, "path", "").endswith("/binding"):
                lab.faults.on_write = None
                found = await lab.client.get_raw(resources.PODS, "job-0", "default")
                other = "b" if b'"a"' in (getattr(request, "body", b"") or b"") else "a"
                await lab.client.bind("default", "job-0", uid=found["metadata"]["uid"], node=other)

        lab.faults.on_write = steal
        async with lab.scheduler() as scheduler:
            await pod.wait_until(lambda _: bool(lab.placed("job")), 10)
            await lab.wait_for_event("FailedBinding", "job-0")
            await scheduler.dispatcher.drain()
            assert not scheduler.intake.binds.is_assumed("default/job-0")
        assert len(lab.faults.written("POST", BINDING)) == 1


async def test_a_request_left_by_an_earlier_pod_of_the_name_is_cleared_away() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1, memory_mib=40000)
        old = {"apiVersion": "v1", "kind": "Pod", "name": "job-0", "uid": "gone-long-ago"}
        stale = {"podName": "job-0", "selectedNode": "nowhere", "receivedResourceType": "Fraction"}
        await lab.create(
            resources.BIND_REQUESTS, {"metadata": {"name": "job-0", "ownerReferences": [old]}, "spec": stale}
        )
        await lab.gang("job", pods=1, annotations={"gpu-fraction": "0.5"})
        async with lab.scheduler():
            await lab.requests.wait_until(
                lambda store: (found := store.get("default/job-0")) is not None and found.spec.selected_node == "a", 10
            )


async def test_many_pods_are_bound_each_once() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=8)
        await lab.node("b", gpus=8)
        for index in range(16):
            await lab.gang(f"job{index}", pods=1, gpu=1)
        async with lab.scheduler():
            await lab.pods.wait_until(lambda store: sum(bool(pod.spec.node_name) for pod in store.values()) == 16, 10)
        assert len(lab.faults.written("POST", BINDING)) == 16
