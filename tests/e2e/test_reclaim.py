"""reclaim (operations:17): queues of one parent whose quota is its limit, each with a quota of its own."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.kube.client import PatchKind
from pykai.kube.resources import POD_GROUPS, QUEUES
from tests.e2e.endtoend import NAMESPACE, EndToEnd, is_scheduled, limited, seconds, subgroup


async def queues(
    e2e: EndToEnd, parent: float, *quotas: float, weights: tuple[float, ...] = (), **last: Any
) -> list[str]:
    """Child queues with these quotas of a parent; `last` are further fields of the last one."""
    children = {
        f"q{number}": {
            "gpu": {"quota": quota, "limit": -1, "overQuotaWeight": weights[number] if weights else 2},
            **(last if number == len(quotas) - 1 else {}),
        }
        for number, quota in enumerate(quotas)
    }
    return await e2e.family("reclaim", of=children, gpu=limited(parent))


async def pods_of(e2e: EndToEnd, queue: str, *amounts: float) -> list[str]:
    """Running pods with so many GPUs each."""
    made = [
        await (e2e.pod(queue, gpus=int(amount)) if amount >= 1 else e2e.pod(queue, fraction=str(amount)))
        for amount in amounts
    ]
    await e2e.scheduled(*made)
    return made


async def asks(e2e: EndToEnd, queue: str, amount: float) -> str:
    """A pod that waits."""
    return await (e2e.pod(queue, gpus=int(amount)) if amount >= 1 else e2e.pod(queue, fraction=str(amount)))


@pytest.mark.parametrize(
    ("quotas", "has", "other", "asked"),
    [
        ((1, 1), (2, 2), (), 2),
        ((2, 2), (1, 2), (1,), 0.5),
        ((0, 0), (1, 2), (1,), 0.5),
        ((2, 2), (2, 0.9, 0.3, 0.3), (), 1),
        ((0, 0), (2, 0.9, 0.3, 0.3), (), 1),
    ],
)
async def test_a_queue_reclaims_what_it_deserves(
    e2e: EndToEnd, quotas: tuple[float, ...], has: tuple[float, ...], other: tuple[float, ...], asked: float
) -> None:
    taking, having = await queues(e2e, 4, *quotas)
    await pods_of(e2e, having, *has)
    await pods_of(e2e, taking, *other)
    await e2e.scheduled(await asks(e2e, taking, asked))


async def test_a_queue_reclaims_no_more_than_it_deserves(e2e: EndToEnd) -> None:
    taking, having = await queues(e2e, 4, 1, 1)
    running = await pods_of(e2e, having, 2, 1, 0.5)
    await pods_of(e2e, taking, 0.5)
    await e2e.unschedulable(await asks(e2e, taking, 2))
    await e2e.scheduled(*running)


async def test_a_queue_of_higher_priority_reclaims(e2e: EndToEnd) -> None:
    having, taking = await queues(e2e, 4, 1, 0, priority=101)
    await pods_of(e2e, having, 2, 2)
    await e2e.scheduled(await asks(e2e, taking, 1))


async def test_weights_and_then_a_priority_decide(e2e: EndToEnd) -> None:
    first, second = await queues(e2e, 8, 1, 1, weights=(1, 2))
    small = [await e2e.job(first, gpus=1) for _ in range(10)]
    await e2e.jobs_scheduled(8, *small)
    large = [await e2e.job(second, gpus=1) for _ in range(10)]
    await e2e.jobs_scheduled(5, *large)
    await e2e.jobs_scheduled(3, *small)
    third = await e2e.queue("reclaim-q2", parentQueue="reclaim", priority=101, gpu=limited(3, quota=0))
    pods = [await e2e.job(third, gpus=1) for _ in range(3)]
    await e2e.jobs_scheduled(3, *pods)
    await e2e.jobs_scheduled(2, *small)
    await e2e.jobs_scheduled(3, *large)


async def test_work_that_runs_too_short_is_protected(e2e: EndToEnd) -> None:
    """The time is a field of the queue."""
    having, taking = await queues(e2e, 4, 1, 1)
    await e2e.client.patch(QUEUES, having, {"spec": {"reclaimMinRuntime": seconds(60, 4)}})
    await pods_of(e2e, having, 4)
    pod = await asks(e2e, taking, 1)
    await e2e.unschedulable(pod)
    await e2e.scheduled(pod)


async def test_elastic_groups_shrink_evenly(e2e: EndToEnd) -> None:
    taking, having = await queues(e2e, 4, 2, 2)
    groups = [await e2e.gang(name, having, 2, gpus=1) for name in ("first", "second")]
    await e2e.scheduled(*groups[0], *groups[1])
    await e2e.scheduled(await asks(e2e, taking, 2))
    await e2e.until(lambda: [len(e2e.there(pods)) for pods in groups] == [1, 1], "a pod of each group stays")


async def test_a_whole_elastic_job_is_reclaimed(e2e: EndToEnd) -> None:
    taking, having = await queues(e2e, 2, 2, 0)
    pods = await e2e.gang("elastic", having, 2, gpus=1)
    await e2e.scheduled(*pods)
    await e2e.scheduled(await asks(e2e, taking, 2))
    assert not e2e.there(pods)


async def test_a_whole_elastic_job_is_reclaimed_for_a_distributed_one(e2e: EndToEnd) -> None:
    taking, having = await queues(e2e, 2, 2, 0)
    pods = await e2e.gang("elastic", having, 2, gpus=1)
    await e2e.scheduled(*pods)
    await e2e.scheduled(*await e2e.gang("distributed", taking, 2, minimum=2, gpus=1))
    assert not e2e.there(pods)


async def test_part_of_an_elastic_job_is_reclaimed(e2e: EndToEnd) -> None:
    """A minimum that is set later counts, too."""
    taking, having = await queues(e2e, 3, 1, 2)
    pods = await e2e.gang("elastic", having, 3, gpus=1)
    await e2e.scheduled(*pods)
    await e2e.client.patch(
        POD_GROUPS,
        "elastic",
        [{"op": "replace", "path": "/spec/minMember", "value": 2}],
        NAMESPACE,
        kind=PatchKind.JSON,
    )
    await e2e.scheduled(await asks(e2e, taking, 1))
    assert sum(map(is_scheduled, e2e.there(pods))) == 2


async def test_a_minimal_runtime_protects_only_the_core(e2e: EndToEnd) -> None:
    """90 seconds upstream, and so here: nothing waits for them."""
    taking, having = await queues(e2e, 3, 1, 1)
    await e2e.client.patch(QUEUES, having, {"spec": {"reclaimMinRuntime": "90s"}})
    pods = await e2e.gang("elastic", having, 3, minimum=2, gpus=1)
    await e2e.scheduled(*pods)
    await e2e.scheduled(await asks(e2e, taking, 1))
    assert sum(map(is_scheduled, e2e.there(pods))) == 2


async def test_a_gang_over_several_nodes_reclaims(e2e: EndToEnd) -> None:
    whole = e2e.gpus_per_node
    everything = len(e2e.gpu_nodes()) * whole
    taking, having = await queues(e2e, everything, 2 * whole, everything - 2 * whole)
    running = [await e2e.pod(having, gpus=whole) for _ in e2e.gpu_nodes()]
    await e2e.scheduled(*running)
    await e2e.scheduled(*await e2e.gang("gang", taking, 2, minimum=2, gpus=whole))
    assert len(e2e.there(running)) == len(running) - 2


async def test_elastic_subgroups_are_reclaimed(e2e: EndToEnd) -> None:
    taking, having = await e2e.family(
        "reclaim-cpu",
        of={name: {"cpu": {"quota": 200, "limit": -1, "overQuotaWeight": 1}} for name in ("a", "b")},
        cpu=limited(400),
    )
    pods = {name: await e2e.pods(2, having, cpu="100m", group="group", subgroup=name) for name in ("one", "two")}
    await e2e.group("group", having, None, minSubGroup=1, subGroups=[subgroup(name, 2) for name in pods])
    await e2e.scheduled(*pods["one"], *pods["two"])
    await e2e.scheduled(await e2e.pod(taking, cpu="200m"))
    assert sorted(len(e2e.there(each)) for each in pods.values()) == [0, 2]
