"""allocate/elastic (operations:17): a queue with half a core."""

from __future__ import annotations

import pytest

from pykai.api import names
from tests.e2e.endtoend import EndToEnd, limited


@pytest.fixture
async def queue(e2e: EndToEnd) -> str:
    (made,) = await e2e.family("elastic", of={"queue": {"cpu": limited(500)}})
    return made


async def test_part_of_a_group_runs_if_that_is_enough(e2e: EndToEnd, queue: str) -> None:
    pods = await e2e.gang("one", queue, 2, cpu="500m")
    await e2e.settled(pods, scheduled=1)


async def test_a_whole_group_runs(e2e: EndToEnd, queue: str) -> None:
    pods = await e2e.gang("one", queue, 2, cpu="200m")
    await e2e.scheduled(*pods)


async def test_two_groups_share_what_there_is(e2e: EndToEnd, queue: str) -> None:
    first = await e2e.pods(3, queue, cpu="100m", group="first")
    second = await e2e.pods(3, queue, cpu="100m", group="second")
    await e2e.group("first", queue)
    await e2e.group("second", queue)
    await e2e.settled([*first, *second], scheduled=5)


async def test_the_elastic_pods_of_a_high_priority_go_first(e2e: EndToEnd, queue: str) -> None:
    high = await e2e.gang("high", queue, 2, cpu="250m", priority="e2e-high")
    low = await e2e.pod(queue, cpu="250m", priorityClassName="e2e-low")
    await e2e.scheduled(*high)
    await e2e.unschedulable(low)


async def test_pods_of_a_group_go_by_their_own_priority(e2e: EndToEnd, queue: str) -> None:
    pods = {
        priority: await e2e.pod(queue, cpu="200m", group="one", labels={names.TASK_PRIORITY_LABEL: str(priority)})
        for priority in (1, 3, 2)
    }
    await e2e.group("one", queue)
    await e2e.scheduled(pods[3], pods[2])
    await e2e.unschedulable(pods[1])


async def test_a_pod_with_a_priority_goes_before_one_without(e2e: EndToEnd, queue: str) -> None:
    plain = await e2e.pod(queue, cpu="300m", group="one")
    labelled = await e2e.pod(queue, cpu="300m", group="one", labels={names.TASK_PRIORITY_LABEL: "1"})
    await e2e.group("one", queue)
    await e2e.scheduled(labelled)
    await e2e.unschedulable(plain)
