"""Faults besides the wire: clocks that jump, nodes and kubelets that fail, objects deleted or recreated meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import cycle
from typing import Any

import pytest

from pykai.api import names
from pykai.dev.faultytransport import FaultyTransport
from pykai.kube import resources
from pykai.kube.clock import Clock
from pykai.kube.transport import Request, Transport
from tests.faults.calls import Call
from tests.faults.story import QUICK, SERVICES, StoryCluster, Told, furnished, job, one_of_everything, tell, volume
from tests.faults.wire import Fault, FaultOutcome
from tests.kube.faketime import LoopClock

HOUR = timedelta(hours=1)


class SetClock(LoopClock):
    """A clock that is set while it runs."""

    ahead = timedelta()

    def now(self) -> datetime:
        return super().now() + self.ahead


def unharmed(told: Told) -> None:
    assert told.problems() == []


# Clocks


def set_clock(ahead: timedelta = timedelta()) -> SetClock:
    clock = SetClock(start=datetime(2026, 1, 1, tzinfo=UTC))
    clock.ahead = ahead
    return clock


@pytest.mark.parametrize("by", [HOUR, -HOUR], ids=["forward", "back"])
def test_the_clock_of_the_machine_is_set_while_everything_runs(by: timedelta) -> None:
    clock = set_clock()

    async def story(it: StoryCluster) -> None:
        await furnished(it)
        await it.submit(job("greedy", "rich", 8, gpus=1, minimum=1, runs="120s"))
        await it.running("greedy", 6)
        clock.ahead = by
        await it.submit(job("gang", "poor", 4, gpus=1))
        await it.submit(job("share", "poor", 2, fraction=0.4, minimum=1))
        await it.complete("gang", "share")
        clock.ahead = timedelta()
        await it.submit(job("after", "poor", 2, gpus=1))
        await it.complete("after", "greedy")
        await it.clear()

    unharmed(tell(story, clocks=dict.fromkeys(SERVICES, clock)))


@pytest.mark.parametrize("by", [HOUR, -HOUR], ids=["ahead", "behind"])
def test_a_service_whose_clock_is_wrong(by: timedelta) -> None:
    unharmed(tell(clocks=dict.fromkeys(("scheduler", "binder", "podgroups"), set_clock(by))))


def test_two_leaders_with_skewed_clocks_do_not_work_at_once() -> None:
    """Leases are measured by each candidate itself, so clocks do not matter; the audit log has writers and times."""
    given = cycle([set_clock(HOUR), set_clock(-HOUR)])

    class Skewed(dict[str, Clock]):
        def get(self, key: str, default: Any = None) -> Any:
            return next(given) if key == "scheduler" else default

    renewals = 0

    def lose_the_lease(call: Call, number: int) -> FaultOutcome | None:
        """Leaders fail to renew twice in the story, for longer than a lease lasts."""
        nonlocal renewals
        if call == Call("scheduler", "update", "leases.coordination.k8s.io"):
            renewals += 1
            return FaultOutcome() if 3 <= renewals <= 12 else None
        return None

    told = tell(clocks=Skewed(), instances={"scheduler": 2}, fault=lose_the_lease)
    unharmed(told)
    assert told.restarts["scheduler"] >= 1


# Nodes and kubelets


async def ready(it: StoryCluster, node: str, is_ready: bool) -> None:
    status = {"conditions": [{"type": "Ready", "status": "True" if is_ready else "Unknown"}]}
    await it.client.patch(resources.NODES, node, {"status": status}, subresource="status")


async def allocatable(it: StoryCluster, node: str, gpus: int) -> None:
    amounts = {names.NVIDIA_GPU: str(gpus)}
    await it.client.patch(resources.NODES, node, {"status": {"allocatable": amounts}}, subresource="status")


def test_nodes_that_flap() -> None:
    async def story(it: StoryCluster) -> None:
        await furnished(it)
        for number in range(6):
            await it.submit(job(f"gang-{number}", "poor", 3, gpus=1, runs="10s"))
            await ready(it, f"n{number % 2}", False)
            await it.clock.sleep(0.3)
            await ready(it, f"n{number % 2}", True)
            await it.clock.sleep(0.3)
        await it.complete(*(f"gang-{number}" for number in range(6)))
        await it.clear()

    unharmed(tell(story))


def test_a_node_that_shrinks_between_the_decision_and_the_bind_gets_no_more_than_it_has() -> None:
    household: StoryCluster | None = None

    async def shrink(request: Request) -> None:
        assert household is not None
        await allocatable(household, "n0", 1)
        await allocatable(household, "n1", 1)

    async def story(it: StoryCluster) -> None:
        nonlocal household
        household = it
        await furnished(it)
        await it.submit(job("gang", "poor", 4, gpus=1))
        await it.clock.sleep(60)
        await allocatable(it, "n0", 4)
        await it.complete("gang")
        await it.clear()

    told = tell(story, fault=meanwhile("scheduler create pods/binding", shrink))
    # The kubelet refuses binds that were under way when the node shrank.
    assert told.problems(of_kubelets=True) == []


def test_a_node_that_lies_about_its_gpus() -> None:
    """The kubelet refuses what it does not have (OutOfnvidia.com/gpu); pods are recreated and go where they fit."""
    lying = True

    def lie(call: Call, body: bytes) -> bytes:
        if call.service != "scheduler" or not lying or not call.resource.startswith("nodes"):
            return body
        return body.replace(b'"nvidia.com/gpu":"4"', b'"nvidia.com/gpu":"6"')

    async def story(it: StoryCluster) -> None:
        nonlocal lying
        await furnished(it)
        await it.submit(job("many", "poor", 12, gpus=1, minimum=1, runs="5s"))
        await it.that(resources.PODS, lambda: bool(it.pods("many", "Failed")), "a pod that a kubelet refuses")
        refused = {pod["status"].get("reason") for pod in it.pods("many", "Failed")}
        assert refused == {"OutOfnvidia.com/gpu"}
        lying = False
        for node in ("n0", "n1"):
            await it.client.patch(resources.NODES, node, {"metadata": {"labels": {"honest": "true"}}})
        await it.complete("many")
        await it.clear()

    assert tell(story, reword=lie).problems(of_kubelets=True) == []


def test_a_kubelet_that_refuses_every_third_pod() -> None:
    """UnexpectedAdmissionError: the pod has failed, its controller makes another, and no share of a GPU is lost."""
    told = tell(habits=replace(QUICK, refused=0.3))
    unharmed(told)
    reasons = {
        seen.object["status"].get("reason") for seen in told.recording if seen.resource == "pods" and seen.object
    }
    assert "UnexpectedAdmissionError" in reasons


# Objects that go or come again


def meanwhile(named: str, happens: Callable[[Request], Awaitable[None]]) -> Fault:
    """Something happens right before the first request of a call arrives."""
    return lambda call, number: FaultOutcome(meanwhile=happens) if str(call) == named and not number else None


BINDS = [
    "scheduler create pods/binding",
    "scheduler create bindrequests.scheduling.run.ai",
    "binder create pods/binding",
]


@pytest.mark.parametrize("when", [*BINDS, "binder create configmaps", "binder patch pods"])
def test_a_pod_is_recreated_under_its_name_between_decision_and_bind(when: str) -> None:
    household: StoryCluster | None = None
    again: set[str] = set()

    async def come_again(request: Request) -> None:
        assert household is not None
        for pod in household.stores[resources.PODS].values():
            meta = pod["metadata"]
            if meta["name"].startswith("bare") and not pod["spec"].get("nodeName"):
                again.add(meta["uid"])
                await household.client.delete(resources.PODS, meta["name"], "default", grace_s=0)
                await household.create(resources.PODS, bare(meta["name"]))

    def bare(name: str) -> dict[str, Any]:
        fields = {"gpus": 1} if when.startswith("scheduler create pods") else {"fraction": 0.5}
        made = job("unused", "poor", **fields)["spec"]["template"]
        return {"metadata": {"name": name, **made["metadata"]}, "spec": made["spec"]}

    async def story(it: StoryCluster) -> None:
        nonlocal household
        household = it
        await furnished(it)
        for number in range(3):
            await it.create(resources.PODS, bare(f"bare-{number}"))
        await it.that(
            resources.PODS,
            lambda: sum(pod["status"]["phase"] == "Succeeded" for pod in it.stores[resources.PODS].values()) == 3,
            "the end of three pods",
        )
        for number in range(3):
            await it.client.delete(resources.PODS, f"bare-{number}", "default", grace_s=0)
        await it.clear()

    told = tell(story, fault=meanwhile(when, come_again))
    unharmed(told)
    assert again
    bound = {
        seen.object["metadata"]["uid"]
        for seen in told.recording
        if seen.resource == "pods" and seen.object and seen.object["spec"].get("nodeName")
    }
    assert not again & bound


@pytest.mark.parametrize(
    "call", ["binder get persistentvolumeclaims", "binder patch persistentvolumeclaims", "binder create pods/binding"]
)
def test_a_volume_claim_is_deleted_between_decision_and_bind(call: str) -> None:
    household: StoryCluster | None = None

    async def go(request: Request) -> None:
        assert household is not None
        await household.client.delete(resources.PERSISTENT_VOLUME_CLAIMS, "made", "default")

    async def story(it: StoryCluster) -> None:
        nonlocal household
        household = it
        await furnished(it)
        await it.submit(job("volume", "poor"), **volume("made"))
        await it.clock.sleep(30)
        asks = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "slow",
            "resources": {"requests": {"storage": "5Gi"}},
        }
        await it.create(resources.PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": "made"}, "spec": asks})
        await it.clock.sleep(300)
        # A pod that was bound before it lost its volume waits on its node; what a user does then is delete it.
        for pod in it.pods("volume", "Pending"):
            await it.client.delete(resources.PODS, pod["metadata"]["name"], "default", grace_s=0)
        await it.complete("volume")
        await it.clear()

    told = tell(story, fault=meanwhile(call, go))
    unharmed(told)
    assert told.hit


@pytest.mark.parametrize(
    "call",
    ["binder get resourceclaims.resource.k8s.io", "binder update resourceclaims.resource.k8s.io/status"],
)
def test_a_device_claim_is_deleted_between_decision_and_bind(call: str) -> None:
    household: StoryCluster | None = None

    async def go(request: Request) -> None:
        assert household is not None
        name = request.path.removesuffix("/status").rpartition("/")[2]
        await household.client.delete(resources.RESOURCE_CLAIMS, name, "default")

    async def story(it: StoryCluster) -> None:
        nonlocal household
        household = it
        await furnished(it)
        claiming = job("claiming", "poor", 2, minimum=1)
        claiming["spec"]["template"]["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
        await it.submit(claiming, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "one"}])
        await it.clock.sleep(60)
        # The controller makes a claim for a pod once; a pod that lost it waits until it is deleted.
        for pod in it.pods("claiming", "Pending"):
            await it.client.delete(resources.PODS, pod["metadata"]["name"], "default", grace_s=0)
        await it.complete("claiming")
        await it.clear()

    told = tell(story, fault=meanwhile(call, go))
    unharmed(told)
    assert told.hit


def test_a_config_map_is_deleted_between_decision_and_bind() -> None:
    household: StoryCluster | None = None
    gone: list[str] = []

    async def go(request: Request) -> None:
        assert household is not None
        for each in await household.client.list_raw(resources.CONFIG_MAPS, namespace="default"):
            gone.append(each["metadata"]["name"])
            await household.client.delete(resources.CONFIG_MAPS, each["metadata"]["name"], "default")

    async def story(it: StoryCluster) -> None:
        nonlocal household
        household = it
        await furnished(it)
        await it.submit(job("share", "poor", 2, fraction=0.5, minimum=1))
        await it.clock.sleep(60)
        # Their pods wait for the map as on any cluster; what a user does then is delete them.
        for pod in it.pods("share", "Pending"):
            await it.client.delete(resources.PODS, pod["metadata"]["name"], "default", grace_s=0)
        await it.complete("share")
        await it.clear()

    told = tell(story, fault=meanwhile("binder create pods/binding", go))
    unharmed(told)
    assert gone


# Pods that never go


def test_finalizers_that_are_never_removed_cost_their_own_gpus_and_nothing_else() -> None:
    async def story(it: StoryCluster) -> None:
        await furnished(it)
        greedy = job("greedy", "rich", 8, gpus=1, minimum=1, runs="3000s")
        greedy["spec"]["template"]["metadata"]["finalizers"] = ["example.com/never"]
        await it.submit(greedy)
        await it.running("greedy", 8)
        await it.submit(job("gang", "poor", 4, gpus=1, runs="10s"))
        await it.submit(job("small", "poor", cpu="1"))
        await it.complete("small", "gang")
        it.told.given_up.add("default/greedy")
        await it.client.delete(resources.JOBS, "greedy", "default", propagation="Background")
        await it.clock.sleep(300)
        for pod in it.stores[resources.PODS].values():
            if pod["metadata"].get("finalizers"):
                patch = {"metadata": {"finalizers": None}}
                await it.client.patch(resources.PODS, pod["metadata"]["name"], patch, "default")
        await it.clear()

    unharmed(tell(story))


def test_the_whole_story_with_everything_wrong_at_once() -> None:
    """Late clocks, refusing kubelets and some lost answers, together."""

    def now_and_then(call: Call, number: int) -> FaultOutcome | None:
        return FaultOutcome(carried_out=number % 2 == 0) if number % 9 == 4 and "leases" not in call.resource else None

    unharmed(tell(one_of_everything, fault=now_and_then, habits=replace(QUICK, refused=0.2)))


@pytest.mark.parametrize("seed", range(2))
def test_requests_and_watches_fail_as_in_a_soak(seed: int) -> None:
    made: list[FaultyTransport] = []

    def faulty(transport: Transport) -> Transport:
        made.append(FaultyTransport(transport, 0.1, seed=seed + len(made)))
        return made[-1]

    unharmed(tell(wrap=faulty))
    # How many calls there are depends on how cycles and fake time interleave.
    assert sum(each.failed for each in made) > 10
