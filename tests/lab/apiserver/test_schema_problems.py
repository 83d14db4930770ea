"""What is wrong with an object, in the words of a real API server."""

from typing import Any

import pytest

from pykai.api.crds import custom_resource_definitions
from pykai.lab.apiserver.schema.checks import go_pattern
from pykai.lab.apiserver.schema.table import builtin_schema, crd_schema
from pykai.lab.apiserver.schema.validation import summarise_problems, validate, validate_transition


def wrong(spec: dict[str, Any], value: Any) -> list[str]:
    """Problems of an object whose spec has a field `x` of this schema and value."""
    schema = crd_schema({"type": "object", "properties": {"spec": {"type": "object", "properties": {"x": spec}}}})
    return [str(problem) for problem in validate(schema, {"metadata": {"name": "a"}, "spec": {"x": value}})]


def wrong_pod(**spec: Any) -> list[str]:
    schema = builtin_schema("", "v1", "Pod")
    assert schema is not None
    container = {"name": "c", "image": "i"}
    return [str(problem) for problem in validate(schema, {"spec": {"containers": [container], **spec}})]


@pytest.mark.parametrize(
    ("schema", "good", "bad", "text"),
    [
        (
            {"type": "integer", "minimum": 0},
            [0, 1, 2.0],
            -1,
            "Invalid value: -1: spec.x in body should be greater than or equal to 0",
        ),
        (
            {"type": "number", "minimum": 0, "exclusiveMinimum": True},
            [0.1],
            0,
            "Invalid value: 0: spec.x in body should be greater than 0",
        ),
        (
            {"type": "integer", "maximum": 5},
            [5, -9],
            6,
            "Invalid value: 6: spec.x in body should be less than or equal to 5",
        ),
        (
            {"type": "number", "maximum": 1.5, "exclusiveMaximum": True},
            [1.4],
            1.5,
            "Invalid value: 1.5: spec.x in body should be less than 1.5",
        ),
        (
            {"type": "number", "multipleOf": 0.1},
            [0.3, 1],
            0.25,
            "Invalid value: 0.25: spec.x in body should be a multiple of 0.1",
        ),
        (
            {"type": "integer", "format": "int32"},
            [2147483647],
            2147483648,
            "Invalid value: 2147483648: spec.x in body must be of type int32",
        ),
        (
            {"type": "string", "minLength": 2},
            ["ab", "äö"],
            "a",
            'Invalid value: "a": spec.x in body should be at least 2 chars long',
        ),
        ({"type": "string", "maxLength": 2}, ["", "äö"], "abc", "Too long: may not be more than 2 bytes"),
        (
            {"type": "string", "pattern": "^[a-z]+$"},
            ["abc"],
            "abc\n",
            "Invalid value: \"abc\\n\": spec.x in body should match '^[a-z]+$'",
        ),
        (
            {"type": "string", "enum": ["a", "b"]},
            ["a"],
            "c",
            'Unsupported value: "c": supported values: "a", "b"',
        ),
        ({"type": "integer", "enum": [1, 2]}, [1, 2.0], 3, "Unsupported value: 3: supported values: 1, 2"),
        (
            {"type": "string", "format": "date-time"},
            ["2026-01-01T00:00:00Z"],
            "today",
            'Invalid value: "today": spec.x in body must be of type date-time: "today"',
        ),
        (
            {"type": "string", "format": "duration"},
            ["5m"],
            "5 minutes",
            'Invalid value: "5 minutes": spec.x in body must be of type duration: "5 minutes"',
        ),
        (
            {"type": "string", "format": "ipv4"},
            ["10.0.0.1"],
            "10.0.0.256",
            'Invalid value: "10.0.0.256": spec.x in body must be of type ipv4: "10.0.0.256"',
        ),
        (
            {"type": "array", "items": {"type": "string"}, "minItems": 1},
            [["a"]],
            [],
            "Invalid value: 0: spec.x in body should have at least 1 items",
        ),
        (
            {"type": "array", "items": {"type": "string"}, "maxItems": 1},
            [[], ["a"]],
            ["a", "b"],
            "Too many: 2: must have at most 1 items",
        ),
        (
            {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 1},
            [{}, {"a": ""}],
            {"a": "", "b": ""},
            "Too many: 2: must have at most 1 items",
        ),
        (
            {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1},
            [{"a": ""}],
            {},
            "Invalid value: 0: spec.x in body should have at least 1 properties",
        ),
        (
            {"type": "string"},
            [""],
            1,
            'Invalid value: "integer": spec.x in body must be of type string: "integer"',
        ),
        (
            {"type": "integer"},
            [1, 1.0],
            1.5,
            'Invalid value: "number": spec.x in body must be of type integer: "number"',
        ),
        (
            {"type": "boolean"},
            [True],
            "true",
            'Invalid value: "string": spec.x in body must be of type boolean: "string"',
        ),
        (
            {"type": "array", "items": {}},
            [[]],
            {},
            'Invalid value: "object": spec.x in body must be of type array: "object"',
        ),
        (
            {"type": "string"},
            ["a"],
            None,
            'Invalid value: "null": spec.x in body must be of type string: "null"',
        ),
        (
            {"x-kubernetes-int-or-string": True},
            [1, "50%"],
            1.5,
            'Invalid value: "number": spec.x in body must be of type integer,string: "number"',
        ),
        (
            {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
            [{"a": 1}, {"b": 1}],
            {},
            'Invalid value: "": "spec.x" must validate one and only one schema (oneOf). Found none valid',
        ),
        (
            {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
            [{"a": 1}],
            {"a": 1, "b": 1},
            'Invalid value: "": "spec.x" must validate one and only one schema (oneOf). Found 2 valid alternatives',
        ),
        (
            {"type": "integer", "anyOf": [{"minimum": 5}, {"maximum": 1}]},
            [0, 6],
            3,
            'Invalid value: "": "spec.x" must validate at least one schema (anyOf)',
        ),
        (
            {"type": "string", "allOf": [{"pattern": "a"}, {"pattern": "b"}]},
            ["ab"],
            "a",
            'Invalid value: "": "spec.x" must validate all the schemas (allOf)',
        ),
        (
            {"type": "object", "not": {"properties": {"a": {"enum": ["no"]}}, "required": ["a"]}},
            [{}, {"a": "yes"}],
            {"a": "no"},
            'Invalid value: "": "spec.x" must not validate the schema (not)',
        ),
    ],
)
def test_values(schema: dict[str, Any], good: list[Any], bad: Any, text: str) -> None:
    for value in good:
        assert wrong(schema, value) == []
    assert wrong(schema, bad) == [f"spec.x: {text}"]


def test_null_where_it_is_allowed() -> None:
    assert wrong({"type": "string", "nullable": True}, None) == []


def test_required_fields_and_paths_into_lists_and_maps() -> None:
    row = {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}}
    assert wrong({"type": "array", "items": row}, [{"id": ""}, {}]) == ["spec.x[1].id: Required value"]
    assert wrong({"type": "object", "additionalProperties": row}, {"k": {}}) == ["spec.x.k.id: Required value"]


def test_elements_of_sets_and_keyed_lists_are_unique() -> None:
    names = {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}
    assert wrong(names, ["a", "b"]) == []
    assert wrong(names, ["a", "b", "a"]) == ['spec.x[2]: Duplicate value: "a"']
    rows = {
        "type": "array",
        "items": {"type": "object", "properties": {"id": {"type": "string"}, "v": {"type": "integer"}}},
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["id"],
    }
    assert wrong(rows, [{"id": "a", "v": 1}, {"id": "b", "v": 1}]) == []
    assert wrong(rows, [{"id": "a", "v": 1}, {"id": "a", "v": 2}]) == ['spec.x[1]: Duplicate value: {"id":"a"}']


def test_patterns_are_go_expressions() -> None:
    assert wrong({"type": "string", "pattern": r"\A[[:alpha:]]+\z"}, "abc") == []
    assert wrong({"type": "string", "pattern": r"\A[[:alpha:]]+\z"}, "ab1")
    assert wrong({"type": "string", "pattern": r"^[$a]+$"}, "a$a") == []
    assert wrong({"type": "string", "pattern": r"^a$"}, "a\n"), "Go's end is the end of the text"
    assert wrong({"type": "string", "pattern": r"^\pL+$"}, "größe") == []
    assert wrong({"type": "string", "pattern": r"(?P<"}, "anything") == [], "what cannot be read checks nothing"


@pytest.mark.parametrize("pattern", [r"^(a+)+$", r"^(a|aa)+$", r"^(a*)*b$", r"(a?){60}a{60}$"])
def test_no_pattern_takes_longer_than_its_text(pattern: str) -> None:
    """Each of these takes a backtracking matcher longer than the universe has lasted."""
    assert wrong({"type": "string", "pattern": pattern}, "a" * 5000 + "!")


def test_what_a_pattern_is_matched_with_is_bounded() -> None:
    schema = {"type": "string", "pattern": "^a*$"}
    assert wrong(schema, "a" * 65536) == []
    assert wrong(schema, "a" * 65537) == ["spec.x: Too long: may not be more than 65536 bytes"]


def test_our_own_patterns_can_be_read() -> None:
    found: list[str] = []

    def collect(node: Any) -> None:
        if isinstance(node, dict):
            if isinstance(node.get("pattern"), str):
                found.append(node["pattern"])
            for inner in node.values():
                collect(inner)
        elif isinstance(node, list):
            for inner in node:
                collect(inner)

    collect(custom_resource_definitions())
    assert found
    assert all(go_pattern(pattern) is not None for pattern in found)


def test_rules_in_cel() -> None:
    pytest.importorskip("cel_expr_python")
    schema = {
        "type": "object",
        "properties": {"low": {"type": "integer"}, "high": {"type": "integer"}},
        "x-kubernetes-validations": [
            {"rule": "self.low <= self.high", "message": "low must not exceed high"},
            {"rule": "oldSelf.low == self.low"},
            {"rule": "this is not CEL"},
        ],
    }
    assert wrong(schema, {"low": 1, "high": 2}) == []
    assert wrong(schema, {"low": 3, "high": 2}) == ["spec.x: Invalid value: low must not exceed high"]
    assert "evaluating rule: low must not exceed high" in wrong(schema, {"low": 3})[0]


def test_rules_about_changes() -> None:
    pytest.importorskip("cel_expr_python")
    fixed = {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "it is fixed"}]}
    row = {"type": "object", "properties": {"id": {"type": "string"}, "fixed": fixed}}
    schema = crd_schema(
        {
            "type": "object",
            "properties": {
                "spec": {
                    "type": "object",
                    "properties": {
                        "name": fixed,
                        "rows": {
                            "type": "array",
                            "items": row,
                            "x-kubernetes-list-type": "map",
                            "x-kubernetes-list-map-keys": ["id"],
                        },
                        "loose": {"type": "array", "items": row},
                    },
                }
            },
        }
    )
    old = {"spec": {"name": "a", "rows": [{"id": "1", "fixed": "x"}], "loose": [{"fixed": "x"}]}}

    def changed(**spec: Any) -> list[str]:
        new = {"spec": {**old["spec"], **spec}}
        assert validate(schema, new) == []
        return [str(problem) for problem in validate_transition(schema, old, new)]

    assert changed() == []
    assert changed(name="b") == ['spec.name: Invalid value: "string": it is fixed']
    assert changed(rows=[{"id": "0", "fixed": "n"}, {"id": "1", "fixed": "y"}]) == [
        'spec.rows[1].fixed: Invalid value: "string": it is fixed'
    ]
    assert changed(rows=[{"id": "2", "fixed": "y"}], loose=[{"fixed": "y"}]) == []


