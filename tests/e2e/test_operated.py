"""Specs that change the Config or the shard (operations:17, those with +o): they run alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pykai.api import names
from pykai.kube.errors import Forbidden
from pykai.kube.resources import CONFIG_MAPS, DEPLOYMENTS, ENDPOINT_SLICES, LEASES, NODES, PODS
from tests.e2e.endtoend import NAMESPACE, Document, EndToEnd, limited, template
from tests.e2e.test_allocate_predicates import on_node

pytestmark = pytest.mark.cluster_only

SYSTEM = names.DEFAULT_NAMESPACE
SCHEDULER = "kai-scheduler-default"


@pytest.fixture
async def queue(e2e: EndToEnd) -> str:
    (made,) = await e2e.family("operated")
    return made


def strategy(kind: str) -> Document:
    """Where pods go first."""
    return {"gpu": kind, "cpu": kind}


async def deployment(e2e: EndToEnd, name: str) -> Document:
    """A Deployment of the installation."""
    return await e2e.client.get_raw(DEPLOYMENTS, name, SYSTEM)


async def gpu_of(e2e: EndToEnd, pod: str) -> str:
    """operations:E-26: the GPU that a config map names, which a variable of the pod shows."""
    found = e2e.get(pod)
    assert found is not None
    (reference,) = [
        each["valueFrom"]["configMapKeyRef"]
        for each in found["spec"]["containers"][0]["env"]
        if each["name"] == "NVIDIA_VISIBLE_DEVICES"
    ]
    named = await e2e.client.get_raw(CONFIG_MAPS, reference["name"], NAMESPACE)
    return f"{found['spec']['nodeName']}/{named['data'][reference['key']]}"


async def two(e2e: EndToEnd, queue: str, **fields: Any) -> tuple[str, str]:
    """Two equal pods, one after the other."""
    first = await e2e.pod(queue, **fields)
    await e2e.ready(first)
    second = await e2e.pod(queue, **fields)
    await e2e.ready(second)
    return first, second


@pytest.mark.parametrize("kind", ["binpack", "spread"])
async def test_whole_gpus_go_where_the_strategy_says(e2e: EndToEnd, queue: str, kind: str) -> None:
    async with e2e.sharded(placementStrategy=strategy(kind)):
        first, second = await two(e2e, queue, gpus=1)
        assert (e2e.node_of(first) == e2e.node_of(second)) is (kind == "binpack")


async def test_fractions_are_packed_on_one_gpu(e2e: EndToEnd, queue: str) -> None:
    async with e2e.sharded(placementStrategy=strategy("binpack")):
        first, second = await two(e2e, queue, fraction="0.5")
        assert await gpu_of(e2e, first) == await gpu_of(e2e, second)


async def test_fractions_are_spread_over_nodes(e2e: EndToEnd, queue: str) -> None:
    async with e2e.sharded(placementStrategy=strategy("spread")):
        first, second = await two(e2e, queue, fraction="0.5")
        assert e2e.node_of(first) != e2e.node_of(second)


async def test_fractions_are_spread_over_the_gpus_of_a_node(e2e: EndToEnd, queue: str) -> None:
    async with e2e.sharded(placementStrategy=strategy("spread")):
        first, second = await two(e2e, queue, fraction="0.5", **on_node(e2e.gpu_nodes()[0]))
        assert await gpu_of(e2e, first) != await gpu_of(e2e, second)


@pytest.mark.parametrize("worker", ["gpu", "cpu"])
async def test_workers_take_only_their_kind_of_pod(e2e: EndToEnd, queue: str, worker: str) -> None:
    node = e2e.gpu_nodes()[0] if worker == "gpu" else e2e.cpu_nodes()[0]
    label = names.GPU_WORKER_NODE_LABEL if worker == "gpu" else names.CPU_WORKER_NODE_LABEL
    await e2e.client.patch(NODES, node, {"metadata": {"labels": {label: "true"}}})
    try:
        async with e2e.sharded(args={"restrict-node-scheduling": "true"}):
            with_gpu, without = await e2e.pod(queue, gpus=1), await e2e.pod(queue, cpu="100m")
            taken, left = (with_gpu, without) if worker == "gpu" else (without, with_gpu)
            await e2e.scheduled(taken)
            await e2e.unschedulable(left)
            assert e2e.node_of(taken) == node
    finally:
        await e2e.client.patch(NODES, node, {"metadata": {"labels": {label: None}}})


@pytest.mark.parametrize("given_as", ["label", "class"])
async def test_the_highest_priority_goes_first_once_the_scheduler_is_back(e2e: EndToEnd, given_as: str) -> None:
    """operations:E-12: meanwhile nothing is scheduled, and PodGroups are made all the same."""
    (queue,) = await e2e.family("operated", of={"queue": {"gpu": limited(1)}})
    pods = {}
    async with e2e.configured(scheduler={"service": {"enabled": False}}):
        await e2e.until(lambda: not e2e.system_pods(SCHEDULER), "no scheduler runs", e2e.system)
        for priority in ("e2e-low", "e2e-high"):
            if given_as == "label":
                pods[priority] = await e2e.pod(queue, gpus=1, labels={"priorityClassName": priority})
            else:
                pods[priority] = await e2e.pod(queue, gpus=1, priorityClassName=priority)
        await e2e.until(lambda: all(map(e2e.group_of, pods.values())), "both pods have a group")
    await e2e.scheduled(pods["e2e-high"])
    await e2e.unschedulable(pods["e2e-low"])
    assert len(e2e.system_pods(SCHEDULER)) == 1


async def test_pull_secrets_reach_all_deployments(e2e: EndToEnd) -> None:
    """operations:E-14."""
    async with e2e.configured(**{"global": {"additionalImagePullSecrets": ["e2e-secret"]}}):
        listed = await e2e.client.list_raw(DEPLOYMENTS, namespace=SYSTEM)
        ours = {
            each["metadata"]["name"]: each["spec"]["template"]["spec"].get("imagePullSecrets")
            for each in listed
            if each["metadata"].get("labels", {}).get("app") not in (None, "kai-operator")
        }
        assert {"binder", "admission", SCHEDULER} <= ours.keys()
        assert set(map(str, ours.values())) == {str([{"name": "e2e-secret"}])}


async def test_the_metrics_lead_to_the_scheduler_that_leads(e2e: EndToEnd) -> None:
    """operations:E-13."""
    async with e2e.configured(scheduler={"replicas": 2}):
        await e2e.until(lambda: len(e2e.system_pods(SCHEDULER)) == 2, "two schedulers run", e2e.system)
        leader = await routed(e2e)
        await e2e.client.delete(PODS, leader, SYSTEM, grace_s=0)
        await e2e.until(
            lambda: leader not in {pod["metadata"]["name"] for pod in e2e.system_pods(SCHEDULER)},
            "the leader is gone",
            e2e.system,
        )
        assert await routed(e2e) != leader


async def routed(e2e: EndToEnd) -> str:
    """The one pod that holds the lease and to which the metrics lead."""
    async with asyncio.timeout(120):
        while True:
            addresses = {pod["metadata"]["name"]: pod["status"].get("podIP") for pod in e2e.system_pods(SCHEDULER)}
            leases = await e2e.client.list_raw(LEASES, namespace=SYSTEM)
            holders = {each["metadata"]["name"]: each["spec"].get("holderIdentity") or "" for each in leases}
            leader = holders.get("kai-scheduler", "").partition("_")[0]
            slices = await e2e.client.list_raw(ENDPOINT_SLICES, namespace=SYSTEM)
            routed_to = [each for each in slices if each["metadata"]["name"] == f"{SCHEDULER}-leader"]
            ready = [
                endpoint["addresses"]
                for each in routed_to
                for endpoint in each.get("endpoints") or ()
                if endpoint["conditions"]["ready"]
            ]
            if leader in addresses and ready == [[addresses[leader]]]:
                assert [each["addressType"] for each in routed_to] == ["IPv4"]
                return leader
            await asyncio.sleep(0.2)


def asking_for(devices: str, gpus: int = 0) -> Document:
    """A container that says which devices it sees."""
    (made,) = template("", gpus=gpus)["spec"]["containers"]
    return {**made, "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": devices}]}


async def test_devices_are_checked_if_the_config_says_so(e2e: EndToEnd, queue: str) -> None:
    """operations:E-15."""
    await e2e.pod(queue, containers=[asking_for("all")])
    async with e2e.configured(admission={"blockNvidiaVisibleDevices": True}):
        (container,) = (await deployment(e2e, "admission"))["spec"]["template"]["spec"]["containers"]
        assert "--block-nvidia-visible-devices=true" in container["args"]
        for devices in ("1", "1,2", "all"):
            with pytest.raises(Forbidden):
                await e2e.pod(queue, containers=[asking_for(devices, gpus=1)])
        for devices in ("void", "none"):
            await e2e.pod(queue, containers=[asking_for(devices, gpus=1)])
        (plain,), (with_gpu,) = template("")["spec"]["containers"], template("", gpus=1)["spec"]["containers"]
        name = await e2e.pod(queue, containers=[{**plain, "name": "plain"}, with_gpu])
        made = await e2e.client.get_raw(PODS, name, NAMESPACE)
        seen = {
            each["name"]: [entry["value"] for entry in each.get("env") or ()] for each in made["spec"]["containers"]
        }
        assert seen == {"plain": ["void"], "ubuntu-container": []}
    (container,) = (await deployment(e2e, "admission"))["spec"]["template"]["spec"]["containers"]
    assert "--block-nvidia-visible-devices=true" not in container["args"]
