"""Requests to an API server: get, list, create, update, patch, delete, bind, evict.

Reads give wire types (or dicts); writes take and give plain dicts, because wire types are pruned and must never be
written back.  Every failure is one of `kube.errors`.

Retried inside, with back-off and jitter:
- any request that the server refused with 429, after what it says in Retry-After (it was not carried out);
- reads that got no answer, or an answer of 500 and above.
Writes that got no answer are never repeated here: they may have been carried out, and only the caller knows whether
doing it twice is harmless.

Writes that are called with `brief` give of the answer only what identifies the object: name, namespace, uid and
resource version.  Most callers want no more, and reading a whole pod costs more than the request.

Subtle: 429 to an eviction means that a disruption budget forbids it now.  That is an answer, not overload, and is
raised at once.  So is 429 to a bind, and to a `create` with `once`: the caller checks the placement again before it
retries.

Requests in flight are bounded and shared fairly among namespaces (`limits`).  `with_own_limits` is for requests that
must never wait behind them, `fenced` for writes that must not go out once a lease is lost.

Statements: faults:bind, kube:429, kube:errors, kube:writes.
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, TypeVar, cast

import msgspec

from pykai.api.decode import DecodeError
from pykai.kube.backoff import Backoff
from pykai.kube.decoding import ResourceDecoder
from pykai.kube.errors import ApiError, ConnectionLost, Gone, NotFound, ServerError, TooManyRequests, from_status
from pykai.kube.limits import FairSemaphore, Limits, TokenBucket
from pykai.kube.resources import Resource
from pykai.kube.transport import JSON, Request, Response, Stream, Transport

T = TypeVar("T")
# Within `Client` the word `list` is a method.
Documents = list[dict[str, Any]]
JsonPatch = list[Any]

#: how often a request is sent at most, the first time included
MAX_ATTEMPTS = 6
#: objects a page of a list holds
PAGE_SIZE = 500
_METADATA_LIST = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON}"
_METADATA_WATCH = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{JSON}"
_BACKOFF = Backoff(0.1, 10.0)


class PatchKind(StrEnum):
    """How a patch is to be read; the value is its content type."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """A list: what could be read, as of which resource version, and what could not."""

    items: list[T]
    resource_version: str
    problems: list[DecodeError] = field(default_factory=list)


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str | None = None
    continue_: str | None = msgspec.field(name="continue", default=None)


class _ListDocument(msgspec.Struct):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] | None = None


class _AnswerMetadata(msgspec.Struct, rename="camel"):
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None


class _AnswerDocument(msgspec.Struct):
    metadata: _AnswerMetadata


_LIST_DECODER = msgspec.json.Decoder(_ListDocument)
_ANSWER_DECODER = msgspec.json.Decoder(_AnswerDocument)
_JSON_DECODER = msgspec.json.Decoder()
_ENCODER = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class ListPage:
    """A piece of a list, undecoded; `first` starts a list, again if an earlier one expired half-way."""

    items: list[msgspec.Raw]
    resource_version: str
    first: bool
    last: bool


class Client:
    """Speaks to one API server through a transport."""

    def __init__(
        self,
        transport: Transport,
        *,
        field_manager: str = "pykai",
        limits: Limits | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        limits = limits or Limits()
        self.transport = transport
        self.field_manager = field_manager
        self._sleep = sleep
        self._bucket = TokenBucket(limits.qps, limits.burst, sleep=sleep) if limits.qps is not None else None
        self._in_flight = FairSemaphore(limits.in_flight)
        self._fence: Callable[[], None] | None = None

    async def close(self) -> None:
        """Give up the connections of the transport."""
        await self.transport.close()

    def with_own_limits(self) -> Client:
        """A client of the same transport with limits of its own: for the few requests that must not come late."""
        return Client(self.transport, field_manager=self.field_manager, sleep=self._sleep)

    def fenced(self, fence: Callable[[], None]) -> Client:
        """This client with its limits; `fence` is called right before each write and raises to stop it."""
        fenced_client = copy.copy(self)
        fenced_client._fence = fence
        return fenced_client

    async def get(self, resource: Resource, name: str, namespace: str = "", *, into: type[T]) -> T:
        """One object; raises `NotFound`, and `DecodeError` if it cannot be read."""
        body = await self._read(resource.path(namespace, name))
        return ResourceDecoder(resource, into).decode(body)

    async def get_raw(self, resource: Resource, name: str, namespace: str = "") -> dict[str, Any]:
        """One object with all its fields."""
        return _decode_document(await self._read(resource.path(namespace, name)))

    async def list(
        self,
        resource: Resource,
        *,
        into: type[T],
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int = PAGE_SIZE,
    ) -> Listing[T]:
        """All objects that match, read page by page; those that cannot be read are kept apart."""
        reader = ResourceDecoder(resource, into)
        items, problems = _empty(into), _empty(DecodeError)
        version = ""
        async for page in self.pages(
            resource, namespace=namespace, label_selector=label_selector, field_selector=field_selector, limit=limit
        ):
            if page.first:
                items, problems, version = _empty(into), _empty(DecodeError), page.resource_version
            for raw in page.items:
                try:
                    items.append(reader.decode(raw))
                except DecodeError as problem:
                    problems.append(problem)
        return Listing(items, version, problems)

    async def list_raw(
        self, resource: Resource, *, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> Documents:
        """All objects that match, with all their fields; items carry neither kind nor apiVersion."""
        items: Documents = []
        async for page in self.pages(
            resource, namespace=namespace, label_selector=label_selector, field_selector=field_selector
        ):
            if page.first:
                items = []
            items += [_JSON_DECODER.decode(raw) for raw in page.items]
        return items

    async def pages(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int = PAGE_SIZE,
        metadata_only: bool = False,
    ) -> AsyncIterator[ListPage]:
        """A list in pieces; one whose token expires half-way begins again, without pages the second time.

        `metadata_only` asks for nothing else of each object; a server may send it in full.

        The second time is in one piece because a list that takes longer than the server keeps old versions would
        expire again and again.
        """
        path = resource.path(namespace)
        selection = _selector_query(label_selector, field_selector)
        token = ""
        while True:
            query = dict(selection)
            if limit:
                query["limit"] = str(limit)
            if token:
                query["continue"] = token
            try:
                body = await self._read(path, query, _METADATA_LIST if metadata_only else JSON)
            except Gone:
                if not token:
                    raise
                token, limit = "", 0
                continue
            try:
                page = _LIST_DECODER.decode(body)
            except msgspec.DecodeError as error:
                raise ConnectionLost(f"GET {path}: the answer is not a list: {error}") from None
            first, token = not token, page.metadata.continue_ or ""
            yield ListPage(page.items or [], page.metadata.resource_version or "", first, not token)
            if not token:
                return

    async def create(
        self,
        resource: Resource,
        obj: Mapping[str, Any],
        namespace: str = "",
        *,
        subresource: str = "",
        dry_run: bool = False,
        brief: bool = False,
        once: bool = False,
    ) -> dict[str, Any]:
        """POST; the namespace of the object holds if none is given.  A subresource is that of the object's name."""
        metadata = _metadata(obj)
        name = metadata["name"] if subresource else ""
        path = resource.path(namespace or metadata.get("namespace", ""), name, subresource)
        query = self._write_query(dry_run=dry_run)
        return await self._write(
            "POST", path, _with_type_meta(resource, obj), query=query, brief=brief, retry_429=not once
        )

    async def update(self, resource: Resource, obj: Mapping[str, Any], *, subresource: str = "") -> dict[str, Any]:
        """PUT of a whole object; raises `Conflict` if its resourceVersion is not the current one."""
        metadata = _metadata(obj)
        path = resource.path(metadata.get("namespace", ""), metadata["name"], subresource)
        return await self._write("PUT", path, _with_type_meta(resource, obj), query=self._write_query())

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Mapping[str, Any] | JsonPatch,
        namespace: str = "",
        *,
        kind: PatchKind = PatchKind.MERGE,
        subresource: str = "",
        field_manager: str = "",
        force: bool = False,
        dry_run: bool = False,
        brief: bool = False,
    ) -> dict[str, Any]:
        """PATCH; `force` takes fields from other managers and is for `APPLY` only."""
        query = self._write_query(field_manager, dry_run=dry_run)
        if force:
            query["force"] = "true"
        path = resource.path(namespace, name, subresource)
        return await self._write("PATCH", path, patch, query=query, content_type=kind.value, brief=brief)

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        grace_s: int | None = None,
        propagation: str = "",
    ) -> None:
        """DELETE; `uid` and `resource_version` are preconditions (`Conflict`), `propagation` as in DeleteOptions."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        preconditions = _preconditions(uid, resource_version)
        if preconditions:
            options["preconditions"] = preconditions
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        if propagation:
            options["propagationPolicy"] = propagation
        await self._send("DELETE", resource.path(namespace, name), options)

    async def bind(
        self,
        namespace: str,
        pod: str,
        *,
        uid: str,
        node: str,
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Give a pod its node; annotations and labels ride along.  `Conflict` if it is bound or is another pod."""
        metadata: dict[str, Any] = {"name": pod, "namespace": namespace, "uid": uid}
        if annotations:
            metadata["annotations"] = annotations
        if labels:
            metadata["labels"] = labels
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/binding"
        await self._send("POST", path, binding, query=self._write_query(), retry_429=False)

    async def evict(self, namespace: str, pod: str, *, uid: str = "", grace_s: int | None = None) -> None:
        """Delete a pod if no disruption budget forbids it (`TooManyRequests`)."""
        eviction: dict[str, Any] = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
        }
        options: dict[str, Any] = {}
        if uid:
            options["preconditions"] = _preconditions(uid, "")
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        if options:
            eviction["deleteOptions"] = options
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
        await self._send("POST", path, eviction, retry_429=False)

    async def server_version(self) -> dict[str, Any]:
        """The version of the server: `gitVersion`, `major`, `minor`, ..."""
        return _decode_document(await self._read("/version"))

    async def serves_group_version(self, group: str, version: str = "") -> bool:
        """Whether the server knows an API group, and one version of it."""
        path = f"/apis/{group}" if group else "/api"
        try:
            await self._read(f"{path}/{version}" if version else path)
        except NotFound:
            return False
        return True

    @asynccontextmanager
    async def open_watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        timeout_s: int,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
    ) -> AsyncIterator[Stream]:
        """The bytes of a watch, with bookmarks; raises what the server answers instead of one.

        `metadata_only` as for `pages`.
        """
        query = _selector_query(label_selector, field_selector) | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(timeout_s),
        }
        if self._bucket is not None:
            await self._bucket.take()
        accept = _METADATA_WATCH if metadata_only else JSON
        async with self.transport.stream(Request("GET", resource.path(namespace), query, accept=accept)) as stream:
            if stream.status != 200:
                body = bytearray()
                async for chunk in stream.chunks():
                    body += chunk
                raise _api_error(Response(stream.status, bytes(body), stream.headers))
            yield stream

    def _write_query(self, name: str = "", *, dry_run: bool = False) -> dict[str, str]:
        query = {"fieldManager": name or self.field_manager}
        if dry_run:
            query["dryRun"] = "All"
        return query

    async def _read(self, path: str, query: Mapping[str, str] | None = None, accept: str = JSON) -> bytes:
        request = Request("GET", path, query or {}, accept=accept)
        return (await self._exchange(request, retry_lost=True)).body

    async def _write(
        self,
        method: str,
        path: str,
        body: object,
        *,
        query: Mapping[str, str],
        content_type: str = JSON,
        brief: bool = False,
        retry_429: bool = True,
    ) -> dict[str, Any]:
        answer = await self._send(method, path, body, query=query, content_type=content_type, retry_429=retry_429)
        return _decode_identity(answer) if brief else _decode_document(answer)

    async def _send(
        self,
        method: str,
        path: str,
        body: object,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = JSON,
        retry_429: bool = True,
    ) -> bytes:
        request = Request(method, path, query or {}, _ENCODER.encode(body), content_type)
        return (await self._exchange(request, retry_429=retry_429)).body

    async def _exchange(self, request: Request, *, retry_lost: bool = False, retry_429: bool = True) -> Response:
        for attempt in range(1, MAX_ATTEMPTS + 1):
            if self._bucket is not None:
                await self._bucket.take()
            failure: ConnectionLost | ApiError
            try:
                async with self._in_flight.slot(_namespace_in_path(request.path)):
                    if self._fence is not None and request.method != "GET":
                        self._fence()
                    response = await self.transport.send(request)
            except ConnectionLost as lost:
                if not retry_lost:
                    raise
                failure, should_retry = lost, True
            else:
                if 200 <= response.status < 300:
                    return response
                failure = _api_error(response)
                should_retry = (retry_429 and isinstance(failure, TooManyRequests)) or (
                    retry_lost and isinstance(failure, ServerError)
                )
            if not should_retry or attempt == MAX_ATTEMPTS:
                try:
                    raise failure
                finally:
                    # The error's traceback holds this frame. If this frame held the error, both would stay, with
                    # request and answer, until the garbage collector comes by.
                    del failure
            await self._sleep(_retry_delay_s(attempt, failure))
        raise AssertionError("unreachable")