def test_metadata_of_custom_objects_is_checked() -> None:
    schema = crd_schema({"type": "object"})
    found = validate(schema, {"metadata": {"labels": {"a": 1}}})
    assert [problem.path for problem in found] == ["metadata.labels.a"]


def test_a_pod_in_order() -> None:
    assert wrong_pod(restartPolicy="Never", overhead={"cpu": "1500m", "memory": 1.5}, priority=-1) == []


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"containers": []}, "spec.containers: Required value"),
        ({"containers": [{"image": "i"}]}, "spec.containers[0].name: Required value"),
        ({"containers": [{"name": "c", "image": ""}]}, "spec.containers[0].image: Required value"),
        (
            {"restartPolicy": "Sometimes"},
            'spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "Never", "OnFailure"',
        ),
        (
            {"terminationGracePeriodSeconds": "1"},
            'spec.terminationGracePeriodSeconds: Invalid value: "string": '
            'spec.terminationGracePeriodSeconds in body must be of type integer: "string"',
        ),
        (
            {"overhead": {"cpu": "1x"}},
            'spec.overhead.cpu: Invalid value: "1x": quantities must match the regular expression '
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            {"priority": 1 << 31},
            "spec.priority: Invalid value: 2147483648: spec.priority in body must be of type int32",
        ),
        (
            {"schedulingGates": [{"name": "a"}, {"name": "a"}]},
            'spec.schedulingGates[1]: Duplicate value: {"name":"a"}',
        ),
        (
            {"nodeSelector": {"a": True}},
            'spec.nodeSelector.a: Invalid value: "boolean": '
            'spec.nodeSelector.a in body must be of type string: "boolean"',
        ),
    ],
)
def test_pods_out_of_order(spec: dict[str, Any], text: str) -> None:
    assert wrong_pod(**spec) == [text]


