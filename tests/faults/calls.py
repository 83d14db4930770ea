"""Which call a request is: service, verb and resource, the way a role names them.

    scheduler create pods/binding
    binder    patch  resourceclaims.resource.k8s.io

`calls.txt` lists all calls that the story of `story.py` makes, as recorded from a run, and `recovery.txt` those that
services make only because another one failed.  `test_matrix.py` compares both with its runs: a call that is in
neither has no fault case yet.  `python -m tests.faults` writes both files again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from pykai.kube.transport import Request

FILE = Path(__file__).with_name("calls.txt")
RECOVERY = Path(__file__).with_name("recovery.txt")
_PATH = re.compile(
    r"^/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)"
    r"(?:/namespaces/[^/]+(?=/[^/]+))?/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+)(?:/(?P<sub>[a-z]+))?)?$"
)
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Call(NamedTuple):
    """One kind of request."""

    service: str
    verb: str
    #: `pods`, `pods/status`, `podgroups.scheduling.run.ai`; a path where it is none of a resource
    resource: str

    def __str__(self) -> str:
        return f"{self.service} {self.verb} {self.resource}"


def call_of(service: str, request: Request) -> Call:
    """The call that this request of a service is."""
    found = _PATH.match(request.path)
    if found is None:
        return Call(service, request.method.lower(), request.path)
    resource = found["plural"]
    if found["group"]:
        resource += f".{found['group']}"
    if found["sub"]:
        resource += f"/{found['sub']}"
    if request.method != "GET":
        return Call(service, _VERBS[request.method], resource)
    if found["name"]:
        return Call(service, "get", resource)
    return Call(service, "watch" if "watch" in request.query else "list", resource)


def read_calls(path: Path = FILE) -> list[Call]:
    """The calls of a file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [Call(*line.split()) for line in lines if line and not line.startswith("#")]


def write_calls(path: Path, calls: Iterable[Call], what: str) -> None:
    """Write a file."""
    head = f"# {what}; `python -m tests.faults` writes this file.\n"
    path.write_text(head + "".join(f"{call}\n" for call in sorted(calls)), encoding="utf-8")
