"""Groups made from gangs of Kubernetes and from pod groups of Kueue (workloads:NW-2, NW-3; kueue:pod-groups)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as changed

from pykai.api.core import Pod, PodSchedulingGroup, WorkloadReference
from pykai.api.decode import decode_as
from pykai.api.scheduling import PodGroup
from pykai.api.workloadapi import KubernetesPodGroup, KubernetesWorkload
from pykai.dev.groupingcases import RecordedReaders
from pykai.kube import resources
from pykai.kube.reflector import WatchEvent
from pykai.kube.store import Store
from pykai.podgrouper.grouping import needs_grouping
from pykai.podgrouper.lookups import BY_ORIGIN, index_pods
from pykai.podgrouper.metadata import GroupingError, GroupingSettings, KubernetesGang, Metadata
from pykai.podgrouper.origins import MissingGang, Origin, origin_keys, refuse_foreign_group, waiting_siblings_key
from tests.calls import count_calls
from tests.podgrouper.groupings import grouped, owner, pod

ON = GroupingSettings(workload_api=True, kueue_pod_groups=True)
MADE_FROM, GROUP = "kai.scheduler/made-from", "pod-group-name"
QUEUE, IGNORE = "kai.scheduler/queue", "kai.scheduler/ignore-workload-api"
COUNT = "kueue.x-k8s.io/pod-group-total-count"
JOB = owner("Job", "train", "J", labels={QUEUE: "of-job", "team": "a"}, annotations={"note": "of-job", "more": "x"})
NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)


def referring(to: str, part: str = "workers", replica: str = "", **more: Any) -> Pod:
    """A pod with a reference to a Workload."""
    made = pod(**more)
    return changed(
        made,
        spec=changed(made.spec, workload_ref=WorkloadReference(name=to, pod_group=part, pod_group_replica_key=replica)),
    )


def in_group(name: str = "g", **more: Any) -> Pod:
    """A pod in a PodGroup of Kubernetes."""
    made = pod(**more)
    return changed(made, spec=changed(made.spec, scheduling_group=PodSchedulingGroup(pod_group_name=name)))


def in_kueue_group(group: str = "k", count: str | None = "3", phase: str = "Pending", **more: Any) -> Pod:
    annotations = {} if count is None else {COUNT: count}
    made = pod(labels={"kueue.x-k8s.io/pod-group-name": group}, annotations=annotations, **more)
    return changed(made, status=changed(made.status, phase=phase))


def workload(name: str = "w", policy: Any = None, **meta: Any) -> dict[str, KubernetesGang]:
    groups = [
        {"name": "workers", "policy": policy or {"gang": {"minCount": 4}}},
        {"name": "lead", "policy": {"basic": {}}},
    ]
    raw = {"metadata": {"name": name, "namespace": "ns", "uid": "W", **meta}, "spec": {"podGroups": groups}}
    return {f"Workload/ns/{name}": KubernetesGang("scheduling.k8s.io/v1alpha1", decode_as(KubernetesWorkload, raw))}


def pod_group(name: str = "g", meta: Any = None, **spec: Any) -> dict[str, KubernetesGang]:
    spec.setdefault("schedulingPolicy", {"gang": {"minCount": 4}})
    raw = {"metadata": {"name": name, "namespace": "ns", "uid": "G", **(meta or {})}, "spec": spec}
    return {f"PodGroup/ns/{name}": KubernetesGang("scheduling.k8s.io/v1beta1", decode_as(KubernetesPodGroup, raw))}


def cluster(*gangs: dict[str, KubernetesGang], **more: Any) -> RecordedReaders:
    found = {key: gang for each in gangs for key, gang in each.items()}
    return RecordedReaders(gangs=found, gang_kinds=("Workload", "PodGroup"), **more)


def existing(by: str = "J", made_from: str = "", **spec: Any) -> PodGroup:
    """A PodGroup that an object with this uid owns."""
    annotations = {MADE_FROM: made_from} if made_from else {}
    meta = {"name": "x", "namespace": "ns", "annotations": annotations, "ownerReferences": [{"kind": "Job", "uid": by}]}
    return decode_as(PodGroup, {"metadata": meta, "spec": {"queue": "q", **spec}})


def test_a_group_of_a_workload_is_a_group() -> None:
    """workloads:NW-2: its own name and minimum, without subgroups, owned by the top owner."""
    top = owner(
        "PyTorchJob", "train", "J", api="kubeflow.org/v1", spec={"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}
    )
    meta = grouped(referring("w", replica="2", by=top), top, readers=cluster(workload()), settings=ON)
    assert (meta.name, meta.min_available, meta.owner.uid) == ("w-workers-2", 4, "J")
    assert (meta.sub_groups, meta.min_sub_group, meta.pod_sub_group) == ((), None, "")
    assert meta.annotations[MADE_FROM] == "Workload/w/workers/2"
    basic = grouped(referring("w", "lead", by=top), top, readers=cluster(workload()), settings=ON)
    assert (basic.name, basic.min_available) == ("w-lead", 1)


def test_a_pod_group_of_kubernetes_is_a_group() -> None:
    """workloads:NW-3: the name has a prefix."""
    meta = grouped(in_group(by=JOB), JOB, readers=cluster(pod_group()), settings=ON)
    assert (meta.name, meta.min_available, meta.owner.uid) == ("sg-g", 4, "J")
    assert meta.annotations[MADE_FROM] == "PodGroup/g"
    basic = cluster(pod_group(schedulingPolicy={"basic": {}}))
    assert grouped(in_group(by=JOB), JOB, readers=basic, settings=ON).min_available == 1


@pytest.mark.parametrize("named", [referring("w", by=JOB), in_group(by=JOB), in_kueue_group(by=JOB)])
def test_without_a_flag_nothing_is_read(named: Pod) -> None:
    """workloads:NW-1."""
    assert grouped(named, JOB, readers=cluster(workload(), pod_group())).name == "pg-train-J"


@pytest.mark.parametrize("named", [referring("w", by=JOB), in_group(by=JOB)])
def test_a_server_without_the_api_changes_nothing(named: Pod) -> None:
    assert grouped(named, JOB, settings=ON).name == "pg-train-J"


def test_a_missing_gang_is_waited_for() -> None:
    """workloads:NW-2."""
    with pytest.raises(MissingGang, match="Workload ns/w does not exist"):
        grouped(referring("w", by=JOB), JOB, readers=cluster(), settings=ON)
    with pytest.raises(MissingGang, match="Workload ns/w has no pod group 'other'"):
        grouped(referring("w", "other", by=JOB), JOB, readers=cluster(workload()), settings=ON)
    with pytest.raises(MissingGang, match="PodGroup ns/g does not exist"):
        grouped(in_group(by=JOB), JOB, readers=cluster(), settings=ON)


@pytest.mark.parametrize("minimum", [0, -1, 1 << 31])
def test_an_impossible_minimum_is_refused(minimum: int) -> None:
    readers = cluster(pod_group(schedulingPolicy={"gang": {"minCount": minimum}}))
    with pytest.raises(GroupingError, match=rf"PodGroup ns/g: gang.minCount is {minimum}; use a number from 1"):
        grouped(in_group(by=JOB), JOB, readers=readers, settings=ON)


def test_pod_and_top_owner_can_opt_out() -> None:
    """workloads:NW-2: kai.scheduler/ignore-workload-api."""
    readers = cluster(workload(), pod_group())
    opted_out = owner("Job", "train", "J", annotations={IGNORE: "true"})
    assert grouped(in_group(by=opted_out), opted_out, readers=readers, settings=ON).name == "pg-train-J"
    assert (
        grouped(in_group(by=JOB, annotations={IGNORE: "true"}), JOB, readers=readers, settings=ON).name == "pg-train-J"
    )
    assert grouped(in_group(by=JOB, annotations={IGNORE: "false"}), JOB, readers=readers, settings=ON).name == "sg-g"


def test_the_gang_wins_over_the_top_owner_and_this_over_the_pod() -> None:
    """workloads:NW-2."""
    said: dict[str, Any] = {
        "labels": {QUEUE: "of-gang", "priorityClassName": "build", "kai.scheduler/preemptibility": "preemptible"},
        "annotations": {"note": "of-gang", "kai.scheduler/topology": "t", "kai.scheduler/preemption-delay": "5s"},
    }
    member = referring("w", by=JOB, labels={QUEUE: "of-pod", "kai.scheduler/preemptibility": "non-preemptible"})
    meta = grouped(member, JOB, readers=cluster(workload(**said)), settings=ON)
    assert (meta.queue, meta.priority_class, meta.preemptibility) == ("of-gang", "build", "preemptible")
    assert (meta.topology.topology, meta.preemption_delay_ns) == ("t", 5_000_000_000)
    assert (meta.annotations["note"], meta.annotations["more"]) == ("of-gang", "x")
    assert (meta.labels[QUEUE], meta.labels["team"]) == ("of-gang", "a")
    silent = grouped(member, JOB, readers=cluster(workload()), settings=ON)
    assert (silent.queue, silent.priority_class, silent.preemptibility) == ("of-job", "train", "non-preemptible")


def test_the_priority_class_of_a_pod_group_counts_if_it_exists() -> None:
    """workloads:NW-3."""
    found = grouped(in_group(by=JOB), JOB, readers=cluster(pod_group(priorityClassName="build")), settings=ON)
    assert (found.priority_class, found.problems) == ("build", ())
    gone = grouped(in_group(by=JOB), JOB, readers=cluster(pod_group(priorityClassName="gone")), settings=ON)
    assert gone.priority_class == "train"
    text = "PodGroup/ns/g: spec.priorityClassName: priority class 'gone' does not exist; class 'train' is used"
    assert [str(problem) for problem in gone.problems] == [text]


def test_a_topology_key_is_a_level_of_a_topology() -> None:
    """workloads:NW-3: that of the top owner if it has the level, else the first by name."""
    gang = pod_group(schedulingConstraints={"topology": [{"key": "rack"}]})
    topologies = {"z": ("zone", "rack"), "b": ("rack",), "a": ("zone",)}
    meta = grouped(in_group(by=JOB), JOB, readers=cluster(gang, topologies=topologies), settings=ON)
    assert (meta.topology.topology, meta.topology.required_topology_level) == ("b", "rack")
    placed = owner("Job", "train", "J", annotations={"kai.scheduler/topology": "z"})
    meta = grouped(in_group(by=placed), placed, readers=cluster(gang, topologies=topologies), settings=ON)
    assert meta.topology.topology == "z"
    meta = grouped(in_group(by=placed), placed, readers=cluster(gang), settings=ON)
    assert (meta.topology.topology, meta.topology.required_topology_level) == ("z", "")
    (problem,) = meta.problems
    assert problem.field == "spec.schedulingConstraints.topology[0].key"
    assert "no Topology has the level 'rack'" in problem.text


def test_a_composite_parent_is_reported() -> None:
    """workloads:NW-3."""
    meta = grouped(in_group(by=JOB), JOB, readers=cluster(pod_group(parentCompositePodGroupName="all")), settings=ON)
    assert [problem.field for problem in meta.problems] == ["spec.parentCompositePodGroupName"]


def test_the_gang_owns_the_group_of_pods_without_owners() -> None:
    meta = grouped(in_group(), readers=cluster(pod_group()), settings=ON)
    assert (meta.owner.api_version, meta.owner.kind, meta.owner.uid) == ("scheduling.k8s.io/v1beta1", "PodGroup", "G")


def test_the_first_pod_describes_the_group() -> None:
    """Pods of other owners join it unchanged, but for what the gang says."""
    readers = cluster(
        pod_group(), groups={"ns/sg-g": existing(by="other", made_from="PodGroup/g", priorityClassName="build")}
    )
    for meta in (
        grouped(in_group(by=JOB), JOB, readers=readers, settings=ON),
        grouped(in_group(labels={QUEUE: "of-pod"}), readers=readers, settings=ON),
    ):
        assert (meta.owner.uid, meta.queue, meta.priority_class, meta.min_available) == ("other", "q", "build", 4)
        assert (dict(meta.labels), dict(meta.annotations)) == ({}, {MADE_FROM: "PodGroup/g"})
    own = cluster(pod_group(), groups={"ns/sg-g": existing(by="J", made_from="PodGroup/g")})
    assert grouped(in_group(by=JOB), JOB, readers=own, settings=ON).labels["team"] == "a"


def test_no_group_is_renamed_and_none_is_split() -> None:
    """workloads:NW-3: pods that are in the group of their top owner stay there, and others of the gang join them."""
    groups = {"ns/pg-train-J": existing()}
    inside = in_group(by=JOB, annotations={GROUP: "pg-train-J"})
    assert grouped(inside, JOB, readers=cluster(pod_group(), groups=groups), settings=ON).name == "pg-train-J"
    beside = cluster(pod_group(), groups=groups, cluster_pods=(inside,))
    assert grouped(in_group(by=JOB), JOB, readers=beside, settings=ON).name == "pg-train-J"
    # A name without a group, or of any other group, is a tenant's own invention.
    assert grouped(inside, JOB, readers=cluster(pod_group()), settings=ON).name == "sg-g"
    elsewhere = in_group(by=JOB, annotations={GROUP: "victim"})
    victim = cluster(pod_group(), groups={"ns/victim": existing(by="V")}, cluster_pods=(elsewhere,))
    assert grouped(elsewhere, JOB, readers=victim, settings=ON).name == "sg-g"
    # Pods of another gang of the same owner do not matter.
    other = in_group("h", by=JOB, annotations={GROUP: "pg-train-J"})
    assert (
        grouped(
            in_group(by=JOB), JOB, readers=cluster(pod_group(), groups=groups, cluster_pods=(other,)), settings=ON
        ).name
        == "sg-g"
    )


@pytest.mark.parametrize(
    ("theirs", "ours", "belongs_to"),
    [
        ("", "Workload/a/b-c", "another workload"),
        ("Workload/a-b/c", "Workload/a/b-c", "Workload/a-b/c"),
        ("Workload/a/b-c", "", "Workload/a/b-c"),
    ],
)
def test_a_group_of_the_same_name_is_not_taken(theirs: str, ours: str, belongs_to: str) -> None:
    """ADR-34: neither by a gang nor from one."""
    meta = grouped(pod())
    meta = replace(meta, name="a-b-c", annotations={MADE_FROM: ours} if ours else {})
    with pytest.raises(GroupingError, match=f"PodGroup ns/a-b-c belongs to {belongs_to}"):
        refuse_foreign_group(existing(made_from=theirs), meta)
    refuse_foreign_group(existing(made_from=ours), meta)


def test_a_workload_cannot_claim_to_be_made_from_something_else() -> None:
    """ADR-34: the annotation is never copied, neither from an owner nor from a gang."""
    forger = owner("Job", "train", "J", annotations={MADE_FROM: "PodGroup/victim"})
    assert MADE_FROM not in grouped(pod(by=forger), forger).annotations
    readers = cluster(pod_group(meta={"annotations": {MADE_FROM: "PodGroup/victim"}}))
    assert grouped(in_group(by=forger), forger, readers=readers, settings=ON).annotations[MADE_FROM] == "PodGroup/g"


ORIGINS = st.one_of(
    st.builds(Origin, st.just("Workload"), NAMES, NAMES, st.one_of(st.just(""), NAMES)),
    st.builds(Origin, st.sampled_from(["PodGroup", "KueuePodGroup"]), NAMES),
)


@given(ORIGINS, ORIGINS)
def test_different_origins_have_different_identities(one: Origin, other: Origin) -> None:
    """ADR-34: names may be equal, identities are not."""
    assert (one == other) == (one.identity == other.identity)
    if {one.kind, other.kind} == {"PodGroup", "KueuePodGroup"}:
        assert one.group_name != other.group_name


def test_a_long_name_is_shortened_and_stays_distinct() -> None:
    long = "a" * 253
    found = {Origin("Workload", long, part).group_name for part in ("b", "c")}
    assert len(found) == 2
    assert {len(name) for name in found} == {253}
    with pytest.raises(GroupingError, match="cannot be the name of a PodGroup"):
        _ = Origin("KueuePodGroup", "Upper_Case").group_name


def test_a_pod_group_of_kueue_is_a_group() -> None:
    """kueue:pod-groups: pods that have succeeded are not waited for."""
    meta: Metadata = grouped(in_kueue_group(), settings=ON)
    assert (meta.name, meta.min_available, meta.annotations[MADE_FROM]) == ("kueue-k", 3, "KueuePodGroup/k")
    pods = (
        in_kueue_group(phase="Succeeded"),
        in_kueue_group(phase="Failed"),
        in_kueue_group("other", phase="Succeeded"),
    )
    assert grouped(in_kueue_group(), readers=cluster(cluster_pods=pods), settings=ON).min_available == 2
    all_done = cluster(cluster_pods=(in_kueue_group(phase="Succeeded"),) * 3)
    assert grouped(in_kueue_group(), readers=all_done, settings=ON).min_available == 1
    joined = cluster(groups={"ns/kueue-k": existing(by="first", made_from="KueuePodGroup/k")})
    assert grouped(in_kueue_group(), readers=joined, settings=ON).owner.uid == "first"


class IndexedReaders(RecordedReaders):
    """Readers that count pods as the service does."""

    def __init__(self, *pods: Pod, **more: Any) -> None:
        super().__init__(**more)
        self.store: Store[Pod] = Store(resources.PODS, Pod)
        self._version = 0
        index_pods(self.store, ON)
        for each in pods:
            self.happens("ADDED", each)

    def happens(self, type_: str, one: Pod) -> None:
        self._version += 1
        said = changed(one, metadata=changed(one.metadata, resource_version=str(self._version)))
        self.store.apply_event(WatchEvent(type_, msgspec.Raw(msgspec.json.encode(said))))

    def count_of_origin(self, key: str) -> int:
        return self.store.count_by_index(BY_ORIGIN, key)


def test_succeeded_pods_are_counted_while_pods_come_and_go() -> None:
    """kueue:pod-groups."""

    def minimum() -> int:
        return grouped(in_kueue_group(), readers=readers, settings=ON).min_available

    readers = IndexedReaders(in_kueue_group(name="p1"), in_kueue_group(name="p2", phase="Succeeded"))
    assert minimum() == 2
    readers.happens("MODIFIED", in_kueue_group(name="p1", phase="Succeeded"))
    assert minimum() == 1
    readers.happens("DELETED", in_kueue_group(name="p1", phase="Succeeded"))
    assert minimum() == 2


def test_a_pod_costs_the_same_in_a_large_pod_group_of_kueue() -> None:
    """kueue:pod-groups: ten thousand pods with one label must not cost a step for each pair of them."""

    def calls(pods: int) -> int:
        others = [in_kueue_group(name=f"p{number}", phase="Succeeded", by=JOB) for number in range(pods)]
        # The group of the owner exists, so it is also asked whether pods of the gang are in it already.
        readers = IndexedReaders(*others, groups={"ns/pg-train-J": existing()})
        one = in_kueue_group(by=JOB)
        return count_calls(lambda: grouped(one, JOB, readers=readers, settings=ON))

    assert calls(200) == calls(2)


@pytest.mark.parametrize("count", [None, "", "0", "-1", "many", "9" * 20])
def test_a_pod_group_of_kueue_without_a_count_is_refused(count: str | None) -> None:
    """kueue:pod-groups."""
    with pytest.raises(GroupingError, match=r"Pod ns/p: metadata.annotations\[kueue.x-k8s.io/pod-group-total-count\]"):
        grouped(in_kueue_group(count=count), settings=ON)


def test_a_pod_without_owners_follows_its_gang() -> None:
    """A changed minimum is applied; a pod in another group is left alone."""
    for name, expected in (("sg-g", True), ("mine", False)):
        assert needs_grouping(in_group(annotations={GROUP: name}), "kai-scheduler", ON) is expected
    assert not needs_grouping(in_group(annotations={GROUP: "sg-g"}), "kai-scheduler", GroupingSettings())
    ended = changed(in_group(annotations={GROUP: "sg-g"}), status=changed(Pod().status, phase="Succeeded"))
    assert not needs_grouping(ended, "kai-scheduler", ON)


def test_pods_that_wait_are_found_by_one_that_has_succeeded() -> None:
    """kueue:pod-groups."""
    assert waiting_siblings_key(in_kueue_group(phase="Succeeded"), ON) in origin_keys(in_kueue_group(), ON)
    assert waiting_siblings_key(in_kueue_group(), ON) is None
    assert waiting_siblings_key(in_group(), ON) is None


def test_pods_are_found_by_gang_and_by_its_object() -> None:
    assert origin_keys(referring("w", replica="1"), ON) == ("ns/Workload/w",)
    assert origin_keys(referring("w", replica="1", annotations={GROUP: "g"}), ON) == (
        "ns/Workload/w",
        "ns/Workload/w/workers/1 in g",
    )
    assert origin_keys(in_kueue_group(phase="Succeeded"), ON) == (
        "ns/KueuePodGroup/k",
        "ns/KueuePodGroup/k succeeded",
    )
    assert origin_keys(in_kueue_group(), ON) == ("ns/KueuePodGroup/k", "ns/KueuePodGroup/k waiting")
    assert origin_keys(in_group(), ON) == ("ns/PodGroup/g",)
    assert origin_keys(pod(), ON) == ()
