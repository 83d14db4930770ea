"""Ours starts once what ran before under its name has ended (install:handover)."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.kube import resources
from pykai.kube.errors import NotFound
from pykai.kube.resources import Resource
from pykai.operator.applying.handover import PATIENCE_S, pods_in_the_way
from pykai.operator.service import Operator
from tests.services.operator.installed import (
    COMPONENTS,
    NS,
    SCHEDULER,
    Document,
    change,
    conditions,
    config,
    get,
    is_there,
    operator,
    settled,
    shard,
)
from tests.services.operator.test_lives import eventually
from tests.services.servicecluster import IdleReportingService, ServiceCluster

REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet", True)
POD = {"containers": [{"name": "c", "image": "theirs"}], "schedulerName": "none", "nodeName": "n1"}


async def kai(place: ServiceCluster, app: str = SCHEDULER) -> None:
    """What KAI Scheduler has left: a Deployment, its ReplicaSet and a pod that takes its time to end."""
    labels = {"app": app}
    template = {"metadata": {"labels": labels}, "spec": {"containers": POD["containers"]}}
    spec: Document = {"selector": {"matchLabels": labels}, "template": template}
    made = await place.create(resources.DEPLOYMENTS, app, namespace=NS, labels=labels, spec=spec)
    owned = await place.create(REPLICA_SETS, app, namespace=NS, labels=labels, owners=[owner(made)], spec=spec)
    await place.create(resources.PODS, f"{app}-old", namespace=NS, labels=labels, owners=[owner(owned)], spec=POD)


def owner(of: Document) -> Document:
    metadata = of["metadata"]
    reference = {"apiVersion": "apps/v1", "kind": of["kind"], "name": metadata["name"], "uid": metadata["uid"]}
    return {**reference, "controller": True, "blockOwnerDeletion": True}


async def is_ours(place: ServiceCluster, app: str = SCHEDULER) -> bool:
    try:
        found = await get(place, resources.DEPLOYMENTS, app)
    except NotFound:
        return False
    return bool(found["spec"]["template"]["spec"]["containers"][0]["name"] == app)


async def is_ending(place: ServiceCluster) -> bool:
    found = await get(place, resources.PODS, f"{SCHEDULER}-old")
    return "deletionTimestamp" in found["metadata"]


async def deployed(place: ServiceCluster, service: IdleReportingService) -> tuple[str, str]:
    """The condition of the shard."""
    await settled(place, service)
    found = await conditions(place, resources.SCHEDULING_SHARDS, "default")
    status, text = found["Deployed"]
    return str(status), str(text)


async def test_the_scheduler_of_kai_ends_before_ours_is_made(place: ServiceCluster) -> None:
    await kai(place)
    await config(place)
    await shard(place)
    async with place.running(operator()) as service:
        await eventually(lambda: is_ending(place))
        assert await deployed(place, service) == (
            "False",
            f"SchedulerForShard: Deployment {SCHEDULER} is made once the old one is gone, with its pods\n"
            "SchedulerForShard: not deployed",
        )
        assert not await is_ours(place)
        # Nothing else waits for that.
        assert (await conditions(place))["Deployed"] == ("True", "Resources deployed")
        for each in COMPONENTS:
            assert await is_there(place, resources.DEPLOYMENTS, each)
        # The kubelet.
        await place.client.delete(resources.PODS, f"{SCHEDULER}-old", NS, grace_s=0)
        await eventually(lambda: is_ours(place))
        assert await deployed(place, service) == ("True", "Resources deployed")


async def test_pods_without_a_deployment_are_waited_for_too(place: ServiceCluster) -> None:
    """Someone may have deleted KAI Scheduler's Deployment and not waited."""
    await config(place)
    await shard(place)
    await place.create(resources.PODS, "left", namespace=NS, labels={"app": SCHEDULER}, spec=POD)
    async with place.running(operator()) as service:
        assert await deployed(place, service) == (
            "False",
            f"SchedulerForShard: Deployment {SCHEDULER} is made once these pods have ended: left\n"
            "SchedulerForShard: not deployed",
        )
        assert not await is_there(place, resources.DEPLOYMENTS, SCHEDULER)
        await place.client.delete(resources.PODS, "left", NS, grace_s=0)
        await eventually(lambda: is_ours(place))


