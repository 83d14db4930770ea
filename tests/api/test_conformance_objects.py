"""Every object of the conformance cases decodes, from JSON and from parsed documents alike; its values can be read."""

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pykai.api.decode import KINDS, decode_each, decode_object
from pykai.api.duration import format_go_duration, parse_duration
from pykai.api.nulls import replace_nulls
from pykai.api.quantity import milli_value
from pykai.api.timestamp import format_timestamp, parse_timestamp

FOLDER = Path(os.environ.get("KAI_CONFORMANCE_DIR") or Path(__file__).parents[3] / "shared" / "conformance")
FILES = sorted(FOLDER.glob("*.jsonl"))

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(
        not FILES, reason=f"NO CONFORMANCE CASES IN {FOLDER}: set KAI_CONFORMANCE_DIR, or nothing is checked here"
    ),
]


def documents(file: Path) -> list[dict[str, Any]]:
    with file.open("rb") as lines:
        return [document for line in lines for document in json.loads(line)["objects"]]


@pytest.mark.parametrize("file", FILES or [Path("missing")], ids=lambda file: file.stem)
def test_objects_decode(file: Path) -> None:
    found = documents(file)
    objects, problems = decode_each(found)
    assert problems == []
    assert len(objects) == len(found) > 0
    from_json, problems = decode_each(map(msgspec.json.encode, found))
    assert problems == []
    assert from_json == objects


@pytest.mark.parametrize("file", FILES or [Path("missing")], ids=lambda file: file.stem)
def test_values_are_readable_and_nothing_is_normalised(file: Path) -> None:
    for document in documents(file):
        decoded = decode_object(document)
        assert msgspec.convert(replace_nulls(document, type(decoded)), type(decoded)) == decoded
        assert type(decoded) is KINDS[document["kind"]]
        read_values(document)


def read_values(value: Any, key: str = "") -> None:
    """Reads every quantity, timestamp and duration below, knowing them by the name of their field."""
    if isinstance(value, dict):
        quantities = key in ("requests", "limits", "allocatable", "capacity", "overhead")
        for name, element in value.items():
            if quantities and not isinstance(element, dict):
                assert milli_value(element) >= 0
            else:
                read_values(element, name)
    elif isinstance(value, list):
        for element in value:
            read_values(element)
    elif key.lower().endswith("timestamp"):
        assert format_timestamp(parse_timestamp(value)) == value
    elif key in ("preemptionDelay", "stalenessGracePeriod"):
        assert format_go_duration(parse_duration(value)) == value
