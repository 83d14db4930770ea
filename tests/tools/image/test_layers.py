"""Layers are equal for equal files: times, owners, modes and the order of a folder do not count."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from tools.image.layers import UNCHANGING, paths_below, write_layer


def fill(root: Path, names: list[str]) -> None:
    for name in names:
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"content of {name}", encoding="utf-8")
    (root / "link").symlink_to("b/two")


def layer_of(root: Path, archive: Path, mtime: int = UNCHANGING) -> bytes:
    write_layer(root, paths_below(root), mtime, archive)
    return archive.read_bytes()


def members(archive: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(archive) as tar:
        return {each.name: each for each in tar}


def test_order_times_and_modes_of_the_machine_do_not_count(tmp_path: Path) -> None:
    names = ["a/one", "b/two", "c"]
    fill(tmp_path / "first", names)
    fill(tmp_path / "second", names[::-1])
    for path in (tmp_path / "second").rglob("*"):
        if not path.is_symlink():
            path.chmod(0o700 if path.is_dir() else 0o600)
            os.utime(path, (1, 1))
    first, second = (layer_of(tmp_path / name, tmp_path / f"{name}.tar") for name in ("first", "second"))
    assert first == second


def test_content_and_time_of_the_layer_count(tmp_path: Path) -> None:
    fill(tmp_path / "root", ["a"])
    first = layer_of(tmp_path / "root", tmp_path / "first.tar")
    assert layer_of(tmp_path / "root", tmp_path / "later.tar", UNCHANGING + 1) != first
    (tmp_path / "root/a").write_text("other", encoding="utf-8")
    assert layer_of(tmp_path / "root", tmp_path / "other.tar") != first


def test_root_owns_all_and_no_program_runs_with_the_rights_of_its_owner(tmp_path: Path) -> None:
    root = tmp_path / "root"
    fill(root, ["bin/program", "tmp/x"])
    (root / "bin/program").chmod(0o6755)
    (root / "tmp").chmod(0o1777)
    layer_of(root, tmp_path / "layer.tar")
    found = members(tmp_path / "layer.tar")
    assert {(each.uid, each.gid, each.uname, each.gname) for each in found.values()} == {(0, 0, "", "")}
    assert {name: oct(each.mode) for name, each in found.items()} == {
        "bin": "0o755",
        "bin/program": "0o755",
        "link": "0o777",
        "tmp": "0o1777",
        "tmp/x": "0o644",
    }


def test_links_are_not_followed(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    fill(root, ["a"])
    fill(outside, ["secret"])
    (root / "folder").symlink_to(outside)
    assert paths_below(root) == ["a", "folder", "link"]
    layer_of(root, tmp_path / "layer.tar")
    assert members(tmp_path / "layer.tar")["folder"].issym()


def test_only_the_given_paths_are_written(tmp_path: Path) -> None:
    fill(tmp_path / "root", ["a", "b/two"])
    write_layer(tmp_path / "root", {"b/two"}, UNCHANGING, tmp_path / "layer.tar")
    assert list(members(tmp_path / "layer.tar")) == ["b/two"]


def test_a_pipe_is_refused_by_its_name(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    os.mkfifo(root / "pipe")
    with pytest.raises(ValueError, match="root/pipe: neither a file, a folder nor a link"):
        layer_of(root, tmp_path / "layer.tar")
