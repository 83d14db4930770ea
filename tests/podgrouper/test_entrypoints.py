"""Groupers of third parties (kinds:entry-points)."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from pykai.api.scheduling import SubGroup
from pykai.dev.groupingcases import RecordedReaders
from pykai.podgrouper import kinds
from pykai.podgrouper.entrypoints import EntryPointGrouper, load_grouper
from pykai.podgrouper.metadata import GroupingError, Metadata, ObjectName, ObjectNotRead
from tests.podgrouper.groupings import grouped, owner, pod

EXAMPLE = Path(__file__).parents[2] / "examples" / "groupers" / "sweep"
SWEEP = owner("Sweep", "s", "u", api="example.com/v1", spec={"parallelTrials": 3})
GOOD = grouped(pod(), SWEEP)


def changed(**fields: Any) -> Metadata:
    return replace(GOOD, **fields)


def outcome(result: Any) -> Metadata:
    """What becomes of the result of a foreign grouper, or of what it raises."""

    def group(*_: object) -> Any:
        if isinstance(result, BaseException):
            raise result
        return result

    guarded = EntryPointGrouper(EntryPoint("example.com/*/Sweep", "mine:group", kinds.ENTRY_POINTS), group)
    return grouped(pod(), SWEEP, readers=RecordedReaders(groupers={("example.com", "*", "Sweep"): guarded}))


@pytest.mark.parametrize("error", [ValueError("no idea"), KeyError("x"), RecursionError(), SystemExit(3)])
def test_whatever_it_raises_refuses_the_pod(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    """kinds:entry-points: the entry point is named."""
    with pytest.raises(GroupingError, match=r"the grouper example.com/\*/Sweep = mine:group failed: \w+"):
        outcome(error)
    assert caplog.messages == ["the grouper example.com/*/Sweep = mine:group failed"]


def test_its_own_refusals_and_requests_pass() -> None:
    """kinds:entry-points."""
    with pytest.raises(GroupingError, match=r"^mine$"):
        outcome(GroupingError("mine"))
    with pytest.raises(ObjectNotRead):
        outcome(ObjectNotRead(ObjectName("v1", "Thing", "ns", "t")))


def test_the_traceback_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """kinds:entry-points."""

    def broken(*_: object) -> Any:
        raise ValueError

    guarded: Any = EntryPointGrouper(EntryPoint("v1/X", "mine:group", kinds.ENTRY_POINTS), broken)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            with pytest.raises(GroupingError):
                guarded(SWEEP, pod(), (SWEEP,), None, None)
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (None, "it is a NoneType, not a Metadata"),
        ({"name": "x"}, "it is a dict, not a Metadata"),
        (changed(name=7), "its name 7 is no name of an object"),
        (changed(name="Upper"), "its name 'Upper' is no name of an object"),
        (changed(namespace="other"), "its namespace 'other' is not that of the pod"),
        (changed(owner="me"), "its owner or topology is of another type"),
        (changed(queue=None), "its queue is no text"),
        (changed(labels={"a": 1}), "its labels are no texts by texts"),
        (changed(min_available=-1), "its min_available -1 is no number from 0"),
        (changed(min_available="3"), "its min_available '3' is no number"),
        (changed(min_sub_group=True), "its min_sub_group True is no number"),
        (changed(preemption_delay_ns="1s"), "its preemption_delay_ns '1s' is no whole number"),
        (changed(sub_groups=["a"]), "its sub_groups are no tuple of SubGroups"),
        (changed(sub_groups=(SubGroup(name="A"),)), "the name 'A' of a subgroup"),
        (changed(pod_sub_group="x"), "its pod_sub_group 'x' is none of its subgroups"),
    ],
)
def test_a_result_that_cannot_be_used_refuses_the_pod(result: object, problem: str) -> None:
    """kinds:entry-points."""
    with pytest.raises(GroupingError, match=f"returned an unusable group: {problem}"):
        outcome(result)
    assert outcome(GOOD) == GOOD


def test_the_example_groups_by_its_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """kinds:entry-points: as pip would install it."""
    (tmp_path / "sweep.py").write_text((EXAMPLE / "sweep.py").read_text(encoding="utf-8"), encoding="utf-8")
    info = tmp_path / "pykai_sweep-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pykai-sweep\nVersion: 0.1.0\n")
    declared = (EXAMPLE / "pyproject.toml").read_text(encoding="utf-8")
    line = '"example.com/*/Sweep" = "sweep:group"'
    assert f'[project.entry-points."{kinds.ENTRY_POINTS}"]\n{line}\n' in declared
    (info / "entry_points.txt").write_text(f"[{kinds.ENTRY_POINTS}]\nexample.com/*/Sweep = sweep:group\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "sweep", raising=False)
    readers = RecordedReaders(groupers=kinds.installed_groupers())
    assert grouped(pod(), SWEEP, readers=readers).min_available == 3
    odd = owner("Sweep", "s", "u", api="example.com/v1", spec={"parallelTrials": "many"})
    with pytest.raises(GroupingError, match=r"spec\.parallelTrials: 'many' is no number"):
        grouped(pod(), odd, readers=readers)


def test_an_entry_point_that_ends_the_program_when_imported_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """kinds:entry-points."""
    (tmp_path / "quitting.py").write_text("raise SystemExit(1)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert load_grouper(EntryPoint("x.io/v1/Gone", "quitting:group", kinds.ENTRY_POINTS)) is None
    assert "x.io/v1/Gone" in caplog.text
