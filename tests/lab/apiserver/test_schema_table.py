"""The checked-in table of built-in types, and the schemas made from it and from CRDs."""

import json
from importlib import resources
from typing import Any

import pytest

from pykai.lab.apiserver.schema.model import SchemaNode
from pykai.lab.apiserver.schema.table import builtin_kinds, builtin_schema, crd_schema, struct_schema, table_entries

TEXT = resources.files("pykai.lab.apiserver.schema").joinpath("builtin.json").read_text()
TABLE: dict[str, Any] = json.loads(TEXT)
#: not in the checked-in table: a struct of a later release
LATER = "core.v1.PodSchedulingGroup"
SCALARS = frozenset(
    ["string", "boolean", "int32", "int64", "double", "bytes", "quantity", "intorstring", "time", "microtime"]
    + ["duration", "any", "schema-or-array", "schema-or-boolean", "schema-or-strings"]
)
#: The kinds a cluster of ours needs, by apiVersion.
NEEDED = {
    "v1": "Pod Node Namespace ConfigMap Secret Service ServiceAccount PersistentVolume PersistentVolumeClaim Event "
    "Binding",
    "apps/v1": "Deployment ReplicaSet StatefulSet ControllerRevision",
    "batch/v1": "Job CronJob",
    "coordination.k8s.io/v1": "Lease",
    "node.k8s.io/v1": "RuntimeClass",
    "scheduling.k8s.io/v1": "PriorityClass",
    "resource.k8s.io/v1": "ResourceClaim ResourceClaimTemplate ResourceSlice DeviceClass",
    "storage.k8s.io/v1": "StorageClass CSINode CSIDriver CSIStorageCapacity",
    "policy/v1": "PodDisruptionBudget Eviction",
    "admissionregistration.k8s.io/v1": "MutatingWebhookConfiguration ValidatingWebhookConfiguration",
    "authorization.k8s.io/v1": "SelfSubjectAccessReview SelfSubjectRulesReview",
    "authentication.k8s.io/v1": "SelfSubjectReview",
    "autoscaling/v1": "Scale",
    "apiextensions.k8s.io/v1": "CustomResourceDefinition",
    "rbac.authorization.k8s.io/v1": "Role RoleBinding ClusterRole ClusterRoleBinding",
    "meta.k8s.io/v1": "DeleteOptions Status",
}


def innermost(written: str) -> str:
    while written[:2] in ("[]", "{}", "<>"):
        written = written[2:]
    return written


@pytest.mark.parametrize("api_version", NEEDED)
def test_every_needed_kind_is_there(api_version: str) -> None:
    group, _, version = api_version.rpartition("/")
    for kind in NEEDED[api_version].split():
        schema = builtin_schema(group, version, kind)
        assert schema is not None, kind
        assert schema.fields


def test_references_and_types_of_the_table_resolve() -> None:
    table = TABLE["definitions"]
    for name, entry in table.items():
        for field, facts in entry["fields"].items():
            written = innermost(facts["t"])
            assert written in SCALARS or (written.startswith("#") and written[1:] in table), f"{name}.{field}"
        for _, inner in entry.get("inline", ()):
            assert inner in table, name
        for field in entry.get("essential", ()):
            assert field in struct_schema(name).fields, f"{name}.{field}"
    assert set(builtin_kinds().values()) <= set(table)


def test_nothing_in_the_table_is_out_of_reach() -> None:
    assert set(table_entries(builtin_kinds().values())) == {*TABLE["definitions"], LATER}


def test_merge_keys_are_fields_of_the_elements() -> None:
    for name in TABLE["definitions"]:
        for field, schema in struct_schema(name).fields.items():
            keys = {*schema.keys, *([schema.patch_key] if schema.patch_key else [])}
            if keys:
                assert schema.items is not None, f"{name}.{field}"
                assert keys <= schema.items.fields.keys(), f"{name}.{field}"
            assert schema.list_type in ("atomic", "set", "map")
            assert (schema.list_type == "map") == bool(schema.keys), f"{name}.{field}"


