"""Gangs are whole, whatever fails: the plan comes before the first bind; the next leader finishes or undoes it."""

from __future__ import annotations

import asyncio
import re

import msgspec
import pytest

from pykai.api import names
from pykai.kube import resources
from pykai.kube.errors import ConnectionLost
from pykai.kube.transport import Request
from tests.services.scheduler.schedulercluster import SchedulerCluster, refusal, scheduler_cluster

BINDING = r"/pods/[^/]+/binding$"
MAPS = rf"/namespaces/{names.DEFAULT_NAMESPACE}/configmaps"


def plans_written(lab: SchedulerCluster) -> list[str]:
    """The writes on records of plans, in order."""
    return [each.method for each in lab.faults.writes if re.search(MAPS, each.path)]


async def test_the_plan_of_a_gang_is_kept_before_its_first_bind_and_removed_after_its_last() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=4)
        await lab.gang("train", pods=3, gpu=1)
        async with lab.scheduler():
            await lab.until_bound("train", 3)
            await lab.maps.wait_until(lambda _: plans_written(lab) == ["POST", "DELETE"] and not lab.records(), 10)
        made = msgspec.json.decode(lab.faults.written("POST", MAPS)[0].body or b"")
        uids = {pod.metadata.name: pod.metadata.uid for pod in lab.pods.values()}
        group = lab.groups.get("default/train")
        assert group is not None
        planned = sorted(msgspec.json.decode(made["data"].pop("pods")))
        assert planned == [[f"train-{i}", uids[f"train-{i}"], "a"] for i in range(3)]
        assert made["data"] == {"podGroup": "default/train", "podGroupUid": group.metadata.uid, "queue": "team"}
        order = [each.path.rpartition("/")[2] for each in lab.faults.writes]
        assert order.index("configmaps") < order.index("binding")
        assert not lab.annotation("train", names.BIND_PLAN_ANNOTATION)


async def test_a_single_pod_needs_no_plan() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=4)
        await lab.gang("job", pods=1, gpu=1)
        async with lab.scheduler():
            await lab.until_bound("job", 1)
        assert not plans_written(lab)


async def killed_at(lab: SchedulerCluster, write: int, *, after: bool, fast_bind: bool) -> int:
    """Run a scheduler that dies at its n-th write, before or after the server has it; how many writes it began.

    Fair shares of queues do not count: they go out between any two writes of a gang.
    """
    count = 0
    dead = asyncio.Event()
    forever = asyncio.Event()
    inner = lab.faults.inner

    async def on_write(request: Request) -> None:
        nonlocal count
        if "/queues/" in request.path and count <= write:
            return
        if count > write:
            await forever.wait()
        count += 1
        if count == write + 1:
            if after:
                await inner.send(request)
            dead.set()
            await forever.wait()

    lab.faults.on_write = on_write
    others = asyncio.all_tasks()
    scheduler = lab.make_scheduler(fast_bind=fast_bind)
    life = asyncio.create_task(scheduler.run(asyncio.Event()))
    finished = asyncio.create_task(_all_done(lab))
    died = asyncio.create_task(dead.wait())
    await asyncio.wait([life, finished, died], timeout=10, return_when=asyncio.FIRST_COMPLETED)
    # What the process did is gone, every task of it at once and without a chance to clean up.
    while ours := asyncio.all_tasks() - others:
        for each in ours:
            each.cancel()
        await asyncio.wait(ours)
    lab.faults.on_write = None
    return count


async def _all_done(lab: SchedulerCluster) -> None:
    """Everything about the gang is written: binds, events, no plan left."""
    await lab.until_bound("train", 3)
    await lab.until_no_records()
    await lab.events.wait_until(lambda _: len(lab.event_messages("Scheduled")) == 3, 10)


@pytest.mark.parametrize("after", [False, True])
async def test_a_crash_at_any_write_leaves_no_gang_half_started(after: bool) -> None:
    write = 0
    while True:
        async with scheduler_cluster() as lab:
            # Only one of the two fits: the rest of the gang must not lose its nodes to the other.
            await lab.node("a", gpus=3)
            await lab.gang("train", pods=3, gpu=1)
            writes = await killed_at(lab, write, after=after, fast_bind=True)
            rival = len(lab.placed("train")) > 0
            if rival:
                for index in range(3):
                    await lab.gang(f"rival{index}", pods=1, gpu=1)
            async with lab.scheduler():
                await lab.until_bound("train", 3)
                await lab.until_no_records()
            assert not lab.placed("rival0")
        if writes <= write:
            break
        write += 1
    assert write >= 4


