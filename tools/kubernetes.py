"""Builds Kubernetes' own programs, etcd and helm from Go modules, once per version, into a cache outside the checkout.

    python tools/kubernetes.py kubectl                   prints the path of the program
    python tools/kubernetes.py kube-apiserver etcd       several at once share what they compile
    python tools/kubernetes.py --all                     all that a control plane needs
    python tools/kubernetes.py helm                      what installs the chart

Needs Go on PATH.  The modules come from wherever Go is set up to fetch them; nothing else is downloaded.  A module that
requires k8s.io/kubernetes must replace each of its staging modules as k8s.io/kubernetes itself does, so these are read
from its go.mod.  Several builds at the same time wait for each other.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

VERSION = "v1.35.4"
ETCD_VERSION = "v3.6.5"
HELM_VERSION = "v3.22.0"
_STAGING = "v0.35.4"
_MODULE = "k8s.io/kubernetes"
_ETCD_MODULE = "go.etcd.io/etcd/server/v3"
_HELM_MODULE = "helm.sh/helm/v3"
_VARIABLES = "k8s.io/component-base/version"
_SAY_EVERY = 10.0
# Together they save a tenth of the compile time: the linker drops debug information anyway, and there is memory for
# less frequent garbage collection.
_COMPILER_FLAGS = "-gcflags=all=-dwarf=0"
_COMPILER_GOGC = "800"

_OTHER_VERSIONS = {"etcd": ETCD_VERSION, "helm": HELM_VERSION}
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")

_ETCD_MAIN = f"""package main

import (
	"os"

	"{_ETCD_MODULE}/etcdmain"
)

func main() {{ etcdmain.Main(os.Args) }}
"""


def cache_folder() -> Path:
    """Where built programs are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pykai" / f"kubernetes-{VERSION}"


def program_path(program: str) -> Path:
    """The path of a built program; etcd and helm have their own versions."""
    version = _OTHER_VERSIONS.get(program)
    return cache_folder() / (f"{program}-{version}" if version else program)


def built(program: str) -> Path | None:
    """The program, if it was built before."""
    path = program_path(program)
    return path if path.exists() else None


def build(programs: Sequence[str]) -> list[Path]:
    """Build programs of k8s.io/kubernetes/cmd and etcd, unless they were; returns their paths."""
    if not all(map(built, programs)):
        go = shutil.which("go")
        if go is None:
            raise SystemExit("Go is not on PATH; it is needed to build Kubernetes' programs, etcd and helm")
        with _alone():
            missing = [program for program in programs if not built(program)]
            kubernetes = [program for program in missing if program not in _OTHER_VERSIONS]
            for program, recipe in (("etcd", _etcd), ("helm", _helm)):
                if program in missing:
                    _build(go, recipe(), [program])
            if kubernetes:
                _build(go, _kubernetes(go, kubernetes), kubernetes)
    return [program_path(program) for program in programs]


@dataclass(frozen=True)
class _Recipe:
    title: str
    go_mod: str
    files: dict[str, str]
    packages: tuple[str, ...]
    flags: str


def _etcd() -> _Recipe:
    return _Recipe(
        title=f"etcd {ETCD_VERSION}",
        go_mod=f"module local/etcd\n\ngo 1.24.0\n\nrequire {_ETCD_MODULE} {ETCD_VERSION}\n",
        files={"main.go": _ETCD_MAIN},
        packages=(".",),
        flags="-s -w",
    )


def _helm() -> _Recipe:
    package = f"{_HELM_MODULE}/cmd/helm"
    return _Recipe(
        title=f"helm {HELM_VERSION}",
        go_mod=f"module local/helm\n\ngo 1.25.0\n\nrequire {_HELM_MODULE} {HELM_VERSION}\n",
        files={"programs.go": f'//go:build never\n\npackage local\n\nimport _ "{package}"\n'},
        packages=(package,),
        flags=f"-s -w -X {_HELM_MODULE}/internal/version.version={HELM_VERSION}",
    )


