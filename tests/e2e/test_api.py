"""api/crds/podgroup, its reasons, and api/events (operations:17); what is refused is in tests/webhooks."""

from __future__ import annotations

import pytest

from tests.e2e.endtoend import EndToEnd, limited
from tests.e2e.test_allocate_min_subgroups import not_ready


async def test_the_reason_of_a_group_beyond_the_quota(e2e: EndToEnd) -> None:
    (queue,) = await e2e.family("reasons", of={"queue": {"gpu": limited(-1, quota=0)}})
    pod = await e2e.pod(queue, gpus=1, priorityClassName="e2e-high-held")
    await e2e.unschedulable(pod)
    await e2e.group_reason(e2e.group_of(pod), "NonPreemptibleOverQuota")


@pytest.mark.parametrize("priority", ["e2e-middle", "e2e-high-held"])
async def test_the_reason_of_a_group_beyond_the_limit(e2e: EndToEnd, priority: str) -> None:
    """Whether it can be preempted or not."""
    (queue,) = await e2e.family("reasons", of={"queue": {"gpu": limited(0, quota=-1)}})
    pod = await e2e.pod(queue, gpus=1, priorityClassName=priority)
    await e2e.unschedulable(pod)
    await e2e.group_reason(e2e.group_of(pod), "OverLimit")


async def test_a_group_with_too_few_pods_is_not_ready(e2e: EndToEnd) -> None:
    """operations:E-25."""
    (queue,) = await e2e.family("events")
    await e2e.gang("short", queue, 1, minimum=2)
    await not_ready(e2e, "short")
