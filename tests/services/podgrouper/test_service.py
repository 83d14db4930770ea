"""The pod grouper at work on an API server (workloads:2.1)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from pykai.api.core import Pod
from pykai.api.scheduling import PodGroup, SubGroup
from pykai.kube import resources
from pykai.kube.errors import ConnectionLost
from pykai.kube.runtime import Runtime
from pykai.kube.store import Store
from pykai.kube.transport import Request, Response
from pykai.podgrouper.kinds import GROUPERS
from pykai.podgrouper.kinds.default import group_default
from pykai.podgrouper.metadata import GroupingError, Metadata, ObjectName, Owner, Readers, Settings
from pykai.podgrouper.options import PodGrouperOptions
from pykai.podgrouper.service import PodGrouper, make_podgrouper
from tests.services.workplace import Wire, Workplace, refusal, workplace

QUEUE = "kai.scheduler/queue"
GROUP = "pod-group-name"


@pytest.fixture
async def place() -> AsyncIterator[Workplace]:
    async with workplace() as found:
        await found.classes()
        yield found


def grouper(**options: Any) -> Any:
    def make(runtime: Runtime) -> PodGrouper:
        return make_podgrouper(runtime, PodGrouperOptions(**options), GROUPERS)

    return make


def assigned(*pods: str) -> Any:
    def holds(store: Store[Pod]) -> bool:
        found = [store.get(f"default/{name}") for name in pods]
        return all(pod is not None and GROUP in pod.metadata.annotations for pod in found)

    return holds


async def test_a_pod_gets_its_group(place: Workplace) -> None:
    created = await place.pod("a", labels={QUEUE: "team"})
    async with place.running(grouper()):
        await place.pods.until(assigned("a"))
    (group,) = await place.raw_groups()
    name = f"pg-a-{created['metadata']['uid']}"
    assert (group["metadata"]["name"], group["spec"]["queue"]) == (name, "team")
    assert (await place.raw_pod("a"))["metadata"]["annotations"] == {GROUP: name}


async def test_what_is_skipped_costs_nothing(place: Workplace) -> None:
    """workloads:T-20, T-23, GR-1."""
    skip = {"kai.scheduler/skip-podgrouper": "true"}
    job = await place.job()
    await place.pod("skipped", by=job, annotations=skip)
    await place.pod("external", group="theirs")
    await place.pod("foreign", scheduler="default-scheduler")
    wire = Wire(place.server.transport())
    async with place.running(grouper(), transport=wire) as service:
        await place.settled(service)
    async with place.running(grouper(shared_cache=True), transport=wire) as service:
        await place.settled(service)
    assert wire.writes == []


async def test_only_the_word_true_skips(place: Workplace) -> None:
    """workloads:T-21."""
    await place.pod("a", annotations={"kai.scheduler/skip-podgrouper": "false"})
    async with place.running(grouper()):
        await place.pods.until(assigned("a"))


@pytest.mark.parametrize("which", ["CronJob", "Job"])
async def test_an_owner_can_opt_out(place: Workplace, which: str) -> None:
    """workloads:T-22."""
    skip = {"kai.scheduler/skip-podgrouper": "true"}
    spec = {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": {"spec": {"containers": []}}}}}
    cron = await _unchecked(place, "CronJob", "c", skip if which == "CronJob" else {}, spec)
    job = await place.job("j", annotations=skip if which == "Job" else {}, owners=[_reference(cron)])
    await place.pod("a", by=job)
    wire = Wire(place.server.transport())
    async with place.running(grouper(), transport=wire) as service:
        await place.settled(service)
    assert wire.writes == []


async def test_an_owned_pod_is_grouped_whatever_it_names(place: Workplace) -> None:
    """workloads:T-23, EX-2."""
    job = await place.job()
    await place.pod("a", by=job, group="mine")
    name = f"pg-j-{job['metadata']['uid']}"
    async with place.running(grouper()):
        await place.pods.until(lambda pods: _group_of(pods, "a") == name)


async def test_a_job_of_many_pods_costs_one_create_and_no_reads(place: Workplace) -> None:
    job = await place.job()
    pods = [f"p{number}" for number in range(40)]
    for name in pods:
        await place.pod(name, by=job)

    class Slow(Wire):
        """Takes as long as a network does, so that workers meet."""

        async def send(self, request: Request) -> Response:
            await asyncio.sleep(0)
            return await super().send(request)

    wire = Slow(place.server.transport())
    async with place.running(grouper(), transport=wire):
        await place.pods.until(assigned(*pods))
    assert sum(write.startswith("POST") for write in wire.writes) == 1
    assert sum("/pods/" in write for write in wire.writes) == 40
    assert len(wire.writes) == 41
    assert not [read for read in wire.reads if read.count("/") > 6]
    assert len(await place.raw_groups()) == 1


async def test_a_new_grouper_writes_nothing_twice(place: Workplace) -> None:
    job = await place.job(annotations={"kai.scheduler/batch-min-member": "2"})
    for name in ("a", "b"):
        await place.pod(name, by=job)
    await place.pod("alone")
    async with place.running(grouper()):
        await place.pods.until(assigned("a", "b", "alone"))
    before = await place.raw_groups()
    wire = Wire(place.server.transport())
    async with place.running(grouper(), transport=wire) as service:
        await place.settled(service)
    assert wire.writes == []
    assert await place.raw_groups() == before


async def test_changes_that_mean_nothing_here_are_not_looked_at(place: Workplace) -> None:
    job = await place.job()
    await place.pod("a", by=job)
    wire = Wire(place.server.transport())
    async with place.running(grouper(), transport=wire) as service:
        await place.pods.until(assigned("a"))
        await place.settled(service)
        written = len(wire.writes)
        await place.bind("a")
        await place.pod_status("a", phase="Running")
        await place.pods.until(lambda pods: _phase_of(pods, "a") == "Running")
    assert len(wire.writes) == written


async def test_an_existing_group_keeps_what_is_sticky(place: Workplace) -> None:
    """workloads:T-25, T-26."""
    job = await place.job(labels={QUEUE: "q2"})
    name = f"pg-j-{job['metadata']['uid']}"
    await place.group(name, queue="q1", markUnschedulable=False, schedulingBackoff=1, minMember=5)
    await place.pod("a", by=job, labels={"kai.scheduler/node-pool": "pool-a"})
    async with place.running(grouper()):
        await place.pods.until(assigned("a"))
    (group,) = await place.raw_groups()
    spec = group["spec"]
    assert (spec["queue"], spec["markUnschedulable"], spec["schedulingBackoff"], spec["minMember"]) == (
        "q1",
        False,
        1,
        1,
    )
    assert group["metadata"]["labels"] == {QUEUE: "q2"}


async def test_a_new_group_takes_the_node_pool_of_its_pod(place: Workplace) -> None:
    job = await place.job()
    await place.pod("a", by=job, labels={"kai.scheduler/node-pool": "pool-a"})
    async with place.running(grouper()):
        await place.pods.until(assigned("a"))
    (group,) = await place.raw_groups()
    assert group["metadata"]["labels"]["kai.scheduler/node-pool"] == "pool-a"


async def test_a_label_that_the_owner_lost_stays(place: Workplace) -> None:
    """workloads:T-28; and a change of an owner is applied without an event of a pod."""
    job = await place.job(labels={QUEUE: "q", "gone": "x"})
    await place.pod("a", by=job)
    async with place.running(grouper()):
        await place.pods.until(assigned("a"))
        patch = {"metadata": {"labels": {"gone": None, "new": "y"}}}
        await place.client.patch(resources.JOBS, "j", patch, "default")
        await place.groups.until(lambda groups: all("new" in group.metadata.labels for group in groups.values()))
    (group,) = await place.raw_groups()
    assert group["metadata"]["labels"] == {QUEUE: "q", "gone": "x", "new": "y"}


async def test_a_change_of_a_deployment_reaches_pods_through_replica_sets(place: Workplace) -> None:
    top = await _unchecked(place, "Deployment", "d")
    middle = await _unchecked(place, "ReplicaSet", "r", owners=[_reference(top)])
    await place.pod("a", by=middle)
    async with place.running(grouper()):
        await place.pods.until(assigned("a"))
        patch = {"metadata": {"labels": {"team": "y"}}}
        await place.client.patch(resources.DEPLOYMENTS, "d", patch, "default")
        await place.groups.until(
            lambda groups: all(group.metadata.labels == {"team": "y"} for group in groups.values())
        )


async def test_a_deleted_group_of_owned_pods_comes_back(place: Workplace) -> None:
    job = await place.job()
    await place.pod("a", by=job)
    name = f"pg-j-{job['metadata']['uid']}"
    async with place.running(grouper()):
        await place.pods.until(assigned("a"))
        place.clock.speed = 100.0
        old = await place.client.get(resources.POD_GROUPS, name, "default", into=PodGroup)
        await place.client.delete(resources.POD_GROUPS, name, "default")
        await place.groups.until(lambda groups: _is_new(groups.get(f"default/{name}"), old))


async def test_a_group_that_somebody_changed_is_put_right(place: Workplace) -> None:
    job = await place.job()
    await place.pod("a", by=job)
    name = f"pg-j-{job['metadata']['uid']}"
    async with place.running(grouper()):
        await place.pods.until(assigned("a"))
        await place.client.patch(resources.POD_GROUPS, name, {"spec": {"minMember": 9}}, "default")
        await place.groups.until(lambda groups: groups.values()[0].spec.min_member == 9)  # type: ignore[index]
        await place.groups.until(lambda groups: groups.values()[0].spec.min_member == 1)  # type: ignore[index]


async def test_an_owner_of_another_uid_is_told_and_tried_again(place: Workplace) -> None:
    """workloads:T-29."""
    # Kubernetes deletes such a pod sooner or later; here it is to stay.
    await place.server.garbage.stop()
    job = await place.job()
    stranger = {**job, "metadata": {**job["metadata"], "uid": "other"}}
    await place.pod("a", by=stranger)
    async with place.running(grouper()):
        message = await place.warned("a", "PodGrouperWarning")
        await place.client.patch(resources.PODS, "a", {"metadata": {"ownerReferences": [_reference(job)]}}, "default")
        await place.pods.until(assigned("a"))
    assert "Owner resource with uid other not found" in message


async def test_an_unreadable_annotation_of_a_job_is_told_and_others_are_served(place: Workplace) -> None:
    """workloads:T-62, GR-6."""
    bad = await place.job("bad", annotations={"kai.scheduler/batch-min-member": "many"})
    await place.pod("a", by=bad)
    await place.pod("b")
    async with place.running(grouper()):
        message = await place.warned("a", "PodGrouperWarning")
        await place.pods.until(assigned("b"))
    assert "invalid min-member annotation value: 'many'" in message
    assert GROUP not in (await place.raw_pod("a"))["metadata"].get("annotations", {})


async def test_no_event_about_a_pod_that_is_being_deleted(place: Workplace) -> None:
    """workloads:2.1, Do better."""
    bad = await place.job("bad", annotations={"kai.scheduler/batch-min-member": "many"})
    await place.pod("a", by=bad)
    await place.bind("a")
    await place.client.delete(resources.PODS, "a", "default")
    assert "deletionTimestamp" in (await place.raw_pod("a"))["metadata"]
    async with place.running(grouper()) as service:
        await place.settled(service)
    assert not await place.client.list_raw(resources.EVENTS)


async def test_a_finished_pod_stays_where_it_was(place: Workplace) -> None:
    job = await place.job()
    await place.pod("a", by=job, group="old")
    await place.pod_status("a", phase="Succeeded")
    wire = Wire(place.server.transport())
    async with place.running(grouper(), transport=wire) as service:
        await place.settled(service)
    assert wire.writes == []


async def test_an_unknown_kind_is_read_once_and_gets_the_default_group(place: Workplace) -> None:
    owner = await _custom(place, "Sweep")
    for name in ("a", "b", "c"):
        await place.pod(name, by=owner)
    wire = Wire(place.server.transport())
    async with place.running(grouper(), transport=wire):
        await place.pods.until(assigned("a", "b", "c"))
    assert [group["metadata"]["name"] for group in await place.raw_groups()] == [f"pg-s-{owner['metadata']['uid']}"]
    assert sum("/sweeps/s" in read for read in wire.reads) == 1


async def test_a_kind_that_we_may_not_read_ends_the_climb(place: Workplace) -> None:
    """workloads:T-30."""
    owner = await _custom(place, "Sweep")
    created = await place.pod("a", by=owner)
    wire = Wire(place.server.transport())
    wire.fault = lambda request: refusal(403, "Forbidden") if "/sweeps/" in request.path else None
    async with place.running(grouper(), transport=wire):
        await place.pods.until(assigned("a"))
    assert _group_of(place.pods, "a") == f"pg-a-{created['metadata']['uid']}"


async def test_a_kind_that_does_not_exist_is_told(place: Workplace) -> None:
    await place.server.garbage.stop()
    ghost = {"apiVersion": "no.such/v1", "kind": "Ghost", "metadata": {"name": "g", "uid": "u"}}
    await place.pod("a", by=ghost)
    async with place.running(grouper()):
        message = await place.warned("a", "PodGrouperWarning")
    assert "failed to find Ghost: default/g, uid: u" in message


async def test_a_conflict_is_tried_again_at_once_and_silently(place: Workplace) -> None:
    """workloads:T-33."""
    job = await place.job(labels={"new": "x"})
    name = f"pg-j-{job['metadata']['uid']}"
    await place.group(name)
    await place.pod("a", by=job)
    conflicts = [refusal(409, "Conflict")]

    def fault(request: Request) -> Response | None:
        return conflicts.pop() if conflicts and "/podgroups/" in request.path and request.method == "PATCH" else None

    wire = Wire(place.server.transport())
    wire.fault = fault
    async with place.running(grouper(), transport=wire):
        await place.pods.until(assigned("a"))
    assert not conflicts
    assert not await place.client.list_raw(resources.EVENTS)


async def test_a_group_that_came_before_ours_is_merged_silently(place: Workplace) -> None:
    """workloads:T-35: the cache does not know the group yet."""
    job = await place.job(labels={"new": "x"})
    name = f"pg-j-{job['metadata']['uid']}"
    await place.pod("a", by=job)
    wire = Wire(place.server.transport())
    raced = False

    def fault(request: Request) -> Response | None:
        nonlocal raced
        if request.method == "POST" and request.path.endswith("/podgroups") and not raced:
            raced = True
            meta = {"name": name, "namespace": "default", "uid": "theirs", "resourceVersion": "1"}
            group = {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": meta, "spec": {}}
            place.load({**group, "spec": {"queue": "theirs"}})
        return None

    wire.fault = fault
    async with place.running(grouper(), transport=wire):
        await place.pods.until(assigned("a"))
    assert raced
    (group,) = await place.raw_groups()
    assert (group["spec"]["queue"], group["spec"]["minMember"]) == ("theirs", 1)
    assert group["metadata"]["labels"] == {"new": "x"}
    assert not await place.client.list_raw(resources.EVENTS)


async def test_an_answer_that_was_lost_is_no_harm(place: Workplace) -> None:
    job = await place.job()
    await place.pod("a", by=job)
    lost = ["POST", "PATCH"]

    def fault(request: Request) -> Exception | None:
        if request.method in lost and "/events" not in request.path:
            lost.remove(request.method)
            return ConnectionLost("no answer")
        return None

    wire = Wire(place.server.transport())
    wire.fault_after = fault
    place.clock.speed = 1000.0
    async with place.running(grouper(), transport=wire):
        await place.pods.until(assigned("a"))
    assert lost == []
    assert len(await place.raw_groups()) == 1


async def test_namespaces_can_be_chosen(place: Workplace) -> None:
    """workloads:T-34."""
    await place.create(resources.NAMESPACES, "ai", labels={"team": "ai", "more": "x"})
    await place.create(resources.NAMESPACES, "other", labels={"team": "other"})
    for namespace in ("ai", "other", "default"):
        await place.pod("a", namespace=namespace)
    async with place.running(grouper(namespace_label_selector=" team = ai ,nonsense")) as service:
        await place.groups.until(lambda groups: len(groups) == 1)
        await place.settled(service)
    assert [group["metadata"]["namespace"] for group in await place.raw_groups()] == ["ai"]


async def test_pods_can_be_chosen_by_label(place: Workplace) -> None:
    await place.pod("a", labels={"ours": "yes"})
    await place.pod("b")
    async with place.running(grouper(pod_label_selector="ours=yes")) as service:
        await place.pods.until(assigned("a"))
        await place.settled(service)
    assert len(await place.raw_groups()) == 1


async def test_defaults_of_kinds_come_from_a_config_map(place: Workplace) -> None:
    """workloads:DF-12."""
    types = '[{"typeName": "Job", "group": "batch", "priorityName": "build", "preemptibility": "non-preemptible"}]'
    await place.create(resources.CONFIG_MAPS, "defaults", data={"types": types, "other": "x"})
    job = await place.job()
    await place.pod("a", by=job)
    where = {
        "default_priorities_configmap_name": "defaults",
        "default_priorities_configmap_namespace": "default",
    }
    async with place.running(grouper(**where)):
        await place.pods.until(assigned("a"))
    (group,) = await place.raw_groups()
    assert (group["spec"]["priorityClassName"], group["spec"]["preemptibility"]) == ("build", "non-preemptible")


async def test_the_oldest_pod_speaks_for_its_group(place: Workplace) -> None:
    """workloads:4, Do better: pods that differ do not make their group flicker."""
    job = await place.job()
    wire = Wire(place.server.transport())
    async with place.running(grouper(), transport=wire) as service:
        await place.pod("a", by=job, labels={QUEUE: "x", "priorityClassName": "build"})
        await place.pods.until(assigned("a"))
        await place.pod("b", by=job, labels={"priorityClassName": "inference"})
        await place.pods.until(assigned("b"))
        await place.settled(service)
        assert (await place.raw_groups())[0]["spec"]["priorityClassName"] == "build"
        assert not [write for write in wire.writes if "/podgroups/" in write]
        await place.client.delete(resources.PODS, "a", "default")
        await place.pods.until(lambda pods: "default/a" not in pods)
        await place.client.patch(resources.PODS, "b", {"metadata": {"labels": {"touched": "x"}}}, "default")
        await place.groups.until(lambda groups: groups.values()[0].spec.priority_class_name == "inference")  # type: ignore[index]


async def test_the_queue_follows_only_while_nothing_runs(place: Workplace) -> None:
    """workloads:4, Do better."""
    job = await place.job(labels={QUEUE: "q1"})
    await place.pod("a", by=job)
    async with place.running(grouper(follow_queue=True)) as service:
        await place.pods.until(assigned("a"))
        await place.client.patch(resources.JOBS, "j", {"metadata": {"labels": {QUEUE: "q2"}}}, "default")
        await place.groups.until(lambda groups: groups.values()[0].spec.queue == "q2")  # type: ignore[index]
        await place.bind("a")
        await place.pods.until(lambda pods: bool(pods.values()[0].spec.node_name))  # type: ignore[index]
        await place.client.patch(resources.JOBS, "j", {"metadata": {"labels": {QUEUE: "q3", "x": "y"}}}, "default")
        await place.groups.until(lambda groups: "x" in groups.values()[0].metadata.labels)  # type: ignore[index]
        await place.settled(service)
    assert (await place.raw_groups())[0]["spec"]["queue"] == "q2"


async def test_a_group_that_cannot_be_read_is_told(place: Workplace) -> None:
    job = await place.job()
    name = f"pg-j-{job['metadata']['uid']}"
    meta = {"name": name, "namespace": "default", "uid": "x", "resourceVersion": "1"}
    group = {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": meta}
    place.load({**group, "spec": {"minMember": "many"}})
    await place.pod("a", by=job)
    await place.pod("b")
    async with place.running(grouper()):
        message = await place.warned("a", "PodGrouperWarning")
        await place.pods.until(assigned("b"))
    assert "spec.minMember" in message
    assert "mend or delete this PodGroup" in message


async def test_a_pod_that_took_the_name_of_another_is_not_given_its_group(place: Workplace) -> None:
    first = await place.pod("a")
    second: dict[str, Any] = {}
    wire = Wire(place.server.transport())

    async def swap() -> None:
        await place.client.delete(resources.PODS, "a", "default")
        second.update(await place.pod("a"))

    swapped: list[str] = []

    class Swapping(Wire):
        async def send(self, request: Request) -> Response:
            if request.method == "PATCH" and not swapped:
                swapped.append(request.path)
                await swap()
            return await super().send(request)

    wire = Swapping(place.server.transport())
    async with place.running(grouper(), transport=wire):
        await place.pods.until(lambda pods: _group_of(pods, "a") not in ("", f"pg-a-{first['metadata']['uid']}"))
    assert _group_of(place.pods, "a") == f"pg-a-{second['metadata']['uid']}"


class TestOtherGroupers:
    """Kinds that third parties add."""

    @staticmethod
    def with_grouper(group: Any) -> Any:
        def make(runtime: Runtime) -> PodGrouper:
            return make_podgrouper(runtime, PodGrouperOptions(), {**GROUPERS, ("batch", "v1", "Job"): group})

        return make

    async def test_a_subgroup_is_written_on_the_pod_that_is_asked_about_alone(self, place: Workplace) -> None:
        """workloads:T-32, PP-1."""

        def group(top: Owner, pod: Pod, owners: tuple[Owner, ...], settings: Settings, readers: Readers) -> Metadata:
            meta = group_default(top, pod, owners, settings, readers)
            parts = (SubGroup(name="a", min_member=1), SubGroup(name="b", min_member=1))
            return replace(meta, sub_groups=parts, pod_sub_group=pod.metadata.name[0])

        job = await place.job()
        for name in ("a0", "b0", "b1"):
            await place.pod(name, by=job)
        async with place.running(self.with_grouper(group)):
            await place.pods.until(assigned("a0", "b0", "b1"))
        labels = [(await place.raw_pod(name))["metadata"]["labels"] for name in ("a0", "b0", "b1")]
        assert [found["kai.scheduler/subgroup-name"] for found in labels] == ["a", "b", "b"]

    async def test_an_object_is_read_for_a_grouper_that_wants_it(self, place: Workplace) -> None:
        seen: list[Mapping[str, Any] | None] = []

        def group(top: Owner, pod: Pod, owners: tuple[Owner, ...], settings: Settings, readers: Readers) -> Metadata:
            for name in ("default", "nobody"):
                seen.append(readers.object(ObjectName("v1", "ServiceAccount", "default", name)))
            assert top.body["spec"]["template"], "a kind of a third party is read in full"
            return group_default(top, pod, owners, settings, readers)

        job = await place.job()
        await place.pod("a", by=job)
        async with place.running(self.with_grouper(group)):
            await place.pods.until(assigned("a"))
        assert seen[-1] is None
        assert seen[-2] is not None
        assert seen[-2]["metadata"]["name"] == "default"

    async def test_a_grouper_that_fails_is_told_and_others_are_served(self, place: Workplace) -> None:
        def group(top: Owner, pod: Pod, owners: tuple[Owner, ...], settings: Settings, readers: Readers) -> Metadata:
            raise ZeroDivisionError("oh")

        job = await place.job()
        await place.pod("a", by=job)
        await place.pod("b")
        async with place.running(self.with_grouper(group)):
            assert "the grouper of Job failed: oh" in await place.warned("a", "PodGrouperWarning")
            await place.pods.until(assigned("b"))

    async def test_a_refusal_is_tried_again(self, place: Workplace) -> None:
        asked: list[str] = []

        def group(top: Owner, pod: Pod, owners: tuple[Owner, ...], settings: Settings, readers: Readers) -> Metadata:
            asked.append(pod.metadata.name)
            if len(asked) < 3:
                raise GroupingError("not now")
            return group_default(top, pod, owners, settings, readers)

        job = await place.job()
        await place.pod("a", by=job)
        place.clock.speed = 1000.0
        async with place.running(self.with_grouper(group)):
            await place.pods.until(assigned("a"))
        assert len(asked) >= 3


def _group_of(pods: Store[Pod], name: str) -> str:
    found = pods.get(f"default/{name}")
    return found.metadata.annotations.get(GROUP, "") if found is not None else ""


def _phase_of(pods: Store[Pod], name: str) -> str:
    found = pods.get(f"default/{name}")
    return found.status.phase if found is not None else ""


def _is_new(found: PodGroup | None, old: PodGroup) -> bool:
    return found is not None and found.metadata.uid != old.metadata.uid


def _reference(owner: dict[str, Any]) -> dict[str, Any]:
    meta = owner["metadata"]
    return {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}


async def _unchecked(
    place: Workplace,
    kind: str,
    name: str,
    annotations: dict[str, str] | None = None,
    spec: dict[str, Any] | None = None,
    owners: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """A workload as its controller would leave it, put straight into storage."""
    api = "batch/v1" if kind == "CronJob" else "apps/v1"
    meta = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "annotations": annotations or {},
        "ownerReferences": owners or [],
    }
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "m", "image": "x"}]}}
    usual = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template}
    made = {"apiVersion": api, "kind": kind, "metadata": meta, "spec": spec or usual}
    place.load(made)
    return made


async def _custom(place: Workplace, kind: str) -> dict[str, Any]:
    """A kind that nobody knows, and an object of it."""
    plural = f"{kind.lower()}s"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    spec = {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": plural, "kind": kind, "singular": kind.lower()},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
    }
    await place.create(resources.CUSTOM_RESOURCE_DEFINITIONS, f"{plural}.example.com", spec=spec)
    resource = resources.Resource("example.com", "v1", plural, kind, True)
    return await place.create(resource, "s")


async def test_a_deleted_job_takes_its_pods_and_group_along_without_a_word(place: Workplace) -> None:
    job = await place.job()
    for name in ("a", "b"):
        await place.pod(name, by=job)
    async with place.running(grouper()):
        await place.pods.until(assigned("a", "b"))
        await place.client.delete(resources.JOBS, "j", "default", propagation="Background")
        await place.pods.until(lambda pods: len(pods) == 0)
        await place.groups.until(lambda groups: len(groups) == 0)
    assert not await place.client.list_raw(resources.EVENTS)


async def test_what_one_grouper_began_another_finishes(place: Workplace) -> None:
    """A crash between the group and the pod: the same name is found again, and only the rest is written."""
    job = await place.job()
    await place.pod("a", by=job)
    dying = Wire(place.server.transport())
    dying.fault = lambda request: ConnectionLost("dead") if request.method == "PATCH" else None
    async with place.running(grouper(), transport=dying) as service:
        await place.groups.until(lambda groups: len(groups) == 1)
        await place.settled(service)
    before = await place.raw_groups()
    wire = Wire(place.server.transport())
    async with place.running(grouper(), transport=wire):
        await place.pods.until(assigned("a"))
    assert wire.writes == ["PATCH /api/v1/namespaces/default/pods/a"]
    assert await place.raw_groups() == before


async def test_a_gang_that_is_partly_done_waits_for_the_rest_only(place: Workplace) -> None:
    """One pod has succeeded and another one comes again: the group of two must be able to start with one."""
    job = await place.job(completions=2, annotations={"kai.scheduler/batch-min-member": "2"})
    await place.pod("again", by=job)
    async with place.running(grouper()):
        await place.pods.until(assigned("again"))
        await place.groups.until(lambda store: [group.spec.min_member for group in store.values()] == [2])
        done = {"status": {"succeeded": 1}}
        await place.client.patch(resources.JOBS, job["metadata"]["name"], done, "default", subresource="status")
        await place.groups.until(lambda store: [group.spec.min_member for group in store.values()] == [1], 10)
