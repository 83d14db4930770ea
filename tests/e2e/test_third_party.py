"""integrations/third_party (operations:17): kinds that the pod grouper does not know, and such as a Karta describes."""

from __future__ import annotations

from typing import Any

from pykai.api import names
from pykai.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, KARTAS, POD_GROUPS, PODS, Resource
from tests.cluster.rights import REFUSED_GROUP
from tests.e2e.endtoend import NAMESPACE, Document, EndToEnd, template
from tests.e2e.shards import has_operator, roll_out
from tests.lab.operators.test_families import create_when_served
from tests.podgrouper.kartas import component, karta_spec
from tests.services.podgrouper.grouped import definition, permission

UNKNOWN = Resource(REFUSED_GROUP, "v1", "testcrds", "TestCrd", True)
CUSTOM_JOBS = Resource("e2e.example.com", "v1", "customjobs", "CustomJob", True)
CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False)
CLUSTER_ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False)
ROLE_LABEL = "e2e.example.com/role"


async def define(e2e: EndToEnd, kind: Resource) -> None:
    """The definition of a foreign kind; it goes with the spec, and its objects with it."""
    await e2e.add(CUSTOM_RESOURCE_DEFINITIONS, definition(kind.group, kind.version, kind.plural, kind.kind))


async def create(e2e: EndToEnd, kind: Resource, name: str, queue: str, **spec: Any) -> Document:
    """A workload of a foreign kind."""
    made: Document = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, "labels": {names.QUEUE_LABEL: queue}},
        "spec": spec,
    }
    await create_when_served(e2e.client, kind, made, NAMESPACE)
    return await e2e.client.get_raw(kind, name, NAMESPACE)


def owner_of(kind: Resource, owner: Document) -> Document:
    """As upstream's pods name their owner."""
    metadata = owner["metadata"]
    return {"apiVersion": kind.api_version, "kind": kind.kind, "name": metadata["name"], "uid": metadata["uid"]}


async def owned(e2e: EndToEnd, queue: str, name: str, by: Document, **labels: str) -> str:
    """A pod of a workload."""
    made = template(queue, labels=labels)
    metadata = {**made["metadata"], "name": name, "ownerReferences": [by]}
    await e2e.client.create(PODS, {**made, "metadata": metadata}, NAMESPACE)
    return name


async def test_pods_of_an_unknown_kind_get_a_group(e2e: EndToEnd) -> None:
    (queue,) = await e2e.family("generic")
    await define(e2e, UNKNOWN)
    workload = await create(e2e, UNKNOWN, "workload", queue)
    pod = await owned(e2e, queue, "pod", owner_of(UNKNOWN, workload))
    await e2e.scheduled(pod)
    (group,) = e2e.stores[POD_GROUPS].values()
    assert group["metadata"]["name"] == e2e.group_of(pod)


async def test_a_karta_says_how_a_kind_is_grouped(e2e: EndToEnd) -> None:
    (queue,) = await e2e.family("karta")
    await define(e2e, CUSTOM_JOBS)
    role, binding = permission(CUSTOM_JOBS.group, CUSTOM_JOBS.plural)
    await e2e.add(CLUSTER_ROLES, role)
    await e2e.add(CLUSTER_ROLE_BINDINGS, binding)
    if await has_operator(e2e):
        await roll_out(e2e, "pod-grouper")
    await e2e.add(KARTAS, described_jobs())
    job = await create(e2e, CUSTOM_JOBS, "custom-job", queue, coordinator=component_of(1), worker=component_of(2))
    by = owner_of(CUSTOM_JOBS, job)
    pods = [
        await owned(e2e, queue, f"custom-job-{role}-{number}", by, **{ROLE_LABEL: role})
        for role, count in (("coordinator", 1), ("worker", 2))
        for number in range(count)
    ]
    await e2e.scheduled(*pods)
    name = f"pg-{job['metadata']['uid']}-customjob"
    group = await e2e.client.get_raw(POD_GROUPS, name, NAMESPACE)
    spec = group["spec"]
    assert (spec.get("minMember"), spec["minSubGroup"], spec["queue"]) == (None, 2, queue)
    subgroups = {each["name"]: each["minMember"] for each in spec["subGroups"]}
    assert subgroups == {"coordinator": 1, "worker": 2}
    assert group["metadata"]["ownerReferences"] == [by]
    for pod in e2e.there(pods):
        labels = pod["metadata"]["labels"]
        assert pod["metadata"]["annotations"][names.POD_GROUP_ANNOTATION] == name
        assert labels[names.SUBGROUP_LABEL] == labels[ROLE_LABEL]


def component_of(replicas: int) -> Document:
    """A part of a CustomJob."""
    return {"replicas": replicas, "template": {"spec": {}}}


def described_jobs() -> Document:
    """What says how CustomJobs are built: each of two components is a subgroup."""
    parts = [
        component(
            name,
            f".spec.{name}.replicas",
            below="customjob",
            specDefinition={"podTemplateSpecPath": f".spec.{name}.template"},
            podSelector={
                "componentTypeSelector": {"keyPath": f'.metadata.labels["{ROLE_LABEL}"]', "value": name},
            },
        )
        for name in ("coordinator", "worker")
    ]
    kind = {"group": CUSTOM_JOBS.group, "version": CUSTOM_JOBS.version, "kind": CUSTOM_JOBS.kind}
    top = {"name": "customjob", "kind": kind, "statusDefinition": {"statusMappings": {}}}
    gang = {"name": "customjob", "subGroups": [{"componentName": name} for name in ("coordinator", "worker")]}
    labels = {f"run.ai/karta-{part}": value for part, value in kind.items()}
    return {
        "apiVersion": KARTAS.api_version,
        "kind": KARTAS.kind,
        "metadata": {"name": "e2e-example-com-v1-customjob", "labels": labels},
        "spec": karta_spec(*parts, top=top, podGroup=gang),
    }
