"""Programs that the build runs: what is missing is named, what fails is shown."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.image.programs import NEEDED, CannotRun, banner, missing, run
from tools.image.wheels import REPOSITORY


def test_missing_packages_are_named_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert missing() == sorted(set(NEEDED.values()))
    for program in NEEDED:
        (tmp_path / program).touch(mode=0o755)
    assert missing() == []
    (tmp_path / "umoci").unlink()
    assert missing() == ["umoci"]


def test_a_program_that_fails_is_shown_with_the_end_of_its_output() -> None:
    script = "for n in range(30): print('line', n)\nraise SystemExit(3)"
    with pytest.raises(CannotRun) as caught:
        run([sys.executable, "-c", script])
    assert "ended with 3:\nline 10\n" in str(caught.value)
    assert str(caught.value).endswith("line 29")


def test_the_check_is_skipped_loudly_where_no_image_can_be_built(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tools.image.programs"],
        cwd=REPOSITORY,
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert "**  NO IMAGE: it is neither built nor tested here." in ended.stderr
    assert "apt-get install" in ended.stderr
    assert "umoci" in ended.stderr


def test_a_banner_stands_out() -> None:
    assert banner(["one"]).splitlines() == ["", "*" * 70, "**  one", "*" * 70]
