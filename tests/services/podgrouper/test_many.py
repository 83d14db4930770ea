"""A large Job: what its progress costs does not grow with its pods."""

from __future__ import annotations

from typing import Any

import msgspec

from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.resources import JOBS
from pykai.kube.runtime import Runtime
from pykai.kube.store import Store
from pykai.podgrouper.service import make_podgrouper
from tests.calls import count_calls
from tests.kube.fakes import FakeServer


def put(store: Store[Any], *documents: dict[str, Any]) -> None:
    store.begin_list()
    store.add_listed([msgspec.Raw(msgspec.json.encode(each)) for each in documents])
    store.end_list("1")


def pod(name: str, node: str) -> dict[str, Any]:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "job", "controller": True}
    meta = {"name": name, "namespace": "ns", "uid": name, "ownerReferences": [owner]}
    return {"metadata": meta, "spec": {"schedulerName": "kai-scheduler", "nodeName": node}}


def job(succeeded: int) -> dict[str, Any]:
    meta = {"name": "job", "namespace": "ns", "uid": "job", "resourceVersion": str(succeeded)}
    return {"metadata": meta, "status": {"succeeded": succeeded}}


async def progress(*pods: dict[str, Any]) -> tuple[int, bool]:
    """The cost of one more finished pod, and whether other pods are read."""
    client = Client(FakeServer())
    service = make_podgrouper(Runtime(client, Caches(client), Clock()))
    jobs = next(store for store in service._owners.stores if store.resource == JOBS)
    put(jobs, job(1))
    put(service._pods, *pods)
    await service._subscribe()
    queue = service._reconciler._queue
    while (key := queue.get()) is not None:
        queue.done(key)
    cost = count_calls(lambda: put(jobs, job(2)))
    return cost, not service._reconciler.idle()


async def test_the_progress_of_a_running_job_does_not_read_its_pods() -> None:
    few, _ = await progress(*(pod(f"pod-{number}", "node") for number in range(10)))
    many, anybody = await progress(*(pod(f"pod-{number}", "node") for number in range(1000)))
    assert many == few
    assert not anybody


async def test_the_progress_of_a_job_enqueues_one_waiting_pod() -> None:
    running = [pod(f"pod-{number}", "node") for number in range(10)]
    _, anybody = await progress(*running, pod("waits", ""))
    assert anybody
