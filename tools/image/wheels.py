"""The upper layers: the packages of requirements-image.lock, and PyKAI.

uv installs wheels only, each with a hash of the lock, for the interpreter and the C library of the image.  Programs of
dependencies, their tests and static libraries are left out; RECORD files list what is there.
"""

from __future__ import annotations

import csv
import io
import os
import platform
import shutil
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path

from tools.image import debian
from tools.image.programs import run

REPOSITORY = Path(__file__).parents[2]
LOCK = REPOSITORY / "requirements-image.lock"
#: What decides the content of the image, apart from Debian's packages; relative to the repository.  The build backend
#: leaves out of our wheel what git ignores.
SOURCES = (".gitignore", "src", "pyproject.toml", "README.md", "LICENSE", LOCK.name, "tools/image")
#: Where Debian's interpreter looks for packages that are not Debian's; relative to the root of the image.
SITE = f"usr/local/lib/python{debian.PYTHON}/dist-packages"
_PROGRAM = "usr/local/bin/kai"
#: The version of glibc in the suite: wheels for newer ones would not load.
_GLIBC = "2_36"


def build_wheel(folder: Path, epoch: int) -> Path:
    """Build our wheel from the checkout."""
    command: list[str | Path] = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder]
    run(command, cwd=REPOSITORY, env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)})
    (wheel,) = folder.glob("*.whl")
    return wheel


def install_dependencies(root: Path) -> None:
    """Install what the lock names below the root of the image."""
    _uv(root, "--require-hashes", "--requirement", LOCK)
    for path in sorted((root / SITE).rglob("*")):
        if not_for_running(path.relative_to(root / SITE)):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    _tidy(root)


def install_ours(root: Path, wheel: Path) -> None:
    """Install our wheel and the program `kai` below the root of the image."""
    version = wheel.name.split("-")[1]
    # By name and version, because an installation from a path would record the path.
    _uv(root, "--no-deps", "--no-index", "--find-links", wheel.parent, f"pykai=={version}")
    _tidy(root)
    (ours,) = (each for each in installed(root) if each.name == "pykai")
    (entry,) = ours.entry_points.select(group="console_scripts", name="kai")
    program = root / _PROGRAM
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(
        f"#!/usr/bin/python{debian.PYTHON}\nimport sys\n\nfrom {entry.module} import {entry.attr}\n\n"
        f"sys.exit({entry.attr}())\n",
        encoding="utf-8",
    )
    program.chmod(0o755)


def installed(root: Path) -> list[Distribution]:
    """The Python packages of an image, in order of their names."""
    return sorted(distributions(path=[str(root / SITE)]), key=lambda each: each.name.lower())


def not_for_running(path: Path) -> bool:
    """Whether a file or folder of a dependency serves only its tests or compilers; `path` begins with the package."""
    return (path.name == "tests" and len(path.parts) > 1) or path.suffix == ".a"


def keep_existing(record: str, site: Path) -> str:
    """A RECORD file without the lines of files that are not there."""
    kept = io.StringIO()
    rows = csv.reader(io.StringIO(record))
    csv.writer(kept, lineterminator="\n").writerows(row for row in rows if row and (site / row[0]).exists())
    return kept.getvalue()


def _uv(root: Path, *arguments: str | Path) -> None:
    run(
        [
            *(sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-config", "--target", root / SITE),
            *("--python", sys.executable, "--python-version", debian.PYTHON),
            *("--python-platform", f"{platform.machine()}-manylinux_{_GLIBC}"),
            *("--only-binary", ":all:", "--link-mode", "copy", "--no-compile-bytecode", *arguments),
        ]
    )


def _tidy(root: Path) -> None:
    site = root / SITE
    # Programs of packages name the interpreter that installed them; `kai` is rewritten.
    shutil.rmtree(site / "bin", ignore_errors=True)
    (site / ".lock").unlink(missing_ok=True)
    for folder in site.glob("*.dist-info"):
        for name in ("REQUESTED", "direct_url.json", "uv_cache.json"):
            (folder / name).unlink(missing_ok=True)
        record = folder / "RECORD"
        record.write_text(keep_existing(record.read_text(encoding="utf-8"), site), encoding="utf-8")
