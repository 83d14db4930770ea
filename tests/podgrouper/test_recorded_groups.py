"""PodGroups as KAI's pod grouper made them, byte for byte, one test a recorded case; and the runner of such cases."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from pykai.cli import main
from pykai.dev.cases import CaseError
from pykai.dev.groupingcases import (
    GroupingCase,
    check_grouping_case,
    group_case,
    is_grouping_file,
    read_grouping_cases,
)
from tests.dev.small_cases import BINDING
from tests.dev.small_cases import case as scheduling_case
from tests.podgrouper.casefolder import CASES, MISSING
from tests.podgrouper.groupings import Raw

if CASES:

    @pytest.mark.conformance
    @pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in CASES])
    def test_groups_are_as_recorded(case: GroupingCase) -> None:
        assert check_grouping_case(case) == []

else:

    @pytest.mark.skip(reason=MISSING)
    def test_recorded_groups() -> None:
        """Skipped in place of the cases while there are none."""


def golden() -> Raw:
    """workloads:T-150."""
    text = 'name: train-pod\nuid: u1\ngroup: ""\nversion: v1\nkind: Pod\n'
    return {
        "id": "golden",
        "owners": [],
        "pods": [
            {
                "metadata": {
                    "name": "train-pod",
                    "namespace": "ns",
                    "uid": "u1",
                    "labels": {"kai.scheduler/queue": "q"},
                },
                "spec": {"schedulerName": "kai-scheduler"},
                "phase": "Pending",
            }
        ],
        "expect": {
            "podGroups": [
                {
                    "metadata": {
                        "name": "pg-train-pod-u1",
                        "namespace": "ns",
                        "labels": {"kai.scheduler/queue": "q"},
                        "annotations": {"kai.scheduler/top-owner-metadata": text},
                        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "train-pod", "uid": "u1"}],
                    },
                    "spec": {
                        "minMember": 1,
                        "queue": "q",
                        "priorityClassName": "train",
                        "topologyConstraint": {},
                    },
                }
            ],
            "pods": {"train-pod": {"pod-group-name": "pg-train-pod-u1"}},
        },
    }


def as_case(raw: Raw) -> GroupingCase:
    return msgspec.convert(raw, GroupingCase)


def test_the_golden_group_comes_out_as_written() -> None:
    """workloads:T-150."""
    assert check_grouping_case(as_case(golden())) == []


def test_the_comparison_sees_every_difference() -> None:
    raw = golden()
    raw["expect"]["podGroups"][0]["spec"]["minMember"] = 2
    raw["expect"]["pods"]["train-pod"]["pod-group-name"] = "other"
    case = as_case(raw)
    assert [text.partition(":")[0] for text in check_grouping_case(case)] == [
        "PodGroup pg-train-pod-u1",
        "pod train-pod",
    ]
    assert [text.partition(":")[0] for text in check_grouping_case(case, ("pods",))] == ["pod train-pod"]
    raw["expect"] = {"podGroups": [], "pods": {"train-pod": {"pod-group-name": None}}}
    assert len(check_grouping_case(as_case(raw))) == 2


def test_a_missing_owner_leaves_the_pod_ungrouped() -> None:
    raw = golden()
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "gone", "uid": "j", "controller": True}
    raw["pods"][0]["metadata"]["ownerReferences"] = [reference]
    assert group_case(as_case(raw)) == {"podGroups": [], "pods": {"train-pod": {"pod-group-name": None}}}


def test_an_unreadable_object_is_a_difference() -> None:
    raw = golden()
    raw["pods"][0]["metadata"]["labels"] = "none"
    assert "labels" in check_grouping_case(as_case(raw))[0]


class TestCommand:
    """`kai conformance` on files of grouping cases."""

    @staticmethod
    def run(folder: Path, *arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(main, ["conformance", str(folder), *arguments])
        return result.exit_code, result.stdout

    @staticmethod
    def write(path: Path, *cases: Raw) -> None:
        path.write_text("".join(f"{json.dumps(raw)}\n" for raw in cases))

    def test_grouping_files_run_beside_others(self, tmp_path: Path) -> None:
        wrong = golden() | {"id": "wrong", "expect": {"podGroups": [], "pods": golden()["expect"]["pods"]}}
        self.write(tmp_path / "groups.jsonl", golden(), wrong)
        self.write(tmp_path / "decisions.jsonl", scheduling_case(1, BINDING))
        status, text = self.run(tmp_path)
        assert status == 1
        lines = text.splitlines()
        assert lines[:3] == [
            "decisions.jsonl     1 passed    0 failed",
            "groups.jsonl        1 passed    1 failed",
            "  wrong",
        ]
        assert lines[3].startswith("    PodGroup pg-train-pod-u1: {")
        assert self.run(tmp_path, "--expect", "pods", "--files", "groups.jsonl")[0] == 0
        assert "2 left out" in self.run(tmp_path, "--expect", "fairShares", "--files", "groups.jsonl")[1]

    def test_a_file_is_recognised_by_the_keys_of_its_first_case(self, tmp_path: Path) -> None:
        path = tmp_path / "a.jsonl"
        for content, expected in ((golden(), True), (scheduling_case(1, BINDING), False), ([], False), ({}, False)):
            path.write_text(f"\n{json.dumps(content)}\n")
            assert is_grouping_file(path) is expected
        assert not is_grouping_file(tmp_path / "gone")

    @pytest.mark.parametrize(
        ("broken", "problem"),
        [
            ({"owners": [], "pods": [], "expect": {}}, "missing required field `id`"),
            ({"id": "x", "owners": [{}], "pods": [], "expect": {}}, "owners[0]: expected an object with metadata.name"),
        ],
    )
    def test_a_line_that_is_no_case_is_named(self, tmp_path: Path, broken: Raw, problem: str) -> None:
        path = tmp_path / "groups.jsonl"
        self.write(path, golden(), broken)
        with pytest.raises(CaseError, match="line 2: not a case") as raised:
            list(read_grouping_cases(path))
        assert problem in str(raised.value)
        assert self.run(tmp_path)[0] == 2
