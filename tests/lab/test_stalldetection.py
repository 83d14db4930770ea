"""A story that waits: given up when nothing can change any more, and not before."""

from __future__ import annotations

import asyncio

from pykai.lab.cluster import LabCluster, LabOptions
from pykai.lab.stalldetection import StallDetector
from pykai.lab.story import parse_story
from pykai.operator.install import installation

MACHINES = "machines: [{name: h100, count: 2, gpus: 8}]\nqueues: [{name: team, gpu: {quota: 16}}]\n"


async def told(steps: str) -> tuple[bool, list[str]]:
    """Whether the story came to its end, and why its jobs wait if it did not."""
    options = LabOptions(story=parse_story(f"{MACHINES}steps: {steps}"), speed=60, objects=installation())
    cluster = await LabCluster.start(options)
    still = StallDetector(cluster.runtime, cluster.scheduler, cluster.player)
    stop = asyncio.Event()
    running = asyncio.create_task(cluster.run(stop))
    ends = [asyncio.create_task(event.wait()) for event in (cluster.player.finished, still.stalled)]
    await asyncio.wait({running, *ends}, return_when=asyncio.FIRST_COMPLETED)
    finished = cluster.player.finished.is_set()
    stop.set()
    await running
    for end in ends:
        end.cancel()
    return finished, still.reasons


async def test_a_job_larger_than_the_cluster_is_a_standstill() -> None:
    finished, sentences = await told("[{at: 1s, jobs: [{name: big, queue: team, pods: 8, gpus: 8, runs: 10s}]}]")
    assert not finished
    assert [sentence.partition(": ")[0] for sentence in sentences] == ["job default/big waits"]
    assert "8 are required for gang scheduling" in sentences[0]


async def test_a_job_that_waits_for_another_to_end_is_none() -> None:
    first = "{at: 1s, jobs: [{name: first, queue: team, pods: 2, gpus: 8, runs: 60s}]}"
    second = "{at: 2s, jobs: [{name: second, queue: team, pods: 2, gpus: 8, runs: 5s}]}"
    assert await told(f"[{first}, {second}]") == (True, [])


async def test_an_elastic_job_whose_rest_waits_for_its_own_pods_is_none() -> None:
    elastic = "{name: a, queue: team, pods: 3, minimum: 1, gpus: 8, runs: 60s}"
    assert await told(f"[{{at: 1s, jobs: [{elastic}]}}]") == (True, [])
