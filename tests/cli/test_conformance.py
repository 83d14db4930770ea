"""`kai conformance` on a small folder of cases written here."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pykai.cli import main
from tests.dev.small_cases import BINDING, PENDING, SHARES, case

Raw = dict[str, Any]
Invoke = Callable[..., Result]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files: one passes, the other has a case that fails."""
    write(tmp_path / "good.jsonl", case(1, BINDING), case(2, PENDING, pods=3))
    write(tmp_path / "mixed.jsonl", case(3, BINDING | SHARES), case(4, PENDING), case(5, BINDING))
    (tmp_path / "README.md").write_text("not a case")
    return tmp_path


def write(path: Path, *cases: Raw) -> None:
    path.write_text("".join(json.dumps(raw) + "\n" for raw in cases))


@pytest.fixture
def kai(folder: Path) -> Invoke:
    """Runs the command on the folder."""

    def invoke(*arguments: str, where: Path = folder) -> Result:
        return CliRunner().invoke(main, ["conformance", str(where), *arguments])

    return invoke


def test_a_line_a_file_and_what_differs_in_failed_cases(kai: Invoke) -> None:
    result = kai()
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "good.jsonl      2 passed    0 failed",
        "mixed.jsonl     2 passed    1 failed",
        "  small/004",
        "    group train: pod train-0: status Binding, expected Pending",
        "    group train: pod train-1: status Binding, expected Pending",
        "total           4 passed    1 failed",
    ]
    assert result.stderr == ""


def test_files_are_chosen_by_name(kai: Invoke) -> None:
    result = kai("--files", "g*.jsonl")
    assert result.exit_code == 0
    assert "good.jsonl" in result.stdout
    assert "mixed" not in result.stdout
    assert kai("--files", "good.jsonl,mix*").stdout == kai().stdout


def test_json_is_the_last_line_of_standard_output_and_the_only_one(kai: Invoke) -> None:
    result = kai("--json")
    assert result.exit_code == 1
    (line,) = result.stdout.splitlines()
    assert json.loads(line) == {
        "good.jsonl": {"passed": 2, "failed": []},
        "mixed.jsonl": {"passed": 2, "failed": ["small/004"]},
    }
    assert "group train: pod train-0: status Binding, expected Pending" in result.stderr


def test_expect_compares_only_these_fields_and_counts_the_cases_left_out(kai: Invoke) -> None:
    result = kai("--expect", "fairShares", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "good.jsonl": {"passed": 0, "failed": []},
        "mixed.jsonl": {"passed": 1, "failed": []},
    }
    assert "4 cases expect nothing of fairShares and were left out" in result.stderr


def test_an_unknown_field_is_a_usage_error_that_lists_the_fields(kai: Invoke) -> None:
    result = kai("--expect", "fairShares,shares")
    assert result.exit_code == 2
    assert "unknown field 'shares'" in result.stderr
    assert "podGroups, pods, gpusAccepted, nodes, podsByDevice, fairShares, runningPods" in result.stderr


def test_a_missing_folder_or_file_is_exit_status_2(kai: Invoke, folder: Path) -> None:
    missing = kai(where=folder / "gone")
    assert missing.exit_code == 2
    assert f"{folder / 'gone'}: no such folder" in missing.stderr
    unfit = kai("--files", "good.jsonl,other*")
    assert unfit.exit_code == 2
    assert "no file fits other*; there are good.jsonl, mixed.jsonl" in unfit.stderr
    empty = folder / "empty"
    empty.mkdir()
    assert kai(where=empty).exit_code == 2
    assert "no *.jsonl files" in kai(where=empty).stderr


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "Input data was truncated"),
        ("[]", "Expected `object`"),
        ('{"id": "x"}', "missing required field `now`"),
        (json.dumps(case(9, BINDING) | {"now": "today"}), "is not a timestamp"),
        (json.dumps(case(9, BINDING) | {"objects": [{"kind": "Pod"}]}), "objects[0]: expected an object with kind"),
        (json.dumps(case(9, BINDING) | {"cycles": {"run": 1}}), "either actions or cycles"),
        (json.dumps(case(9, BINDING, cycles={"untilMatch": 0})), "cycles: expected at least one"),
    ],
)
def test_a_line_that_is_no_case_is_named_by_file_and_number(kai: Invoke, folder: Path, line: str, problem: str) -> None:
    with (folder / "good.jsonl").open("a") as file:
        file.write(f"\n{line}\n")
    result = kai("--json")
    assert result.exit_code == 2
    assert f"{folder / 'good.jsonl'}, line 4: not a case" in result.stderr
    assert problem in result.stderr
    assert result.stdout == ""


def test_what_cannot_be_obeyed_or_read_fails_that_case_and_no_other(kai: Invoke, folder: Path) -> None:
    bad_node = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n"}, "status": {"allocatable": "much"}}
    write(
        folder / "good.jsonl",
        case(1, BINDING, settings={"turbo": True}),
        case(2, BINDING, environment={"earthquake": "on"}),
        case(3, BINDING, podStates={"nobody": "Releasing"}),
        case(4, BINDING, podStates={"train-0": "Sleeping"}),
        case(5, BINDING, schedulerConf={"tiers": [{"plugins": [{"name": "astrology"}]}]}),
        case(6, BINDING) | {"objects": [bad_node]},
        case(7, {"weather": "fair"}),
        case(8, BINDING, actions=["tidy"]),
        case(9, BINDING),
    )
    result = kai("--files", "good.jsonl")
    assert result.exit_code == 1
    for line in (
        "settings.turbo: unknown flag",
        "environment.earthquake: this runner does not know it",
        "podStates.nobody: 0 pods of that name",
        "podStates.train-0: unknown state Sleeping",
        "unknown plugin 'astrology'",
        "DecodeError: Node n: status.allocatable",
        "weather: this runner cannot compare it",
        "action tidy: the engine does not have it",
    ):
        assert line in result.stdout
    assert "good.jsonl     1 passed    8 failed" in result.stdout
