"""Start times that a tenant made later: the start of the pods counts (ADR 21, queues:Q-300)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pykai.api import names
from pykai.api.timestamp import format_timestamp, parse_timestamp
from pykai.core.cluster.tables import Tables
from pykai.kube import resources
from pykai.scheduler.sanitising.starttimes import minimum_running_since_ns, starts_by_subgroup
from pykai.scheduler.snapshotfile import read_snapshot, snapshot_zip
from pykai.scheduler.status.statusevents import now_ns
from tests.services.scheduler.schedulercluster import SchedulerCluster, scheduler_cluster
from tests.services.scheduler.test_intake import Feed

START = names.LAST_START_TIMESTAMP_ANNOTATION
TEN, ELEVEN, NOON, ONE = (f"2026-01-01T{hour}:00:00Z" for hour in (10, 11, 12, 13))
FAR = "2099-01-01T00:00:00Z"


class Diary(Feed):
    """A PodGroup `g` of which pods start and go."""

    def starts(
        self, pod: str, at: str | None, *, subgroup: str = "", deleted: str = "", phase: str = "Running"
    ) -> None:
        """A pod with the status of its kubelet."""
        meta: dict[str, Any] = {"name": pod, "uid": pod, "annotations": {names.POD_GROUP_ANNOTATION: "g"}}
        if subgroup:
            meta["labels"] = {names.SUBGROUP_LABEL: subgroup}
        if deleted:
            meta["deletionTimestamp"] = deleted
        spec = {"schedulerName": "kai-scheduler", "nodeName": "a", "containers": [{"name": "c"}]}
        status = {"phase": phase, **({"startTime": at} if at else {})}
        self.say("MODIFIED", "Pod", {"metadata": meta, "spec": spec, "status": status})

    def goes(self, pod: str) -> None:
        """A pod is gone."""
        meta = {"name": pod, "uid": pod, "annotations": {names.POD_GROUP_ANNOTATION: "g"}}
        self.say("DELETED", "Pod", {"metadata": meta})

    def says(self, start: str | None, minimum: int = 1, **spec: Any) -> None:
        """Set the start timestamp of the PodGroup."""
        meta = {"name": "g", "annotations": {START: start} if start else {}}
        self.say("MODIFIED", "PodGroup", {"metadata": meta, "spec": {"queue": "q", "minMember": minimum, **spec}})

    @property
    def start(self) -> str | None:
        """The start that the engine sees."""
        self.digest()
        group = self.intake.tables.snapshot(0).group_entries["default/g"].group
        assert group is not None
        return format_timestamp(group.last_start_ns) if group.last_start_ns is not None else None

    @property
    def doubts(self) -> list[str]:
        """What is wrong with the PodGroup."""
        return [str(problem) for problem in self.intake.sanitising_problems.get("PodGroup/default/g", ())]


@pytest.fixture
async def diary() -> Diary:
    """A node, and a group without pods."""
    made = Diary()
    made.node("a")
    made.says(None)
    made.digest()
    return made


@pytest.mark.parametrize("pods_first", [True, False])
@pytest.mark.parametrize("said", [NOON, FAR])
async def test_a_start_later_than_that_of_the_pods_is_corrected(diary: Diary, said: str, pods_first: bool) -> None:
    for step in (True, False) if pods_first else (False, True):
        if step:
            diary.starts("p", TEN)
        else:
            diary.says(said)
    assert diary.start == TEN
    (doubt,) = diary.doubts
    assert doubt == (
        f"PodGroup/default/g: metadata.annotations[{START}]: {said} is later than the start of its pods; "
        f"{TEN} is used instead"
    )


async def test_an_earlier_start_is_accepted(diary: Diary) -> None:
    diary.says(TEN)
    diary.starts("p", ELEVEN)
    assert (diary.start, diary.doubts) == (TEN, [])


async def test_pods_without_a_start_leave_it_as_it_is(diary: Diary) -> None:
    diary.says(NOON)
    diary.starts("p", None)
    assert (diary.start, diary.doubts) == (NOON, [])


@pytest.mark.parametrize("order", [(TEN, ELEVEN, NOON), (NOON, TEN, ELEVEN), (ELEVEN, NOON, TEN)])
async def test_the_start_is_when_the_minimum_was_running(diary: Diary, order: tuple[str, ...]) -> None:
    diary.says(FAR, minimum=2)
    for at in order:
        diary.starts(f"p-{at[11:13]}", at)
    assert diary.start == ELEVEN


async def test_a_start_between_the_first_pod_and_the_minimum_is_accepted(diary: Diary) -> None:
    diary.starts("first", TEN)
    diary.starts("second", NOON)
    diary.says(ELEVEN, minimum=2)
    assert (diary.start, diary.doubts) == (ELEVEN, [])


async def test_terminating_and_finished_pods_do_not_age_the_next_run(diary: Diary) -> None:
    diary.starts("leaves", TEN, deleted=ELEVEN)
    diary.starts("ended", TEN, phase="Succeeded")
    diary.says(NOON)
    diary.starts("next", ONE)
    assert (diary.start, diary.doubts) == (NOON, [])


async def test_a_correction_ends_with_the_pods_that_caused_it(diary: Diary) -> None:
    diary.starts("old", TEN)
    diary.says(NOON)
    assert diary.start == TEN
    diary.goes("old")
    assert (diary.start, diary.doubts) == (NOON, [])


@pytest.mark.parametrize("trick", ["minimum above its pods", "a new pod for an old one", "both"])
async def test_the_start_does_not_become_later_while_pods_run_on(diary: Diary, trick: str) -> None:
    diary.starts("large", TEN)
    diary.starts("small", TEN)
    diary.says(TEN, minimum=2)
    if trick != "minimum above its pods":
        diary.goes("small")
        diary.starts("small-again", NOON)
    diary.says(ONE, minimum=2 if trick == "a new pod for an old one" else 1000)
    assert diary.start == TEN


async def test_a_small_clock_difference_is_accepted_silently(diary: Diary) -> None:
    diary.says("2026-01-01T10:00:30Z")
    diary.starts("p", TEN)
    assert (diary.start, diary.doubts) == (TEN, [])


async def test_a_group_that_comes_again_is_judged_again(diary: Diary) -> None:
    diary.starts("p", TEN)
    diary.says(NOON)
    diary.say("DELETED", "PodGroup", {"metadata": {"name": "g"}})
    assert not diary.doubts
    diary.says(NOON)
    assert diary.start == TEN


async def test_our_own_timestamp_is_checked_like_any_other(diary: Diary) -> None:
    diary.starts("p", TEN)
    diary.digest()
    diary.intake.group_intake.assume_patch("default/g", "annotations", {START: NOON})
    assert diary.start == TEN


async def test_an_equal_update_of_a_group_does_not_read_its_pods(diary: Diary) -> None:
    diary.says(TEN)
    diary.starts("p", ELEVEN)
    diary.digest()
    diary.wakes = 0
    diary.starts("q", NOON, subgroup="x")
    diary.digest()
    assert diary.wakes == 1, "the pod alone, not its group"


@pytest.mark.parametrize(
    ("tree", "moment"),
    [
        ({"subGroups": [{"name": "a", "minMember": 1}, {"name": "b", "minMember": 1}]}, NOON),
        ({"subGroups": [{"name": "a", "minMember": 2}, {"name": "b", "minMember": 1}], "minSubGroup": 1}, ELEVEN),
        ({"subGroups": [{"name": "a", "minMember": 0}]}, TEN),
        ({"subGroups": [{"name": "a", "minMember": 9}]}, None),
    ],
)
async def test_subgroups_count_in_the_minimum(diary: Diary, tree: Mapping[str, Any], moment: str | None) -> None:
    for pod, at, subgroup in (("a0", TEN, "a"), ("a1", ELEVEN, "a"), ("b0", NOON, "b")):
        diary.starts(pod, at, subgroup=subgroup)
    diary.says(FAR, **tree)
    group = diary.intake.groups.get("default/g")
    assert group is not None
    begun = minimum_running_since_ns(group, starts_by_subgroup(diary.intake.pods_of_group("default/g")))
    assert begun == (parse_timestamp(moment) if moment else None)
    # Where the minimum does not run, the first pod decides: a group is stamped before any of its pods starts.
    assert diary.start == (moment or TEN)


async def test_a_snapshot_holds_the_start_that_counts(diary: Diary) -> None:
    """A replay of it makes the same decisions."""
    diary.starts("p", TEN)
    diary.says(FAR)
    tables = Tables(None, diary.intake.objects())
    group = tables.snapshot(0).group_entries["default/g"].group
    assert group is not None
    assert group.last_start_ns == parse_timestamp(TEN)


# On a server


async def a_protected_cluster(lab: SchedulerCluster) -> None:
    """One GPU, held by a team beyond its quota, and a minimum run time for all queues."""
    await lab.node("a", gpus=1)
    for name, quota in (("rich", 0), ("poor", 1)):
        await lab.queue(name, parent="department", quota=quota)
        patch = {"spec": {"reclaimMinRuntime": "1h"}}
        await lab.client.patch(resources.QUEUES, name, patch)
    await lab.client.patch(resources.QUEUES, "department", {"spec": {"reclaimMinRuntime": "1h"}})
    await lab.group("greedy", queue="rich")
    made = await lab.pod("greedy-0", "greedy", gpu=1)
    await lab.client.bind("default", "greedy-0", uid=made["metadata"]["uid"], node="a")


@pytest.mark.parametrize("forged", [True, False])
async def test_a_forged_start_protects_no_pod(forged: bool) -> None:
    """By its kubelet the pod has run for two hours; an honest group has just started."""
    async with scheduler_cluster() as lab:
        await a_protected_cluster(lab)
        hours_ns = 2 * 3600 * 1_000_000_000
        began = now_ns(lab.clock) - (hours_ns if forged else 0)
        status = {"phase": "Running", "startTime": format_timestamp(began)}
        await lab.client.patch(resources.PODS, "greedy-0", {"status": status}, "default", subresource="status")
        stamp = FAR if forged else format_timestamp(now_ns(lab.clock) - 1_000_000_000)
        await lab.client.patch(resources.POD_GROUPS, "greedy", {"metadata": {"annotations": {START: stamp}}}, "default")
        await lab.group("needy", queue="poor")
        await lab.pod("needy-0", "needy", gpu=1)
        async with lab.scheduler() as scheduler:
            if forged:
                await lab.wait_for_event("Evict", "greedy")
                text = await lab.wait_for_event("InvalidPodGroup", "greedy")
                assert START in text
                assert f"{FAR} is later than the start of its pods" in text
            else:
                await lab.wait_for_event("Unschedulable", "needy")
                for _ in range(3):
                    await scheduler.loop.cycle()
                assert not lab.event_messages("Evict")
                assert not lab.event_messages("InvalidPodGroup")


async def test_a_snapshot_file_is_replayed_as_it_was_decided() -> None:
    async with scheduler_cluster() as lab:
        await a_protected_cluster(lab)
        status = {"phase": "Running", "startTime": "2020-01-01T00:00:00Z"}
        await lab.client.patch(resources.PODS, "greedy-0", {"status": status}, "default", subresource="status")
        await lab.client.patch(resources.POD_GROUPS, "greedy", {"metadata": {"annotations": {START: FAR}}}, "default")
        async with lab.scheduler() as scheduler:
            await scheduler.intake.wait_for_sync()
            objects = list(scheduler.intake.objects())
            data = snapshot_zip(objects, scheduler.loop._flags, {}, now_ns(lab.clock))
        recording = read_snapshot(data)
        group = recording.tables().snapshot(recording.now_ns).group_entries["default/greedy"].group
        assert group is not None
        assert group.last_start_ns == parse_timestamp("2020-01-01T00:00:00Z")