def test_a_status_may_hold_new_words_but_no_wrong_types() -> None:
    schema = builtin_schema("", "v1", "Pod")
    assert schema is not None
    pod = {"spec": {"containers": [{"name": "c", "image": "i"}]}, "status": {"phase": "Dreaming"}}
    assert validate(schema, pod) == []
    assert [problem.path for problem in validate(schema, {**pod, "status": {"phase": 1}})] == ["status.phase"]


def test_times_are_checked() -> None:
    schema = builtin_schema("coordination.k8s.io", "v1", "Lease")
    assert schema is not None
    assert validate(schema, {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}) == []
    assert [problem.path for problem in validate(schema, {"spec": {"renewTime": "soon"}})] == ["spec.renewTime"]


def test_objects_nested_without_end_are_refused() -> None:
    schema = builtin_schema("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
    assert schema is not None
    deep: dict[str, Any] = {}
    for _ in range(300):
        deep = {"not": deep}
    spec = {"group": "g", "names": {"plural": "p", "kind": "K"}, "scope": "Namespaced"}
    versions = [{"name": "v1", "schema": {"openAPIV3Schema": deep}}]
    found = validate(schema, {"spec": {**spec, "versions": versions}})
    assert len(found) == 1
    assert "nested deeper" in found[0].message


def test_problems_in_one_text() -> None:
    schema = builtin_schema("", "v1", "Pod")
    assert schema is not None
    one = validate(schema, {"spec": {"containers": []}})
    two = validate(schema, {"spec": {"containers": [{"image": "", "name": ""}]}})
    assert summarise_problems(one) == "spec.containers: Required value"
    assert (
        summarise_problems(two) == "[spec.containers[0].name: Required value, spec.containers[0].image: Required value]"
    )
