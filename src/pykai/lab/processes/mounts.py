"""Volumes of a pod as folders below its own: config maps and secrets as files, the rest empty.

A config map or secret that changes is written again, as a kubelet does; a subPath then shows it, too.  A volume of the
host is a folder of the whole cluster (`hostPath` below the root of the processes), never one of this machine: a pod
must not write there.
"""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pykai.api.unstructured import JsonObject
from pykai.lab.processes.failures import CannotRun

VolumeSourceReader = Callable[[str, str], JsonObject | None]
#: volumes that begin empty
_EMPTY: Final = ("emptyDir", "ephemeral")
_MISSING: Final = "ContainerCreating"


def write_volumes(pod: JsonObject, folder: Path, host: Path, read: VolumeSourceReader) -> dict[str, Path]:
    """Volume -> folder, with their content; `read(kind, name)` finds a config map or secret.  Raises `CannotRun`."""
    made = {}
    for volume in pod["spec"].get("volumes") or ():
        name = str(volume["name"])
        if "hostPath" in volume:
            made[name] = host / str(volume["hostPath"]["path"]).lstrip("/")
            made[name].mkdir(parents=True, exist_ok=True)
            continue
        made[name] = folder / name
        made[name].mkdir(parents=True, exist_ok=True)
        content = _content(volume, read)
        if content is not None:
            _replace(made[name], content)
    return made


def is_mounted(pod: JsonObject, kind: str, name: str) -> bool:
    """Whether a volume of the pod shows this config map or secret."""
    return any(
        (source_kind, source.get("name") or source.get("secretName")) == (kind, name)
        for volume in pod["spec"].get("volumes") or ()
        for source_kind, source in _sources(volume)
    )


def text_of(obj: JsonObject) -> dict[str, str]:
    """The content of a config map or secret as text."""
    encoded = obj.get("data") or {}
    if obj.get("kind") == "Secret" or "type" in obj:
        return {key: base64.b64decode(value).decode() for key, value in encoded.items()}
    return dict(encoded)


def _content(volume: JsonObject, read: VolumeSourceReader) -> dict[str, bytes] | None:
    """File -> content; None for volumes that begin empty."""
    sources = list(_sources(volume))
    if not sources and not any(kind in volume for kind in _EMPTY) and "projected" not in volume:
        kinds = ", ".join(sorted(set(volume) - {"name"}))
        raise CannotRun(_MISSING, f"volume {volume['name']!r}: {kinds or 'nothing'} is not supported here")
    if not sources:
        return None
    files: dict[str, bytes] = {}
    for kind, source in sources:
        name = str(source.get("name") or source.get("secretName"))
        found = read(kind, name)
        if found is None:
            if not source.get("optional"):
                raise CannotRun(_MISSING, f"volume {volume['name']!r}: {kind} {name!r} not found")
            continue
        files |= _chosen(source, _files(found), f"{kind} {name!r}")
    return files


def _sources(volume: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """Kind and reference of each object that the volume shows."""
    projected = (volume.get("projected") or {}).get("sources") or ()
    for holder in (volume, *projected):
        for field, kind in (("configMap", "configmap"), ("secret", "secret")):
            if field in holder:
                yield kind, holder[field]


def _files(obj: JsonObject) -> dict[str, bytes]:
    binary = {key: base64.b64decode(value) for key, value in (obj.get("binaryData") or {}).items()}
    return {key: value.encode() for key, value in text_of(obj).items()} | binary


def _chosen(source: Mapping[str, Any], files: Mapping[str, bytes], where: str) -> dict[str, bytes]:
    items = source.get("items")
    if not items:
        return dict(files)
    lacking = [each["key"] for each in items if each["key"] not in files]
    if lacking and not source.get("optional"):
        raise CannotRun(_MISSING, f"{where} has no key {lacking[0]!r}")
    return {each["path"]: files[each["key"]] for each in items if each["key"] in files}


def _replace(folder: Path, files: Mapping[str, bytes]) -> None:
    """The folder with these files and no others; a reader sees each file as it was or as it is."""
    for path in list(folder.iterdir()):
        if path.name not in {name.split("/")[0] for name in files}:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name, content in files.items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise CannotRun(_MISSING, f"the path {name!r} leaves its volume")
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_name(f".{path.name}.new")
        descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        written.replace(path)
