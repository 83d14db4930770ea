"""Pods that name no other scheduler run in a simulated cluster, beside those that do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from pykai.api import names
from pykai.api.core import Condition
from pykai.api.workloads import MachinePod
from pykai.kube.resources import DEPLOYMENTS, JOBS, NODES, PODS
from pykai.kube.transport import Request, Response, Stream, Transport
from pykai.lab.machines.podbehaviour import BehaviourDefaults
from tests.lab.controllers.test_deployments import deployed, deployment
from tests.lab.controllers.test_jobs import is_complete, job
from tests.lab.lostanswers import AnswerLosingTransport
from tests.lab.simulatedcluster import TIMEOUT_S, Process, SimulatedCluster, simulated_cluster, wait_until


class Between:
    """A transport that counts writes to pods and has configurable results for bindings."""

    _transport: Transport

    def __init__(self, *, gathers: int = 0, refuses: int = 0) -> None:
        """`gathers`: bindings are carried out once so many have come; `refuses`: so many are refused first."""
        self.statuses = 0
        self.bindings = 0
        self._gathers, self._refuses = gathers, refuses
        self._gathered = asyncio.Event()

    def __call__(self, transport: Transport) -> Transport:
        self._transport = transport
        return self

    async def send(self, request: Request) -> Response:
        if request.path.endswith("/binding"):
            self.bindings += 1
            if self.bindings >= self._gathers:
                self._gathered.set()
            async with asyncio.timeout(TIMEOUT_S):
                await self._gathered.wait()
            if self.bindings <= self._refuses:
                return Response(409, b'{"kind":"Status","status":"Failure","reason":"Conflict","code":409}')
        elif (
            request.method == "PATCH" and request.path.endswith("/status") and b"PodScheduled" in (request.body or b"")
        ):
            self.statuses += 1
        return await self._transport.send(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        return self._transport.stream(request)

    async def close(self) -> None:
        await self._transport.close()


@asynccontextmanager
async def scheduled(
    between: Callable[[Transport], Transport] | None = None, *, controllers: bool = False
) -> AsyncIterator[SimulatedCluster]:
    """A world whose pods are scheduled, over a transport of one's own."""
    async with simulated_cluster(controllers=controllers, default_scheduler=True) as w:
        if between is not None:
            await w.process.stop()
            w.process = Process(between(w.server.transport()), w.clock, w.options)
            await w.process.start()
        yield w


def verdict(pod: MachinePod) -> Condition:
    """What was said of its scheduling."""
    return next((c for c in pod.status.conditions if c.type == names.CONDITION_POD_SCHEDULED), Condition())


def refused(pod: MachinePod) -> bool:
    return verdict(pod).status == "False"


def has_node(pod: MachinePod) -> bool:
    return bool(pod.spec.node_name)


def never_overbooked(w: SimulatedCluster) -> bool:
    """Whether no machine had to refuse a pod."""
    return not [version for version in w.history if version.status.reason.startswith("OutOf")]


async def test_a_pod_that_names_no_scheduler_runs_and_one_of_another_scheduler_waits_for_that() -> None:
    async with scheduled() as w:
        await w.node("n1")
        await w.pod("other", schedulerName=names.SCHEDULER_NAME)
        await w.pod("plain", restart="Always")
        running = await w.phase("plain", "Running")
        assert running.spec.node_name == "n1"
        await w.event("Scheduled", "Successfully assigned default/plain to n1")
        other = w.find("other")
        assert other is not None
        assert not other.spec.node_name
        assert not other.status.conditions


async def test_deployments_and_jobs_run_as_they_come_from_kubectl() -> None:
    async with scheduled(controllers=True) as w:
        await w.node("n", 2)
        await w.create(DEPLOYMENTS, deployment(replicas=3))
        await w.create(JOBS, job(pods={"annotations": {names.RUN_SECONDS_ANNOTATION: "1"}}))
        await deployed(w, 3)
        await w.wait_for_job("j", is_complete)
        assert {pod.spec.node_name for pod in w.pods.values()} == {"n-0", "n-1"}


