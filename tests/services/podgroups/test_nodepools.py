"""The PodGroup controller reports a node pool that no scheduler serves, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from pykai.api.core import Pod
from pykai.api.decode import decode_as
from pykai.api.scheduling import PodGroup
from pykai.kube import resources
from pykai.kube.clock import Clock
from pykai.podgroups.nodepools import UNSERVED_AFTER_S, NodePoolMonitor
from tests.services.podgroups.test_service import stands, writer
from tests.services.servicecluster import ServiceCluster, service_cluster

LABEL = "kai.scheduler/node-pool"
REASON = "NodePoolNotServed"


class Hands(Clock):
    """A clock that tests move."""

    def __init__(self) -> None:
        super().__init__()
        self.at_s = 0.0

    def elapsed_s(self) -> float:
        return self.at_s


def a_group(name: str = "g", pool: str = "blue", **status: Any) -> PodGroup:
    labels = {LABEL: pool} if pool else {}
    meta = {"name": name, "namespace": "ns", "labels": labels}
    return decode_as(PodGroup, {"metadata": meta, "spec": {"minMember": 1, "queue": "q"}, "status": status})


def a_pod(name: str = "p", *, on: str = "", phase: str = "Pending", told: str = "", going: bool = False) -> Pod:
    meta: dict[str, Any] = {"name": name, "namespace": "ns"}
    if going:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    conditions = [{"type": "PodScheduled", "status": "False", "reason": told, "message": "no"}] if told else []
    spec = {"schedulerName": "kai-scheduler", "nodeName": on, "containers": []}
    return decode_as(Pod, {"metadata": meta, "spec": spec, "status": {"phase": phase, "conditions": conditions}})


class Scene:
    """Pools, and a clock."""

    def __init__(self) -> None:
        self.clock = Hands()
        self.pools = NodePoolMonitor(self.clock, LABEL, "kai-scheduler")

    def look(
        self, group: PodGroup | None = None, *pods: Pod, complete: bool = True, at_s: float | None = None
    ) -> tuple[str, float | None]:
        if at_s is not None:
            self.clock.at_s = at_s
        found = group or a_group()
        return self.pools.check(f"ns/{found.metadata.name}", found, pods or (a_pod(),), lambda: complete)


def test_a_group_that_no_scheduler_serves_is_reported_after_a_while() -> None:
    scene = Scene()
    assert scene.look() == ("", UNSERVED_AFTER_S)
    assert scene.look(at_s=UNSERVED_AFTER_S - 1) == ("", 1.0)
    text, again_s = scene.look(at_s=UNSERVED_AFTER_S)
    assert text == (
        "no scheduler has processed these pods for 5 minutes; start one for node pool 'blue' "
        f"(--partition-label-value=blue), or correct the label {LABEL}"
    )
    assert again_s == UNSERVED_AFTER_S


def test_the_default_pool_has_no_name() -> None:
    scene = Scene()
    scene.look(a_group(pool=""))
    text, _ = scene.look(a_group(pool=""), at_s=UNSERVED_AFTER_S)
    assert text.endswith(f"see that a scheduler named kai-scheduler runs for the nodes without {LABEL}")


@pytest.mark.parametrize(
    "pod",
    [a_pod(told="Unschedulable"), a_pod(told="PodGroupNotReady"), a_pod(on="n"), a_pod(going=True)],
)
def test_a_pod_seen_by_a_scheduler_counts_for_its_group(pod: Pod) -> None:
    scene = Scene()
    scene.look(None, pod, a_pod("other"))
    assert scene.look(None, pod, a_pod("other"), at_s=10 * UNSERVED_AFTER_S) == ("", None)


def test_a_condition_of_the_api_server_is_not_one_of_a_scheduler() -> None:
    scene = Scene()
    gated = a_pod(told="SchedulingGated")
    scene.look(None, gated)
    assert scene.look(None, gated, at_s=UNSERVED_AFTER_S)[0]


def test_groups_that_are_incomplete_over_or_have_their_reason_are_left_alone() -> None:
    reason = {"type": "UnschedulableOnNodePool", "nodePool": "blue", "status": "True", "transitionID": "1"}
    for group, pod, complete in (
        (a_group(), a_pod(), False),
        (a_group(), a_pod(phase="Succeeded"), True),
        (a_group(schedulingConditions=[reason]), a_pod(), True),
    ):
        scene = Scene()
        scene.look(group, pod, complete=complete)
        assert scene.look(group, pod, complete=complete, at_s=10 * UNSERVED_AFTER_S) == ("", None)


def test_the_reason_of_another_pool_does_not_count_for_this_one() -> None:
    group = a_group(schedulingConditions=[{"type": "UnschedulableOnNodePool", "nodePool": "red", "transitionID": "1"}])
    scene = Scene()
    scene.look(group)
    assert scene.look(group, at_s=UNSERVED_AFTER_S)[0]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (a_pod("x"), a_pod("x", on="n")),
        (a_pod("x"), a_pod("x", told="Unschedulable")),
        (a_pod("x", on="n"), a_pod("x", on="n", going=True)),
    ],
)
def test_a_scheduler_that_was_seen_at_work_in_the_pool_serves_it(before: Pod, after: Pod) -> None:
    """A pod may wait long without an event, for a victim with a long grace period."""
    scene = Scene()
    scene.look()
    scene.clock.at_s = 200.0
    assert scene.pools.observe(before, after, a_group("other")) == []
    assert scene.look(at_s=UNSERVED_AFTER_S) == ("", 200.0)
    assert scene.look(at_s=200.0 + UNSERVED_AFTER_S)[0]
    assert scene.pools.observe(before, after, a_group("other", pool="red")) == []
    assert scene.pools.observe(before, after, a_group("other")) == ["ns/g"]
    assert scene.look() == ("", UNSERVED_AFTER_S)


def test_each_group_is_no_longer_reported_by_itself() -> None:
    """What a scheduler's work clears is asked for by pool: groups that are gone or served must not come back."""
    scene = Scene()
    for name in ("a", "b", "c"):
        scene.look(a_group(name))
    for name in ("a", "b", "c"):
        assert scene.look(a_group(name), at_s=UNSERVED_AFTER_S)[0]
    scene.pools.forget("ns/a")

    def cleared() -> list[str]:
        return sorted(scene.pools.observe(a_pod("x"), a_pod("x", on="n"), a_group("other")))

    assert cleared() == ["ns/b", "ns/c"]
    assert scene.look(a_group("b")) == ("", UNSERVED_AFTER_S)
    assert cleared() == ["ns/c"]


