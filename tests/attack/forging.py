"""Attacks that forge decisions: plans, reservations, GPU groups, ConfigMaps (points 1, 2, 3 and 8)."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.timestamp import format_timestamp
from pykai.kube import resources
from pykai.kube.store import Store
from pykai.lab.machines.nodes import MachineKind, node_objects
from pykai.lab.story import MachineEntry
from tests.attack.target import HONEST, TENANT, AttackOutcome, Document, Target, document, pod, pod_group, target

_PLAN = "kai.scheduler/bind-plan"


@asynccontextmanager
async def eight_gpus(speed: float = 20.0) -> AsyncIterator[Target]:
    """One machine with eight GPUs that only the label `tier=gold` may use, and one of CPUs."""
    machines = [
        MachineEntry(name="gold", gpus=8, model="NVIDIA-H100", labels={"tier": "gold"}),
        MachineEntry(name="plain", labels={"tier": "plain"}),
    ]
    async with target(machines, speed=speed) as cluster:
        yield cluster


def _uid(made: list[Document]) -> str:
    return str(made[0]["metadata"]["uid"]) if made else "unknown"


async def forged_plan(cluster: Target) -> AttackOutcome:
    """Three one-GPU pods and a plan on the PodGroup, over the queue's limit of 2 and against a selector."""
    await cluster.tenant.create(pod_group("plan", minimum=3))
    entries = []
    for number in range(3):
        made = await cluster.tenant.create(pod(f"plan-{number}", group="plan", gpus=1, nodeSelector={"tier": "plain"}))
        entries.append([f"plan-{number}", _uid(made), "gold"])
    await cluster.advance(20)
    await cluster.tenant.patch("PodGroup", "plan", {"metadata": {"annotations": {_PLAN: json.dumps(entries)}}})
    await cluster.advance(60)
    bound = cluster.ever_bound("plan-")
    return AttackOutcome(not bound, f"{len(bound)} of 3 pods were bound")


async def forged_share(cluster: Target) -> AttackOutcome:
    """A plan that puts a 0.9 share on a GPU on which an honest pod holds 0.9."""
    await cluster.admin.create(
        pod("model", namespace=HONEST, queue=HONEST, annotations={names.GPU_FRACTION_ANNOTATION: "0.9"})
    )

    def runs(store: Store[Pod]) -> bool:
        found = store.get(f"{HONEST}/model")
        return found is not None and found.status.phase == "Running"

    if not await cluster.until(runs):
        return AttackOutcome(False, "the honest share did not start")
    group = cluster.pods.get(f"{HONEST}/model").metadata.labels[names.GPU_GROUP_LABEL]  # type: ignore[union-attr]
    # A selector that matches no node: the scheduler itself never places these pods.
    await cluster.tenant.create(pod_group("share", minimum=2))
    entries = []
    for number in range(2):
        name = f"share-{number}"
        made = await cluster.tenant.create(
            pod(name, group="share", annotations={names.GPU_FRACTION_ANNOTATION: "0.9"}, nodeSelector={"tier": "none"})
        )
        spec = {
            "podName": name,
            "selectedNode": "gold",
            "receivedResourceType": "Fraction",
            "receivedGPU": {"count": 1, "portion": "0.90"},
            "selectedGPUGroups": [group],
        }
        entries.append([name, _uid(made), "gold", spec, {}])
    await cluster.advance(20)
    await cluster.tenant.patch("PodGroup", "share", {"metadata": {"annotations": {_PLAN: json.dumps(entries)}}})
    await cluster.advance(60)
    bound = cluster.ever_bound("share-")
    return AttackOutcome(not bound, f"{0.9 * (1 + len(bound)):.1f} of one GPU were given away")


@asynccontextmanager
async def claimed_gpus() -> AsyncIterator[Target]:
    """One machine whose two GPUs are claimed as devices."""
    now = format_timestamp(time.time_ns())
    objects = node_objects(MachineKind(name="gold", gpus=2, dra=True), now)
    async with target([MachineEntry(name="plain")], objects=objects) as cluster:
        yield cluster


