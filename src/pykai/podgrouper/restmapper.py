"""Finds the resource of a kind that is known by name only.

An owner reference says `apiVersion` and `kind`; a request needs the plural, and whether there is a namespace in the
path.  The server's discovery documents say so; each API version is read once (again after a while for a missing kind:
its CRD may have been installed).
"""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec

from pykai.kube import resources
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.errors import NotFound, from_status
from pykai.kube.resources import Resource
from pykai.kube.transport import Request
from pykai.podgrouper.kinds.table import watched_kinds

#: Cluster seconds after which a missing kind is looked up again.
_RETRY_AFTER_S = 60.0


class RestMapper:
    """Kinds by name."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        #: Kubernetes' own kinds need no discovery
        self._resources = {
            (resource.api_version, resource.kind): resource
            for resource in (resources.PODS, *(kind.resource for kind in watched_kinds()))
        }
        self._missing_since_s: dict[tuple[str, str], float] = {}

    async def resource(self, api_version: str, kind: str) -> Resource:
        """The resource of a kind; raises `NotFound` for a kind that the server does not have."""
        wanted = (api_version, kind)
        resource = self._resources.get(wanted)
        if resource is not None:
            return resource
        now_s = self._clock.elapsed_s()
        asked_s = self._missing_since_s.get(wanted)
        if asked_s is None or now_s - asked_s > _RETRY_AFTER_S:
            await self._discover(api_version)
            resource = self._resources.get(wanted)
            if resource is not None:
                self._missing_since_s.pop(wanted, None)
                return resource
            self._missing_since_s[wanted] = now_s
        raise NotFound(404, "NotFound", f"the server has no kind {kind} in {api_version or 'no apiVersion'}")

    async def _discover(self, api_version: str) -> None:
        group, slash, version = api_version.rpartition("/")
        path = f"/apis/{api_version}" if slash else f"/api/{version}"
        response = await self._client.transport.send(Request("GET", path))
        if response.status == 404:
            return
        document: Any = {}
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            document = msgspec.json.decode(response.body)
        if response.status != 200:
            raise from_status(response.status, document if isinstance(document, dict) else {})
        entries = document.get("resources") if isinstance(document, dict) else None
        for entry in entries if isinstance(entries, list) else ():
            name, kind = entry.get("name", ""), entry.get("kind", "")
            if name and "/" not in name:
                self._resources.setdefault(
                    (api_version, kind), Resource(group, version, name, kind, bool(entry.get("namespaced")))
                )
