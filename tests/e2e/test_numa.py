"""numa (operations:17): nodes with two zones, each with half of the node's GPUs, cores and memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pykai.api import names
from pykai.kube.resources import SCHEDULING_SHARDS
from tests.e2e.endtoend import NUMA_LABEL, Document, EndToEnd, deserves, end_to_end, limited
from tests.e2e.installation import NUMA_NODES
from tests.e2e.shards import has_operator, restart_scheduler
from tests.e2e.test_allocate_predicates import on_node

SINGLE, RESTRICTED, BEST_EFFORT, NO_POLICY = NUMA_NODES.values()
ZONE, NODE = 2, 4
#: a Guaranteed pod whose cores and memory are in no zone's way, and one that needs two zones of both
SMALL: dict[str, Any] = {"cpu": "500m", "memory": "128Mi"}
WIDE: dict[str, Any] = {"cpu": "20", "memory": "80Gi"}


@pytest.fixture(scope="module", autouse=True)
def _zones_count(installed: Path) -> Iterator[None]:
    """The shard enables the plugin (operations:E-20); a lab has no shard, and the plugin on."""
    asyncio.run(_enable(installed, enabled=True))
    yield
    asyncio.run(_enable(installed, enabled=False))


async def _enable(kubeconfig: Path, *, enabled: bool) -> None:
    async with end_to_end(kubeconfig) as e2e:
        if await has_operator(e2e):
            patch = {"spec": {"plugins": {"numa": {"enabled": True} if enabled else None}}}
            await e2e.in_force(SCHEDULING_SHARDS, await e2e.client.patch(SCHEDULING_SHARDS, "default", patch))
            await restart_scheduler(e2e)


@pytest.fixture
async def queue(e2e: EndToEnd) -> str:
    (made,) = await e2e.family("numa", of={"queue": {"gpu": deserves(64)}}, gpu=deserves(64))
    return made


def pinned(node: str) -> dict[str, Any]:
    """The spec of a pod for a node with zones."""
    own = {"key": NUMA_LABEL, "operator": "Exists", "effect": "NoSchedule"}
    gpu = {"key": names.NVIDIA_GPU, "operator": "Exists", "effect": "NoSchedule"}
    return {"tolerations": [own, gpu], **on_node(node)}


async def guaranteed(e2e: EndToEnd, queue: str, node: str, gpus: int, **fields: Any) -> str:
    """A pod of the QoS class Guaranteed."""
    return await e2e.pod(queue, gpus=gpus, **{**SMALL, **pinned(node), **fields})


def observed(pod: Document | None) -> dict[str, int]:
    """Zone -> GPUs that a pod was given there."""
    text = ((pod or {}).get("metadata", {}).get("annotations") or {}).get(names.NUMA_OBSERVED_ANNOTATION)
    return {each["zone"]: int(each["amount"].get(names.NVIDIA_GPU, 0)) for each in json.loads(text or "[]")}


async def placed(e2e: EndToEnd, pod: str) -> dict[str, int]:
    """The same, once it is known."""
    await e2e.scheduled(pod)
    await e2e.until(lambda: bool(observed(e2e.get(pod))), f"zones of {pod} are observed")
    return observed(e2e.get(pod))


# modes


async def test_a_request_that_fits_a_zone(e2e: EndToEnd, queue: str) -> None:
    pod = await guaranteed(e2e, queue, SINGLE, ZONE)
    assert list((await placed(e2e, pod)).values()) == [ZONE]
    found = e2e.get(pod)
    assert found is not None
    assert found["status"]["qosClass"] == "Guaranteed"


async def test_a_request_over_two_zones_waits_where_one_is_the_rule(e2e: EndToEnd, queue: str) -> None:
    """Also qos: a Guaranteed request is filtered."""
    await e2e.unschedulable(await guaranteed(e2e, queue, SINGLE, ZONE + 1))
    await e2e.scheduled(await guaranteed(e2e, queue, SINGLE, ZONE))


async def test_a_request_that_needs_two_zones_of_everything(e2e: EndToEnd, queue: str) -> None:
    zones = await placed(e2e, await guaranteed(e2e, queue, RESTRICTED, ZONE + 1, **WIDE))
    assert sorted(zones.values()) == [1, ZONE]


async def test_a_request_beyond_all_zones(e2e: EndToEnd, queue: str) -> None:
    await e2e.unschedulable(await guaranteed(e2e, queue, RESTRICTED, NODE + 1))


@pytest.mark.parametrize("node", [BEST_EFFORT, NO_POLICY])
async def test_a_request_over_two_zones_where_that_is_no_rule(e2e: EndToEnd, queue: str, node: str) -> None:
    await e2e.scheduled(await guaranteed(e2e, queue, node, ZONE + 1))


async def test_a_node_that_says_nothing_about_zones(e2e: EndToEnd, queue: str) -> None:
    await e2e.scheduled(await e2e.pod(queue, cpu="250m", memory="128Mi", **on_node(e2e.cpu_nodes()[0])))


# qos


async def test_devices_of_a_burstable_pod_are_aligned_and_its_cores_are_not(e2e: EndToEnd, queue: str) -> None:
    """gpu:N-7. Upstream's spec expects that a Burstable pod passes, its scheduler aligns devices of every pod."""
    cores = {"requests": {"cpu": "20"}, **pinned(SINGLE)}
    await e2e.unschedulable(await e2e.pod(queue, gpus=ZONE + 1, **cores))
    pod = await e2e.pod(queue, gpus=ZONE, **cores)
    assert list((await placed(e2e, pod)).values()) == [ZONE]


