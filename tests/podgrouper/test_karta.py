"""Groups of kinds that a Karta describes (workloads:6.2)."""

from __future__ import annotations

import gc
from typing import Any
from weakref import ref

import pytest
from msgspec.structs import replace

from pykai.api.core import Pod
from pykai.dev.groupingcases import RecordedReaders
from pykai.podgrouper.karta.answers import MAX_ANSWERS, RememberedAnswers
from pykai.podgrouper.karta.compiled import KartaError, compile_karta
from pykai.podgrouper.karta.definition import Karta
from pykai.podgrouper.kinds import grouper_for
from pykai.podgrouper.kinds.default import group_default
from pykai.podgrouper.kinds.job import group_job
from pykai.podgrouper.kinds.table import built_in_groupers
from pykai.podgrouper.metadata import (
    Grouper,
    GroupingError,
    GroupVersionKind,
    Metadata,
    ObjectName,
    ObjectNotRead,
    Owner,
)
from tests.podgrouper.groupings import grouped, owner, pod
from tests.podgrouper.kartas import GROUP, KIND, ROLE, VERSION, Registered, component, karta, karta_grouper, root

TRIAL = (GROUP, VERSION, KIND)
MASTER, WORKER = component("master", ".spec.m", role="master"), component("worker", ".spec.w", role="worker")
RACK = {"topologyName": "t", "requiredTopologyLevel": "rack"}
ONE = {"subGroups": [{"componentName": "master"}, {"componentName": "worker"}], "name": "training"}


def trial(version: str = "1", **spec: Any) -> Owner:
    found = owner(KIND, "t", "u", api=f"{GROUP}/{VERSION}", spec=spec)
    return Owner(found.api_version, found.kind, replace(found.metadata, resource_version=version), found.body)


def by_karta(described: Karta, one: Pod, top: Owner, *below: Owner, **readers: Any) -> Metadata:
    groupers: dict[GroupVersionKind, Grouper] = {**built_in_groupers(), TRIAL: karta_grouper(described)}
    return grouped(one, *below, top, readers=RecordedReaders(groupers=groupers, **readers))


def with_role(role: str) -> Pod:
    return pod(labels={"role": role})


def test_components_are_subgroups() -> None:
    """workloads:T-113, KT-4, KT-5."""
    described = karta(MASTER, WORKER, podGroup={**ONE, "topology": RACK})
    top = owner(KIND, "t", "u", api="x.io/v1", labels={"kai.scheduler/queue": "q"}, spec={"m": 1, "w": 2})
    meta = by_karta(described, with_role("worker"), top)
    assert (meta.name, meta.min_sub_group, meta.pod_sub_group, meta.queue) == ("pg-u-training", 2, "worker", "q")
    assert [(each.name, each.min_member) for each in meta.sub_groups] == [("master", 1), ("worker", 2)]
    assert (meta.topology.topology, meta.topology.required_topology_level) == ("t", "rack")
    assert meta.owner == top.reference()
    assert by_karta(described, with_role("master"), top).pod_sub_group == "master"
    assert by_karta(described, with_role("other"), top).pod_sub_group == ""


def test_without_subgroups_all_pods_are_one_gang() -> None:
    """workloads:T-114."""
    meta = by_karta(karta(MASTER, WORKER, podGroup={"name": "g"}), pod(), trial(m=1, w=1))
    assert (meta.name, meta.min_available, meta.min_sub_group, meta.sub_groups) == ("pg-u-g", 2, None, ())


def test_owners_in_between_do_not_count() -> None:
    """workloads:KT-4."""
    near = owner("ReplicaSet", "r", "R", api="apps/v1", labels={"priorityClassName": "build"})
    described = karta(MASTER, podGroup={"name": "g"})
    assert by_karta(described, pod(), trial(m=1), near).priority_class == "train"