async def test_a_crash_between_bind_requests_is_recovered() -> None:
    for write in range(1, 4):
        async with scheduler_cluster() as lab:
            await lab.node("a", gpus=2, memory_mib=40000)
            await lab.gang("train", pods=3, annotations={"gpu-fraction": "0.5"})
            await killed_at(lab, write, after=True, fast_bind=True)
            written = await lab.client.list_raw(resources.BIND_REQUESTS)
            groups = {each["metadata"]["name"]: each["spec"]["selectedGPUGroups"] for each in written}
            assert write == 1 or 0 < len(groups) <= write
            async with lab.scheduler():
                await lab.requests.wait_until(lambda store: len(store) == 3, 10)
            for request in lab.requests.values():
                assert groups.get(request.metadata.name, request.spec.selected_gpu_groups) == (
                    request.spec.selected_gpu_groups
                )


async def test_a_refused_bind_gives_the_whole_gang_back() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=3)
        lab.faults.refuse("POST", r"/pods/train-1/binding$", refusal(403, "Forbidden", "not here"))
        await lab.gang("train", pods=3, gpu=1)
        async with lab.scheduler():
            text = await lab.wait_for_event("GangBroken", "train")
            assert "pod default/train-1 was not bound (not here)" in text
            await lab.pods.wait_until(
                lambda _: all(
                    pod.metadata.deletion_timestamp is not None or not pod.spec.node_name for pod in lab.pods.values()
                ),
                10,
            )
            await lab.until_no_records()
            await lab.groups.wait_until(
                lambda _: bool(lab.annotation("train", names.LAST_EVICTION_TIMESTAMP_ANNOTATION)), 10
            )
        assert {pod.metadata.name for pod in lab.pods.values() if pod.metadata.deletion_timestamp is None} == {
            "train-1"
        }


async def test_an_elastic_gang_keeps_what_it_has_above_its_minimum() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=3)
        lab.faults.refuse("POST", r"/pods/train-2/binding$", refusal(403, "Forbidden", "not here"))
        await lab.gang("train", pods=3, minimum=2, gpu=1)
        async with lab.scheduler():
            await lab.until_bound("train", 2)
            await lab.wait_for_event("FailedBinding", "train-2")
            await lab.until_no_records()
        assert not lab.event_messages("GangBroken")
        assert all(pod.metadata.deletion_timestamp is None for pod in lab.pods.values())


async def test_a_plan_that_cannot_be_recorded_binds_no_pod() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=3)
        lab.faults.refuse("POST", MAPS, refusal(403, "Forbidden", "no plans here"))
        await lab.gang("train", pods=3, gpu=1)
        async with lab.scheduler():
            text = await lab.wait_for_event("FailedBinding", "train-0")
            assert "the plan of the gang could not be kept: no plans here" in text
        assert not lab.placed("train")
        assert not lab.faults.written("POST", BINDING)


@pytest.mark.parametrize("carried_out", [False, True])
async def test_a_plan_without_an_answer_is_written_again(carried_out: bool) -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=3)
        lab.faults.lose("POST", MAPS, ConnectionLost("no answer"), carried_out=carried_out)
        await lab.gang("train", pods=3, gpu=1)
        async with lab.scheduler():
            await lab.until_bound("train", 3)
            await lab.until_no_records()
        assert plans_written(lab) == ["POST", "POST", *(["PATCH"] if carried_out else []), "DELETE"]


@pytest.mark.parametrize("carried_out", [False, True])
async def test_the_end_of_a_plan_without_an_answer_is_written_again(carried_out: bool) -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=3)
        lab.faults.lose("DELETE", MAPS, ConnectionLost("no answer"), carried_out=carried_out)
        await lab.gang("train", pods=3, gpu=1)
        async with lab.scheduler():
            await lab.until_bound("train", 3)
            await lab.until_no_records()
        assert plans_written(lab).count("DELETE") == 2


async def test_a_server_that_fails_for_a_moment_still_keeps_the_plan() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=3)
        for method in ("POST", "DELETE"):
            lab.faults.refuse(method, MAPS, refusal(500, "InternalError"), times=2)
        await lab.gang("train", pods=3, gpu=1)
        async with lab.scheduler():
            await lab.until_bound("train", 3)
            await lab.until_no_records()


