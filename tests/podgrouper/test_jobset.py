"""Groups of JobSets (workloads:WK-JS), also below a TrainJob."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api.core import Pod
from pykai.api.decode import decode_as
from pykai.api.scheduling import PodGroup, SubGroup, TopologyConstraint
from pykai.dev.groupingcases import RecordedReaders
from pykai.podgrouper.metadata import GroupingError, Metadata, Owner
from pykai.podgrouper.writes import new_group
from pykai.webhooks.podgroups import validate
from tests.podgrouper.groupings import Labels, Raw, grouped, owner, pod

MIN_MEMBER = "kai.scheduler/batch-min-member"
TOPOLOGY = "kai.scheduler/topology"
REQUIRED = "kai.scheduler/topology-required-placement"


def replicated(name: Any = "workers", replicas: Any = 2, annotations: Labels | None = None, **spec: Any) -> Raw:
    """A replicated job; its Jobs have this spec."""
    template = {"metadata": {"annotations": dict(annotations or {})}, "spec": spec}
    return {"name": name, "template": template} | ({} if replicas is None else {"replicas": replicas})


DRIVER = replicated("driver", 1, parallelism=1)
WORKERS = replicated("workers", 2, parallelism=4)


def job_set(*jobs: Raw, order: str = "", annotations: Labels | None = None, by: Owner | None = None) -> Owner:
    spec: Raw = {"replicatedJobs": list(jobs)}
    if order:
        spec["startupPolicy"] = {"startupPolicyOrder": order}
    return owner("JobSet", "js", "u", api="jobset.x-k8s.io/v1alpha2", annotations=annotations, by=by, spec=spec)


def member(job: str | None = "workers", index: str | None = "0", by: Owner | None = None) -> Pod:
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": job, "jobset.sigs.k8s.io/job-index": index}
    return pod("m", by=by, labels={key: value for key, value in labels.items() if value is not None})


def drawn(meta: Metadata) -> str:
    """The subgroups in one line: `name=pods`, `name/children`."""
    return " ".join(
        f"{each.name}={each.min_member}" if each.min_sub_group is None else f"{each.name}/{each.min_sub_group}"
        for each in meta.sub_groups
    )


@pytest.mark.parametrize(("parallelism", "pods"), [(3, 3), (1, 1), (0, 0), (None, 1)])
def test_one_replicated_job(parallelism: int | None, pods: int) -> None:
    """workloads:T-83."""
    meta = grouped(member("rj"), job_set(replicated("rj", 1, parallelism=parallelism)))
    assert (meta.name, meta.min_sub_group, drawn(meta)) == ("pg-js-u", 1, f"rj/1 rj-replica-0={pods}")
    assert meta.pod_sub_group == "rj-replica-0"
    assert drawn(grouped(member("rj"), job_set(replicated("rj", None, parallelism=2)))) == "rj/1 rj-replica-0=2"


def test_the_golden_group_comes_out_as_written() -> None:
    """workloads:T-152."""
    group = new_group(grouped(member(), job_set(DRIVER, WORKERS, order="AnyOrder")))
    assert group["metadata"]["name"] == "pg-js-u"
    assert group["spec"] == {
        "queue": "default-queue",
        "priorityClassName": "train",
        "topologyConstraint": {},
        "minSubGroup": 2,
        "subGroups": [
            {"name": "driver", "minSubGroup": 1},
            {"name": "driver-replica-0", "parent": "driver", "minMember": 1},
            {"name": "workers", "minSubGroup": 2},
            {"name": "workers-replica-0", "parent": "workers", "minMember": 4},
            {"name": "workers-replica-1", "parent": "workers", "minMember": 4},
        ],
    }


@pytest.mark.parametrize(
    ("order", "annotation", "least"),
    [("AnyOrder", None, 2), ("", None, 2), ("InOrder", None, 1), ("", "1", 1), ("", "9", 2), ("InOrder", "2", 2)],
)
def test_how_many_replicated_jobs_start_together(order: str, annotation: str | None, least: int) -> None:
    """workloads:T-84."""
    annotations = {} if annotation is None else {MIN_MEMBER: annotation}
    meta = grouped(member(), job_set(DRIVER, WORKERS, order=order, annotations=annotations))
    assert meta.min_sub_group == least


@pytest.mark.parametrize("text", ["0", "x", "-1", "", "2147483648", "1_0", " 2", "9" * 5000])
def test_an_annotated_minimum_is_a_number_of_one_or_more(text: str) -> None:
    """workloads:T-84, T-85."""
    with pytest.raises(GroupingError, match=r"JobSet ns/js: metadata\.annotations.*: invalid min-member annotation"):
        grouped(member(), job_set(WORKERS, annotations={MIN_MEMBER: text}))
    with pytest.raises(GroupingError, match=r"spec\.replicatedJobs\[1\]\.template\.metadata\.annotations"):
        grouped(member(), job_set(DRIVER, replicated(annotations={MIN_MEMBER: text}, parallelism=4)))


@pytest.mark.parametrize(("text", "pods"), [("2", 2), ("8", 8)])
def test_how_many_pods_of_a_job_start_together(text: str, pods: int) -> None:
    """workloads:T-85."""
    meta = grouped(member(), job_set(replicated(replicas=1, annotations={MIN_MEMBER: text}, parallelism=4)))
    assert drawn(meta) == f"workers/1 workers-replica-0={pods}"


@pytest.mark.parametrize(("parallelism", "completions", "pods"), [(4, 2, 2), (2, 4, 2), (4, None, 4), (None, 3, 1)])
def test_a_job_waits_for_no_more_pods_than_its_completions(
    parallelism: int | None, completions: int | None, pods: int
) -> None:
    """workloads:WK-JS, Do better: KAI waits for `parallelism` pods, some of which are never created."""
    top = job_set(replicated(replicas=1, parallelism=parallelism, completions=completions))
    assert drawn(grouped(member(), top)) == f"workers/1 workers-replica-0={pods}"


@pytest.mark.parametrize(("job", "index"), [(None, "0"), ("workers", None), ("", "0"), ("workers", "")])
def test_a_pod_needs_the_labels_of_its_job(job: str | None, index: str | None) -> None:
    """workloads:T-86."""
    with pytest.raises(GroupingError, match=r"pod ns/m has no label jobset\.sigs\.k8s\.io/"):
        grouped(member(job, index), job_set(WORKERS))


@pytest.mark.parametrize(("job", "index"), [("workers", "2"), ("workers", "-1"), ("workers", "00"), ("other", "0")])
def test_a_pod_of_no_job_is_refused(job: str, index: str) -> None:
    with pytest.raises(GroupingError, match="which JobSet ns/js does not have"):
        grouped(member(job, index), job_set(WORKERS))


def test_jobs_have_a_constraint_of_their_own() -> None:
    """workloads:T-87, topo:T-14."""
    rack = {TOPOLOGY: "net", REQUIRED: "rack"}
    zone = {TOPOLOGY: "net", REQUIRED: "zone"}
    meta = grouped(member(), job_set(replicated(annotations=rack), annotations=zone))
    inside = TopologyConstraint(topology="net", required_topology_level="rack")
    assert meta.topology == TopologyConstraint(topology="net", required_topology_level="zone")
    assert [each.topology_constraint for each in meta.sub_groups] == [None, inside, inside]
    for part in ({TOPOLOGY: "net"}, {REQUIRED: "rack"}):
        parts = grouped(member(), job_set(replicated(annotations=part))).sub_groups
        assert {each.topology_constraint for each in parts} == {None}


@pytest.mark.parametrize("existing", ["pg-js-u", "pg-js-u-workers"])
def test_a_flat_group_of_an_older_release_is_kept(existing: str) -> None:
    """workloads:T-88."""
    known = RecordedReaders(groups={f"ns/{existing}": PodGroup()})
    meta = grouped(member(index=None), job_set(DRIVER, WORKERS), readers=known)
    assert (meta.name, meta.min_available, meta.min_sub_group, meta.sub_groups) == ("pg-js-u", 1, None, ())
    ordered = job_set(DRIVER, WORKERS, order="InOrder", annotations={MIN_MEMBER: "0"})
    meta = grouped(member(index=None), ordered, readers=known)
    assert (meta.name, meta.min_available) == ("pg-js-u-workers", 0)
    for text in ("x", "-1"):
        with pytest.raises(GroupingError, match="batch-min-member"):
            grouped(member(), job_set(WORKERS, annotations={MIN_MEMBER: text}), readers=known)
    with pytest.raises(GroupingError, match="replicatedjob-name"):
        grouped(member(None), job_set(WORKERS), readers=known)


def test_a_group_with_subgroups_is_no_older_one() -> None:
    """workloads:T-88."""
    group = decode_as(PodGroup, new_group(grouped(member(), job_set(WORKERS))))
    known = RecordedReaders(groups={"ns/pg-js-u": group, "ns/pg-js-u-else": PodGroup(), "x/pg-js-u": PodGroup()})
    assert grouped(member(), job_set(WORKERS), readers=known).min_sub_group == 1


def test_a_replicated_job_without_replicas_is_left_out() -> None:
    """workloads:WK-JS, Do better: KAI's group is refused by the webhook, and the whole JobSet waits."""
    top = job_set(replicated("none", 0), WORKERS, annotations={MIN_MEMBER: "2"})
    meta = grouped(member(), top)
    assert (meta.min_sub_group, drawn(meta)) == (
        1,
        "workers/2 workers-replica-0=4 workers-replica-1=4",
    )
    assert validate(new_group(meta)).errors == ()


