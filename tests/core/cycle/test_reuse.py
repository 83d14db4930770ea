"""The cost of a change: irrelevant changes do nothing, and what a cycle has not read does not end its plan.

In every case the plan equals a newly computed one; `Service.cycle` compares them byte by byte.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pykai.api.core import Pod
from pykai.api.decode import decode_object
from pykai.core.cluster.groupindex import GroupIndex, PriorityKind
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cluster.tables import Tables
from pykai.core.cycle.reuse import ReusableState
from pykai.core.hooks import Hooks
from pykai.core.model.status import TaskStatus
from pykai.core.model.tasks import is_equivalent_pod
from pykai.core.opencycle import Cycle, open_cycle
from pykai.core.policy import NamedPlugin
from tests.core.builders import NOW_NS, Cluster, Raw, cluster
from tests.core.cycle.test_memory import ALL_ACTIONS, Service


def lab() -> Cluster:
    """A full node, and a job that therefore waits; no pod may be evicted for it."""
    built = (
        cluster().node("node-0", gpus=2).node("node-1", cpu=50).with_actions(*ALL_ACTIONS).queue("q", quota=2, age=100)
    )
    built.priority_class("usual", 50, default=True).config_map("there").namespace("default", tenant="red")
    built.gang("running", 2, gpu=1, on="node-0", preemptible=False, age=90, labels={"app": "x"})
    return built.gang("waiting", gpu=1, age=80)


def again(built: Cluster, kind: str, name: str) -> Raw:
    """An object of a cluster, to be changed."""
    (raw,) = (raw for raw in built.objects if raw["kind"] == kind and raw["metadata"]["name"] == name)
    return raw


def after(change: Callable[[Cluster], Raw | None]) -> tuple[Service, bool]:
    """Schedule a cluster, change an object, and return whether the plan still holds."""
    built = lab()
    service = Service(built)
    service.cycle()
    raw = change(built)
    if raw is not None:
        service.tables.apply(decode_object(raw))
    held = service.recalls(1)
    service.cycle(1)
    return service, held


def with_(kind: str, name: str, **parts: Raw) -> Callable[[Cluster], Raw]:
    """A change of some parts of an object, as `metadata__labels={...}`."""

    def change(built: Cluster) -> Raw:
        raw = again(built, kind, name)
        for path, value in parts.items():
            place = raw
            for step in path.split("__")[:-1]:
                place = place.setdefault(step, {})
            last = path.split("__")[-1]
            place[last] = {**place[last], **value} if isinstance(place.get(last), dict) else value
        return raw

    return change


READY: Any = [{"type": "Ready", "status": "True", "reason": "Heard"}]
OTHERS: Any = "9"
NOTE = {"example.com/note": "x"}
STARTED = {"kai.scheduler/last-start-timestamp": "2026-01-01T00:00:00Z"}


def with_port(pod: Raw) -> Raw:
    """The pod, which now holds a port of its node."""
    pod["spec"]["containers"][0]["ports"] = [{"hostPort": 80}]
    return pod


@pytest.mark.parametrize(
    "change",
    [
        with_("Pod", "running-0", status__conditions=READY),
        with_("Pod", "waiting-0", status__conditions=READY),
        with_("Pod", "waiting-0", metadata__resourceVersion=OTHERS),
        with_("Pod", "waiting-0", metadata__annotations=NOTE),
        with_("PodGroup", "waiting", metadata__annotations=NOTE),
        with_("PodGroup", "running", status__running=1),  # type: ignore[arg-type]
        with_("Queue", "q", metadata__annotations=NOTE),
        with_("Queue", "q", status={"allocated": {"cpu": "1"}}),
        with_("Node", "node-0", metadata__annotations=NOTE),
        with_("Namespace", "default", metadata__annotations=NOTE),
        with_("ConfigMap", "there", metadata__annotations=NOTE),
    ],
)
def test_changes_of_unread_fields_do_not_count(change: Callable[[Cluster], Raw]) -> None:
    built = lab()
    service = Service(built)
    service.cycle()
    before = service.tables.snapshot(NOW_NS).change_tokens
    service.tables.apply(decode_object(change(built)))
    assert service.tables.snapshot(NOW_NS).change_tokens.is_same(before)
    assert service.recalls(1)
    service.cycle(1)


def pod_of(built: Cluster, name: str) -> Pod:
    found = decode_object(again(built, "Pod", name))
    assert isinstance(found, Pod)
    return found


def test_a_pod_with_only_new_conditions_is_not_parsed() -> None:
    heard = lab()
    with_("Pod", "waiting-0", status__conditions=READY, metadata__resourceVersion=OTHERS)(heard)
    assert is_equivalent_pod(pod_of(lab(), "waiting-0"), pod_of(heard, "waiting-0"))


@pytest.mark.parametrize(
    "part",
    [
        {"metadata__labels": {"app": "y"}},
        {"metadata__annotations": NOTE},
        {"metadata__uid": "another"},
        {"spec": {"nodeName": "node-1"}},
        {"spec": {"schedulingGates": [{"name": "wait"}]}},
        {"status": {"phase": "Failed"}},
        {"status": {"nominatedNodeName": "node-1"}},
    ],
)
def test_a_change_of_any_other_part_of_a_pod_is_parsed(part: Raw) -> None:
    changed = lab()
    with_("Pod", "waiting-0", **part)(changed)
    assert not is_equivalent_pod(pod_of(lab(), "waiting-0"), pod_of(changed, "waiting-0"))


def test_an_assumption_that_agrees_with_the_pod_is_not_a_change() -> None:
    service = Service(lab())
    service.cycle()
    before = service.tables.snapshot(NOW_NS).change_tokens
    service.tables.assume("default/running-0", TaskStatus.RUNNING)
    service.tables.assume("default/running-0", None)
    assert service.tables.snapshot(NOW_NS).change_tokens.is_same(before)
    service.tables.assume("default/running-0", TaskStatus.RELEASING)
    assert not service.recalls(1)
    service.cycle(1)


def test_removing_an_unknown_object_is_not_a_change() -> None:
    service = Service(lab())
    service.cycle()
    before = service.tables.snapshot(NOW_NS).change_tokens
    for kind in ("Pod", "PodGroup", "Queue", "Node", "BindRequest"):
        service.tables.remove(kind, "default", "nobody")
    assert service.tables.snapshot(NOW_NS).change_tokens.is_same(before)


@pytest.mark.parametrize(
    "change",
    [
        with_("Pod", "running-0", metadata__labels={"app": "y"}),
        with_("Pod", "running-0", status={"phase": "Pending"}),
        with_(
            "PodGroup", "running", metadata__annotations={"kai.scheduler/last-start-timestamp": "2026-01-01T00:00:00Z"}
        ),
    ],
)
def test_running_work_that_holds_as_much_as_before_keeps_the_plan(change: Callable[[Cluster], Raw]) -> None:
    """Labels, a pod that starts to run, timestamps of its group: the sums are equal, and nothing else was read."""
    service, held = after(change)
    assert held
    assert not service.tables.snapshot(NOW_NS).inspected_running


def test_a_nomination_survives_unrelated_changes() -> None:
    """The cycle itself has changed the free amounts of the node; those it began with are compared."""
    built = cluster(nodes=1, gpus=1).queue("q").group("old").pod("old", group="old", gpu=1, on="node-0", deleted=0)
    service = Service(built.gang("next", gpu=1))
    assert service.cycle().nominations
    service.tables.apply(decode_object(with_("Pod", "old", metadata__labels={"app": "y"})(built)))
    assert service.recalls(1)
    service.cycle(1)


def test_an_equal_pod_in_place_of_another_keeps_the_plan() -> None:
    def succeed(built: Cluster) -> Raw:
        raw = again(built, "Pod", "running-0")
        raw["metadata"] |= {"name": "running-9", "uid": "running-9"}
        return raw

    built = lab()
    service = Service(built)
    service.cycle()
    service.tables.remove("Pod", "default", "running-0")
    service.tables.apply(decode_object(succeed(built)))
    assert service.recalls(1)
    service.cycle(1)


@pytest.mark.parametrize(
    "change",
    [
        lambda built: cluster().pod("other", cpu=1, on="node-1", scheduler="x").objects[0],
        # Charged to its node and to no queue.
        lambda built: cluster().pod("stray", cpu=1, on="node-1").objects[0],
        lambda built: with_port(again(built, "Pod", "running-0")),
        with_("Pod", "waiting-0", metadata__labels={"app": "y"}),
        with_("PodGroup", "waiting", spec={"preemptibility": "non-preemptible"}),
        with_("PodGroup", "running", spec={"priorityClassName": "usual"}),
        with_("PodGroup", "running", spec={"topologyConstraint": {"topology": "racks"}}),
        with_("PodGroup", "running", spec={"minMember": 3}),
        with_("Queue", "q", spec={"priority": 7}),
        lambda built: cluster().pod("nobodys").objects[0],
        with_("Namespace", "default", metadata__labels={"tenant": "blue"}),
        with_("Node", "node-1", metadata__labels={"rack": "r"}),
    ],
)
def test_a_relevant_change_computes_a_new_plan(change: Callable[[Cluster], Raw]) -> None:
    assert not after(change)[1]


def preemptible() -> Service:
    """A job that waits for one that may be evicted, but not before a minute has passed."""
    started = {"annotations": {"kai.scheduler/last-start-timestamp": "2025-12-31T23:59:50Z"}}
    built = cluster(nodes=1, gpus=1).with_actions(*ALL_ACTIONS).queue("poor", quota=1)
    built.queue("rich", quota=0, weight=0, reclaimMinRuntime="1m")
    built.gang("running", gpu=1, queue="rich", on="node-0", group_spec=started).gang("claim", gpu=1, queue="poor")
    service = Service(built)
    service.cycle()
    service.apply(cluster().add(with_("Pod", "running-0", metadata__labels={"app": "y"})(built)))
    return service


def test_a_plan_that_read_running_work_ends_when_that_changes() -> None:
    service = preemptible()
    assert not service.recalls(1)
    service.cycle(1)


def test_a_snapshot_knows_that_running_work_was_read() -> None:
    snapshot = lab().tables().snapshot(NOW_NS)
    assert snapshot.group_entries
    assert snapshot.task_records
    assert snapshot.tasks_by_node
    assert not snapshot.inspected_running
    running = snapshot.read_running()
    assert snapshot.inspected_running
    (count,) = snapshot.group_index.queues.values()
    assert [
        entry.group.name for entry in running.of_kind(count, PriorityKind("", "non-preemptible")) if entry.group
    ] == ["running"]


class Reader:
    """A third-party plugin; what it reads is unknown."""

    def prepare(self, snapshot: Snapshot) -> Hooks:
        return Hooks()


def test_with_foreign_plugins_everything_counts_as_read() -> None:
    built = lab()
    built.with_policy(plugins=(*built.policy().plugins, NamedPlugin("reader", Reader(), third_party=True)))
    service = Service(built)
    service.cycle()
    service.tables.apply(decode_object(with_("Pod", "running-0", metadata__labels={"app": "y"})(built)))
    assert not service.recalls(1)
    assert (
        ReusableState.reuse_or_create(service.memory.reuse, service.tables.snapshot(NOW_NS), service.policy)
        is not service.memory.reuse
    )


def test_what_comes_and_goes_again_leaves_the_plan_as_it_was() -> None:
    service = Service(lab())
    service.cycle()
    service.apply(cluster().pod("other", cpu=1, on="node-1", scheduler="x"))
    assert not service.recalls(1)
    service.tables.remove("Pod", "default", "other")
    assert service.recalls(1)
    service.cycle(1)


# Reused gangs


def gangs_after(service: Service, change: Callable[[], object] = lambda: None) -> tuple[set[str], set[str]]:
    """Names of gangs cached before a change, and of those the next cycle reuses."""
    assert service.memory.reuse is not None
    before = dict(service.memory.reuse.gangs)
    change()
    snapshot = service.tables.snapshot(NOW_NS)
    cycle = open_cycle(
        snapshot, service.policy, ReusableState.reuse_or_create(service.memory.reuse, snapshot, service.policy)
    )
    taken = {gang.group.name for gang in cycle.gangs.waiting() if before.get(gang.key) is gang}
    return {key.partition("/")[2] for key in before}, taken


def several() -> Cluster:
    return lab().gang("second", gpu=2, age=70).gang("third", gpu=1, age=60)


def test_waiting_gangs_are_built_once() -> None:
    service = Service(several())
    service.cycle()
    known, taken = gangs_after(service)
    assert known == taken == {"waiting", "second", "third"}


def test_a_gang_is_rebuilt_when_its_group_or_pod_changes() -> None:
    built = several()
    service = Service(built)
    service.cycle()
    pod = with_("Pod", "third-0", metadata__labels={"app": "y"})(built)
    assert gangs_after(service, lambda: service.tables.apply(decode_object(pod)))[1] == {"waiting", "second"}
    group = with_("PodGroup", "second", spec={"priorityClassName": "usual"})(built)
    assert gangs_after(service, lambda: service.tables.apply(decode_object(group)))[1] == {"waiting"}


@pytest.mark.parametrize(
    "change",
    [
        with_("Queue", "q", spec={"priority": 7}),
        with_("PriorityClass", "usual", value=60),  # type: ignore[arg-type]
        with_("Node", "node-1", metadata__labels={"rack": "r"}),
    ],
)
def test_all_gangs_are_rebuilt_when_a_shared_input_changes(change: Callable[[Cluster], Raw]) -> None:
    built = several()
    service = Service(built)
    service.cycle()
    assert gangs_after(service, lambda: service.tables.apply(decode_object(change(built))))[1] == set()
    service.cycle(1)


def test_a_placed_gang_is_not_reused() -> None:
    """Nor one that was tried and undone: the trial may have left something in it."""
    built = several().node("node-2", gpus=1)
    service = Service(built)
    bound = {bind.group.partition("/")[2] for bind in service.cycle().binds}
    assert bound == {"waiting"}
    assert gangs_after(service)[0] == {"second", "third"}


def test_other_tables_are_another_cluster() -> None:
    service = Service(several())
    service.cycle()
    service.tables = several().tables()
    assert gangs_after(service)[1] == set()


def test_reused_gangs_keep_no_cycle_alive() -> None:
    service = Service(several())
    service.cycle()
    assert service.memory.reuse is not None
    for gang in service.memory.reuse.gangs.values():
        parts = [getattr(gang, name) for name in gang.__slots__]
        assert not any(isinstance(part, (Cycle, Snapshot, Tables)) for part in parts)
        assert getattr(gang.task_key, "__self__", None) is None


# The group index


def census_of(built: Cluster) -> GroupIndex:
    return built.tables().snapshot(NOW_NS).group_index


def test_groups_are_summed_by_queue_and_kind() -> None:
    built = cluster(nodes=2, gpus=4).queue("q")
    built.gang("a", 2, gpu=1, cpu=2, memory=5, on="node-0").gang("b", gpu=1, cpu=1, memory=1, on="node-1")
    built.gang("c", gpu=3, cpu=1, memory=7, priority="high", preemptible=None)
    (count,) = census_of(built).queues.values()
    mine, theirs = PriorityKind("", "preemptible"), PriorityKind("high", "")
    assert count.groups == {mine: 2, theirs: 1}
    assert count.allocated == {mine: (5000, 11, 300), theirs: (0, 0, 0)}
    assert (count.requested, count.requested_mib) == ((1000, 7, 300), 0)
    assert {kind: set(running) for kind, running in count.running.items()} == {mine: {"default/a", "default/b"}}


def test_groups_of_unknown_queues_are_counted_once_the_queue_exists() -> None:
    assert set(census_of(cluster(nodes=1).gang("a", queue="later")).queues) == {"later"}


def backing_off(name: str, **pod: Any) -> Cluster:
    built = cluster(nodes=1, gpus=4).queue("q").gang(name, gpu=1, group_spec={"schedulingBackoff": 1}, **pod)
    group = again(built, "PodGroup", name)
    group["status"] = {"schedulingConditions": [{"nodePool": "default", "transitionID": "1"}]}
    return built


def test_snp11_a_group_that_backs_off_is_listed_and_left_out_of_sums() -> None:
    """cycle:SNP-11; that it is of a low priority still counts."""
    census = census_of(backing_off("idle"))
    (count,) = census.queues.values()
    assert (sum(count.groups.values()), count.requested, count.allocated, census.waiting) == (1, (0, 0, 0), {}, {})
    (count,) = census_of(backing_off("busy", on="node-0")).queues.values()
    assert (sum(count.groups.values()), count.allocated, count.running) == (1, {}, {})


def test_a_group_that_goes_leaves_nothing_behind() -> None:
    built = cluster(nodes=1, gpus=4).queue("q").gang("a", 2, min=1, gpu=1, on="node-0").gang("b", gpu=1)
    tables = built.tables()
    tables.snapshot(NOW_NS)
    for pod in ("a-0", "a-1", "b-0"):
        tables.remove("Pod", "default", pod)
    census = tables.snapshot(NOW_NS).group_index
    assert (census.queues, census.waiting) == ({}, {})


def test_waiting_groups_are_found_without_a_walk_over_all_groups() -> None:
    gate = {"schedulingGates": [{"name": "wait"}]}
    built = cluster(nodes=1).queue("q").gang("runs", on="node-0").gang("waits").gang("held", spec=gate)
    built.pod("lost", group="absent")
    census = census_of(built)
    assert (set(census.waiting), set(census.ungrouped)) == ({"default/waits", "default/held"}, {"default/absent"})


@pytest.mark.parametrize(
    ("running", "minimum", "how", "broken"),
    [
        (2, 2, {}, False),
        (1, 2, {}, True),
        (0, 2, {}, False),
        (1, 1, {}, False),
        (1, 2, {"ended": True}, False),
        (2, 2, {"stamp": True}, True),
    ],
)
def test_stl1_stale_gangs_are_indexed_too(running: int, minimum: int, how: Raw, broken: bool) -> None:
    """cycle:STL-1: complete ones, ones that never ran and ones with a succeeded pod are not."""
    notes = {"kai.scheduler/stale-podgroup-timestamp": "2026-01-01T00:00:00Z"} if "stamp" in how else {}
    built = cluster(nodes=1).queue("q").group("g", minMember=minimum, annotations=notes)
    for number in range(running):
        built.pod(f"g-{number}", group="g", on="node-0")
    if "ended" in how:
        built.pod("ended", group="g", on="node-0", phase="Succeeded")
    assert bool(census_of(built).stale) == broken


def test_only_groups_that_changed_are_counted_again() -> None:
    built = lab()
    tables = built.tables()
    versions = {key: entry.version for key, entry in tables.snapshot(NOW_NS).group_entries.items()}
    tables.apply(decode_object(with_("Pod", "running-0", metadata__labels={"app": "y"})(built)))
    tables.apply(decode_object(with_("Pod", "waiting-0", status__conditions=READY)(built)))
    after_it = {key: entry.version for key, entry in tables.snapshot(NOW_NS).group_entries.items()}
    assert {key for key in versions if versions[key] != after_it[key]} == {"default/running"}
