"""The node scale adjuster on an API server (gpu:SA-2 to SA-8, T-125)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from pykai.api import names
from pykai.api.core import Pod
from pykai.kube import resources
from pykai.kube.runtime import Runtime
from pykai.kube.store import Store
from pykai.kube.transport import Request, Response
from pykai.nodescale.options import NodeScaleOptions
from pykai.nodescale.service import NodeScaleAdjuster
from tests.servers import ensure_namespace
from tests.services.servicecluster import ServiceCluster, refusal, service_cluster

SCALING = names.SCALE_ADJUST_NAMESPACE


@pytest.fixture
async def place() -> AsyncIterator[ServiceCluster]:
    async with service_cluster("node-scale-adjuster") as found:
        await ensure_namespace(found.client, SCALING)
        account = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "scaling-pod", "namespace": SCALING},
        }
        await found.ensure(account)
        yield found


def adjuster(**options: Any) -> Any:
    def make(runtime: Runtime) -> NodeScaleAdjuster:
        return NodeScaleAdjuster(runtime, NodeScaleOptions(settle_s=0.01, **options))

    return make


async def unschedulable(place: ServiceCluster, name: str, fraction: str, devices: str = "1", **spec: Any) -> None:
    """A pod that shares GPUs and fits nowhere."""
    asked = {"gpu-fraction": fraction, "gpu-fraction-num-devices": devices}
    await place.pod(name, annotations=asked, spec=spec)
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    await place.pod_status(name, conditions=[condition])


def scaling_pods(pods: Store[Pod]) -> dict[str, Pod]:
    """Name of a pod -> its scaling pod."""
    return {
        pod.metadata.labels["shared-gpu-pod-name"]: pod
        for pod in pods.values()
        if pod.metadata.namespace == SCALING and pod.metadata.deletion_timestamp is None
    }


def for_pods(*wanted: str) -> Any:
    return lambda pods: sorted(scaling_pods(pods)) == sorted(wanted)


async def test_a_share_that_fits_nowhere_gets_a_scaling_pod_that_goes_with_it(place: ServiceCluster) -> None:
    async with place.running(adjuster()):
        await unschedulable(place, "p", "0.7", nodeSelector={"gpu": "h100"})
        await place.pods.wait_until(
            lambda pods: any(
                c.reason == "Unschedulable" for pod in scaling_pods(pods).values() for c in pod.status.conditions
            )
        )
        pod = scaling_pods(place.pods)["p"]
        assert pod.spec.node_selector == {"gpu": "h100"}
        assert pod.spec.scheduler_name == "default-scheduler"
        message = await place.wait_for_warning("p", "ScaleUpRequested")
        assert message == f"asked for a node with a GPU through scaling pod kai-scale-adjust/{pod.metadata.name}"
        await place.client.delete(resources.PODS, "p", "default", grace_s=0)
        await place.pods.wait_until(for_pods())


async def test_t125_nothing_is_created_for_a_while_after_a_removal(place: ServiceCluster) -> None:
    async with place.running(adjuster()) as service:
        await unschedulable(place, "gone", "0.7")
        await place.pods.wait_until(for_pods("gone"))
        await place.client.delete(resources.PODS, "gone", "default", grace_s=0)
        await place.pods.wait_until(for_pods())
        await unschedulable(place, "p", "0.7")
        await place.settled(service)
        assert scaling_pods(place.pods) == {}


async def test_t125_without_a_pause_the_next_comes_at_once(place: ServiceCluster) -> None:
    async with place.running(adjuster(cooldown_s=0.0)):
        await unschedulable(place, "gone", "0.7")
        await place.pods.wait_until(for_pods("gone"))
        await place.client.delete(resources.PODS, "gone", "default", grace_s=0)
        await unschedulable(place, "a", "0.7")
        await unschedulable(place, "b", "0.7")
        await place.pods.wait_until(for_pods("a", "b"))


async def test_a_scaling_pod_that_ended_is_deleted(place: ServiceCluster) -> None:
    async with place.running(adjuster()):
        await unschedulable(place, "p", "0.7")
        await place.pods.wait_until(for_pods("p"))
        await place.pod_status(scaling_pods(place.pods)["p"].metadata.name, SCALING, phase="Succeeded")
        await place.pods.wait_until(for_pods())


async def test_a_pod_that_still_fits_nowhere_gets_the_next_one_and_its_event_is_counted(place: ServiceCluster) -> None:
    def is_counted(events: Store[dict[str, Any]]) -> bool:
        return any(event["reason"] == "ScaleUpRequested" and event["count"] == 2 for event in events.values())

    async with place.running(adjuster(cooldown_s=0.0)):
        await unschedulable(place, "p", "0.7")
        await place.pods.wait_until(for_pods("p"))
        await place.wait_for_warning("p", "ScaleUpRequested")
        await place.pod_status(scaling_pods(place.pods)["p"].metadata.name, SCALING, phase="Succeeded")
        await place.events.wait_until(is_counted)


async def test_t127_a_pod_that_is_refused_stops_no_other(place: ServiceCluster) -> None:
    wire = place.wire()

    def fault(request: Request) -> Response | None:
        is_refused = request.method == "POST" and b'"shared-gpu-pod-name":"a"' in (request.body or b"")
        return refusal(403, "Forbidden") if is_refused else None

    wire.fault = fault
    await unschedulable(place, "a", "0.9")
    await unschedulable(place, "b", "0.9")
    async with place.running(adjuster(), transport=wire):
        await place.pods.wait_until(for_pods("b"))


async def test_a_restarted_service_creates_no_second_one(place: ServiceCluster) -> None:
    await unschedulable(place, "p", "0.7")
    async with place.running(adjuster()):
        await place.pods.wait_until(for_pods("p"))
    wire = place.wire()
    async with place.running(adjuster(), transport=wire) as service:
        await place.settled(service)
    assert wire.writes == []


async def test_other_pods_in_the_namespace_are_left_alone(place: ServiceCluster) -> None:
    await place.pod("stranger", namespace=SCALING, scheduler="default-scheduler")
    wire = place.wire()
    async with place.running(adjuster(), transport=wire) as service:
        await place.settled(service)
    assert wire.writes == []