def _kubernetes(go: str, programs: Sequence[str]) -> _Recipe:
    packages = tuple(f"{_MODULE}/cmd/{program}" for program in programs)
    imports = "".join(f'import _ "{package}"\n' for package in packages)
    major, minor = VERSION.removeprefix("v").split(".")[:2]
    variables = {"gitVersion": VERSION, "gitMajor": major, "gitMinor": minor}
    return _Recipe(
        title=f"Kubernetes {VERSION}: {', '.join(programs)}",
        go_mod=f"module local\n\ngo 1.25.0\n\nrequire {_MODULE} {VERSION}\n\nreplace (\n{_replacements(go)})\n",
        files={"programs.go": f"//go:build never\n\npackage local\n\n{imports}"},
        packages=packages,
        flags=" ".join(("-s -w", *(f"-X {_VARIABLES}.{name}={value}" for name, value in variables.items()))),
    )


def _replacements(go: str) -> str:
    _say(f"Fetching {_MODULE} {VERSION}")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "go.mod").write_text("module local\n\ngo 1.25.0\n", encoding="utf-8")
        downloaded = json.loads(_go(go, Path(folder), "mod", "download", "-json", f"{_MODULE}@{VERSION}"))
        edited = json.loads(_go(go, Path(folder), "mod", "edit", "-json", downloaded["GoMod"]))
    staged = [each["Old"]["Path"] for each in edited.get("Replace") or []]
    return "".join(f"\t{path} => {path} {_STAGING}\n" for path in staged)


def _build(go: str, recipe: _Recipe, programs: Sequence[str]) -> None:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        module = Path(folder)
        (module / "go.mod").write_text(recipe.go_mod, encoding="utf-8")
        for name, text in recipe.files.items():
            (module / name).write_text(text, encoding="utf-8")
        _say(f"Fetching the modules of {recipe.title}")
        _go(go, module, "mod", "tidy")
        output = module / "built"
        output.mkdir()
        _compile(go, module, output, recipe)
        made = sorted(output.iterdir())
        for program, path in zip(sorted(programs), made, strict=True):
            target = program_path(program)
            # Renamed at the end, so that an interrupted build leaves nothing that looks finished.
            partial = target.with_suffix(f".{os.getpid()}")
            shutil.copy2(path, partial)
            partial.rename(target)
    _say(f"Built {recipe.title} in {time.monotonic() - began:.0f} s")


def _compile(go: str, module: Path, output: Path, recipe: _Recipe) -> None:
    """Compile and link; reports progress from time to time (Go prints each package it compiles)."""
    total = len(_go(go, module, "list", "-deps", *recipe.packages).splitlines())
    compiler = subprocess.Popen(
        [go, "build", "-v", "-o", f"{output}/", _COMPILER_FLAGS, "-ldflags", recipe.flags, *recipe.packages],
        cwd=module,
        env={"GOGC": _COMPILER_GOGC, **_environment()},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert compiler.stderr is not None
    said, seen, last = time.monotonic(), 0, ""
    _say(f"Building {recipe.title}: at most {total} packages; what Go has compiled before is not compiled again")
    lines: list[str] = []
    for line in compiler.stderr:
        lines.append(line)
        seen, last = seen + 1, line.strip()
        if time.monotonic() - said > _SAY_EVERY:
            said = time.monotonic()
            _say(f"  {seen} of at most {total} packages compiled, now {last}")
    if compiler.wait() != 0:
        raise SystemExit(f"go build failed:\n{''.join(lines[-30:])}")


@contextmanager
def _alone() -> Iterator[None]:
    """Hold a lock: two concurrent builds would compile everything twice."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "building").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("Another build is under way; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _environment() -> dict[str, str]:
    return {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod"}


def _go(go: str, folder: Path, *arguments: str) -> str:
    done = subprocess.run([go, *arguments], cwd=folder, env=_environment(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"go {' '.join(arguments[:2])} failed:\n{done.stderr.strip()}")
    return done.stdout


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", help="etcd, helm, or a folder below cmd/ of Kubernetes, such as kubectl")
    parser.add_argument("--all", action="store_true", help=f"the control plane: {', '.join(CONTROL_PLANE)}")
    arguments = parser.parse_args()
    programs = [*(CONTROL_PLANE if arguments.all else ()), *arguments.programs]
    if not programs:
        parser.error("name a program, or say --all")
    for path in build(programs):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
