"""Volumes as folders (operations:OD-21)."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from pykai.lab.processes.failures import CannotRun
from pykai.lab.processes.mounts import is_mounted, write_volumes

Document = dict[str, Any]
OBJECTS: dict[tuple[str, str], Document] = {}


@pytest.fixture(autouse=True)
def _objects() -> None:
    OBJECTS.clear()
    OBJECTS["configmap", "config"] = {"kind": "ConfigMap", "data": {"config.yaml": "a: 1", "args": "[]"}}
    key = base64.b64encode(b"private").decode()
    OBJECTS["secret", "tls"] = {"kind": "Secret", "data": {"tls.key": key}}


def pod(*volumes: Document) -> Document:
    return {"metadata": {"name": "pod"}, "spec": {"volumes": list(volumes)}}


def written(folder: Path, *volumes: Document) -> dict[str, Path]:
    return write_volumes(pod(*volumes), folder, folder / "host", lambda kind, name: OBJECTS.get((kind, name)))


def test_config_maps_and_secrets_are_files_that_only_we_read(tmp_path: Path) -> None:
    found = written(
        tmp_path, {"name": "a", "configMap": {"name": "config"}}, {"name": "b", "secret": {"secretName": "tls"}}
    )
    assert {path.name: path.read_text() for path in found["a"].iterdir()} == {"config.yaml": "a: 1", "args": "[]"}
    assert (found["b"] / "tls.key").read_bytes() == b"private"
    assert (found["b"] / "tls.key").stat().st_mode & 0o777 == 0o600


def test_a_change_replaces_files_and_removes_others(tmp_path: Path) -> None:
    volume = {"name": "a", "configMap": {"name": "config"}}
    written(tmp_path, volume)
    OBJECTS["configmap", "config"] = {"kind": "ConfigMap", "data": {"config.yaml": "a: 2"}}
    folder = written(tmp_path, volume)["a"]
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"config.yaml": "a: 2"}


def test_items_choose_keys_and_paths(tmp_path: Path) -> None:
    items = [{"key": "args", "path": "below/arguments"}]
    folder = written(tmp_path, {"name": "a", "configMap": {"name": "config", "items": items}})["a"]
    assert [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()] == ["below/arguments"]


def test_a_projected_volume_shows_several_objects(tmp_path: Path) -> None:
    sources = [{"configMap": {"name": "config"}}, {"secret": {"name": "tls"}}, {"serviceAccountToken": {}}]
    folder = written(tmp_path, {"name": "a", "projected": {"sources": sources}})["a"]
    assert sorted(path.name for path in folder.iterdir()) == ["args", "config.yaml", "tls.key"]


def test_empty_volumes_and_those_of_the_host_stay_below_the_folder(tmp_path: Path) -> None:
    found = written(tmp_path, {"name": "tmp", "emptyDir": {}}, {"name": "sys", "hostPath": {"path": "/sys"}})
    assert found == {"tmp": tmp_path / "tmp", "sys": tmp_path / "host" / "sys"}
    assert all(path.is_dir() for path in found.values())


@pytest.mark.parametrize(
    ("volume", "says"),
    [
        ({"configMap": {"name": "none"}}, "configmap 'none' not found"),
        ({"configMap": {"name": "config", "items": [{"key": "x", "path": "y"}]}}, "has no key 'x'"),
        ({"nfs": {}}, "volume 'a': nfs is not supported here"),
        ({"configMap": {"name": "config", "items": [{"key": "args", "path": "../out"}]}}, "leaves its volume"),
    ],
)
def test_what_cannot_be_mounted_is_named(volume: Document, says: str, tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match=says):
        written(tmp_path, {"name": "a", **volume})


def test_an_optional_object_may_be_missing(tmp_path: Path) -> None:
    found = written(tmp_path, {"name": "a", "configMap": {"name": "none", "optional": True}})
    assert list(found["a"].iterdir()) == []


def test_which_objects_a_pod_shows() -> None:
    shows = pod({"name": "a", "configMap": {"name": "config"}}, {"name": "b", "secret": {"secretName": "tls"}})
    assert is_mounted(shows, "configmap", "config")
    assert is_mounted(shows, "secret", "tls")
    assert not is_mounted(shows, "secret", "config")