async def test_without_its_namespace_a_gang_is_not_bound_and_the_event_names_the_remedy() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=3)
        await lab.gang("train", pods=3, gpu=1)
        # Its role holds in one namespace only; with more rights it finds out that there is no such namespace.
        lab.faults.inner = lab.server.transport()
        async with lab.scheduler(namespace="nowhere"):
            text = await lab.wait_for_event("FailedBinding", "train-0")
        assert "there is no namespace nowhere; create it, or name another with --namespace" in text
        assert not lab.placed("train")


async def test_a_plan_whose_node_is_gone_is_undone() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=2)
        await lab.gang("train", pods=3, gpu=1)
        await lab.record_plan("train", {"train-0": "a", "train-1": "a", "train-2": "gone"})
        pod = await lab.client.get_raw(resources.PODS, "train-0", "default")
        await lab.client.bind("default", "train-0", uid=pod["metadata"]["uid"], node="a")
        async with lab.scheduler():
            assert "node gone is gone" in await lab.wait_for_event("GangBroken", "train")
            await lab.until_no_records()


async def test_the_nodes_of_a_plan_are_reserved_before_the_first_cycle() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=2)
        await lab.gang("train", pods=2, gpu=1)
        await lab.record_plan("train", {"train-0": "a", "train-1": "a"})
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def hold(request: Request) -> None:
            if request.path.endswith("/binding"):
                begun.set()
                await go_on.wait()

        lab.faults.on_write = hold
        await lab.gang("rival", pods=1, gpu=1)
        async with lab.scheduler() as scheduler:
            await begun.wait()
            plan = await scheduler.loop.cycle()
            assert plan is not None
            assert not plan.binds
            go_on.set()
            await lab.until_bound("train", 2)
        assert not lab.placed("rival")


async def test_unusable_records_are_deleted() -> None:
    """Unreadable, about a PodGroup that is gone or another one of the name, or copied under another name."""
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=3)
        for name in ("broken", "gone", "replaced", "copied"):
            await lab.group(name, minimum=1)
            await lab.record_plan(name, {})
        for record in await lab.client.list_raw(resources.CONFIG_MAPS, namespace=names.DEFAULT_NAMESPACE):
            name = record["metadata"]["name"]
            about = record.get("data", {}).get("podGroup")
            if about == "default/broken":
                content = {"data": {"pods": "[[1, 2]]"}}
                await lab.client.patch(resources.CONFIG_MAPS, name, content, names.DEFAULT_NAMESPACE)
            elif about == "default/copied":
                await lab.client.delete(resources.CONFIG_MAPS, name, names.DEFAULT_NAMESPACE)
                meta = {"name": "mine", "namespace": names.DEFAULT_NAMESPACE, "labels": record["metadata"]["labels"]}
                await lab.create(resources.CONFIG_MAPS, {"metadata": meta, "data": record["data"]})
        for name in ("gone", "replaced"):
            await lab.client.delete(resources.POD_GROUPS, name, "default")
        await lab.group("replaced", minimum=1)
        await lab.maps.wait_until(lambda _: len(lab.records()) == 4, 10)
        async with lab.scheduler():
            await lab.until_no_records()
            await lab.pod("broken-0", "broken", gpu=1)
            await lab.until_bound("broken", 1)


async def test_schedulers_and_node_pools_do_not_read_each_others_records() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=3)
        await lab.gang("train", pods=2, gpu=1)
        await lab.record_plan("train", {"train-0": "a", "train-1": "a"})
        for flags in ({"scheduler_name": "other"}, {"partition_label_value": "blue"}):
            async with lab.scheduler(**flags) as scheduler:
                async with asyncio.timeout(10):
                    while not scheduler.loop.cycles:
                        await asyncio.sleep(0)
                assert len(lab.records()) == 1
        assert not lab.placed("train")
        async with lab.scheduler():
            await lab.until_bound("train", 2)


async def test_a_bind_request_the_binder_gave_up_on_gives_the_gang_back() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=3)
        await lab.gang("train", pods=2, gpu=1)
        async with lab.scheduler(fast_bind=False):
            await lab.requests.wait_until(lambda store: len(store) == 2, 10)
            pod = lab.pods.get("default/train-0")
            assert pod is not None
            await lab.client.bind("default", "train-0", uid=pod.metadata.uid, node="a")
            failed = {"status": {"phase": "Failed", "reason": "no such device", "failedAttempts": 1}}
            await lab.client.patch(resources.BIND_REQUESTS, "train-1", failed, "default", subresource="status")
            assert "no such device" in await lab.wait_for_event("GangBroken", "train")
            await lab.pods.wait_until(
                lambda store: (
                    (found := store.get("default/train-0")) is None or found.metadata.deletion_timestamp is not None
                ),
                10,
            )
