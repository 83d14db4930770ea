"""Keys of objects: made and split."""

from __future__ import annotations

import pytest

from pykai.api.keys import object_key, split_key


@pytest.mark.parametrize(
    ("namespace", "name"), [("team", "job"), ("team", "a/b"), ("team", "../other/job"), ("team", "")]
)
def test_a_key_splits_into_what_it_was_made_of(namespace: str, name: str) -> None:
    assert split_key(object_key(namespace, name)) == (namespace, name)


def test_a_cluster_wide_object_has_no_namespace() -> None:
    assert split_key("node-1") == ("", "node-1")