@pytest.mark.parametrize(
    ("before", "after"),
    [(None, a_pod("x", told="Unschedulable")), (a_pod("x"), None), (a_pod("x"), a_pod("x", phase="Failed"))],
)
def test_pods_that_need_no_scheduler_are_no_evidence_of_one(before: Pod | None, after: Pod | None) -> None:
    scene = Scene()
    scene.look()
    scene.clock.at_s = UNSERVED_AFTER_S
    scene.pools.observe(before, after, a_group("other"))
    assert scene.look()[0]


def test_a_group_that_changes_its_pool_begins_again() -> None:
    scene = Scene()
    scene.look()
    assert scene.look(a_group(pool="red"), at_s=UNSERVED_AFTER_S) == ("", UNSERVED_AFTER_S)


def test_findings_survive_a_restart() -> None:
    found = [{"type": "Valid", "status": "False", "reason": REASON}]
    assert Scene().look(a_group(conditions=found))[0]
    assert Scene().look(replace(a_group(conditions=found)), a_pod(told="Unschedulable")) == ("", None)


def test_time_that_runs_fast_makes_no_scheduler_fast() -> None:
    clock = Hands()
    clock.speed = 1000.0
    pools = NodePoolMonitor(clock, LABEL, "kai-scheduler")
    assert pools.check("ns/g", a_group(), (a_pod(),), lambda: True) == ("", 30_000.0)


@pytest.fixture
async def place() -> AsyncIterator[ServiceCluster]:
    async with service_cluster("podgroup-controller") as found:
        await found.classes()
        await found.queue("q")
        yield found


async def test_a_pool_without_a_scheduler_is_reported_and_the_report_withdrawn(place: ServiceCluster) -> None:
    await place.create(resources.POD_GROUPS, "g", labels={LABEL: "blue"}, spec={"queue": "q", "minMember": 1})
    await place.pod("a", group="g")
    async with place.running(writer(pool_patience_s=0.3)):
        await place.groups.wait_until(stands("g", "Valid", "False"))
        assert "node pool 'blue'" in await place.wait_for_warning("g", REASON)
        told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "full"}
        await place.pod_status("a", conditions=[told])
        await place.groups.wait_until(stands("g", "Valid", "True"))
