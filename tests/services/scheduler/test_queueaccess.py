"""Queues that a namespace may not use, on an API server: statuses, changes of lists, labels of the namespace."""

from __future__ import annotations

from pykai.api import names
from pykai.kube import resources
from tests.services.scheduler.schedulercluster import SchedulerCluster, scheduler_cluster
from tests.services.scheduler.test_forged_sharing import placed_pod

DENIED = "Namespace 'default' may not use queue 'theirs'"


async def annotate(lab: SchedulerCluster, queue: str, **texts: str | None) -> None:
    """Set or remove the lists of a queue."""
    keys = {"names": names.ALLOWED_NAMESPACES_ANNOTATION, "labels": names.ALLOWED_NAMESPACE_SELECTOR_ANNOTATION}
    annotations = {keys[each]: text for each, text in texts.items()}
    await lab.client.patch(resources.QUEUES, queue, {"metadata": {"annotations": annotations}})


async def test_a_group_in_a_queue_of_others_waits_with_the_reason_until_it_is_allowed() -> None:
    """access:engine, access:lists"""
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=4)
        await lab.queue("theirs", parent="department")
        await annotate(lab, "theirs", names="vision")
        await lab.gang("g", pods=1, gpu=1, queue="theirs")
        async with lab.scheduler():
            why = await lab.wait_for_event("QueueAccessDenied", "g-0")
            group_why = await lab.wait_for_event("QueueAccessDenied", "g")
            await lab.pods.wait_until(lambda _: lab.condition("g-0")[0] == "False", 10)
            status, reason, message = lab.condition("g-0")
            # Not Unschedulable, on which autoscalers add nodes.
            assert (status, reason) == ("False", "QueueAccessDenied")
            assert DENIED in message
            assert message == why == group_why
            await lab.groups.wait_until(
                lambda store: any(each.status.scheduling_conditions for each in store.values()), 10
            )
            (condition,) = next(iter(lab.groups.values())).status.scheduling_conditions
            assert [each.reason for each in condition.reasons] == ["QueueAccessDenied"]
            await annotate(lab, "theirs", names=None, labels="floor=third")
            await lab.client.patch(resources.NAMESPACES, "default", {"metadata": {"labels": {"floor": "third"}}})
            await lab.pods.wait_until(lambda store: any(each.spec.node_name for each in store.values()), 10)
            # Namespaces of a real server outlive the test.
            await lab.client.patch(resources.NAMESPACES, "default", {"metadata": {"labels": {"floor": None}}})


async def test_pods_stay_charged_where_their_group_moves_to_a_queue_of_others() -> None:
    """access:charges: its own queue stays full, and that of others is not charged."""
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=8)
        await lab.queue("small", parent="department", quota=2, limit=2)
        await lab.queue("theirs", parent="department", quota=2, limit=2)
        await annotate(lab, "theirs", names="vision")
        await lab.group("first", queue="small")
        await lab.pod("first-0", "first", gpu=2)
        async with lab.scheduler():
            await lab.until_bound("first", 1)
            await lab.client.patch(resources.POD_GROUPS, "first", {"spec": {"queue": "theirs"}}, "default")
            await lab.gang("more", pods=1, gpu=1, queue="small")
            await lab.pods.wait_until(lambda _: bool(lab.placed("more")) or lab.condition("more-0")[0] == "False", 10)
            assert not lab.placed("more")
            assert "limit" in lab.condition("more-0")[2]
            # Where it is allowed there, it is charged there.
            await annotate(lab, "theirs", names="vision,default")
            await lab.until_bound("more", 1)


async def test_a_pod_that_its_user_placed_is_not_charged_to_a_queue_of_others() -> None:
    """access:charges: until it may use that queue, it is charged to the default queue."""
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=8)
        await lab.queue(names.DEFAULT_QUEUE, parent="department", quota=2, limit=2)
        await lab.queue("theirs", parent="department")
        await annotate(lab, "theirs", names="vision")
        skips = {names.SKIP_POD_GROUPER_ANNOTATION: "true"}
        await placed_pod(lab, "taken", labels={names.QUEUE_LABEL: "theirs"}, annotations=skips, gpu=2)
        await lab.gang("more", pods=1, gpu=1, queue=names.DEFAULT_QUEUE)
        async with lab.scheduler():
            await lab.pods.wait_until(lambda _: bool(lab.placed("more")) or lab.condition("more-0")[0] == "False", 10)
            assert not lab.placed("more")
            assert "limit" in lab.condition("more-0")[2]
            await annotate(lab, "theirs", names="vision,default")
            await lab.until_bound("more", 1)