async def test_two_pods_never_get_one_place_however_late_the_watch_is() -> None:
    async with scheduled(Between(gathers=2)) as w:
        await w.node("n", 2, gpus=1)
        for name in ("a", "b"):
            await w.pod(name, gpus=1, restart="Always")
        nodes = {(await w.wait_for_pod(name, has_node)).spec.node_name for name in ("a", "b")}
        assert nodes == {"n-0", "n-1"}


async def test_a_pod_that_fits_nowhere_says_why_and_starts_when_there_is_room() -> None:
    async with scheduled() as w:
        await w.node("n1", gpus=1)
        # Bound by another scheduler: counts, too.
        await w.pod("first", node="n1", gpus=1, restart="Always", schedulerName=names.SCHEDULER_NAME)
        await w.phase("first", "Running")
        await w.pod("second", gpus=1, restart="Always")
        waiting = await w.wait_for_pod("second", refused)
        assert verdict(waiting).reason == "Unschedulable"
        assert verdict(waiting).message == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
        await w.event("FailedScheduling", "0/1 nodes are available")
        await w.client.delete(PODS, "first", "default")
        await w.phase("second", "Running")
        assert never_overbooked(w)


async def test_a_pod_that_has_finished_makes_room() -> None:
    async with scheduled() as w:
        await w.node("n1", gpus=1)
        await w.pod("first", gpus=1, annotations={names.RUN_SECONDS_ANNOTATION: "100000"})
        await w.phase("first", "Running")
        await w.pod("second", gpus=1, restart="Always")
        await w.wait_for_pod("second", refused)
        ends = {"metadata": {"annotations": {names.RUN_SECONDS_ANNOTATION: "0"}}}
        await w.client.patch(PODS, "first", ends, "default")
        await w.phase("second", "Running")
        first = w.find("first")
        assert first is not None
        assert first.status.phase == "Succeeded"


async def test_what_was_said_is_said_again_only_when_it_changes() -> None:
    between = Between()
    async with scheduled(between) as w:
        await w.node("n1", gpus=1)
        await w.pod("holder", node="n1", gpus=1, restart="Always")
        await w.phase("holder", "Running")
        await w.pod("huge", gpus=9)
        said = verdict(await w.wait_for_pod("huge", refused))
        await w.pod("next", gpus=1, restart="Always")
        await w.wait_for_pod("next", refused)
        assert between.statuses == 2
        # There is room now, and still not for the huge one.
        await w.client.delete(PODS, "holder", "default")
        await w.phase("next", "Running")
        assert between.statuses == 2
        await w.node("n2", gpus=1)
        huge = await w.wait_for_pod("huge", lambda pod: verdict(pod).message.startswith("0/2"))
        assert between.statuses == 3
        assert verdict(huge).last_transition_time == said.last_transition_time


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"unschedulable": True}, {"unschedulable": None}),
        ({"taints": [{"key": "k", "effect": "NoSchedule"}]}, {"taints": None}),
    ],
)
async def test_a_pod_starts_when_a_node_opens(before: dict[str, object], after: dict[str, object]) -> None:
    async with scheduled() as w:
        await w.node("n1")
        await w.client.patch(NODES, "n1", {"spec": before})
        await w.pod("a", restart="Always", nodeSelector={"zone": "east"})
        # Whether the patch or the pod is seen first, in the end the node is closed to it.
        await w.wait_for_pod("a", lambda pod: refused(pod) and "affinity" not in verdict(pod).message)
        await w.client.patch(NODES, "n1", {"metadata": {"labels": {"zone": "east"}}})
        await w.client.patch(NODES, "n1", {"spec": after})
        await w.phase("a", "Running")


async def test_a_gated_pod_waits_for_its_gate() -> None:
    between = Between()
    async with scheduled(between) as w:
        await w.node("n1")
        await w.pod("gated", restart="Always", schedulingGates=[{"name": "example.com/quota"}])
        await w.pod("open", restart="Always")
        await w.phase("open", "Running")
        gated = w.find("gated")
        assert gated is not None
        assert not gated.spec.node_name
        assert between.bindings == 1
        assert verdict(gated).reason == "SchedulingGated"
        await w.client.patch(PODS, "gated", {"spec": {"schedulingGates": None}}, "default")
        await w.phase("gated", "Running")


