"""What a tenant writes about shared GPUs, BindRequests and nodes takes nothing from others and is charged."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.sharing import reservation_name
from pykai.kube import resources
from tests.servers import ensure_namespace
from tests.services.scheduler.schedulercluster import Raw, SchedulerCluster, scheduler_cluster

HALF = {names.GPU_FRACTION_ANNOTATION: "0.5"}
GPUS = 8


async def placed_pod(
    lab: SchedulerCluster,
    name: str,
    *,
    scheduler: str = names.SCHEDULER_NAME,
    namespace: str = "default",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    gpu: int = 0,
) -> Raw:
    """A pod that its user created on node `a`."""
    asks = {names.NVIDIA_GPU: str(gpu)} if gpu else {}
    container = {"name": "main", "image": "none", "resources": {"requests": asks, "limits": asks}}
    meta = {"name": name, "namespace": namespace, "labels": dict(labels or {}), "annotations": dict(annotations or {})}
    spec = {"schedulerName": scheduler, "nodeName": "a", "containers": [container]}
    return await lab.create(resources.PODS, {"metadata": meta, "spec": spec})


async def reservation(lab: SchedulerCluster, group: str, *, namespace: str = names.RESERVATION_NAMESPACE) -> None:
    """The pod that holds a GPU of node `a` for a group, or one that looks like it."""
    await ensure_namespace(lab.client, namespace)
    marks = {names.APP_LABEL: names.RESERVATION_APP, names.GPU_GROUP_LABEL: group}
    name = reservation_name("a", group)
    await placed_pod(lab, name, scheduler="default-scheduler", namespace=namespace, labels=marks, gpu=1)


async def request(
    lab: SchedulerCluster,
    pod: Raw,
    node: str = "a",
    *,
    groups: tuple[str, ...] = (),
    name: str = "",
    labels: Mapping[str, str] | None = None,
) -> Raw:
    """A BindRequest as a tenant can write it."""
    meta = pod["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
    spec: Raw = {"podName": meta["name"], "selectedNode": node, "receivedResourceType": "Regular"}
    if groups:
        spec |= {"receivedResourceType": "Fraction", "selectedGPUGroups": list(groups)}
        spec["receivedGPU"] = {"count": len(groups), "portion": "0.50"}
    own = {"name": name or meta["name"], "labels": dict(labels or {}), "ownerReferences": [owner]}
    return await lab.create(resources.BIND_REQUESTS, {"metadata": own, "spec": spec})


async def honest_job(lab: SchedulerCluster) -> None:
    """Work that needs all GPUs, of a queue that owns them."""
    await lab.queue("honest", parent="department", quota=GPUS)
    await lab.gang("train", pods=GPUS, gpu=1, queue="honest")


async def test_pods_of_another_scheduler_lock_no_gpus_by_their_labels() -> None:
    """Eight groups on eight GPUs, claimed without a single GPU requested, with look-alikes of reservations beside."""
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=GPUS, memory_mib=40_000)
        for number in range(GPUS):
            marks = {names.GPU_GROUP_LABEL: f"g{number}"}
            await placed_pod(lab, f"tenant-{number}", scheduler="default-scheduler", labels=marks, annotations=HALF)
            looks = {names.APP_LABEL: names.RESERVATION_APP, **marks}
            await placed_pod(lab, f"held-{number}", scheduler="default-scheduler", labels=looks)
        await honest_job(lab)
        async with lab.scheduler():
            await lab.until_bound("train", GPUS)
            assert "whose pods share no GPUs" in await lab.wait_for_event("InvalidPod", "tenant-0")


async def test_pods_of_ours_lock_no_gpus_by_labels_without_a_reservation() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=GPUS, memory_mib=40_000)
        for number in range(GPUS):
            marks = {names.GPU_GROUP_LABEL: f"g{number}"}
            await placed_pod(lab, f"tenant-{number}", labels=marks, annotations=HALF)
            looks = {names.APP_LABEL: names.RESERVATION_APP, **marks}
            await placed_pod(lab, f"held-{number}", labels=looks)
        await honest_job(lab)
        async with lab.scheduler():
            await lab.until_bound("train", GPUS)


async def test_a_pod_that_looks_like_a_reservation_pays_for_its_gpu() -> None:
    """A real one without tenants is about to end, and its GPU may be pipelined; this one stays."""
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1, memory_mib=40_000)
        await reservation(lab, "g", namespace="default")
        await lab.gang("job", pods=1, gpu=1)
        async with lab.scheduler():
            # The event may be seen before the condition: they are two writes.
            await lab.wait_for_event("Unschedulable", "job")
            await lab.pods.wait_until(lambda _: lab.condition("job-0")[1] == "Unschedulable", 10)
            assert not lab.event_messages("Pipelined")


@pytest.mark.parametrize("late", [False, True], ids=["found", "seen"])
async def test_a_forged_request_holds_no_devices_and_is_deleted(late: bool) -> None:
    """One pod with half a GPU requests eight groups; as could one created while no scheduler led."""
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=GPUS, memory_mib=40_000)
        await lab.node("b", gpus=GPUS, memory_mib=40_000, labels={"kubernetes.io/hostname": "b"})
        await lab.queue("poor", parent="department", quota=0, limit=0)
        await lab.group("claimed", queue="poor")
        pod = await lab.pod("claimed-0", "claimed", annotations=HALF)
        groups = tuple(f"g{number}" for number in range(GPUS))
        if not late:
            await request(lab, pod, groups=groups)
        async with lab.scheduler():
            if late:
                await lab.wait_for_event("Unschedulable", "claimed")
                await request(lab, pod, groups=groups)
            await lab.requests.wait_until(lambda store: len(store) == 0, 10)
            assert "is deleted" in await lab.wait_for_event(names.EVENT_INVALID_BIND_REQUEST, "claimed-0")
            await lab.gang("train", pods=2 * GPUS, gpu=1)
            await lab.until_bound("train", 2 * GPUS)


async def test_a_request_of_ours_that_was_changed_no_longer_counts() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=2, memory_mib=40_000)
        await lab.gang("job", pods=1, annotations=HALF)
        async with lab.scheduler():
            await lab.requests.wait_until(lambda store: len(store) == 1, 10)
            (ours,) = lab.requests.values()
            changed = {"spec": {"selectedGPUGroups": ["x", "y"]}}
            await lab.client.patch(resources.BIND_REQUESTS, "job-0", changed, "default")
            await lab.requests.wait_until(
                lambda store: any(each.metadata.uid != ours.metadata.uid for each in store.values()), 10
            )
            (again,) = lab.requests.values()
            assert len(again.spec.selected_gpu_groups) == 1
            assert "something else than the scheduler decided" in await lab.wait_for_event(
                names.EVENT_INVALID_BIND_REQUEST, "job-0"
            )


@pytest.mark.parametrize("devices", ["", "0"])
async def test_a_request_that_the_last_leader_wrote_is_carried_on(devices: str) -> None:
    """Also where the pod requests its share in a form that only the engine reads."""
    asked = {**HALF, names.GPU_NUM_DEVICES_ANNOTATION: devices} if devices else HALF
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1, memory_mib=40_000)
        await lab.gang("job", pods=1, annotations=asked)
        async with lab.scheduler():
            await lab.requests.wait_until(lambda store: len(store) == 1, 10)
        (before,) = lab.requests.values()
        async with lab.scheduler():
            await lab.gang("other", pods=1, gpu=1)
            await lab.wait_for_event("Unschedulable", "other")
        (after,) = lab.requests.values()
        assert after.metadata.uid == before.metadata.uid


async def test_a_request_for_a_pod_of_another_scheduler_is_kept_and_holds_nothing() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1, memory_mib=40_000)
        container = {"name": "main", "image": "none"}
        spec = {"schedulerName": "other-scheduler", "containers": [container]}
        pod = await lab.create(resources.PODS, {"metadata": {"name": "guest", "annotations": HALF}, "spec": spec})
        await request(lab, pod, groups=("g",))
        await lab.gang("job", pods=1, gpu=1)
        async with lab.scheduler():
            await lab.until_bound("job", 1)
        assert len(lab.requests) == 1


@pytest.mark.parametrize("named", ["", "no-such-group"], ids=["no group", "unknown group"])
async def test_a_pod_of_ours_that_its_user_placed_is_charged_to_its_queue(named: str) -> None:
    """Limit 2: two GPUs taken past the scheduler, with or without the name of a PodGroup, leave nothing to start."""
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=GPUS)
        await lab.queue("small", parent="department", quota=2, limit=2)
        marks = {names.POD_GROUP_ANNOTATION: named} if named else {names.SKIP_POD_GROUPER_ANNOTATION: "true"}
        await placed_pod(lab, "taken", labels={names.QUEUE_LABEL: "small"}, annotations=marks, gpu=2)
        await lab.gang("more", pods=1, gpu=1, queue="small")
        async with lab.scheduler():
            assert "limit" in await lab.wait_for_event("Unschedulable", "more")
            assert not lab.placed("more")
            await lab.client.delete(resources.PODS, "taken", "default", grace_s=0)
            await lab.until_bound("more", 1)


async def test_pods_whose_group_was_deleted_stay_charged() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=GPUS)
        await lab.queue("small", parent="department", quota=2, limit=2)
        await lab.group("first", queue="small")
        await lab.pod("first-0", "first", gpu=2)
        queue = {"metadata": {"labels": {names.QUEUE_LABEL: "small"}}}
        await lab.client.patch(resources.PODS, "first-0", queue, "default")
        async with lab.scheduler():
            await lab.until_bound("first", 1)
            await lab.client.delete(resources.POD_GROUPS, "first", "default")
            await lab.groups.wait_until(lambda store: "default/first" not in store, 10)
            await lab.gang("more", pods=1, gpu=1, queue="small")
            assert "limit" in await lab.wait_for_event("Unschedulable", "more")
            assert not lab.placed("more")
            # Its group is back: the pod counts in it, once.
            await lab.queue("other", parent="department", quota=2)
            await lab.group("first", queue="other")
            await lab.until_bound("more", 1)


@pytest.mark.parametrize(
    "change",
    [{"metadata": {"labels": {names.NODE_POOL_LABEL: "elsewhere"}}}, {"spec": {"queue": "no-such-queue"}}],
    ids=["another node pool", "a queue that does not exist"],
)
async def test_pods_stay_charged_where_their_group_stops_paying(change: Raw) -> None:
    """A tenant may write its own PodGroup, but running pods stay charged."""
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=GPUS)
        await lab.queue("small", parent="department", quota=2, limit=2)
        await lab.group("first", queue="small")
        await lab.pod("first-0", "first", gpu=2)
        async with lab.scheduler():
            await lab.until_bound("first", 1)
            await lab.client.patch(resources.POD_GROUPS, "first", change, "default")
            await lab.gang("more", pods=1, gpu=1, queue="small")
            assert "limit" in await lab.wait_for_event("Unschedulable", "more")
            assert not lab.placed("more")
            await lab.client.delete(resources.PODS, "first-0", "default", grace_s=0)
            await lab.until_bound("more", 1)


async def test_a_pod_that_its_user_placed_gives_way_to_a_queue_that_owns_the_gpus() -> None:
    """Over its quota it is reclaimed like any other work, although there is no PodGroup to write to."""
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=2)
        await lab.queue("small", parent="department", quota=0)
        await lab.queue("owner", parent="department", quota=2)
        skips = {names.SKIP_POD_GROUPER_ANNOTATION: "true"}
        await placed_pod(lab, "taken", labels={names.QUEUE_LABEL: "small"}, annotations=skips, gpu=2)
        running = {"status": {"phase": "Running"}}
        await lab.client.patch(resources.PODS, "taken", running, "default", subresource="status")
        async with lab.scheduler():
            await lab.gang("train", pods=2, gpu=1, queue="owner")
            await lab.pods.wait_until(lambda store: _leaves(store.get("default/taken")), 10)
            await lab.client.delete(resources.PODS, "taken", "default", grace_s=0)
            await lab.until_bound("train", 2)


def _leaves(pod: Pod | None) -> bool:
    return pod is not None and pod.metadata.deletion_timestamp is not None


@pytest.mark.parametrize("pool", ["", "blue"], ids=["the rest", "a pool"])
async def test_schedulers_of_two_node_pools_leave_each_other_their_requests(pool: str) -> None:
    """Both see all BindRequests, and each has decided only its own; a forged one goes all the same."""
    marks = {names.NODE_POOL_LABEL: pool} if pool else {}
    flags = {"partition_label_value": "blue"}
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1, labels=marks)
        for queue in ("department", "team"):
            await lab.client.patch(resources.QUEUES, queue, {"metadata": {"labels": marks}})
        spec = {"minMember": 1, "queue": "team"}
        await lab.create(resources.POD_GROUPS, {"metadata": {"name": "job", "labels": marks}, "spec": spec})
        async with lab.scheduler(**({} if pool else flags)) as onlooker:
            await lab.pod("job-0", "job", gpu=1)
            async with asyncio.timeout(10):
                while not onlooker.loop.cycles or "default/job-0" not in onlooker.intake.pods:
                    await asyncio.sleep(0)
            async with lab.scheduler(fast_bind=False, **(flags if pool else {})):
                await onlooker.intake.requests.wait_until(lambda store: len(store) == 1, 10)
                forged = await request(lab, await lab.pod("spare", "job", gpu=1), labels={names.NODE_POOL_LABEL: "red"})
                uid = forged["metadata"]["uid"]
                await lab.requests.wait_until(
                    lambda store: all(each.metadata.uid != uid for each in store.values()), 10
                )
                # Either scheduler may delete it, and one that stops sends no more events.
                assert "is deleted" in await lab.wait_for_event(names.EVENT_INVALID_BIND_REQUEST, "spare")
            assert not lab.faults.written("DELETE", "/bindrequests/job-0")
            assert not lab.event_messages(names.EVENT_INVALID_BIND_REQUEST, "job-0")