@pytest.mark.parametrize("topology", [{}, {"topologyName": "t"}, {"requiredTopologyLevel": "rack"}])
def test_a_topology_needs_a_name_and_a_level(topology: dict[str, str]) -> None:
    """workloads:KT-4."""
    for instruction in ({"name": "g", "topology": topology}, {"name": "g", "subGroups": [_with_topology(topology)]}):
        with pytest.raises(GroupingError, match="topology needs topologyName and a required or preferred level"):
            by_karta(karta(MASTER, podGroup=instruction), with_role("master"), trial(m=1))
    described = karta(MASTER, podGroup={"name": "g", "subGroups": [_with_topology(RACK)]})
    (only,) = by_karta(described, with_role("master"), trial(m=1)).sub_groups
    assert only.topology_constraint is not None
    assert only.topology_constraint.required_topology_level == "rack"


def _with_topology(topology: dict[str, str]) -> dict[str, Any]:
    return {"componentName": "master", "topology": topology}


@pytest.mark.parametrize(
    ("sub_groups", "reason"),
    [
        (["ghost"], "there is no component 'ghost'"),
        (["worker"], "component worker must expose a replica scale definition"),
        (["Upper"], "'Upper' cannot name a subgroup"),
        (["master", "master"], "name each component once"),
    ],
)
def test_a_wrong_subgroup_refuses_the_workload(sub_groups: list[str], reason: str) -> None:
    """workloads:KT-5: a gang is not broken up because its description is wrong."""
    named = [{"componentName": name} for name in sub_groups]
    described = karta(
        MASTER,
        component("worker", role="worker"),
        component("Upper", ".spec.m"),
        podGroup={"name": "g", "subGroups": named},
    )
    with pytest.raises(GroupingError, match=reason):
        by_karta(described, pod(), trial(m=1))


def test_a_pod_of_a_component_below_belongs_to_the_subgroup_above() -> None:
    """workloads:KT-5: and a selector without a value asks for the key alone."""
    outer = component("replica", ".spec.n")
    key = {"componentTypeSelector": {"keyPath": ROLE}}
    inner = component("inner", ".spec.w", below="replica", podSelector=key)
    described = karta(outer, inner, podGroup={"name": "g", "subGroups": [{"componentName": "replica"}]})
    meta = by_karta(described, with_role("any"), trial(n=2, w=3))
    assert (meta.pod_sub_group, meta.sub_groups[0].min_member) == ("replica", 6)
    assert by_karta(described, pod(), trial(n=2, w=3)).pod_sub_group == ""


@pytest.mark.parametrize(
    ("spec", "pods"),
    [
        ({"n": 2, "a": 3, "b": 1}, 8),
        ({"n": 0, "a": 3, "b": 1}, 4),
        ({"n": 2}, 2),
        ({}, 0),
        ({"n": 2, "a": 9, "low": 3, "b": -4}, 6),
        ({"n": 2.0, "a": 1}, 2),
    ],
)
def test_scales_multiply_along_the_tree(spec: dict[str, Any], pods: int) -> None:
    """workloads:KT-6: the minimum counts before the replicas, and what says nothing leaves it to the other."""
    a = component("a", scaleDefinition={"replicasPath": ".spec.a", "minReplicasPath": ".spec.low"})
    top = root(scaleDefinition={"replicasPath": ".spec.n"})
    described = karta(a, component("b", ".spec.b"), top=top, podGroup={"name": "g"})
    assert by_karta(described, pod(), trial(**spec)).min_available == pods


INSTANCES = component(
    "pool",
    ".spec.pools[].size",
    instanceIdPath=".spec.pools[].name",
    podSelector={"componentInstanceSelector": {"idPath": '.metadata.labels["pool"]'}},
)
POOLS: Any = {"pools": [{"name": "a", "size": 2}, {"name": "b", "size": 3}]}
BY_POOL = [{"name": "g", "members": [{"componentName": "pool", "groupByKeyPaths": ['.metadata.labels["pool"]']}]}]


