"""Which namespaces may use a queue, read from its annotations (access:lists, access:broken)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykai.api import names
from pykai.core.model.queueaccess import QueueAccess, QueueAccessError, parse_queue_access, read_queue_access


def access(allowed: str | None = None, selector: str | None = None) -> QueueAccess | None:
    texts = {names.ALLOWED_NAMESPACES_ANNOTATION: allowed, names.ALLOWED_NAMESPACE_SELECTOR_ANNOTATION: selector}
    return parse_queue_access({key: text for key, text in texts.items() if text is not None})


def allows(namespace: str, allowed: str | None = None, selector: str | None = None, **labels: str) -> bool:
    found = access(allowed, selector)
    return found is None or found.allows(namespace, labels)


def test_a_queue_without_annotations_is_open() -> None:
    """access:lists"""
    assert access() is None


def test_a_namespace_is_allowed_by_its_name_or_by_its_labels() -> None:
    """access:lists"""
    assert allows("vision", " vision,speech ")
    assert not allows("b", "vision,speech")
    assert allows("b", selector="team=vision", team="vision")
    assert not allows("b", selector="team=vision", team="speech")
    assert allows("b", "vision", "team=vision", team="vision")
    assert allows("vision", "vision", "team=speech")
    assert allows("b", "*")


def test_a_namespace_without_known_labels_is_allowed_by_name_only() -> None:
    """access:lists: a selector such as !team would match labels that are merely not known."""
    found = access("vision", "!team")
    assert found is not None
    assert found.allows("vision", None)
    assert not found.allows("b", None)


@pytest.mark.parametrize(
    ("allowed", "selector", "annotation", "text"),
    [
        ("", None, names.ALLOWED_NAMESPACES_ANNOTATION, "the list is empty"),
        ("a,,b", None, names.ALLOWED_NAMESPACES_ANNOTATION, "'' is not the name of a namespace"),
        ("a,", None, names.ALLOWED_NAMESPACES_ANNOTATION, "'' is not the name of a namespace"),
        ("a b", None, names.ALLOWED_NAMESPACES_ANNOTATION, "'a b' is not the name of a namespace"),
        ("Vision", None, names.ALLOWED_NAMESPACES_ANNOTATION, "'Vision' is not the name of a namespace"),
        ("team-*", None, names.ALLOWED_NAMESPACES_ANNOTATION, "'team-*' is not the name of a namespace"),
        ("x" * 64, None, names.ALLOWED_NAMESPACES_ANNOTATION, "is not the name of a namespace"),
        ("*,a", None, names.ALLOWED_NAMESPACES_ANNOTATION, "must be the only entry"),
        (None, "", names.ALLOWED_NAMESPACE_SELECTOR_ANNOTATION, "the selector is empty"),
        ("a", "team=(", names.ALLOWED_NAMESPACE_SELECTOR_ANNOTATION, "write it as for kubectl -l"),
    ],
)
def test_a_broken_annotation_is_named_and_closes_the_queue(
    allowed: str | None, selector: str | None, annotation: str, text: str
) -> None:
    """access:broken: not even the namespaces that can be read are allowed."""
    with pytest.raises(QueueAccessError) as refused:
        access(allowed, selector)
    assert refused.value.annotation == annotation
    assert text in str(refused.value)
    texts = {names.ALLOWED_NAMESPACES_ANNOTATION: allowed, names.ALLOWED_NAMESPACE_SELECTOR_ANNOTATION: selector}
    closed = read_queue_access({key: each for key, each in texts.items() if each is not None})
    assert closed is not None
    assert closed.fault == str(refused.value)
    assert not closed.allows("a", {})


@given(st.text(max_size=40), st.text(alphabet="ab=!,() in", max_size=40))
def test_any_text_is_read_or_closes_the_queue(allowed: str, selector: str) -> None:
    """access:broken"""
    found = read_queue_access(
        {names.ALLOWED_NAMESPACES_ANNOTATION: allowed, names.ALLOWED_NAMESPACE_SELECTOR_ANNOTATION: selector}
    )
    assert found is not None
    assert not (found.fault and found.allows("a", {}))
