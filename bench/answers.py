"""Latency of the decision on one job in a full cluster, on a real API server.

    python -m bench.answers                  500 nodes with 4,000 running jobs of one GPU each

One after the other, each a PodGroup and its pods:

- a job whose queue is below its quota, so that one GPU must be reclaimed: seconds until a victim is being deleted;
- a job of ten pods with eight GPUs each, of the same queue, that can never fit, since every node has one
  non-preemptible job: seconds until a pod of it has the condition PodScheduled with its reason;
- the same in the queue that is over its quota already.

Running pods are bound by the benchmark: there is no kubelet, so a deleted pod stays.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

from bench.stage import NAMESPACE, SeenPod, Stage, arguments, gpu_pod, pod_group, shared_queue, stage
from pykai.api import names
from pykai.api.timestamp import format_timestamp
from pykai.kube.caches import Caches
from pykai.kube.resources import POD_GROUPS, PODS
from pykai.kube.store import Store

_GPUS = 8
_BUSY, _POOR = "busy", "poor"


async def run_jobs(place: Stage, machines: list[str], count: int) -> None:
    """Running jobs of one pod, eight per machine."""
    jobs = [f"job-{number}" for number in range(count)]
    groups = [pod_group(name, _BUSY) for name in jobs]
    for group in groups[::_GPUS]:
        group["spec"]["preemptibility"] = names.NON_PREEMPTIBLE
    await place.create_all(POD_GROUPS, groups, NAMESPACE)
    pods = []
    for number, name in enumerate(jobs):
        pod = gpu_pod(name, _BUSY, group=name)
        pod["spec"]["nodeName"] = machines[number // _GPUS]
        # A deleted pod stays until a kubelet removes it.
        pod["spec"]["terminationGracePeriodSeconds"] = 30
        pods.append(pod)
    await place.create_all(PODS, pods, NAMESPACE)
    now = format_timestamp(time.time_ns())
    status = {"phase": "Running", "startTime": now}
    await place.patch_all(PODS, [(name, {"status": status}, "status") for name in jobs], NAMESPACE)


async def submit_job(place: Stage, name: str, queue: str, pods: int, gpus: int) -> float:
    """Submit a job; returns when its first pod was sent."""
    await place.create_all(POD_GROUPS, [pod_group(name, queue, pods)], NAMESPACE)
    began = time.monotonic()
    documents = [gpu_pod(f"{name}-{number}", queue, gpus=gpus, group=name) for number in range(pods)]
    await place.create_all(PODS, documents, NAMESPACE)
    return began


def unschedulable_message(pod: SeenPod) -> str:
    """Why a pod is not scheduled, as its condition says."""
    for each in pod.status.conditions:
        if each.type == names.CONDITION_POD_SCHEDULED and each.status == "False":
            return each.message
    return ""


async def measure(place: Stage, options: argparse.Namespace) -> None:
    """Prepare the cluster and measure."""
    machines = await place.set_up(
        options.nodes, [shared_queue(_BUSY, options.pods / 2), shared_queue(_POOR, options.pods / 2)]
    )
    await run_jobs(place, machines, options.pods)
    caches = Caches(place.client)
    store: Store[SeenPod] = caches.store(PODS, SeenPod, namespace=NAMESPACE)
    await caches.start()
    await caches.wait_for_sync()
    before = await place.revision()
    began = await place.start(options.run or [])
    while await place.revision() < before + options.pods // 2 and time.monotonic() - began < options.warm_up:
        place.check_alive()
        await asyncio.sleep(0.2)
    calm, _ = await place.wait_until_idle()
    print(f"{options.nodes} nodes, {options.pods} running jobs: calm {calm - began:.1f} s after the start")

    began = await submit_job(place, "reclaims", _POOR, 1, 1)
    await store.wait_until(lambda pods: any(pod.metadata.deletion_timestamp for pod in pods.values()), options.patience)
    print(f"  a victim is deleted after    {time.monotonic() - began:6.2f} s", flush=True)
    await place.wait_until_idle()

    for queue in (_POOR, _BUSY):
        reasons: list[str] = []

        def told(pods: Store[SeenPod], queue: str = queue, reasons: list[str] = reasons) -> bool:
            mine = [pod for pod in pods.values() if pod.metadata.name.startswith(f"never-{queue}-")]
            reasons[:] = [text for pod in mine if (text := unschedulable_message(pod))]
            return bool(reasons)

        began = await submit_job(place, f"never-{queue}", queue, 10, _GPUS)
        await store.wait_until(told, options.patience)
        print(f"  what can never fit is told   {time.monotonic() - began:6.2f} s ({queue}: {reasons[0]})", flush=True)
        await place.wait_until_idle()
    for line in place.costs():
        print(line)
    await caches.stop()


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    parser.add_argument("--warm-up", type=float, default=60.0, help="seconds that programs may take to say anything")
    parser.add_argument("--patience", type=float, default=300.0, help="seconds after which to give up")
    async with stage(options := parser.parse_args()) as place:
        await measure(place, options)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
