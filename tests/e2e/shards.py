"""What specs change about an installation beyond a field of an object: pods that restart, and node pools."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pykai.api import names
from pykai.kube.errors import NotFound
from pykai.kube.resources import DEPLOYMENTS, NODES, PODS, SCHEDULING_SHARDS
from tests.e2e.endtoend import EndToEnd

SCHEDULER = "kai-scheduler-default"
_RESTARTED = "kubectl.kubernetes.io/restartedAt"


async def has_operator(e2e: EndToEnd) -> bool:
    """Whether an operator carries out shards; a lab has none."""
    try:
        await e2e.client.get_raw(SCHEDULING_SHARDS, "default")
    except NotFound:
        return False
    return True


def _names(e2e: EndToEnd, app: str) -> set[str]:
    return {pod["metadata"]["name"] for pod in e2e.system_pods(app)}


async def _replaced(e2e: EndToEnd, app: str, before: set[str]) -> None:
    def holds() -> bool:
        found = _names(e2e, app)
        return len(found) == 1 and not found & before

    await e2e.until(holds, f"another pod of {app} runs", e2e.system)


async def restart_scheduler(e2e: EndToEnd) -> None:
    """operations:E-20: its pod is deleted, and another one runs."""
    before = _names(e2e, SCHEDULER)
    for name in before:
        await e2e.client.delete(PODS, name, names.DEFAULT_NAMESPACE, grace_s=0)
    await _replaced(e2e, SCHEDULER, before)


async def roll_out(e2e: EndToEnd, app: str) -> None:
    """operations:E-23: the pods of a Deployment restart, as with `kubectl rollout restart`."""
    before = _names(e2e, app)
    found = await e2e.client.get_raw(DEPLOYMENTS, app, names.DEFAULT_NAMESPACE)
    template = {"metadata": {"annotations": {_RESTARTED: f"generation {found['metadata']['generation']}"}}}
    await e2e.client.patch(DEPLOYMENTS, app, {"spec": {"template": template}}, names.DEFAULT_NAMESPACE)
    await _replaced(e2e, app, before)


@asynccontextmanager
async def apart(e2e: EndToEnd, pool: str) -> AsyncIterator[None]:
    """All nodes that pods with plain GPU requests cannot reach are in a node pool of their own (operations:E-21)."""
    reached = {*e2e.gpu_nodes(), *e2e.cpu_nodes()}
    everywhere = (node["metadata"]["name"] for node in e2e.stores[NODES].values())
    moved = [name for name in everywhere if name not in reached]

    async def label(value: str | None) -> None:
        for name in moved:
            patch = {"metadata": {"labels": {names.NODE_POOL_LABEL: value}}}
            await e2e.client.patch(NODES, name, patch)

    await label(pool)
    try:
        yield
    finally:
        await label(None)


def all_gpus(e2e: EndToEnd) -> int:
    """Whole GPUs of the nodes that pods with plain requests can reach."""
    return len(e2e.gpu_nodes()) * e2e.gpus_per_node
