"""Owner objects are written by tenants: whatever they hold, there is a valid PodGroup or a refusal that says why."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykai.api.core import Pod
from pykai.dev.groupingcases import RecordedReaders
from pykai.podgrouper.metadata import GroupingError, GroupingSettings, ObjectName
from pykai.podgrouper.ownerspec import SUB_GROUP_NAME
from pykai.podgrouper.writes import new_group
from pykai.webhooks.podgroups import validate
from tests.podgrouper.groupings import Raw, grouped, owner, pod

TEMPLATE = {
    "metadata": {"annotations": {"kai.scheduler/topology": "t", "kai.scheduler/topology-required-placement": "r"}}
}
RAY = {
    "spec": {
        "headGroupSpec": {"template": TEMPLATE},
        "workerGroupSpecs": [
            {"groupName": "a", "replicas": 3, "minReplicas": 2, "numOfHosts": 2, "template": TEMPLATE},
            {"groupName": "b", "replicas": 1, "suspend": False},
        ],
    },
    "status": {"rayClusterName": "r", "activeServiceStatus": {"rayClusterName": "r"}},
}
GANG = {
    "metadata": {
        "name": "g",
        "namespace": "ns",
        "uid": "G",
        "labels": {},
        "annotations": {"grove.io/topology-name": "t"},
    },
    "spec": {
        "podgroups": [
            {
                "name": "a",
                "minReplicas": 2,
                "podReferences": [{"namespace": "ns", "name": "p"}],
                "topologyConstraint": {"packConstraint": {"required": "rack"}},
            },
            {"name": "b", "minReplicas": 1, "podReferences": []},
        ],
        "topologyConstraint": {"packConstraint": {"preferred": "zone"}},
        "topologyConstraintGroupConfigs": [{"name": "c", "podGroupNames": ["a", "b"]}],
        "priorityClassName": "build",
    },
}
REVISION = {
    "metadata": {"name": "v", "namespace": "ns", "uid": "V", "annotations": {"autoscaling.knative.dev/min-scale": "2"}}
}
AML = {"spec": {"job": {"options": {"envs": {"AZUREML_NODE_COUNT": 3}}}}}
RUNAI = {"spec": {"parallelism": 2}}

MEMBER = pod(
    labels={
        "ray.io/group": "a",
        "grove.io/podgang": "g",
        "grove.io/podclique": "a",
        "serving.knative.dev/revision": "v",
    }
)
#: kind, API version, the object that describes the group, and its name where that is not the top owner
WORKLOADS: list[tuple[str, str, Raw, ObjectName | None]] = [
    ("RayCluster", "ray.io/v1", RAY, None),
    ("RayJob", "ray.io/v1", RAY, None),
    ("RayJob", "ray.io/v1", RAY, ObjectName("ray.io/v1", "RayCluster", "ns", "r")),
    ("RayService", "ray.io/v1alpha1", RAY, None),
    ("PodCliqueSet", "grove.io/v1alpha1", GANG, ObjectName("scheduler.grove.io/v1alpha1", "PodGang", "ns", "g")),
    ("Service", "serving.knative.dev/v1", REVISION, ObjectName("serving.knative.dev/v1", "Revision", "ns", "v")),
    ("AmlJob", "amlarc.azureml.com/v1alpha1", AML, None),
    ("RunaiJob", "run.ai/v1", RUNAI, None),
]

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-(1 << 70), 1 << 70), st.floats(), st.text(max_size=70)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to everything in a document."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, inner in entries for place in places(inner, (*path, key)))]


@st.composite
def damaged(draw: st.DrawFn, document: Raw) -> Raw:
    """The document with up to three values replaced, doubled or removed."""
    changed: Any = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(places(changed)[1:] or [("spec",)]))
        within = changed
        for key in path[:-1]:
            within = within[key]
        how = draw(st.sampled_from(("replace", "remove", "repeat")))
        if how == "remove":
            within.pop(path[-1], None) if isinstance(within, dict) else within.pop(path[-1])
        elif how == "repeat" and isinstance(within, list):
            within.append(copy.deepcopy(within[path[-1]]))
        else:
            within[path[-1]] = draw(VALUES)
    return dict(changed)


@pytest.mark.parametrize(("kind", "api", "described", "which"), WORKLOADS)
@given(data=st.data())
def test_the_answer_is_a_valid_group_or_a_refusal(
    kind: str, api: str, described: Raw, which: ObjectName | None, data: st.DataObject
) -> None:
    body = data.draw(damaged(described))
    check(kind, api, body, which, MEMBER)


@pytest.mark.parametrize(("kind", "api", "described", "which"), WORKLOADS)
@given(spec=VALUES, status=VALUES)
def test_anything_may_be_in_spec_and_status(
    kind: str, api: str, described: Raw, which: ObjectName | None, spec: Any, status: Any
) -> None:
    check(kind, api, {**described, "spec": spec, "status": status}, which, MEMBER)


def check(kind: str, api: str, body: Raw, which: ObjectName | None, one: Pod) -> None:
    top = owner(kind, "w", "U", api=api, **(RAY if which else body))
    objects: dict[ObjectName, Mapping[str, Any] | None] = {which: body} if which else {}
    for name in () if which else cluster_names(body):
        objects[ObjectName(api, "RayCluster", "ns", name)] = RAY
    readers = RecordedReaders(objects=objects)
    for settings in (GroupingSettings(), GroupingSettings(search_legacy_groups=False)):
        try:
            meta = grouped(one, top, readers=readers, settings=settings)
        except GroupingError:
            continue
        group = new_group(meta)
        assert validate(group).errors == ()
        assert 0 <= group["spec"]["minMember"] < 1 << 31
        assert all(SUB_GROUP_NAME.fullmatch(each["name"]) for each in group["spec"].get("subGroups", ()))
        leaves = {each["name"] for each in group["spec"].get("subGroups", ()) if "minMember" in each}
        assert meta.pod_sub_group in leaves | {""}


def cluster_names(body: Raw) -> list[str]:
    """The names that a damaged status may give its cluster."""
    status = body.get("status")
    if not isinstance(status, dict):
        return []
    found = [status.get("rayClusterName")]
    for key in ("activeServiceStatus", "pendingServiceStatus"):
        inner = status.get(key)
        found.append(inner.get("rayClusterName") if isinstance(inner, dict) else None)
    return [name for name in found if isinstance(name, str)]
