"""In a large cluster: the work for one object does not grow with the others, and nothing blocks the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from pykai.api import names
from pykai.api.decode import DecodeError
from pykai.core.model.problems import Problem
from pykai.core.model.shard import Shard
from pykai.core.report.decisions import Bind, Evict, Plan
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.reflector import WatchEvent
from pykai.kube.runtime import Runtime
from pykai.scheduler.dispatch.bindplan import PendingBind
from pykai.scheduler.dispatch.bindrequests import assumed_request
from pykai.scheduler.dispatch.noderecheck import NodeRecheck
from pykai.scheduler.dispatch.records import HandoverRecords
from pykai.scheduler.flags import read_flags
from pykai.scheduler.service import make_scheduler
from pykai.scheduler.status.statusdiff import GroupStatusDiff, PodStatusDiff, StatusDiff
from tests.calls import count_calls, count_loop_turns
from tests.kube.fakes import FakeServer

MANY = 1000


class Large:
    """A scheduler that does not run, and a watch that the test plays."""

    def __init__(self, **flags: str) -> None:
        self.server = FakeServer()
        client = Client(self.server)
        runtime = Runtime(client, Caches(client), Clock())
        self.scheduler = make_scheduler(runtime, read_flags(flags), registry=CollectorRegistry(), endpoints=False)
        self.intake = self.scheduler.intake
        self.version = 10

    def say(self, type_: str, kind: str, name: str, **content: Any) -> None:
        self.version += 1
        meta = {"name": name, "namespace": "" if kind == "Node" else "default", "uid": f"uid-{name}"}
        meta |= {"resourceVersion": str(self.version), **content.pop("metadata", {})}
        document = msgspec.Raw(msgspec.json.encode({"metadata": meta, **content}))
        self.intake.stores[kind].apply_event(WatchEvent(type_, document))

    def nodes(self, number: int) -> None:
        for row in range(number):
            allocatable = {"cpu": "8", "memory": "8Gi", "pods": "9999"}
            self.say("ADDED", "Node", f"node-{row}", status={"allocatable": allocatable})

    def pods(self, pods: Iterable[str], group: str = "") -> None:
        metadata = {"annotations": {names.POD_GROUP_ANNOTATION: group}} if group else {}
        spec = {"schedulerName": "kai-scheduler", "containers": [{"name": "main"}]}
        for name in pods:
            self.say("ADDED", "Pod", name, metadata=metadata, spec=spec, status={"phase": "Pending"})

    def group(self, name: str, minimum: int = 1) -> None:
        self.say("ADDED", "PodGroup", name, spec={"queue": "q", "minMember": minimum})

    def invalid(self) -> dict[str, float]:
        """The metric of unusable objects."""
        registry = self.scheduler.metrics.registry
        return {
            sample.labels["kind"]: sample.value
            for family in registry.collect()
            for sample in family.samples
            if sample.name == "kai_invalid_objects"
        }


def numbered(name: str, number: int = MANY) -> list[str]:
    return [f"{name}-{row}" for row in range(number)]


def bind(pod: str, group: str, node: str = "node-0") -> Bind:
    return Bind("default", pod, f"uid-{pod}", f"default/{group}", node, names.RECEIVED_REGULAR)


def spread(name: str) -> list[Bind]:
    """Numbered pods, each on a node of its own: what is on its way to a node is looked at before each bind to it."""
    return [bind(pod, pod, f"node-{row}") for row, pod in enumerate(numbered(name))]


def plan(*binds: Bind, evictions: tuple[Evict, ...] = ()) -> Plan:
    return Plan(0, binds, (), evictions, (), (), (), (), (), (), (), 0)


async def test_a_node_recheck_does_not_visit_binds_to_other_nodes() -> None:
    looks = []
    for number in (10, MANY):
        large = Large()
        large.nodes(number)
        large.pods(numbered("pod", number))
        places = [PendingBind(f"pod-{row}", f"uid-pod-{row}", f"node-{row}") for row in range(number)]
        for place in places:
            large.intake.binds.assume(assumed_request("default", place.uid, place.spec()))
        intake = large.intake
        room = NodeRecheck(
            intake.pods, intake.nodes, intake.requests, intake.binds, intake.generations, intake.shared_gpus
        )
        assert room.fit_error("default", places[0], 0) == ""
        looks.append(count_calls(lambda room=room, place=places[1]: room.fit_error("default", place, 0)))  # type: ignore[misc]
    assert looks[0] == looks[1]


async def test_binds_are_indexed_by_node_until_they_end() -> None:
    large = Large()
    large.nodes(3)
    large.pods(["a", "b", "c", "d"])

    def assume(pod: str, node: str) -> None:
        large.intake.binds.assume(assumed_request("default", f"uid-{pod}", PendingBind(pod, f"uid-{pod}", node).spec()))

    def to(node: str) -> list[str]:
        return [request.spec.pod_name for request in large.intake.binds.on_node(node)]

    for pod in ("a", "b", "c", "d"):
        assume(pod, "node-0")
    assert to("node-0") == ["a", "b", "c", "d"]
    assume("a", "node-1")
    large.intake.binds.give_up("default/b", "uid-b", None)
    large.say("DELETED", "Pod", "c")
    assert (to("node-0"), to("node-1")) == (["d"], ["a"])
    owner = {"ownerReferences": [{"kind": "Pod", "name": "d", "uid": "uid-d"}]}
    large.say("ADDED", "BindRequest", "d", metadata=owner, spec={"podName": "d", "selectedNode": "node-0"})
    assert to("node-0") == []
    assert [name for name in "abcd" if large.intake.binds.is_assumed(f"default/{name}")] == ["a"]


async def test_an_object_that_cannot_be_read_costs_the_same_however_many_there_are() -> None:
    complaints = Large(shadow="true").scheduler.problem_events
    error = DecodeError("Pod", "spec", "nonsense")
    complaints.report_unreadable("Pod", "default/first", error)
    cost = count_calls(lambda: complaints.report_unreadable("Pod", "default/second", error))
    for name in numbered("pod"):
        complaints.report_unreadable("Pod", f"default/{name}", error)
    # A garbage collection may run during either.
    assert count_calls(lambda: complaints.report_unreadable("Pod", "default/last", error)) <= 2 * cost


async def test_objects_that_cannot_be_used_are_counted_once() -> None:
    large = Large()
    complaints = large.scheduler.problem_events
    error = DecodeError("Pod", "spec", "nonsense")
    complaints.report_unreadable("Pod", "default/a", error)
    complaints.report_unreadable("Pod", "default/a", DecodeError("Pod", "spec", "other nonsense"))
    complaints.report_unreadable("Queue", "q", error)
    assert large.invalid() == {"Pod": 1, "Queue": 1}
    complaints.report_problems(
        (Problem("Pod/default/a", "spec", "strange"), Problem("Pod/default/b", "spec", "strange"))
    )
    assert large.invalid() == {"Pod": 2, "Queue": 1}
    complaints.report_unreadable("Pod", "default/b", error)
    complaints.report_unreadable("Pod", "default/b", None)
    complaints.report_unreadable("Queue", "q", None)
    assert large.invalid() == {"Pod": 2}
    complaints.report_problems(())
    assert large.invalid() == {"Pod": 1}
    complaints.report_unreadable("Pod", "default/a", None)
    complaints.report_unreadable("Pod", "default/never", None)
    assert large.invalid() == {}


@pytest.mark.parametrize("shadow", ["false", "true"])
async def test_the_event_loop_stays_responsive_while_a_large_plan_begins(shadow: str) -> None:
    large = Large(shadow=shadow)
    large.nodes(MANY)
    large.pods(numbered("pod"))
    victims = tuple(
        Evict("default", name, f"uid-{name}", "default/g", "node-0", "reclaim", 1, "why") for name in numbered("pod")
    )
    binds = plan(*spread("pod"))
    assert await count_loop_turns(large.scheduler.dispatcher.dispatch(binds)) >= 5
    assert await count_loop_turns(large.scheduler.dispatcher.dispatch(plan(evictions=victims))) >= 5
    large.scheduler.dispatcher.stop()


async def test_the_event_loop_stays_responsive_while_many_statuses_are_computed() -> None:
    large = Large()
    pods = tuple(PodStatusDiff(f"default/{name}", "uid", "no", condition=True, event=True) for name in numbered("pod"))
    groups = [
        GroupStatusDiff(f"default/{name}", "uid", "no", "Unschedulable", event=True, reasons=None, pods=pods[:10])
        for name in numbered("group", 100)
    ]
    assert await count_loop_turns(large.scheduler.status_sink.publish(StatusDiff(groups=groups))) >= 5
    assert await count_loop_turns(large.scheduler.status_sink.publish(StatusDiff(pods=list(pods)))) >= 5


async def test_the_event_loop_stays_responsive_while_plans_are_taken_over() -> None:
    large = Large()
    records = HandoverRecords(Client(large.server), Shard(), "kai-scheduler")
    for name in numbered("group"):
        large.group(name)
        uid = f"uid-{name}"
        labels = {
            names.RECORD_LABEL: "bind-plan",
            names.RECORD_SCHEDULER_LABEL: names.SCHEDULER_NAME,
            names.RECORD_POOL_LABEL: "",
        }
        data = {"podGroup": f"default/{name}", "podGroupUid": uid, "queue": "q", "pods": "[]"}
        document = {
            "metadata": {"name": records.name_of("bind-plan", uid), "uid": name, "labels": labels},
            "data": data,
        }
        large.server.put(document, "/api/v1/namespaces/kai-scheduler/configmaps")
    assert (
        await count_loop_turns(large.scheduler.dispatcher.take_over(large.scheduler.loop.query_engine_up_to_date)) >= 5
    )
    await large.scheduler.dispatcher.drain()
    assert sum(request.method == "DELETE" for request in large.server.requests) == MANY


async def test_what_is_kept_of_failed_binds_does_not_grow_without_end() -> None:
    """However many causes and pods there are: those beyond the first few share one count."""
    large = Large()
    large.group("g")
    failed = large.scheduler.dispatcher._failed_binds  # type: ignore[attr-defined]
    for number, name in enumerate(numbered("pod", 100)):
        spec = {"schedulerName": "kai-scheduler", "priority": number, "containers": [{"name": "main"}]}
        metadata = {"annotations": {names.POD_GROUP_ANNOTATION: "g"}}
        large.say("ADDED", "Pod", name, metadata=metadata, spec=spec, status={"phase": "Pending"})
        pod = large.intake.pods.get(f"default/{name}")
        failed.count_failure(
            pod, "default/g", f"cause {chr(97 + number % 26)}", "a", None, request_uid=f"request-{number}"
        )
    assert failed.failure_count("default/g") == 100 - 7
    assert large.intake.group_intake.free_room_only.keys() == {"default/g"}
    await large.scheduler.dispatcher.drain()
    last = [each for each in large.server.requests if each.path.endswith("/configmaps")][-1]
    assert len(last.body or b"") < 4000


@pytest.mark.parametrize("goes", ["deleted", "bound"])
async def test_a_gang_that_loses_a_pod_while_a_large_plan_begins_does_not_begin(goes: str) -> None:
    large = Large()
    large.nodes(MANY)
    large.group("gang", minimum=2)
    large.pods(["gang-0", "gang-1"], "gang")
    large.pods(numbered("pod"))
    large.intake.queue.take()
    binds = (bind("gang-0", "gang"), bind("gang-1", "gang"), *spread("pod"))

    async def meanwhile() -> None:
        await asyncio.sleep(0)
        assert large.intake.binds.is_assumed("default/gang-0")
        if goes == "deleted":
            large.say("DELETED", "Pod", "gang-0")
        else:
            # By others, into another group.
            spec = {"schedulerName": "kai-scheduler", "nodeName": "node-9", "containers": [{"name": "main"}]}
            metadata = {"annotations": {names.POD_GROUP_ANNOTATION: "another"}}
            large.say("MODIFIED", "Pod", "gang-0", metadata=metadata, spec=spec, status={"phase": "Running"})

    await asyncio.gather(large.scheduler.dispatcher.dispatch(plan(*binds)), meanwhile())
    await large.scheduler.dispatcher.drain()
    assert not [request.path for request in large.server.requests if "gang" in request.path]
    assert not large.intake.binds.is_assumed("default/gang-1")
    assert large.scheduler.dispatcher.unsettled_gangs == 0
    assert sum(request.path.endswith("/binding") for request in large.server.requests) == MANY


async def test_nothing_begins_for_a_group_whose_pods_are_all_deleted() -> None:
    large = Large()
    large.nodes(MANY)
    large.group("gang")
    large.pods(["gang-0", "gang-1"], "gang")
    large.pods(numbered("pod"))

    async def meanwhile() -> None:
        await asyncio.sleep(0)
        for name in ("gang-0", "gang-1"):
            large.say("DELETED", "Pod", name)

    binds = (bind("gang-0", "gang"), bind("gang-1", "gang"), *spread("pod"))
    await asyncio.gather(large.scheduler.dispatcher.dispatch(plan(*binds)), meanwhile())
    assert large.scheduler.dispatcher.unsettled_gangs == 0
    large.scheduler.dispatcher.stop()
