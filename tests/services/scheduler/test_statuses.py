"""The status of waiting work on real objects: conditions, events and timestamps, each written once."""

from __future__ import annotations

from pykai.api import names
from pykai.api.scheduling import SchedulingCondition
from pykai.kube import resources
from pykai.scheduler.status.starttimestamps import longest_min_runtime_ns
from tests.services.scheduler.schedulercluster import SchedulerCluster, refusal, scheduler_cluster
from tests.services.scheduler.test_evictions import running_pod

SECOND = 1_000_000_000
STATUS = r"/(pods|podgroups)/[^/]+/status$"


async def test_a_pod_that_fits_nowhere_has_a_reason() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1)
        await lab.group("first")
        await running_pod(lab, "first-0", "first", "a", gpu=1)
        await lab.gang("big", pods=1, gpu=1)
        async with lab.scheduler():
            await lab.groups.wait_until(lambda store: bool(_conditions(lab, "big")), 10)
            await lab.pods.wait_until(lambda _: lab.condition("big-0")[0] == "False", 10)
            why = await lab.wait_for_event("Unschedulable", "big-0")
            group_why = await lab.wait_for_event("Unschedulable", "big")
        status, reason, message = lab.condition("big-0")
        assert (status, reason) == ("False", "Unschedulable")
        assert message == why
        assert "node(s) didn't have enough resources: GPUs" in why
        (condition,) = _conditions(lab, "big")
        assert condition.type == "UnschedulableOnNodePool"
        assert (condition.node_pool, condition.reason, condition.status) == ("default", "Unschedulable", "True")
        assert condition.transition_id == "1"
        assert condition.message == group_why
        assert condition.reasons[0].reason == "PodSchedulingErrors"
        types = {
            event["reason"]: event["type"] for event in lab.events.values() if event["involvedObject"]["kind"] == "Pod"
        }
        assert types["Unschedulable"] == "Warning"


async def test_a_queue_over_its_limit_gives_its_figures() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=4)
        await lab.queue("small", parent="department", limit=1)
        await lab.gang("big", pods=1, gpu=2, queue="small")
        async with lab.scheduler():
            await lab.groups.wait_until(lambda store: bool(_conditions(lab, "big")), 10)
        (reason,) = _conditions(lab, "big")[0].reasons
        assert reason.reason == "OverLimit"
        assert reason.details["queueDetails"]["name"] == "small"
        assert reason.details["queueDetails"]["podGroupRequestedResources"]["nvidia.com/gpu"] == "2"


async def test_nothing_is_written_twice_however_many_cycles_pass() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1)
        await lab.gang("big", pods=2, gpu=8)
        async with lab.scheduler() as scheduler:
            await lab.wait_for_event("Unschedulable", "big")
            await scheduler.writes.flush()
            before = len(lab.faults.written("PATCH", STATUS))
            assert before == 3
            for index in range(5):
                await lab.create(resources.CONFIG_MAPS, {"metadata": {"name": f"noise{index}"}})
                await scheduler.loop.cycle()
            await scheduler.writes.flush()
            assert len(lab.faults.written("PATCH", STATUS)) == before
        async with lab.scheduler() as scheduler:
            await scheduler.intake.wait_for_sync()
            await lab.wait_for_event("Unschedulable", "big")
            while scheduler.loop.cycles < 2:
                await scheduler.loop.cycle()
            await scheduler.writes.flush()
        assert len(lab.faults.written("PATCH", STATUS)) == before


async def test_our_own_notes_start_no_cycle() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1)
        await lab.gang("big", pods=1, gpu=8)
        async with lab.scheduler(schedule_period="1h") as scheduler:
            await lab.groups.wait_until(lambda store: bool(_conditions(lab, "big")), 10)
            await lab.pods.wait_until(lambda _: lab.condition("big-0")[0] == "False", 10)
            await scheduler.intake.groups.wait_until(
                lambda store: bool((found := store.get("default/big")) and found.status.scheduling_conditions), 10
            )
            await scheduler.intake.pods.wait_until(
                lambda store: bool((found := store.get("default/big-0")) and found.status.conditions), 10
            )
            assert len(scheduler.intake.queue) == 0


