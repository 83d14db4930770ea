"""The story of `kai up`, told fast: it overloads, reclaims, consolidates and finishes."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from pykai.api import names
from pykai.core.report.decisions import Plan
from pykai.dev.soak.invariants import is_complete
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.resources import BIND_REQUESTS, JOBS, PODS
from pykai.kube.runtime import Runtime
from pykai.lab.apiserver.server import ApiServer
from pykai.lab.cluster import LabCluster, LabOptions
from pykai.lab.stalldetection import StallDetector
from pykai.lab.story import DEFAULT_STORY, Story, parse_story, read_story
from pykai.operator.install import installation
from pykai.webhooks.admission import pod_mutator, pod_validator
from tests.kube.faketime import LoopClock, ThreadlessLoop

Document = dict[str, Any]

#: cluster seconds, far more than the story takes
_HOUR_S = 3600.0
SERVICES_DOC = Path(__file__).parents[2] / "docs" / "services.md"


def test_the_built_in_story_comes_to_its_end() -> None:
    """In fake time: on a slow machine jobs would end before anything is reclaimed for others."""
    story = msgspec.structs.replace(read_story(DEFAULT_STORY), repeat="0s")
    actions = Counter[str]()
    waited: set[str] = set()

    def planned(plan: Plan) -> None:
        actions.update(eviction.action for eviction in plan.evictions)
        waited.update(each.group for each in plan.unscheduled if each.pending)

    with asyncio.Runner(loop_factory=ThreadlessLoop) as runner:
        jobs, left, pods = runner.run(_told(story, planned))
    assert len(jobs) == 10
    assert all(is_complete(job) for job in jobs)
    assert actions["reclaim"] > 0
    assert actions["consolidation"] > 0
    assert any(group.startswith("pg-detector") for group in waited)
    assert not [pod for pod in pods if pod["status"].get("reason", "").startswith("OutOf")]
    assert not [request for request in left if request["metadata"]["namespace"] == names.RESERVATION_NAMESPACE]


async def _told(story: Story, planned: Callable[[Plan], None]) -> list[list[Document]]:
    """Tell a story to its end in time that only the loop knows; Jobs, BindRequests and pods afterwards."""
    clock = LoopClock.of_2026()
    async with asyncio.timeout(_HOUR_S):
        server = await ApiServer.open(
            clock=clock, objects=installation(), mutators=(pod_mutator(),), validators=(pod_validator(),)
        )
        client = Client(server.transport())
        runtime = Runtime(client, Caches(client), clock)
        cluster = LabCluster(LabOptions(story=story), server, runtime, port=0)
        cluster.scheduler.loop.plan_listeners.append(planned)
        stop = asyncio.Event()
        running = asyncio.create_task(cluster.run(stop))
        finished = asyncio.create_task(cluster.player.finished.wait())
        await asyncio.wait({running, finished}, return_when=asyncio.FIRST_COMPLETED)
        found = [await client.list_raw(kind) for kind in (JOBS, BIND_REQUESTS, PODS)]
        stop.set()
        await running
    return found


async def test_the_story_of_the_services_page_comes_to_its_end() -> None:
    """Whichever came first, both jobs end beside the service that stays: nothing waits for what will never be free."""
    (listing,) = re.findall(r"```yaml\n(.*?)```", SERVICES_DOC.read_text(encoding="utf-8"), re.DOTALL)
    story = parse_story(listing)
    cluster = await LabCluster.start(LabOptions(story=story, speed=200, objects=installation()))
    still = StallDetector(cluster.runtime, cluster.scheduler, cluster.player)
    stop = asyncio.Event()
    running = asyncio.create_task(cluster.run(stop))
    ends = [asyncio.create_task(event.wait()) for event in (cluster.player.finished, still.stalled)]
    await asyncio.wait({running, *ends}, return_when=asyncio.FIRST_COMPLETED)
    jobs: list[dict[str, Any]] = await cluster.runtime.client.list_raw(JOBS)
    stop.set()
    await running
    for end in ends:
        end.cancel()
    assert still.reasons == []
    assert {job["metadata"]["name"] for job in jobs if is_complete(job)} == {"train", "tune"}
