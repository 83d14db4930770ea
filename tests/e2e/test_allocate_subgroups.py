"""allocate/subgroups (operations:17): a queue of 600m, pods of 100m."""

from __future__ import annotations

import pytest

from pykai.kube.resources import PODS, QUEUES
from tests.e2e.endtoend import EndToEnd, is_scheduled, limited, subgroup


@pytest.fixture
async def queue(e2e: EndToEnd) -> str:
    (made,) = await e2e.family("subgroups", of={"queue": {"cpu": limited(600)}})
    return made


async def group(e2e: EndToEnd, name: str, queue: str, pods: int, minimum: int) -> dict[str, list[str]]:
    """Two sub-groups with so many pods each, behind a gate, and their group."""
    made = {}
    for side in ("left", "right"):
        made[side] = [
            await e2e.pod(queue, cpu="100m", group=name, subgroup=side, schedulingGates=[{"name": "kai.test/later"}])
            for _ in range(pods)
        ]
    subgroups = [subgroup(side, minimum) for side in made]
    await e2e.group(name, queue, 2 * minimum, subGroups=subgroups)
    return made


async def release(e2e: EndToEnd, *groups: dict[str, list[str]]) -> None:
    """Open the gates of all pods."""
    for made in groups:
        for pods in made.values():
            for name in pods:
                await e2e.client.patch(PODS, name, {"spec": {"schedulingGates": None}}, "kai-e2e")


async def limit(e2e: EndToEnd, queue: str, millicores: float) -> None:
    """Set how much of the processors a queue may use."""
    await e2e.client.patch(QUEUES, queue, {"spec": {"resources": {"cpu": limited(millicores)}}})


def scheduled(e2e: EndToEnd, pods: list[str]) -> int:
    return sum(map(is_scheduled, e2e.there(pods)))


async def test_each_subgroup_has_its_minimum(e2e: EndToEnd, queue: str) -> None:
    pods = await group(e2e, "one", queue, pods=5, minimum=3)
    await release(e2e, pods)
    for side in pods.values():
        await e2e.settled(side, scheduled=3)


async def test_two_groups_share_what_there_is(e2e: EndToEnd, queue: str) -> None:
    # One cycle has to see all pods, however slowly their gates open: until then the queue has no room.
    await limit(e2e, queue, 0)
    first = await group(e2e, "first", queue, pods=3, minimum=1)
    second = await group(e2e, "second", queue, pods=3, minimum=1)
    await release(e2e, first, second)
    groups = [[*made["left"], *made["right"]] for made in (first, second)]
    await e2e.unschedulable(*groups[0], *groups[1])
    await limit(e2e, queue, 600)
    for pods in groups:
        await e2e.settled(pods, scheduled=3)


async def test_a_second_group_waits_where_the_first_has_all(e2e: EndToEnd, queue: str) -> None:
    """The first one grows beyond its minimum before the second one starts."""
    first = await group(e2e, "first", queue, pods=3, minimum=2)
    await release(e2e, first)
    both = [*first["left"], *first["right"]]
    await e2e.until(lambda: scheduled(e2e, both) > 0, "the first group starts")
    second = await group(e2e, "second", queue, pods=3, minimum=2)
    await release(e2e, second)
    await e2e.scheduled(*both)
    await e2e.unschedulable(*second["left"], *second["right"])
    assert scheduled(e2e, both) == 6
