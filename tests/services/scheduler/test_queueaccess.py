"""Queues that a namespace may not use, on an API server: statuses, changes of lists, labels of the namespace."""

from __future__ import annotations

from pykai.api import names
from pykai.kube import resources
from tests.services.scheduler.schedulercluster import SchedulerCluster, scheduler_cluster

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
            await annotate(lab, "theirs", names=None, labels="team=red")
            await lab.client.patch(resources.NAMESPACES, "default", {"metadata": {"labels": {"team": "red"}}})
            await lab.pods.wait_until(lambda store: any(each.spec.node_name for each in store.values()), 10)
