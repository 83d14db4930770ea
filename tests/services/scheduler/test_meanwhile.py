"""What changes while a write is under way: the end of an old write does not affect a newer decision."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AbstractAsyncContextManager

import msgspec
import pytest

from pykai.api import names
from pykai.api.core import Pod
from pykai.core.model.status import TaskStatus
from pykai.core.report.decisions import Evict
from pykai.kube import resources
from pykai.kube.errors import ConnectionLost, CredentialsError
from pykai.kube.transport import Request, Stream, Transport
from pykai.scheduler.service import Scheduler
from tests.kube.lagging import delayed_stream
from tests.services.scheduler.schedulercluster import (
    FaultRule,
    FaultyTransport,
    SchedulerCluster,
    refusal,
    running,
    scheduler_cluster,
)
from tests.services.scheduler.test_many import Large, plan
from tests.services.scheduler.test_room import before, foreign, seen

BINDING = r"/pods/[^/]+/binding$"
POD = r"/pods/[^/]+$"


class Held:
    """Writes that match wait, each until it is let go, in the order in which they came."""

    def __init__(self, lab: SchedulerCluster, method: str, ending: str) -> None:
        self._method, self._ending = method, ending
        self._gates: list[asyncio.Event] = []
        self._came = asyncio.Condition()
        self.open = False
        lab.faults.on_write = self._hold

    async def _hold(self, request: Request) -> None:
        if self.open or request.method != self._method or not request.path.endswith(self._ending):
            return
        gate = asyncio.Event()
        async with self._came:
            self._gates.append(gate)
            self._came.notify_all()
        await gate.wait()

    async def until(self, count: int) -> None:
        """Wait until so many have come."""
        async with asyncio.timeout(10), self._came:
            await self._came.wait_for(lambda: len(self._gates) >= count)

    def let_go(self, index: int) -> None:
        """The n-th goes on."""
        self._gates[index].set()

    def let_all_go(self) -> None:
        """All go on, and nothing is held any more."""
        self.open = True
        for gate in self._gates:
            gate.set()


class Lagging(FaultyTransport):
    """Faults, and a watch of pods that can fall behind."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        #: whether events of pods come through
        self.current = asyncio.Event()
        self.current.set()

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        """See `Transport`."""
        stream = super().stream(request)
        return delayed_stream(stream, self.current) if request.path.endswith("/pods") else stream


async def led(scheduler: Scheduler) -> None:
    """Wait for the first cycles of a leader."""
    async with asyncio.timeout(10):
        while scheduler.loop.cycles < 2:
            await asyncio.sleep(0.002)


def under_way() -> list[asyncio.Task[object]]:
    """The binds that are going out."""
    return [task for task in asyncio.all_tasks() if task.get_name().startswith("bind of ")]


async def classes(lab: SchedulerCluster) -> None:
    """Work that cannot be evicted, and work that goes before it."""
    for name, value in (("steady", 100), ("urgent", 125)):
        await lab.create(resources.PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})


async def a_rival_waits(lab: SchedulerCluster) -> None:
    """A rival that would take any free node finds none."""
    await lab.group("rival", priorityClassName="urgent")
    await lab.pod("rival-0", "rival", gpu=1)
    await lab.wait_for_event("Unschedulable", "rival")


async def has_node(lab: SchedulerCluster, pod: str) -> bool:
    """Whether the server knows a node of a pod."""
    found = await lab.client.get(resources.PODS, pod, "default", into=Pod)
    return bool(found.spec.node_name)


async def the_late_answer_frees_nothing(
    lab: SchedulerCluster, scheduler: Scheduler, held: Held, earlier: list[asyncio.Task[object]]
) -> None:
    """The first of two binds ends while a rival waits for a node; the second keeps its own."""
    await a_rival_waits(lab)
    held.let_go(0)
    await asyncio.wait(earlier, timeout=10)
    await scheduler.loop.cycle()
    held.let_all_go()
    await lab.until_bound("job", 1)
    assert not await has_node(lab, "rival-0")


async def test_the_late_answer_of_an_earlier_pod_does_not_free_the_node_of_the_new_one() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1)
        await classes(lab)
        scheduler = lab.make_scheduler()
        async with running(scheduler):
            held = Held(lab, "POST", "/pods/job-0/binding")
            await lab.group("job", priorityClassName="steady")
            await lab.pod("job-0", "job", gpu=1)
            await held.until(1)
            earlier = under_way()
            await lab.client.delete(resources.PODS, "job-0", "default", grace_s=0)
            await lab.pod("job-0", "job", gpu=1)
            await held.until(2)
            await the_late_answer_frees_nothing(lab, scheduler, held, earlier)


