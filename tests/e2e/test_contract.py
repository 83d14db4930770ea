"""What upstream's suites take for granted about an installation (operations:16), beyond the specs themselves.

What specs of other modules show is not repeated: E-4, E-8, E-12 to E-15, E-18, E-23 to E-28.
"""

from __future__ import annotations

import json
from contextlib import suppress

import pytest

from pykai.api import names
from pykai.kube.errors import NotFound
from pykai.kube.resources import (
    CONFIG_MAPS,
    CONFIGS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    PROMETHEUSES,
    QUEUES,
    SCHEDULING_SHARDS,
    SERVICE_MONITORS,
    Resource,
)
from tests.e2e.endtoend import DRA_LABEL, NAMESPACE, UNLIMITED, Document, EndToEnd, is_ready
from tests.e2e.test_operated import SCHEDULER, SYSTEM, deployment
from tests.services.operator.installed import definition

pytestmark = pytest.mark.cluster_only


async def test_names_and_fields_are_those_that_are_read(e2e: EndToEnd) -> None:
    """operations:E-2, E-9, E-22."""
    listed = {each["metadata"]["name"] for each in await e2e.client.list_raw(DEPLOYMENTS, namespace=SYSTEM)}
    assert {SCHEDULER, "admission", "binder", "pod-grouper", "kai-operator"} <= listed
    await e2e.client.get_raw(NAMESPACES, "kai-resource-reservation")
    config = (await e2e.client.get_raw(CONFIGS, "kai-config"))["spec"]
    assert config["global"] is not None
    assert config["scheduler"]["service"] is not None
    assert (await e2e.client.get_raw(SCHEDULING_SHARDS, "default"))["spec"]["placementStrategy"] is not None
    (binder,) = (await deployment(e2e, "binder"))["spec"]["template"]["spec"]["containers"]
    assert isinstance(json.loads(binder["args"][binder["args"].index("--plugins") + 1]), dict)
    for app in ("binder", SCHEDULER):
        (pod,) = [each for each in e2e.system.values() if each["metadata"]["labels"].get("app") == app]
        assert pod["status"]["phase"] == "Running"


async def test_the_nodes_are_those_of_upstream(e2e: EndToEnd) -> None:
    """operations:E-30, E-33: all with GPUs have the same number of them."""
    found = {node["metadata"]["name"]: node for node in await e2e.client.list_raw(NODES)}
    for name, node in found.items():
        assert node["metadata"]["labels"]["kubernetes.io/hostname"] == name
        assert node["status"]["allocatable"]["pods"] == "110"
    with_gpus, without = e2e.gpu_nodes(), e2e.cpu_nodes()
    assert len(with_gpus) >= 4
    assert without
    for name in with_gpus:
        node = found[name]
        assert node["status"]["allocatable"][names.NVIDIA_GPU] == str(e2e.gpus_per_node)
        expected = {
            "run.ai/simulated-gpu-node-pool": "default",
            "nvidia.com/gpu.deploy.device-plugin": "true",
            "nvidia.com/gpu.deploy.dcgm-exporter": "true",
            "nvidia.com/gpu.memory": "11441",
            "nvidia.com/gpu.count": str(e2e.gpus_per_node),
        }
        assert node["metadata"]["labels"].items() >= expected.items()
    assert len([node for node in found.values() if node["metadata"]["labels"].get(DRA_LABEL) == "true"]) >= 2


async def test_maps_and_groups_may_be_deleted_while_pods_run(e2e: EndToEnd) -> None:
    """operations:E-10, E-11: also the map of the cluster's certificates, and those of shared GPUs."""
    (queue,) = await e2e.family("contract")
    shared, whole = await e2e.pod(queue, fraction="0.5"), await e2e.pod(queue, gpus=1)
    await e2e.ready(shared, whole)
    for each in await e2e.client.list_raw(CONFIG_MAPS, namespace=NAMESPACE):
        with suppress(NotFound):
            await e2e.client.delete(CONFIG_MAPS, each["metadata"]["name"], NAMESPACE)
    group = e2e.group_of(whole)
    await e2e.remove(shared, whole)
    with suppress(NotFound):
        await e2e.client.delete(POD_GROUPS, group, NAMESPACE)
    await e2e.until(lambda: not e2e.reserving.values(), "the GPU is no longer reserved", e2e.reserving)
    await e2e.ready(await e2e.pod(queue, fraction="0.5"))