def test_protobuf_numbers_are_unique_and_lead_to_fields() -> None:
    for name, entry in TABLE["definitions"].items():
        numbers = [facts["n"] for facts in entry["fields"].values() if "n" in facts]
        numbers += [number for number, _ in entry.get("inline", ()) if number]
        assert len(numbers) == len(set(numbers)), name


def test_the_file_is_in_canonical_form() -> None:
    def line(value: Any) -> str:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    lines = TEXT.splitlines()
    assert len(lines) == len(TABLE["definitions"]) + 4
    for text, name in zip(lines[3:-1], sorted(TABLE["definitions"]), strict=True):
        assert text.removesuffix(",") == f"{line(name)}:{line(TABLE['definitions'][name])}"


def test_a_pod_as_the_table_knows_it() -> None:
    pod = builtin_schema("", "v1", "Pod")
    assert pod is not None
    spec = pod.fields["spec"]
    containers = spec.fields["containers"]
    assert (containers.list_type, containers.keys, containers.patch_key) == ("map", ("name",), "name")
    assert spec.fields["tolerations"].list_type == "atomic"
    assert spec.fields["volumes"].patch == "merge,retainKeys"
    assert spec.fields["nodeSelector"].atomic
    assert spec.defaults["restartPolicy"] == "Always"
    ports = containers.items.fields["ports"] if containers.items is not None else None
    assert ports is not None
    assert ports.keys == ("containerPort", "protocol")
    assert ports.patch_key == "containerPort"
    # Fields of an inlined struct stand among the others.
    volume = spec.fields["volumes"].items
    assert volume is not None
    assert {"name", "configMap", "emptyDir"} <= volume.fields.keys()


def test_unknown_kinds_have_no_schema() -> None:
    assert builtin_schema("", "v1", "Queue") is None
    assert builtin_schema("apps", "v1beta1", "Deployment") is None


def test_a_schema_may_hold_itself() -> None:
    props = struct_schema("apiextensions.v1.JSONSchemaProps")
    assert props.fields["properties"].values is props
    assert props.fields["not"] is props


def test_a_crd_schema() -> None:
    schema = crd_schema(
        {
            "type": "object",
            "properties": {
                "spec": {
                    "type": "object",
                    "properties": {
                        "size": {"x-kubernetes-int-or-string": True},
                        "names": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                        "rows": {
                            "type": "array",
                            "items": {"type": "object", "properties": {"id": {"type": "string"}}},
                            "x-kubernetes-list-type": "map",
                            "x-kubernetes-list-map-keys": ["id"],
                        },
                        "plain": {"type": "array", "items": {"type": "string"}},
                        "raw": {"type": "object", "x-kubernetes-map-type": "atomic"},
                    },
                }
            },
        }
    )
    spec = schema.fields["spec"].fields
    assert spec["size"].format == "int-or-string"
    assert spec["names"].list_type == "set"
    assert spec["rows"].keys == ("id",)
    assert spec["plain"].list_type == "atomic"
    assert spec["raw"].atomic
    assert schema.fields["metadata"] is struct_schema("meta.v1.ObjectMeta")
    assert not schema.builtin


def test_a_crd_without_a_schema_knows_nothing_and_keeps_all() -> None:
    schema = crd_schema(None)
    assert isinstance(schema, SchemaNode)
    assert schema.preserves_unknown


def test_equal_sources_share_a_schema_that_later_changes_do_not_reach() -> None:
    source: dict[str, Any] = {"type": "object", "properties": {"spec": {"type": "object", "properties": {}}}}
    first = crd_schema(source)
    assert crd_schema(json.loads(json.dumps(source))) is first
    source["properties"]["spec"]["properties"]["size"] = {"type": "integer"}
    assert crd_schema(source).fields["spec"].fields.keys() == {"size"}
    assert not first.fields["spec"].fields


def test_pods_keep_both_forms_of_gangs() -> None:
    """workloads:NW-2, NW-3: that of the table's release, and that of later ones."""
    fields = struct_schema("core.v1.PodSpec").fields
    assert fields["workloadRef"].fields.keys() == {"name", "podGroup", "podGroupReplicaKey"}
    assert fields["schedulingGroup"].fields.keys() == {"podGroupName"}
