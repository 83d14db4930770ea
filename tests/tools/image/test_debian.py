"""What of Debian's packages is left out of the image, and what stays."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tools.image import debian
from tools.image.programs import run


@pytest.mark.parametrize(
    "path",
    [
        "etc/dpkg/origins/debian",
        "usr/sbin/update-ca-certificates",
        "usr/share/man/man1/python3.11.1.gz",
        "usr/share/doc/tzdata/changelog.Debian.gz",
        "usr/lib/x86_64-linux-gnu/gconv/UTF-16.so",
        "usr/lib/python3.11/sitecustomize.py",
        "var/cache/apt",
        "var/lib/dpkg",
    ],
)
def test_dropped(path: str) -> None:
    assert debian.dropped(path)


@pytest.mark.parametrize(
    "path",
    [
        "usr/share/doc/tzdata/copyright",
        "usr/bin/python3.11",
        "usr/lib/python3.11/json/__init__.py",
        "usr/share/zoneinfo/Europe/Berlin",
        "usr/share/ca-certificates/mozilla/root.crt",
        "etc/os-release",
        "tmp",
    ],
)
def test_kept(path: str) -> None:
    assert not debian.dropped(path)


def test_what_is_wanted_is_not_left_out() -> None:
    assert not debian.WANTED.keys() & debian.NOT_NEEDED.keys()


def package(folder: Path, name: str, files: dict[str, str]) -> debian.Package:
    tree = folder / name
    for path, text in files.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text, encoding="utf-8")
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(
        f"Package: {name}\nVersion: 1:2.3+deb12u1\nArchitecture: all\nMaintainer: M <m@example.com>\n"
        "Description: first line\n more lines\n",
        encoding="utf-8",
    )
    # A script that would fail: none may run.
    (tree / "DEBIAN/postinst").write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    (tree / "DEBIAN/postinst").chmod(0o755)
    file = folder / f"{name}.deb"
    run(["dpkg-deb", "--root-owner-group", "--build", tree, file])
    return debian.read(file)


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="NO DPKG-DEB: how packages are unpacked is not tested")
def test_packages_are_unpacked_without_their_scripts_and_stay_known(tmp_path: Path) -> None:
    certificates = {f"usr/share/ca-certificates/mozilla/{name}.crt": f"{name}\n" for name in ("b", "a")}
    files = {
        **certificates,
        "usr/lib/ssl/openssl.cnf": "",
        "usr/share/doc/first/copyright": "licence",
        "usr/share/doc/first/README": "dropped",
        "usr/share/man/man1/first.1": "dropped",
        "var/lib/dpkg/dropped": "dropped",
    }
    first = package(tmp_path, "first", files)
    assert (first.name, first.version, first.architecture) == ("first", "1:2.3+deb12u1", "all")
    assert first.description == "first line"
    root = tmp_path / "root"
    debian.unpack([first], root)
    assert "Package: first\n" in (root / "var/lib/dpkg/status.d/first").read_text(encoding="utf-8")
    assert not (root / "var/lib/dpkg/dropped").exists()
    assert not (root / "usr/share/man").exists()
    assert [each.name for each in (root / "usr/share/doc/first").iterdir()] == ["copyright"]
    assert (root / "etc/ssl/certs/ca-certificates.crt").read_text(encoding="utf-8") == "a\nb\n"
    users = [line.split(":") for line in (root / "etc/passwd").read_text(encoding="utf-8").splitlines()]
    assert [(name, uid, gid) for name, _, uid, gid, *_ in users][1:] == [("kai", str(debian.USER), str(debian.USER))]
