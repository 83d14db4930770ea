"""What a container's process gets: its command line and its environment.

There is no image: of all programs only `kai` can run, which every image of ours starts.  Paths of mounted volumes are
replaced by folders of this machine, and addresses to listen on by the loopback address of the pod: the flags that hold
one are in the table of services.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pykai.api.unstructured import JsonObject
from pykai.lab.processes.failures import CannotRun
from pykai.services.table import SERVICES

#: program of an image -> ours
PROGRAMS: Final[Mapping[str, Path]] = {"kai": Path(sys.executable).with_name("kai")}
_ENTRYPOINT: Final = ["kai"]
_INVALID: Final = "CreateContainerConfigError"
_REFERENCE: Final = re.compile(r"\$\$|\$\(([^()\s]+)\)")
_ONLY_PORT: Final = re.compile(r":\d+")
#: flags of ports that a pod has to itself, where a process would collide with that of another pod; 0 takes a free one
_LOOPBACK_PORTS: Final = ("plugin-server-port",)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What there is around the containers of a pod."""

    pod: JsonObject
    #: the pod's, and where its processes listen
    address: str
    listens_at: str
    #: volume of the pod -> its folder
    volumes: Mapping[str, Path]
    #: content of a config map and of a secret of the namespace, None if there is none
    config_map: Callable[[str], Mapping[str, str] | None]
    secret: Callable[[str], Mapping[str, str] | None]
    #: set for every container, before its own
    environment: Mapping[str, str]


def command_line(container: JsonObject, around: Surroundings, environment: Mapping[str, str]) -> list[str]:
    """The program and its arguments on this machine; raises `CannotRun`."""
    words = [*(container.get("command") or _ENTRYPOINT), *(container.get("args") or [])]
    program, *given = [_expanded(word, environment) for word in words]
    if program not in PROGRAMS:
        names = ", ".join(sorted(PROGRAMS))
        raise CannotRun("CreateContainerError", f"the program {program!r} is not here; only these are: {names}")
    folders = mount_folders(container, around)
    arguments = [_local_paths(word, folders) for word in given]
    return [str(PROGRAMS[program]), *_listening_at(around.listens_at, arguments)]


def environment_of(container: JsonObject, around: Surroundings) -> dict[str, str]:
    """All variables of a container; raises `CannotRun` if a value comes from something that does not exist."""
    folders = mount_folders(container, around)
    made = dict(around.environment)
    if (temporary := folders.get("/tmp")) is not None:
        made["TMPDIR"] = str(temporary)
    for source in container.get("envFrom") or ():
        made |= {f"{source.get('prefix', '')}{key}": value for key, value in _all_of(source, around).items()}
    for each in container.get("env") or ():
        value = _value(each, around)
        if value is not None:
            made[each["name"]] = _local_paths(_expanded(value, made), folders)
    return made


def mount_folders(container: JsonObject, around: Surroundings) -> dict[str, Path]:
    """Path in the container -> folder, longer paths first; raises `CannotRun` for a volume that the pod lacks."""
    found = {}
    for mount in container.get("volumeMounts") or ():
        folder = around.volumes.get(mount["name"])
        if folder is None:
            raise CannotRun(_INVALID, f"the pod has no volume {mount['name']!r}")
        found[mount["mountPath"].rstrip("/")] = folder / mount.get("subPath", "")
    return dict(sorted(found.items(), key=lambda item: -len(item[0])))


def _expanded(text: str, environment: Mapping[str, str]) -> str:
    """`$(NAME)` as its value; one that is not set stays as it is, and `$$` is a dollar sign."""

    def value(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else environment.get(match[1], match[0])

    return _REFERENCE.sub(value, text)


def _local_paths(word: str, folders: Mapping[str, Path]) -> str:
    """All in one pass: a folder may itself be below a path that is mounted, such as /tmp."""
    if not folders:
        return word
    paths = "|".join(map(re.escape, folders))
    return re.sub(rf"(^|[=,:])({paths})(?=$|[/,])", lambda match: f"{match[1]}{folders[match[2]]}", word)


def _listening_at(address: str, arguments: list[str]) -> list[str]:
    """The arguments of `kai run SERVICE`, with every port at the address of the pod."""
    if len(arguments) < 2 or arguments[0] != "run" or arguments[1] not in SERVICES:
        return arguments
    service = SERVICES[arguments[1]]
    known = {flag.name: flag for flag in service.flags()}
    given = _flag_values(arguments[2:])
    added = []
    for port in service.ports:
        value = given.get(port.flag, known[port.flag].default if port.flag in known else "")
        if _ONLY_PORT.fullmatch(value):
            added.append(f"--{port.flag}={address}{value}")
    if "host" in known and "host" not in given:
        added.append(f"--host={address}")
    added += [f"--{name}=0" for name in _LOOPBACK_PORTS if name in known and name not in given]
    # Of a flag that is given twice the last counts.
    return [*arguments, *added]


def _flag_values(arguments: list[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for index, word in enumerate(arguments):
        name, equals, value = word.lstrip("-").partition("=")
        if word.startswith("--"):
            following = arguments[index + 1] if index + 1 < len(arguments) else ""
            given[name] = value if equals else following
    return given


def _all_of(source: JsonObject, around: Surroundings) -> Mapping[str, str]:
    for field, kind, read in (
        ("configMapRef", "configmap", around.config_map),
        ("secretRef", "secret", around.secret),
    ):
        reference = source.get(field)
        if reference is not None:
            content = read(reference["name"])
            if content is None and not reference.get("optional"):
                raise CannotRun(_INVALID, f"{kind} {reference['name']!r} not found")
            return content or {}
    return {}


def _value(variable: JsonObject, around: Surroundings) -> str | None:
    source = variable.get("valueFrom")
    if source is None:
        return str(variable.get("value", ""))
    if "fieldRef" in source:
        return _field(source["fieldRef"]["fieldPath"], around)
    for field, kind, read in (
        ("configMapKeyRef", "configmap", around.config_map),
        ("secretKeyRef", "secret", around.secret),
    ):
        if field in source:
            return _key(source[field], kind, read)
    raise CannotRun(_INVALID, f"env {variable['name']}: {', '.join(source)} is not supported here")


def _key(reference: JsonObject, kind: str, read: Callable[[str], Mapping[str, str] | None]) -> str | None:
    content = read(reference["name"])
    if content is not None and reference["key"] in content:
        return content[reference["key"]]
    if reference.get("optional"):
        return None
    lacks = f"{kind} {reference['name']!r} not found" if content is None else f"no key {reference['key']!r} in {kind}"
    raise CannotRun(_INVALID, lacks)


def _field(path: str, around: Surroundings) -> str:
    metadata, spec = around.pod["metadata"], around.pod["spec"]
    if match := re.fullmatch(r"metadata\.(labels|annotations)\['([^']+)'\]", path):
        return str((metadata.get(match[1]) or {}).get(match[2], ""))
    fields = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        "status.podIP": around.address,
        "status.hostIP": around.listens_at,
    }
    if path not in fields:
        raise CannotRun(_INVALID, f"the field {path} is not supported here; these are: {', '.join(fields)}")
    return str(fields[path])
