"""preempt (operations:17): a queue of half a core, pods that need all of it, unless a spec says otherwise."""

from __future__ import annotations

import pytest

from pykai.api import names
from pykai.kube.resources import POD_GROUPS
from tests.e2e.endtoend import NAMESPACE, EndToEnd, deserves, is_scheduled, limited, seconds, subgroup

ALL = "500m"


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
    group = e2e.stores[POD_GROUPS].get(f"{NAMESPACE}/{e2e.group_of(first)}")
    assert group is not None
    assert group["spec"]["preemptibility"] == preemptibility
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
    await e2e.scheduled(await e2e.pod(queue, gpus=2, priorityClassName="e2e-high"))
    await e2e.until(lambda: [len(e2e.there(pods)) for pods in groups] == [1, 1], "a pod of each group stays")


async def test_a_whole_elastic_job_is_preempted(e2e: EndToEnd) -> None:
    queue = await gpus(e2e, 2)
    pods = await e2e.gang("elastic", queue, 2, gpus=1, priority="e2e-low")
    await e2e.scheduled(*pods)
    await e2e.scheduled(await e2e.pod(queue, gpus=2, priorityClassName="e2e-high"))
    assert not e2e.there(pods)


async def test_pods_of_the_lowest_priority_go_first(e2e: EndToEnd) -> None:
    queue = await gpus(e2e, 4)
    pods = [
        await e2e.pod(queue, gpus=1, group="group", labels={names.TASK_PRIORITY_LABEL: priority})
        for priority in ("0", "1", "0", "1")
    ]
    await e2e.group("group", queue, 1, priorityClassName="e2e-low")
    await e2e.scheduled(*pods)
    await e2e.scheduled(await e2e.pod(queue, gpus=2, priorityClassName="e2e-high"))
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
    running = [await e2e.pod(queue, gpus=whole, priorityClassName="e2e-low") for _ in range(len(e2e.gpu_nodes()))]
    await e2e.scheduled(*running)
    gang = await e2e.gang("gang", queue, 2, minimum=2, gpus=whole, priority="e2e-high")
    await e2e.scheduled(*gang)
    assert sum(map(is_scheduled, e2e.there(running))) == len(running) - 2


async def test_a_preemption_that_is_delayed(e2e: EndToEnd, queue: str) -> None:
    low = await e2e.pod(queue, cpu=ALL, priorityClassName="e2e-low")
    await e2e.scheduled(low)
    high = await e2e.pod(
        queue, cpu=ALL, priorityClassName="e2e-high", annotations={"kai.scheduler/preemption-delay": seconds(90, 3)}
    )
    await e2e.unschedulable(high)
    assert e2e.there([low])
    await e2e.scheduled(high)
