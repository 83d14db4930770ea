"""Builds the image of all services as an OCI archive, without a Docker daemon, and a bill of materials beside it.

    python -m tools.image                      dist/kai-VERSION-ARCHITECTURE.oci.tar and .cdx.json
    python -m tools.image --output FOLDER
    python -m tools.image --mirror URL         fetch Debian packages from there

The same commit and the same Debian packages give the same digest.  The time in the image is SOURCE_DATE_EPOCH, or that
of the last commit.  Needs root, mmdebstrap and umoci (docs/image.md).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tools.image import debian, oci, wheels
from tools.image.layers import UNCHANGING, paths_below, write_layer
from tools.image.programs import CannotRun, banner, interrupt_on_sigterm, problems, run
from tools.image.sbom import bill_of_materials


@dataclass(frozen=True)
class Built:
    """What a build left behind."""

    archive: Path
    bill: Path
    digest: str
    pulled_bytes: int


def build(output: Path, mirror: str | None = None) -> Built:
    """Build the image and its bill of materials into a folder."""
    facts = facts_of_checkout()
    output.mkdir(parents=True, exist_ok=True)
    name = f"kai-{facts.version}-{facts.architecture}"
    with tempfile.TemporaryDirectory(prefix="kai-image-") as temporary:
        folder = Path(temporary)
        root = folder / "root"
        packages, archives = _layers(folder, root, facts, mirror)
        _say("Writing the archive")
        layout = folder / "layout"
        oci.write_layout(layout, archives, facts)
        unfinished = folder / "archive"
        oci.write_archive(layout, unfinished, facts.epoch)
        digest, manifest = oci.manifest_of(unfinished)
        bill = bill_of_materials(facts, digest, packages, wheels.installed(root))
        built = Built(output / f"{name}.oci.tar", output / f"{name}.cdx.json", digest, oci.pulled_bytes(manifest))
        _move(unfinished.read_bytes(), built.archive)
        _move((json.dumps(bill, indent=2, ensure_ascii=False) + "\n").encode(), built.bill)
    return built


def facts_of_checkout() -> oci.Facts:
    """Version, commit and time of the checkout."""
    version = version_in((wheels.REPOSITORY / "src/pykai/__init__.py").read_text(encoding="utf-8"))
    commit = committed = ""
    if (wheels.REPOSITORY / ".git").exists():
        commit, _, committed = _git("log", "-1", "--format=%H %ct").partition(" ")
        # A commit that the content is not from would mislead a reader who looks for the source.
        if _git("status", "--porcelain", "--", *wheels.SOURCES):
            commit = f"{commit}-modified"
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or committed
    if not epoch.isdigit():
        raise SystemExit(
            "This is not a git checkout: set SOURCE_DATE_EPOCH to the time of the image, in seconds since 1970."
        )
    return oci.Facts(version=version, revision=commit, epoch=int(epoch), architecture=debian.architecture())


def version_in(source: str) -> str:
    """The version that our package states; the build backend reads the same line."""
    version = re.search(r'^__version__ = "(.+)"$', source, re.MULTILINE)
    if version is None:
        raise SystemExit('src/pykai/__init__.py has no line __version__ = "..."')
    return version[1]


def _layers(
    folder: Path, root: Path, facts: oci.Facts, mirror: str | None
) -> tuple[list[debian.Package], dict[str, Path]]:
    _say(f"Fetching Debian packages of {debian.SUITE}")
    packages = debian.fetch(folder, mirror)
    debian.unpack(packages, root)
    debian.compile_modules(root, f"/usr/lib/python{debian.PYTHON}")
    archives: dict[str, Path] = {}
    written: set[str] = set()

    def layer(title: str, mtime: int) -> None:
        paths = set(paths_below(root))
        archives[title] = folder / f"layer{len(archives)}.tar"
        write_layer(root, paths - written, mtime, archives[title])
        written.update(paths)

    layer(f"Debian packages of {debian.SUITE}", UNCHANGING)
    _say(f"Installing {wheels.LOCK.name}")
    wheels.install_dependencies(root)
    debian.compile_modules(root, f"/{wheels.SITE}")
    layer(f"Python packages of {wheels.LOCK.name}", UNCHANGING)
    _say(f"Installing PyKAI {facts.version}")
    (folder / "wheel").mkdir()
    wheels.install_ours(root, wheels.build_wheel(folder / "wheel", facts.epoch))
    debian.compile_modules(root, f"/{wheels.SITE}/pykai")
    layer(f"PyKAI {facts.version}", facts.epoch)
    return packages, archives


def _git(*arguments: str) -> str:
    # Root may build the checkout of another user.
    safe = ["-c", f"safe.directory={wheels.REPOSITORY}"]
    return run(["git", *safe, *arguments], cwd=wheels.REPOSITORY).strip()


def _move(content: bytes, target: Path) -> None:
    """Write a file so that it is there as a whole or not at all."""
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def _say(text: str) -> None:
    print(f"[{time.monotonic() - _BEGAN:5.1f} s] {text}", flush=True)


_BEGAN = time.monotonic()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.image", description="Build the image of all services.")
    parser.add_argument("--output", type=Path, default=wheels.REPOSITORY / "dist", help="folder of the results (dist)")
    parser.add_argument("--mirror", help="where Debian packages are fetched: a URL or a line of sources.list")
    arguments = parser.parse_args()
    interrupt_on_sigterm()
    if left := problems():
        sys.exit(banner(["NO IMAGE: it cannot be built here.", *left]))
    try:
        built = build(arguments.output, arguments.mirror)
    except CannotRun as error:
        sys.exit(f"The image was not built. {error}")
    except KeyboardInterrupt:
        sys.exit("Interrupted; nothing is left behind.")
    _say(f"{built.archive} {built.digest}, {built.pulled_bytes / 1e6:.1f} MB to pull")
    _say(f"{built.bill}")


if __name__ == "__main__":
    main()
