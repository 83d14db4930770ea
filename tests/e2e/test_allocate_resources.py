"""allocate/resources and allocate/applying_options (operations:17)."""

from __future__ import annotations

import asyncio

import pytest

from pykai.api import names
from tests.e2e.endtoend import EndToEnd, is_scheduled, is_unschedulable


@pytest.fixture
async def queue(e2e: EndToEnd) -> str:
    (made,) = await e2e.family("resources")
    return made


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {names.NVIDIA_GPU: "1"},
        {"cpu": "1"},
        {"memory": "100M"},
        {"ephemeral-storage": "100M"},
    ],
    ids=lambda asked: next(iter(asked), "nothing"),
)
async def test_a_pod_that_asks_for_one_resource(e2e: EndToEnd, queue: str, asked: dict[str, str]) -> None:
    await e2e.scheduled(await e2e.pod(queue, requests=asked))


async def test_a_pod_that_asks_for_a_fraction(e2e: EndToEnd, queue: str) -> None:
    """Its namespace is in the URL only: admission takes it from the request."""
    await e2e.ready(await e2e.pod(queue, fraction="0.5"))


async def test_more_fractions_than_gpus(e2e: EndToEnd, queue: str) -> None:
    """operations:E-26: a label names the GPU of each pod that has one, and of no other."""
    gpus = len(e2e.gpu_nodes()) * e2e.gpus_per_node
    pods = await asyncio.gather(*(e2e.pod(queue, fraction="0.7") for _ in range(2 * gpus)))
    await e2e.settled(pods, scheduled=gpus)
    groups = [
        pod["metadata"]["labels"][names.GPU_GROUP_LABEL]
        for pod in e2e.there(pods)
        if names.GPU_GROUP_LABEL in pod["metadata"]["labels"]
    ]
    assert len(groups) == len(set(groups)) == gpus
    labelled = [pod for pod in e2e.there(pods) if names.GPU_GROUP_LABEL in pod["metadata"]["labels"]]
    assert all(map(is_scheduled, labelled))
    assert not any(map(is_unschedulable, labelled))


async def test_a_pod_that_asks_for_gpu_memory(e2e: EndToEnd, queue: str) -> None:
    await e2e.scheduled(await e2e.pod(queue, annotations={names.GPU_MEMORY_ANNOTATION: "500"}))


async def test_a_pod_that_asks_for_more_memory_than_a_gpu_has(e2e: EndToEnd, queue: str) -> None:
    await e2e.unschedulable(await e2e.pod(queue, annotations={names.GPU_MEMORY_ANNOTATION: "500000000"}))
