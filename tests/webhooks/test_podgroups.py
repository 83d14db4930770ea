"""Which PodGroups are refused, and the messages (workloads:WH-2 to WH-6)."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api.scheduling import DEEPEST_SUBGROUP, MOST_SUBGROUPS
from pykai.webhooks.podgroups import validate
from pykai.webhooks.validationresult import ValidationResult


def part(name: str, least: int | None = None, *, parent: str = "", children: int | None = None) -> dict[str, Any]:
    fields = {"name": name, "minMember": least, "parent": parent or None, "minSubGroup": children}
    return {key: value for key, value in fields.items() if value is not None}


def judged(*parts: dict[str, Any], creating: bool = True, **spec: Any) -> ValidationResult:
    group = {"metadata": {"name": "g"}, "spec": {**spec, "subGroups": list(parts)}}
    return validate(group, None if creating else group)


def test_an_empty_spec_is_fine() -> None:
    """workloads:T-1."""
    assert validate({"metadata": {}, "spec": {}}) == ValidationResult()


def test_two_minimums_are_too_many() -> None:
    """workloads:T-2."""
    found = judged(part("a", 1), minMember=24, minSubGroup=3)
    assert found.errors == (
        "minMember and minSubGroup are mutually exclusive: set minMember (24) to schedule a fixed number of pods, or "
        "set minSubGroup to require a minimum number of child SubGroups, but not both",
    )
    both = judged(part("b", 1, children=1), part("a"))
    assert both.errors == ('subgroup "b": minMember and minSubGroup are mutually exclusive',)


def test_no_gang_is_fine() -> None:
    """workloads:T-3."""
    assert judged(part("a", 4), part("b", 4), minSubGroup=0) == ValidationResult()


@pytest.mark.parametrize("creating", [True, False])
def test_a_minimum_beyond_the_children_is_a_warning(creating: bool) -> None:
    """workloads:T-4, T-12."""
    leaves = [part(name, 1) for name in "abcd"]
    text = "minSubGroup ({}) exceeds the number of direct child SubGroups ({})"
    assert judged(*leaves, minSubGroup=5, creating=creating) == ValidationResult((), (text.format(5, 4),))
    assert judged(minSubGroup=1, creating=creating) == ValidationResult((), (text.format(1, 0),))
    found = judged(part("p", children=3), part("x", 1, parent="p"), part("y", 1, parent="p"), creating=creating)
    assert found == ValidationResult((), (f'subgroup "p": {text.format(3, 2)}',))


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        ([part("a", 1), part("a", 1)], "duplicate subgroup name a"),
        ([part("a", parent="b"), part("b", parent="a"), part("a")], "duplicate subgroup name a"),
        ([part("b", 1, parent="x")], "parent x of b was not found"),
        ([part("a", parent="a")], "cycle detected in subgroups"),
        ([part("a", parent="c"), part("c", parent="b"), part("b", parent="a")], "cycle detected in subgroups"),
        (
            [part("z", 1), part("a", parent="b"), part("b", parent="a"), part("c", parent="d"), part("d", parent="c")],
            "cycle detected in subgroups",
        ),
    ],
)
def test_an_invalid_tree_is_refused_with_its_reason(parts: list[dict[str, Any]], error: str) -> None:
    """workloads:T-5, T-6, T-7."""
    assert judged(*parts).errors == (error,)


def test_a_leaf_needs_its_minimum() -> None:
    """workloads:T-8, T-9."""
    assert judged(part("a")).errors == ("subgroup a: minMember is required",)
    assert judged(part("a", children=1)).errors == (
        'subgroup "a": minSubGroup cannot be set on a leaf SubGroup (no child SubGroups)',
        "subgroup a: minMember is required",
    )


def test_a_parent_needs_none() -> None:
    """workloads:T-10."""
    assert judged(part("p"), part("l", 1, parent="p")) == ValidationResult()


def test_pods_of_a_parent_are_refused_only_when_it_is_new() -> None:
    """workloads:T-11."""
    parts = (part("p", 2), part("c", 1, parent="p"))
    text = (
        'subgroup "p": minMember cannot be set on a mid-level SubGroup (has child SubGroups); use minSubGroup instead'
    )
    assert judged(*parts) == ValidationResult((text,))
    assert judged(*parts, creating=False) == ValidationResult((), (text,))


def test_a_deep_tree_is_fine() -> None:
    """workloads:T-13."""
    parts = []
    for role in ("decode", "prefill"):
        parts += [
            part(role, children=2),
            part(f"{role}-leaders", 1, parent=role),
            part(f"{role}-workers", 4, parent=role),
        ]
    assert judged(*parts, minSubGroup=2) == ValidationResult()


def test_all_errors_are_reported_in_order_of_names() -> None:
    found = judged(part("b"), part("a"))
    assert found.message == "subgroup a: minMember is required\nsubgroup b: minMember is required"
    assert not found.allowed


def test_what_cannot_be_read_is_refused() -> None:
    assert "spec.minMember" in validate({"spec": {"minMember": "many"}}).message


def test_more_subgroups_than_the_scheduler_takes_are_refused_and_stay_updatable() -> None:
    """An existing group, older than the limit, must stay updatable."""
    parts = [part(f"s{number}", 1) for number in range(MOST_SUBGROUPS + 1)]
    text = f"spec.subGroups: {MOST_SUBGROUPS + 1} subgroups, at most {MOST_SUBGROUPS} are allowed"
    assert judged(*parts) == ValidationResult((text,))
    assert judged(*parts, creating=False) == ValidationResult((), (text,))
    assert judged(*parts[:MOST_SUBGROUPS]) == ValidationResult()


def test_subgroups_nested_deeper_than_the_scheduler_takes_are_refused_and_stay_updatable() -> None:
    def chain(levels: int) -> list[dict[str, Any]]:
        inner = [part(f"s{number}", parent=f"s{number - 1}" if number else "") for number in range(levels - 1)]
        return [*inner, part("leaf", 1, parent=f"s{levels - 2}")]

    text = f"spec.subGroups: nested {DEEPEST_SUBGROUP + 1} levels deep, at most {DEEPEST_SUBGROUP} are allowed"
    assert judged(*chain(DEEPEST_SUBGROUP + 1)) == ValidationResult((text,))
    assert judged(*chain(DEEPEST_SUBGROUP + 1), creating=False) == ValidationResult((), (text,))
    assert judged(*chain(DEEPEST_SUBGROUP)) == ValidationResult()
