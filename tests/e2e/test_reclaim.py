"""reclaim (operations:17): queues of one parent whose quota is its limit, each with a quota of its own."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.kube.client import PatchKind
from pykai.kube.resources import POD_GROUPS
from tests.e2e.endtoend import (
    NAMESPACE,
    EndToEnd,
    created_s,
    deserves,
    is_scheduled,
    is_unschedulable,
    limited,
    real_or_short,
    subgroup,
)
from tests.e2e.shards import all_gpus

#: more than queues have without a priority
PRIORITY = 101


async def queues(
    e2e: EndToEnd, parent: float, *quotas: float, weights: tuple[float, ...] = (), first: Any = None, **last: Any
) -> list[str]:
    """Child queues with these quotas of a parent; `first` and `last` are further fields of the first and last one."""
    children = {
        f"q{number}": {
            "gpu": deserves(quota, weight=weights[number] if weights else 2),
            **((first or {}) if number == 0 else {}),
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
    having, taking = await queues(e2e, 4, 1, 0, priority=PRIORITY)
    await pods_of(e2e, having, 1)
    await pods_of(e2e, having, 3)
    await e2e.scheduled(await asks(e2e, taking, 1))


async def test_weights_and_then_a_priority_decide(e2e: EndToEnd) -> None:
    first, second, third = await queues(e2e, 8, 1, 1, 0, weights=(1, 2, 1), priority=PRIORITY)
    jobs = {queue: [await e2e.job(queue, gpus=1) for _ in range(10)] for queue in (first, second)}
    await divided(e2e, {3: jobs[first], 5: jobs[second]})
    await e2e.scheduled(await asks(e2e, third, 3))
    await divided(e2e, {2: jobs[first], 3: jobs[second]})


async def divided(e2e: EndToEnd, parts: dict[int, list[str]]) -> None:
    """So many pods of these Jobs are scheduled, all others unschedulable."""

    def holds() -> bool:
        pods = {count: e2e.of_job(*jobs) for count, jobs in parts.items()}
        return all(
            len(found) == len(parts[count])
            and sum(map(is_scheduled, found)) == count
            and sum(map(is_unschedulable, found)) == len(found) - count
            for count, found in pods.items()
        )

    await e2e.until(holds, f"{list(parts)} pods are scheduled and the others unschedulable")


async def test_work_that_runs_too_short_is_protected(e2e: EndToEnd) -> None:
    """queues:Q-301. No pod of the queue goes before one of them has run so long."""
    runtime_s = real_or_short(60, 4)
    having, taking = await queues(e2e, 4, 1, 0, first={"reclaimMinRuntime": f"{runtime_s}s"}, priority=PRIORITY)
    running = [*await pods_of(e2e, having, 1), *await pods_of(e2e, having, 3)]
    due_s = {pod["metadata"]["name"]: created_s(pod) + runtime_s for pod in e2e.there(running)}
    pod = await asks(e2e, taking, 1)
    await e2e.decided(pod)
    await e2e.scheduled(pod)
    gone = [name for name in running if name in e2e.left_s]
    assert gone
    assert all(e2e.left_s[name] >= due_s[name] for name in gone)


async def test_elastic_groups_shrink_evenly(e2e: EndToEnd) -> None:
    taking, having = await queues(e2e, 4, 2, 2)
    groups = [await e2e.gang(name, having, 2, gpus=1) for name in ("first", "second")]
    await e2e.scheduled(*groups[0], *groups[1])
    await e2e.scheduled(await asks(e2e, taking, 2))
    await e2e.until(lambda: [len(e2e.there(pods)) for pods in groups] == [1, 1], "a pod of each group stays")


#: of queues that deserve and share nothing beyond their quota, next to one that does
NOTHING_MORE = (2, 0)


async def test_a_whole_elastic_job_is_reclaimed(e2e: EndToEnd) -> None:
    taking, having = await queues(e2e, 2, 2, 0, weights=NOTHING_MORE)
    pods = await e2e.gang("elastic", having, 2, gpus=1)
    await e2e.scheduled(*pods)
    await e2e.scheduled(await asks(e2e, taking, 2))
    assert not e2e.there(pods)


async def test_a_whole_elastic_job_is_reclaimed_for_a_distributed_one(e2e: EndToEnd) -> None:
    taking, having = await queues(e2e, 2, 2, 0, weights=NOTHING_MORE)
    pods = await e2e.gang("elastic", having, 2, gpus=1)
    await e2e.scheduled(*pods)
    await e2e.scheduled(*await e2e.gang("distributed", taking, 2, minimum=2, gpus=1))
    assert not e2e.there(pods)


async def test_part_of_an_elastic_job_is_reclaimed(e2e: EndToEnd) -> None:
    """A minimum that is set later counts, too."""
    taking, having = await queues(e2e, 4, 2, 2, weights=NOTHING_MORE)
    pods = await e2e.gang("elastic", having, 3, gpus=1)
    await e2e.client.patch(
        POD_GROUPS,
        "elastic",
        [{"op": "replace", "path": "/spec/minMember", "value": 2}],
        NAMESPACE,
        kind=PatchKind.JSON,
    )
    await e2e.scheduled(*pods)
    await e2e.scheduled(*await e2e.gang("distributed", taking, 2, minimum=2, gpus=1))
    assert sum(map(is_scheduled, e2e.there(pods))) == 2


async def test_a_minimal_runtime_protects_only_the_core(e2e: EndToEnd) -> None:
    """queues:Q-306, Q-307. What is beyond the minimum goes at once, and the rest when it has run long enough."""
    runtime_s = real_or_short(90, 6)
    taking, having = await queues(e2e, 3, 3, 0, weights=NOTHING_MORE, reclaimMinRuntime=f"{runtime_s}s")
    pods = await e2e.gang("elastic", having, 3, gpus=1)
    await e2e.scheduled(*pods)
    due_s = min(map(created_s, e2e.there(pods))) + runtime_s
    await e2e.scheduled(*await e2e.gang("first", taking, 2, minimum=2, gpus=1))
    (core,) = [pod["metadata"]["name"] for pod in e2e.there(pods)]
    (last,) = await e2e.gang("second", taking, 1, gpus=1)
    await e2e.decided(last)
    await e2e.scheduled(last)
    assert e2e.left_s[core] >= due_s


async def test_a_gang_over_several_nodes_reclaims(e2e: EndToEnd) -> None:
    whole = e2e.gpus_per_node
    taking, having = await queues(e2e, 100, 2 * whole, 0, weights=NOTHING_MORE)
    jobs = [await e2e.job(having, gpus=1, priorityClassName="e2e-low") for _ in range(all_gpus(e2e))]
    await e2e.jobs_scheduled(len(jobs), *jobs)
    gang = await e2e.gang("gang", taking, 2, minimum=2, gpus=whole, priority="e2e-low")
    await e2e.scheduled(*gang)
    assert len(set(map(e2e.node_of, gang))) == 2
    await e2e.jobs_scheduled(len(jobs) - 2 * whole, *jobs)


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