def test_instances_are_summed_or_taken_one_by_one() -> None:
    """workloads:KT-6, KT-7."""
    assert by_karta(karta(INSTANCES, podGroup={"name": "g"}), pod(), trial(**POOLS)).min_available == 5
    described = karta(INSTANCES, podGroups=BY_POOL)
    meta = by_karta(described, pod(labels={"pool": "b"}), trial(**POOLS))
    assert (meta.name, meta.min_available) == ("pg-u-b", 3)
    with pytest.raises(GroupingError, match="instance 'c' is not among a, b"):
        by_karta(described, pod(labels={"pool": "c"}), trial(**POOLS))


@pytest.mark.parametrize(
    ("pools", "reason"),
    [
        ([{"name": "a"}, {"size": 1}], "the ids of instances must be text and not empty"),
        ([{"name": "a", "size": "many"}], "'many' is no number of pods"),
        ([{"name": "a", "size": 1 << 31}], "is no number of pods"),
        ([{"name": "a", "size": 1.5}], "1.5 is no number of pods"),
        (7, "component pool: jq expression"),
    ],
)
def test_a_scale_that_cannot_be_read_refuses_the_workload(pools: object, reason: str) -> None:
    """workloads:KT-6."""
    with pytest.raises(GroupingError, match=reason):
        by_karta(karta(INSTANCES, podGroup={"name": "g"}), pod(), trial(pools=pools))


def test_every_instance_needs_a_scale() -> None:
    """workloads:KT-6: two results for one component without instances contradict each other."""
    described = karta(component("a", ".spec.sizes[]"), podGroup={"name": "g"})
    with pytest.raises(GroupingError, match="2 results for 1 instances"):
        by_karta(described, pod(), trial(sizes=[1, 2]))


def test_more_pods_than_a_group_can_hold_are_refused() -> None:
    huge = (1 << 31) - 1
    described = karta(component("a", ".spec.a"), component("b", ".spec.a"), podGroup={"name": "g"})
    with pytest.raises(GroupingError, match="more than a PodGroup can ask for"):
        by_karta(described, pod(), trial(a=huge))


def test_without_any_scale_components_with_pods_are_counted() -> None:
    """workloads:KT-6."""
    pools = {**INSTANCES, "scaleDefinition": None}
    described = karta(component("a"), pools, podGroup={"name": "g"})
    assert by_karta(described, pod(), trial(**POOLS)).min_available == 3


JOB_NAME = '.metadata.labels["job-name"]'


def test_keys_of_pods_make_groups() -> None:
    """workloads:T-115, KT-7."""
    members = [{"componentName": "job", "groupByKeyPaths": [JOB_NAME]}]
    described = karta(MASTER, WORKER, podGroups=[{"name": "g", "members": members}])
    top = trial(m=1, w=2)
    meta = by_karta(described, pod(labels={"role": "worker", "job-name": "j1"}), top)
    assert (meta.name, meta.min_available, meta.sub_groups) == ("pg-u-j1", 3, ())
    with pytest.raises(GroupingError, match="cannot name a PodGroup"):
        by_karta(described, pod(labels={"role": "worker", "job-name": "Invalid_Name"}), top)
    for labels in ({"role": "worker"}, {"role": "worker", "job-name": ""}):
        with pytest.raises(GroupingError, match="expected one value"):
            by_karta(described, pod(labels=labels), top)
    with pytest.raises(GroupingError, match="no component selects pod ns/p"):
        by_karta(described, pod(labels={"job-name": "j1"}), top)


def test_the_pods_own_component_comes_before_those_above() -> None:
    """workloads:KT-7: filters decide among members, in their order."""
    big = '(.metadata.labels["size"] // "small") == "big"'
    members = [
        {"componentName": "job"},
        {"componentName": "worker", "filters": [big], "groupByKeyPaths": [ROLE]},
    ]
    described = karta(MASTER, WORKER, podGroups=[{"name": "g", "members": members}])
    top = trial(m=1, w=2)
    assert by_karta(described, pod(labels={"role": "worker", "size": "big"}), top).name == "pg-u-worker"
    assert by_karta(described, with_role("worker"), top).name == "pg-u"
    only = karta(MASTER, WORKER, podGroups=[{"name": "g", "members": members[1:]}])
    with pytest.raises(GroupingError, match="pod ns/p does not match any Karta pod group member definition"):
        by_karta(only, with_role("worker"), top)


