"""Workloads of every kind with anything in them: a clear refusal, or a group that the webhook admits.

Tenants write these objects, and the definitions of many kinds allow anything.  Values are drawn from the field names
that groupers read, so that they get past the first field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykai.api.scheduling import MOST_SUBGROUPS, PodGroup, PodGroupSpec, SubGroup
from pykai.dev.groupingcases import RecordedReaders
from pykai.podgrouper.declaredkinds import read_declared_kinds
from pykai.podgrouper.kinds.table import WORKLOAD_KINDS, built_in_groupers
from pykai.podgrouper.metadata import Grouper, GroupingError, GroupVersionKind, ObjectName, Owner
from pykai.podgrouper.writes import new_group, pod_patch
from pykai.webhooks.podgroups import validate
from tests.podgrouper.groupings import grouped, owner, pod
from tests.podgrouper.kartas import component, karta, karta_grouper

DECLARED = "kinds: [{apiVersion: x.io/v1, kind: Declared, roles: [{name: a, replicas: spec.replicas, podLabel: role}]}]"
POOLS = component(
    "pool",
    ".spec.replicatedJobs[].replicas",
    instanceIdPath=".spec.replicatedJobs[].name",
    podSelector={"componentInstanceSelector": {"idPath": '.metadata.labels["role"]'}},
)
LEAF = component("leaf", ".spec.template.spec.parallelism", role="a")
WHOLE = {"name": "g", "subGroups": [{"componentName": "leaf"}, {"componentName": "pool"}]}
KEYED = [{"name": "g", "members": [{"componentName": "pool", "groupByKeyPaths": ['.metadata.labels["role"]']}]}]
DESCRIBED: dict[GroupVersionKind, Grouper] = {
    ("x.io", "v1", "Whole"): karta_grouper(karta(LEAF, POOLS, podGroup=WHOLE)),
    ("x.io", "v1", "Keyed"): karta_grouper(karta(POOLS, podGroups=KEYED)),
    **read_declared_kinds(DECLARED).groupers,
}
KINDS = sorted({*(key for key, row in WORKLOAD_KINDS.items() if row.grouper is not None), *DESCRIBED})

# fmt: off
FIELDS = (
    "replicas", "minReplicas", "maxReplicas", "parallelism", "completions", "size", "suspend", "name",
    "template", "spec", "metadata", "annotations", "labels", "replicatedJobs", "startupPolicy",
    "startupPolicyOrder", "leaderWorkerTemplate", "workerTemplate", "subGroupPolicy", "subGroupSize",
    "subGroupPolicyType", "runPolicy", "schedulingPolicy", "minAvailable", "elasticPolicy",
    "pytorchReplicaSpecs", "tfReplicaSpecs", "xgbReplicaSpecs", "jaxReplicaSpecs", "mpiReplicaSpecs", "Master",
    "Worker", "Launcher", "Chief", "launcherCreationPolicy", "workerGroupSpecs", "headGroupSpec", "groupName",
    "numOfHosts", "podgroups", "podReferences", "topologyConstraint", "packConstraint",
    "topologyConstraintGroupConfigs", "podGroupNames", "job", "options", "envs", "AZUREML_NODE_COUNT",
    "rayClusterName",
)
# fmt: on
NUMBERS = st.integers(-2, 4) | st.sampled_from((999, 1024, 1025, 5000, 10_001, (1 << 31) - 1, 1 << 31, 1 << 70))
TEXTS = st.sampled_from(("", "a", "b", "3", "InOrder", "LeaderReady", "LeaderExcluded", "a" * 64, "A_b")) | st.text(
    max_size=4
)
SCALARS = st.none() | st.booleans() | NUMBERS | st.floats() | TEXTS
KEYS = st.sampled_from(FIELDS)
DOCUMENTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=12
)
ANNOTATIONS = st.dictionaries(
    st.sampled_from(
        (
            "kai.scheduler/segment-size",
            "kai.scheduler/batch-min-member",
            "kai.scheduler/topology",
            "kai.scheduler/topology-required-placement",
            "kai.scheduler/segment-topology-required-placement",
            "kai.scheduler/preemption-delay",
            "leaderworkerset.sigs.k8s.io/size",
            "autoscaling.knative.dev/min-scale",
        )
    ),
    TEXTS | st.sampled_from(("2", "1", "0", "99999999999", "10s")),
    max_size=3,
)
POD_LABELS = {
    "role": "a",
    "training.kubeflow.org/replica-type": "worker",
    "training.kubeflow.org/replica-index": "1",
    "jobset.sigs.k8s.io/replicatedjob-name": "a",
    "jobset.sigs.k8s.io/job-index": "0",
    "leaderworkerset.sigs.k8s.io/worker-index": "1",
    "leaderworkerset.sigs.k8s.io/group-index": "0",
    "ray.io/group": "a",
    "grove.io/podgang": "g",
    "serving.knative.dev/revision": "v",
}


def pytorch_job(workers: int) -> Owner:
    template = {"metadata": {"annotations": {"kai.scheduler/segment-size": "2"}}}
    roles = {"Master": {"replicas": 1}, "Worker": {"replicas": workers, "template": template}}
    return owner("PyTorchJob", "w", "u", api="kubeflow.org/v1", spec={"pytorchReplicaSpecs": roles})


def leader_worker_set(size: int) -> Owner:
    template = {"size": size, "subGroupPolicy": {"subGroupSize": 2}}
    api = "leaderworkerset.x-k8s.io/v1"
    return owner("LeaderWorkerSet", "w", "u", api=api, spec={"leaderWorkerTemplate": template})


def job_set(replicas: int) -> Owner:
    jobs = [{"name": "a", "replicas": replicas}]
    return owner("JobSet", "w", "u", api="jobset.x-k8s.io/v1alpha2", spec={"replicatedJobs": jobs})


@pytest.mark.parametrize(
    ("top", "subgroups"), [(pytorch_job(2046), 1025), (leader_worker_set(2049), 1026), (job_set(1024), 1025)]
)
def test_more_subgroups_than_a_group_may_have_are_refused(top: Owner, subgroups: int) -> None:
    """kinds:limits; a group that exists is not refused, and neither is a smaller one."""
    one = pod("p", "pu", by=top, labels=POD_LABELS)
    with pytest.raises(GroupingError, match=f"{top.kind} ns/w: it needs {subgroups} subgroups, .* at most 1024"):
        grouped(one, top)
    name = "pg-w-u-group-0" if top.kind == "LeaderWorkerSet" else "pg-w-u"
    existing = PodGroup(spec=PodGroupSpec(sub_groups=[SubGroup(name="a", min_member=1)]))
    assert len(grouped(one, top, readers=RecordedReaders(groups={f"ns/{name}": existing})).sub_groups) == subgroups


class _AnyObject(RecordedReaders):
    """Every other object exists, with the same content."""

    content: Mapping[str, Any]

    def object(self, which: ObjectName) -> Mapping[str, Any] | None:
        return self.content


@settings(max_examples=100)
@given(spec=st.dictionaries(KEYS, DOCUMENTS, max_size=5), status=DOCUMENTS, above=ANNOTATIONS, on_pod=ANNOTATIONS)
def test_the_answer_is_a_group_that_is_admitted_or_a_refusal(
    spec: Any, status: Any, above: dict[str, str], on_pod: dict[str, str]
) -> None:
    """kinds:limits; workloads:14: a wrong type is an error, not a crash.

    Drawing a document costs more than grouping by it, so each goes through the groupers of all kinds.
    """
    for kind in KINDS:
        check(kind, spec, status, above, on_pod)


def check(kind: GroupVersionKind, spec: Any, status: Any, above: dict[str, str], on_pod: dict[str, str]) -> None:
    group, version, name = kind
    api = f"{group}/{version.replace('*', 'v1')}" if group else version
    top = owner(name, "w", "u", api=api, annotations=above, spec=spec, status=status)
    one = pod("p", "pu", by=top, labels=POD_LABELS, annotations=on_pod)
    readers = _AnyObject(groupers={**built_in_groupers(), **DESCRIBED})
    readers.content = {"metadata": {"name": "o", "namespace": "ns", "uid": "o"}, "spec": spec, "status": status}
    try:
        meta = grouped(one, top, readers=readers)
    except GroupingError:
        return
    created = new_group(meta)
    assert validate(created).errors == (), kind
    assert len(meta.sub_groups) <= MOST_SUBGROUPS
    assert created["spec"].get("minMember", 0) < 1 << 31
    pod_patch(one, meta)
