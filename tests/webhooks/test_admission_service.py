"""The admission service at an API server: what it refuses, warns of and changes, and what happens without it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from pykai.api import names
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.errors import ApiError, Forbidden, ServerError
from pykai.kube.resources import POD_GROUPS, PODS, QUEUES, TOPOLOGIES, Resource
from pykai.kube.runtime import Runtime
from pykai.kube.transport import Request
from pykai.webhooks.queuelookups import QueueLookups
from tests.servers import Server, api_server
from tests.webhooks.admissioncluster import Admission, Document, admitted
from tests.webhooks.test_gpusharing import HALF, a_pod
from tests.webhooks.test_queues import queue

NAMESPACE = "default"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with api_server(Clock(), namespaces=["kube-system"]) as found:
        yield found


@pytest.fixture
async def admission(server: Server) -> AsyncIterator[Admission]:
    async with admitted(server) as found:
        yield found


async def warnings_of(
    admission: Admission, method: str, resource: Resource, body: Document, name: str = ""
) -> list[str]:
    """The warnings of a write that succeeds."""
    namespace = NAMESPACE if resource.namespaced else ""
    path = resource.path(namespace, name)
    typed = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
    content = "application/merge-patch+json" if method == "PATCH" else "application/json"
    request = Request(method, path, body=json.dumps(typed).encode(), content_type=content)
    response = await admission.admin.transport.send(request)
    assert response.status < 300, response.body
    return re.findall(r'299 \S+ "((?:[^"\\]|\\.)*)"', response.headers.get("Warning", ""))


async def test_queues(admission: Admission) -> None:
    """queues:Q-22, Q-24, Q-39; operations:E-4."""
    (text,) = await warnings_of(admission, "POST", QUEUES, queue("child", "top", quota=5))
    assert text == "parent queue top does not exist; the queue is not used until it is created"
    await admission.admin.create(QUEUES, queue("top", quota=4))
    change = {"spec": {"resources": {"gpu": {"quota": 6}}}}
    async with asyncio.timeout(30):
        # The cache of Queues may lag: until then the parent does not exist.
        while text in (found := await warnings_of(admission, "PATCH", QUEUES, change, name="child")):
            pass
    assert "child queue CPU quota (5) exceeds parent queue top CPU quota (4)" in found
    for wrong in (
        queue("own", "own"),
        queue("q", resources=None),
        queue("q", quota=-2),
        queue("q", preemptMinRuntime="soon"),
    ):
        wrong["spec"] = {key: value for key, value in wrong["spec"].items() if value is not None}
        with pytest.raises(Forbidden, match=r'admission webhook "queue-validation.kai.scheduler" denied the request: '):
            await admission.admin.create(QUEUES, wrong)
    with pytest.raises(Forbidden, match="would be below itself"):
        await admission.admin.patch(QUEUES, "top", {"spec": {"parentQueue": "child"}})


async def create_group(admission: Admission, name: str, queue_name: str) -> None:
    await admission.admin.create(POD_GROUPS, {"metadata": {"name": name}, "spec": {"queue": queue_name}}, NAMESPACE)


async def deletion(admission: Admission, name: str) -> str:
    """Why a queue cannot be deleted; "" if it can."""
    try:
        await admission.admin.delete(QUEUES, name)
    except Forbidden as error:
        return str(error)
    return ""


async def test_a_queue_is_deleted_only_without_live_pods(admission: Admission) -> None:
    """queues:Q-23, Q-39 a."""
    admin = admission.admin
    for made in (queue("top"), queue("child", "top"), queue("other")):
        await admin.create(QUEUES, made)
    await create_group(admission, "g", "child")
    pod = a_pod({names.POD_GROUP_ANNOTATION: "g"})
    await admin.create(PODS, pod, NAMESPACE)
    async with asyncio.timeout(30):
        # The cache of PodGroups may lag: until then the deletion would be allowed.
        while not await admission_sees(admission, "child"):
            pass
    assert f"cannot delete queue top: pod {NAMESPACE}/p uses it or a queue below it" in await deletion(admission, "top")
    assert "cannot delete queue child" in await deletion(admission, "child")
    assert await deletion(admission, "other") == ""
    await admin.patch(PODS, "p", {"status": {"phase": "Succeeded"}}, NAMESPACE, subresource="status")
    found = await warnings_of(admission, "DELETE", QUEUES, {"kind": "DeleteOptions", "apiVersion": "v1"}, name="top")
    assert found == ["queue top is deleted: it has child queues [child]; these are not used until it is created again"]
    assert await deletion(admission, "child") == ""


async def admission_sees(admission: Admission, queue_name: str) -> bool:
    """Whether the service knows the PodGroup of a queue: a first child of the queue gives a warning then."""
    body = queue("probe", queue_name)
    response = await admission.admin.transport.send(
        Request(
            "POST",
            QUEUES.path(),
            query={"dryRun": "All"},
            body=json.dumps({"apiVersion": QUEUES.api_version, "kind": QUEUES.kind, **body}).encode(),
        )
    )
    return "has workloads of its own" in response.headers.get("Warning", "")


async def test_a_pod_whose_group_has_moved_does_not_keep_its_old_queue(server: Server) -> None:
    """queues:Q-39 a: what a cache says is confirmed."""
    admin, client = Client(server.transport()), Client(server.transport("admission"))
    for made in (queue("top"), queue("old", "top"), queue("new")):
        await admin.create(QUEUES, made)
    await admin.create(POD_GROUPS, {"metadata": {"name": "g"}, "spec": {"queue": "old"}}, NAMESPACE)
    await admin.create(PODS, a_pod({names.POD_GROUP_ANNOTATION: "g"}), NAMESPACE)
    runtime = Runtime(client, Caches(client), Clock())
    lookups = QueueLookups(runtime)
    await runtime.caches.start()
    await runtime.caches.wait_for_sync()
    # From here on the caches never catch up.
    await runtime.caches.stop()
    assert await lookups.live_pod("top") == f"{NAMESPACE}/p"
    await admin.patch(POD_GROUPS, "g", {"spec": {"queue": "new"}}, NAMESPACE)
    assert await lookups.live_pod("top") == ""
    await admin.patch(QUEUES, "new", {"spec": {"parentQueue": "old"}})
    assert await lookups.live_pod("old") == f"{NAMESPACE}/p"
    await admin.delete(POD_GROUPS, "g", NAMESPACE)
    assert await lookups.live_pod("old") == ""


async def test_children_can_be_refused(server: Server) -> None:
    """queues:Q-23."""
    async with admitted(server, refuse_queues_with_children="true") as admission:
        await admission.admin.create(QUEUES, queue("top"))
        await admission.admin.create(QUEUES, queue("child", "top"))
        async with asyncio.timeout(30):
            while "it has child queues [child]" not in await deletion(admission, "top"):
                # The cache had not seen the child.
                await admission.admin.create(QUEUES, queue("top"))


async def test_topologies(admission: Admission) -> None:
    """gpu:A-11."""
    levels = [{"nodeLabel": "zone", "alias": "a"}, {"nodeLabel": "rack", "alias": "a"}]
    with pytest.raises(Forbidden, match=r"topology\.admission\.kai-scheduler\.svc.*duplicated: \[a\]"):
        await admission.admin.create(TOPOLOGIES, {"metadata": {"name": "t"}, "spec": {"levels": levels}})
    levels[1]["alias"] = "b"
    await admission.admin.create(TOPOLOGIES, {"metadata": {"name": "t"}, "spec": {"levels": levels}})


async def test_moving_an_alias_that_groups_use_is_a_warning(admission: Admission) -> None:
    """topo:TD-21."""
    spec = {"minMember": 1, "queue": "q", "topologyConstraint": {"topology": "t", "requiredTopologyLevel": "near"}}
    await admission.admin.create(POD_GROUPS, {"metadata": {"name": "g"}, "spec": spec}, NAMESPACE)
    levels = [{"nodeLabel": "zone", "alias": "near"}, {"nodeLabel": "rack"}]
    await admission.admin.create(TOPOLOGIES, {"metadata": {"name": "t"}, "spec": {"levels": levels}})
    found: list[str] = []
    async with asyncio.timeout(30):
        # Until the cache of the service has the group, no warning can be given.
        while not found:
            for level in levels:
                level["alias"] = "" if level.get("alias") else "near"
            aliased = [{key: value for key, value in level.items() if value} for level in levels]
            found = await warnings_of(admission, "PATCH", TOPOLOGIES, {"spec": {"levels": aliased}}, name="t")
    assert "PodGroups with a constraint of that name: 1" in found[0]


def other_schedulers_pod(name: str) -> Document:
    pod = a_pod(name=name)
    pod["spec"]["schedulerName"] = "default-scheduler"
    return pod


async def failure_of(client: Client, resource: Resource, body: Mapping[str, Any], namespace: str = "") -> str:
    try:
        await client.create(resource, body, namespace)
    except ApiError as error:
        return str(error)
    return ""


async def test_without_the_service_pods_of_others_are_created_as_before(admission: Admission) -> None:
    """operations:O-29."""
    admin = admission.admin
    await admin.create(POD_GROUPS, {"metadata": {"name": "before"}, "spec": {"queue": "q"}}, NAMESPACE)
    await admin.create(PODS, a_pod(HALF, name="ours-before"), NAMESPACE)
    await admission.end()
    for number in range(10):
        await admin.create(PODS, other_schedulers_pod(f"others-{number}"), NAMESPACE)
    # Pods of system namespaces start whatever happens, and what is not checked stays writable.
    await admin.create(PODS, a_pod(name="system"), "kube-system")
    await admin.patch(POD_GROUPS, "before", {"metadata": {"labels": {"a": "b"}}}, NAMESPACE)
    finalizers = {"metadata": {"finalizers": ["kai.test/held"]}}
    await admin.patch(PODS, "ours-before", finalizers, NAMESPACE)
    await admin.patch(PODS, "ours-before", {"metadata": {"finalizers": None}}, NAMESPACE)
    await admin.delete(PODS, "ours-before", NAMESPACE)
    await admin.delete(POD_GROUPS, "before", NAMESPACE)
    with pytest.raises(ServerError, match=r'failed calling webhook "admission\.kai-scheduler\.svc"'):
        await admin.create(PODS, a_pod(name="ours"), NAMESPACE)
    assert "failed calling webhook" in await failure_of(admin, QUEUES, queue("q"))
