"""preempt (operations:17): a queue of half a core, pods that need all of it, unless a spec says otherwise."""

from __future__ import annotations

import pytest

from pykai.api import names
from tests.e2e.endtoend import EndToEnd, created_s, deserves, limited, real_or_short, subgroup
from tests.e2e.shards import all_gpus

ALL = "500m"
#: of pods that preempt and cannot be preempted
HELD = {"priorityClassName": "e2e-high-held"}


@pytest.fixture
async def queue(e2e: EndToEnd) -> str:
    (made,) = await e2e.family("preempt", of={"queue": {"cpu": limited(500)}})
    return made


async def two(e2e: EndToEnd, queue: str, first: str, second: str) -> tuple[str, str]:
    """A running pod of one priority, then a pod of another."""
    running = await e2e.pod(queue, cpu=ALL, priorityClassName=first)
    await e2e.scheduled(running)
    return running, await e2e.pod(queue, cpu=ALL, priorityClassName=second)


@pytest.mark.parametrize("high", ["e2e-high", "e2e-high-held"])
async def test_a_high_priority_takes_the_place_of_a_preemptible_low_one(e2e: EndToEnd, queue: str, high: str) -> None:
    low, pod = await two(e2e, queue, "e2e-low", high)
    await e2e.scheduled(pod)
    assert not e2e.there([low])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("e2e-low-held", "e2e-high-held"),
        ("e2e-high", "e2e-low"),
        ("e2e-high-held", "e2e-low"),
        ("e2e-high-held", "e2e-low-held"),
        ("e2e-low", "e2e-low"),
        ("e2e-low-held", "e2e-low-held"),
    ],
)
async def test_what_must_not_preempt(e2e: EndToEnd, queue: str, first: str, second: str) -> None:
    running, pod = await two(e2e, queue, first, second)
    await e2e.unschedulable(pod)
    await e2e.scheduled(running)


@pytest.mark.parametrize(
    ("running", "preemptibility", "is_preempted"),
    [("e2e-low-held", "preemptible", True), ("e2e-low", "non-preemptible", False)],
)
async def test_a_label_decides_what_can_be_preempted(
    e2e: EndToEnd, queue: str, running: str, preemptibility: str, is_preempted: bool
) -> None:
    first = await e2e.pod(
        queue, cpu=ALL, priorityClassName=running, labels={names.PREEMPTIBILITY_LABEL: preemptibility}
    )
    await e2e.scheduled(first)
    assert (await e2e.made_group(first))["spec"]["preemptibility"] == preemptibility
    second = await e2e.pod(queue, cpu=ALL, priorityClassName="e2e-high-held")
    await (e2e.scheduled(second) if is_preempted else e2e.unschedulable(second))
    assert bool(e2e.there([first])) is not is_preempted


async def gpus(e2e: EndToEnd, count: int) -> str:
    """A queue that deserves so many GPUs and may have no more."""
    (made,) = await e2e.family("preempt-gpus", of={"queue": {"gpu": limited(count)}})
    return made


async def test_elastic_groups_shrink_evenly(e2e: EndToEnd) -> None:
    queue = await gpus(e2e, 4)
    groups = [await e2e.gang(name, queue, 2, gpus=1, priority="e2e-low") for name in ("first", "second")]
    await e2e.scheduled(*groups[0], *groups[1])
    await e2e.scheduled(await e2e.pod(queue, gpus=2, labels=HELD))
    await e2e.until(lambda: [len(e2e.there(pods)) for pods in groups] == [1, 1], "a pod of each group stays")


async def test_a_whole_elastic_job_is_preempted(e2e: EndToEnd) -> None:
    queue = await gpus(e2e, 2)
    pods = await e2e.gang("elastic", queue, 2, gpus=1, priority="e2e-low")
    await e2e.scheduled(*pods)
    await e2e.scheduled(await e2e.pod(queue, gpus=2, labels=HELD))
    assert not e2e.there(pods)


async def test_pods_of_the_lowest_priority_go_first(e2e: EndToEnd) -> None:
    queue = await gpus(e2e, 4)
    pods = [
        await e2e.pod(queue, gpus=1, group="group", labels={names.TASK_PRIORITY_LABEL: priority})
        for priority in ("0", "1", "0", "1")
    ]
    await e2e.group("group", queue, 1, priorityClassName="e2e-low")
    await e2e.scheduled(*pods)
    await e2e.scheduled(await e2e.pod(queue, gpus=2, labels=HELD))
    left = [pod["metadata"]["labels"][names.TASK_PRIORITY_LABEL] for pod in e2e.there(pods)]
    assert left == ["1", "1"]


async def test_subgroups_beyond_the_number_that_must_run_are_taken(e2e: EndToEnd) -> None:
    (queue,) = await e2e.family("preempt-subgroups", of={"queue": {"cpu": limited(400)}})
    pods = {name: await e2e.pods(2, queue, cpu="100m", group="group", subgroup=name) for name in ("first", "second")}
    leaves = [subgroup(name, 2) for name in pods]
    await e2e.group("group", queue, None, minSubGroup=1, subGroups=leaves, priorityClassName="e2e-low")
    await e2e.scheduled(*pods["first"], *pods["second"])
    await e2e.scheduled(await e2e.pod(queue, cpu="200m", priorityClassName="e2e-high"))
    assert sorted(len(e2e.there(each)) for each in pods.values()) == [0, 2]


async def test_a_gang_over_two_nodes_preempts(e2e: EndToEnd) -> None:
    (queue,) = await e2e.family("preempt-distributed", of={"queue": {"gpu": deserves(-1)}})
    whole = e2e.gpus_per_node
    jobs = [await e2e.job(queue, gpus=1, priorityClassName="e2e-low") for _ in range(all_gpus(e2e))]
    await e2e.jobs_scheduled(len(jobs), *jobs)
    gang = await e2e.gang("gang", queue, 2, minimum=2, gpus=whole, priority="e2e-high-held")
    await e2e.scheduled(*gang)
    assert len(set(map(e2e.node_of, gang))) == 2
    await e2e.jobs_scheduled(len(jobs) - 2 * whole, *jobs)


async def test_a_preemption_that_is_delayed(e2e: EndToEnd, queue: str) -> None:
    """queues:Q-321. From the creation of its group on, and not a moment less."""
    delay_s = real_or_short(90, 3)
    low = await e2e.pod(queue, cpu=ALL, priorityClassName="e2e-low")
    await e2e.scheduled(low)
    delay = {names.PREEMPTION_DELAY_ANNOTATION: f"{delay_s}s"}
    high = await e2e.pod(queue, cpu=ALL, priorityClassName="e2e-high", annotations=delay)
    due_s = created_s(await e2e.made_group(high)) + delay_s
    await e2e.decided(high)
    await e2e.scheduled(high)
    assert e2e.left_s[low] >= due_s
