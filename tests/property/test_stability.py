"""From any cluster, cycle after cycle at a standing clock, decisions come to rest (cycle:23, multi-round harness).

The cluster moves on between cycles as in the recorded cases: what was bound runs, what was evicted comes back as a new
pod, what was only nominated waits again.  Nothing reserves a nominated node, so an eviction that the next
allocate undoes would be repeated for ever; this is where that shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings

from pykai.core.model.status import TaskStatus
from pykai.core.plan import build_plan
from pykai.dev.cases import Case, Cycles
from pykai.dev.conformance import CaseRun
from tests.core.builders import NOW_NS, Cluster, cluster, timestamp_before
from tests.property.clustermodel import Model
from tests.property.clusters import tight_clusters
from tests.property.drawnkinds import DRAWN, kinds_of, outcomes_of

#: cycles in which a cluster must come to rest
TO_REST = 10

Places = dict[str, tuple[TaskStatus, str, tuple[str, ...]]]


def _run(built: Cluster) -> CaseRun:
    case = Case(id="drawn", now=timestamp_before(0), objects=built.objects, expect={}, cycles=Cycles())
    assert case.now_ns == NOW_NS
    return CaseRun(case, validate=True)


def _places(run: CaseRun) -> Places:
    tasks = run.tables.snapshot(run.now_ns).task_records
    return {key: (task.status, task.node, task.gpu_groups) for key, task in tasks.items()}


def _step(run: CaseRun, story: list[str]) -> bool:
    """One cycle; whether it changed or evicted anything."""
    before = _places(run)
    plan = build_plan(run.step())
    DRAWN.update(outcomes_of(plan))
    for item in plan.evictions:
        story.append(f"{item.action} evicts {item.pod} from {item.node} for {item.preemptor} -> {item.moves_to}")
    story.extend(f"{bind.pod} starts on {bind.node}" for bind in plan.binds)
    story.append("--")
    return bool(plan.evictions) or _places(run) != before


def _comes_to_rest(built: Cluster, **policy: Any) -> None:
    run = _run(built)
    run.policy = replace(run.policy, **policy)
    story: list[str] = []
    # The same cluster gives the same plan: a cycle that changes nothing is followed by more of the kind.
    assert any(not _step(run, story) for _ in range(TO_REST)), "\n".join(["no rest in ten cycles:", *story])
    assert not any(_step(run, story) for _ in range(TO_REST)), "\n".join(["rest does not last:", *story])


def _drawn_home() -> Cluster:
    """A victim that outranks the preemptor, and for which its own node packs best."""
    built = cluster().queue("q").node("small", gpus=1).node("large", gpus=2)
    built.gang("victim", gpu=1, on="small", age=30)
    here = {"nodeSelector": {"kubernetes.io/hostname": "small"}}
    return built.gang("preemptor", gpu=1, spec=here, age=10)


def _drawn_home_by_priority() -> Cluster:
    """The same with pods that need no GPU and a host port instead of a selector."""
    port = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "3"}}, "ports": [{"hostPort": 80}]}]}
    built = cluster().queue("q").priority_class("low", 10).node("roomy").node("tight", cpu=16)
    built.gang("holder", cpu=3, on="roomy", spec=port).gang("base", 2, cpu=3, on="tight", preemptible=False)
    return built.gang("victims", 3, cpu=3, on="tight").gang("preemptor", priority="low", spec=port)


@pytest.mark.parametrize("make", [_drawn_home, _drawn_home_by_priority])
def test_sol12_a_victim_is_not_moved_where_allocate_would_not_put_it(make: Callable[[], Cluster]) -> None:
    """cycle:SOL-12."""
    _comes_to_rest(make())


@settings(max_examples=35, deadline=None)
@example(_drawn_home())
@given(tight_clusters())
def test_every_cluster_converges(built: Cluster) -> None:
    """cycle:23; cycle:SOL-12."""
    DRAWN.update(kinds_of(Model(built.objects)))
    _comes_to_rest(built)


@settings(max_examples=30, deadline=None)
@given(tight_clusters())
def test_without_consolidation_every_cluster_converges(built: Cluster) -> None:
    """cycle:23: reclaim, preempt and stale gangs do not undo each other's work."""
    DRAWN.update(kinds_of(Model(built.objects)))
    _comes_to_rest(built, max_consolidation_preemptees=0)