async def test_e12_a_scheduler_that_is_switched_on_again_waits_for_the_one_before(place: ServiceCluster) -> None:
    """operations:E-12"""
    await config(place)
    await shard(place)
    async with place.running(operator()) as service:
        await settled(place, service)
        await place.create(resources.PODS, "ours", namespace=NS, labels={"app": SCHEDULER}, spec=POD)
        await change(place, "scheduler.service.enabled", False)
        await settled(place, service)
        await change(place, "scheduler.service.enabled", True)
        await settled(place, service)
        assert not await is_there(place, resources.DEPLOYMENTS, SCHEDULER)
        await place.client.delete(resources.PODS, "ours", NS, grace_s=0)
        await eventually(lambda: is_ours(place))


async def test_an_operator_that_waits_looks_again_and_does_not_fail(place: ServiceCluster) -> None:
    """A pod of a node that is lost changes no more."""
    await config(place)
    await shard(place)
    await place.create(resources.PODS, "left", namespace=NS, labels={"app": SCHEDULER}, spec=POD)
    async with place.running(operator()) as service:
        await settled(place, service)
        assert isinstance(service, Operator)
        again_s = await service._reconcile("installation")
        assert again_s is not None
        assert 0 < again_s <= PATIENCE_S


WANTED: Document = {"kind": "Deployment", "spec": {"selector": {"matchLabels": {"app": "binder"}}}}
DELETED = "2026-01-01T00:00:00Z"
DELETED_S = 1767225600.0


@pytest.mark.parametrize(
    ("pod", "now_s", "waits"),
    [
        ({}, DELETED_S, True),
        ({"labels": {"app": "other"}}, DELETED_S, False),
        ({"phase": "Succeeded"}, DELETED_S, False),
        ({"phase": "Failed"}, DELETED_S, False),
        ({"deletionTimestamp": DELETED}, DELETED_S + PATIENCE_S - 1, True),
        ({"deletionTimestamp": DELETED}, DELETED_S + PATIENCE_S, False),
        ({"deletionTimestamp": DELETED, "phase": "Running"}, DELETED_S - 30, True),
    ],
)
def test_which_pods_are_in_the_way(pod: dict[str, Any], now_s: float, waits: bool) -> None:
    metadata = {"name": "p", "labels": {"app": "binder", "pod-template-hash": "x"}, **pod}
    found = {"metadata": metadata, "status": {"phase": metadata.pop("phase", "Running")}}
    assert pods_in_the_way(WANTED, [found], now_s) == (["p"] if waits else [])


def test_only_workloads_wait() -> None:
    pod = {"metadata": {"name": "p", "labels": {"app": "binder"}}}
    service = {"kind": "Service", "spec": {"selector": {"app": "binder"}}}
    assert pods_in_the_way(service, [pod], DELETED_S) == []
    assert pods_in_the_way(WANTED, [pod], DELETED_S) == ["p"]


async def test_certificates_of_kai_stay_where_it_finds_them_again(place: ServiceCluster) -> None:
    """install:back: the one of admission is served by ours, the others wait."""
    made = await config(place)
    secrets = ("kai-admission-webhook-tls-secret", "podgroup-webhook-tls-secret", "queue-webhook-tls-secret")
    data = {"tls.crt": "Y2VydGlmaWNhdGU=", "tls.key": "a2V5"}
    reference = {"apiVersion": "kai.scheduler/v1", "kind": "Config", "name": "kai-config", "controller": True}
    owners = [{**reference, "uid": made["metadata"]["uid"]}]
    for name in secrets:
        await place.create(resources.SECRETS, name, namespace=NS, labels={"app": name}, owners=owners, data=data)
    async with place.running(operator()) as service:
        await settled(place, service)
    for name in secrets:
        found = await get(place, resources.SECRETS, name)
        assert found["data"] == data
        assert found["type"] == "Opaque"
        assert found["metadata"]["labels"]["app"] == name
        assert [each["uid"] for each in found["metadata"]["ownerReferences"]] == [made["metadata"]["uid"]]