async def test_the_end_of_a_bind_to_a_deleted_node_does_not_free_the_next_node() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1)
        await classes(lab)
        scheduler = lab.make_scheduler()
        async with running(scheduler):
            held = Held(lab, "POST", "/pods/job-0/binding")
            lab.faults.lose("POST", BINDING, ConnectionLost("injected"), carried_out=False)
            await lab.group("job", priorityClassName="steady")
            await lab.pod("job-0", "job", gpu=1)
            await held.until(1)
            earlier = under_way()
            await lab.client.delete(resources.NODES, "a")
            await lab.node("b", gpus=1)
            await held.until(2)
            await the_late_answer_frees_nothing(lab, scheduler, held, earlier)


async def test_a_pod_recreated_while_the_plan_was_written_is_bound_and_the_earlier_one_left_alone() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=2)
        scheduler = lab.make_scheduler()
        async with running(scheduler):
            held = Held(lab, "POST", "/configmaps")
            await lab.gang("train", pods=2, gpu=1)
            await held.until(1)
            await lab.client.delete(resources.PODS, "train-0", "default", grace_s=0)
            made = await lab.pod("train-0", "train", gpu=1)
            key, uid = "default/train-0", made["metadata"]["uid"]
            await scheduler.intake.pods.wait_until(
                lambda store: (found := store.get(key)) is not None and found.metadata.uid == uid, 10
            )
            while not scheduler.intake.binds.is_assumed(key):
                await scheduler.loop.cycle()
            held.let_all_go()
            await lab.until_bound("train", 2)
            await scheduler.dispatcher.drain()
        bodies = [msgspec.json.decode(each.body or b"") for each in lab.faults.written("POST", BINDING)]
        known = {pod.metadata.uid for pod in lab.pods.values()}
        assert [body["metadata"]["uid"] for body in bodies if body["metadata"]["uid"] not in known] == []


async def test_a_pod_bound_before_its_request_could_be_withdrawn_keeps_its_node_until_it_is_gone() -> None:
    async with scheduler_cluster() as lab:
        lab.faults = wire = Lagging(lab.faults.inner)
        await lab.node("a", gpus=1)
        await lab.queue("rich", parent="department", quota=0)
        await lab.queue("poor", parent="department", quota=1)
        await lab.group("greedy", queue="rich")
        greedy = await lab.pod("greedy-0", "greedy", gpu=1)
        async with lab.scheduler(fast_bind=False) as scheduler:
            await lab.requests.wait_until(lambda store: "default/greedy-0" in store, 10)
            held = Held(lab, "DELETE", "/bindrequests/greedy-0")
            await lab.group("needy", queue="poor")
            await lab.pod("needy-0", "needy", gpu=1)
            await held.until(1)
            wire.current.clear()
            await lab.client.bind("default", "greedy-0", uid=greedy["metadata"]["uid"], node="a")
            held.let_all_go()
            await lab.requests.wait_until(lambda store: "default/greedy-0" not in store, 10)
            await lab.pods.wait_until(
                lambda store: (
                    (found := store.get("default/greedy-0")) is None or found.metadata.deletion_timestamp is not None
                ),
                10,
            )
            await scheduler.loop.cycle()
            await scheduler.dispatcher.drain()
            assert "default/needy-0" not in lab.requests
            wire.current.set()


async def test_an_eviction_waits_for_read_permission() -> None:
    async with scheduler_cluster() as lab:
        lab.faults = wire = Lagging(lab.faults.inner)
        await lab.node("a", gpus=1)
        await lab.queue("rich", parent="department", quota=0)
        await lab.queue("poor", parent="department", quota=1)
        async with lab.scheduler():
            held = Held(lab, "POST", "/pods/greedy-0/binding")
            await lab.group("greedy", queue="rich")
            await lab.pod("greedy-0", "greedy", gpu=1)
            await held.until(1)
            wire.refuse("GET", r"/bindrequests/greedy-0$", refusal(403, "Forbidden", "no roles yet"), times=1)
            await lab.group("needy", queue="poor")
            await lab.pod("needy-0", "needy", gpu=1)
            await lab.wait_for_event("Pipelined", "needy-0")
            wire.current.clear()
            held.let_all_go()
            await lab.pods.wait_until(
                lambda store: (
                    (found := store.get("default/greedy-0")) is None or found.metadata.deletion_timestamp is not None
                ),
                10,
            )
            wire.current.set()


