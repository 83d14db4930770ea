"""The table of attacks by label, annotation and field: it is complete, and none of its rows does anything to others."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from pykai.api import names
from pykai.api.guardedfields import TIMESTAMPS
from pykai.api.scheduling import PodGroupSpec, PodGroupStatus
from tests.attack.fieldrun import run_rows, title
from tests.attack.fields import ROWS

ROOT = Path(__file__).parents[2]
KEYS = {row.key for row in ROWS}


def keys_in_code() -> dict[str, str]:
    """Constant -> label or annotation that the pod grouper reads or keeps off PodGroups."""
    code = "".join(each.read_text(encoding="utf-8") for each in (ROOT / "src/pykai/podgrouper").rglob("*.py"))
    constants = set(re.findall(r"names\.([A-Z_]+_(?:LABEL|ANNOTATION))\b", code))
    return {each: str(getattr(names, each)) for each in constants} | {each: each for each in TIMESTAMPS}


def keys_in_specification() -> set[str]:
    """The keys of part 3 of the specification; `/x` is short for another name of the same prefix."""
    text = (ROOT / "docs/spec/workloads-and-pod-groups.md").read_text(encoding="utf-8")
    part = text[text.index('<a id="3"></a>') : text.index('<a id="4"></a>')]
    found = set()
    for line in part.splitlines():
        prefix = ""
        for key in re.findall(r"`([^`]+)`", line.split(" | ")[0]) if line.startswith("| `") else ():
            found.add(prefix + key if key.startswith("/") else key)
            prefix = prefix if key.startswith("/") else key.partition("/")[0]
    return found


def test_every_key_that_the_pod_grouper_reads_is_tried() -> None:
    missing = {constant: key for constant, key in keys_in_code().items() if key not in KEYS}
    assert not missing, "add a row to tests/attack/fields.py for each"


def test_every_key_of_the_specification_is_tried() -> None:
    found = keys_in_specification()
    assert len(found) > 40
    assert found <= KEYS


def test_every_field_of_a_pod_group_is_tried() -> None:
    fields = {f"spec.{each.encode_name}" for each in msgspec.structs.fields(PodGroupSpec)}
    fields |= {f"status.{each.encode_name}" for each in msgspec.structs.fields(PodGroupStatus)}
    assert fields <= {row.key for row in ROWS if row.where.startswith("PodGroup")}


def test_no_row_is_there_twice() -> None:
    assert [each for each, count in Counter(map(title, ROWS)).items() if count > 1] == []


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "services alone"])
async def test_no_row_does_anything_to_others(guarded: bool) -> None:
    assert await run_rows(ROWS, guarded=guarded) == {}
