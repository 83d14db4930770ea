"""Which PodGroups are written, and by one task at a time."""

from __future__ import annotations

import asyncio

import pytest

from pykai.api import names
from pykai.api.scheduling import PodGroup
from pykai.kube.resources import POD_GROUPS
from pykai.podgrouper.groupwriter import PodGroupWriter
from pykai.podgrouper.metadata import GroupingError, GroupingSettings
from pykai.podgrouper.writes import new_group
from tests.podgrouper.test_writes import answer, stored
from tests.webhooks.test_server import runtime_of_nothing


def a_writer(*, scheduled: bool | None = None) -> PodGroupWriter:
    runtime = runtime_of_nothing()
    groups = runtime.caches.store(POD_GROUPS, PodGroup)
    return PodGroupWriter(
        runtime.client,
        groups,
        GroupingSettings(),
        follow_queue=scheduled is not None,
        held=lambda key: {"default": 1} if scheduled else {},
        classes=dict,
    )


@pytest.mark.parametrize(("scheduled", "queue"), [(None, None), (True, None), (False, "q2")])
def test_the_queue_follows_the_workload_while_no_pod_has_a_node(scheduled: bool | None, queue: str | None) -> None:
    changed = a_writer(scheduled=scheduled)._patch(stored(answer()), answer(queue="q2")) or {}
    assert changed.get("spec", {}).get("queue") == queue


def test_a_group_of_another_workload_is_not_patched() -> None:
    """ADR 34."""
    with pytest.raises(GroupingError, match="give one of them another name"):
        a_writer()._patch(stored(answer()), answer(annotations={names.MADE_FROM_ANNOTATION: "workload/other"}))


def test_an_answer_is_known_before_the_watch_shows_it() -> None:
    writer = a_writer()
    document = new_group(answer())
    document["metadata"]["resourceVersion"] = "1"
    writer._assume(document)
    assert [group.spec.queue for group in writer._groups.values()] == ["q1"]
    writer._assume({"spec": {"minMember": "many"}})
    assert len(list(writer._groups.values())) == 1


async def test_a_group_is_written_by_one_task_at_a_time() -> None:
    writer, order = a_writer(), list[str]()

    async def write(name: str) -> None:
        async with writer._locked("ns/g"):
            order.append(f"{name} begins")
            await asyncio.sleep(0)
            order.append(f"{name} ends")

    await asyncio.gather(*map(write, "abc"))
    assert order == [f"{name} {does}" for name in "abc" for does in ("begins", "ends")]
    assert writer._locks == {}
