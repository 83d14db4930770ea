"""Which owners are of unknown kinds (kinds:unknown)."""

from __future__ import annotations

from dataclasses import replace

from pykai.podgrouper.kinds.job import group_job
from pykai.podgrouper.kinds.table import built_in_groupers
from pykai.podgrouper.metadata import Grouper, GroupVersionKind, Metadata, Owner
from pykai.podgrouper.unknownkinds import unknown_owner
from tests.podgrouper.groupings import grouped, owner, pod

TABLES = (built_in_groupers(),)
SWEEP = owner("Sweep", "s", "s1", api="example.com/v1")


def found_kind(*owners: Owner, described: dict[GroupVersionKind, Grouper] | None = None) -> str:
    """The kind that is reported for a pod with these owners."""
    one = pod(by=owners[0])
    meta = grouped(one, *owners)
    found = unknown_owner(one, owners, meta, (*TABLES, described or {}))
    return found.about.kind if found is not None else ""


def test_a_kind_that_nothing_describes_is_unknown() -> None:
    """kinds:unknown."""
    assert found_kind(SWEEP) == "Sweep"
    near = owner("ReplicaSet", "r", "r1", api="apps/v1", by=SWEEP)
    assert found_kind(near, SWEEP) == "Sweep"
    assert found_kind(SWEEP, described={("example.com", "v1", "Sweep"): group_job}) == ""
    assert found_kind(SWEEP, described={("example.com", "*", "Sweep"): group_job}) == ""


def test_below_a_skipped_owner_the_next_one_counts() -> None:
    """kinds:unknown."""
    flow = owner("Workflow", "w", "w1", api="argoproj.io/v1alpha1")
    assert found_kind(SWEEP, flow) == "Sweep"
    assert found_kind(flow) == ""


def test_kinds_of_the_table_are_known() -> None:
    """kinds:unknown: also those that are grouped by default."""
    for kind, api in (("StatefulSet", "apps/v1"), ("TaskRun", "tekton.dev/v1"), ("VirtualMachine", "kubevirt.io/v1")):
        assert found_kind(owner(kind, "w", "u", api=api)) == ""


def unreadable(by: Owner, meta: Metadata | None = None) -> str:
    """The kind that is reported for a pod whose owner cannot be read."""
    one = pod(by=by)
    found = unknown_owner(one, (), meta or grouped(one), TABLES)
    return found.about.kind if found is not None else ""


def test_an_owner_that_cannot_be_read_is_unknown() -> None:
    """kinds:unknown: unless its pods are grouped all the same, or scheduled one by one on purpose."""
    assert unreadable(SWEEP) == "Sweep"
    assert unreadable(SWEEP, replace(grouped(pod()), name="spark-1")) == ""
    assert unreadable(owner("DaemonSet", "d", "u", api="apps/v1")) == ""
    lone = pod()
    assert unknown_owner(lone, (), grouped(lone), TABLES) is None
