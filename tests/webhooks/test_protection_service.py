"""Admission of what would protect pods that have a node already (protect:admission)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pykai.api import names
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.errors import Forbidden, ServerError
from pykai.kube.resources import BIND_REQUESTS, POD_GROUPS, PODS, PRIORITY_CLASSES
from pykai.kube.runtime import Runtime
from pykai.webhooks.protection import ProtectionCheck
from tests.servers import Server, api_server
from tests.services.servicecluster import RecordingTransport, refusal
from tests.webhooks.admissioncluster import Document, admitted
from tests.webhooks.test_gpusharing import a_pod

NAMESPACE = "default"
TENANT = "system:serviceaccount:default:jane"
NON_PREEMPTIBLE = {"preemptibility": names.NON_PREEMPTIBLE}
SEMI = {"preemptibility": names.SEMI_PREEMPTIBLE}
EIGHT = [{"name": "default", "minMember": 8}]


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with api_server(Clock()) as found:
        yield found


@pytest.fixture
async def tenant(server: Server) -> AsyncIterator[Client]:
    """Someone who may write PodGroups and is none of our services."""
    async with admitted(server):
        yield Client(server.transport(TENANT))


async def new_group(client: Client, name: str, **spec: Any) -> None:
    await client.create(POD_GROUPS, {"metadata": {"name": name}, "spec": {"queue": "q", **spec}}, NAMESPACE)


async def new_pods(client: Client, group: str, count: int, *, on: str = "node-0") -> None:
    """Pods of a group; on a node unless it is empty."""
    for number in range(count):
        pod = a_pod({names.POD_GROUP_ANNOTATION: group}, name=f"{group}-{number}")
        if on:
            pod["spec"]["nodeName"] = on
        await client.create(PODS, pod, NAMESPACE)


async def change(client: Client, name: str, **spec: Any) -> None:
    await client.patch(POD_GROUPS, name, {"spec": spec}, NAMESPACE)


async def refused(client: Client, name: str, pods: int, **spec: Any) -> None:
    with pytest.raises(Forbidden, match=f"PodGroup default/{name}: this would protect {pods} pods that have a node"):
        await change(client, name, **spec)


async def test_what_runs_over_quota_is_not_made_non_preemptible(tenant: Client, server: Server) -> None:
    """protect:admission: by the field, by the class, by another queue."""
    build = {"metadata": {"name": "build-2"}, "value": 100}
    await Client(server.transport()).create(PRIORITY_CLASSES, build)
    await new_group(tenant, "g", minMember=2)
    await new_pods(tenant, "g", 2)
    await refused(tenant, "g", 2, **NON_PREEMPTIBLE)

    async def raise_class() -> None:
        while True:
            # Until the cache has the class, it is one that does not exist.
            await change(tenant, "g", priorityClassName="build-2")
            await change(tenant, "g", priorityClassName=None)

    with pytest.raises(Forbidden, match="this would protect 2 pods"):
        await raise_class()
    await change(tenant, "g", minMember=3, queue="other")
    await new_group(tenant, "protected", **NON_PREEMPTIBLE)
    await change(tenant, "protected", queue="other")
    await new_pods(tenant, "protected", 1)
    await refused(tenant, "protected", 1, queue="q")


async def test_the_minimum_of_a_semi_preemptible_group_does_not_grow_over_pods_that_run(server: Server) -> None:
    """protect:admission, queues:Q-416: as another tree, too; the definition refuses the value so far."""
    admin, client = Client(server.transport()), Client(server.transport("admission"))
    await new_group(admin, "g")
    await new_pods(admin, "g", 8)
    runtime = Runtime(client, Caches(client), Clock())
    check = ProtectionCheck(runtime)
    await runtime.caches.start()

    async def pods(before: Document, after: Document) -> int:
        old, new = ({"metadata": {"name": "g", "namespace": NAMESPACE}, "spec": spec} for spec in (before, after))
        found = re.search(r"this would protect (\d+) pods", await check.group_problem(NAMESPACE, new, old))
        return int(found[1]) if found else 0

    semi = {**SEMI, "minMember": 1}
    assert await pods(semi, {**SEMI, "minMember": 2}) == 1
    assert await pods(semi, {**SEMI, "subGroups": EIGHT}) == 7
    assert await pods(semi, NON_PREEMPTIBLE) == 7
    assert await pods(semi, {}) == 0
    assert await pods({}, {**SEMI, "minMember": 8}) == 8
    assert await pods({**SEMI, "minMember": 8}, semi) == 0
    await runtime.caches.stop()


async def test_what_protects_nothing_that_runs_passes(tenant: Client) -> None:
    """protect:admission: a group may give protection up, and have any while its pods wait or have ended."""
    await new_group(tenant, "g", minMember=3, **NON_PREEMPTIBLE)
    await new_pods(tenant, "g", 3)
    await change(tenant, "g", minMember=4)
    await change(tenant, "g", preemptibility=names.PREEMPTIBLE)
    await new_group(tenant, "waits")
    await new_pods(tenant, "waits", 1, on="")
    await change(tenant, "waits", **NON_PREEMPTIBLE)
    await new_group(tenant, "done")
    await new_pods(tenant, "done", 1)
    await tenant.patch(PODS, "done-0", {"status": {"phase": "Succeeded"}}, NAMESPACE, subresource="status")
    await change(tenant, "done", **NON_PREEMPTIBLE)


async def test_a_pod_that_is_being_bound_counts(tenant: Client) -> None:
    """protect:admission"""
    await new_group(tenant, "g")
    await new_pods(tenant, "g", 2, on="")
    request = {"metadata": {"name": "g-0"}, "spec": {"podName": "g-0", "selectedNode": "node-0"}}
    await tenant.create(BIND_REQUESTS, request, NAMESPACE)
    await refused(tenant, "g", 1, **NON_PREEMPTIBLE)


async def test_a_group_that_is_made_again_protects_no_pod_that_runs(tenant: Client) -> None:
    """protect:admission"""
    await new_group(tenant, "g")
    await new_pods(tenant, "g", 1)
    await tenant.delete(POD_GROUPS, "g", NAMESPACE)
    with pytest.raises(Forbidden, match="this would protect 1 pods"):
        await new_group(tenant, "g", **NON_PREEMPTIBLE)
    await new_group(tenant, "g")


async def test_a_pod_that_runs_joins_no_group_that_protects_it(tenant: Client) -> None:
    """protect:admission"""
    for name, spec in (("g", {}), ("p", {}), ("whole", NON_PREEMPTIBLE), ("twin", NON_PREEMPTIBLE)):
        await new_group(tenant, name, **spec)
    await new_pods(tenant, "g", 1)
    await new_pods(tenant, "whole", 1)
    await new_pods(tenant, "p", 1, on="")

    async def move(pod: str, group: str) -> None:
        patch = {"annotations": {names.POD_GROUP_ANNOTATION: group}}
        await tenant.patch(PODS, pod, {"metadata": patch}, NAMESPACE)

    with pytest.raises(Forbidden, match="pod default/g-0: it has a node already, so it cannot join non-preemptible"):
        await move("g-0", "whole")
    await move("p-0", "whole")
    await move("whole-0", "twin")
    await move("whole-0", "p")
    await move("g-0", "missing")


async def test_our_services_may_write_any_group(tenant: Client, server: Server) -> None:
    """protect:admission: the pod grouper keeps the same rule itself."""
    await new_group(tenant, "g")
    await new_pods(tenant, "g", 1)
    await change(Client(server.transport("pod-grouper")), "g", **NON_PREEMPTIBLE)


async def test_nothing_passes_that_could_not_be_checked(server: Server) -> None:
    """protect:admission"""
    wire = RecordingTransport(server.transport("admission"))
    wire.fault = lambda request: refusal(500, "InternalError") if request.path.endswith("/bindrequests") else None
    async with admitted(server, wire=wire):
        tenant = Client(server.transport(TENANT))
        await new_group(tenant, "g")
        with pytest.raises(ServerError, match="the cluster could not be read, so try again"):
            await change(tenant, "g", **NON_PREEMPTIBLE)
        await change(tenant, "g", minMember=2)