def _claim(name: str, namespace: str) -> Document:
    wanted = {"name": "gpu", "exactly": {"deviceClassName": names.GPU_DEVICE_CLASS}}
    queue = {names.QUEUE_LABEL: namespace}
    return document("ResourceClaim", name, namespace, labels=queue, spec={"devices": {"requests": [wanted]}})


async def forged_claim(cluster: Target) -> AttackOutcome:
    """A plan that gives the tenant's claim the device that an honest claim holds."""
    uses: Document = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]}
    await cluster.admin.create(_claim("mine", HONEST), pod("model", namespace=HONEST, queue=HONEST, **uses))

    def runs(store: Store[Pod]) -> bool:
        found = store.get(f"{HONEST}/model")
        return found is not None and found.status.phase == "Running"

    if not await cluster.until(runs):
        return AttackOutcome(False, "the honest claim did not start")
    held = (await cluster.admin.client.get_raw(resources.RESOURCE_CLAIMS, "mine", HONEST))["status"]["allocation"]
    await cluster.tenant.create(pod_group("claim", minimum=2))
    entries = []
    for number in range(2):
        name = f"claim-{number}"
        uses = {"resourceClaims": [{"name": "gpu", "resourceClaimName": name}], "nodeSelector": {"tier": "none"}}
        await cluster.tenant.create(_claim(name, TENANT))
        made = await cluster.tenant.create(pod(name, group="claim", **uses))
        spec = {
            "podName": name,
            "selectedNode": "gold",
            "receivedResourceType": "Regular",
            "resourceClaimAllocations": [{"name": "gpu", "allocation": held}],
        }
        entries.append([name, _uid(made), "gold", spec, {}])
    await cluster.advance(20)
    await cluster.tenant.patch("PodGroup", "claim", {"metadata": {"annotations": {_PLAN: json.dumps(entries)}}})
    await cluster.advance(60)
    claims = await cluster.admin.client.list_raw(resources.RESOURCE_CLAIMS, namespace=TENANT)
    stolen = [each for each in claims if each.get("status", {}).get("allocation") == held]
    return AttackOutcome(not stolen, f"{len(stolen)} claims of the tenant hold the honest claim's device")


async def forged_request(cluster: Target) -> AttackOutcome:
    """A BindRequest of the tenant that sends a pod of six GPUs past the queue's limit of two."""
    made = await cluster.tenant.create(pod("request", gpus=6))
    request = document(
        "BindRequest",
        "request",
        spec={
            "podName": "request",
            "selectedNode": "gold",
            "receivedResourceType": "Regular",
            "receivedGPU": {"count": 6, "portion": "1.00"},
        },
        ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "request", "uid": _uid(made)}],
    )
    await cluster.tenant.create(request)
    await cluster.advance(60)
    kept = not cluster.ever_bound("request")
    return AttackOutcome(kept, "the pod waits for its quota" if kept else "6 GPUs run in a queue with limit 2")


async def _honest_machine(cluster: Target) -> AttackOutcome:
    """Whether an honest pod of eight GPUs still gets the machine."""
    await cluster.admin.create(pod("train", namespace=HONEST, queue=HONEST, gpus=8))

    def runs(store: Store[Pod]) -> bool:
        found = store.get(f"{HONEST}/train")
        return found is not None and found.status.phase == "Running"

    kept = await cluster.until(runs)
    return AttackOutcome(
        kept, "an honest pod of 8 GPUs runs" if kept else "GPUs are locked: an honest pod of 8 GPUs waits"
    )


async def foreign_groups(cluster: Target) -> AttackOutcome:
    """Start half a GPU, let a pod of another scheduler claim its GPU group, delete the first; eight times."""
    await cluster.admin.patch("Queue", TENANT, {"spec": {"resources": {"gpu": {"quota": 0.5, "limit": 0.5}}}}, "")
    for number in range(8):
        # A share of its own size goes to a GPU of its own while the ones before are still held.
        await cluster.tenant.create(pod(f"half-{number}", annotations={names.GPU_FRACTION_ANNOTATION: "0.5"}))

        def runs(store: Store[Pod], name: str = f"{TENANT}/half-{number}") -> bool:
            found = store.get(name)
            return found is not None and found.status.phase == "Running"

        if not await cluster.until(runs, 4):
            break
        group = cluster.pods.get(f"{TENANT}/half-{number}").metadata.labels[names.GPU_GROUP_LABEL]  # type: ignore[union-attr]
        squatter = pod(
            f"squat-{number}",
            labels={names.GPU_GROUP_LABEL: group},
            annotations={names.GPU_FRACTION_ANNOTATION: "0.9"},
            nodeName="gold",
            schedulerName="default-scheduler",
        )
        await cluster.tenant.create(squatter)
        await cluster.advance(4)
        await cluster.tenant.delete("Pod", f"half-{number}", grace_s=0)
        await cluster.advance(4)
    return await _honest_machine(cluster)