async def test_a_placed_group_loses_its_conditions() -> None:
    async with scheduler_cluster() as lab:
        await lab.gang("job", pods=1, gpu=1)
        async with lab.scheduler():
            await lab.groups.wait_until(lambda store: bool(_conditions(lab, "job")), 10)
            await lab.node("a", gpus=1)
            await lab.until_bound("job", 1)
            await lab.groups.wait_until(lambda store: not _conditions(lab, "job"), 10)
        assert lab.condition("job-0")[0] == "True"


async def test_a_group_without_enough_pods_is_not_ready() -> None:
    """cycle:T-43."""
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=4)
        await lab.group("half", minimum=2)
        await lab.pod("half-0", "half", gpu=1)
        async with lab.scheduler():
            text = await lab.wait_for_event("NotReady", "half")
            assert text == "Job is not ready for scheduling. Waiting for 2 pods, currently 1 exist, 0 are gated"
            await lab.pods.wait_until(lambda _: lab.condition("half-0") == ("False", "PodGroupNotReady", text), 10)
        assert not _conditions(lab, "half")
        assert not [event for event in lab.events.values() if event["involvedObject"]["kind"] == "Pod"]


async def test_an_elastic_group_has_a_reason_for_its_waiting_pods() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1)
        await lab.group("grows", minimum=1)
        await running_pod(lab, "grows-0", "grows", "a", gpu=1)
        await lab.pod("grows-1", "grows", gpu=1)
        async with lab.scheduler():
            await lab.groups.wait_until(lambda store: bool(_conditions(lab, "grows")), 10)
            await lab.pods.wait_until(lambda _: lab.condition("grows-1")[:2] == ("False", "Unschedulable"), 10)
        (condition,) = _conditions(lab, "grows")
        assert "node(s) didn't have enough resources: GPUs" in condition.message


async def test_pods_are_not_marked_where_the_group_opts_out() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1)
        await lab.group("big", markUnschedulable=False)
        await lab.pod("big-0", "big", gpu=8)
        async with lab.scheduler() as scheduler:
            await lab.wait_for_event("Unschedulable", "big-0")
            await scheduler.writes.flush()
        assert lab.condition("big-0") == ("", "", "")


async def test_a_start_is_stamped_where_a_minimum_run_time_counts() -> None:
    async with scheduler_cluster() as lab:
        await lab.client.patch(resources.QUEUES, "team", {"spec": {"preemptMinRuntime": "1h"}})
        await lab.node("a", gpus=1)
        await lab.gang("job", pods=1, gpu=1)
        async with lab.scheduler():
            await lab.groups.wait_until(
                lambda _: bool(lab.annotation("job", names.LAST_START_TIMESTAMP_ANNOTATION)), 10
            )
        assert len(lab.faults.written("PATCH", r"/podgroups/job$")) == 1


async def test_a_start_is_stamped_once_a_minimum_run_time_needs_it() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1)
        await lab.gang("job", pods=1, gpu=1)
        async with lab.scheduler():
            await lab.until_bound("job", 1)
            await lab.wait_for_event("Scheduled", "job-0")
            assert not lab.faults.written("PATCH", r"/podgroups/job$")
            await lab.client.patch(resources.QUEUES, "team", {"spec": {"reclaimMinRuntime": "1h"}})
            await lab.groups.wait_until(
                lambda _: bool(lab.annotation("job", names.LAST_START_TIMESTAMP_ANNOTATION)), 10
            )
            pod = lab.pods.get("default/job-0")
            assert pod is not None
            bound = next(each for each in pod.status.conditions if each.type == names.CONDITION_POD_SCHEDULED)
            assert lab.annotation("job", names.LAST_START_TIMESTAMP_ANNOTATION) == bound.last_transition_time


