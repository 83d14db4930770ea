"""Which groups get a start timestamp, and which one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pykai.api.core import Condition, Pod, PodStatus
from pykai.api.meta import ObjectMeta
from pykai.api.timestamp import parse_timestamp
from pykai.core.cluster.tables import Tables
from pykai.lab import objects
from pykai.scheduler.config.configuration import default_configuration
from pykai.scheduler.status.starttimestamps import earliest_bind_ns, groups_without_start, longest_min_runtime_ns

SECOND = 1_000_000_000
FIRST, SECOND_ONE = "2026-01-01T10:00:00Z", "2026-01-01T11:00:00Z"


def bound(at: str | None, status: str = "True") -> Pod:
    condition = Condition(type="PodScheduled", status=status, last_transition_time=at)
    return Pod(metadata=ObjectMeta(name="p"), status=PodStatus(conditions=(condition,)))


def test_the_first_bound_pod_gives_the_start() -> None:
    assert earliest_bind_ns([bound(SECOND_ONE), bound(FIRST)]) == parse_timestamp(FIRST)


@pytest.mark.parametrize("at", [None, "", "yesterday"])
def test_an_unreadable_time_is_ignored(at: str | None) -> None:
    assert earliest_bind_ns([bound(at)]) is None
    assert earliest_bind_ns([bound(at), bound(FIRST)]) == parse_timestamp(FIRST)


def test_an_unbound_pod_gives_no_start() -> None:
    assert earliest_bind_ns([bound(FIRST, status="False")]) is None


@pytest.mark.parametrize("field", ["preempt_min_runtime", "reclaim_min_runtime"])
def test_the_longest_minimum_run_time_is_that_of_any_queue(field: str) -> None:
    policy = default_configuration().policy
    tables = Tables(None, [objects.queue("department"), objects.queue("team", parent="department")])
    assert longest_min_runtime_ns(policy, tables.snapshot(0)) == 0
    team = objects.queue("team", parent="department")
    tables.apply(replace(team, spec=replace(team.spec, **{field: "90s"})))
    assert longest_min_runtime_ns(policy, tables.snapshot(0)) == 90 * SECOND


def test_groups_that_run_without_a_start_are_found_with_their_pods() -> None:
    tables = Tables(
        None,
        [
            objects.queue("team"),
            objects.node("a", gpus=8),
            objects.pod_group("runs", queue="team"),
            objects.pod("runs-0", group="runs", gpus=1, on="a"),
            objects.pod("runs-1", group="runs", gpus=1),
            objects.pod_group("waits", queue="team"),
            objects.pod("waits-0", group="waits", gpus=1),
        ],
    )
    assert groups_without_start(tables.snapshot(0)) == {"default/runs": ("default/runs-0",)}
