"""allocate/quota (operations:17): what queues of several levels may have."""

from __future__ import annotations

import pytest

from tests.e2e.endtoend import EndToEnd, limited


async def test_a_limit_of_the_parent_is_shared_by_its_children(e2e: EndToEnd) -> None:
    children = await e2e.family(
        "quota", of={f"q{number}": {"gpu": limited(3, quota=1)} for number in range(3)}, gpu=limited(3)
    )
    # One of each queue first: more than the quota of a queue would be reclaimed later.
    first = [await e2e.pod(child, gpus=1) for child in children]
    second = [await e2e.pod(child, gpus=1) for child in children]
    await e2e.scheduled(*first)
    await e2e.unschedulable(*second)


async def test_a_limit_of_zero_lets_nothing_run(e2e: EndToEnd) -> None:
    (queue,) = await e2e.family("quota", of={"queue": {"gpu": limited(0)}})
    await e2e.unschedulable(await e2e.pod(queue, gpus=1))


async def test_without_quota_nothing_non_preemptible_runs(e2e: EndToEnd) -> None:
    (queue,) = await e2e.family("quota", of={"queue": {"gpu": limited(-1, quota=0)}})
    await e2e.unschedulable(await e2e.pod(queue, gpus=1, priorityClassName="e2e-high-held"))


@pytest.mark.parametrize("levels", [1, 3, 4])
async def test_a_queue_may_stand_at_any_level(e2e: EndToEnd, levels: int) -> None:
    queues = [f"level-{levels}-{number}" for number in range(levels)]
    for index, name in reversed(list(enumerate(queues))):
        await e2e.queue(name, **({"parentQueue": queues[index - 1]} if index else {}))
    pod = await e2e.pod(queues[-1], gpus=1)
    await e2e.scheduled(pod)
    said = (await e2e.made_group(pod)).get("status", {}).get("schedulingConditions") or ()
    assert not [each for each in said if each["type"] == "UnschedulableOnNodePool"]
