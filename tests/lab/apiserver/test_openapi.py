"""The OpenAPI documents: what kubectl looks for in them."""

from dataclasses import dataclass
from typing import Any

from pykai.lab.apiserver.openapi import group_version_document, index_document
from pykai.lab.apiserver.schema.model import SchemaNode
from pykai.lab.apiserver.schema.table import builtin_kinds, crd_schema


@dataclass(frozen=True)
class Served:
    kind: str
    plural: str
    namespaced: bool = True
    status: bool = True
    schema: SchemaNode | None = None


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        found = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return found.union(*(references(inner) for inner in value.values()))
    return set().union(*(references(inner) for inner in value)) if isinstance(value, list) else set()


def test_every_reference_resolves() -> None:
    for api_version in {name.rpartition("/")[0] for name in builtin_kinds()}:
        group, _, version = api_version.rpartition("/")
        names = [name.rpartition("/")[2] for name in builtin_kinds() if name.rpartition("/")[0] == api_version]
        made = group_version_document(group, version, [Served(name, name.lower() + "s") for name in names])
        schemas = made["components"]["schemas"]
        missing = {name for name in references(made) if name.removeprefix("#/components/schemas/") not in schemas}
        assert not missing


def test_patch_lists_what_kubectl_apply_asks_for() -> None:
    made = group_version_document("apps", "v1", [Served("Deployment", "deployments")])
    patch = made["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"]
    assert {"dryRun", "fieldManager", "fieldValidation", "force"} == {one["name"] for one in patch["parameters"]}
    assert patch["x-kubernetes-group-version-kind"] == {"group": "apps", "version": "v1", "kind": "Deployment"}
    assert "application/strategic-merge-patch+json" in patch["requestBody"]["content"]
    assert "patch" in made["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}/status"]


def test_a_built_in_schema() -> None:
    made = group_version_document("", "v1", [Served("Pod", "pods"), Served("Node", "nodes", namespaced=False)])
    schemas = made["components"]["schemas"]
    pod = schemas["io.k8s.api.core.v1.Pod"]
    assert pod["x-kubernetes-group-version-kind"] == [{"group": "", "version": "v1", "kind": "Pod"}]
    containers = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert containers == {
        "type": "array",
        "items": {"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"},
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "x-kubernetes-patch-strategy": "merge",
        "x-kubernetes-patch-merge-key": "name",
    }
    assert schemas["io.k8s.api.core.v1.PodSpec"]["required"] == ["containers"]
    assert "configMap" in schemas["io.k8s.api.core.v1.Volume"]["properties"]
    assert "/api/v1/nodes/{name}" in made["paths"]
    assert "/api/v1/pods" in made["paths"]


def test_a_custom_kind() -> None:
    source = {"type": "object", "properties": {"spec": {"type": "object", "description": "What is wanted."}}}
    queue = Served("Queue", "queues", namespaced=False, status=False, schema=crd_schema(source))
    made = group_version_document("scheduling.run.ai", "v2", [queue])
    schema = made["components"]["schemas"]["ai.run.scheduling.v2.Queue"]
    assert schema["properties"]["spec"]["description"] == "What is wanted."
    assert schema["properties"]["metadata"] == {
        "allOf": [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}]
    }
    item = made["paths"]["/apis/scheduling.run.ai/v2/queues/{name}"]
    assert "application/strategic-merge-patch+json" not in item["patch"]["requestBody"]["content"]
    assert "/apis/scheduling.run.ai/v2/queues/{name}/status" not in made["paths"]


def test_the_root_points_at_the_documents() -> None:
    made = index_document(["api/v1", "apis/apps/v1"])
    assert made["paths"]["api/v1"]["serverRelativeURL"].startswith("/openapi/v3/api/v1?hash=")
    assert made != index_document(["api/v1", "apis/apps/v1"], {"api/v1": "changed"})
    assert made == index_document(["api/v1", "apis/apps/v1"])
