"""Reading archives, and what an image says about itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.image.container import Container
from tools.image.oci import Facts, config_of, manifest_of, pulled_bytes, write_archive

CONFIG = {"config": {"User": "10000:10000"}}
MANIFEST = {"config": {"digest": "sha256:cc", "size": 7}, "layers": [{"size": 100}, {"size": 20}]}
INDEX = {"manifests": [{"digest": "sha256:aa"}]}


def archive(folder: Path) -> Path:
    layout = folder / "layout"
    (layout / "blobs/sha256").mkdir(parents=True)
    for name, content in {"index.json": INDEX, "blobs/sha256/aa": MANIFEST, "blobs/sha256/cc": CONFIG}.items():
        (layout / name).write_text(json.dumps(content), encoding="utf-8")
    write_archive(layout, folder / "archive.tar", 5)
    return folder / "archive.tar"


def test_an_archive_is_read(tmp_path: Path) -> None:
    assert manifest_of(archive(tmp_path)) == ("sha256:aa", MANIFEST)
    assert config_of(tmp_path / "archive.tar") == CONFIG


def test_what_is_pulled_is_the_configuration_and_all_layers() -> None:
    assert pulled_bytes(MANIFEST) == 127


def test_labels_have_no_commit_outside_a_checkout() -> None:
    facts = Facts(version="1.0", revision="", epoch=0, architecture="amd64")
    assert facts.created == "1970-01-01T00:00:00Z"
    assert facts.labels["org.opencontainers.image.version"] == "1.0"
    assert "org.opencontainers.image.revision" not in facts.labels


@pytest.mark.parametrize("namespace", ["--mount", "--net", "--pid", "--ipc", "--uts", "--kill-child=KILL"])
def test_a_container_is_on_its_own(namespace: str, tmp_path: Path) -> None:
    command = Container(tmp_path, ("kai",), {}, 10000, 10001).command(["up"])
    assert command[0] == "unshare"
    assert namespace in command
    assert command[-6:] == [str(tmp_path), "10000", "10001", "--", "kai", "up"]
