"""Intake: what is taken in, what is assumed until the watch shows it, and which old events change nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pykai.api import names
from pykai.api.scheduling import SchedulingCondition
from pykai.core.cluster.tables import Tables
from pykai.core.model.shard import Shard
from pykai.core.model.status import TaskStatus
from pykai.core.report.decisions import FreeRoomOnly
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.reflector import WatchEvent
from pykai.kube.store import Store
from pykai.scheduler.dispatch.bindplan import PendingBind
from pykai.scheduler.dispatch.bindrequests import assumed_request
from pykai.scheduler.intake.intake import Intake
from pykai.scheduler.intake.operations import AssumeStatus
from tests.services.scheduler.schedulercluster import FaultyTransport

Raw = dict[str, Any]
THEN = "2026-01-01T00:00:00Z"


class Feed:
    """An intake, and a watch that the test plays."""

    def __init__(self) -> None:
        client = Client(FaultyTransport(None))  # type: ignore[arg-type]
        self.intake = Intake(Caches(client), Shard())
        self.wakes = 0
        self.intake.queue.request_cycle = self._woken
        self.version = 10

    def _woken(self) -> None:
        self.wakes += 1

    def say(self, type_: str, kind: str, obj: Raw) -> int:
        """An event of the watch; its resource version."""
        self.version += 1
        meta = {"namespace": "default", "uid": obj["metadata"]["name"], **obj["metadata"]}
        meta["resourceVersion"] = str(self.version)
        store: Store[Any] = self.intake.stores[kind]
        store.apply_event(WatchEvent(type_, msgspec.Raw(msgspec.json.encode({**obj, "metadata": meta}))))
        return self.version

    def pod(self, *, node: str = "", uid: str = "p", type_: str = "MODIFIED", **status: Any) -> None:
        """A pod `p` of group `g`."""
        meta = {"name": "p", "uid": uid, "annotations": {names.POD_GROUP_ANNOTATION: "g"}}
        spec = {"schedulerName": "kai-scheduler", "nodeName": node, "containers": [{"name": "c"}]}
        self.say(type_, "Pod", {"metadata": meta, "spec": spec, "status": {"phase": "Pending", **status}})

    def request(
        self, *, node: str = "a", uid: str = "r", owner: str = "p", type_: str = "MODIFIED", **status: Any
    ) -> None:
        """A BindRequest for pod `p`."""
        meta = {"name": "p", "uid": uid, "ownerReferences": [{"kind": "Pod", "name": "p", "uid": owner}]}
        self.say(
            type_,
            "BindRequest",
            {"metadata": meta, "spec": {"podName": "p", "selectedNode": node}, "status": status},
        )

    def group(self, **metadata: Any) -> int:
        """A PodGroup `g`."""
        return self.say("MODIFIED", "PodGroup", {"metadata": {"name": "g", **metadata}, "spec": {"queue": "q"}})

    def node(self, name: str, **status: Any) -> None:
        """A machine."""
        allocatable = {"cpu": "4", "memory": "4Gi", "pods": "10"}
        meta = {"name": name, "namespace": ""}
        self.say("MODIFIED", "Node", {"metadata": meta, "status": {"allocatable": allocatable, **status}})

    def digest(self) -> None:
        """Bring the tables up to date."""
        assert not self.intake.apply_operations(self.intake.queue.take()).problems

    @property
    def state(self) -> tuple[str, str]:
        """State and node of the pod, as the tables have it."""
        self.digest()
        task = self.intake.tables.snapshot(0).task_records["default/p"]
        return task.status.name, task.node

    def assume(self, node: str = "a", uid: str = "p") -> None:
        """A bind of the pod was decided."""
        self.intake.binds.assume(assumed_request("default", uid, PendingBind("p", uid, node).spec()))


@pytest.fixture
async def feed() -> Feed:
    """A pod that waits, and two nodes."""
    made = Feed()
    made.node("a")
    made.node("b")
    made.pod(type_="ADDED")
    made.digest()
    made.wakes = 0
    return made


async def test_a_bind_counts_from_its_decision(feed: Feed) -> None:
    feed.assume()
    assert feed.state == ("BINDING", "a")
    feed.pod(node="a")
    assert feed.state == ("BOUND", "a")
    assert not feed.intake.binds.is_assumed("default/p")


async def test_a_bind_that_was_given_up_leaves_the_pod_waiting(feed: Feed) -> None:
    feed.assume()
    feed.intake.binds.give_up("default/p", "p", "a")
    assert feed.state == ("PENDING", "")
    assert feed.wakes == 1


async def test_a_pod_bound_elsewhere_ends_the_assumption(feed: Feed) -> None:
    feed.assume()
    feed.pod(node="b")
    assert feed.state == ("BOUND", "b")


async def test_another_pod_of_the_name_is_not_the_one_that_was_bound(feed: Feed) -> None:
    feed.assume()
    feed.pod(uid="other", type_="ADDED")
    assert feed.state == ("PENDING", "")


async def test_giving_up_the_bind_of_a_pod_leaves_its_successor_alone(feed: Feed) -> None:
    feed.pod(uid="next", type_="ADDED")
    feed.assume(uid="next")
    feed.intake.binds.give_up("default/p", "p", None)
    assert feed.state == ("BINDING", "a")
    feed.intake.binds.give_up("default/p", "next", "b")
    assert feed.state == ("BINDING", "a")
    feed.intake.binds.give_up("default/p", "next", None)
    assert feed.state == ("PENDING", "")


async def test_a_request_that_stays_ends_no_doubt_about_the_next_one(feed: Feed) -> None:
    feed.request(uid="second", type_="ADDED")
    feed.intake.binds.begin_withdrawal("default/p", "second")
    feed.intake.binds.keep_request("default/p", "first")
    feed.request(uid="second", type_="DELETED")
    assert feed.state == ("BINDING", "a"), "its pod may have been bound"
    feed.intake.binds.keep_request("default/p", "second")
    assert feed.state == ("PENDING", "")


async def test_a_request_withdrawn_before_it_was_seen_does_not_count_for_the_next_one(feed: Feed) -> None:
    feed.assume()
    feed.intake.binds.withdraw("default/p", "first")
    feed.intake.binds.give_up("default/p", "p", "a")
    feed.assume()
    feed.request(uid="first", type_="ADDED")
    feed.request(uid="first", type_="DELETED")
    assert feed.state == ("BINDING", "a")
    feed.request(uid="second", type_="ADDED")
    assert not feed.intake.binds.is_assumed("default/p")
    assert feed.state == ("BINDING", "a")


async def test_events_from_before_the_decision_end_no_assumption(feed: Feed) -> None:
    feed.assume()
    feed.pod(conditions=[{"type": "PodScheduled", "status": "False"}])
    assert feed.state == ("BINDING", "a")


async def test_the_end_of_an_older_request_ends_no_assumption(feed: Feed) -> None:
    feed.request(uid="old", node="b", type_="ADDED", phase="Failed")
    feed.assume()
    feed.request(uid="old", node="b", type_="DELETED")
    assert feed.state == ("BINDING", "a")
    feed.request(uid="new", type_="ADDED")
    assert not feed.intake.binds.is_assumed("default/p")
    assert feed.state == ("BINDING", "a")


async def test_a_failed_request_brings_its_pod_back(feed: Feed) -> None:
    feed.request(type_="ADDED")
    assert feed.state == ("BINDING", "a")
    feed.request(phase="Failed", failedAttempts=1)
    assert feed.state == ("PENDING", "")


async def test_a_withdrawn_request_is_not_restored_by_old_events(feed: Feed) -> None:
    feed.request(type_="ADDED")
    feed.intake.binds.withdraw("default/p", "r")
    assert feed.state == ("PENDING", "")
    feed.request(phase="Pending")
    assert feed.state == ("PENDING", "")
    feed.request(type_="DELETED")
    feed.request(uid="next", type_="ADDED")
    assert feed.state == ("BINDING", "a")


async def test_an_evicted_pod_counts_as_terminating_until_the_watch_shows_it(feed: Feed) -> None:
    feed.pod(node="a", phase="Running")
    feed.digest()
    feed.intake.statuses.assume_eviction("default/p", "p")
    assert feed.state == ("RELEASING", "a")
    feed.pod(node="a", phase="Running", message="old news")
    assert feed.state == ("RELEASING", "a")
    assert feed.intake.statuses.operations() == [AssumeStatus("default/p", TaskStatus.RELEASING)]
    feed.pod(node="a", phase="Running", uid="another", type_="ADDED")
    assert feed.state == ("RUNNING", "a")
    assert feed.intake.statuses.operations() == []


async def test_an_evicted_pod_names_its_preemptor_until_it_is_gone(feed: Feed) -> None:
    def evicted_for() -> str | None:
        feed.digest()
        tables = feed.intake.tables
        again = Tables(None, feed.intake.objects())
        (found,) = {made.snapshot(0).task_records["default/p"].evicted_for for made in (tables, again)}
        return found

    feed.pod(node="a", phase="Running")
    feed.digest()
    feed.intake.statuses.assume_eviction("default/p", "p", "default/job/job-uid")
    assert evicted_for() == "job-uid"
    feed.pod(node="a", phase="Running", reason="the watch shows no condition yet")
    assert evicted_for() == "job-uid"
    feed.intake.statuses.give_up_eviction("default/p", "p")
    assert evicted_for() is None
    feed.intake.statuses.assume_eviction("default/p", "p", "")
    assert evicted_for() == ""
    feed.pod(node="a", phase="Running", uid="another", type_="ADDED")
    assert evicted_for() is None


async def test_an_evicted_pod_without_a_pod_group_keeps_its_stand_in(feed: Feed) -> None:
    def group_of() -> str:
        feed.digest()
        return feed.intake.tables.snapshot(0).task_records["default/p"].group_key

    feed.pod(node="a", phase="Running")
    feed.intake.pod_intake.charge_ungrouped()
    stand_in = group_of()
    assert stand_in != "default/g"
    feed.intake.statuses.assume_eviction("default/p", "p", "default/job/job-uid")
    assert group_of() == stand_in


async def test_an_eviction_of_another_pod_of_the_name_is_not_assumed(feed: Feed) -> None:
    feed.pod(node="a", phase="Running")
    feed.intake.statuses.assume_eviction("default/p", "someone else")
    assert feed.state == ("RUNNING", "a")


async def test_an_eviction_that_was_refused_is_not_that_of_its_successor(feed: Feed) -> None:
    feed.pod(node="a", phase="Running", uid="next", type_="ADDED")
    feed.intake.statuses.assume_eviction("default/p", "next")
    feed.intake.statuses.give_up_eviction("default/p", "p")
    assert feed.state == ("RELEASING", "a")
    feed.intake.statuses.give_up_eviction("default/p", "next")
    assert feed.state == ("RUNNING", "a")


async def test_a_pod_that_is_held_back_and_evicted_stays_what_is_left(feed: Feed) -> None:
    statuses = feed.intake.statuses
    statuses.assume_gated("default/p")
    statuses.assume_eviction("default/p", "p")
    assert feed.state == ("RELEASING", "")
    statuses.give_up_eviction("default/p", "p")
    assert feed.state == ("GATED", "")
    statuses.assume_eviction("default/p", "p")
    statuses.release_gated("default/p")
    assert feed.state == ("RELEASING", "")


async def test_a_pod_that_is_held_back_does_not_wait(feed: Feed) -> None:
    feed.intake.statuses.assume_gated("default/p")
    assert feed.state == (TaskStatus.GATED.name, "")
    feed.intake.statuses.release_gated("default/p")
    assert feed.state == ("PENDING", "")


async def test_fields_the_engine_does_not_read_are_not_ingested(feed: Feed) -> None:
    feed.group()
    feed.digest()
    feed.wakes = 0
    feed.pod(conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}])
    feed.group(annotations={names.BIND_PLAN_ANNOTATION: "[]"})
    feed.node("a")
    assert (feed.wakes, len(feed.intake.queue)) == (0, 0)
    feed.pod(phase="Running")
    feed.group(annotations={names.STALE_TIMESTAMP_ANNOTATION: THEN})
    assert (feed.wakes, len(feed.intake.queue)) == (2, 2)


async def test_a_timestamp_counts_before_the_watch_shows_it(feed: Feed) -> None:
    feed.group()
    feed.digest()
    feed.wakes = 0
    key = "default/g"
    stamp = {names.STALE_TIMESTAMP_ANNOTATION: "2026-01-01T00:00:00Z"}
    assert feed.intake.group_intake.assume_patch(key, "annotations", annotations=stamp)
    assert feed.wakes == 0
    feed.digest()
    # An old event, then the answer, then the watch event of the write.
    feed.group(annotations={"x": "y"})
    feed.digest()
    assert _stale(feed) is not None
    feed.intake.group_intake.on_patch_written(key, "g", "annotations", str(feed.version + 1))
    feed.digest()
    assert _stale(feed) is not None
    feed.group(annotations=stamp)
    assert feed.wakes == 0
    feed.group()
    feed.digest()
    assert _stale(feed) is None


async def test_a_timestamp_that_was_not_written_is_forgotten(feed: Feed) -> None:
    feed.group()
    feed.intake.group_intake.assume_patch(
        "default/g", "annotations", annotations={names.STALE_TIMESTAMP_ANNOTATION: "2026-01-01T00:00:00Z"}
    )
    feed.intake.group_intake.on_patch_written("default/g", "g", "annotations", "")
    feed.digest()
    assert _stale(feed) is None


async def test_an_answer_about_a_deleted_group_does_not_end_what_is_written_on_its_successor(feed: Feed) -> None:
    feed.group(uid="next")
    stamp = {names.STALE_TIMESTAMP_ANNOTATION: THEN}
    feed.intake.group_intake.assume_patch("default/g", "annotations", annotations=stamp)
    feed.intake.group_intake.on_patch_written("default/g", "g", "annotations", "")
    feed.digest()
    assert _stale(feed) is not None


async def test_two_patches_of_a_group_are_kept_until_both_are_seen(feed: Feed) -> None:
    feed.group()
    condition = SchedulingCondition(type="UnschedulableOnNodePool", node_pool="default")
    feed.intake.group_intake.assume_patch(
        "default/g", "annotations", annotations={names.LAST_START_TIMESTAMP_ANNOTATION: "2026-01-01T00:00:00Z"}
    )
    feed.intake.group_intake.assume_patch("default/g", "conditions", conditions=[condition])
    feed.intake.group_intake.on_patch_written("default/g", "g", "annotations", str(feed.version + 1))
    feed.group()
    seen = feed.intake.group_intake.with_patch("default/g")
    assert seen is not None
    assert seen.status.scheduling_conditions == [condition]
    assert names.LAST_START_TIMESTAMP_ANNOTATION in seen.metadata.annotations


async def test_rebuilt_tables_include_assumptions(feed: Feed) -> None:
    feed.assume()
    feed.digest()
    feed.intake.rebuild_tables()
    assert feed.state == ("BINDING", "a")


async def test_rebuilt_tables_hold_back_pods_whose_bind_failed(feed: Feed) -> None:
    feed.intake.statuses.assume_gated("default/p")
    for _ in range(2):
        feed.digest()
        assert feed.state == ("GATED", "")
        feed.intake.rebuild_tables()
    feed.intake.statuses.release_gated("default/p")
    feed.intake.rebuild_tables()
    feed.digest()
    assert feed.state == ("PENDING", "")


async def test_a_group_is_free_room_only_from_the_next_cycle_on_also_in_rebuilt_tables(feed: Feed) -> None:
    why = FreeRoomOnly(3, "why")
    feed.intake.group_intake.set_free_room_only("default/g", None)
    assert feed.wakes == 0
    feed.intake.group_intake.set_free_room_only("default/g", why)
    assert feed.wakes == 1
    for _ in range(2):
        feed.digest()
        assert feed.intake.tables.snapshot(0).free_room_only == {"default/g": why}
        feed.intake.rebuild_tables()
    feed.intake.group_intake.set_free_room_only("default/g", None)
    feed.digest()
    assert feed.intake.tables.snapshot(0).free_room_only == {}


async def test_records_of_schedulers_start_no_cycle(feed: Feed) -> None:
    """They come and go with every gang; no pod mounts them."""
    labels = {names.RECORD_LABEL: "bind-plan"}
    feed.say("ADDED", "ConfigMap", {"metadata": {"name": "note", "labels": labels}})
    feed.say("DELETED", "ConfigMap", {"metadata": {"name": "note", "labels": labels}})
    assert (feed.wakes, len(feed.intake.queue)) == (0, 0)
    feed.say("ADDED", "ConfigMap", {"metadata": {"name": "map"}})
    assert (feed.wakes, len(feed.intake.queue)) == (1, 1)


def _stale(feed: Feed) -> int | None:
    group = feed.intake.tables.groups["default/g"].group
    assert group is not None
    return group.stale_since_ns