async def test_a_stopped_scheduler_leaves_gangs_to_the_next_leader() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=2)
        await lab.gang("train", pods=2, gpu=1)
        scheduler = lab.make_scheduler(fast_bind=False)
        stop = asyncio.Event()
        life = asyncio.create_task(scheduler.run(stop))
        await lab.requests.wait_until(lambda store: len(store) == 2, 10)
        stop.set()
        await life
        pod = await lab.client.get(resources.PODS, "train-0", "default", into=Pod)
        await lab.client.bind("default", "train-0", uid=pod.metadata.uid, node="a")
        await scheduler.intake.pods.wait_until(
            lambda store: (found := store.get("default/train-0")) is not None and bool(found.spec.node_name), 10
        )
        # The next leader deletes the request to decide again.
        await lab.client.delete(resources.BIND_REQUESTS, "train-1", "default")
        await scheduler.intake.requests.wait_until(lambda store: "default/train-1" not in store, 10)
        await scheduler.dispatcher.drain()
        await scheduler.intake._caches.stop()
        assert not lab.faults.written("DELETE", POD)


@pytest.mark.parametrize("path", [BINDING, r"/configmaps$"])
@pytest.mark.parametrize("known", [True, False])
async def test_a_moment_without_credentials_costs_a_pause_and_no_more(path: str, known: bool) -> None:
    async with scheduler_cluster(speed=20) as lab:
        await lab.node("a", gpus=2)
        for method in ("POST", "PATCH"):
            if known:
                lab.faults.refuse(method, path, refusal(401, "Unauthorized"), times=1)
            else:
                lab.faults.lose(method, path, CredentialsError("the token is empty"), carried_out=False)
        await lab.gang("train", pods=2, minimum=1, gpu=1)
        async with lab.scheduler():
            await lab.until_bound("train", 2)


async def test_a_plan_that_was_recorded_after_all_is_not_begun_after_it_was_given_up() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=2)
        await classes(lab)
        lab.faults.lose("POST", r"/configmaps$", ConnectionLost("no answer"), carried_out=True)
        # As a server that has just started answers: its roles are loaded a moment later.
        lab.faults.refuse("POST", r"/configmaps$", refusal(403, "Forbidden", "no roles yet"), times=1)
        await lab.group("train", minimum=2, priorityClassName="steady")
        for index in range(2):
            await lab.pod(f"train-{index}", "train", gpu=1)
        scheduler = lab.make_scheduler()
        async with running(scheduler):
            held = Held(lab, "POST", "/pods/train-0/binding")
            await lab.wait_for_event("FailedBinding", "train-0")
            await lab.client.patch(resources.POD_GROUPS, "train", {"metadata": {"labels": {"seen": "yes"}}}, "default")
            await scheduler.intake.groups.wait_until(
                lambda store: (found := store.get("default/train")) is not None and "seen" in found.metadata.labels, 10
            )
            await lab.group("rival", priorityClassName="urgent")
            await lab.pod("rival-0", "rival", gpu=2)
            await lab.until_bound("rival", 1)
            held.let_all_go()
            await lab.until_no_records()
            await scheduler.dispatcher.drain()
        assert not await has_node(lab, "train-0")


async def test_a_new_leader_waits_until_it_has_seen_the_writes_of_the_last_one() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1)
        await classes(lab)
        first = lab.make_scheduler(leader_elect=True)
        held = Held(lab, "POST", "/pods/job-0/binding")
        stop = asyncio.Event()
        one = asyncio.create_task(first.run(stop))
        await lab.group("job", priorityClassName="steady")
        await lab.pod("job-0", "job", gpu=1)
        await held.until(1)
        await a_rival_waits(lab)
        lab.faults = wire = Lagging(lab.faults.inner)
        second = lab.make_scheduler(leader_elect=True)
        second.lease_retry_s = 0.05
        async with running(second):
            await second.intake.pods.wait_until(lambda store: len(store) == 2, 10)
            wire.current.clear()
            held.let_all_go()
            await lab.until_bound("job", 1)
            stop.set()
            await one
            await first.intake._caches.stop()
            listed = asyncio.Event()
            wire.rules.append(FaultRule("GET", "/pods$", after=lambda _: listed.set()))
            taken = asyncio.ensure_future(led(second))
            asked = asyncio.ensure_future(listed.wait())
            await asyncio.wait((taken, asked), timeout=10, return_when=asyncio.FIRST_COMPLETED)
            wire.current.set()
            await taken
            await lab.wait_for_event("Unschedulable", "rival")
        assert not await has_node(lab, "rival-0")


async def test_a_pod_that_leaves_its_group_meanwhile_does_not_keep_the_plan_open() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=2)
        await lab.group("other")
        await lab.gang("train", pods=2, minimum=1, gpu=1)
        async with lab.scheduler(fast_bind=False):
            await lab.requests.wait_until(lambda store: len(store) == 2, 10)
            moved = {"metadata": {"annotations": {names.POD_GROUP_ANNOTATION: "other"}}}
            await lab.client.patch(resources.PODS, "train-1", moved, "default")
            for index in range(2):
                pod = await lab.client.get(resources.PODS, f"train-{index}", "default", into=Pod)
                await lab.client.bind("default", f"train-{index}", uid=pod.metadata.uid, node="a")
            await lab.until_no_records()


