"""`kai uninstall` after an operator and services were at work: nothing of ours stays but what it names."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pykai.api import names
from pykai.kube import resources
from pykai.kube.client import Client
from pykai.operator.applying.kinds import OWNED_KINDS
from pykai.operator.installing import cluster
from pykai.operator.installing.records import RECORD
from pykai.operator.installing.release import Release, release_objects, resource_of
from tests.operator.installations import changes
from tests.services.operator.installed import NS, SCHEDULER, config, get, is_there, operator, settled, shard
from tests.services.servicecluster import ServiceCluster

pytestmark = pytest.mark.embedded_only("it takes away roles that all tests of a control plane share")
#: what an installation, its operator and its services make
KINDS = dict.fromkeys(
    [
        *(each.resource for each in OWNED_KINDS if not each.is_optional),
        *(
            resource_of(each["apiVersion"], each["kind"], each["metadata"].get("namespace", ""))
            for each in release_objects(Release())
        ),
        resources.CUSTOM_RESOURCE_DEFINITIONS,
        resources.LEASES,
        resources.PODS,
    ]
)
Key = tuple[str, str]


async def there(client: Client) -> set[Key]:
    """All objects of these kinds."""
    found = set()
    for kind in KINDS:
        found |= {(kind.kind, each["metadata"]["name"]) for each in await client.list_raw(kind)}
    return found


async def lease(client: Client, name: str, holder: str) -> None:
    await client.create(resources.LEASES, {"metadata": {"name": name}, "spec": {"holderIdentity": holder}}, NS)


async def pod(client: Client, name: str, namespace: str, app: str) -> None:
    metadata = {"name": name, "labels": {"app": app}}
    await client.create(
        resources.PODS,
        {"metadata": metadata, "spec": {"containers": [{"name": "main", "image": "example"}]}},
        namespace,
    )


async def done(lines: AsyncIterator[str]) -> list[str]:
    return [line async for line in lines]


def kept(lines: list[str]) -> set[Key]:
    """The objects that an uninstallation names."""
    found = set()
    for line in lines:
        if about := re.match(r"kept the definition (\S+)", line):
            found.add(("CustomResourceDefinition", about[1]))
        elif about := re.match(r"kept ([A-Z]\w+) ([^\s,:]+)", line):
            found.add((about[1], about[2]))
    return found


@pytest.mark.parametrize("is_external", [False, True])
async def test_nothing_stays_but_what_is_named(place: ServiceCluster, is_external: bool) -> None:
    """install:uninstall."""
    client = place.client
    before = await there(client)
    values = {"operator": {"replicaCount": 2}, "global": {"clusterAutoscaling": True}}
    own: dict[str, Any] = {"kaiConfigDeployer": {"enabled": False}} if is_external else {}
    await done(cluster.install(client, Release({**values, **own})))
    if is_external:
        await config(place, **{"global": {"replicaCount": 2}})
    await shard(place, "fast", partitionLabelValue="fast")
    async with place.running(operator()) as service:
        await settled(place, service)
    owned = await get(place, resources.SERVICE_ACCOUNTS, names.RESERVATION_APP, names.RESERVATION_NAMESPACE)
    assert owned["metadata"]["ownerReferences"]
    for made in (SCHEDULER, "kai-scheduler-fast"):
        assert await is_there(place, resources.CONFIG_MAPS, made)
    for name, holder in (
        ("kai-scheduler", "kai-scheduler-default-1_a"),
        ("kai-scheduler-gone", "kai-scheduler-gone-1_b"),
        (names.BINDER_LEASE, "binder_c"),
        ("41fce092.run.ai", "kai-operator_d"),
        ("ojptxr84.kai.scheduler", "admission_e"),
        ("mine", "mine_f"),
        ("kai-scheduler-of-mine", "mine_g"),
    ):
        await lease(client, name, holder)
    await pod(client, "scaling", names.SCALE_ADJUST_NAMESPACE, names.SCALING_POD_APP)
    await pod(client, "gpu-reservation", names.RESERVATION_NAMESPACE, names.RESERVATION_APP)
    await pod(client, "work", "default", "work")
    usage = {"name": "kai-usage-1", "labels": {names.RECORD_SCHEDULER_LABEL: "kai-scheduler"}}
    await client.create(resources.CONFIG_MAPS, {"metadata": usage}, NS)

    lines = await done(cluster.uninstall(client, NS))
    assert not [line for line in lines if "made by others" in line]
    left = await there(client) - before
    work = {("Queue", each) for each in (names.DEFAULT_QUEUE, names.DEFAULT_PARENT_QUEUE)}
    work |= {("Pod", "gpu-reservation"), ("Pod", "work")}
    mine = {("Lease", "mine"), ("Lease", "kai-scheduler-of-mine")}
    assert mine <= left
    assert left - work - mine == kept(lines) - before
    account = await get(place, resources.SERVICE_ACCOUNTS, names.RESERVATION_APP, names.RESERVATION_NAMESPACE)
    assert "ownerReferences" not in account["metadata"]
    assert ("ServiceAccount", names.RESERVATION_APP) in kept(lines)
    assert ("ConfigMap", "kai-usage-1") in left
    assert {("SchedulingShard", "default"), ("SchedulingShard", "fast")} <= left
    assert (("Config", "kai-config") in left) is is_external
    assert "kept the definition queues.scheduling.run.ai and 2 of it" in lines
    assert f"kept 1 pods in {names.RESERVATION_NAMESPACE}: they hold GPUs that running pods share" in lines
    for kind, name in kept(lines) - before:
        assert (kind, name) in left


async def test_a_config_that_others_took_over_stays(place: ServiceCluster) -> None:
    """operations:O-62, install:uninstall."""
    client = place.client
    await done(cluster.install(client, Release()))
    await client.delete(resources.CONFIGS, "kai-config")
    await config(place)
    await client.delete(resources.PRIORITY_CLASSES, "train")
    await client.create(resources.PRIORITY_CLASSES, {"metadata": {"name": "train"}, "value": 51})
    lines = await done(cluster.uninstall(client, NS))
    assert await is_there(place, resources.CONFIGS, "kai-config")
    assert await is_there(place, resources.PRIORITY_CLASSES, "train")
    assert not await is_there(place, resources.PRIORITY_CLASSES, "inference")
    assert {"kept Config kai-config: it was made by others", "kept PriorityClass train: it was made by others"} <= {
        *lines
    }
    assert "kept Config kai-config, which nothing carries out any more" in lines


async def test_a_config_that_values_leave_to_the_user_is_not_deleted(place: ServiceCluster) -> None:
    """operations:O-62: all that runs belongs to it, and would go with it."""
    client = place.client
    await done(cluster.install(client, Release()))
    before = await get(place, resources.CONFIGS, "kai-config")
    external = Release({"kaiConfigDeployer": {"enabled": False}})
    assert not [line for line in await changes(client, external) if "Config kai-config" in line]
    lines = await done(cluster.install(client, external))
    assert "left the Config kai-config as it is: these values leave it to you" in lines
    assert await get(place, resources.CONFIGS, "kai-config") == before
    lines = await done(cluster.install(client, external))
    assert not [line for line in lines if "left the Config" in line]
    await done(cluster.uninstall(client, NS))
    assert await get(place, resources.CONFIGS, "kai-config") == before
    assert not await is_there(place, resources.CONFIG_MAPS, RECORD)
