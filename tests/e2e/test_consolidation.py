"""consolidation (operations:17): running work moves together so that a larger pod finds room."""

from __future__ import annotations

from collections import defaultdict

import pytest

from pykai.api import names
from pykai.kube.resources import JOBS
from tests.e2e.endtoend import NAMESPACE, EndToEnd, is_scheduled
from tests.e2e.test_allocate_predicates import on_node


@pytest.fixture
async def queue(e2e: EndToEnd) -> str:
    (made,) = await e2e.family("consolidation")
    return made


async def free_one_in_each(e2e: EndToEnd, jobs: dict[str, list[str]], count: int) -> list[str]:
    """Delete a Job in so many places; those that stay."""
    gone = [of[0] for of in list(jobs.values())[:count]]
    for name in gone:
        await e2e.client.delete(JOBS, name, NAMESPACE, propagation="Background")
    await e2e.until(lambda: not e2e.of_job(*gone), "the pods of deleted Jobs are gone")
    return [name for of in jobs.values() for name in of if name not in gone]


async def test_whole_gpus_on_two_nodes_become_two_on_one(e2e: EndToEnd, queue: str) -> None:
    jobs = [await e2e.job(queue, gpus=1) for _ in range(len(e2e.gpu_nodes()) * e2e.gpus_per_node)]
    await e2e.jobs_scheduled(len(jobs), *jobs)
    by_node = defaultdict(list)
    for pod in e2e.of_job(*jobs):
        by_node[pod["spec"]["nodeName"]].append(pod["metadata"]["labels"]["workload"])
    left = await free_one_in_each(e2e, by_node, 2)
    large = await e2e.pod(queue, gpus=2)
    await e2e.scheduled(large)
    await e2e.jobs_scheduled(len(left), *left)


async def test_halves_of_gpus_become_a_whole_one(e2e: EndToEnd, queue: str) -> None:
    node = e2e.gpu_nodes()[0]
    jobs = [await e2e.job(queue, fraction="0.5", **on_node(node)) for _ in range(2 * e2e.gpus_per_node)]
    await e2e.jobs_scheduled(len(jobs), *jobs)
    by_gpu = defaultdict(list)
    for pod in e2e.of_job(*jobs):
        by_gpu[pod["metadata"]["labels"][names.GPU_GROUP_LABEL]].append(pod["metadata"]["labels"]["workload"])
    left = await free_one_in_each(e2e, by_gpu, len(by_gpu))
    large = await e2e.pod(queue, gpus=1, **on_node(node))
    await e2e.scheduled(large)
    await e2e.jobs_scheduled(len(left), *left)
    assert all(map(is_scheduled, e2e.of_job(*left)))