@pytest.mark.parametrize("pods", [2, 3])
async def test_a_gang_that_lost_a_pod_while_the_engine_worked_does_not_begin(pods: int) -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=3)
        async with lab.scheduler() as scheduler:
            await scheduler.intake.nodes.wait_until(lambda store: len(store) == 1, 10)
            go_on = threading.Event()
            async with scheduler.loop.engine_lock:
                await lab.gang("train", pods=pods, gpu=1)
                await scheduler.intake.pods.wait_until(lambda store: len(store) == pods, 10)
                # Whatever the engine is given from now on waits.
                scheduler.loop._thread.submit(go_on.wait)
            # The next cycle takes the changes as soon as it has the lock, and keeps the lock until the engine is done.
            while not scheduler.loop.engine_lock.locked():
                await asyncio.sleep(0.002)
            await lab.client.delete(resources.PODS, "train-0", "default", grace_s=0)
            await scheduler.intake.pods.wait_until(lambda store: "default/train-0" not in store, 10)
            go_on.set()
            await lab.wait_for_event("NotReady", "train")
            await scheduler.dispatcher.drain()
            assert not lab.placed("train")
            await lab.pod("train-0", "train", gpu=1)
            await lab.until_bound("train", pods)


async def test_a_pod_whose_pause_ends_during_a_cycle_is_not_reported_as_gated() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a")
        lab.faults.refuse("POST", BINDING, refusal(403, "Forbidden", "not here"), times=1)
        await lab.gang("job", pods=1)
        async with lab.scheduler() as scheduler:
            await lab.wait_for_event("FailedBinding", "job-0")
            go_on = threading.Event()
            async with scheduler.loop.engine_lock:
                assert scheduler.dispatcher.groups_backing_off() == {"default/job"}
                scheduler.loop._thread.submit(go_on.wait)
            while not scheduler.loop.engine_lock.locked() or scheduler.dispatcher.groups_backing_off():
                await asyncio.sleep(0.002)
            go_on.set()
            await lab.wait_for_event("Scheduled", "job-0")
        assert not lab.event_messages("NotReady")


async def test_a_gang_that_is_preempted_before_its_plan_is_recorded_waits_again() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=2)
        await lab.queue("rich", parent="department", quota=0)
        await lab.queue("poor", parent="department", quota=2)
        async with lab.scheduler():
            held = Held(lab, "POST", "/configmaps")
            await lab.gang("greedy", pods=2, gpu=1, queue="rich")
            await held.until(1)
            await lab.group("needy", queue="poor")
            await lab.pod("needy-0", "needy", gpu=2)
            await lab.wait_for_event("Evict", "greedy")
            held.let_all_go()
            await lab.until_bound("needy", 1)
        assert not lab.faults.written("DELETE", POD)
        assert len(await lab.client.list_raw(resources.PODS)) == 3


@pytest.mark.parametrize("fast_bind", [True, False])
async def test_a_bind_that_the_server_put_off_is_not_sent_again_to_a_node_that_others_filled(fast_bind: bool) -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1)
        path = BINDING if fast_bind else r"/bindrequests$"
        scheduler = lab.make_scheduler(fast_bind=fast_bind)
        async with running(scheduler):

            async def others_come() -> None:
                await foreign(lab, "foreign", "a", gpu=1)
                await seen(scheduler, "foreign")

            before(lab, path, others_come)
            lab.faults.refuse("POST", path, refusal(429, "TooManyRequests"), times=1)
            await lab.gang("job", pods=1, gpu=1)
            await lab.pods.wait_until(lambda _: lab.condition("job-0")[1] == "Unschedulable", 10)
        assert len(lab.faults.written("POST", path)) == 1


async def test_the_eviction_of_a_pod_does_not_release_its_successor_from_its_back_off() -> None:
    large = Large()
    large.nodes(1)
    large.pods(["p"])
    large.intake.apply_operations(large.intake.queue.take())
    large.intake.statuses.assume_gated("default/p")
    evict_earlier = Evict("default", "p", "uid of an earlier pod", "default/p", "node-0", "reclaim", 1, "why")
    await large.scheduler.dispatcher.dispatch(plan(evictions=(evict_earlier,)))
    await large.scheduler.dispatcher.drain()
    large.intake.apply_operations(large.intake.queue.take())
    assert large.intake.tables.snapshot(0).task_records["default/p"].status is TaskStatus.GATED