def test_one_group_wins_over_keyed_groups() -> None:
    """workloads:KT-4."""
    described = karta(INSTANCES, podGroup={"name": "g"}, podGroups=BY_POOL)
    assert by_karta(described, pod(labels={"pool": "b"}), trial(**POOLS)).name == "pg-u-g"


def test_expressions_about_the_spec_of_a_pod_read_the_pod() -> None:
    """workloads:KT-5: the cache holds little of a pod."""
    key = {"componentTypeSelector": {"keyPath": ".spec.nodeSelector.role", "value": "master"}}
    described = karta(
        {**MASTER, "podSelector": key}, podGroup={"name": "g", "subGroups": [{"componentName": "master"}]}
    )
    with pytest.raises(ObjectNotRead) as wanted:
        by_karta(described, pod(), trial(m=1))
    which = ObjectName("v1", "Pod", "ns", "p")
    assert wanted.value.object_name == which
    whole = {"metadata": {"uid": "pu"}, "spec": {"nodeSelector": {"role": "master"}}}
    assert by_karta(described, pod(), trial(m=1), objects={which: whole}).pod_sub_group == "master"
    for other in (None, {**whole, "metadata": {"uid": "later"}}):
        with pytest.raises(GroupingError, match="was deleted while it was being grouped"):
            by_karta(described, pod(), trial(m=1), objects={which: other})


def test_an_expression_that_takes_too_long_refuses_the_workload() -> None:
    """workloads:KT-3: the error names the component and the expression, and the next pod costs nothing."""
    described = karta(component("a", ".spec.list | map(. * 2) | add"), podGroup={"name": "g"})
    grouper = karta_grouper(described)
    readers = RecordedReaders(groupers={TRIAL: grouper})
    first = trial(list=list(range(50_000)))
    for _ in range(2):
        with pytest.raises(GroupingError, match=r"Karta trials, component a: jq expression .* too many steps"):
            grouped(pod(), first, readers=readers)
    # The same version of the workload is not evaluated again: a version that says otherwise would be noticed.
    with pytest.raises(GroupingError, match="too many steps"):
        grouped(pod(), trial(list=[1]), readers=readers)
    assert grouped(pod(), trial("2", list=[1]), readers=readers).min_available == 2


class WatchedSpec(dict[str, Any]):
    """The spec of a workload, of which a test can see when it is freed."""


def test_a_refused_workload_is_not_kept_in_memory() -> None:
    """workloads:KT-3: the text of the refusal is remembered, not the frames that raised it."""
    readers = RecordedReaders(groupers={TRIAL: karta_grouper(karta(component("a", ".spec.n"), podGroup={"name": "g"}))})

    def refuse(top: Owner) -> None:
        with pytest.raises(GroupingError, match="is no number of pods"):
            grouped(pod(), top, readers=readers)

    spec = WatchedSpec(n="many")
    freed = ref(spec)
    top = trial()
    refuse(Owner(top.api_version, top.kind, top.metadata, {"spec": spec}))
    del spec
    gc.collect()
    assert freed() is None
    refuse(trial(n=1))


def test_answers_are_bounded_in_bytes() -> None:
    """workloads:KT-3: ids of instances and refusals are as long as tenants make them."""
    answers = RememberedAnswers(max_bytes=10_000)
    for number in range(100):
        answers.put(("u", str(number), "ids a"), ("x" * 500,))
        answers.put(("u", str(number), "pods a"), "no " * 100)
        assert answers.size <= 10_000
    assert 2 <= len(answers) <= 8
    assert answers.get(("u", "99", "ids a")) == ("x" * 500,)
    with pytest.raises(GroupingError, match="no no"):
        answers.get(("u", "99", "pods a"))
    assert answers.get(("u", "0", "ids a")) is None


