"""The pod grouper at work on an API server: what it writes, and what it does when writes fail (workloads:2.1)."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from pykai.api import names
from pykai.api.scheduling import PodGroup
from pykai.kube import resources
from pykai.kube.errors import ConnectionLost
from pykai.kube.transport import Request, Response
from pykai.podgrouper.service import PodGrouper
from tests.heldentries import entry_counts
from tests.servers import ensure_namespace
from tests.services.podgrouper.grouped import GROUP, QUEUE, WARNING, Slow, assigned, group_of, grouper, phase_of
from tests.services.servicecluster import RecordingTransport, ServiceCluster, refusal


async def test_a_pod_gets_its_group(place: ServiceCluster) -> None:
    created = await place.pod("a", labels={QUEUE: "team"})
    async with place.running(grouper()):
        await place.pods.wait_until(assigned("a"))
    (group,) = await place.raw_groups()
    name = f"pg-a-{created['metadata']['uid']}"
    assert (group["metadata"]["name"], group["spec"]["queue"]) == (name, "team")
    assert (await place.raw_pod("a"))["metadata"]["annotations"] == {GROUP: name}


async def test_what_is_skipped_costs_nothing(place: ServiceCluster) -> None:
    """workloads:T-20, T-23, GR-1, EX-3."""
    skip = {"kai.scheduler/skip-podgrouper": "true"}
    job = await place.job()
    await place.pod("skipped", by=job, annotations=skip)
    await place.pod("external", group="theirs")
    await place.pod("foreign", scheduler="default-scheduler")
    wire = place.wire()
    async with place.running(grouper(), transport=wire) as service:
        await place.settled(service)
    async with place.running(grouper(shared_cache=True), transport=wire) as service:
        await place.settled(service)
    assert wire.writes == []


async def test_only_the_word_true_skips(place: ServiceCluster) -> None:
    """workloads:T-21."""
    await place.pod("a", annotations={"kai.scheduler/skip-podgrouper": "false"})
    async with place.running(grouper()):
        await place.pods.wait_until(assigned("a"))


async def test_a_job_of_many_pods_costs_one_create_and_no_reads(place: ServiceCluster) -> None:
    job = await place.job()
    pods = [f"p{number}" for number in range(40)]
    for name in pods:
        await place.pod(name, by=job)

    wire = place.wire(Slow)
    async with place.running(grouper(), transport=wire):
        await place.pods.wait_until(assigned(*pods))
    assert sum(write.startswith("POST") for write in wire.writes) == 1
    assert sum("/pods/" in write for write in wire.writes) == 40
    assert len(wire.writes) == 41
    assert not [read for read in wire.reads if read.count("/") > 6]
    assert len(await place.raw_groups()) == 1


async def test_a_new_grouper_writes_nothing_twice(place: ServiceCluster) -> None:
    job = await place.job(annotations={"kai.scheduler/batch-min-member": "2"})
    for name in ("a", "b"):
        await place.pod(name, by=job)
    await place.pod("alone")
    async with place.running(grouper()):
        await place.pods.wait_until(assigned("a", "b", "alone"))
    before = await place.raw_groups()
    wire = place.wire()
    async with place.running(grouper(), transport=wire) as service:
        await place.settled(service)
    assert wire.writes == []
    assert await place.raw_groups() == before


async def test_irrelevant_changes_are_not_processed(place: ServiceCluster) -> None:
    job = await place.job()
    await place.pod("a", by=job)
    wire = place.wire()
    async with place.running(grouper(), transport=wire) as service:
        await place.pods.wait_until(assigned("a"))
        await place.settled(service)
        written = len(wire.writes)
        await place.bind("a")
        await place.pod_status("a", phase="Running")
        await place.pods.wait_until(lambda pods: phase_of(pods, "a") == "Running")
    assert len(wire.writes) == written


async def test_an_existing_group_keeps_what_is_sticky(place: ServiceCluster) -> None:
    """workloads:T-25, T-26."""
    job = await place.job(labels={QUEUE: "q2"})
    name = f"pg-j-{job['metadata']['uid']}"
    await place.group(name, queue="q1", markUnschedulable=False, schedulingBackoff=1, minMember=5)
    await place.pod("a", by=job, labels={"kai.scheduler/node-pool": "pool-a"})
    async with place.running(grouper()):
        await place.pods.wait_until(assigned("a"))
    (group,) = await place.raw_groups()
    spec = group["spec"]
    assert (spec["queue"], spec["markUnschedulable"], spec["schedulingBackoff"], spec["minMember"]) == (
        "q1",
        False,
        1,
        1,
    )
    assert group["metadata"]["labels"] == {QUEUE: "q2"}


async def test_a_new_group_takes_the_node_pool_of_its_pod(place: ServiceCluster) -> None:
    job = await place.job()
    await place.pod("a", by=job, labels={"kai.scheduler/node-pool": "pool-a"})
    async with place.running(grouper()):
        await place.pods.wait_until(assigned("a"))
    (group,) = await place.raw_groups()
    assert group["metadata"]["labels"]["kai.scheduler/node-pool"] == "pool-a"


async def test_a_deleted_group_of_owned_pods_comes_back(place: ServiceCluster) -> None:
    job = await place.job()
    await place.pod("a", by=job)
    name = f"pg-j-{job['metadata']['uid']}"
    async with place.running(grouper()):
        await place.pods.wait_until(assigned("a"))
        place.clock.speed = 100.0
        old = await place.client.get(resources.POD_GROUPS, name, "default", into=PodGroup)
        await place.client.delete(resources.POD_GROUPS, name, "default")
        await place.groups.wait_until(
            lambda groups: [each.metadata.uid for each in groups.values()] not in ([], [old.metadata.uid])
        )


async def test_a_group_changed_by_another_writer_is_restored(place: ServiceCluster) -> None:
    job = await place.job()
    await place.pod("a", by=job)
    name = f"pg-j-{job['metadata']['uid']}"
    async with place.running(grouper()):
        await place.pods.wait_until(assigned("a"))
        await place.client.patch(resources.POD_GROUPS, name, {"spec": {"minMember": 9}}, "default")
        await place.groups.wait_until(lambda groups: groups.values()[0].spec.min_member == 9)  # type: ignore[index]
        await place.groups.wait_until(lambda groups: groups.values()[0].spec.min_member == 1)  # type: ignore[index]


async def test_an_unreadable_annotation_of_a_job_is_reported_and_others_are_served(
    place: ServiceCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """workloads:T-62, GR-6."""
    caplog.set_level(logging.INFO, "pykai.podgrouper")
    bad = await place.job("bad", annotations={"kai.scheduler/batch-min-member": "many"})
    await place.pod("a", by=bad)
    await place.pod("b")
    async with place.running(grouper()):
        message = await place.wait_for_warning("a", WARNING)
        await place.pods.wait_until(assigned("b"))
        await place.client.patch(resources.PODS, "a", {"metadata": {"labels": {"touched": "x"}}}, "default")
        # Events are seen in order.
        await place.pod("c")
        await place.pods.wait_until(assigned("c"))
    assert await place.count("a", WARNING) >= 2
    assert caplog.text.count("is not grouped: invalid min-member") == 1
    assert "invalid min-member annotation value: 'many'" in message
    assert GROUP not in (await place.raw_pod("a"))["metadata"].get("annotations", {})


async def test_no_event_about_a_pod_that_is_being_deleted(place: ServiceCluster) -> None:
    """workloads:2.1, Do better."""
    bad = await place.job("bad", annotations={"kai.scheduler/batch-min-member": "many"})
    await place.pod("a", by=bad)
    # It must not go while the test looks at it: the controllers of a real server remove pods of missing nodes.
    await place.client.patch(resources.PODS, "a", {"metadata": {"finalizers": ["example.com/held"]}}, "default")
    await place.client.delete(resources.PODS, "a", "default")
    assert "deletionTimestamp" in (await place.raw_pod("a"))["metadata"]
    async with place.running(grouper()) as service:
        await place.settled(service)
    await place.client.patch(resources.PODS, "a", {"metadata": {"finalizers": None}}, "default")
    assert not await place.client.list_raw(resources.EVENTS, namespace="default")


async def test_a_finished_pod_stays_where_it_was(place: ServiceCluster) -> None:
    job = await place.job()
    await place.pod("a", by=job, group="old")
    await place.pod_status("a", phase="Succeeded")
    wire = place.wire()
    async with place.running(grouper(), transport=wire) as service:
        await place.settled(service)
    assert wire.writes == []


async def test_a_conflict_is_tried_again_at_once_and_silently(place: ServiceCluster) -> None:
    """workloads:T-33."""
    job = await place.job(labels={"new": "x"})
    name = f"pg-j-{job['metadata']['uid']}"
    await place.group(name)
    await place.pod("a", by=job)
    conflicts = [refusal(409, "Conflict")]

    def fault(request: Request) -> Response | None:
        return conflicts.pop() if conflicts and "/podgroups/" in request.path and request.method == "PATCH" else None

    wire = place.wire()
    wire.fault = fault
    async with place.running(grouper(), transport=wire):
        await place.pods.wait_until(assigned("a"))
    assert not conflicts
    assert not await place.client.list_raw(resources.EVENTS, namespace="default")


async def test_a_group_that_came_before_ours_is_merged_silently(place: ServiceCluster) -> None:
    """workloads:T-35: the cache does not know the group yet."""
    job = await place.job(labels={"new": "x"})
    name = f"pg-j-{job['metadata']['uid']}"
    await place.pod("a", by=job)
    raced: list[str] = []

    class Raced(RecordingTransport):
        """The group of another writer appears a moment before ours."""

        async def send(self, request: Request) -> Response:
            if request.method == "POST" and request.path.endswith("/podgroups") and not raced:
                raced.append(request.path)
                await place.group(name, queue="theirs")
            return await super().send(request)

    async with place.running(grouper(), transport=place.wire(Raced)):
        await place.pods.wait_until(assigned("a"))
    assert raced
    (group,) = await place.raw_groups()
    assert (group["spec"]["queue"], group["spec"]["minMember"]) == ("theirs", 1)
    assert group["metadata"]["labels"] == {"new": "x"}
    assert not await place.client.list_raw(resources.EVENTS, namespace="default")


async def test_a_lost_answer_is_harmless(place: ServiceCluster) -> None:
    job = await place.job()
    await place.pod("a", by=job)
    lost = ["POST", "PATCH"]

    def fault(request: Request) -> Exception | None:
        if request.method in lost and "/events" not in request.path:
            lost.remove(request.method)
            return ConnectionLost("no answer")
        return None

    wire = place.wire()
    wire.fault_after = fault
    place.clock.speed = 1000.0
    async with place.running(grouper(), transport=wire):
        await place.pods.wait_until(assigned("a"))
    assert lost == []
    assert len(await place.raw_groups()) == 1


async def test_namespaces_can_be_chosen(place: ServiceCluster) -> None:
    """workloads:T-34."""
    for name, labels in (("ai", {"team": "ai", "more": "x"}), ("other", {"team": "other"})):
        await ensure_namespace(place.client, name)
        await place.client.patch(resources.NAMESPACES, name, {"metadata": {"labels": labels}})
    for namespace in ("ai", "other", "default"):
        await place.pod("a", namespace=namespace)
    async with place.running(grouper(namespace_label_selector=" team = ai ,nonsense")) as service:
        await place.groups.wait_until(lambda groups: len(groups) == 1)
        await place.settled(service)
    assert [group["metadata"]["namespace"] for group in await place.raw_groups()] == ["ai"]


async def test_a_namespace_has_a_default_queue(place: ServiceCluster) -> None:
    """access:default-queue: it holds for new groups, and an annotation of spaces says nothing."""
    for name, text in (("vision", "vision-queue"), ("other", " ")):
        await ensure_namespace(place.client, name)
        annotations = {names.DEFAULT_QUEUE_ANNOTATION: text}
        await place.client.patch(resources.NAMESPACES, name, {"metadata": {"annotations": annotations}})
        await place.pod("a", namespace=name)
    async with place.running(grouper()) as service:
        await place.groups.wait_until(lambda groups: len(groups) == 2)
        await place.settled(service)
    queues = {group["metadata"]["namespace"]: group["spec"]["queue"] for group in await place.raw_groups()}
    assert queues == {"vision": "vision-queue", "other": names.DEFAULT_QUEUE}


async def test_pods_can_be_chosen_by_label(place: ServiceCluster) -> None:
    await place.pod("a", labels={"ours": "yes"})
    await place.pod("b")
    async with place.running(grouper(pod_label_selector="ours=yes")) as service:
        await place.pods.wait_until(assigned("a"))
        await place.settled(service)
    assert len(await place.raw_groups()) == 1


async def test_defaults_of_kinds_come_from_a_config_map(place: ServiceCluster) -> None:
    """workloads:DF-12."""
    types = '[{"typeName": "Job", "group": "batch", "priorityName": "build", "preemptibility": "non-preemptible"}]'
    namespace = names.DEFAULT_NAMESPACE
    data = {"types": types, "other": "x"}
    await place.create(resources.CONFIG_MAPS, "defaults", namespace=namespace, data=data)
    job = await place.job()
    await place.pod("a", by=job)
    where = {
        "default_priorities_configmap_name": "defaults",
        "default_priorities_configmap_namespace": namespace,
    }
    async with place.running(grouper(**where)):
        await place.pods.wait_until(assigned("a"))
    (group,) = await place.raw_groups()
    assert (group["spec"]["priorityClassName"], group["spec"]["preemptibility"]) == ("build", "non-preemptible")


async def test_an_unreadable_group_is_reported(place: ServiceCluster) -> None:
    job = await place.job()
    name = f"pg-j-{job['metadata']['uid']}"
    await place.group(name, minMember=7)
    await place.pod("a", by=job)
    await place.pod("b")
    wire = place.wire()
    wire.reword = lambda request, body: body.replace(b'"minMember":7', b'"minMember":"many"')
    async with place.running(grouper(), transport=wire):
        message = await place.wait_for_warning("a", WARNING)
        await place.pods.wait_until(assigned("b"))
    assert "spec.minMember" in message
    assert "fix or delete this PodGroup" in message


async def test_a_pod_that_took_the_name_of_another_is_not_given_its_group(place: ServiceCluster) -> None:
    first = await place.pod("a")
    second: dict[str, Any] = {}

    async def swap() -> None:
        await place.client.delete(resources.PODS, "a", "default")
        second.update(await place.pod("a"))

    swapped: list[str] = []

    class Swapping(RecordingTransport):
        async def send(self, request: Request) -> Response:
            if request.method == "PATCH" and not swapped:
                swapped.append(request.path)
                await swap()
            return await super().send(request)

    wire = place.wire(Swapping)
    async with place.running(grouper(), transport=wire):
        await place.pods.wait_until(assigned("a"))
    assert group_of(place.pods, "a") != f"pg-a-{first['metadata']['uid']}"
    assert group_of(place.pods, "a") == f"pg-a-{second['metadata']['uid']}"


async def test_what_one_grouper_began_another_finishes(place: ServiceCluster) -> None:
    """A crash between the group and the pod: the same name is found again, and only the rest is written."""
    job = await place.job()
    await place.pod("a", by=job)
    dying = place.wire()
    dying.fault = lambda request: ConnectionLost("dead") if request.method == "PATCH" else None
    async with place.running(grouper(), transport=dying) as service:
        await place.groups.wait_until(lambda groups: len(groups) == 1)
        await place.settled(service)
    before = await place.raw_groups()
    wire = place.wire()
    async with place.running(grouper(), transport=wire):
        await place.pods.wait_until(assigned("a"))
    assert wire.writes == ["PATCH /api/v1/namespaces/default/pods/a"]
    assert await place.raw_groups() == before


async def test_a_pod_deleted_while_it_is_grouped_leaves_nothing_behind(place: ServiceCluster) -> None:
    await place.pod("a")

    class Crowded(RecordingTransport):
        async def send(self, request: Request) -> Response:
            if request.method != "PATCH":
                return await super().send(request)
            assert isinstance(service, PodGrouper)
            await place.client.delete(resources.PODS, "a", "default", grace_s=0)
            await service._pods.wait_until(lambda pods: "default/a" not in pods)
            return refusal(409, "Conflict")

    async with place.running(grouper(), transport=place.wire(Crowded)) as service:
        await place.pods.wait_until(lambda pods: not pods)
        await place.settled(service)
        assert "_failures" not in entry_counts(service)


PASSED_OVER = "InvalidWorkload"


async def test_a_skipped_value_is_reported_once_per_group(place: ServiceCluster) -> None:
    """ADR 27: field, value, and what is used instead; on the PodGroup and on one of its pods."""
    job = await place.job(labels={"priorityClassName": "ghost"}, annotations={"kai.scheduler/preemption-delay": "soon"})
    for name in ("a", "b", "c"):
        await place.pod(name, by=job)
    async with place.running(grouper()) as service:
        await place.pods.wait_until(assigned("a", "b", "c"))
        text = await place.wait_for_warning(group_of(place.pods, "a"), PASSED_OVER)
        await place.settled(service)
    assert "Job/default/j: metadata.labels[priorityClassName]: priority class 'ghost' does not exist; " in text
    assert "class 'train' is used" in text
    assert "metadata.annotations[kai.scheduler/preemption-delay]: 'soon' is not a duration" in text
    assert "no delay is used" in text
    told = [event for event in place.events.values() if event["reason"] == PASSED_OVER]
    assert sorted(event["involvedObject"]["kind"] for event in told) == ["Pod", "PodGroup"]
    assert {(event["type"], event.get("count", 1)) for event in told} == {("Warning", 1)}
