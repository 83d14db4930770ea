"""Attacks on a queue that only the honest namespace may use (point 9)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pykai.api import names
from pykai.api.core import Pod
from pykai.kube.store import Store
from pykai.lab.story import MachineEntry
from tests.attack.target import HONEST, TENANT, AttackOutcome, Document, Target, document, pod, pod_group, target


@asynccontextmanager
async def closed_queue() -> AsyncIterator[Target]:
    """One machine with eight GPUs; the honest queue is for the honest namespace."""
    async with target([MachineEntry(name="gold", gpus=8, model="NVIDIA-H100")]) as cluster:
        allowed = {names.ALLOWED_NAMESPACES_ANNOTATION: HONEST}
        await cluster.admin.patch("Queue", HONEST, {"metadata": {"annotations": allowed}}, "")
        yield cluster


def _deployment(name: str, owner_labels: dict[str, str], pod_labels: dict[str, str]) -> Document:
    template = {"metadata": {"labels": {"app": name, **pod_labels}}, "spec": pod("x", gpus=1)["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template}
    return document("Deployment", name, labels=owner_labels, spec=spec)


async def _outcome(cluster: Target) -> AttackOutcome:
    """Whether no pod of the tenant got a node, while one in its own queue does."""
    await cluster.tenant.create(pod("rightful", gpus=1))

    def runs(store: Store[Pod]) -> bool:
        found = store.get(f"{TENANT}/rightful")
        return found is not None and bool(found.spec.node_name)

    served = await cluster.until(runs)
    await cluster.advance(60)
    bound = cluster.ever_bound("steal-")
    text = f"{len(bound)} pods run in the queue of others {' '.join(bound)}".strip()
    return AttackOutcome(served and not bound, text if served else "a pod in the tenant's own queue does not run")


async def foreign_labels(cluster: Target) -> AttackOutcome:
    """Name the queue of others by a label on the pod, on the owner, on the template, and by a project with a pool."""
    theirs = {names.QUEUE_LABEL: HONEST}
    unlabelled = pod("steal-project", gpus=1, labels={names.PROJECT_LABEL: HONEST})
    del unlabelled["metadata"]["labels"][names.QUEUE_LABEL]
    await cluster.admin.create(
        document(
            "Queue",
            f"{HONEST}-fast",
            annotations={names.ALLOWED_NAMESPACES_ANNOTATION: HONEST},
            spec={"parentQueue": "root", "resources": {each: {"quota": -1, "limit": -1} for each in ("gpu", "cpu")}},
        )
    )
    pooled = pod("steal-pool", gpus=1, labels={names.PROJECT_LABEL: HONEST, names.NODE_POOL_LABEL: "fast"})
    del pooled["metadata"]["labels"][names.QUEUE_LABEL]
    await cluster.tenant.create(
        pod("steal-pod", queue=HONEST, gpus=1),
        unlabelled,
        pooled,
        _deployment("steal-owner", theirs, {}),
        _deployment("steal-template", {}, theirs),
    )
    return await _outcome(cluster)


async def foreign_pod_groups(cluster: Target) -> AttackOutcome:
    """Own a PodGroup of that queue, move one there, join a group of others, keep the pod grouper away, open a gate."""
    skip = {names.SKIP_POD_GROUPER_ANNOTATION: "true"}
    await cluster.admin.create(
        {**pod_group("theirs", queue=HONEST), "metadata": {"name": "theirs", "namespace": HONEST}}
    )
    await cluster.tenant.create(
        pod_group("own", queue=HONEST),
        pod("steal-own", group="own", gpus=1),
        pod_group("external", queue=HONEST),
        pod("steal-external", group="external", annotations=skip, gpus=1),
        pod("steal-joined", group="theirs", annotations=skip, gpus=1),
        pod("steal-path", group=f"../{HONEST}/theirs", annotations=skip, gpus=1),
        pod_group("gated", queue=HONEST),
        pod("steal-gated", group="gated", gpus=1, schedulingGates=[{"name": "kai.test/wait"}]),
        # It waits in its own queue for more pods than there are, then moves.
        pod_group("moved", minimum=2),
        pod("steal-moved", group="moved", gpus=1),
    )
    await cluster.advance(20)
    await cluster.tenant.patch("PodGroup", "moved", {"spec": {"queue": HONEST, "minMember": 1}})
    await cluster.tenant.patch("Pod", "steal-gated", {"spec": {"schedulingGates": None}})
    return await _outcome(cluster)


async def foreign_bind_request(cluster: Target) -> AttackOutcome:
    """A BindRequest of the tenant for a pod that waits in the queue of others."""
    made = await cluster.tenant.create(pod_group("own", queue=HONEST), pod("steal-bound", group="own", gpus=1))
    uid = str(made[-1]["metadata"]["uid"])
    await cluster.tenant.create(
        document(
            "BindRequest",
            "steal-bound",
            spec={
                "podName": "steal-bound",
                "selectedNode": "gold",
                "receivedResourceType": "Regular",
                "receivedGPU": {"count": 1, "portion": "1.00"},
            },
            ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "steal-bound", "uid": uid}],
        )
    )
    return await _outcome(cluster)
