"""Label selectors as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykai.api.labelselectors import LabelSelectorError, read_label_selector


@pytest.mark.parametrize(
    ("text", "key", "operator", "values"),
    [
        ("team=vision", "team", "In", ("vision",)),
        ("team == vision", "team", "In", ("vision",)),
        ("team!=vision", "team", "NotIn", ("vision",)),
        ("team=", "team", "In", ("",)),
        ("team in (vision, speech)", "team", "In", ("vision", "speech")),
        ("team notin(vision)", "team", "NotIn", ("vision",)),
        ("example.com/team", "example.com/team", "Exists", ()),
        ("! team", "team", "DoesNotExist", ()),
    ],
)
def test_each_form_of_a_requirement(text: str, key: str, operator: str, values: tuple[str, ...]) -> None:
    (requirement,) = read_label_selector(text).match_expressions
    assert (requirement.key, requirement.operator, requirement.values) == (key, operator, values)


def test_commas_separate_requirements_outside_parentheses_only() -> None:
    found = read_label_selector("team in (a,b), env=prod,!archived").match_expressions
    assert [(each.key, each.values) for each in found] == [("team", ("a", "b")), ("env", ("prod",)), ("archived", ())]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("team=vision,", "''"),
        ("team in vision", "'team in vision'"),
        ("team in (vision", "'team in (vision'"),
        ("team)=vision", "'team)=vision'"),
        ("team=a=b", "'team=a=b'"),
        ("team=-a", "'-a'"),
        ("team > 3", "'team > 3'"),
        ("/team", "'/team'"),
        ("a/b/c=d", "'a/b/c'"),
        (f"{'k' * 64}=v", "kkk"),
        (f"k={'v' * 64}", "vvv"),
        ("k" * 100_000, "kkk..."),
    ],
)
def test_what_kubectl_would_refuse_is_refused_with_the_part(text: str, wrong: str) -> None:
    with pytest.raises(LabelSelectorError) as refused:
        read_label_selector(text)
    assert wrong in str(refused.value)
    assert len(str(refused.value)) < 300


@given(st.text(alphabet="ab/.-_=!,() in\t", max_size=60))
def test_any_text_is_a_selector_or_refused(text: str) -> None:
    try:
        selector = read_label_selector(text)
    except LabelSelectorError:
        return
    assert selector.match_expressions
