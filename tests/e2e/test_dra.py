"""Claims of devices (operations:17): allocate/resources, preempt and reclaim with GPUs that a driver publishes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from pykai.api import names
from pykai.kube.resources import DEVICE_CLASSES, PODS, QUEUES, RESOURCE_CLAIMS
from tests.e2e import claims
from tests.e2e.claims import claiming, pod_with_claim
from tests.e2e.endtoend import DEVICE_PLUGIN_LABEL, DRA_LABEL, NAMESPACE, Document, EndToEnd, template
from tests.e2e.test_allocate_predicates import on_node
from tests.e2e.test_reclaim import PRIORITY, divided, queues

HOSTNAME = names.HOSTNAME_LABEL


@pytest.fixture
async def queue(e2e: EndToEnd) -> str:
    (made,) = await e2e.family("dra")
    return made


@pytest.fixture
async def extended(e2e: EndToEnd) -> AsyncIterator[None]:
    """Devices of the class also serve pods that ask for whole GPUs in the old way."""

    async def serve(resource: str | None) -> None:
        await e2e.client.patch(DEVICE_CLASSES, names.GPU_DEVICE_CLASS, {"spec": {"extendedResourceName": resource}})

    await serve(names.NVIDIA_GPU)
    yield
    await serve(None)


def for_label(label: str) -> dict[str, Any]:
    """The spec of a pod for nodes with a label."""
    chosen = [{"matchExpressions": [{"key": label, "operator": "In", "values": ["true"]}]}]
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": chosen}}}
    }


async def large(e2e: EndToEnd) -> tuple[str, str]:
    """The nodes with several devices."""
    first, second = await claims.nodes_with(e2e, 8)
    return first, second


async def synthetic_claims(e2e: EndToEnd, pod: str) -> list[Document]:
    """operations:E-28: the claims that were made for what a pod asks for in the old way."""
    return [
        each
        for each in await e2e.client.list_raw(RESOURCE_CLAIMS, namespace=NAMESPACE)
        if each["metadata"].get("annotations", {}).get(names.EXTENDED_RESOURCE_CLAIM_ANNOTATION) == "true"
        and [(owner["name"], owner.get("controller")) for owner in each["metadata"]["ownerReferences"]] == [(pod, True)]
    ]


# allocate/resources


async def test_a_pod_with_a_claim(e2e: EndToEnd, queue: str) -> None:
    pod = await e2e.pod(queue, **claiming(await claims.add(e2e, queue)))
    await e2e.scheduled(pod)
    await e2e.ready(pod)


async def test_a_claim_of_an_unknown_class(e2e: EndToEnd, queue: str) -> None:
    claim = await claims.add(e2e, queue, device_class="fake-device-class")
    await e2e.unschedulable(await e2e.pod(queue, **claiming(claim)))


async def test_claims_of_a_template_fill_a_node(e2e: EndToEnd, queue: str) -> None:
    node, _ = await large(e2e)
    wanted = {**claiming(of_template=await claims.add_template(e2e, queue)), **on_node(node)}
    pods = await e2e.pods(8, queue, **wanted)
    await e2e.scheduled(*pods)
    await e2e.ready(*pods)
    await e2e.unschedulable(await e2e.pod(queue, **wanted))


async def test_a_queue_shows_the_devices_of_claims(e2e: EndToEnd, queue: str) -> None:
    """operations:E-27."""
    await e2e.group("group", queue, 2)
    pods = [
        await e2e.pod(queue, group="group", **claiming(await claims.add(e2e, queue, devices))) for devices in (1, 2)
    ]
    await e2e.scheduled(*pods)
    await e2e.ready(*pods)

    def shown() -> list[Any]:
        status = (e2e.stores[QUEUES].get(queue) or {}).get("status", {})
        return [status.get(field, {}).get(names.GPU_DEVICE_CLASS) for field in ("requested", "allocated")]

    await e2e.until(lambda: shown() == ["3", "3"], f"the queue shows 3 devices: {shown()}", QUEUES)


# allocate/resources: whole GPUs asked for in the old way


@pytest.mark.usefixtures("extended")
async def test_a_pod_without_claims_gets_one(e2e: EndToEnd, queue: str) -> None:
    pod = await e2e.pod(queue, gpus=1, **on_node((await large(e2e))[0]))
    await e2e.scheduled(pod)
    (claim,) = await synthetic_claims(e2e, pod)
    found = await e2e.client.get_raw(PODS, pod, NAMESPACE)
    assert found["status"]["extendedResourceClaimStatus"]["resourceClaimName"] == claim["metadata"]["name"]


@pytest.mark.usefixtures("extended")
async def test_pods_without_claims_fill_a_node(e2e: EndToEnd, queue: str) -> None:
    node = on_node((await large(e2e))[0])
    await e2e.scheduled(*await e2e.pods(8, queue, gpus=1, **node))
    await e2e.unschedulable(await e2e.pod(queue, gpus=1, **node))


@pytest.mark.usefixtures("extended")
async def test_a_gang_without_claims(e2e: EndToEnd, queue: str) -> None:
    await e2e.scheduled(*await e2e.gang("gang", queue, 2, minimum=2, gpus=1, **for_label(DRA_LABEL)))


@pytest.mark.usefixtures("extended")
async def test_init_containers_ask_for_the_same_device(e2e: EndToEnd, queue: str) -> None:
    (node,) = await claims.nodes_with(e2e, 1)
    (container,) = template("", gpus=1)["spec"]["containers"]
    first = {**container, "name": "init", "args": ["true"]}
    await e2e.scheduled(await e2e.pod(queue, gpus=1, initContainers=[first], **on_node(node)))


@pytest.mark.usefixtures("extended")
async def test_a_pod_on_a_node_with_a_device_plugin_gets_no_claim(e2e: EndToEnd, queue: str) -> None:
    """Upstream looks for ten seconds; a claim would be there before its pod is bound."""
    pod = await e2e.pod(queue, gpus=1, **for_label(DEVICE_PLUGIN_LABEL))
    await e2e.ready(pod)
    assert await synthetic_claims(e2e, pod) == []


# preempt


async def preempts_on_one_node(e2e: EndToEnd, queue: str, **wanted: Any) -> None:
    """Pods of a low priority fill a node, one of a high priority takes the place of one of them."""
    wanted |= on_node((await large(e2e))[0])
    low = await e2e.pods(8, queue, priorityClassName="e2e-low", **wanted)
    await e2e.scheduled(*low)
    await e2e.ready(*low)
    one_more = await e2e.pod(queue, priorityClassName="e2e-low", **wanted)
    await e2e.unschedulable(one_more)
    high = await e2e.pod(queue, priorityClassName="e2e-high", **wanted)
    await e2e.scheduled(high)
    await e2e.ready(high)
    assert len(e2e.there(low)) == 7
    await e2e.unschedulable(one_more)


async def test_a_high_priority_takes_the_device_of_a_claim(e2e: EndToEnd, queue: str) -> None:
    await preempts_on_one_node(e2e, queue, **claiming(of_template=await claims.add_template(e2e, queue)))


@pytest.mark.usefixtures("extended")
async def test_a_high_priority_takes_a_device_without_claims(e2e: EndToEnd, queue: str) -> None:
    await preempts_on_one_node(e2e, queue, gpus=1)


async def test_a_gang_with_claims_over_two_nodes_preempts(e2e: EndToEnd, queue: str) -> None:
    one = claiming(of_template=await claims.add_template(e2e, queue))
    whole = claiming(of_template=await claims.add_template(e2e, queue, 8))
    low = [
        await e2e.pod(queue, priorityClassName="e2e-low", **one, **on_node(node))
        for node in await large(e2e)
        for _ in range(8)
    ]
    await e2e.scheduled(*low)
    gang = await e2e.gang("gang", queue, 2, minimum=2, priority="e2e-high", priorityClassName="e2e-high", **whole)
    await e2e.scheduled(*gang)
    assert {e2e.node_of(pod) for pod in gang} == set(await large(e2e))
    assert not e2e.there(low)


# reclaim


async def test_a_queue_reclaims_no_more_devices_than_it_deserves(e2e: EndToEnd) -> None:
    having, taking = await queues(e2e, 4, 1, 1)
    await e2e.scheduled(*[await pod_with_claim(e2e, having, devices) for devices in (2, 1, 1)])
    await e2e.scheduled(await pod_with_claim(e2e, taking, 1))
    await e2e.unschedulable(await pod_with_claim(e2e, taking, 2))


async def test_elastic_groups_of_claims_shrink_evenly(e2e: EndToEnd) -> None:
    taking, having = await queues(e2e, 4, 2, 2)
    one = claiming(of_template=await claims.add_template(e2e, having))
    groups = [await e2e.gang(name, having, 2, **one) for name in ("first", "second")]
    await e2e.scheduled(*groups[0], *groups[1])
    await e2e.scheduled(await pod_with_claim(e2e, taking, 2))
    await e2e.until(lambda: [len(e2e.there(pods)) for pods in groups] == [1, 1], "a pod of each group stays")


async def test_weights_and_then_a_priority_decide_about_claims(e2e: EndToEnd) -> None:
    node: dict[str, Any] = {"nodeSelector": {HOSTNAME: (await large(e2e))[0]}}
    first, second, third = await queues(e2e, 8, 1, 1, 0, weights=(1, 2, 1), priority=PRIORITY)
    jobs = {}
    for queue in (first, second):
        one = claiming(of_template=await claims.add_template(e2e, queue))
        jobs[queue] = [await e2e.job(queue, **one, **node) for _ in range(10)]
    await divided(e2e, {3: jobs[first], 5: jobs[second]})
    await e2e.scheduled(await pod_with_claim(e2e, third, 3, **node))
    await divided(e2e, {2: jobs[first], 3: jobs[second]})