async def test_a_start_before_the_minimum_run_time_is_not_worth_a_stamp() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1)
        await lab.group("job")
        await running_pod(lab, "job-0", "job", "a", gpu=1)
        long_ago = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        await lab.client.patch(
            resources.PODS, "job-0", {"status": {"conditions": [long_ago]}}, "default", subresource="status"
        )
        await lab.client.patch(resources.QUEUES, "team", {"spec": {"reclaimMinRuntime": "1m"}})
        async with lab.scheduler() as scheduler:
            await lab.gang("other", pods=1)
            await lab.until_bound("other", 1)
            assert (
                await scheduler.loop.query_engine(lambda snapshot, policy: longest_min_runtime_ns(policy, snapshot))
                == 60 * SECOND
            )
        assert lab.annotation("job", names.LAST_START_TIMESTAMP_ANNOTATION) == ""


async def test_a_stale_gang_is_stamped_reported_and_evicted_after_its_grace_period() -> None:
    async with scheduler_cluster(speed=100) as lab:
        await lab.node("a", gpus=2)
        await lab.group("train", minimum=2, stalenessGracePeriod="30s")
        await running_pod(lab, "train-0", "train", "a", gpu=1)
        async with lab.scheduler():
            text = await lab.wait_for_event("StaleJob", "train")
            assert text == "Job is stale. 1 pods are active, minMember is 2"
            await lab.groups.wait_until(lambda _: bool(lab.annotation("train", names.STALE_TIMESTAMP_ANNOTATION)), 10)
            since = lab.annotation("train", names.STALE_TIMESTAMP_ANNOTATION)
            assert "evicting remaining pod: default/train-0" in await lab.wait_for_event("Evict", "train")
            assert lab.annotation("train", names.STALE_TIMESTAMP_ANNOTATION) in (since, "")


async def test_a_gang_that_recovers_loses_its_stamp() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=2)
        await lab.group("train", minimum=2)
        await running_pod(lab, "train-0", "train", "a", gpu=1)
        async with lab.scheduler():
            await lab.groups.wait_until(lambda _: bool(lab.annotation("train", names.STALE_TIMESTAMP_ANNOTATION)), 10)
            await lab.pod("train-1", "train", gpu=1)
            await lab.until_bound("train", 2)
            await lab.groups.wait_until(lambda _: not lab.annotation("train", names.STALE_TIMESTAMP_ANNOTATION), 10)


async def test_a_status_that_fails_is_written_later() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1)
        lab.faults.refuse("PATCH", STATUS, refusal(500, "InternalError"), times=3)
        await lab.gang("big", pods=1, gpu=8)
        async with lab.scheduler():
            await lab.groups.wait_until(lambda store: bool(_conditions(lab, "big")), 10)
            await lab.pods.wait_until(lambda _: lab.condition("big-0")[0] == "False", 10)


async def test_the_conditions_of_another_pool_stay() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1)
        await lab.gang("big", pods=1, gpu=8)
        other = {
            "type": "UnschedulableOnNodePool",
            "nodePool": "blue",
            "reason": "Unschedulable",
            "message": "not here",
            "status": "True",
            "transitionID": "7",
        }
        await lab.client.patch(
            resources.POD_GROUPS, "big", {"status": {"schedulingConditions": [other]}}, "default", subresource="status"
        )
        async with lab.scheduler():
            await lab.groups.wait_until(lambda store: len(_conditions(lab, "big")) == 2, 10)
        assert [each.node_pool for each in _conditions(lab, "big")] == ["blue", "default"]
        assert _conditions(lab, "big")[1].transition_id == "8"


def _conditions(lab: SchedulerCluster, group: str) -> list[SchedulingCondition]:
    found = lab.groups.get(f"default/{group}")
    return list(found.status.scheduling_conditions) if found is not None else []
