"""A pod that can never be bound evicts others three times, then uses free resources only, whichever scheduler leads."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykai.api.core import Container, Pod, PodSpec, Volume
from pykai.api.meta import ObjectMeta
from pykai.kube import resources
from pykai.kube.transport import Request, Response
from pykai.scheduler.dispatch.dispatcher import Dispatcher
from pykai.scheduler.dispatch.failedbinds import normalise_cause, pod_fingerprint
from pykai.scheduler.service import Scheduler
from tests.services.scheduler.schedulercluster import FaultRule, SchedulerCluster, refusal, scheduler_cluster

MINUTES = 60.0
RECORD = "failed-binds"


def refuse_binds(lab: SchedulerCluster, job: str) -> None:
    """No pod of a job can be bound, and every answer reads differently."""

    def answer(request: Request) -> Response:
        name = request.path.split("/")[-2]
        number = len(lab.faults.writes)
        return refusal(403, "Forbidden", f'pods "{name}" is forbidden: try {number}, not on node a')

    lab.faults.rules.append(FaultRule("POST", rf"/pods/{job}-\d+/binding$", before=answer))


class Jobs:
    """Plays the controller of two jobs of one pod: evicted and unbindable pods are recreated."""

    def __init__(self, lab: SchedulerCluster) -> None:
        self.lab = lab
        self.made = {"honest": 0, "never": 0}

    async def begin(self, job: str, queue: str, **pod: Any) -> None:
        await self.lab.group(job, queue=queue)
        await self.make(job, **pod)

    async def make(self, job: str, **pod: Any) -> None:
        await self.lab.pod(f"{job}-{self.made[job]}", job, **{"gpu": 2, **pod})
        self.made[job] += 1

    async def tend(self, **pod: Any) -> None:
        """A list of all pods."""
        for found in list(self.lab.pods.values()):
            name = found.metadata.name
            job = name.partition("-")[0]
            if found.metadata.deletion_timestamp or self.lab.condition(name)[1] == "BindingError":
                if name == f"{job}-{self.made[job] - 1}":
                    await self.lab.client.delete(resources.PODS, name, "default", grace_s=0)
                    await self.make(job, **(pod if job == "never" else {}))

    def settled(self, job: str) -> bool:
        """Whether the last pod of a job runs and stays."""
        pod = self.lab.pods.get(f"default/{job}-{self.made[job] - 1}")
        return pod is not None and bool(pod.spec.node_name) and not pod.metadata.deletion_timestamp

    def evictions(self) -> int:
        return len({each.path for each in self.lab.faults.written("DELETE", r"/pods/honest-\d+$")})


@asynccontextmanager
async def contention(speed: float = 300) -> AsyncIterator[tuple[SchedulerCluster, Jobs]]:
    """A node that an honest job fills; another that can never be bound has the better claim to it."""
    async with scheduler_cluster(speed=speed) as lab:
        await lab.node("a", gpus=2)
        await lab.queue("rich", parent="department", quota=0)
        await lab.queue("poor", parent="department", quota=2)
        refuse_binds(lab, "never")
        jobs = Jobs(lab)
        await jobs.begin("honest", "rich")
        async with lab.scheduler():
            await lab.until_bound("honest", 1)
        await jobs.begin("never", "poor")
        yield lab, jobs


async def until_free_room_only(lab: SchedulerCluster, jobs: Jobs, scheduler: Scheduler) -> None:
    """Let the job fail until it may evict nothing, and the honest one run for good."""
    async with asyncio.timeout(30):
        while not scheduler.intake.group_intake.free_room_only or not lab.event_messages("BindsFailed", "never"):
            await jobs.tend()
            await scheduler.loop.cycle()
            await asyncio.sleep(0)
        # An eviction that was decided before may still be under way.
        await scheduler.dispatcher.drain()
        while not jobs.settled("honest"):
            await jobs.tend()
            await scheduler.loop.cycle()
            await asyncio.sleep(0)


async def cycled(scheduler: Scheduler, times: int = 10) -> None:
    """Wait until a scheduler that has taken over has run some cycles."""
    async with asyncio.timeout(10):
        while scheduler.loop.cycles < times:
            await asyncio.sleep(0)


async def test_in_25_minutes_an_honest_job_is_evicted_three_times_and_then_runs_in_peace() -> None:
    async with contention() as (lab, jobs), lab.scheduler() as scheduler:
        await until_free_room_only(lab, jobs, scheduler)
        while lab.clock.elapsed_s() < 25 * MINUTES:
            await jobs.tend()
            await scheduler.loop.cycle()
        # A try that found the node empty needed no eviction.
        assert 1 <= jobs.evictions() <= 3
        assert lab.placed("honest")
        await lab.groups.wait_until(lambda _: "free resources only" in str(lab.groups.get("default/never")), 10)
        (told,) = lab.event_messages("BindsFailed", "never")
        assert told.startswith('3 binds failed (pods "<pod>" is forbidden: try #, not on node <node>)')
        assert "free resources only" in lab.event_messages("Unschedulable", "never")[-1]


async def test_a_new_leader_remembers() -> None:
    async with contention() as (lab, jobs):
        async with lab.scheduler() as scheduler:
            await until_free_room_only(lab, jobs, scheduler)
            await scheduler.dispatcher.drain()
        assert msgspec.json.decode(lab.records(RECORD)[0]["failures"])["failures"][0]["count"] >= 3
        evictions = jobs.evictions()
        async with lab.scheduler() as scheduler:
            await cycled(scheduler)
            assert scheduler.intake.group_intake.free_room_only.keys() == {"default/never"}
        assert jobs.evictions() == evictions
        assert lab.placed("honest")
        assert len(lab.event_messages("BindsFailed", "never")) == 1


@pytest.mark.parametrize("changed", ["pod", "group"])
async def test_a_fixed_job_may_evict_others_again(changed: str) -> None:
    async with contention() as (lab, jobs):
        async with lab.scheduler() as scheduler:
            await until_free_room_only(lab, jobs, scheduler)
            lab.faults.heal()
            evictions = jobs.evictions()
            # A pod that is made again stays as it was where only the group changes.
            asked = {"cpu": "2"} if changed == "pod" else {}
            if changed == "group":
                content = {"spec": {"preemptibility": "preemptible"}}
                await lab.client.patch(resources.POD_GROUPS, "never", content, "default")
                await scheduler.intake.groups.wait_until(
                    lambda store: any(group.spec.preemptibility == "preemptible" for group in store.values()), 10
                )
                assert not scheduler.intake.group_intake.free_room_only
            else:
                name = f"never-{jobs.made['never'] - 1}"
                await lab.client.delete(resources.PODS, name, "default", grace_s=0)
                await jobs.make("never", **asked)
            async with asyncio.timeout(10):
                while not lab.placed("never"):
                    await jobs.tend(**asked)
                    await scheduler.loop.cycle()
            assert not scheduler.intake.group_intake.free_room_only
        assert jobs.evictions() > evictions


async def test_a_free_room_only_group_uses_free_resources_until_a_bind_succeeds() -> None:
    async with contention() as (lab, jobs), lab.scheduler() as scheduler:
        await until_free_room_only(lab, jobs, scheduler)
        lab.faults.heal()
        await lab.node("b", gpus=2)
        await lab.until_bound("never", 1)
        await lab.until_no_records(RECORD)
        assert not scheduler.intake.group_intake.free_room_only


async def test_the_count_ends_with_the_group() -> None:
    async with contention() as (lab, jobs), lab.scheduler() as scheduler:
        await until_free_room_only(lab, jobs, scheduler)
        await lab.client.delete(resources.POD_GROUPS, "never", "default")
        await lab.until_no_records(RECORD)
        assert not scheduler.intake.group_intake.free_room_only


async def test_binds_that_the_binder_gives_up_count_once_each() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=2)
        await lab.gang("job", pods=1, gpu=1)
        async with lab.scheduler(fast_bind=False):
            await lab.requests.wait_until(lambda store: len(store) == 1, 10)
            failed = {"status": {"phase": "Failed", "reason": "no such device", "failedAttempts": 1}}
            await lab.client.patch(resources.BIND_REQUESTS, "job-0", failed, "default", subresource="status")
            await lab.maps.wait_until(lambda _: bool(lab.records(RECORD)), 10)
            await lab.requests.wait_until(lambda store: len(store) == 0, 10)
        (record,) = lab.records(RECORD)
        content = msgspec.json.decode(record["failures"])
        assert [(each["cause"], each["count"]) for each in content["failures"]] == [("no such device", 1)]
        assert len(content["requests"]) == 1


async def test_pods_of_a_gang_that_fail_together_are_one_failure() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=4)
        refuse_binds(lab, "train")
        await lab.gang("train", pods=4, gpu=1)
        async with lab.scheduler() as scheduler:
            for index in range(4):
                await lab.wait_for_event("FailedBinding", f"train-{index}")
            await scheduler.dispatcher.drain()
            await lab.maps.wait_until(lambda _: bool(lab.records(RECORD)), 10)
        content = msgspec.json.decode(lab.records(RECORD)[0]["failures"])
        assert [each["count"] for each in content["failures"]] == [1]


@pytest.mark.parametrize("code", [401, 429, 503])
async def test_a_server_error_is_not_a_failure_of_the_pod(code: int) -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1)
        lab.faults.refuse("POST", r"/binding$", refusal(code, "Unauthorized" if code == 401 else "Later"), times=48)
        await lab.gang("job", pods=1, gpu=1)
        scheduler = lab.make_scheduler()
        scheduler.dispatcher._pod_binding._writer._pause = _at_once  # type: ignore[attr-defined]
        stop = asyncio.Event()
        life = asyncio.create_task(scheduler.run(stop))
        await lab.wait_for_event("FailedBinding", "job-0")
        stop.set()
        await life
        await scheduler.intake._caches.stop()
        assert not lab.records(RECORD)


async def _at_once(_: float) -> None:
    await asyncio.sleep(0)


def pod(name: str = "p", *, claim: str = "", **meta: Any) -> Pod:
    volumes = (Volume(name=f"token-{name}"),)
    return Pod(
        metadata=ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}", **meta),
        spec=PodSpec(containers=(Container(name="main"),), volumes=volumes, priority_class_name=claim),
    )


def test_pods_are_alike_by_what_they_request() -> None:
    assert pod_fingerprint(pod("a")) == pod_fingerprint(pod("b"))
    assert pod_fingerprint(pod("a")) != pod_fingerprint(pod("a", claim="x"))
    assert pod_fingerprint(pod("a")) != pod_fingerprint(pod("a", annotations={"gpu-fraction": "0.5"}))
    assert pod_fingerprint(pod("a")) == pod_fingerprint(pod("a", annotations={"note": "x"}, labels={"l": "x"}))


NAMES = st.from_regex(re.compile(r"[a-z][a-z0-9-]{2,20}[a-z0-9]"), fullmatch=True)


@given(NAMES, NAMES, NAMES, NAMES, st.uuids(), st.uuids(), st.integers(0, 10**9))
def test_a_cause_does_not_depend_on_names_of_pods_and_nodes(
    one: str, other: str, here: str, there: str, uid: Any, another: Any, number: int
) -> None:
    def text(name: str, node: str, uid: Any) -> str:
        return normalise_cause(f'pods "{name}" ({uid}) cannot go to\n {node}: {number} reasons', pod(name), node)

    assert text(one, here, uid) == text(other, there, another) or {one, other} & {here, there}
    assert text(one, here, uid).startswith('pods "<')


def test_different_causes_stay_different() -> None:
    assert normalise_cause("no such device", pod(), "a") != normalise_cause("no such volume", pod(), "a")


async def test_pods_unlike_the_one_that_failed_are_read_as_they_come_and_not_again_at_every_change() -> None:
    """A tenant may add thousands of large pods to a group that has failed too often."""
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=2)
        refuse_binds(lab, "never")
        jobs = Jobs(lab)
        await jobs.begin("never", "team")
        async with lab.scheduler() as scheduler:
            async with asyncio.timeout(30):
                while not lab.event_messages("BindsFailed", "never"):
                    await jobs.tend()
                    await scheduler.loop.cycle()
                    await asyncio.sleep(0)
            last = f"never-{jobs.made['never'] - 1}"
            await lab.client.delete(resources.PODS, last, "default", grace_s=0)
            await lab.pods.wait_until(lambda store: len(store) == 0, 10)
            assert isinstance(scheduler.dispatcher, Dispatcher)
            failed = scheduler.dispatcher._failed_binds
            before, pods = failed.pods_read, 40
            for number in range(pods):
                await lab.pod(f"other-{number}", "never", cpu="100")
            await scheduler.intake.pods.wait_until(lambda store: len(store) == pods, 10)
            # Each is read as it comes, and twice for every condition that it gets.
            assert failed.pods_read - before <= 10 * pods
            assert "default/never" not in scheduler.intake.group_intake.free_room_only
            await lab.pod(last, "never", gpu=2)
            async with asyncio.timeout(10):
                while "default/never" not in scheduler.intake.group_intake.free_room_only:
                    await asyncio.sleep(0)
