"""Groups of LeaderWorkerSets (workloads:WK-LWS); how they are divided is tested in `test_segments`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as with_fields

from pykai.api.core import Pod
from pykai.podgrouper.metadata import GroupingError, Metadata, Owner
from tests.podgrouper.groupings import Labels, Raw, grouped, owner, pod

SIZE = "kai.scheduler/segment-size"


def lws(
    size: Any = 5, segment: Any = None, policy: str = "", startup: str = "", annotations: Labels | None = None
) -> Owner:
    template: Raw = {"size": size, "workerTemplate": {}}
    if segment is not None:
        template["subGroupPolicy"] = {"subGroupSize": segment, "subGroupPolicyType": policy}
    spec = {"leaderWorkerTemplate": template, "startupPolicy": startup}
    return owner("LeaderWorkerSet", "l", "U", api="leaderworkerset.x-k8s.io/v1", annotations=annotations, spec=spec)


def member(index: str | None = "1", group: str | None = "0", node: str = "", annotations: Labels | None = None) -> Pod:
    labels = {"worker-index": index, "group-index": group}
    prefixed = {f"leaderworkerset.sigs.k8s.io/{key}": value for key, value in labels.items() if value is not None}
    one = pod("m", labels=prefixed, annotations=annotations)
    return with_fields(one, spec=with_fields(one.spec, node_name=node))


def drawn(meta: Metadata) -> str:
    """The subgroups in one line: `name=pods`, `name/children`, with the parent in brackets."""
    return " ".join(
        (f"{each.name}={each.min_member}" if each.min_sub_group is None else f"{each.name}/{each.min_sub_group}")
        + (f"({each.parent})" if each.parent else "")
        for each in meta.sub_groups
    )


def test_leader_and_workers_are_subgroups() -> None:
    """workloads:T-89."""
    meta = grouped(member(None), lws(3))
    assert (meta.min_available, drawn(meta), meta.pod_sub_group) == (3, "leader=1 workers=2", "workers")
    assert grouped(member("0"), lws(3)).pod_sub_group == "leader"
    assert drawn(grouped(member("0"), lws(1))) == "leader=1"


def test_a_leader_starts_before_workers_that_wait_for_it() -> None:
    """workloads:T-90."""
    top = lws(5, startup="LeaderReady")
    alone = grouped(member("0"), top)
    assert (alone.min_available, drawn(alone)) == (1, "leader=1")
    for one in (member("1"), member("0", node="n")):
        meta = grouped(one, top)
        assert (meta.min_available, drawn(meta)) == (5, "leader=1 workers=4")
    sized = grouped(member("1", annotations={"leaderworkerset.sigs.k8s.io/size": "4"}), top)
    assert (sized.min_available, drawn(sized)) == (4, "leader=1 workers=3")


def test_every_replica_is_a_group() -> None:
    """workloads:T-91."""
    names = [grouped(member(group=group), lws()).name for group in ("0", "1", "x", "", None)]
    assert names == ["pg-l-U-group-0", "pg-l-U-group-1", "pg-l-U", "pg-l-U", "pg-l-U"]
    meta = grouped(member(), lws())
    assert (meta.owner.kind, meta.owner.name, meta.priority_class) == ("LeaderWorkerSet", "l", "train")


@pytest.mark.parametrize(
    ("size", "segment", "parts", "places"),
    [
        (
            5,
            2,
            "segment-0/2 segment-1=2 leader=1(segment-0) workers=2(segment-0)",
            ["leader", "workers", "workers", "segment-1", "segment-1"],
        ),
        (
            4,
            2,
            "segment-0/2 segment-1=2 leader=1(segment-0) workers=1(segment-0)",
            ["leader", "workers", "segment-1", "segment-1"],
        ),
        (
            5,
            3,
            "segment-0/2 segment-1=2 leader=1(segment-0) workers=2(segment-0)",
            ["leader", "workers", "workers", "segment-1", "segment-1"],
        ),
        (3, 2, "segment-0/2 leader=1(segment-0) workers=2(segment-0)", ["leader", "workers", "workers"]),
    ],
)
def test_a_replica_is_divided_into_segments(size: int, segment: int, parts: str, places: list[str]) -> None:
    """workloads:T-92, T-93, T-94, T-96: of a single segment KAI counts the leader twice."""
    top = lws(size, segment)
    found = [grouped(member(str(index)), top) for index in range(size)]
    assert {(drawn(meta), meta.min_available) for meta in found} == {(parts, size)}
    assert [meta.pod_sub_group for meta in found] == places


def test_a_leader_can_be_left_out_of_the_segments() -> None:
    """workloads:T-95."""
    assert drawn(grouped(member(), lws(5, 2, "LeaderExcluded"))) == "leader=1 segment-0=2 segment-1=2"
    assert drawn(grouped(member(), lws(3, 2, "LeaderExcluded"))) == "leader=1 segment-0=2"
    with pytest.raises(GroupingError, match="LeaderExcluded needs segments of equal size"):
        grouped(member(), lws(4, 2, "LeaderExcluded"))


def test_a_leader_that_waits_alone_is_not_divided() -> None:
    """workloads:WK-LWS, Do better: KAI refuses it, because a segment is larger than the group of one."""
    top = lws(5, 2, startup="LeaderReady")
    meta = grouped(member("0"), top)
    assert (drawn(meta), meta.pod_sub_group, meta.problems) == ("leader=1", "leader", ())
    assert grouped(member("0", node="n"), top).pod_sub_group == "leader"


@pytest.mark.parametrize("index", ["-1", "x", "5"])
def test_an_index_must_be_one_of_the_replica(index: str) -> None:
    """workloads:T-97, WK-LWS: an index beyond the size crashes KAI's grouper."""
    with pytest.raises(GroupingError, match=r"leaderworkerset\.sigs\.k8s\.io/worker-index"):
        grouped(member(index), lws(5, 2))


@pytest.mark.parametrize("segment", [1, 6, 0, -1, "two"])
def test_a_segment_size_that_cannot_be_used_is_reported_and_ignored(segment: Any) -> None:
    """workloads:T-97, topo:TD-19: KAI refuses the pods."""
    meta = grouped(member(), lws(5, segment))
    assert drawn(meta) == "leader=1 workers=4"
    assert len(meta.problems) == 1
    annotated = grouped(member(), lws(annotations={SIZE: str(segment)}))
    assert (drawn(annotated), len(annotated.problems)) == ("leader=1 workers=4", 1)


@pytest.mark.parametrize(
    ("top", "path"),
    [
        (lws(0), "spec.leaderWorkerTemplate.size"),
        (lws(None), "spec.leaderWorkerTemplate.size"),
        (lws("5"), "spec.leaderWorkerTemplate.size"),
        (lws(1 << 40), "spec.leaderWorkerTemplate.size"),
        (lws(startup="Later"), "spec.startupPolicy"),
        (lws(5, 2, "Odd"), "spec.leaderWorkerTemplate.subGroupPolicy.subGroupPolicyType"),
    ],
)
def test_a_set_that_cannot_run_is_refused(top: Owner, path: str) -> None:
    with pytest.raises(GroupingError, match=path):
        grouped(member(), top)


def test_the_golden_group_comes_out_as_written() -> None:
    """workloads:T-153."""
    meta = grouped(member("3"), replace(lws(5, 2), metadata=with_fields(lws().metadata, uid="u")))
    assert (meta.name, meta.min_available, meta.pod_sub_group) == ("pg-l-u-group-0", 5, "segment-1")
    assert drawn(meta) == "segment-0/2 segment-1=2 leader=1(segment-0) workers=2(segment-0)"
