"""Reads a cluster for the checks: every kind at once, with few requests in flight, and nothing is written.

What may not be read or takes too long is noted and the rest goes on.  Namespaces of ours come from the Config, which is
read first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final

import msgspec

from pykai.api.decode import DecodeError
from pykai.doctor.facts import CONFIGS, Facts, Source, Unread
from pykai.kube.client import Client
from pykai.kube.errors import ApiError, ConnectionLost, Forbidden, KubeError, NotFound, from_status
from pykai.kube.resources import Resource
from pykai.kube.transport import Request

#: requests at a time: a doctor shall not be felt
IN_FLIGHT: Final = 8
#: wall seconds for one kind
PATIENCE_S: Final = 30.0


async def gather(
    client: Client,
    sources: Iterable[Source[Any]],
    *,
    namespace: str = "",
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    patience_s: float = PATIENCE_S,
) -> Facts:
    """One look at the cluster; raises `KubeError` if the API server cannot be reached at all."""
    version, server_time = await _server(client)
    ahead = server_time - now() if server_time is not None else None
    reading = _Reading(client, patience_s)
    await reading.read(CONFIGS, ("",))
    settings = reading.facts("", now(), ahead, version).settings
    namespace = namespace or settings.namespace
    ours = tuple(dict.fromkeys((namespace, settings.reservation_namespace)))
    others = {each.resource: each for each in sources if each.resource != CONFIGS.resource}.values()
    await asyncio.gather(*(reading.read(each, ours if each.is_ours else ("",)) for each in others))
    return reading.facts(namespace, now(), ahead, version)


class _Reading:
    """What was read so far."""

    def __init__(self, client: Client, patience_s: float) -> None:
        self._client = client
        self._patience_s = patience_s
        self._objects: dict[Resource, tuple[Any, ...]] = {}
        self._unread: dict[Resource, Unread] = {}
        self._unserved: set[Resource] = set()

    def facts(self, namespace: str, now: datetime, ahead: timedelta | None, version: str) -> Facts:
        """What the checks get."""
        return Facts(namespace, now, ahead, version, self._objects, self._unread, frozenset(self._unserved))

    async def read(self, source: Source[Any], namespaces: Iterable[str]) -> None:
        """Read one source, or note why it cannot be read."""
        found: list[Any] = []
        try:
            async with asyncio.timeout(self._patience_s):
                for namespace in namespaces:
                    found += await self._list(source, namespace)
        except NotFound:
            self._unserved.add(source.resource)
        except Forbidden as error:
            verb = "get" if source.name else "list"
            fix = f"Give your user the right to {verb} {source.label}, or run it as an administrator."
            self._unread[source.resource] = Unread(str(error), fix)
        except (KubeError, TimeoutError) as error:
            reason = str(error) or f"no answer within {self._patience_s:g} s"
            self._unread[source.resource] = Unread(reason, "Try again; if it stays, look at the API server.")
        self._objects[source.resource] = tuple(found)

    async def _list(self, source: Source[Any], namespace: str) -> list[Any]:
        if not source.name:
            listing = await self._client.list(source.resource, into=source.into, namespace=namespace)
            # Objects that cannot be read are reported by the services that read them, as events.
            return listing.items
        try:
            return [await self._client.get(source.resource, source.name, namespace, into=source.into)]
        except (NotFound, DecodeError):
            return []


async def _server(client: Client) -> tuple[str, datetime | None]:
    """The version of the API server and its time; raises `KubeError`."""
    response = await client.transport.send(Request("GET", "/version"))
    try:
        document = msgspec.json.decode(response.body or b"{}")
    except msgspec.DecodeError:
        raise ConnectionLost("GET /version: the answer is not JSON; is this an API server?") from None
    if response.status != 200:
        raise _refusal(response.status, document)
    date = next((value for name, value in response.headers.items() if name.lower() == "date"), "")
    return str(document.get("gitVersion", "")) if isinstance(document, dict) else "", _date(date)


def _refusal(status: int, document: Any) -> ApiError:
    return from_status(status, document if isinstance(document, dict) else {})


def _date(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
