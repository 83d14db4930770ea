"""The steps of upstream's end-to-end specs about admission (operations:17): api/crds/podgroup, admission/deviceaccess.

As there, queues are created before their parents (operations:E-4), and pods are those of operations:E-6.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pykai.api import names
from pykai.kube.clock import Clock
from pykai.kube.errors import Forbidden
from pykai.kube.resources import NAMESPACES, POD_GROUPS, PODS, QUEUES
from pykai.kube.transport import Request
from tests.servers import Server, api_server
from tests.services.scheduler.schedulercluster import SchedulerCluster, scheduler_cluster
from tests.webhooks.admissioncluster import Admission, Document, admitted

NAMESPACE = "default"
VARIABLE = "NVIDIA_VISIBLE_DEVICES"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with api_server(Clock()) as found:
        yield found


@pytest.fixture
async def admission(server: Server) -> AsyncIterator[Admission]:
    async with admitted(server) as found:
        yield found


def pod(name: str, *containers: Document, **annotations: str) -> Document:
    """operations:E-6."""
    return {
        "metadata": {
            "name": name,
            "labels": {"app": "engine-e2e", names.QUEUE_LABEL: "test-queue"},
            "annotations": annotations,
        },
        "spec": {
            "schedulerName": names.SCHEDULER_NAME,
            "terminationGracePeriodSeconds": 0,
            "containers": list(containers) or [container()],
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        },
    }


def container(name: str = "ubuntu-container", devices: str | None = None, gpus: int = 0) -> Document:
    made: Document = {"name": name, "image": "ubuntu", "args": ["sleep", "infinity"]}
    if devices is not None:
        made["env"] = [{"name": VARIABLE, "value": devices}]
    if gpus:
        made["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    return made


def group(**spec: Any) -> Document:
    return {"metadata": {"name": "pod-group"}, "spec": {"queue": "test-queue", **spec}}


# api/crds/podgroup: validation


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"minMember": 4, "minSubGroup": 1}, "minMember and minSubGroup are mutually exclusive"),
        (
            {"subGroups": [{"name": "leaf", "minSubGroup": 1}]},
            'subgroup "leaf": minSubGroup cannot be set on a leaf SubGroup',
        ),
        (
            {"subGroups": [{"name": "sub", "minMember": 1, "minSubGroup": 1}]},
            'subgroup "sub": minMember and minSubGroup are mutually exclusive',
        ),
        (
            {"subGroups": [{"name": "mid", "minMember": 1}, {"name": "leaf", "parent": "mid", "minMember": 1}]},
            'subgroup "mid": minMember cannot be set on a mid-level SubGroup',
        ),
    ],
)
async def test_an_invalid_pod_group_is_rejected(admission: Admission, spec: Document, text: str) -> None:
    with pytest.raises(Forbidden, match=re.escape(text)):
        await admission.admin.create(POD_GROUPS, group(**spec), NAMESPACE)


LEAVES = [{"name": f"leaf-{number}", "minMember": 8} for number in range(4)]


@pytest.mark.parametrize(("needed", "warned"), [(5, True), (0, False), (3, False)])
async def test_a_valid_pod_group_is_accepted(admission: Admission, needed: int, warned: bool) -> None:
    """operations:E-24: a client sees at most one warning, and says it once."""
    spec = group(minSubGroup=needed, subGroups=LEAVES)
    body = {"apiVersion": POD_GROUPS.api_version, "kind": POD_GROUPS.kind, **spec}
    request = Request("POST", POD_GROUPS.path(NAMESPACE), body=json.dumps(body).encode())
    response = await admission.admin.transport.send(request)
    assert response.status == 201
    warnings = [value for name, value in response.headers.items() if name.lower() == "warning"]
    text = "minSubGroup (5) exceeds the number of direct child SubGroups (4)"
    assert [text in each for each in warnings] == [True] * warned
    assert sum(each.count("299 ") for each in warnings) == warned


# api/crds/podgroup: reasons


async def queues(lab: SchedulerCluster, **cpu: float) -> None:
    """operations:E-4, E-5."""
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    for name, parent, own in (("test-queue", "parent", {**free, **cpu}), ("parent", "", free)):
        spec: Document = {"resources": {"cpu": own, "gpu": free, "memory": free}}
        if parent:
            spec["parentQueue"] = parent
        await lab.client.create(QUEUES, {"metadata": {"name": name}, "spec": spec})


@pytest.mark.parametrize(
    ("preemptibility", "quota", "limit", "reason"),
    [
        ("non-preemptible", 500, -1, "NonPreemptibleOverQuota"),
        ("preemptible", -1, 500, "OverLimit"),
        ("non-preemptible", 500, 500, "OverLimit"),
    ],
)
async def test_the_reason_of_a_waiting_pod_group(preemptibility: str, quota: float, limit: float, reason: str) -> None:
    async with scheduler_cluster(queue="") as lab, admitted(lab.server):
        await lab.node("node", cpu="8")
        await queues(lab, quota=quota, limit=limit)
        await lab.group("pod-group", queue="test-queue", preemptibility=preemptibility)
        await lab.pod("pod", "pod-group", cpu="1")
        async with lab.scheduler():
            await lab.groups.wait_until(lambda _: bool(reasons(lab)), 60)
        assert reasons(lab) == [reason]


def reasons(lab: SchedulerCluster) -> list[str]:
    found = lab.groups.get("default/pod-group")
    conditions = found.status.scheduling_conditions if found is not None else []
    return [each.reason for condition in conditions for each in condition.reasons]


# admission/deviceaccess


async def test_with_validation_off_all_devices_are_admitted(admission: Admission) -> None:
    made = await admission.admin.create(PODS, pod("all", container(devices="all", gpus=1)), NAMESPACE)
    assert made["spec"]["containers"][0]["env"] == [{"name": VARIABLE, "value": "all"}]


@pytest.fixture
async def blocking(server: Server) -> AsyncIterator[Admission]:
    async with admitted(server, block_nvidia_visible_devices="true") as found:
        yield found


@pytest.mark.parametrize("devices", ["1", "1,2", "all"])
async def test_named_devices_are_rejected(blocking: Admission, devices: str) -> None:
    with pytest.raises(Forbidden, match=f"{VARIABLE} defined with a value of {devices}"):
        await blocking.admin.create(PODS, pod("named", container(devices=devices, gpus=1)), NAMESPACE)


@pytest.mark.parametrize("devices", ["void", "none"])
async def test_no_devices_are_admitted(blocking: Admission, devices: str) -> None:
    made = await blocking.admin.create(PODS, pod("none", container(devices=devices, gpus=1)), NAMESPACE)
    assert made["spec"]["containers"][0]["env"] == [{"name": VARIABLE, "value": devices}]


async def test_containers_without_a_gpu_get_void(blocking: Admission) -> None:
    both = pod("both", container("with", gpus=1), container("without"), container("all", devices="all"))
    made = await blocking.admin.create(PODS, both, NAMESPACE)
    with_gpu, without, named = made["spec"]["containers"]
    assert "env" not in with_gpu
    assert without["env"] == named["env"] == [{"name": VARIABLE, "value": "void"}]


async def test_the_cleanup_after_a_suite_is_not_refused(admission: Admission) -> None:
    """operations:E-4, E-10: queues are deleted in any order once their pods are gone."""
    admin = admission.admin
    numbers = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    resources = {"cpu": numbers, "gpu": numbers, "memory": numbers}
    await admin.create(QUEUES, {"metadata": {"name": "child"}, "spec": {"parentQueue": "top", "resources": resources}})
    await admin.create(QUEUES, {"metadata": {"name": "top"}, "spec": {"resources": resources}})
    await admin.create(POD_GROUPS, {"metadata": {"name": "g"}, "spec": {"queue": "child"}}, NAMESPACE)
    await admin.create(PODS, pod("p", **{names.POD_GROUP_ANNOTATION: "g"}), NAMESPACE)
    await admin.delete(PODS, "p", NAMESPACE, grace_s=0)
    await admin.delete(QUEUES, "top")
    await admin.delete(QUEUES, "child")
    assert await admin.list_raw(QUEUES) == []
    assert await admin.list_raw(NAMESPACES)
