"""allocate/min_subgroups (operations:17): pods of 100m, a filler that leaves room for some of them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pykai.kube.resources import EVENTS
from tests.e2e.endtoend import Document, EndToEnd, limited, subgroup

#: operations:E-25
NOT_READY = re.compile(
    r"Job is not ready for scheduling\. Waiting for \d+ pods( for SubGroup \S+)?, currently \d+ exist, \d+ are gated"
)
LEAVES = [subgroup(f"leaf-{number}", 2) for number in range(4)]


async def queue(e2e: EndToEnd, limit: int, filler: str = "") -> str:
    """A queue with a limit in millicores, of which a pod takes some."""
    (made,) = await e2e.family("subgroups", of={"queue": {"cpu": limited(limit)}})
    if filler:
        await e2e.scheduled(await e2e.pod(made, cpu=filler))
    return made


async def members(e2e: EndToEnd, of: str, counts: Mapping[str, int]) -> dict[str, list[str]]:
    """Pods by sub-group."""
    return {name: await e2e.pods(count, of, cpu="100m", group="group", subgroup=name) for name, count in counts.items()}


def trees(count: int, leaders: int, workers: int) -> list[Document]:
    """Groups of leaders and workers."""
    entries = []
    for number in range(count):
        entries += [
            subgroup(f"tree-{number}", minSubGroup=2),
            subgroup(f"leaders-{number}", leaders, f"tree-{number}"),
            subgroup(f"workers-{number}", workers, f"tree-{number}"),
        ]
    return entries


def all_of(pods: Mapping[str, list[str]]) -> list[str]:
    return [name for names in pods.values() for name in names]


FOUR = {f"leaf-{number}": 2 for number in range(4)}


async def test_all_leaves_run_where_there_is_room(e2e: EndToEnd) -> None:
    made = await queue(e2e, 800)
    pods = await members(e2e, made, FOUR)
    await e2e.group("group", made, None, minSubGroup=3, subGroups=LEAVES)
    await e2e.scheduled(*all_of(pods))


async def test_as_many_leaves_as_must_run_where_there_is_less(e2e: EndToEnd) -> None:
    made = await queue(e2e, 800, filler="200m")
    pods = await members(e2e, made, FOUR)
    await e2e.group("group", made, None, minSubGroup=3, subGroups=LEAVES)
    await e2e.settled(all_of(pods), scheduled=6)


async def test_none_runs_where_too_few_leaves_fit(e2e: EndToEnd) -> None:
    made = await queue(e2e, 800, filler="500m")
    pods = await members(e2e, made, FOUR)
    await e2e.group("group", made, None, minSubGroup=4, subGroups=LEAVES)
    await e2e.unschedulable(*all_of(pods))


TREES = {"leaders-0": 1, "workers-0": 4, "leaders-1": 1, "workers-1": 4}


async def test_two_trees_run_where_there_is_room(e2e: EndToEnd) -> None:
    made = await queue(e2e, 1000)
    pods = await members(e2e, made, TREES)
    await e2e.group("group", made, None, minSubGroup=2, subGroups=trees(2, 1, 4))
    await e2e.scheduled(*all_of(pods))


async def test_no_tree_runs_where_two_do_not_fit(e2e: EndToEnd) -> None:
    made = await queue(e2e, 1000, filler="700m")
    pods = await members(e2e, made, TREES)
    await e2e.group("group", made, None, minSubGroup=2, subGroups=trees(2, 1, 4))
    await e2e.unschedulable(*all_of(pods))


async def test_two_of_three_trees_run(e2e: EndToEnd) -> None:
    made = await queue(e2e, 1000, filler="400m")
    counts = {f"{kind}-{number}": count for number in range(3) for kind, count in (("leaders", 1), ("workers", 2))}
    pods = await members(e2e, made, counts)
    await e2e.group("group", made, None, minSubGroup=2, subGroups=trees(3, 1, 2))
    await e2e.settled(all_of(pods), scheduled=6)


async def test_without_a_number_of_subgroups_each_has_its_minimum(e2e: EndToEnd) -> None:
    made = await queue(e2e, 600)
    pods = await members(e2e, made, {"first": 3, "second": 3})
    await e2e.group("group", made, 4, subGroups=[subgroup("first", 2), subgroup("second", 2)])
    await e2e.until(
        lambda: all(sum(map(bool, map(e2e.node_of, names))) >= 2 for names in pods.values()), "two pods of each run"
    )


async def test_a_leaf_with_too_few_pods_is_not_ready(e2e: EndToEnd) -> None:
    """operations:E-25."""
    made = await queue(e2e, 600)
    await members(e2e, made, {"leaf": 3})
    await e2e.group("group", made, 5, subGroups=[subgroup("leaf", 5)])
    await not_ready(e2e, "group")


async def not_ready(e2e: EndToEnd, group: str) -> None:
    """Wait for the event about a group."""

    def seen() -> bool:
        return any(
            (event["reason"], event["type"], event["involvedObject"]["name"]) == ("NotReady", "Normal", group)
            and NOT_READY.search(event["message"])
            for event in e2e.stores[EVENTS].values()
        )

    await e2e.until(seen, f"the event NotReady on {group}", EVENTS)


async def test_a_group_without_subgroups_runs_with_its_minimum(e2e: EndToEnd) -> None:
    made = await queue(e2e, 600)
    pods = await e2e.gang("group", made, 3, minimum=2, cpu="100m")
    await e2e.until(lambda: sum(map(bool, map(e2e.node_of, pods))) >= 2, "two pods run")


OPTIONAL = [
    subgroup("group-required", minSubGroup=1),
    subgroup("required", 2, "group-required"),
    subgroup("group-optional", minSubGroup=0),
    subgroup("optional", 2, "group-optional"),
]


async def test_an_optional_subgroup_runs_where_there_is_room(e2e: EndToEnd) -> None:
    made = await queue(e2e, 400)
    pods = await members(e2e, made, {"required": 2, "optional": 2})
    await e2e.group("group", made, None, minSubGroup=1, subGroups=OPTIONAL)
    await e2e.scheduled(*all_of(pods))


async def test_an_optional_subgroup_gives_way_to_a_required_one(e2e: EndToEnd) -> None:
    made = await queue(e2e, 400, filler="200m")
    pods = await members(e2e, made, {"required": 2, "optional": 2})
    await e2e.group("group", made, None, minSubGroup=1, subGroups=OPTIONAL)
    await e2e.scheduled(*pods["required"])
    await e2e.unschedulable(*pods["optional"])
