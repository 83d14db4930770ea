"""What of Python packages is left out, and what their RECORD files say then."""

from __future__ import annotations

from pathlib import Path

import pytest

import pykai
from tools.image.__main__ import version_in
from tools.image.wheels import REPOSITORY, SOURCES, installed, keep_existing, not_for_running


@pytest.mark.parametrize("path", ["numpy/tests", "numpy/_core/tests", "numpy/random/lib/libnpyrandom.a"])
def test_tests_and_static_libraries_are_left_out(path: str) -> None:
    assert not_for_running(Path(path))


# A package may be called tests; a module may begin with it.
@pytest.mark.parametrize("path", ["tests", "numpy/testing", "numpy/core.so", "numpy"])
def test_the_rest_stays(path: str) -> None:
    assert not not_for_running(Path(path))


def test_a_record_lists_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "kept,with comma.py").touch()
    record = '"kept,with comma.py",sha256=x,0\ngone.py,sha256=y,1\n'
    assert keep_existing(record, tmp_path) == '"kept,with comma.py",sha256=x,0\n'


def test_packages_are_found_below_the_root_of_the_image_only(tmp_path: Path) -> None:
    for name in ("Zeta", "alpha"):
        folder = tmp_path / f"usr/local/lib/python3.11/dist-packages/{name}-1.0.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    assert [each.name for each in installed(tmp_path)] == ["alpha", "Zeta"]


def test_the_version_is_the_one_of_the_package() -> None:
    assert version_in((REPOSITORY / "src/pykai/__init__.py").read_text(encoding="utf-8")) == pykai.__version__
    with pytest.raises(SystemExit, match="no line __version__"):
        version_in("version = 1")


def test_what_decides_the_content_exists() -> None:
    assert [name for name in SOURCES if not (REPOSITORY / name).exists()] == []
