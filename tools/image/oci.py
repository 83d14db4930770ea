"""From layers to an OCI archive: a tar file with the layout that docker, podman, skopeo and containerd read.

umoci compresses the layers and writes configuration and manifest.  Every time in them is the one of the commit.
"""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tools.image import debian, layers
from tools.image.programs import run

#: What the programs of the image find in their environment.
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
}


@dataclass(frozen=True)
class Facts:
    """What an image says about itself."""

    version: str
    #: the commit, or "" outside a git checkout
    revision: str
    #: seconds since 1970: when the commit was made
    epoch: int
    architecture: str

    @property
    def created(self) -> str:
        """The time of the commit as RFC 3339."""
        return datetime.fromtimestamp(self.epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    @property
    def labels(self) -> dict[str, str]:
        """The standard labels of images."""
        named = {
            "title": "kai",
            "description": "PyKAI: KAI Scheduler in Python, all services",
            "version": self.version,
            "revision": self.revision,
            "licenses": "Apache-2.0",
        }
        return {f"org.opencontainers.image.{name}": value for name, value in named.items() if value}


def write_layout(layout: Path, archives: dict[str, Path], facts: Facts) -> None:
    """Write an OCI layout with one image; `archives` are its layers by what they hold, lowest first."""
    image = f"{layout}:{facts.version}"
    run(["umoci", "init", "--layout", layout])
    run(["umoci", "new", "--image", image])
    for title, archive in archives.items():
        history = ["--history.created", facts.created, "--history.created_by", title]
        run(["umoci", "raw", "add-layer", "--image", image, *history, archive])
    settings = {"user": f"{debian.USER}:{debian.USER}", "workingdir": "/", "entrypoint": "kai"}
    command = ["umoci", "config", "--image", image, "--no-history", "--created", facts.created]
    command += ["--os", "linux", "--architecture", facts.architecture]
    for name, value in settings.items():
        command += [f"--config.{name}", value]
    for name, value in ENVIRONMENT.items():
        command += ["--config.env", f"{name}={value}"]
    for name, value in facts.labels.items():
        command += ["--config.label", f"{name}={value}"]
    run(command)
    run(["umoci", "gc", "--layout", layout])


def write_archive(layout: Path, archive: Path, epoch: int) -> None:
    """Pack a layout into one file."""
    layers.write_layer(layout, layers.paths_below(layout), epoch, archive)


def manifest_of(archive: Path) -> tuple[str, dict[str, Any]]:
    """The digest and the manifest of the one image in an archive."""
    with tarfile.open(archive) as tar:
        (described,) = _json(tar, "index.json")["manifests"]
        digest = str(described["digest"])
        return digest, _json(tar, _blob(digest))


def config_of(archive: Path) -> dict[str, Any]:
    """The configuration of the one image in an archive."""
    _, manifest = manifest_of(archive)
    with tarfile.open(archive) as tar:
        return _json(tar, _blob(manifest["config"]["digest"]))


def pulled_bytes(manifest: dict[str, Any]) -> int:
    """What a machine pulls that has no layer of the image yet."""
    return int(manifest["config"]["size"]) + sum(int(layer["size"]) for layer in manifest["layers"])


def _blob(digest: str) -> str:
    algorithm, _, value = digest.partition(":")
    return f"blobs/{algorithm}/{value}"


def _json(tar: tarfile.TarFile, name: str) -> dict[str, Any]:
    file = tar.extractfile(name)
    if file is None:
        raise ValueError(f"{name}: no such file in this archive; is it an OCI archive?")
    read: dict[str, Any] = json.load(file)
    return read
