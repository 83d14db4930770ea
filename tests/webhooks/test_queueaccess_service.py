"""Admission of pods and PodGroups at an API server: queues that their namespace may not use (access:admission)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from pykai.api import names
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.errors import Forbidden
from pykai.kube.resources import NAMESPACES, POD_GROUPS, PODS, QUEUES, Resource
from pykai.kube.transport import Request
from tests.servers import Server, api_server
from tests.webhooks.admissioncluster import Admission, Document, admitted
from tests.webhooks.test_gpusharing import a_pod
from tests.webhooks.test_queues import queue

NAMESPACE = "default"
DENIED = "Namespace 'default' may not use queue 'vision'"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with api_server(Clock()) as found:
        yield found


@pytest.fixture
async def admission(server: Server) -> AsyncIterator[Admission]:
    async with admitted(server) as found:
        yield found


def listed(name: str, text: str, annotation: str = names.ALLOWED_NAMESPACES_ANNOTATION, parent: str = "") -> Document:
    """A queue with a list."""
    made = queue(name, parent)
    made["metadata"]["annotations"] = {annotation: text}
    return made


def pod_for(queue_name: str, name: str = "p") -> Document:
    return a_pod(name=name, labels={names.QUEUE_LABEL: queue_name})


def group_for(queue_name: str, name: str = "g") -> Document:
    return {"metadata": {"name": name}, "spec": {"queue": queue_name, "minMember": 1}}


async def until(admission: Admission, resource: Resource, document: Document, *, refused: bool) -> None:
    """Wait until the service has seen a change, so that it refuses an object, or no longer does."""
    async with asyncio.timeout(60):
        while ("denied the request" in await answer_to(admission, resource, document)) != refused:
            pass


async def answer_to(admission: Admission, resource: Resource, document: Document) -> str:
    """What the API server says to an object that is not stored."""
    try:
        await admission.admin.create(resource, document, NAMESPACE, dry_run=True)
    except Forbidden as error:
        return str(error)
    return "created"


async def test_pods_and_groups_of_other_namespaces_are_refused(admission: Admission) -> None:
    """access:admission"""
    admin = admission.admin
    await admin.create(QUEUES, listed("vision", "vision"))
    await until(admission, PODS, pod_for("vision"), refused=True)
    with pytest.raises(Forbidden, match=DENIED):
        await admin.create(PODS, pod_for("vision"), NAMESPACE)
    with pytest.raises(Forbidden, match=DENIED):
        await admin.create(POD_GROUPS, group_for("vision"), NAMESPACE)
    await admin.create(PODS, pod_for("open"), NAMESPACE)
    await admin.create(POD_GROUPS, group_for("open"), NAMESPACE)
    with pytest.raises(Forbidden, match=DENIED):
        await admin.patch(POD_GROUPS, "g", {"spec": {"queue": "vision"}}, NAMESPACE)
    with pytest.raises(Forbidden, match=DENIED):
        await admin.patch(PODS, "p", {"metadata": {"labels": {names.QUEUE_LABEL: "vision"}}}, NAMESPACE)


async def test_what_exists_stays_writable_when_access_is_withdrawn(admission: Admission) -> None:
    """access:admission, access:withdrawn"""
    admin = admission.admin
    await admin.create(QUEUES, listed("vision", NAMESPACE))
    await admin.create(PODS, pod_for("vision"), NAMESPACE)
    await admin.create(POD_GROUPS, group_for("vision"), NAMESPACE)
    other = {names.ALLOWED_NAMESPACES_ANNOTATION: "vision"}
    await admin.patch(QUEUES, "vision", {"metadata": {"annotations": other}})
    await until(admission, PODS, pod_for("vision", "new"), refused=True)
    await admin.patch(PODS, "p", {"metadata": {"labels": {"a": "b"}}}, NAMESPACE)
    await admin.patch(POD_GROUPS, "g", {"spec": {"minMember": 2}}, NAMESPACE)


async def test_the_pod_grouper_may_write_the_group_so_that_its_status_says_why(
    admission: Admission, server: Server
) -> None:
    """access:admission: a pod without a PodGroup would wait without a reason."""
    await admission.admin.create(QUEUES, listed("vision", "vision"))
    await until(admission, POD_GROUPS, group_for("vision"), refused=True)
    grouper = Client(server.transport("pod-grouper"))
    await grouper.create(POD_GROUPS, group_for("vision"), NAMESPACE)


async def test_labels_of_the_namespace_select_it(admission: Admission) -> None:
    """access:admission: also through a queue above."""
    admin = admission.admin
    await admin.create(QUEUES, listed("top", "team=red", names.ALLOWED_NAMESPACE_SELECTOR_ANNOTATION))
    await admin.create(QUEUES, queue("vision", "top"))
    await until(admission, PODS, pod_for("vision"), refused=True)
    await admin.patch(NAMESPACES, NAMESPACE, {"metadata": {"labels": {"team": "red"}}})
    await until(admission, PODS, pod_for("vision"), refused=False)
    await admin.patch(NAMESPACES, NAMESPACE, {"metadata": {"labels": {"team": None}}})
    await until(admission, PODS, pod_for("vision"), refused=True)


async def test_a_list_that_cannot_be_read_is_refused(admission: Admission) -> None:
    """access:broken: on an update of annotations alone, too."""
    admin = admission.admin
    with pytest.raises(Forbidden, match=r"metadata\.annotations\[kai\.scheduler/allowed-namespaces\]: 'A' is not the"):
        await admin.create(QUEUES, listed("vision", "A"))
    await admin.create(QUEUES, queue("vision"))
    broken = {names.ALLOWED_NAMESPACE_SELECTOR_ANNOTATION: "team in red"}
    with pytest.raises(Forbidden, match=r"allowed-namespace-selector\]: 'team in red' is not a requirement"):
        await admin.patch(QUEUES, "vision", {"metadata": {"annotations": broken}})


async def test_a_namespace_that_may_not_use_a_queue_does_not_keep_it(admission: Admission, server: Server) -> None:
    """access:deletion: only its pods that have a node since before access was withdrawn."""
    admin = admission.admin
    await admin.create(QUEUES, queue("top"))
    await admin.create(QUEUES, listed("vision", NAMESPACE, parent="top"))
    await admin.create(POD_GROUPS, group_for("vision"), NAMESPACE)
    await admin.create(PODS, a_pod({names.POD_GROUP_ANNOTATION: "g"}), NAMESPACE)
    # A deletion that is not done: the cache has the group once the pod keeps the queue.
    await until_kept(admission, "top", kept=True)
    other = {names.ALLOWED_NAMESPACES_ANNOTATION: "vision"}
    await admin.patch(QUEUES, "vision", {"metadata": {"annotations": other}})
    await until_kept(admission, "top", kept=False)
    uid = (await admin.get_raw(PODS, "p", NAMESPACE))["metadata"]["uid"]
    await admin.bind(NAMESPACE, "p", uid=uid, node="node-0")
    with pytest.raises(Forbidden, match="cannot delete queue vision: pod default/p uses it"):
        await admin.delete(QUEUES, "vision")
    await admin.patch(PODS, "p", {"status": {"phase": "Succeeded"}}, NAMESPACE, subresource="status")
    await admin.delete(QUEUES, "vision")


async def until_kept(admission: Admission, name: str, *, kept: bool) -> None:
    """Wait until a deletion of a queue would be refused because of a pod, or would not."""
    body = json.dumps({"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]}).encode()
    request = Request("DELETE", QUEUES.path("", name), query={"dryRun": "All"}, body=body)
    async with asyncio.timeout(30):
        while (b"cannot delete queue" in (await admission.admin.transport.send(request)).body) != kept:
            pass
