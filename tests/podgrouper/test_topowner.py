"""The annotation that names the top owner is YAML, byte for byte as KAI writes it."""

from __future__ import annotations

import pytest
import yaml

from pykai.podgrouper.topowner import top_owner_text
from tests.podgrouper.groupings import owner


def test_five_lines_in_order() -> None:
    top = owner("Job", "argo-pod", "uid-pod", api="batch/v1")
    assert top_owner_text(top) == "name: argo-pod\nuid: uid-pod\ngroup: batch\nversion: v1\nkind: Job\n"


@pytest.mark.parametrize(
    "name",
    ["1", "007", "1.5", "1e3", "0x1f", "0b101", "0o17", "089", "true", "y", "n", "no", "off", "null", "", "2024-01-31"]
    + ["2024-1-5", ".5", "12345678901234567890123", "1.", "190:20:30"],
)
def test_what_looks_like_something_else_is_quoted(name: str) -> None:
    assert top_owner_text(owner("Pod", name)).startswith(f'name: "{name}"\n')


@pytest.mark.parametrize(
    "name",
    ["a", "j", "yn", "1a", "e3", "0x", "0xg", "2024-13-01", "2024-01-01-a", "1.2.3", "true-1", "nan", "inf", "1-2"]
    + ["0xffffffffffffffffffffff", "84b860bd-6320-4372-8357-486680c3f4c3"],
)
def test_everything_else_is_written_unquoted(name: str) -> None:
    text = top_owner_text(owner("Pod", name))
    assert text.startswith(f"name: {name}\n")


@pytest.mark.parametrize("name", ["1", "no", "a", "2024-01-31", "", "1e3"])
def test_a_reader_of_yaml_gets_text_back(name: str) -> None:
    assert yaml.safe_load(top_owner_text(owner("Pod", name)))["name"] == name
