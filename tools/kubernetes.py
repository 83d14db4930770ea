"""Builds Kubernetes' own programs from Go modules, once a version, into a cache outside the checkout.

    python tools/kubernetes.py kubectl           prints the path of the program

Needs Go on PATH.  The modules come from wherever Go is set up to fetch them; nothing else is downloaded.  A module that
requires k8s.io/kubernetes must replace each of its staging modules as k8s.io/kubernetes itself does, so these are read
from its go.mod.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

VERSION = "v1.35.4"
_STAGING = "v0.35.4"
_MODULE = "k8s.io/kubernetes"
_VARIABLES = "k8s.io/component-base/version"


def cache_folder() -> Path:
    """Where built programs are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pykai" / f"kubernetes-{VERSION}"


def built(program: str) -> Path | None:
    """The program, if it was built before."""
    path = cache_folder() / program
    return path if path.exists() else None


def build(program: str) -> Path:
    """Build a program of k8s.io/kubernetes/cmd, unless it was; returns its path."""
    target = cache_folder() / program
    if target.exists():
        return target
    go = shutil.which("go")
    if go is None:
        raise SystemExit("Go is not on PATH; it is needed to build Kubernetes' programs")
    target.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        module = Path(folder)
        _say(f"Fetching {_MODULE} {VERSION}")
        (module / "go.mod").write_text(f"module local\n\ngo 1.25.0\n\nrequire {_MODULE} {VERSION}\n", encoding="utf-8")
        (module / "programs.go").write_text(
            f'//go:build never\n\npackage local\n\nimport _ "{_MODULE}/cmd/{program}"\n', encoding="utf-8"
        )
        downloaded = json.loads(_go(go, module, "mod", "download", "-json", f"{_MODULE}@{VERSION}"))
        for staged in _staging(go, module, Path(downloaded["GoMod"])):
            _go(go, module, "mod", "edit", f"-replace={staged}={staged}@{_STAGING}")
        _go(go, module, "mod", "tidy")
        _say(f"Building {program} (a few minutes)")
        major, minor = VERSION.removeprefix("v").split(".")[:2]
        variables = {"gitVersion": VERSION, "gitMajor": major, "gitMinor": minor}
        flags = " ".join(("-s -w", *(f"-X {_VARIABLES}.{name}={value}" for name, value in variables.items())))
        made = module / program
        _go(go, module, "build", "-o", str(made), "-ldflags", flags, f"{_MODULE}/cmd/{program}")
        # Renamed at the end, so that a build that was stopped leaves nothing that looks finished.
        partial = target.with_suffix(f".{os.getpid()}")
        shutil.copy2(made, partial)
        partial.rename(target)
    _say(f"Built {program} {VERSION} in {time.monotonic() - began:.0f} s")
    return target


def _staging(go: str, module: Path, go_mod: Path) -> list[str]:
    edited = json.loads(_go(go, module, "mod", "edit", "-json", str(go_mod)))
    return [each["Old"]["Path"] for each in edited.get("Replace") or []]


def _go(go: str, folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [go, *arguments],
        cwd=folder,
        env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"go {' '.join(arguments[:2])} failed:\n{done.stderr.strip()}")
    return done.stdout


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="a folder below cmd/, such as kubectl")
    print(build(parser.parse_args().program))
    return 0


if __name__ == "__main__":
    sys.exit(main())
