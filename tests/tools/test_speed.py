"""The comparison of speed: which figures it compares, and when it fails."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tools.compare.firstcycles import cpu_seconds
from tools.compare.speed import main


def installation(folder: Path, name: str, seconds: list[float]) -> str:
    """A program that answers like `python -m pykai bench`, with one figure a call."""
    figures = folder / f"{name}.figures"
    figures.write_text("".join(f"{each}\n" for each in seconds))
    program = folder / name
    program.write_text(
        "#!/bin/sh\n"
        f'echo "$*" >> {folder}/calls; echo {name} >> {folder}/order\n'
        f"figure=$(head -n 1 {figures}); sed -i 1d {figures}\n"
        'echo "{\\"seconds\\": $figure, \\"cpu_seconds\\": 1}"\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


@pytest.mark.parametrize(("new", "status"), [([1.0, 1.0, 9.0], 0), ([1.2, 1.2, 1.2], 1), ([0.5, 0.5, 0.5], 0)])
def test_medians_decide(tmp_path: Path, capsys: pytest.CaptureFixture[str], new: list[float], status: int) -> None:
    old_python, new_python = installation(tmp_path, "old", [1.0, 1.0, 1.1]), installation(tmp_path, "new", new)
    assert main(["--old", old_python, "--new", new_python, "--rounds", "3", "fill:10"]) == status
    assert ("slower" in capsys.readouterr().out) is bool(status)
    assert (tmp_path / "calls").read_text().splitlines() == ["-m pykai bench fill --nodes 10 --json"] * 6
    assert (tmp_path / "order").read_text().split() == ["old", "new", "new", "old", "old", "new"]


def test_files_are_measured_in_processor_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pythons = [installation(tmp_path, name, [3.0, 3.0]) for name in ("old", "new")]
    objects, cases = tmp_path / "objects.jsonl", tmp_path / "cases.jsonl"
    asked = ["--rounds", "1", f"objects:{objects}", f"cases:{cases}"]
    assert main(["--old", pythons[0], "--new", pythons[1], *asked]) == 0
    assert "1.0000" in capsys.readouterr().out
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[:2] == [f"-m pykai bench objects {objects} --once --json"] * 2
    assert [Path(call.split()[0]).name for call in calls[2:]] == ["firstcycles.py"] * 2
    assert {call.split()[1] for call in calls[2:]} == {str(cases)}


def test_first_cycles_are_those_of_every_case(tmp_path: Path) -> None:
    case = {"id": "allocate/x/1", "now": "2026-01-01T00:00:00Z", "objects": [], "expect": {}, "actions": ["allocate"]}
    path = tmp_path / "cases.jsonl"
    path.write_text("\n".join(json.dumps(case | {"id": f"allocate/x/{number}"}) for number in range(3)))
    assert len(cpu_seconds(path)) == 3