@pytest.mark.parametrize(
    ("jobs", "text"),
    [
        ((), "jobset ns/js has no replicatedJobs"),
        ((replicated(replicas=10_000),), "spec.replicatedJobs: needs 10001 subgroups, more than 10000"),
        ((replicated("Upper"),), "spec.replicatedJobs[0].name"),
        ((WORKERS, replicated("")), "spec.replicatedJobs[1].name"),
        ((replicated("a" * 54),), "spec.replicatedJobs[0].name"),
        ((WORKERS, WORKERS), "spec.replicatedJobs[1].name: another replicated job"),
        ((WORKERS, replicated("workers-replica-1")), "spec.replicatedJobs[1].name: another replicated job"),
        ((replicated(parallelism=-1),), "spec.replicatedJobs[0].template.spec.parallelism"),
        ((replicated(parallelism="many"),), "spec.replicatedJobs[0].template.spec.parallelism"),
        ((replicated(replicas="2"),), "spec.replicatedJobs[0].replicas"),
    ],
)
def test_a_job_set_that_cannot_be_grouped_is_refused(jobs: tuple[Raw, ...], text: str) -> None:
    with pytest.raises(GroupingError) as raised:
        grouped(member(), job_set(*jobs))
    assert text in str(raised.value)


def test_no_order_of_pods_changes_the_group() -> None:
    top = job_set(DRIVER, WORKERS)
    found = [grouped(one, top).sub_groups for one in (member("driver"), member(), member(index="1"))]
    assert found[0] == found[1] == found[2]
    assert isinstance(found[0][0], SubGroup)
