"""Attacks on charges and protection: deletion, failed binds, start times (points 4, 5 and 6)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.timestamp import format_timestamp
from pykai.kube.store import Store
from pykai.lab.story import MachineEntry, QueueEntry, ResourceShare
from tests.attack.target import HONEST, TENANT, AttackOutcome, Target, document, pod, pod_group, target


@asynccontextmanager
async def fast_machine() -> AsyncIterator[Target]:
    """One machine with eight GPUs, a minute a second."""
    async with target([MachineEntry(name="gold", gpus=8, model="NVIDIA-H100")], speed=60) as cluster:
        yield cluster


@asynccontextmanager
async def shared_machine() -> AsyncIterator[Target]:
    """The same; the tenant has quota for the machine, the honest queue uses it while it is free."""
    queues = [
        QueueEntry(name=TENANT, parent="root", gpu=ResourceShare(quota=8)),
        QueueEntry(name=HONEST, parent="root", gpu=ResourceShare(quota=0)),
    ]
    async with target([MachineEntry(name="gold", gpus=8, model="NVIDIA-H100")], queues=queues, speed=60) as cluster:
        yield cluster


@asynccontextmanager
async def protected_machine() -> AsyncIterator[Target]:
    """The same the other way round: the honest queue has the quota; running work is safe for a minute."""
    queues = [
        QueueEntry(name=TENANT, parent="root", gpu=ResourceShare(quota=0)),
        QueueEntry(name=HONEST, parent="root", gpu=ResourceShare(quota=8)),
    ]
    async with target([MachineEntry(name="gold", gpus=8, model="NVIDIA-H100")], queues=queues, speed=60) as cluster:
        for name in (TENANT, HONEST):
            await cluster.admin.patch("Queue", name, {"spec": {"reclaimMinRuntime": "1m"}}, "")
        yield cluster


async def long_deletion(cluster: Target) -> AttackOutcome:
    """Start two GPUs' worth, delete it with an hour of grace, start again, four times; the limit is 2."""
    slow = {names.STOP_SECONDS_ANNOTATION: "3600"}
    for round_number in range(4):
        mine = [f"round-{round_number}-{number}" for number in range(2)]
        for name in mine:
            await cluster.tenant.create(pod(name, gpus=1, annotations=slow, terminationGracePeriodSeconds=3600))

        def run(store: Store[Pod], mine: list[str] = mine) -> bool:
            found = [store.get(f"{TENANT}/{name}") for name in mine]
            return all(each is not None and each.status.phase == "Running" for each in found)

        await cluster.until(run, 4)
        for name in mine:
            await cluster.tenant.delete("Pod", name)
        await cluster.advance(180)
    held = len([each for each in cluster.on_nodes(prefix="round-") if each.status.phase == "Running"])
    return AttackOutcome(held <= 2, f"{held} GPUs are held with a limit of 2")


async def endless_evictions(cluster: Target) -> AttackOutcome:
    """A pod that reclaims its quota and can never be bound, for 25 minutes; an honest job is evicted each time."""
    job = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "job",
            "namespace": HONEST,
            "labels": {names.QUEUE_LABEL: HONEST, names.PRIORITY_CLASS_LABEL: "train"},
        },
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "job"}},
            "template": {
                "metadata": {"labels": {"app": "job", names.QUEUE_LABEL: HONEST, names.PRIORITY_CLASS_LABEL: "train"}},
                "spec": pod("x", gpus=8)["spec"],
            },
        },
    }
    await cluster.admin.create(job)

    def runs(store: Store[Pod]) -> bool:
        return any(each.metadata.namespace == HONEST and each.status.phase == "Running" for each in store.values())

    if not await cluster.until(runs):
        return AttackOutcome(False, "the honest job did not start")
    seen: set[str] = {each.metadata.uid for each in cluster.of(HONEST)}
    # An immutable ConfigMap where the binder writes its own: no bind can ever succeed.
    for name in ("wall-0", "wall-0-evar"):
        await cluster.tenant.create(document("ConfigMap", name, data={"a": "b"}, immutable=True))
    walled = {names.GPU_FRACTION_ANNOTATION: "0.9", names.SHARED_GPU_CONFIGMAP_ANNOTATION: "wall"}
    await cluster.tenant.create(pod("walled", annotations=walled, labels={names.PRIORITY_CLASS_LABEL: "train"}))

    def count() -> bool:
        seen.update(each.metadata.uid for each in cluster.of(HONEST))
        return False

    await cluster.holds_for(25 * 60, count)
    evictions = len(seen) - 1
    return AttackOutcome(evictions <= 3, f"the honest job was evicted {evictions} times in 25 minutes")


async def forged_start(cluster: Target) -> AttackOutcome:
    """Eight GPUs over quota whose start time is set to now again and again; the owner of the quota wants them back."""
    await cluster.tenant.create(pod_group("squatter", priorityClassName="train"))
    await cluster.tenant.create(pod("squatter", group="squatter", gpus=8))

    def runs(store: Store[Pod]) -> bool:
        found = store.get(f"{TENANT}/squatter")
        return found is not None and found.status.phase == "Running"

    if not await cluster.until(runs):
        return AttackOutcome(False, "the squatter did not start")

    async def restart() -> None:
        now = format_timestamp(int(cluster.cluster.runtime.clock.now().timestamp()) * 1_000_000_000)
        stamp = {names.LAST_START_TIMESTAMP_ANNOTATION: now}
        await cluster.tenant.patch("PodGroup", "squatter", {"metadata": {"annotations": stamp}})

    def owned(store: Store[Pod]) -> bool:
        found = store.get(f"{HONEST}/owner")
        return found is not None and bool(found.spec.node_name)

    async with cluster.repeating(restart, every_s=20):
        await cluster.advance(90)
        await cluster.admin.create(pod("owner", namespace=HONEST, queue=HONEST, gpus=8))
        kept = await cluster.until(owned)
    return AttackOutcome(
        kept, "the owner got its quota back" if kept else "the owner still waits for its quota after an hour"
    )
