"""JSON patch, merge patch and strategic merge patch."""

import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pykai.lab.apiserver.patches import PatchError, json_patch, merge_patch, strategic_patch
from pykai.lab.apiserver.schema.table import builtin_schema, crd_schema

DEPLOYMENT = builtin_schema("apps", "v1", "Deployment")


def pod_with(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": list(containers), **spec}}


def patched_pod(obj: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    before = copy.deepcopy(obj)
    result: dict[str, Any] = strategic_patch(builtin_schema("", "v1", "Pod"), obj, patch)["spec"]
    assert obj == before
    return result


def names(elements: list[dict[str, Any]]) -> list[str]:
    return [element["name"] for element in elements]


# JSON patch

DOCUMENT = {"a": {"b": [1, 2, 3]}, "c/d": {"~": "x"}}


@pytest.mark.parametrize(
    ("operation", "result"),
    [
        ({"op": "add", "path": "/a/x", "value": None}, {"a": {"b": [1, 2, 3], "x": None}, "c/d": {"~": "x"}}),
        ({"op": "add", "path": "/a/b/1", "value": 9}, {"a": {"b": [1, 9, 2, 3]}, "c/d": {"~": "x"}}),
        ({"op": "add", "path": "/a/b/-", "value": 9}, {"a": {"b": [1, 2, 3, 9]}, "c/d": {"~": "x"}}),
        ({"op": "add", "path": "/a/b/3", "value": 9}, {"a": {"b": [1, 2, 3, 9]}, "c/d": {"~": "x"}}),
        ({"op": "remove", "path": "/a/b/0"}, {"a": {"b": [2, 3]}, "c/d": {"~": "x"}}),
        ({"op": "remove", "path": "/c~1d/~0"}, {"a": {"b": [1, 2, 3]}, "c/d": {}}),
        ({"op": "replace", "path": "/a/b", "value": []}, {"a": {"b": []}, "c/d": {"~": "x"}}),
        ({"op": "replace", "path": "/n", "value": 1}, {"a": {"b": [1, 2, 3]}, "c/d": {"~": "x"}, "n": 1}),
        ({"op": "move", "path": "/b", "from": "/a/b"}, {"a": {}, "b": [1, 2, 3], "c/d": {"~": "x"}}),
        ({"op": "copy", "path": "/b", "from": "/a/b/2"}, {"a": {"b": [1, 2, 3]}, "b": 3, "c/d": {"~": "x"}}),
        ({"op": "test", "path": "/a/b", "value": [1, 2.0, 3]}, DOCUMENT),
        ({"op": "test", "path": "/none", "value": None}, DOCUMENT),
    ],
)
def test_json_patch_operations(operation: dict[str, Any], result: dict[str, Any]) -> None:
    before = copy.deepcopy(DOCUMENT)
    assert json_patch(DOCUMENT, [operation]) == result
    assert before == DOCUMENT


@pytest.mark.parametrize(
    ("operation", "code", "words"),
    [
        ({"op": "test", "path": "/a/b/0", "value": True}, 422, "testing value /a/b/0 failed: test failed"),
        ({"op": "test", "path": "/none/x", "value": 1}, 422, "testing path /none/x failed"),
        ({"op": "remove", "path": "/none"}, 422, "remove operation does not apply: doc is missing path: /none"),
        ({"op": "replace", "path": "/none/x", "value": 1}, 422, "replace operation does not apply"),
        ({"op": "add", "path": "/none/x", "value": 1}, 422, "add operation does not apply"),
        ({"op": "add", "path": "/a/b/4", "value": 1}, 422, "out of bounds"),
        ({"op": "add", "path": "/a/b/01", "value": 1}, 422, "is not an index"),
        ({"op": "move", "path": "/a/b/0", "from": "/a/b"}, 422, "lies within"),
        ({"op": "remove", "path": ""}, 422, "cannot be removed"),
        ({"op": "replace", "path": "", "value": []}, 422, "is not an object"),
        ({"op": "add", "path": "/x"}, 400, "has no value"),
        ({"op": "copy", "path": "/x"}, 400, "has no from"),
        ({"op": "add", "path": "x", "value": 1}, 400, "does not start with a slash"),
        ({"op": "grow", "path": "/x"}, 400, "unexpected kind"),
        ({"op": "add"}, 400, "op and path"),
    ],
)
def test_json_patch_refusals(operation: dict[str, Any], code: int, words: str) -> None:
    with pytest.raises(PatchError, match=words) as refused:
        json_patch(DOCUMENT, [operation])
    assert refused.value.code == code


def test_what_a_json_patch_does_not_touch_is_shared() -> None:
    result = json_patch(DOCUMENT, [{"op": "replace", "path": "/c~1d/~0", "value": "y"}])
    assert result["a"] is DOCUMENT["a"]


def test_a_json_patch_cannot_blow_up_the_object() -> None:
    doubling = [{"op": "copy", "from": "/a", "path": f"/a/{place}"} for place in range(64)]
    with pytest.raises(PatchError, match="too large"):
        json_patch({"a": {"x": 1}}, doubling)
    with pytest.raises(PatchError, match="maximum operations"):
        json_patch({}, [{"op": "add", "path": "/a", "value": 1}] * 10_001)


# Merge patch: the examples of RFC 7386, appendix A


@pytest.mark.parametrize(
    ("original", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch(original: Any, patch: Any, result: Any) -> None:
    before = copy.deepcopy(original)
    assert merge_patch(original, patch) == result
    assert original == before


#: A machine that is busy with other things is no reason to fail.
patient = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=10,
)
objects = st.dictionaries(st.sampled_from("abc"), json_values, max_size=3)


@patient
@given(original=objects, patch=objects)
def test_a_merge_patch_applied_twice_is_one_applied_once(original: Any, patch: Any) -> None:
    once = merge_patch(original, patch)
    assert merge_patch(once, patch) == once


@patient
@given(original=objects, value=json_values)
def test_json_patch_add_then_test(original: dict[str, Any], value: Any) -> None:
    operations = [{"op": "add", "path": "/z", "value": value}, {"op": "test", "path": "/z", "value": value}]
    assert json_patch(original, operations) == {**original, "z": value}


# Strategic merge patch


def test_elements_merge_by_their_key() -> None:
    pod = pod_with({"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "1"})
    patch = pod_with({"name": "a", "image": "2", "env": [{"name": "Y", "value": "2"}]})
    first, second = patched_pod(pod, patch)["containers"]
    assert first == {
        "name": "a",
        "image": "2",
        "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}],
    }
    assert second is pod["spec"]["containers"][1]


def test_a_new_element_comes_first() -> None:
    spec = patched_pod(pod_with({"name": "a"}, {"name": "b"}), pod_with({"name": "c"}))
    assert names(spec["containers"]) == ["c", "a", "b"]


def test_set_element_order_orders_the_merged_list() -> None:
    patch = pod_with(
        {"name": "c", "image": "x"},
        **{"$setElementOrder/containers": [{"name": "b"}, {"name": "c"}, {"name": "a"}]},
    )
    spec = patched_pod(pod_with({"name": "a"}, {"name": "b"}, {"name": "own"}), patch)
    assert names(spec["containers"]) == ["b", "c", "a", "own"]
    assert "$setElementOrder/containers" not in spec


def test_set_element_order_alone_reorders() -> None:
    spec = patched_pod(
        pod_with({"name": "a"}, {"name": "b"}),
        {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}},
    )
    assert names(spec["containers"]) == ["b", "a"]


def test_what_only_the_server_knows_keeps_its_place() -> None:
    patch = pod_with({"name": "b", "image": "2"}, **{"$setElementOrder/containers": [{"name": "a"}, {"name": "b"}]})
    spec = patched_pod(pod_with({"name": "injected"}, {"name": "a"}, {"name": "b"}), patch)
    assert names(spec["containers"]) == ["injected", "a", "b"]


def test_patch_delete_removes_an_element() -> None:
    spec = patched_pod(pod_with({"name": "a"}, {"name": "b"}), pod_with({"name": "a", "$patch": "delete"}))
    assert names(spec["containers"]) == ["b"]


def test_patch_replace_replaces_a_list_or_an_object() -> None:
    spec = patched_pod(pod_with({"name": "a"}), pod_with({"name": "z"}, {"$patch": "replace"}))
    assert names(spec["containers"]) == ["z"]
    spec = patched_pod(pod_with(nodeSelector={"a": "b"}), {"spec": {"nodeSelector": {"c": "d", "$patch": "replace"}}})
    assert spec["nodeSelector"] == {"c": "d"}
    assert patched_pod(pod_with(nodeSelector={"a": "b"}), {"spec": {"$patch": "delete"}}) == {}


def test_retain_keys_drops_the_other_sources_of_a_volume() -> None:
    pod = pod_with(volumes=[{"name": "v", "emptyDir": {}}])
    patch = {"spec": {"volumes": [{"name": "v", "configMap": {"name": "c"}, "$retainKeys": ["name", "configMap"]}]}}
    assert patched_pod(pod, patch)["volumes"] == [{"name": "v", "configMap": {"name": "c"}}]
    with pytest.raises(PatchError, match="doesn't contain configMap"):
        patched_pod(pod, {"spec": {"volumes": [{"name": "v", "configMap": {}, "$retainKeys": ["name"]}]}})


def test_lists_of_scalars_merge_as_sets_and_can_lose_values() -> None:
    obj = {"metadata": {"finalizers": ["a", "b"]}}
    merged = strategic_patch(DEPLOYMENT, obj, {"metadata": {"finalizers": ["c", "a"]}})
    assert merged["metadata"]["finalizers"] == ["c", "a", "b"]
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}
    assert strategic_patch(DEPLOYMENT, obj, patch)["metadata"]["finalizers"] == ["b"]


def test_lists_without_a_strategy_are_replaced() -> None:
    pod = pod_with({"name": "a", "command": ["x", "y"]}, tolerations=[{"key": "a"}])
    spec = patched_pod(pod, pod_with({"name": "a", "command": ["z"]}, tolerations=[{"key": "b"}]))
    assert spec["containers"][0]["command"] == ["z"]
    assert spec["tolerations"] == [{"key": "b"}]


def test_null_removes_and_is_dropped_where_nothing_is() -> None:
    spec = patched_pod(pod_with({"name": "a", "image": "x"}), pod_with({"name": "a", "image": None}, nodeName=None))
    assert spec == {"containers": [{"name": "a"}]}
    spec = patched_pod({"spec": {}}, {"spec": {"affinity": {"nodeAffinity": None, "podAffinity": {}}}})
    assert spec == {"affinity": {"podAffinity": {}}}


def test_labels_merge() -> None:
    obj = {"metadata": {"labels": {"a": "1", "b": "2"}}}
    result = strategic_patch(DEPLOYMENT, obj, {"metadata": {"labels": {"a": None, "c": "3"}}})
    assert result["metadata"]["labels"] == {"b": "2", "c": "3"}


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        (pod_with({"image": "x"}), "does not contain declared merge key: name"),
        ({"spec": {"containers": ["x"]}}, "holds objects"),
        ({"spec": {"$patch": "turn"}}, "unknown patch type: turn"),
        ({"metadata": {"finalizers": [{}]}}, "holds scalars"),
        ({"spec": {"$retainKeys": "x"}}, "list of names"),
        ({"metadata": {"$deleteFromPrimitiveList/finalizers": "x"}}, "is a list"),
    ],
)
def test_strategic_refusals(patch: dict[str, Any], words: str) -> None:
    with pytest.raises(PatchError, match=words):
        strategic_patch(builtin_schema("", "v1", "Pod"), pod_with({"name": "a"}), patch)


def test_custom_kinds_take_no_strategic_patch() -> None:
    custom = crd_schema({"type": "object"})
    for schema in (custom, None):
        with pytest.raises(PatchError, match="unknown format") as refused:
            strategic_patch(schema, {}, {})
        assert refused.value.code == 415


def test_a_field_may_be_called_like_a_reference() -> None:
    crd = builtin_schema("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
    patch = {"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"$ref": "x"}}}]}}
    assert json.dumps(patch) == json.dumps(strategic_patch(crd, {}, patch))
