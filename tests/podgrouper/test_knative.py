"""Groups of Knative Services (workloads:WK-KN)."""

from __future__ import annotations

import pytest

from pykai.api.core import Pod
from pykai.api.decode import decode_as
from pykai.api.scheduling import PodGroup, TopologyConstraint
from pykai.dev.groupingcases import RecordedReaders
from pykai.podgrouper.metadata import GroupingError, GroupingSettings, Metadata, ObjectName, ObjectNotRead, Owner
from tests.podgrouper.groupings import Labels, grouped, owner, pod

SERVING = "serving.knative.dev/v1"
REVISION = "serving.knative.dev/revision"
MIN_SCALE = "autoscaling.knative.dev/min-scale"
WHICH = ObjectName(SERVING, "Revision", "ns", "revision")
SERVICE = owner("Service", "svc", "svcUID", api=SERVING, labels={"kai.scheduler/queue": "service-queue"})


def revision(*, labels: Labels | None = None, annotations: Labels | None = None) -> Owner:
    return owner("Revision", "revision", "revUID", api=SERVING, labels=labels, annotations=annotations, by=SERVICE)


def member(name: str = "pod", group: str = "", priority_class: str = "") -> Pod:
    annotations = {"pod-group-name": group} if group else {}
    return pod(
        name, f"{name}UID", labels={REVISION: "revision"}, annotations=annotations, priority_class=priority_class
    )


def found(*others: Pod, above: Owner | None = None, one: Pod | None = None, owned_by: str | None = None) -> Metadata:
    """The group of a pod, beside others and their group."""
    groups = {}
    if owned_by is not None:
        references = [{"kind": owned_by, "name": "x", "uid": "y"}] if owned_by else []
        groups["ns/old"] = decode_as(PodGroup, {"metadata": {"name": "old", "ownerReferences": references}})
    readers = RecordedReaders(groups=groups, cluster_pods=others)
    return grouped(one or member(), above or revision(), SERVICE, readers=readers)


def test_the_pods_of_a_revision_are_a_group() -> None:
    """workloads:T-102."""
    meta = found()
    assert (meta.name, meta.min_available, meta.priority_class) == ("pg-revision-revUID", 1, "inference")
    assert (meta.owner.kind, meta.owner.name) == ("Revision", "revision")
    assert found(above=revision(annotations={MIN_SCALE: "3"})).min_available == 3
    assert found(above=revision(annotations={MIN_SCALE: "0"})).min_available == 0


@pytest.mark.parametrize("text", ["many", "", " 3", "-1", "2147483648", "1_0"])
def test_a_minimum_that_is_no_number_is_one(text: str) -> None:
    """workloads:WK-KN: such a value is reported about the Revision."""
    meta = found(above=revision(annotations={MIN_SCALE: text}))
    assert meta.min_available == 1
    assert [(problem.subject, repr(text) in problem.text) for problem in meta.problems] == [
        ("Revision/ns/revision", True)
    ]


def test_without_gangs_every_pod_is_a_group() -> None:
    """workloads:T-102."""
    off = GroupingSettings(knative_gang_schedule=False)
    meta = grouped(member(priority_class="build"), revision(), SERVICE, settings=off)
    assert (meta.name, meta.min_available, meta.priority_class) == ("pg-pod-podUID", 1, "inference")
    assert (meta.owner.kind, meta.owner.name, meta.queue) == ("Pod", "pod", "service-queue")


def test_old_pods_with_groups_of_their_own_keep_them() -> None:
    """workloads:T-103."""
    assert found(member("a", "one"), member("b", "two")).name == "pg-pod-podUID"
    assert found(member("a", "one"), member("b", "one")).name == "pg-revision-revUID"
    assert found(member("a"), member("b")).name == "pg-revision-revUID"


@pytest.mark.parametrize(
    ("owned_by", "name"), [("Pod", "pg-pod-podUID"), (None, "pg-revision-revUID"), ("Revision", "pg-revision-revUID")]
)
def test_the_owner_of_the_only_old_group_decides(owned_by: str | None, name: str) -> None:
    """workloads:T-104."""
    assert found(member("a", "old"), owned_by=owned_by).name == name


@pytest.mark.parametrize("owned_by", ["", "Job"])
def test_an_old_group_of_another_owner_is_refused(owned_by: str) -> None:
    with pytest.raises(GroupingError, match=r"PodGroup old .* neither by a Revision nor by a Pod"):
        found(member("a", "old"), owned_by=owned_by)


def test_values_of_the_revision_count() -> None:
    """KAI reads the priority and the queue alone."""
    above = revision(
        labels={
            "priorityClassName": "build",
            "kai.scheduler/preemptibility": "preemptible",
            "kai.scheduler/queue": "q",
        },
        annotations={
            "kai.scheduler/topology": "t",
            "kai.scheduler/topology-required-placement": "rack",
            "kai.scheduler/preemption-delay": "1s",
            "kai.scheduler/staleness-grace-period": "2s",
        },
    )
    meta = found(above=above)
    assert (meta.priority_class, meta.preemptibility, meta.queue) == ("build", "preemptible", "q")
    assert (meta.preemption_delay_ns, meta.staleness_grace_ns) == (10**9, 2 * 10**9)
    assert meta.topology == TopologyConstraint(topology="t", required_topology_level="rack")


def test_the_revision_is_read_where_it_is_not_an_owner() -> None:
    with pytest.raises(GroupingError, match="pod ns/p of Service ns/svc has no label"):
        grouped(pod(), SERVICE)
    with pytest.raises(ObjectNotRead):
        grouped(member(), SERVICE)
    with pytest.raises(GroupingError, match="Revision revision, which pod ns/pod names, does not exist"):
        grouped(member(), SERVICE, readers=RecordedReaders(objects={WHICH: None}))
    body = {"metadata": {"name": "revision", "namespace": "ns", "uid": "revUID", "annotations": {MIN_SCALE: "2"}}}
    assert grouped(member(), SERVICE, readers=RecordedReaders(objects={WHICH: body})).min_available == 2
