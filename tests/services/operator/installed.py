"""An installation for tests of the operator: a Config, shards, and what is there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pykai.api import names
from pykai.kube import resources
from pykai.kube.errors import NotFound
from pykai.kube.resources import Resource
from pykai.kube.runtime import Runtime
from pykai.kube.store import Store
from pykai.operator.options import OperatorOptions
from pykai.operator.service import Operator
from tests.operator.installations import nested
from tests.services.servicecluster import IdleReportingService, ServiceCluster

Document = dict[str, Any]
NS = names.DEFAULT_NAMESPACE
COMPONENTS = ("admission", "binder", "node-scale-adjuster", "pod-grouper", "podgroup-controller", "queue-controller")
SCHEDULER = "kai-scheduler-default"
#: An operator that has nothing left to do says so long before; one that writes without end fails soon.
SETTLES_WITHIN_S = 15.0


def operator(**options: Any) -> Callable[[Runtime], Operator]:
    return lambda runtime: Operator(
        runtime,
        OperatorOptions(image_repository="images.test", image_tag="v1", settle_s=0.005, absent_pause_s=0.01, **options),
    )


async def config(place: ServiceCluster, **spec: Any) -> Document:
    return await place.create(resources.CONFIGS, "kai-config", spec=spec)


async def shard(place: ServiceCluster, name: str = "default", **spec: Any) -> Document:
    return await place.create(resources.SCHEDULING_SHARDS, name, spec=spec)


async def change(place: ServiceCluster, path: str, value: Any) -> None:
    """Change the Config."""
    await place.client.patch(resources.CONFIGS, "kai-config", {"spec": nested(path, value)})


async def change_shard(place: ServiceCluster, path: str, value: Any, name: str = "default") -> None:
    await place.client.patch(resources.SCHEDULING_SHARDS, name, {"spec": nested(path, value)})


async def get(place: ServiceCluster, resource: Resource, name: str, namespace: str = NS) -> Document:
    return await place.client.get_raw(resource, name, namespace if resource.namespaced else "")


async def is_there(place: ServiceCluster, resource: Resource, name: str, namespace: str = NS) -> bool:
    try:
        return bool(await get(place, resource, name, namespace))
    except NotFound:
        return False


async def args(place: ServiceCluster, deployment: str) -> list[str]:
    found = await get(place, resources.DEPLOYMENTS, deployment)
    listed: list[str] = found["spec"]["template"]["spec"]["containers"][0]["args"]
    return listed


async def conditions(place: ServiceCluster, kind: Resource = resources.CONFIGS, name: str = "kai-config") -> Document:
    """Type -> status and message; all are of the current generation."""
    found = await place.client.get_raw(kind, name)
    listed = found.get("status", {}).get("conditions", [])
    assert {each["observedGeneration"] for each in listed} == {found["metadata"]["generation"]}
    return {each["type"]: (each["status"], each["message"]) for each in listed}


async def make_available(place: ServiceCluster, *deployments: str) -> None:
    """Play the Deployment controller."""
    for name in deployments:
        found = await get(place, resources.DEPLOYMENTS, name)
        replicas = found["spec"]["replicas"]
        status = {
            "observedGeneration": found["metadata"]["generation"],
            "replicas": replicas,
            "updatedReplicas": replicas,
            "readyReplicas": replicas,
            "availableReplicas": replicas,
            "conditions": [{"type": "Available", "status": "True"}],
        }
        await place.client.patch(resources.DEPLOYMENTS, name, {"status": status}, NS, subresource="status")


def definition(resource: Resource) -> Document:
    """A foreign kind whose content is kept as it comes."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{resource.plural}.{resource.group}",
            # Groups below k8s.io take it.
            "annotations": {"api-approved.kubernetes.io": "https://example.com/approved"},
        },
        "spec": {
            "group": resource.group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {"kind": resource.kind, "plural": resource.plural, "singular": resource.kind.lower()},
            "versions": [
                {
                    "name": resource.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


async def settled(place: ServiceCluster, service: IdleReportingService) -> None:
    """Wait until an operator has seen what is there, and has nothing left to do: a watch may lag."""
    assert isinstance(service, Operator)
    async with asyncio.timeout(SETTLES_WITHIN_S):
        acted_on: list[str] | None = None
        while True:
            versions = await newest_versions(place, service)
            seen = all(store.has_reached(newest) for store, newest in versions)
            listed = [newest for _, newest in versions]
            # An event that came while the versions were read is not acted on yet: all must be seen, and then idle.
            if seen and listed == acted_on:
                return
            await place.settled(service)
            acted_on = listed if seen else None
            await asyncio.sleep(0.005)


async def newest_versions(place: ServiceCluster, service: Operator) -> list[tuple[Store[Document], str]]:
    """The stores of an operator, and the newest version of what each should have."""
    stores = [(service._configs, ""), (service._shards, ""), (service._pods, NS), (service._leases, NS)]
    stores += [(store, namespace) for (kind, namespace), store in service._live.items() if kind != "Secret"]
    found = []
    for store, namespace in stores:
        with suppress(NotFound):
            listed = await place.client.list_raw(store.resource, namespace=namespace)
            found.append((store, max((each["metadata"]["resourceVersion"] for each in listed), key=int, default="")))
    return found