async def test_all_queues_may_be_deleted_parents_first(e2e: EndToEnd) -> None:
    """operations:E-10: those of the installation, too; others work without them."""
    await e2e.family("contract")
    before = [each for each in await e2e.client.list_raw(QUEUES) if each["metadata"]["name"].startswith("default-")]
    try:
        for each in sorted(await e2e.client.list_raw(QUEUES), key=lambda found: bool(found["spec"].get("parentQueue"))):
            await e2e.client.delete(QUEUES, each["metadata"]["name"])
        (queue,) = await e2e.family("later")
        await e2e.scheduled(await e2e.pod(queue, gpus=1))
    finally:
        for each in before:
            kept = {key: each["metadata"][key] for key in ("name", "labels", "annotations") if key in each["metadata"]}
            await e2e.client.create(QUEUES, {"metadata": kept, "spec": each["spec"]})


async def test_arguments_that_no_scheduler_knows_are_left_out(e2e: EndToEnd) -> None:
    """operations:E-19."""
    unknown = {"max-number-consolidation-preemptees": "2", "knative-gang-schedule": "false"}
    async with e2e.sharded(
        args={**unknown, "full-hierarchy-fairness": "false", "default-staleness-grace-period": "30s"}
    ):
        (container,) = (await deployment(e2e, SCHEDULER))["spec"]["template"]["spec"]["containers"]
        given = " ".join(container["args"])
        assert not [name for name in unknown if name in given]
        assert "--full-hierarchy-fairness=false" in given
        (queue,) = await e2e.family("contract")
        await e2e.scheduled(await e2e.pod(queue, gpus=1))


async def test_a_scheduler_that_is_deleted_after_a_change_comes_back_once(e2e: EndToEnd) -> None:
    """operations:E-20."""
    usage = {"clientType": "builtin", "usageParams": {"windowSize": "10m", "halfLifePeriod": "5m"}}
    async with e2e.sharded(plugins={"numa": {"enabled": True}}, usageDBConfig=usage, kValue=2):
        old = {each["metadata"]["name"] for each in e2e.system_pods(SCHEDULER)}
        for name in old:
            await e2e.client.delete(PODS, name, SYSTEM, grace_s=0)

        def is_back() -> bool:
            found = {each["metadata"]["name"] for each in e2e.system_pods(SCHEDULER) if is_ready(each)}
            return len(found) == 1 and not found & old

        await e2e.until(is_back, "one other scheduler is ready", e2e.system)
        (queue,) = await e2e.family("contract")
        await e2e.scheduled(await e2e.pod(queue, gpus=1))


async def test_a_shard_with_nothing_but_its_label(e2e: EndToEnd) -> None:
    """operations:E-21: its nodes are labelled by a whole update, and are its own until it goes."""
    node = next(
        each for each in await e2e.client.list_raw(NODES) if each["metadata"]["labels"].get(DRA_LABEL) == "true"
    )
    node["metadata"]["labels"][names.NODE_POOL_LABEL] = "dra"
    made = await e2e.client.create(
        SCHEDULING_SHARDS, {"metadata": {"name": "dra-shard"}, "spec": {"partitionLabelValue": "dra"}}
    )
    try:
        await e2e.client.update(NODES, node)
        await e2e.in_force(SCHEDULING_SHARDS, made)
        amounts = {"gpu": UNLIMITED, "cpu": UNLIMITED, "memory": UNLIMITED}
        labels = {names.NODE_POOL_LABEL: "dra"}
        for name, parent in (("pool", ""), ("pool-queue", "pool")):
            spec = {"resources": amounts, **({"parentQueue": parent} if parent else {})}
            await e2e.add(QUEUES, {"metadata": {"name": name, "labels": labels}, "spec": spec})
        pod = await e2e.pod("pool-queue", labels=labels)
        await e2e.scheduled(pod)
        assert e2e.node_of(pod) == node["metadata"]["name"]
    finally:
        await e2e.client.delete(SCHEDULING_SHARDS, "dra-shard")
        patch = {"metadata": {"labels": {names.NODE_POOL_LABEL: None}}}
        await e2e.client.patch(NODES, node["metadata"]["name"], patch)
    await e2e.until(lambda: not e2e.system_pods("kai-scheduler-dra-shard"), "its scheduler is gone", e2e.system)


async def test_prometheus_is_asked_of_its_operator(e2e: EndToEnd) -> None:
    """operations:E-16, E-31: upstream's CI has the Prometheus operator's kinds, and no Prometheus."""
    kinds = (PROMETHEUSES, SERVICE_MONITORS)
    for kind in kinds:
        await _define(e2e, kind)
    async with e2e.configured(prometheus={"enabled": True}):
        for kind in kinds:
            assert await e2e.client.list_raw(kind, namespace=SYSTEM)


async def _define(e2e: EndToEnd, kind: Resource) -> Document:
    """A kind of others that is not there yet."""
    made = definition(kind)
    with suppress(NotFound):
        return await e2e.client.get_raw(CUSTOM_RESOURCE_DEFINITIONS, made["metadata"]["name"])
    return await e2e.add(CUSTOM_RESOURCE_DEFINITIONS, made)
