"""PodDisruptionBudgets of the API server in evictions (disruptions:prefer, disruptions:strict)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pykai.api.disruption import PodDisruptionBudget
from pykai.api.scheduling import PodGroup
from pykai.kube import resources
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.runtime import Runtime
from pykai.lab.controllers.disruptionbudgets import disruption_budgets
from tests.services.scheduler.schedulercluster import SchedulerCluster, scheduler_cluster

WEB = {"app": "web"}


async def web_pod(lab: SchedulerCluster, name: str, **labels: str) -> None:
    """A ready pod of a group of its own, on node a."""
    await lab.group(name, queue="rich")
    made = await lab.pod(f"{name}-0", name, gpu=1)
    await lab.client.bind("default", f"{name}-0", uid=made["metadata"]["uid"], node="a")
    await lab.client.patch(resources.PODS, f"{name}-0", {"metadata": {"labels": labels}}, "default")
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await lab.client.patch(resources.PODS, f"{name}-0", {"status": ready}, "default", subresource="status")


async def a_full_node(lab: SchedulerCluster, *names: str) -> None:
    """Pods of queue `rich` on every GPU; queue `poor` deserves all of them."""
    await lab.node("a", gpus=len(names))
    await lab.queue("rich", parent="department", quota=0)
    await lab.queue("poor", parent="department", quota=len(names))
    for name in names:
        await web_pod(lab, name, **(WEB if name.startswith("web") else {}))


async def budget(lab: SchedulerCluster, **spec: Any) -> None:
    content = {"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": WEB}, **spec}}
    await lab.create(resources.POD_DISRUPTION_BUDGETS, content)


def leaving(lab: SchedulerCluster) -> list[str]:
    return sorted(pod.metadata.name for pod in lab.pods.values() if pod.metadata.deletion_timestamp is not None)


def messages(groups: Iterable[PodGroup]) -> list[str]:
    """What the conditions of PodGroups say."""
    return [each.message for group in groups for each in group.status.scheduling_conditions]


async def test_a_pod_within_its_budget_is_evicted_in_place_of_one_beyond() -> None:
    """The pod under the budget is the younger one, which would go first."""
    async with scheduler_cluster() as lab:
        await a_full_node(lab, "batch", "web")
        await budget(lab, minAvailable=1)
        await lab.gang("needy", pods=1, queue="poor", gpu=1)
        async with lab.scheduler():
            await lab.pods.wait_until(lambda _: bool(leaving(lab)), 10)
        assert leaving(lab) == ["batch-0"]


async def test_what_the_controller_allows_is_spent_once() -> None:
    """Two of three pods have to go, and the budget of the two younger ones allows one."""
    async with scheduler_cluster() as lab:
        await a_full_node(lab, "batch", "web1", "web2")
        await budget(lab, minAvailable=1)
        client = Client(lab.server.transport())
        runtime = Runtime(client, Caches(client), lab.clock)
        budgets = lab.caches.store(resources.POD_DISRUPTION_BUDGETS, PodDisruptionBudget)
        await runtime.caches.start()
        stop = asyncio.Event()
        controller = asyncio.create_task(disruption_budgets(runtime).run(stop))
        try:
            await budgets.wait_until(
                lambda store: any(each.status.disruptions_allowed == 1 for each in store.values()), 10
            )
            for name in ("needy1", "needy2"):
                await lab.gang(name, pods=1, queue="poor", gpu=1)
            async with lab.scheduler():
                await lab.pods.wait_until(lambda _: len(leaving(lab)) == 2, 10)
        finally:
            stop.set()
            await controller
            await runtime.caches.stop()
        assert leaving(lab) == ["batch-0", "web2-0"]


async def test_a_strict_budget_is_the_reason_why_a_job_waits(tmp_path: Path) -> None:
    conf = tmp_path / "conf.yaml"
    conf.write_text("podDisruptionBudgets: strict\n")
    async with scheduler_cluster() as lab:
        await a_full_node(lab, "web")
        await budget(lab, minAvailable=1)
        await lab.gang("needy", pods=1, queue="poor", gpu=1)
        said = "Workload may not evict others: PodDisruptionBudget default/web allows only 0 more evictions of its pods"
        async with lab.scheduler(scheduler_conf=str(conf)):
            await lab.groups.wait_until(lambda store: any(said in message for message in messages(store.values())), 10)
        assert leaving(lab) == []
