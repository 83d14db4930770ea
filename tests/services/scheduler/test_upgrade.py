"""A scheduler of this version takes over from one that kept plans of gangs in annotations.

The annotation is neither read nor removed: any tenant may have written it, and the engine derives
its content by itself.  A gang that was left half bound is completed by an ordinary cycle, or given back as a stale one.
"""

from __future__ import annotations

import msgspec

from pykai.api import names
from pykai.kube import resources
from tests.services.scheduler.schedulercluster import SchedulerCluster, scheduler_cluster


async def left_half_bound(lab: SchedulerCluster, places: dict[str, str]) -> str:
    """As the version before has left it: the plan on the PodGroup, the first pod bound; the text of the plan."""
    uids = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in await lab.client.list_raw(resources.PODS)}
    text = msgspec.json.encode([[pod, uids[pod], node] for pod, node in places.items()]).decode()
    annotations = {names.BIND_PLAN_ANNOTATION: text}
    await lab.client.patch(resources.POD_GROUPS, "train", {"metadata": {"annotations": annotations}}, "default")
    pod, node = next(iter(places.items()))
    await lab.client.bind("default", pod, uid=uids[pod], node=node)
    await lab.pods.wait_until(lambda _: len(lab.placed("train")) == 1, 10)
    return text


async def test_a_gang_that_the_version_before_left_half_bound_becomes_whole() -> None:
    """On nodes of the engine's choice: the one that the plan names is closed by now."""
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1)
        await lab.node("b", gpus=2)
        await lab.node("c", gpus=2)
        await lab.gang("train", pods=3, gpu=1)
        text = await left_half_bound(lab, {"train-0": "a", "train-1": "b", "train-2": "b"})
        await lab.client.patch(resources.NODES, "b", {"spec": {"unschedulable": True}})
        async with lab.scheduler():
            await lab.until_bound("train", 3)
            await lab.until_no_records()
        assert lab.placed("train") == {"train-0": "a", "train-1": "c", "train-2": "c"}
        assert lab.annotation("train", names.BIND_PLAN_ANNOTATION) == text


async def test_one_of_which_bind_requests_were_written_becomes_whole() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=2, memory_mib=40000)
        await lab.gang("train", pods=2, annotations={"gpu-fraction": "0.5"})
        pod = await lab.client.get_raw(resources.PODS, "train-0", "default")
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "train-0", "uid": pod["metadata"]["uid"]}
        spec = {
            "podName": "train-0",
            "selectedNode": "a",
            "receivedResourceType": "Fraction",
            "receivedGPU": {"count": 1, "portion": "0.50"},
            "selectedGPUGroups": ["g"],
        }
        meta = {"name": "train-0", "ownerReferences": [owner]}
        await lab.create(resources.BIND_REQUESTS, {"metadata": meta, "spec": spec})
        async with lab.scheduler():
            await lab.requests.wait_until(lambda store: len(store) == 2, 10)
        other = lab.requests.get("default/train-1")
        assert other is not None
        assert other.spec.selected_node == "a"


async def test_a_gang_that_cannot_become_whole_is_given_back() -> None:
    async with scheduler_cluster(speed=100) as lab:
        await lab.node("a", gpus=1)
        await lab.gang("train", pods=2, gpu=1)
        await left_half_bound(lab, {"train-0": "a", "train-1": "gone"})
        await lab.client.patch(
            resources.PODS, "train-0", {"status": {"phase": "Running"}}, "default", subresource="status"
        )
        async with lab.scheduler():
            await lab.pods.wait_until(
                lambda store: (
                    (found := store.get("default/train-0")) is None or found.metadata.deletion_timestamp is not None
                ),
                20,
            )
        assert lab.event_messages("StaleJob", "train")
        assert not lab.event_messages("GangBroken")
