"""Our evaluator gives the results of jq: generated expressions of the subset on generated values."""

from __future__ import annotations

from typing import Any

import jq
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from pykai.podgrouper.jq import Budget, JqError, JqLimit, JqSyntaxError, JqUnsupported, compile_jq
from pykai.podgrouper.jq.functions import FUNCTIONS

_KEYS = ("a", "b", "c/d")

_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 20),
    st.sampled_from([0.5, -1.5, 2.0]),
    st.sampled_from(["", "a", "b", "ab", "7", "A,b"]),
)
_values = st.recursive(
    _scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(_KEYS), inner, max_size=3),
    ),
    max_leaves=10,
)
_atoms = st.sampled_from(
    [".", ".a", ".b", '.["c/d"]', '."a"', ".a.b", ".[]", ".[]?", ".a[]?", ".[0]", ".[-1]?", ".a?"]
    + ["1", "0", "2.5", "-3", '"a"', '"b"', "true", "false", "null", "[]", "$x"]
    + [name for name, count in FUNCTIONS if count == 0]
)


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = st.sampled_from(
        ["|", ",", "//", "and", "or", "==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%"]
    )
    unary = st.sampled_from([name for name, count in FUNCTIONS if count == 1])
    return st.one_of(
        st.builds(lambda one, operator, other: f"{one} {operator} {other}", inner, operators, inner),
        st.builds(lambda one, operator, other: f"({one}) {operator} ({other})", inner, operators, inner),
        st.builds(lambda one: f"[{one}]", inner),
        st.builds(lambda one: f"({one})?", inner),
        st.builds(lambda one, key: f"({one})[{key}]", inner, inner),
        st.builds(lambda name, one: f"{name}({one})", unary, inner),
        st.builds(lambda name, one, other: f"{name}({one}; {other})", st.sampled_from(["any", "all"]), inner, inner),
        st.builds(lambda one, other: f"(({one}) as $x | {other})", inner, inner),
        st.builds(lambda one, two, three: f"if {one} then {two} else {three} end", inner, inner, inner),
        st.builds(lambda one, two: f"if {one} then {two} end", inner, inner),
    )


_expressions = st.recursive(_atoms, _larger, max_leaves=7)


def _exact(value: Any) -> Any:
    """Values that tell `true` from 1."""
    if isinstance(value, list):
        return [_exact(each) for each in value]
    if isinstance(value, dict):
        return {key: _exact(each) for key, each in value.items()}
    return (type(value) is bool, value)


def _oracle(text: str, value: Any) -> Any:
    try:
        return jq.compile(f"7 as $x | {text}").input_value(value).all()
    except ValueError as error:
        return str(error)


@settings(max_examples=300, deadline=None)
@given(text=_expressions, value=_values)
@example("[(1, 2) + (10, 20)]", None)
@example("(1, null, 2) // 3", None)
@example("[.[] | select(.a > 1).b]", [{"a": 2, "b": 1}, {"a": 1}])
@example('.["c/d"] // "0" | tonumber', {"c/d": "12"})
@example("to_entries[] | .key", {"b": 1, "a": 2})
@example(". as $x | [.[] as $x | $x] | . == $x", [1, [2]])
@example(".a[]?", [])
@example("(.a[])?", [])
@example("-1 - -1, 5 % -3, -5 % 3", None)
def test_results_are_those_of_jq(text: str, value: Any) -> None:
    """workloads:KT-3"""
    expected = _oracle(text, value)
    try:
        found: Any = compile_jq(f"7 as $x | {text}").outputs(value, Budget(200_000))
    except (JqLimit, JqUnsupported):
        assume(False)
    except (JqError, JqSyntaxError) as error:
        found = str(error)
    if isinstance(expected, str) or isinstance(found, str):
        assert type(found) is type(expected), (found, expected)
    else:
        assert _exact(found) == _exact(expected)


@pytest.mark.parametrize(
    "text",
    [
        ".spec.services[] | (.replicas // 1) * (.multinode.nodeCount // 1)",
        ".spec.services | to_entries[] | .key",
        ".spec.services | .[] | .autoscaling.minReplicas",
        '.metadata.labels["example.com/index"] // "0"',
        ".spec.template as $t | $t.roles[] | select(.name as $n | ([$t.sets[]?.names[]?] | index($n) | not)) | .name",
        'any(.spec.roles[].limits; (.["nvidia.com/gpu"] // 0) > 0)',
        ".spec.template.roles | map(.replicas // 1) | add",
        "1",
    ],
)
def test_expressions_as_they_are_written(text: str) -> None:
    value: Any = {
        "metadata": {"labels": {"example.com/index": "3"}},
        "spec": {
            "services": {"a": {"replicas": 2}, "b": {"multinode": {"nodeCount": 4}, "autoscaling": {"minReplicas": 1}}},
            "roles": [{"limits": {"nvidia.com/gpu": 8}}, {"limits": {}}],
            "template": {"roles": [{"name": "x", "replicas": 2}, {"name": "y"}], "sets": [{"names": ["y"]}]},
        },
    }
    assert compile_jq(text).outputs(value, Budget()) == jq.compile(text).input_value(value).all()
