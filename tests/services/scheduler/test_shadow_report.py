"""The report of a shadow: another scheduler binds and evicts on the same cluster, and each decision has its outcome.

Statements: shadow:equal, shadow:evictions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import ClientSession

from pykai.kube import resources
from pykai.scheduler.service import Scheduler
from pykai.scheduler.shadow import Shadow
from pykai.scheduler.shadowreport import BIND, EVICT, Outcome, ShadowReport
from tests.services.scheduler.schedulercluster import scheduler_cluster
from tests.services.scheduler.test_evictions import an_unfair_cluster
from tests.services.scheduler.test_shadow import bind, cycles, evict, mark_evicted, shadow

SPREADING = """
actions: allocate
tiers:
- plugins:
  - {name: predicates}
  - {name: proportion}
  - {name: priority}
  - {name: nodeavailability}
  - {name: nodeplacement, arguments: {gpu: spread, cpu: spread}}
"""


def report_of(scheduler: Scheduler) -> ShadowReport:
    assert isinstance(scheduler.dispatcher, Shadow)
    return scheduler.dispatcher.report


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.005)


async def chosen(scheduler: Scheduler, pod: str) -> str:
    """The node that the shadow chose."""
    sink = scheduler.dispatcher
    assert isinstance(sink, Shadow)
    await until(lambda: f"default/{pod}" in sink._binds)
    return sink._binds[f"default/{pod}"].node


async def outcome_of(scheduler: Scheduler, kind: str, count: int = 1) -> list[Outcome]:
    """The outcomes of a kind so far, once there are so many."""
    counts = report_of(scheduler).counts
    await until(lambda: sum(number for (each, _), number in counts.items() if each == kind) >= count)
    return sorted(outcome for (each, outcome), number in counts.items() if each == kind for _ in range(number))


async def test_equal_nodes_are_no_disagreement() -> None:
    async with scheduler_cluster() as lab:
        for name in ("a", "b"):
            await lab.node(name, gpus=1)
        await lab.gang("job", pods=1, gpu=1)
        async with shadow(lab) as scheduler:
            other = {"a": "b", "b": "a"}[await chosen(scheduler, "job-0")]
            await bind(lab, "job-0", other)
            assert await outcome_of(scheduler, BIND) == [Outcome.EQUAL_NODE]
            report = report_of(scheduler)
            assert (report.same(BIND), report.compared(BIND)) == (1, 1)


async def test_a_node_of_another_score_is_a_difference() -> None:
    async with scheduler_cluster() as lab:
        # Packing prefers the smaller node.
        await lab.node("large", gpus=8)
        await lab.node("small", gpus=2)
        await lab.gang("first", pods=1, gpu=1)
        async with shadow(lab) as scheduler:
            assert await chosen(scheduler, "first-0") == "small"
            await bind(lab, "first-0", "large")
            assert await outcome_of(scheduler, BIND) == [Outcome.OTHER_NODE]
            (difference,) = report_of(scheduler).differences
            assert (difference.theirs, difference.ours, difference.queue) == ("large", "small", "team")


async def test_a_pod_that_gets_the_room_of_another_and_one_that_we_would_let_wait() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1)
        await lab.gang("big", pods=1, gpu=7)
        async with shadow(lab) as scheduler:
            await until(lambda: "default/big" in scheduler.dispatcher._logged_reasons)  # type: ignore[attr-defined]
            await bind(lab, "big-0", "a")
            assert await outcome_of(scheduler, BIND) == [Outcome.WOULD_WAIT]
            assert report_of(scheduler).differences[-1].why
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1)
        await lab.gang("one", pods=1, gpu=1)
        async with shadow(lab) as scheduler:
            await chosen(scheduler, "one-0")
            await lab.gang("two", pods=1, gpu=1)
            await until(lambda: "default/two" in scheduler.dispatcher._logged_reasons)  # type: ignore[attr-defined]
            await bind(lab, "two-0", "a")
            assert await outcome_of(scheduler, BIND) == [Outcome.OTHER_POD_FIRST]


async def test_a_second_scheduler_of_the_same_policy_and_then_of_another(tmp_path: Path) -> None:
    async with scheduler_cluster() as lab:
        await lab.node("large", gpus=8)
        await lab.node("small", gpus=4)
        async with shadow(lab) as watcher:
            # Their scheduler starts once the shadow has decided, so that nothing depends on which one is faster.
            await lab.gang("same", pods=3, gpu=1)
            await chosen(watcher, "same-2")
            async with lab.scheduler():
                await lab.until_bound("same", 3)
            assert await outcome_of(watcher, BIND, 3) == [Outcome.AGREED] * 3
            spread = tmp_path / "spread.yaml"
            spread.write_text(SPREADING)
            await lab.gang("apart", pods=1, gpu=1)
            assert await chosen(watcher, "apart-0") == "small"
            async with lab.scheduler(scheduler_conf=str(spread)):
                await lab.until_bound("apart", 1)
            assert await outcome_of(watcher, BIND, 4) == [Outcome.AGREED] * 3 + [Outcome.OTHER_NODE]
            assert report_of(watcher).as_document()["binds"]["agreed"] == 3
            # All of them are the other scheduler's: the shadow has a transport that cannot write.
            lab.faults.writes.clear()


def is_leaving(scheduler: Scheduler, pod: str) -> bool:
    """Whether the scheduler has seen that a pod is being deleted."""
    found = scheduler.intake.pods.get(f"default/{pod}")
    return found is not None and found.metadata.deletion_timestamp is not None


async def test_evictions_are_agreed_other_victims_or_ones_that_we_would_keep() -> None:
    async with scheduler_cluster() as lab:
        await an_unfair_cluster(lab)
        async with shadow(lab) as scheduler:
            sink = scheduler.dispatcher
            assert isinstance(sink, Shadow)
            await until(lambda: bool(sink._victims))
            (victim,) = sink._victims
            spared = {"default/greedy0-0": "greedy1", "default/greedy1-0": "greedy0"}[victim]
            await evict(lab, spared, f"{spared}-0")
            assert await outcome_of(scheduler, EVICT) == [Outcome.OTHER_VICTIM]
            name = victim.removeprefix("default/")
            await evict(lab, name.removesuffix("-0"), name)
            assert await outcome_of(scheduler, EVICT, 2) == [Outcome.AGREED, Outcome.OTHER_VICTIM]


async def test_an_eviction_that_no_rule_of_ours_asks_for_and_a_deletion_by_a_user() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=4)
        for name in ("kept", "ended"):
            await lab.gang(name, pods=1, gpu=1)
        async with lab.scheduler():
            await lab.until_bound("kept", 1)
            await lab.until_bound("ended", 1)
        lab.faults.writes.clear()
        async with shadow(lab) as scheduler:
            await cycles(scheduler, 2)
            await lab.client.delete(resources.PODS, "ended-0", "default", grace_s=30)
            # The shadow judges only what it could have decided: after a cycle that has seen this.
            await until(lambda: is_leaving(scheduler, "ended-0") and scheduler.dispatcher._has_decided())  # type: ignore[attr-defined]
            await evict(lab, "kept", "kept-0")
            assert await outcome_of(scheduler, EVICT) == [Outcome.WOULD_KEEP]
            assert [each.pod for each in report_of(scheduler).differences] == ["default/kept-0"]


@pytest.mark.parametrize("grace_s", [0, 30])
async def test_a_victim_of_ours_that_a_user_deletes_is_no_eviction(grace_s: int) -> None:
    """shadow:evictions: without the mark on its group the other scheduler has decided nothing."""
    async with scheduler_cluster() as lab:
        await an_unfair_cluster(lab)
        async with shadow(lab) as scheduler:
            sink = scheduler.dispatcher
            assert isinstance(sink, Shadow)
            await until(lambda: bool(sink._victims))
            (victim,) = sink._victims
            await lab.client.delete(resources.PODS, victim.removeprefix("default/"), "default", grace_s=grace_s)
            await until(lambda: bool(sink._leaving))
            assert not [each for each in report_of(scheduler).counts if each[0] == EVICT]
            sink.mark_timeout_s = 0.0
            await cycles(scheduler, 1)
            assert await outcome_of(scheduler, EVICT) == [Outcome.NO_EVICTION]
            report = report_of(scheduler)
            assert (report.same(EVICT), report.compared(EVICT), len(report.differences)) == (0, 0, 0)


async def test_a_mark_that_comes_after_the_deletion_counts() -> None:
    async with scheduler_cluster() as lab:
        await an_unfair_cluster(lab)
        async with shadow(lab) as scheduler:
            sink = scheduler.dispatcher
            assert isinstance(sink, Shadow)
            await until(lambda: bool(sink._victims))
            (victim,) = sink._victims
            name = victim.removeprefix("default/")
            await lab.client.delete(resources.PODS, name, "default", grace_s=30)
            await until(lambda: bool(sink._leaving))
            await mark_evicted(lab, name.removesuffix("-0"))
            assert await outcome_of(scheduler, EVICT) == [Outcome.AGREED]


async def test_pods_that_go_with_their_group_were_not_evicted() -> None:
    async with scheduler_cluster() as lab:
        await an_unfair_cluster(lab)
        async with shadow(lab) as scheduler:
            sink = scheduler.dispatcher
            assert isinstance(sink, Shadow)
            await until(lambda: bool(sink._victims))
            (victim,) = sink._victims
            name = victim.removeprefix("default/")
            await lab.client.delete(resources.PODS, name, "default", grace_s=30)
            await until(lambda: bool(sink._leaving))
            await lab.client.delete(resources.POD_GROUPS, name.removesuffix("-0"), "default")
            assert await outcome_of(scheduler, EVICT) == [Outcome.NO_EVICTION]


async def test_the_report_is_a_page_of_a_shadow_only() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1)
        for shadows, status in (("true", 200), ("false", 404)):
            scheduler = lab.make_scheduler(shadow=shadows)
            endpoint = scheduler.plugin_endpoint("127.0.0.1:0")
            await endpoint.start()
            try:
                page = f"http://127.0.0.1:{endpoint.port}/get-shadow-report"
                async with ClientSession() as http, http.get(page) as answer:
                    assert answer.status == status
                    text = await answer.text()
                assert '"binds": {"compared": 0' in text if status == 200 else "--shadow" in text
            finally:
                await endpoint.stop()
                scheduler.loop.close()
