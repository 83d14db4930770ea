"""Whatever the cluster: nothing is overdrawn, gangs are whole, queues keep to their bounds, undo leaves no trace."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from hypothesis import given, note, settings
from hypothesis import strategies as st

from pykai.core.report.decisions import Bind, Nominate, NoPlace, Plan
from tests.core.builders import Cluster
from tests.core.cycle.test_state import content
from tests.property.clustermodel import Model
from tests.property.clusters import clusters

EXAMPLES = settings(max_examples=80, deadline=None)


def placed(plan: Plan) -> list[Bind | Nominate]:
    return [*plan.binds, *plan.nominations]


@EXAMPLES
@given(clusters())
def test_nothing_is_ever_overdrawn(built: Cluster) -> None:
    """What starts now fits beside all that still runs; pipelined pods fit once terminating ones are gone."""
    plan = built.schedule().plan
    model = Model(built.objects)
    now = model.nodes_after(plan.binds, with_leaving=True)
    later = model.nodes_after(placed(plan), with_leaving=False)
    for bind in plan.binds:
        assert now[bind.node].within_capacity(), now[bind.node]
    for item in placed(plan):
        assert later[item.node].within_capacity(), later[item.node]


@EXAMPLES
@given(clusters())
def test_pods_go_only_where_they_may(built: Cluster) -> None:
    plan = built.schedule().plan
    model = Model(built.objects)
    rooms = model.empty_nodes()
    for item in placed(plan):
        pod, room = model.pods[f"{item.namespace}/{item.pod}"], rooms[item.node]
        assert pod.state == "pending"
        assert room.open
        assert pod.tolerant or not room.tainted
        assert len(item.gpu_groups) == len(set(item.gpu_groups)) == pod.ask.count
        assert room.memory_known or pod.ask.gpu_memory is None or pod.ask.fraction is not None
    keys = [f"{item.namespace}/{item.pod}" for item in placed(plan)]
    assert len(keys) == len(set(keys)), "no pod is placed twice"


def _satisfied(entry: dict[str, Any], entries: list[dict[str, Any]], counts: Counter[str]) -> bool:
    children = [child for child in entries if child.get("parent", "") == entry["name"]]
    if not children:
        return bool(counts[entry["name"]] >= entry["minMember"])
    needed = int(entry.get("minSubGroup", len(children)))
    return sum(_satisfied(child, entries, counts) for child in children) >= needed


def _whole(spec: dict[str, Any], counts: Counter[str]) -> bool:
    """Whether so many pods per leaf make the group satisfied."""
    entries = spec.get("subGroups")
    if not entries:
        return bool(counts[""] >= spec["minMember"])
    tops = [entry for entry in entries if not entry.get("parent")]
    needed = int(spec.get("minSubGroup", len(tops)))
    return sum(_satisfied(entry, entries, counts) for entry in tops) >= needed


def _minimums(spec: dict[str, Any]) -> dict[str, int]:
    if not spec.get("subGroups"):
        return {"": spec["minMember"]}
    return {entry["name"]: entry["minMember"] for entry in spec["subGroups"] if "minMember" in entry}


@EXAMPLES
@given(clusters())
def test_gangs_are_whole_or_absent(built: Cluster) -> None:
    """A group of which a pod starts has its minimum running then; so has every subgroup of which one starts."""
    plan = built.schedule().plan
    model = Model(built.objects)
    running: dict[str, Counter[str]] = {key: Counter() for key in model.groups}
    for pod in model.pods.values():
        running[pod.group][pod.leaf] += pod.active
    for items in (plan.binds, plan.nominations):
        for group in {item.group for item in items}:
            spec = model.groups[group]["spec"]
            chosen = placed(plan) if items is plan.nominations else list(plan.binds)
            new = Counter(model.pods[f"{i.namespace}/{i.pod}"].leaf for i in chosen if i.group == group)
            counts = running[group] + new
            note(f"{group} {dict(counts)}")
            assert _whole(spec, counts)
            for leaf, minimum in _minimums(spec).items():
                assert not new[leaf] or counts[leaf] >= minimum


@EXAMPLES
@given(clusters())
def test_limits_and_non_preemptible_quota_hold_at_every_level(built: Cluster) -> None:
    """A queue that was given anything of a resource ends within its bound, whatever it had before."""
    plan = built.schedule().plan
    model = Model(built.objects)
    for committed in (False, True):
        before, after = model.spent(None, committed=committed), model.spent(plan, committed=committed)
        for name, queue in model.queues.items():
            bounds = queue.quota if committed else queue.limit
            for had, has, bound in zip(before[name], after[name], bounds, strict=True):
                assert bound == -1 or has == had or has <= bound + 1e-9, (name, committed, had, has, bound)


@EXAMPLES
@given(clusters())
def test_no_pod_that_fits_waits(built: Cluster) -> None:
    """A pod for which no node was found fits none when the cycle is over: what is free only ever shrinks."""
    plan = built.schedule().plan
    model = Model(built.objects)
    rooms = model.nodes_after(placed(plan), with_leaving=False)
    for group in plan.unscheduled:
        for refusal in group.refusals:
            if not isinstance(refusal, NoPlace) or refusal.form != "pod" or refusal.found:
                continue
            pod = model.pods[refusal.pod]
            if pod.ask.shared or pod.leaf:
                # Devices are checked elsewhere, and other subgroups may have used the resources in the same attempt.
                continue
            for room in rooms.values():
                assert not (room.open and (pod.tolerant or not room.tainted) and room.fits(pod.ask)), (pod, room)


@EXAMPLES
@given(clusters(), st.data())
def test_undo_restores_every_byte(built: Cluster, data: st.DataObject) -> None:
    """Attempts are made in any order, some kept, some converted to pipelined, some undone."""
    cycle = built.cycle()
    state = cycle.state
    for gang in data.draw(st.permutations(list(cycle.gangs.waiting()))):
        before, version, mark = content(cycle), state.version, state.mark()
        if data.draw(st.booleans()):
            batches = cycle.gangs.next_tasks(gang)
            held = bool(batches) and cycle.placer.try_place_tasks(gang, batches)
        else:
            held = cycle.placer.place_gang(gang)
        if held and data.draw(st.booleans()):
            state.convert_to_pipelined(gang, mark)
        if not held:
            assert content(cycle) == before, "a failed attempt leaves nothing behind"
        elif data.draw(st.booleans()):
            state.commit(mark)
            continue
        state.rollback(mark)
        assert content(cycle) == before
        assert state.version == version


@EXAMPLES
@given(clusters(), st.data())
def test_the_order_of_the_objects_is_irrelevant(built: Cluster, data: st.DataObject) -> None:
    expected = built.schedule().plan.encoded()
    built.objects = data.draw(st.permutations(built.objects))
    assert built.schedule().plan.encoded() == expected


@EXAMPLES
@given(clusters())
def test_signatures_change_nothing_but_the_work(built: Cluster) -> None:
    quick = built.schedule().plan
    slow = built.with_policy(reuse_failures=False).schedule().plan
    assert quick.work <= slow.work
    assert msgspec.structs.replace(quick, work=slow.work).encoded() == slow.encoded()


@EXAMPLES
@given(clusters())
def test_every_waiting_pod_is_accounted_for(built: Cluster) -> None:
    """Each pending pod is bound, pipelined or listed as waiting; nothing else is."""
    plan = built.schedule().plan
    model = Model(built.objects)
    pending = Counter(pod.group for pod in model.pods.values() if pod.state == "pending")
    found = Counter(item.group for item in placed(plan))
    found.update({f"{item.namespace}/{item.group}": item.pending for item in plan.unscheduled})
    assert found == pending
