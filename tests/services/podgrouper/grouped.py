"""The pod grouper as tests start it, the workloads it meets, and queries about pods."""

from __future__ import annotations

import asyncio
from typing import Any

from pykai.api.core import Pod
from pykai.kube import resources
from pykai.kube.resources import Resource
from pykai.kube.runtime import Runtime
from pykai.kube.store import Store
from pykai.kube.transport import Request, Response
from pykai.podgrouper.kinds.table import built_in_groupers
from pykai.podgrouper.options import PodGrouperOptions
from pykai.podgrouper.service import PodGrouper, make_podgrouper
from tests.services.servicecluster import Document, RecordingTransport, ServiceCluster

ROLE = "pod-grouper"
QUEUE = "kai.scheduler/queue"
GROUP = "pod-group-name"
WARNING = "PodGrouperWarning"


class Slow(RecordingTransport):
    """Takes as long as a network does, so that workers meet."""

    async def send(self, request: Request) -> Response:
        await asyncio.sleep(0)
        return await super().send(request)


def grouper(**options: Any) -> Any:
    def make(runtime: Runtime) -> PodGrouper:
        return make_podgrouper(runtime, PodGrouperOptions(**options), built_in_groupers())

    return make


def assigned(*pods: str) -> Any:
    def holds(store: Store[Pod]) -> bool:
        found = [store.get(f"default/{name}") for name in pods]
        return all(pod is not None and GROUP in pod.metadata.annotations for pod in found)

    return holds


def group_of(pods: Store[Pod], name: str) -> str:
    found = pods.get(f"default/{name}")
    return found.metadata.annotations.get(GROUP, "") if found is not None else ""


def phase_of(pods: Store[Pod], name: str) -> str:
    found = pods.get(f"default/{name}")
    return found.status.phase if found is not None else ""


async def replicated(
    place: ServiceCluster, resource: Resource, name: str, owners: list[Document] | None = None
) -> Document:
    """A Deployment or a ReplicaSet."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "example"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return await place.create(resource, name, owners=owners or [], spec=spec)


async def cron_job(place: ServiceCluster, name: str, annotations: dict[str, str] | None = None) -> Document:
    containers = [{"name": "main", "image": "example"}]
    template = {"spec": {"restartPolicy": "Never", "containers": containers}}
    spec = {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template}}}
    return await place.create(resources.CRON_JOBS, name, annotations=annotations or {}, spec=spec)


def definition(group: str, version: str, plural: str, kind: str, scope: str = "Namespaced") -> Document:
    """A kind whose objects may hold anything, as a foreign operator would install it."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"plural": plural, "kind": kind, "singular": kind.lower()},
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }


def permission(group: str, plural: str) -> list[Document]:
    """What an administrator installs so that the pod grouper may read an unknown kind."""
    name, rbac = f"{plural}-for-kai", "rbac.authorization.k8s.io"
    return [
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": [{"apiGroups": [group], "resources": [plural], "verbs": ["get"]}],
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": ROLE, "namespace": "kai-scheduler"}],
        },
    ]


async def sweep(place: ServiceCluster) -> Document:
    """An object of an unknown kind, which the grouper may read."""
    group, plural = "example.com", "sweeps"
    await place.ensure(definition(group, "v1", plural, "Sweep"), *permission(group, plural))
    return await place.create(Resource(group, "v1", plural, "Sweep", True), "s")
