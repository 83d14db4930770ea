"""What a server adds to new objects: written down once, held against the embedded and against a real server.

`WRITTEN` holds what each object looks like after a POST of a few fields, without what no two servers have in common
(uids, times).  A field that is missing here would be one that our services could see on one server only.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from pykai.kube import resources
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.errors import Invalid
from pykai.kube.resources import Resource
from tests.servers import api_server

Document = dict[str, Any]

#: differ from one object to the next
_OWN = ("uid", "creationTimestamp", "resourceVersion", "lastTransitionTime", "lastPhaseTransitionTime")
#: set by an admission plugin that a control plane without service accounts does not run
_ACCOUNT = ("serviceAccount", "serviceAccountName")
_BEARS = [
    {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for state in ("not-ready", "unreachable")
]
_CONTAINER = {
    "name": "main",
    "image": "busybox",
    "imagePullPolicy": "Always",
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_POD_SPEC = {
    "dnsPolicy": "ClusterFirst",
    "enableServiceLinks": True,
    "preemptionPolicy": "PreemptLowerPriority",
    "priority": 0,
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "terminationGracePeriodSeconds": 30,
    "tolerations": _BEARS,
}


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with api_server(Clock()) as server:
        yield Client(server.transport())


async def made(client: Client, resource: Resource, spec: Document, **more: Any) -> Document:
    """What the server makes of an object."""
    meta = {"name": "plain", **({"namespace": "default"} if resource.namespaced else {})}
    created = await client.create(resource, {"metadata": meta, "spec": spec, **more})
    return {key: comparable(each) for key, each in created.items() if key != "metadata"}


def comparable(value: Any) -> Any:
    """Without what is different every time."""
    if isinstance(value, dict):
        return {key: comparable(each) for key, each in value.items() if key not in _OWN + _ACCOUNT}
    return [comparable(each) for each in value] if isinstance(value, list) else value


async def test_a_plain_pod(client: Client) -> None:
    assert await made(client, resources.PODS, {"containers": [{"name": "main", "image": "busybox"}]}) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {**_POD_SPEC, "containers": [_CONTAINER]},
        "status": {"phase": "Pending", "qosClass": "BestEffort"},
    }


async def test_a_pod_with_gpus_and_a_tag(client: Client) -> None:
    limits = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "2"}
    container = {"name": "main", "image": "trainer:7", "resources": {"limits": limits}}
    port = {"containerPort": 80}
    pod = await made(client, resources.PODS, {"containers": [{**container, "ports": [port]}]})
    assert pod["spec"]["containers"] == [
        {
            **_CONTAINER,
            "image": "trainer:7",
            "imagePullPolicy": "IfNotPresent",
            "ports": [{"containerPort": 80, "protocol": "TCP"}],
            "resources": {"limits": limits, "requests": limits},
        }
    ]
    assert pod["status"]["qosClass"] == "Guaranteed"


async def test_a_pod_with_volumes_and_tolerations_of_its_own(client: Client) -> None:
    bears = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
    volumes = [
        {"name": "map", "configMap": {"name": "settings"}},
        {"name": "secret", "secret": {"secretName": "key"}},
        {"name": "host", "hostPath": {"path": "/data"}},
    ]
    spec = {"containers": [{"name": "main", "image": "busybox"}], "tolerations": [bears], "volumes": volumes}
    pod = await made(client, resources.PODS, spec)
    assert pod["spec"]["tolerations"] == [bears, _BEARS[1]]
    assert pod["spec"]["volumes"] == [
        {"name": "map", "configMap": {"name": "settings", "defaultMode": 420}},
        {"name": "secret", "secret": {"secretName": "key", "defaultMode": 420}},
        {"name": "host", "hostPath": {"path": "/data", "type": ""}},
    ]


async def test_a_gated_pod(client: Client) -> None:
    spec = {"containers": [{"name": "main", "image": "busybox"}], "schedulingGates": [{"name": "example.com/quota"}]}
    pod = await made(client, resources.PODS, spec)
    assert pod["status"]["conditions"] == [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": None,
        }
    ]


async def test_a_node_is_closed_until_it_is_ready(client: Client) -> None:
    status = {
        "allocatable": {"cpu": "4"},
        "capacity": {"cpu": "4"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    node = await made(client, resources.NODES, {}, status=status)
    closed = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    assert node["spec"] == {"taints": [closed]}
    assert node["status"]["allocatable"] == {"cpu": "4"}
    await client.patch(resources.NODES, "plain", {"spec": {"taints": None}})
    opened = await client.patch(resources.NODES, "plain", {"metadata": {"labels": {"zone": "a"}}})
    assert "taints" not in opened["spec"]


async def test_a_node_that_is_created_closed_has_the_taint_once(client: Client) -> None:
    taints = [{"key": "mine", "effect": "NoExecute"}, {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    node = await made(client, resources.NODES, {"taints": taints})
    assert comparable(node["spec"]["taints"]) == taints


async def test_a_job(client: Client) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}}
    job = await made(client, resources.JOBS, {"template": template})
    spec = job["spec"]
    assert {key: value for key, value in spec.items() if key not in ("selector", "template")} == {
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "completions": 1,
        "manualSelector": False,
        "parallelism": 1,
        "podReplacementPolicy": "TerminatingOrFailed",
        "suspend": False,
    }
    assert spec["template"]["spec"] == {
        "containers": [_CONTAINER],
        "dnsPolicy": "ClusterFirst",
        "restartPolicy": "Never",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
    }


async def test_a_volume_needs_a_type(client: Client) -> None:
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
    with pytest.raises(Invalid, match="must specify a volume type"):
        await made(client, resources.PERSISTENT_VOLUMES, spec)
    meta = {"name": "disk"}
    volume = await client.create(
        resources.PERSISTENT_VOLUMES, {"metadata": meta, "spec": {**spec, "hostPath": {"path": "/disk"}}}
    )
    assert volume["spec"] == {
        **spec,
        "hostPath": {"path": "/disk", "type": ""},
        "persistentVolumeReclaimPolicy": "Retain",
        "volumeMode": "Filesystem",
    }
    assert volume["status"].keys() == {"phase", "lastPhaseTransitionTime"}
    assert volume["status"]["phase"] == "Pending"