async def fake_reservations(cluster: Target) -> AttackOutcome:
    """Six one-GPU pods that pose as reservations, in a queue with limit 2; then one more by the rules."""
    return await _charged(cluster, {names.APP_LABEL: names.RESERVATION_APP})


async def node_name(cluster: Target) -> AttackOutcome:
    """Six one-GPU pods of our scheduler with `nodeName` set, in a queue with limit 2; then one more by the rules."""
    return await _charged(cluster, {})


async def _charged(cluster: Target, labels: dict[str, str]) -> AttackOutcome:
    """Whether pods that go straight to a node are charged to their queue, with a PodGroup or without."""
    for number in range(6):
        alone = {names.SKIP_POD_GROUPER_ANNOTATION: "true"} if number % 2 or labels else {}
        await cluster.tenant.create(
            pod(f"direct-{number}", gpus=1, labels=labels, annotations=alone, nodeName="gold"),
        )
    await cluster.advance(10)
    await cluster.tenant.create(pod("late", gpus=1))
    await cluster.advance(40)
    held = len(cluster.on_nodes(prefix="direct-"))
    if not held:
        return AttackOutcome(True, "the pods were refused or removed")
    kept = not cluster.ever_bound("late")
    plan = cluster.cluster.scheduler.loop.plan
    used = next((each.allocated[2] for each in plan.queues if each.name == TENANT), 0.0) if plan is not None else 0.0
    waits = "the next one waits" if kept else "the next one runs as well"
    return AttackOutcome(kept and used >= held, f"{held} pods took a GPU each, the queue is charged {used:g}, {waits}")


async def free_ride(cluster: Target) -> AttackOutcome:
    """Two GPUs run within the limit of 2; their PodGroup moves to a queue that does not exist; then one more pod."""
    await cluster.tenant.create(pod_group("rider", priorityClassName="train"), pod("rider", group="rider", gpus=2))

    def runs(store: Store[Pod]) -> bool:
        found = store.get(f"{TENANT}/rider")
        return found is not None and found.status.phase == "Running"

    if not await cluster.until(runs):
        return AttackOutcome(False, "the first pod did not start")
    await cluster.tenant.patch("PodGroup", "rider", {"spec": {"queue": "no-such-queue"}})
    await cluster.advance(20)
    await cluster.tenant.create(pod("late", gpus=2))
    await cluster.advance(60)
    kept = not cluster.ever_bound("late")
    return AttackOutcome(kept, "the next pod waits" if kept else "4 GPUs run with a limit of 2")


async def config_maps(cluster: Target) -> AttackOutcome:
    """A shared-GPU pod whose annotation names a ConfigMap of another owner."""
    for name in ("precious-0", "precious-0-evar"):
        await cluster.admin.create(document("ConfigMap", name, data={"password": "hunter2"}))
    await cluster.tenant.create(
        pod(
            "overwriter",
            annotations={
                names.GPU_FRACTION_ANNOTATION: "0.5",
                names.SHARED_GPU_CONFIGMAP_ANNOTATION: "precious",
            },
        )
    )
    await cluster.until(lambda _: bool(cluster.on_nodes(prefix="overwriter")), 8)
    found = [
        await cluster.admin.client.get_raw(resources.CONFIG_MAPS, name, TENANT)
        for name in ("precious-0", "precious-0-evar")
    ]
    kept = all(
        each.get("data") == {"password": "hunter2"} and not each["metadata"].get("ownerReferences") for each in found
    )
    return AttackOutcome(kept, "both ConfigMaps are as they were" if kept else "a ConfigMap was overwritten")
