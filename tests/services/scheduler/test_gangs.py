"""Gangs are whole, whatever dies: the plan comes before the first bind; whoever leads next finishes or undoes it."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from pykai.api import names
from pykai.kube import resources
from pykai.kube.errors import ConnectionLost
from pykai.kube.transport import Request
from tests.services.scheduler.cluster import Lab, cluster, refusal

BINDING = r"/pods/[^/]+/binding$"
PLAN = names.BIND_PLAN_ANNOTATION


def plans_written(lab: Lab) -> list[object]:
    """What was written into the annotation, in order."""
    found = []
    for request in lab.faults.written("PATCH", r"/podgroups/[^/]+$"):
        content = msgspec.json.decode(request.body or b"null")
        annotations = content["metadata"].get("annotations", {})
        if PLAN in annotations:
            found.append(annotations[PLAN])
    return found


async def test_the_plan_of_a_gang_is_kept_before_its_first_bind_and_removed_after_its_last() -> None:
    async with cluster() as lab:
        await lab.node("a", gpus=4)
        await lab.gang("train", pods=3, gpu=1)
        async with lab.scheduler():
            await lab.until_bound("train", 3)
            await lab.groups.until(lambda _: len(plans_written(lab)) == 2 and not lab.annotation("train", PLAN), 10)
        first, last = plans_written(lab)
        uids = {pod.metadata.name: pod.metadata.uid for pod in lab.pods.values()}
        assert sorted(msgspec.json.decode(str(first))) == [[f"train-{i}", uids[f"train-{i}"], "a"] for i in range(3)]
        assert last is None
        order = [each.path.rpartition("/")[2] for each in lab.faults.writes]
        assert order.index("train") < order.index("binding")


async def test_a_single_pod_needs_no_plan() -> None:
    async with cluster() as lab:
        await lab.node("a", gpus=4)
        await lab.gang("job", pods=1, gpu=1)
        async with lab.scheduler():
            await lab.until_bound("job", 1)
        assert not plans_written(lab)


async def killed_at(lab: Lab, write: int, *, after: bool, fast_bind: bool) -> int:
    """Run a scheduler that dies at its n-th write, before or after the server has it; how many writes it began."""
    count = 0
    dead = asyncio.Event()
    forever = asyncio.Event()
    inner = lab.faults.inner

    async def on_write(request: Request) -> None:
        nonlocal count
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


async def _all_done(lab: Lab) -> None:
    """Everything about the gang is written: bound, told, no plan left."""
    await lab.until_bound("train", 3)
    await lab.groups.until(lambda _: not lab.annotation("train", PLAN), 10)
    await lab.events.until(lambda _: len(lab.told("Scheduled")) == 3, 10)


@pytest.mark.parametrize("after", [False, True])
async def test_a_crash_at_any_write_leaves_no_gang_half_started(after: bool) -> None:
    write = 0
    while True:
        async with cluster() as lab:
            # Room for one of the two only: what is left of the gang must not lose its places to the other.
            await lab.node("a", gpus=3)
            await lab.gang("train", pods=3, gpu=1)
            writes = await killed_at(lab, write, after=after, fast_bind=True)
            rival = len(lab.placed("train")) > 0
            if rival:
                for index in range(3):
                    await lab.gang(f"rival{index}", pods=1, gpu=1)
            async with lab.scheduler():
                await lab.until_bound("train", 3)
                await lab.groups.until(lambda _: not lab.annotation("train", PLAN), 10)
            assert not lab.placed("rival0")
        if writes <= write:
            break
        write += 1
    assert write >= 4


async def test_a_crash_between_bind_requests_is_made_up_for() -> None:
    for write in range(1, 4):
        async with cluster() as lab:
            await lab.node("a", gpus=2, memory_mib=40000)
            await lab.gang("train", pods=3, annotations={"gpu-fraction": "0.5"})
            await killed_at(lab, write, after=True, fast_bind=True)
            written = await lab.client.list_raw(resources.BIND_REQUESTS)
            groups = {each["metadata"]["name"]: each["spec"]["selectedGPUGroups"] for each in written}
            assert write == 1 or 0 < len(groups) <= write
            async with lab.scheduler():
                await lab.requests.until(lambda store: len(store) == 3, 10)
            for request in lab.requests.values():
                assert groups.get(request.metadata.name, request.spec.selected_gpu_groups) == (
                    request.spec.selected_gpu_groups
                )


async def test_a_refused_bind_gives_the_whole_gang_back() -> None:
    async with cluster() as lab:
        await lab.node("a", gpus=3)
        lab.faults.refuse("POST", r"/pods/train-1/binding$", refusal(403, "Forbidden", "not here"))
        await lab.gang("train", pods=3, gpu=1)
        async with lab.scheduler():
            text = await lab.until_told("GangBroken", "train")
            assert "pod default/train-1 was not bound (not here)" in text
            await lab.pods.until(
                lambda _: all(
                    pod.metadata.deletion_timestamp is not None or not pod.spec.node_name for pod in lab.pods.values()
                ),
                10,
            )
            await lab.groups.until(lambda _: not lab.annotation("train", PLAN), 10)
            await lab.groups.until(
                lambda _: bool(lab.annotation("train", names.LAST_EVICTION_TIMESTAMP_ANNOTATION)), 10
            )
        assert {pod.metadata.name for pod in lab.pods.values() if pod.metadata.deletion_timestamp is None} == {
            "train-1"
        }


async def test_an_elastic_gang_keeps_what_it_has_above_its_minimum() -> None:
    async with cluster() as lab:
        await lab.node("a", gpus=3)
        lab.faults.refuse("POST", r"/pods/train-2/binding$", refusal(403, "Forbidden", "not here"))
        await lab.gang("train", pods=3, minimum=2, gpu=1)
        async with lab.scheduler():
            await lab.until_bound("train", 2)
            await lab.until_told("FailedBinding", "train-2")
            await lab.groups.until(lambda _: not lab.annotation("train", PLAN), 10)
        assert not lab.told("GangBroken")
        assert all(pod.metadata.deletion_timestamp is None for pod in lab.pods.values())


async def test_a_plan_that_cannot_be_kept_binds_nobody() -> None:
    async with cluster() as lab:
        await lab.node("a", gpus=3)
        lab.faults.refuse("PATCH", r"/podgroups/train$", refusal(403, "Forbidden", "no plans here"))
        await lab.gang("train", pods=3, gpu=1)
        async with lab.scheduler():
            text = await lab.until_told("FailedBinding", "train-0")
            assert "the plan of the gang could not be kept: no plans here" in text
        assert not lab.placed("train")
        assert not lab.faults.written("POST", BINDING)


async def test_a_plan_without_an_answer_is_written_again() -> None:
    async with cluster() as lab:
        await lab.node("a", gpus=3)
        lab.faults.lose("PATCH", r"/podgroups/train$", ConnectionLost("no answer"), carried_out=True)
        await lab.gang("train", pods=3, gpu=1)
        async with lab.scheduler():
            await lab.until_bound("train", 3)


async def test_a_plan_whose_node_is_gone_is_undone() -> None:
    async with cluster() as lab:
        await lab.node("a", gpus=2)
        await lab.gang("train", pods=3, gpu=1)
        uids = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in await lab.client.list_raw(resources.PODS)}
        plan = [[name, uid, "gone" if name == "train-2" else "a"] for name, uid in uids.items()]
        await lab.client.bind("default", "train-0", uid=uids["train-0"], node="a")
        text = msgspec.json.encode(plan).decode()
        await lab.client.patch(resources.POD_GROUPS, "train", {"metadata": {"annotations": {PLAN: text}}}, "default")
        async with lab.scheduler():
            assert "node gone is gone" in await lab.until_told("GangBroken", "train")
            await lab.groups.until(lambda _: not lab.annotation("train", PLAN), 10)


async def test_the_places_of_a_plan_are_taken_before_the_first_cycle() -> None:
    async with cluster() as lab:
        await lab.node("a", gpus=2)
        await lab.gang("train", pods=2, gpu=1)
        uids = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in await lab.client.list_raw(resources.PODS)}
        text = msgspec.json.encode([[name, uid, "a"] for name, uid in uids.items()]).decode()
        await lab.client.patch(resources.POD_GROUPS, "train", {"metadata": {"annotations": {PLAN: text}}}, "default")
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


async def test_a_plan_that_cannot_be_read_is_told_and_removed() -> None:
    async with cluster() as lab:
        await lab.node("a", gpus=3)
        await lab.group("train", minimum=1)
        await lab.client.patch(
            resources.POD_GROUPS, "train", {"metadata": {"annotations": {PLAN: "[[1, 2]]"}}}, "default"
        )
        async with lab.scheduler():
            assert "not a plan" in await lab.until_told("InvalidBindPlan", "train")
            await lab.groups.until(lambda _: not lab.annotation("train", PLAN), 10)
            await lab.pod("train-0", "train", gpu=1)
            await lab.until_bound("train", 1)


async def test_a_bind_request_the_binder_gave_up_on_gives_the_gang_back() -> None:
    async with cluster() as lab:
        await lab.node("a", gpus=3)
        await lab.gang("train", pods=2, gpu=1)
        async with lab.scheduler(fast_bind=False):
            await lab.requests.until(lambda store: len(store) == 2, 10)
            pod = lab.pods.get("default/train-0")
            assert pod is not None
            await lab.client.bind("default", "train-0", uid=pod.metadata.uid, node="a")
            failed = {"status": {"phase": "Failed", "reason": "no such device", "failedAttempts": 1}}
            await lab.client.patch(resources.BIND_REQUESTS, "train-1", failed, "default", subresource="status")
            assert "no such device" in await lab.until_told("GangBroken", "train")
            await lab.pods.until(
                lambda store: (
                    (found := store.get("default/train-0")) is None or found.metadata.deletion_timestamp is not None
                ),
                10,
            )
