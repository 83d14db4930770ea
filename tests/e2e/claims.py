"""Claims of devices as the specs make them (operations:E-28), and the nodes whose driver publishes devices.

claim = await claims.add(e2e, queue, 2)
pod = await e2e.pod(queue, **claims.claiming(claim))
"""

from __future__ import annotations

from typing import Any

from pykai.api import names
from pykai.kube.resources import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.e2e.endtoend import NAMESPACE, Document, EndToEnd, template


def _claim_spec(devices: int, device_class: str) -> Document:
    request = {"name": "req", "exactly": {"deviceClassName": device_class, "count": devices}}
    return {"devices": {"requests": [request]}}


def _labels(queue: str) -> dict[str, str]:
    return {"app": "engine-e2e", names.QUEUE_LABEL: queue}


async def add(
    e2e: EndToEnd, queue: str, devices: int = 1, *, name: str = "", device_class: str = names.GPU_DEVICE_CLASS
) -> str:
    """A claim; its name."""
    metadata = {"labels": _labels(queue), **({"name": name} if name else {"generateName": "claim-"})}
    claim = {"metadata": metadata, "spec": _claim_spec(devices, device_class)}
    made = await e2e.client.create(RESOURCE_CLAIMS, claim, NAMESPACE)
    return str(made["metadata"]["name"])


async def add_template(e2e: EndToEnd, queue: str, devices: int = 1) -> str:
    """A template of claims; its name."""
    spec = {"metadata": {"labels": _labels(queue)}, "spec": _claim_spec(devices, names.GPU_DEVICE_CLASS)}
    metadata = {"generateName": "template-", "labels": {"app": "engine-e2e"}}
    made = await e2e.client.create(RESOURCE_CLAIM_TEMPLATES, {"metadata": metadata, "spec": spec}, NAMESPACE)
    return str(made["metadata"]["name"])


def claiming(claim: str = "", *, of_template: str = "") -> dict[str, Any]:
    """The spec of a pod with a claim, or with one of its own from a template."""
    source = {"resourceClaimTemplateName": of_template} if of_template else {"resourceClaimName": claim}
    (container,) = template("")["spec"]["containers"]
    # The request that upstream's pods name is in none of its claims.
    container["resources"] = {"claims": [{"name": "gpu", "request": "gpu"}]}
    return {"resourceClaims": [{"name": "gpu", **source}], "containers": [container]}


async def pod_with_claim(e2e: EndToEnd, queue: str, devices: int, **fields: Any) -> str:
    """A pod with a claim that goes with it; its name."""
    claim = await add(e2e, queue, devices)
    name = await e2e.pod(queue, **claiming(claim), **fields)
    pod = await e2e.client.get_raw(PODS, name, NAMESPACE)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod["metadata"]["uid"]}
    patch = {"metadata": {"ownerReferences": [owner]}}
    await e2e.client.patch(RESOURCE_CLAIMS, claim, patch, NAMESPACE)
    return name


async def devices(e2e: EndToEnd) -> dict[str, int]:
    """How many devices the driver of each node publishes."""
    slices = await e2e.client.list_raw(RESOURCE_SLICES)
    return {
        each["spec"]["nodeName"]: len(each["spec"]["devices"])
        for each in slices
        if each["spec"]["driver"] == names.GPU_DEVICE_CLASS
    }


async def nodes_with(e2e: EndToEnd, count: int) -> list[str]:
    """The nodes with so many devices."""
    return sorted(name for name, published in (await devices(e2e)).items() if published == count)
