"""What the subset of jq refuses, and the limits of its evaluation."""

from __future__ import annotations

import pytest

from pykai.podgrouper.jq import Budget, JqError, JqLimit, JqSyntaxError, JqUnsupported, Json, compile_jq


@pytest.mark.parametrize(
    ("text", "reason", "position"),
    [
        (".. | .a", "recursive descent", 1),
        (".a = 1", "an assignment", 4),
        (".a |= 1", "an assignment", 4),
        (".a += 1", "an assignment", 4),
        ("del(.a)", "function del is not part", 1),
        (".a | range(3)", "function range is not part", 6),
        ("paths", "function paths is not part", 1),
        ("recurse", "function recurse is not part", 1),
        ("walk(.)", "function walk is not part", 1),
        ("repeat(.)", "function repeat is not part", 1),
        ("def f: 1; f", "`def` is not part", 1),
        ("reduce .[] as $x (0; . + $x)", "`reduce` is not part", 1),
        ("try .a", "`try` is not part", 1),
        ("{a: 1}", "construction of objects", 1),
        (".[1:2]", "a slice is not part", 4),
        (".[:2]", "a slice is not part", 3),
        ('"a\\(1)"', "text with", 1),
        ("@base64", "format @base64", 1),
        (". as [$a] | $a", "a pattern behind `as`", 6),
        ("1 + . as $x | $x", "into parentheses", 7),
        ("$missing", "variable $missing is not set", 1),
        ("length(1)", "takes 0 arguments, not 1", 1),
        (".a < 1 < 2", "cannot be chained", 8),
        (".a.", 'a field, as in .name or ."name"', 4),
        (".a[", "a path, a value or a function is expected, not the end", 4),
        ("(.a", "`)` is expected", 4),
        (".a .b c", "an operator or the end is expected, not 'c'", 7),
        ("if .a then 1", "`elif`, `else` or `end`", 13),
        ('"a', "text without an end", 1),
        ("1e999", "number is too large", 1),
        ("", "is expected, not the end", 1),
    ],
)
def test_refusals_name_what_and_where(text: str, reason: str, position: int) -> None:
    """workloads:KT-3"""
    with pytest.raises(JqSyntaxError) as refused:
        compile_jq(text)
    assert reason in str(refused.value)
    assert f"{text!r}, position {position}:" in str(refused.value)


@pytest.mark.parametrize(
    "text",
    ["(" * 5000 + "1", "(" * 2000 + "1" + ")" * 2000, "1" + "+1" * 1500, ".a" * 1500, "[" * 1500, "1|" * 1500 + "1"]
    + ["if 1 then " * 300 + "1", "if 1 then 1 elif " * 200 + "1", "." + "[0]" * 1200, "." + "?" * 2000, "-" * 3000],
)
def test_long_and_deep_expressions_are_refused(text: str) -> None:
    with pytest.raises(JqSyntaxError):
        compile_jq(text)


def _nested(depth: int) -> Json:
    value: Json = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (". == .", _nested(100_000)),
        ("[.[] as $x | .[] as $y | $x + $y] | length", list(range(1000))),
        ("add", ["x" * 1000] * 10_000),
        ("sort", [[0] * 500] * 500),
        ("unique | length", [{"a": [0] * 100}] * 1000),
        (". - .", list(range(5000))),
        ("all", [True] * 100_000),
        ("keys", {str(number): 0 for number in range(100_000)}),
        ("[.,.] | [.,.] | [.,.] | [.,.] | [.,.] | [.,.] | [.,.] | [.,.] | . == (. + [])", _nested(200)),
        ('[.[] | split(",")] | length', [",".join("abcdefgh" * 10)] * 1000),
        (".[]? // . | [.[]?]", [[0] * 20] * 5000),
    ],
)
def test_hostile_values_end_with_the_limit(text: str, value: Json) -> None:
    with pytest.raises(JqLimit) as refused:
        compile_jq(text).outputs(value, Budget())
    assert text in str(refused.value)


def test_too_many_results() -> None:
    """workloads:KT-3"""
    assert len(compile_jq(".[]").outputs([0] * 999, Budget())) == 999
    with pytest.raises(JqLimit, match="more than 999 results"):
        compile_jq(".[]").outputs([0] * 1000, Budget())


def test_the_budget_is_shared() -> None:
    budget = Budget(10)
    expression = compile_jq(".a")
    assert expression.outputs({"a": 1}, budget) == expression.outputs({"a": 1}, budget) == [1]
    assert expression.outputs({"a": 1}, budget) == [1]
    with pytest.raises(JqLimit):
        expression.outputs({"a": 1}, budget)


def test_limits_and_gaps_are_not_suppressed() -> None:
    with pytest.raises(JqLimit):
        compile_jq("([.[] as $x | .[]])?").outputs(list(range(1000)), Budget(1000))
    with pytest.raises(JqUnsupported, match=r"'\(\. \* 2\)\?', position 4: string 'a' \* number 2: only numbers"):
        compile_jq("(. * 2)?").outputs("a", Budget())


def test_errors_name_expression_and_position() -> None:
    with pytest.raises(JqError) as failed:
        compile_jq(".spec | .replicas + 1").outputs({"spec": {"replicas": "two"}}, Budget())
    assert str(failed.value) == (
        "jq expression '.spec | .replicas + 1', position 19: string 'two' and number 1 cannot be added"
    )


