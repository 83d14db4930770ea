"""Pods per second that any scheduler binds on a real API server.

    python -m bench.bound                                     PyKAI: grouper, scheduler, binder, podgroups, queues
    python -m bench.bound --gangs 64                          PodGroups of 64 pods, made beforehand
    python -m bench.bound --run 'kube-scheduler --kubeconfig {kubeconfig} --leader-elect=false' \\
                          --scheduler-name default-scheduler

Nodes and pods are created first; then the programs start, and the clock with the first of them. It stops when a watch
has seen the last node name, and again at the last write before two idle seconds. Writes are counted as revisions of the
storage, so none is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from typing import Any

from bench.stage import NAMESPACE, SeenPod, Stage, arguments, gpu_pod, pod_group, shared_queue, stage
from pykai.api import names
from pykai.kube.caches import Caches
from pykai.kube.resources import POD_GROUPS, PODS

_QUEUE = "bench"


async def measure(place: Stage, options: argparse.Namespace) -> None:
    """Prepare the cluster, start the programs, and print the figures."""
    pods, size = options.pods, options.gangs
    await place.set_up(options.nodes, [shared_queue(_QUEUE, pods)])
    groups = [f"gang-{number}" for number in range(-(-pods // size))] if size else []
    sizes = [min(size, pods - size * number) for number in range(len(groups))]
    gangs = [pod_group(name, _QUEUE, minimum) for name, minimum in zip(groups, sizes, strict=True)]
    await place.create_all(POD_GROUPS, gangs, NAMESPACE)
    documents = [
        gpu_pod(f"pod-{number}", _QUEUE, scheduler=options.scheduler_name, group=groups[number // size] if size else "")
        for number in range(pods)
    ]
    await place.create_all(PODS, documents, NAMESPACE)
    caches = Caches(place.client)
    bound: set[str] = set()
    last_s, all_bound = 0.0, asyncio.Event()

    def changed(change: Any) -> None:
        nonlocal last_s
        if change.new is not None and change.new.spec.node_name and change.key not in bound:
            bound.add(change.key)
            last_s = time.monotonic()
            if len(bound) == pods:
                all_bound.set()

    caches.store(PODS, SeenPod, namespace=NAMESPACE).subscribe(changed)
    await caches.start()
    await caches.wait_for_sync()
    before = await place.revision()
    began = await place.start(options.run or [])
    while not all_bound.is_set():
        place.check_alive()
        if time.monotonic() - began > options.patience:
            print(f"after {options.patience} s {len(bound)} of {pods} pods are bound", flush=True)
            break
        await asyncio.wait([asyncio.ensure_future(all_bound.wait())], timeout=1.0)
        print(f"\r{len(bound)} of {pods} pods bound", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    ended, revision = await place.wait_until_idle()
    what = f"gangs of {size}" if size else "pods"
    print(f"{options.nodes} nodes, {pods} one-GPU {what}")
    print(f"  bound                    {len(bound) / (last_s - began):6.1f} a second ({last_s - began:.1f} s)")
    print(f"  everything written       {pods / (ended - began):6.1f} a second ({ended - began:.1f} s)")
    print(f"  writes per pod           {(revision - before) / pods:6.2f}")
    for line in place.costs():
        print(line)
    await caches.stop()


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    parser.add_argument("--gangs", type=int, default=0, metavar="SIZE", help="pods in gangs of this size")
    parser.add_argument("--scheduler-name", default=names.SCHEDULER_NAME)
    parser.add_argument("--patience", type=float, default=600.0, help="seconds after which to give up")
    options = parser.parse_args()
    async with stage(options) as place:
        await measure(place, options)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