def test_an_answer_that_is_too_large_is_not_remembered() -> None:
    """workloads:KT-3."""
    answers = RememberedAnswers(max_bytes=10_000)
    for _ in range(2):
        answers.put(("u", "1", "ids a"), ("x",) * 1000)
        assert (len(answers), answers.size) == (0, 0)


def test_answers_are_bounded_in_number() -> None:
    """workloads:KT-3."""
    answers = RememberedAnswers()
    for number in range(MAX_ANSWERS + 1):
        answers.put(("u", str(number), "pods a"), (1,))
    assert len(answers) == MAX_ANSWERS
    assert answers.get(("u", "0", "pods a")) is None


@pytest.mark.parametrize(
    ("described", "reason"),
    [
        (karta(MASTER, top=root(kind={"group": "", "version": "v1", "kind": "K"}), podGroup=ONE), "group, version and"),
        (karta(MASTER, top=root(kind=None), podGroup=ONE), "group, version and kind"),
        (karta(MASTER, top=root(statusDefinition=None), podGroup=ONE), "statusDefinition: missing"),
        (karta(MASTER, top=root(ownerRef="x"), podGroup=ONE), "the root component has no owner"),
        (karta(component("a", below=""), podGroup=ONE), r"childComponents\[0\].ownerRef: missing"),
        (karta(component("a", below="ghost"), podGroup=ONE), "there is no component 'ghost'"),
        (karta(component("a", below="b"), component("b", below="a"), podGroup=ONE), "own each other"),
        (karta(component("job"), podGroup=ONE), "'job' is not unique"),
        (karta(component(""), podGroup=ONE), "name: missing"),
        (
            karta(component("a", specDefinition={"podSpecPath": ".a", "podTemplateSpecPath": ".b"}), podGroup=ONE),
            "more than one form",
        ),
        (karta(component("a", instanceIdPath=".a"), podGroup=ONE), "need each other"),
        (karta({**INSTANCES, "instanceIdPath": None}, podGroup=ONE), "need each other"),
        (karta(MASTER, podGroups=[{"members": [{"componentName": "ghost"}]}]), "members.0..componentName"),
        (karta(component("a", ".. | .x"), podGroup=ONE), "replicasPath: jq expression '.. | .x'"),
        (karta(component("a", "del(.x)"), podGroup=ONE), "del"),
        (karta(component("a", specDefinition={"podSpecPath": ".a | .b |= 1"}), podGroup=ONE), "no assignments"),
        (karta(component("a", specDefinition={"podSpecPath": "range(9)"}), podGroup=ONE), "no assignments"),
        (karta(*(component(f"c{number}") for number in range(100)), podGroup=ONE), "more than 100; use fewer"),
    ],
)
def test_an_invalid_karta_is_refused(described: Karta, reason: str) -> None:
    """workloads:KT-3."""
    with pytest.raises(KartaError, match=reason):
        compile_karta(described)


@pytest.mark.parametrize("spec", [7, {"structureDefinition": []}, {"optimizationInstructions": {"gangScheduling": 1}}])
def test_any_spec_is_refused_or_says_nothing_about_gangs(spec: object) -> None:
    """workloads:KT-3."""
    described = replace(karta(), spec=spec)
    if isinstance(spec, int):
        assert compile_karta(described) is None
    else:
        with pytest.raises(KartaError, match="expected"):
            compile_karta(described)


def test_expressions_that_are_never_evaluated_need_not_be_of_the_subset() -> None:
    """workloads:KT-3."""
    status = {"phaseDefinition": {"path": 'reduce .x[] as $i (0; . + $i) | {a: "x = y"} | .range == 1'}}
    assert compile_karta(karta(MASTER, top=root(statusDefinition=status), podGroup=ONE)) is not None