@pytest.mark.parametrize("value", [10**400, -(10**400)])
def test_numbers_no_float_can_hold(value: int) -> None:
    for text in (". + 1", "length", ". * .", "floor", "tostring", "[., 1] | add"):
        with pytest.raises(JqError, match="too large"):
            compile_jq(text).outputs(value, Budget())


@pytest.mark.parametrize(
    ("text", "only_labels"),
    [
        ('.metadata.labels["a/b"]', True),
        ('.metadata.labels["a/b"] // "0" | tonumber', True),
        ('.metadata.labels.a == "x" and (.metadata.labels | length) > 1', True),
        ('"fixed"', True),
        (".metadata.labels as $l | $l.a", True),
        (".spec.hostname", False),
        (".metadata[.kind]", False),
        ("length", False),
        ("select(.metadata.labels.a)", False),
        (".metadata.labels.a, .spec", False),
    ],
)
def test_fields_that_an_expression_reads(text: str, only_labels: bool) -> None:
    assert compile_jq(text).reads_only([("metadata", "labels")]) is only_labels


#: text, input and results, at least one for each function and number of arguments
RESULTS: list[tuple[str, Json, list[Json]]] = [
    ("add", [1, 2], [3]),
    ("all", [True, False], [False]),
    ("all(. > 1)", [2, 3], [True]),
    ("all(.[]; . > 2)", [2, 3], [False]),
    ("any", [True, False], [True]),
    ("any(. > 2)", [2, 3], [True]),
    ("any(.[]; . > 3)", [2, 3], [False]),
    ("ascii_downcase", "AbÄ", ["abÄ"]),
    ("ceil", 1.5, [2]),
    ("empty", 1, []),
    ('endswith("b")', "ab", [True]),
    ("false", 1, [False]),
    ("first", [5, 6], [5]),
    ("first(.[])", [5, 6], [5]),
    ("first", [], [None]),
    ("first", None, [None]),
    ("floor", 1.5, [1]),
    ('has("a")', {"a": None}, [True]),
    ("has(1)", [0], [False]),
    ('has("a")', None, [False]),
    ('index("b")', "abc", [1]),
    ('index("b")', None, [None]),
    ("index(0)", None, [None]),
    ('join("-")', ["a", "b"], ["a-b"]),
    ("keys", {"b": 1, "a": 2}, [["a", "b"]]),
    ("last", [5, 6, 7], [7]),
    ("length", [5, 6], [2]),
    ("length", None, [0]),
    ("length", -3, [3]),
    ("map(. + 1)", [5, 6], [[6, 7]]),
    ("max", [5, 7, 6], [7]),
    ("min", [6, 5, 7], [5]),
    ("not", False, [True]),
    ("null", 1, [None]),
    ("select(. > 1)", 2, [2]),
    ("select(. > 1)", 1, []),
    ("sort", [3, 1, 2], [[1, 2, 3]]),
    ('split("-")', "a-b", [["a", "b"]]),
    ('split("-")', "", [[]]),
    ('startswith("b")', "ab", [False]),
    ("to_entries", {"a": 5}, [[{"key": "a", "value": 5}]]),
    ("tonumber", "-12", [-12]),
    ("tostring", 12, ["12"]),
    ("tostring", "a", ["a"]),
    ("tostring", None, ["null"]),
    ("tostring", True, ["true"]),
    ("true", 1, [True]),
    ("type", [1], ["array"]),
    ("unique", [2, 1, 2], [[1, 2]]),
    ("values", None, []),
    ("values", 1, [1]),
    ("[.[] | . == 1]", [0, 1, 2], [[False, True, False]]),
    ("[.[] | . != 1]", [0, 1, 2], [[True, False, True]]),
    ("[.[] | . < 1]", [0, 1, 2], [[True, False, False]]),
    ("[.[] | . <= 1]", [0, 1, 2], [[True, True, False]]),
    ("[.[] | . > 1]", [0, 1, 2], [[False, False, True]]),
    ("[.[] | . >= 1]", [0, 1, 2], [[False, True, True]]),
    ("true or false and false", None, [True]),
]


@pytest.mark.parametrize(("text", "value", "results"), RESULTS)
def test_functions_have_results(text: str, value: Json, results: list[Json]) -> None:
    """workloads:KT-3: `test_oracle` asks jq itself, where it is installed."""
    assert compile_jq(text).outputs(value, Budget()) == results


@pytest.mark.parametrize(
    ("text", "value"), [("to_entries", 1), ("tonumber", "1" * 10_000), ("tonumber", "one"), (".a", 1)]
)
def test_functions_refuse_what_they_have_no_result_for(text: str, value: Json) -> None:
    with pytest.raises(JqError):
        compile_jq(text).outputs(value, Budget())


@pytest.mark.parametrize(
    ("text", "value", "steps"),
    [("1 + 2 + 3", None, 5), ("not | not", None, 2), ("ascii_downcase", "a" * 1000, 17)],
)
def test_operations_calls_and_long_texts_cost_steps(text: str, value: Json, steps: int) -> None:
    expression = compile_jq(text)
    expression.outputs(value, Budget(steps))
    with pytest.raises(JqLimit):
        expression.outputs(value, Budget(steps - 1))