async def test_a_best_effort_pod_passes(e2e: EndToEnd, queue: str) -> None:
    await e2e.ready(await e2e.pod(queue, **pinned(SINGLE)))


# reclaim


async def reclaims(e2e: EndToEnd, node: str, victim: int) -> str:
    """A node is full of pods of one queue; the other queue, which deserves all of it."""
    having, taking = await e2e.family(
        "numa", of={"having": {"gpu": deserves(0)}, "taking": {"gpu": deserves(NODE)}}, gpu=limited(NODE)
    )
    victims = [await guaranteed(e2e, having, node, victim) for _ in range(NODE // victim)]
    for pod in victims:
        await placed(e2e, pod)
    return taking


@pytest.mark.parametrize(
    ("node", "victim", "asked", "zones"),
    [
        (SINGLE, ZONE, ZONE, 1),
        (RESTRICTED, ZONE, ZONE, 1),
        (RESTRICTED, ZONE, ZONE + 1, 2),
        (RESTRICTED, 1, ZONE + 1, 2),
        (RESTRICTED, ZONE, NODE, 2),
    ],
)
async def test_zones_are_reclaimed(e2e: EndToEnd, node: str, victim: int, asked: int, zones: int) -> None:
    queue = await reclaims(e2e, node, victim)
    pod = await guaranteed(e2e, queue, node, asked, **(WIDE if zones == 2 else SMALL))
    given = await placed(e2e, pod)
    assert (len(given), sum(given.values())) == (zones, asked)


async def test_a_gang_reclaims_both_zones(e2e: EndToEnd) -> None:
    queue = await reclaims(e2e, RESTRICTED, ZONE)
    job = await e2e.job(queue, pods=2, gpus=ZONE, **SMALL, **pinned(RESTRICTED))
    await e2e.jobs_scheduled(2, job)
    given = [await placed(e2e, pod["metadata"]["name"]) for pod in e2e.of_job(job)]
    assert sorted(map(tuple, given)) == [("node-0",), ("node-1",)]
    assert [sum(each.values()) for each in given] == [ZONE, ZONE]


# preempt


async def test_one_more_victim_opens_a_zone(e2e: EndToEnd, queue: str) -> None:
    low = [await guaranteed(e2e, queue, RESTRICTED, 1, priorityClassName="e2e-low") for _ in range(NODE)]
    in_zone: dict[str, str] = {}
    for pod in low:
        (zone,) = await placed(e2e, pod)
        in_zone[zone] = pod
    assert len(in_zone) == 2
    await e2e.remove(*in_zone.values())
    left = [pod for pod in low if pod not in in_zone.values()]
    high = await guaranteed(e2e, queue, RESTRICTED, 2, priorityClassName="e2e-high")
    assert list((await placed(e2e, high)).values()) == [2]
    assert len(e2e.there(left)) == len(left) - 1