def test_a_kind_without_a_karta_gets_the_default_grouper() -> None:
    """workloads:HB-1: KAI calls a grouper that does not exist, and fails forever."""
    registered = Registered(karta(MASTER, podGroup=ONE))
    tables = (built_in_groupers(), registered.groupers.by_kind)
    assert grouper_for(tables, ("x.io", "v1", "Other")) is group_default
    assert grouper_for(tables, TRIAL) is registered.groupers.by_kind[TRIAL]


def test_built_in_kinds_win() -> None:
    """workloads:T-118; those that are default grouped on purpose, too."""
    mine = karta_grouper(karta(MASTER, podGroup=ONE))
    rows = {("batch", "v1", "Job"): group_job, ("tekton.dev", "v1", "TaskRun"): group_default}
    tables = (built_in_groupers(), dict.fromkeys(rows, mine))
    assert {kind: grouper_for(tables, kind) for kind in rows} == rows


def test_a_karta_is_found_below_a_skipped_owner() -> None:
    """workloads:ST-5: KAI looks up the table alone."""
    top = owner("Workflow", "w", "W", api="argoproj.io/v1alpha1", labels={"kai.scheduler/queue": "q"})
    groupers: dict[GroupVersionKind, Grouper] = {
        **built_in_groupers(),
        TRIAL: karta_grouper(karta(MASTER, podGroup={"name": "g"})),
    }
    meta = grouped(pod(), trial(m=4), top, readers=RecordedReaders(groupers=groupers))
    assert (meta.name, meta.min_available, meta.queue) == ("pg-u-g", 4, "q")


def test_two_kartas_for_one_kind_are_both_left_out() -> None:
    """workloads:T-116, KT-1."""
    registered = Registered(karta(MASTER, podGroup=ONE), karta(WORKER, name="others", podGroup=ONE))
    assert registered.used() == []
    assert (
        "others",
        "Kartas others, trials describe one kind, x.io/v1 Trial; none is used: keep one",
    ) in registered.refused
    assert registered.remove("others") == {TRIAL}
    assert registered.used() == ["trials"]
    assert registered.remove("trials") == {TRIAL}
    assert registered.used() == []


def test_a_valid_sibling_is_used() -> None:
    """workloads:T-116: of an invalid one, and of one in deletion."""
    invalid = karta(component("a", ".. | .x"), name="bad", podGroup=ONE)
    going = karta(MASTER, name="going", podGroup=ONE)
    going = replace(going, metadata=replace(going.metadata, deletion_timestamp="2026-01-01T00:00:00Z"))
    registered = Registered(invalid, going, karta(MASTER, podGroup=ONE))
    assert registered.used() == ["trials"]
    assert [name for name, _ in registered.refused] == ["bad"]


def test_a_karta_is_found_by_its_labels() -> None:
    """workloads:KT-1: as the Karta operator writes them; without gangs it says nothing."""
    described = karta(MASTER, podGroup=ONE)
    bare = replace(described, metadata=replace(described.metadata, labels={}))
    assert Registered(bare).used() == []
    assert Registered(karta(MASTER)).used() == []
    assert Registered(karta(MASTER, podGroups=[])).used() == []
    assert Registered(described).used() == ["trials"]


def test_a_karta_is_compiled_when_its_spec_changes() -> None:
    """workloads:6.2: its status changes more often."""
    registered = Registered(described := karta(MASTER, podGroup=ONE))
    before = registered.groupers.by_kind[TRIAL]
    later = replace(described, metadata=replace(described.metadata, resource_version="2"))
    assert registered.put(later) == set()
    assert registered.groupers.by_kind[TRIAL] is before
    assert registered.put(karta(WORKER, podGroup=ONE)) == {TRIAL}
    assert registered.groupers.by_kind[TRIAL] is not before
    assert registered.put(karta(component("a", ".."), podGroup=ONE)) == {TRIAL}
    assert registered.used() == []