def _namespace_in_path(path: str) -> str:
    """The namespace that a request belongs to, empty for cluster-wide requests."""
    return path.partition("/namespaces/")[2].partition("/")[0]


def _retry_delay_s(attempt: int, failure: Exception) -> float:
    """Full jitter over a doubling delay; Retry-After is the minimum."""
    retry_after_s = failure.retry_after_s if isinstance(failure, ApiError) else None
    jitter_s = random.uniform(0, _BACKOFF.delay_s(attempt + 1))
    return jitter_s if retry_after_s is None else retry_after_s + min(jitter_s, 1.0)


def _api_error(response: Response) -> ApiError:
    try:
        status = _JSON_DECODER.decode(response.body) if response.body else {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        status = {}
    if not isinstance(status, dict) or status.get("kind", "Status") != "Status":
        status = {}
    if not status.get("message"):
        text = response.body[:200].decode("utf-8", "replace").strip()
        status = {**status, "message": f"HTTP {response.status}" + (f": {text}" if text else "")}
    retry_after = next((value for name, value in response.headers.items() if name.lower() == "retry-after"), "")
    # The other form of Retry-After, a date, is not used by API servers.
    seconds = float(retry_after) if retry_after.isdecimal() else None
    return from_status(response.status, status, seconds)


def _decode_document(body: bytes) -> dict[str, Any]:
    try:
        document = _JSON_DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConnectionLost(f"the answer is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ConnectionLost("the answer is not a JSON object")
    return cast("dict[str, Any]", document)


def _decode_identity(body: bytes) -> dict[str, Any]:
    try:
        metadata = _ANSWER_DECODER.decode(body).metadata
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConnectionLost(f"the answer is not an object: {error}") from None
    fields = (
        ("name", metadata.name),
        ("namespace", metadata.namespace),
        ("uid", metadata.uid),
        ("resourceVersion", metadata.resource_version),
    )
    return {"metadata": {field: value for field, value in fields if value is not None}}


def _metadata(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = obj.get("metadata")
    if not isinstance(metadata, Mapping):
        raise ValueError(f"a {obj.get('kind', 'document')} without metadata cannot be written")
    return metadata


def _with_type_meta(resource: Resource, obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """With kind and apiVersion, which items of lists lack."""
    if "kind" in obj and "apiVersion" in obj:
        return obj
    return {"apiVersion": resource.api_version, "kind": resource.kind, **obj}


def _empty(_: type[T]) -> list[T]:
    return []


def _selector_query(label_selector: str, field_selector: str) -> dict[str, str]:
    query: dict[str, str] = {}
    if label_selector:
        query["labelSelector"] = label_selector
    if field_selector:
        query["fieldSelector"] = field_selector
    return query


def _preconditions(uid: str, resource_version: str) -> dict[str, str]:
    return {key: value for key, value in (("uid", uid), ("resourceVersion", resource_version)) if value}
