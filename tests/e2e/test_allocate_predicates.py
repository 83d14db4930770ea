"""allocate/predicates and allocate/node_order (operations:17): where a pod may go, and where it goes.

Those that change the shard are in test_shards.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from pykai.kube.resources import CONFIG_MAPS, NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from tests.e2e.endtoend import NAMESPACE, Document, EndToEnd

HOSTNAME = "kubernetes.io/hostname"
TAINT = {"key": "e2e-taint", "value": "true", "effect": "NoSchedule"}


@pytest.fixture
async def queue(e2e: EndToEnd) -> str:
    (made,) = await e2e.family("predicates")
    return made


def mounting(config_map: str) -> dict[str, Any]:
    """The spec of a pod that shows a config map."""
    return {"mounts": ["config"], "volumes": [{"name": "config", "configMap": {"name": config_map}}]}


def on_node(name: str) -> dict[str, Any]:
    """The spec of a pod for one node."""
    chosen = [{"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [name]}]}]
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": chosen}}}
    }


def near(label: str, *, preferred: bool = False, apart: bool = False) -> dict[str, Any]:
    """The spec of a pod near, or apart from, pods with a label."""
    term = {"labelSelector": {"matchLabels": {"e2e-app": label}}, "topologyKey": HOSTNAME}
    kind = "podAntiAffinity" if apart else "podAffinity"
    if preferred:
        rule: Document = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 10, "podAffinityTerm": term}]}
    else:
        rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"affinity": {kind: rule}}


async def test_a_pod_whose_config_map_exists(e2e: EndToEnd, queue: str) -> None:
    await e2e.client.create(CONFIG_MAPS, {"metadata": {"name": "there"}, "data": {}}, NAMESPACE)
    await e2e.scheduled(await e2e.pod(queue, **mounting("there")))


async def test_a_pod_whose_config_map_is_missing(e2e: EndToEnd, queue: str) -> None:
    await e2e.unschedulable(await e2e.pod(queue, **mounting("missing")))


async def test_a_pod_for_a_node(e2e: EndToEnd, queue: str) -> None:
    node = e2e.gpu_nodes()[3]
    pod = await e2e.pod(queue, **on_node(node))
    await e2e.scheduled(pod)
    assert e2e.node_of(pod) == node


async def test_a_pod_for_a_node_that_does_not_exist(e2e: EndToEnd, queue: str) -> None:
    await e2e.unschedulable(await e2e.pod(queue, **on_node("none")))


async def test_a_pod_that_must_be_near_a_pod_that_does_not_exist(e2e: EndToEnd, queue: str) -> None:
    await e2e.unschedulable(await e2e.pod(queue, **near("none")))


async def test_a_pod_with_a_volume(e2e: EndToEnd, queue: str) -> None:
    size = {"storage": "1Gi"}
    volume = {
        "capacity": size,
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "manual",
        "hostPath": {"path": "/tmp/e2e"},
    }
    await e2e.add(PERSISTENT_VOLUMES, {"metadata": {"name": "e2e-volume"}, "spec": volume})
    claim = {"accessModes": ["ReadWriteOnce"], "storageClassName": "manual", "resources": {"requests": size}}
    await e2e.client.create(PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": "claim"}, "spec": claim}, NAMESPACE)
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "claim"}}]
    await e2e.scheduled(await e2e.pod(queue, volumes=volumes, mounts=["data"]))
    found = await e2e.client.get_raw(PERSISTENT_VOLUME_CLAIMS, "claim", NAMESPACE)
    assert (found["status"]["phase"], found["spec"]["volumeName"]) == ("Bound", "e2e-volume")


@pytest.mark.parametrize("tolerated", [False, True])
async def test_a_pod_for_a_tainted_node(e2e: EndToEnd, queue: str, tolerated: bool) -> None:
    node = e2e.gpu_nodes()[0]
    await e2e.client.patch(NODES, node, {"spec": {"taints": [TAINT]}})
    try:
        tolerations = [{"key": TAINT["key"], "operator": "Exists"}] if tolerated else []
        pod = await e2e.pod(queue, **on_node(node), tolerations=tolerations)
        await (e2e.scheduled(pod) if tolerated else e2e.unschedulable(pod))
    finally:
        await e2e.client.patch(NODES, node, {"spec": {"taints": None}})


async def test_a_pod_without_gpus_goes_where_there_are_none(e2e: EndToEnd, queue: str) -> None:
    pod = await e2e.pod(queue, cpu="100m")
    await e2e.scheduled(pod)
    assert e2e.node_of(pod) in e2e.cpu_nodes()


async def test_a_pod_that_prefers_company(e2e: EndToEnd, queue: str) -> None:
    """Without the preference it would be packed on the fuller node."""
    near_node, fuller_node, *_ = e2e.gpu_nodes()
    first = await e2e.pod(queue, gpus=1, labels={"e2e-app": "first"}, **on_node(near_node))
    await e2e.scheduled(first, await e2e.pod(queue, gpus=2, **on_node(fuller_node)))
    alone, second = await e2e.pod(queue, gpus=1), await e2e.pod(queue, gpus=1, **near("first", preferred=True))
    await e2e.scheduled(alone, second)
    assert [e2e.node_of(alone), e2e.node_of(second)] == [fuller_node, near_node]


async def test_a_pod_that_prefers_to_be_apart(e2e: EndToEnd, queue: str) -> None:
    """Without the preference it would be packed on the same node."""
    first = await e2e.pod(queue, gpus=1, labels={"e2e-app": "first"})
    await e2e.scheduled(first)
    second = await e2e.pod(queue, gpus=1, **near("first", preferred=True, apart=True))
    await e2e.scheduled(second)
    assert e2e.node_of(first) != e2e.node_of(second)