async def test_a_toleration_that_comes_later_helps() -> None:
    async with scheduled() as w:
        await w.node("n1", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])
        await w.pod("a", restart="Always")
        await w.wait_for_pod("a", refused)
        tolerations = (await w.get(PODS, "a"))["spec"].get("tolerations") or []
        new = [*tolerations, {"key": "k", "operator": "Exists"}]
        await w.client.patch(PODS, "a", {"spec": {"tolerations": new}}, "default")
        await w.phase("a", "Running")


async def test_a_refused_binding_gives_its_place_back_and_is_tried_again() -> None:
    between = Between(refuses=1)
    async with scheduled(between) as w:
        await w.node("n1", gpus=1)
        await w.pod("a", gpus=1, restart="Always")
        await w.phase("a", "Running")
        assert between.bindings == 2


async def test_the_place_of_a_pod_that_vanished_before_its_binding_goes_to_the_next() -> None:
    between = Between(gathers=2)
    async with scheduled(between) as w:
        await w.node("n1", gpus=1)
        await w.pod("a", gpus=1, restart="Always")
        await wait_until(lambda: between.bindings == 1)
        await w.client.delete(PODS, "a", "default")
        await w.gone("a")
        await w.pod("b", gpus=1, restart="Always")
        await w.phase("b", "Running")


async def test_a_pod_that_another_scheduler_binds_counts_on_its_node() -> None:
    between = Between(gathers=2)
    async with scheduled(between) as w:
        await w.node("n1", gpus=1)
        await w.pod("a", gpus=1, restart="Always")
        await wait_until(lambda: between.bindings == 1)
        await w.node("n2", gpus=1)
        await w.client.bind("default", "a", uid=(await w.get(PODS, "a"))["metadata"]["uid"], node="n2")
        await w.phase("a", "Running")
        await w.pod("b", gpus=1, restart="Always")
        assert (await w.phase("b", "Running")).spec.node_name == "n1"
        await w.pod("c", gpus=1, restart="Always")
        c = await w.wait_for_pod("c", lambda pod: refused(pod) or has_node(pod))
        assert not has_node(c)


@pytest.mark.parametrize("carried_out", [True, False])
async def test_pods_run_once_whichever_answer_is_lost(carried_out: bool) -> None:
    for nth in range(4):

        def losing(transport: Transport, nth: int = nth) -> AnswerLosingTransport:
            return AnswerLosingTransport(transport, nth, carried_out=carried_out)

        async with scheduled(losing) as w:
            await w.node("n", 2, gpus=1)
            for name in ("a", "b"):
                await w.pod(name, gpus=1, restart="Always")
            for name in ("a", "b"):
                await w.phase(name, "Running")
            assert never_overbooked(w)


async def test_after_a_restart_what_pods_hold_is_known() -> None:
    async with scheduled() as w:
        await w.node("n1", gpus=1)
        await w.pod("a", gpus=1, restart="Always")
        await w.phase("a", "Running")
        await w.restart()
        await w.pod("b", gpus=1, restart="Always")
        await w.wait_for_pod("b", refused)
        await w.client.delete(PODS, "a", "default")
        await w.phase("b", "Running")
        assert never_overbooked(w)


async def test_after_a_restart_nothing_is_said_again() -> None:
    between = Between()
    async with scheduled() as w:
        await w.node("n1", gpus=1)
        await w.pod("huge", gpus=9)
        await w.wait_for_pod("huge", refused)
        await w.process.stop()
        w.process = Process(between(w.server.transport()), w.clock, w.options)
        await w.process.start()
        await w.pod("small", gpus=1, restart="Always")
        await w.phase("small", "Running")
        assert between.statuses == 0


async def test_it_can_be_switched_off() -> None:
    async with simulated_cluster(behaviour=BehaviourDefaults(run_s=1)) as w:
        await w.node("n1")
        assert names.DEFAULT_SCHEDULER_NAME not in [service.name for service in w.process.services]
