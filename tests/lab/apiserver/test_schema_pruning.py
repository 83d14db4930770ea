"""Unknown fields go, and are named."""

import copy
from typing import Any

from pykai.lab.apiserver.schema.model import SchemaNode
from pykai.lab.apiserver.schema.table import builtin_schema, crd_schema
from pykai.lab.apiserver.schema.validation import prune


def pod() -> SchemaNode:
    schema = builtin_schema("", "v1", "Pod")
    assert schema is not None
    return schema


def crd(spec: dict[str, Any]) -> SchemaNode:
    return crd_schema({"type": "object", "properties": {"spec": spec}})


def test_unknown_fields_of_a_pod() -> None:
    obj = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "labels": {"any": "thing"}, "clusterName": "x"},
        "spec": {"containers": [{"name": "c"}, {"name": "d", "imagine": 1}], "nodes": []},
        "speck": {},
    }
    before = copy.deepcopy(obj)
    result, unknown = prune(pod(), obj)
    assert sorted(unknown) == ["metadata.clusterName", "spec.containers[1].imagine", "spec.nodes", "speck"]
    assert result["spec"] == {"containers": [{"name": "c"}, {"name": "d"}]}
    assert result["metadata"] == {"name": "a", "labels": {"any": "thing"}}
    assert obj == before
    again, nothing = prune(pod(), result)
    assert again is result
    assert not nothing


def test_an_object_in_order_comes_back_itself() -> None:
    obj = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "env": [{"name": "A"}]}]}}
    result, unknown = prune(pod(), obj)
    assert result is obj
    assert unknown == []


def test_nulls_of_built_in_kinds_go_without_a_word() -> None:
    result, unknown = prune(pod(), {"metadata": {"creationTimestamp": None}, "spec": {"containers": [{"env": None}]}})
    assert result == {"metadata": {}, "spec": {"containers": [{}]}}
    assert unknown == []


def test_raw_json_is_left_alone() -> None:
    schema = builtin_schema("apps", "v1", "ControllerRevision")
    assert schema is not None
    obj = {"data": {"spec": {"anything": [None, {"a": None}]}}, "revision": 1}
    assert prune(schema, obj) == (obj, [])


def test_a_crd() -> None:
    schema = crd(
        {
            "type": "object",
            "properties": {
                "rows": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
                "by": {
                    "type": "object",
                    "additionalProperties": {"type": "object", "properties": {"a": {"type": "string"}}},
                },
                "bare": {"type": "object"},
            },
        }
    )
    obj = {
        "apiVersion": "x/v1",
        "kind": "X",
        "metadata": {"name": "n", "annotations": {"a": "b"}},
        "spec": {"rows": [{"a": "", "b": 1}], "by": {"k": {"c": 1}}, "bare": {"d": 1}},
        "status": {"e": 1},
    }
    result, unknown = prune(schema, obj)
    assert result == {
        "apiVersion": "x/v1",
        "kind": "X",
        "metadata": {"name": "n", "annotations": {"a": "b"}},
        "spec": {"rows": [{"a": ""}], "by": {"k": {}}, "bare": {}},
    }
    assert sorted(unknown) == ["spec.bare.d", "spec.by.k.c", "spec.rows[0].b", "status"]


def test_fields_may_be_kept_unknown() -> None:
    schema = crd(
        {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {"known": {"type": "object", "properties": {"a": {"type": "string"}}}},
        }
    )
    obj = {"spec": {"free": {"x": [{"y": None}]}, "known": {"a": "", "b": ""}}}
    result, unknown = prune(schema, obj)
    assert result == {"spec": {"free": {"x": [{"y": None}]}, "known": {"a": ""}}}
    assert unknown == ["spec.known.b"]


def test_an_embedded_resource_keeps_its_identity() -> None:
    schema = crd(
        {
            "type": "object",
            "properties": {
                "template": {
                    "type": "object",
                    "x-kubernetes-embedded-resource": True,
                    "properties": {"data": {"type": "string"}},
                }
            },
        }
    )
    template = {"apiVersion": "v1", "kind": "X", "metadata": {"name": "a", "what": 1}, "data": "", "other": 1}
    result, unknown = prune(schema, {"spec": {"template": template}})
    assert result["spec"]["template"] == {"apiVersion": "v1", "kind": "X", "metadata": {"name": "a"}, "data": ""}
    assert sorted(unknown) == ["spec.template.metadata.what", "spec.template.other"]


def test_a_map_of_anything() -> None:
    schema = crd({"type": "object", "additionalProperties": True})
    obj = {"spec": {"a": {"b": [1]}}}
    assert prune(schema, obj) == (obj, [])
