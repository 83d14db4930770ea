"""The comparison of speed: which figures it compares, and when it fails."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

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
        'echo "{\\"seconds\\": $figure}"\n'
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
